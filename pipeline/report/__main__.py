"""`python -m pipeline.report DATABASE EVENTS`: print the page of a view and its log. The daemon's way to make one.

A process of its own, so that neither the time nor the memory that a large page takes is the daemon's.
"""

from __future__ import annotations

import resource
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from pipeline.jobs.protocol import end_with_the_daemon
from pipeline.report.gather import gather_at
from pipeline.report.page import render
from store.errors import LogError
from store.view import queries


def main(database: str, events: str) -> int:
    """Print the page; or one line on standard error that says why not, and return 1."""
    try:
        with closing(queries.connect(Path(database))) as view:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            page = render(gather_at(view, Path(events), made_at=now)).html.encode()
    except (LogError, sqlite3.Error) as error:
        sys.stderr.write(f"the view cannot be read: {error}\n")
        return 1
    except MemoryError:
        most = resource.getrlimit(resource.RLIMIT_DATA)[0] >> 20
        sys.stderr.write(
            f"it takes more than the {most:,} MiB that it may; `unsorry report` makes it without limit\n"
        )
        return 1
    sys.stdout.buffer.write(page)
    return 0


if __name__ == "__main__":
    end_with_the_daemon()
    sys.exit(main(*sys.argv[1:]))
