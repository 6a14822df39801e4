"""A large house: a report of it is made within seconds."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pipeline.report.gathering import gather
from pipeline.report.page import render
from pipeline.report.writing import write
from store import queries
from store.testing import MemoryLog
from store.view import View

SORRYS, CHECKPOINTS, TASKS, PROOFS = 100_000, 100, 10, 20_000
LIMIT_S = 5.0
WHERE = ("github.com/leanprover-community/mathlib4", "main")


def insert(db: sqlite3.Connection, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Add rows to a table; its other columns that may not be empty get what stands for nothing."""
    filled = [
        (column, "[]" if column.endswith("_json") else 0 if kind in ("INTEGER", "REAL") else "")
        for _, column, kind, needed, default, _ in db.execute(f"PRAGMA table_info({table})")
        if needed and default is None and column not in names
    ]
    columns = [*names, *(column for column, _ in filled)]
    rest = tuple(value for _, value in filled)
    marks = ", ".join("?" * len(columns))
    quoted = ", ".join(f'"{column}"' for column in columns)
    db.executemany(f"INSERT INTO {table} ({quoted}) VALUES ({marks})", ((*row, *rest) for row in rows))


def build(folder: Path) -> Path:
    path = folder / "database.db"
    with MemoryLog() as log, View.open(path, log.reader()):
        pass
    chance = random.Random(1)
    states = chance.choices(("open", "filled", "removed"), (6, 3, 1), k=SORRYS)

    def at(number: int) -> str:
        return (
            f"2026-{1 + number // 10_000:02}-{1 + number // 400 % 25:02}T00:{number // 7 % 60:02}:00.000000Z"
        )

    def steps() -> Iterable[tuple[Any, ...]]:
        for number, state in enumerate(states):
            yield (*WHERE, f"{number:016x}", 2 * number, "opened", at(number), "")
            if state != "open":
                detail = chance.choice(("by people", "by us"))
                yield (*WHERE, f"{number:016x}", 2 * number + 1, state, at(number), detail)

    with closing(sqlite3.connect(path)) as db, db:
        insert(db, "repositories", ("repository", "watched", "state"), [(WHERE[0], 1, "ok")])
        sorrys = ((*WHERE, f"{number:016x}", state) for number, state in enumerate(states))
        insert(db, "sorries", ("repository", "branch", "sorry", "state"), sorrys)
        names = ("repository", "branch", "sorry", "seq", "step", "recorded_at", "detail")
        insert(db, "sorry_steps", names, steps())
        proofs = (
            (f"{number:016x}", "rejected", f"compile: error {number % 500}") for number in range(PROOFS)
        )
        insert(db, "proofs", ("proof", "state", "reason"), proofs)
        jobs = ((f"prove-{number:016x}", "prove", "succeeded", 1.5) for number in range(PROOFS))
        insert(db, "jobs", ("job", "kind", "state", "seconds"), jobs)
        names = ("checkpoint", "model", "parent", "config_json", "versions_json", "saved_at", "promoted")
        chain = (
            (
                f"{k:04}",
                "retriever",
                f"{k - 1:04}" if k else None,
                "{}",
                "{}",
                at(k),
                int(k == CHECKPOINTS - 1),
            )
            for k in range(CHECKPOINTS)
        )
        insert(db, "checkpoints", names, chain)
        columns = ("evaluation", "model", "checkpoint", "repository", "split", "dataset", "metrics_json", "n")
        measured = (
            (
                f"{k}-{j}",
                "retriever",
                f"{k:04}",
                f"task-{j}",
                "test",
                str(j),
                f'{{"recall@10": {chance.random()}}}',
                9,
            )
            for k in range(CHECKPOINTS)
            for j in range(TASKS)
        )
        insert(db, "evaluations", columns, measured)
    return path


def test_a_report_of_100_000_sorrys_and_100_checkpoints_takes_under_5_s(tmp_path: Path) -> None:
    path = build(tmp_path)
    # Of this process alone: what else the machine does is no property of the report.
    started = time.process_time()
    with closing(queries.connect(path)) as view:
        data = gather(view, made_at="2026-11-01T00:00:00+00:00")
    page, *_ = write(render(data), tmp_path / "out")
    took = time.process_time() - started
    assert sum(data.sorries.values()) == data.history[-1].opened == SORRYS
    (matrix,) = data.matrices
    assert [len(task.known) for task in matrix.tasks] == [CHECKPOINTS] * TASKS
    assert took < LIMIT_S
    assert page.stat().st_size < 4 << 20, "a page that a browser opens at once"
