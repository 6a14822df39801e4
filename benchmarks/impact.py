"""Measure the time to compute the impact of the sorries of a large repository.

    python -m benchmarks.impact [--theorems 200000] [--sorries 5000]

The trace is made up and its rows are written straight into a view. A theorem uses eight of the theorems
before it, half of them among the thousand before it, and twenty constants of dependencies; the sorries are
spread over all.
"""

from __future__ import annotations

import argparse
import random
import resource
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from store.log.log import EventLog
from store.view import queries
from store.view.impact import Declared, impacts
from store.view.rebuild import rebuild
from store.view.trace_queries import branch_line

PER_FILE = 50
USES, OF_DEPENDENCIES = 8, 20
REPOSITORY, BRANCH, SHA = "example.org/demo/large", "main", "1" * 40


def declared(number: int) -> Declared:
    """Return the theorem with a number."""
    return Declared(f"Large/F{number // PER_FILE}.lean", f"Large.t{number}")


def fill(folder: Path, theorems: int) -> Path:
    """Make a view with the trace of a branch; return its file."""
    EventLog.open(folder / "events.db").close()
    path = folder / "database.db"
    rebuild(folder / "events.db", path)
    rng = random.Random(0)

    def uses() -> Iterator[tuple[object, ...]]:
        for number in range(theorems):
            content, index = divmod(number, PER_FILE)
            near = [rng.randrange(max(0, number - 1000), number) for _ in range(USES // 2) if number]
            far = [rng.randrange(number) for _ in range(USES // 2) if number]
            for at, used in enumerate((*near, *far)):
                yield content, index, at, declared(used).name, declared(used).path, 1, 1, 1, 2
            for at in range(OF_DEPENDENCIES):
                name = f"Nat.lemma{rng.randrange(50_000)}"
                yield content, index, USES + at, name, ".lake/packages/mathlib/M.lean", 1, 1, 1, 2

    files = range(-(-theorems // PER_FILE))
    view = sqlite3.connect(path)
    view.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
    # The index by name is made at the end: row by row in the order of names takes longer than everything
    # else.
    indexes = view.execute(
        "SELECT name, sql FROM sqlite_master WHERE tbl_name = 'theorem_premises' AND type = 'index' AND sql IS NOT NULL"
    ).fetchall()
    for name, _ in indexes:
        view.execute(f'DROP INDEX "{name}"')
    with view:
        view.execute(
            "INSERT INTO traces (trace, repository, line, sha, seq, state, url, name, lean_version, tracer, "
            "tracer_version, source, metadata_json, files_traced, files_failed, n_theorems, n_premises, "
            "n_tactics, traced_at) VALUES ('t', ?, ?, ?, 1, 'current', '', '', '', '', '', 'lean', '{}', ?, 0, ?, "
            "?, 0, '')",
            (REPOSITORY, branch_line(BRANCH), SHA, len(files), theorems, theorems),
        )
        view.executemany(
            "INSERT INTO traced_files (repository, line, path, from_seq, content, sha, key) "
            "VALUES (?, ?, ?, 1, ?, ?, '')",
            ((REPOSITORY, branch_line(BRANCH), declared(file * PER_FILE).path, file, SHA) for file in files),
        )
        view.executemany(
            'INSERT INTO traced_theorems (content, "index", full_name, split_key, line, "column", end_line, '
            "end_column, n_tactics, has_sorry) VALUES (?, ?, ?, '', 1, 1, 1, 1, 1, 0)",
            ((*divmod(number, PER_FILE), declared(number).name) for number in range(theorems)),
        )
        view.executemany(
            'INSERT INTO premises (content, "index", full_name, kind, code, line, "column", end_line, end_column) '
            "VALUES (?, ?, ?, '', '', 1, 1, 1, 1)",
            ((*divmod(number, PER_FILE), declared(number).name) for number in range(theorems)),
        )
        view.executemany(
            "INSERT INTO theorem_premises (content, theorem, position, full_name, def_path, def_line, def_column, "
            "def_end_line, def_end_column) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            uses(),
        )
        for _, sql in indexes:
            view.execute(sql)
    view.close()
    return path


def measure(path: Path, theorems: int, sorries: int) -> dict[str, float]:
    """Return the figures by their names."""
    view = queries.connect(path)
    targets = [declared(number * theorems // sorries) for number in range(sorries)]
    began = time.process_time()
    result = impacts(view, REPOSITORY, BRANCH, targets)
    seconds = time.process_time() - began
    view.close()
    counts = [impact.theorems for impact in result.values() if impact.theorems is not None]
    if len(counts) != sorries:
        raise RuntimeError(f"{sorries - len(counts)} of {sorries} are unknown")
    return {
        "processor, s": seconds,
        "most theorems that rest on one": max(counts),
        "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--theorems", type=int, default=200_000)
    parser.add_argument("--sorries", type=int, default=5000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="everlean-impact-") as scratch:
        path = fill(Path(scratch), chosen.theorems)
        print(f"{chosen.theorems:,} traced theorems, {chosen.sorries:,} sorries")
        for name, value in measure(path, chosen.theorems, chosen.sorries).items():
            print(f"{name:32} {value:10,.2f}")


if __name__ == "__main__":
    main()
