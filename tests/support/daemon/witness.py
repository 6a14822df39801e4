"""An independent reader of events.db: a process with sqlite3 and none of our code, that notes each event that it saw.

with watching(paths.events_db, folder / "seen") as seen:
    ...                                   # daemons that are killed
assert missing(seen, paths.events_db) == []
"""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

LOOK_S = 0.01
PATIENCE_S = 60.0
"""How long a log that is there may refuse to be read, as while a daemon makes it."""


def rows(log: Path, *, after: int = 0) -> list[tuple[int, str]]:
    """The events after a position: the number of each, and a hash of all of its columns."""
    with closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True, timeout=20)) as connection:
        found = connection.execute("SELECT * FROM events WHERE seq > ? ORDER BY seq", (after,))
        return [(row[0], hashlib.sha256(repr(row).encode()).hexdigest()) for row in found]


@contextmanager
def watching(log: Path, notes: Path) -> Iterator[Path]:
    """Have a process follow the log; yield the file with a line for each event that it saw.

    Raises:
        AssertionError: the reader ended before it was told to.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.daemon.witness", str(log), str(notes)],
        cwd=Path(__file__).resolve().parents[3],
    )
    try:
        yield notes
    finally:
        ended = process.poll()
        process.kill()
        process.wait()
        assert ended is None, f"the reader ended with status {ended}"


def noted(notes: Path) -> list[tuple[int, str]]:
    """What the reader saw; a line that it did not end is none."""
    *lines, _ = notes.read_text(encoding="ascii").split("\n")
    return [(int(seq), digest) for seq, digest in map(str.split, lines)]


def missing(notes: Path, log: Path) -> list[int]:
    """The numbers of the events that the reader saw and that the log has no more, or has with other content."""
    held = dict(rows(log))
    return [seq for seq, digest in noted(notes) if held.get(seq) != digest]


def main() -> None:
    log, notes = map(Path, sys.argv[1:])
    last, refused_since = 0, None
    with notes.open("w", encoding="ascii") as file:
        while True:
            try:
                found = rows(log, after=last)
                refused_since = None
            except sqlite3.OperationalError:
                refused_since = refused_since or time.monotonic()
                if log.exists() and time.monotonic() - refused_since > PATIENCE_S:
                    raise
                found = []
            for last, digest in found:
                file.write(f"{last} {digest}\n")
            file.flush()
            time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
