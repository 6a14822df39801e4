"""`python -m daemon.cli` is `everlean`."""

from __future__ import annotations

from daemon.cli.app import main

if __name__ == "__main__":
    main()
