"""`python -m pipeline.report DATABASE EVENTS MIRRORS PAGE`: print a page, the daemon's way to make one.

The problems of the status come on standard input, as a list in JSON. A process of its own keeps the time and memory of
a large page out of the daemon.
"""

from __future__ import annotations

import json
import resource
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from pipeline.jobs.blueprint import Blueprints
from pipeline.jobs.protocol import end_with_the_daemon
from pipeline.jobs.written import Sources
from pipeline.report import FIRST, NO_SUCH_PAGE
from pipeline.report.page import payloads, render
from store.documents.problems import Problem
from store.errors import LogError
from store.view import queries


def main(database: str, events: str, mirrors: str, page: str = FIRST) -> int:
    """Print the page; or one line on standard error with the reason, and return another status than 0."""
    try:
        with closing(queries.connect(Path(database))) as view:
            blueprints = Blueprints(Path(mirrors), lambda problem: sys.stderr.write(f"{problem}\n"))
            problems = [Problem(**one) for one in json.loads(sys.stdin.read() or "[]")]
            with payloads(Path(events)) as blob:
                html = render(
                    view,
                    made_at=datetime.now(UTC),
                    problems=problems,
                    blob=blob,
                    blueprints=blueprints,
                    written=Sources(Path(mirrors)),
                    only=page,
                    served=True,
                ).html
    except (LogError, sqlite3.Error) as error:
        sys.stderr.write(f"the view cannot be read: {error}\n")
        return 1
    except MemoryError:
        most = resource.getrlimit(resource.RLIMIT_DATA)[0] >> 20
        sys.stderr.write(
            f"it takes more than the {most:,} MiB that it may; `everlean report` makes it without limit\n"
        )
        return 1
    if page not in html:
        sys.stderr.write("the report has no page of this name (any more)\n")
        return NO_SUCH_PAGE
    sys.stdout.buffer.write(html[page].encode())
    return 0


if __name__ == "__main__":
    end_with_the_daemon()
    sys.exit(main(*sys.argv[1:]))
