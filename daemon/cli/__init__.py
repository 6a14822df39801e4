"""The command `everlean`: one verb per file, and `main`, which loads only the given verb.

`everlean status` must answer within milliseconds, so nothing here or in the reading verbs imports pydantic,
SQLAlchemy, an HTTP library or structlog; a test looks at `sys.modules`.
"""

from __future__ import annotations

from daemon.cli.app import main

__all__ = ["main"]
