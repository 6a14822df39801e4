"""Put new theorems on the sides of the splits, when a commit's trace is closed.

Known theorems keep their side; `store.domain.splits` defines the sides. New ones are taken in the order of
the commit. One with the statement or the name of an older one, or of one before it in the same commit,
follows it. The rest, new in both, is decided:

- `random`: by its key, which is a hash.
- `novel_premises`: users of reserved premises are held out. Then premises unused in every train-side proof
  are reserved, the one with the fewest new users first, and their new users held out, until a fifth of all
  theorems with premises is. A premise beyond this limit is left: a popular one must not empty train. A trace
  behind many without new premises gives at most two fifths of its own. Val or test is by the key.

All sets are temporary tables: memory does not grow with the trace, and the work grows with the new part of
it. No side is ever taken back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing

from store.domain.identity import short_hash
from store.domain.splits import HELD_OUT, drawn_side_sql
from store.events.traces import CommitTraced
from store.log.envelope import StoredEvent
from store.sqlite import statements

_TABLES = {
    "arrived": "ord INTEGER PRIMARY KEY, content INTEGER NOT NULL",
    "newcomers": 'ord INTEGER PRIMARY KEY, "key" TEXT, name TEXT, content INTEGER, theorem INTEGER, '
    "new_key INTEGER, new_name INTEGER",
    "firsts": 'ord INTEGER PRIMARY KEY, "key" TEXT, name TEXT, by_key INTEGER, by_name INTEGER',
    "units": 'unit INTEGER PRIMARY KEY, "key" TEXT, with_premises INTEGER NOT NULL DEFAULT 0, '
    "held_out INTEGER NOT NULL DEFAULT 0, side TEXT",
    "leaders": '"of" TEXT, "key" TEXT, unit INTEGER, leader_of TEXT, leader_key TEXT, PRIMARY KEY ("of", "key")',
    "uses": "premise TEXT, unit INTEGER, PRIMARY KEY (premise, unit)",
    "users": "premise TEXT PRIMARY KEY, n INTEGER",
}
_WITHOUT_ROWID = frozenset({"leaders", "uses", "users"})

# Other digits of the key than above: the two splits are independent of each other.
_NOVEL_SIDE = (
    "CASE WHEN NOT held_out THEN 'train' WHEN substr(\"key\", 9, 4) < '8000' THEN 'val' ELSE 'test' END"
)

_MOST_OF_A_TRACE = 2 * HELD_OUT
_SLACK = HELD_OUT / 20


def commit_traced(db: sqlite3.Connection, event: StoredEvent, body: CommitTraced) -> None:
    """Decide the sides of this commit's new theorems. Its own row is in `traces` already."""
    for name, columns in _TABLES.items():
        suffix = " WITHOUT ROWID" if name in _WITHOUT_ROWID else ""
        db.execute(f"CREATE TEMP TABLE {name} ({columns}){suffix}")
    try:
        run = _runner(db, repository=body.repository, line=body.line, seq=event.seq)
        run("arrived")
        if run("newcomers"):
            _lead(db, run)
            _decide_random(db, event.seq)
            _decide_novel_premises(db, event.seq)
    finally:
        for name in _TABLES:
            db.execute(f"DROP TABLE temp.{name}")


Run = Callable[[str], int]


def _runner(db: sqlite3.Connection, **parameters: str | int) -> Run:
    return lambda name: db.execute(statements("view/projections/splits")[name], parameters).rowcount


def _lead(db: sqlite3.Connection, run: Run) -> None:
    """Find the leader of each new key and each new name."""
    for name in ("firsts", "units", "lead_units", "lead_restated", "lead_renamed"):
        run(name)
    # The leader of each of these is in the table already, or comes before it here.
    for key, name, by_key in db.execute(statements("view/projections/splits")["still_unled"]).fetchall():
        how = "lead_by_name" if by_key else "lead_by_key"
        db.execute(statements("view/projections/splits")[how], {"key": key, "name": name})


def _decide_random(db: sqlite3.Connection, seq: int) -> None:
    run = _runner(db, split="random", seq=seq)
    run("follow")
    db.execute(f"UPDATE temp.units SET side = {drawn_side_sql()}")
    run("join_units")


def _decide_novel_premises(db: sqlite3.Connection, seq: int) -> None:
    run = _runner(db, split="novel_premises", seq=seq)
    # First: a premise used by one of these on train is a trained one.
    run("follow")
    for name in ("uses", "users", "with_premises", "hold_users_of_reserved"):
        run(name)
    _reserve(db, seq)
    db.execute(f"UPDATE temp.units SET side = {_NOVEL_SIDE}")
    run("join_units")
    run("tally")


def _reserve(db: sqlite3.Connection, seq: int) -> None:
    """Reserve premises, and hold their users out, until the share is reached or no other fits."""
    new, held = db.execute("SELECT count(*), total(held_out) FROM temp.units WHERE with_premises").fetchone()
    before = dict(db.execute("SELECT side, theorems FROM split_tallies WHERE split = 'novel_premises'"))
    everyone = new + sum(before.values())
    held_before = everyone - new - before.get("train", 0)
    most = min(HELD_OUT * everyone - held_before, max(_MOST_OF_A_TRACE * new, 1))
    slack = _SLACK * everyone
    db.create_function("premise_rank", 1, _rank, deterministic=True)
    # Closed before the tables are dropped: SQLite does not drop a table during a read.
    with closing(db.execute(statements("view/projections/splits")["candidates"])) as candidates:
        for premise, users in candidates:
            room = most - held
            if room < 1 or users > held + room + slack:
                break  # reached; or this one and all later ones overshoot, even if all held theorems use it too
            if db.execute(
                statements("view/projections/splits")["is_trained_on"], {"premise": premise}
            ).fetchone()[0]:
                continue
            free = db.execute(
                statements("view/projections/splits")["free_users"], {"premise": premise}
            ).fetchone()[0]
            if 0 < free <= room + slack:
                db.execute(statements("view/projections/splits")["hold_users"], {"premise": premise})
                db.execute("INSERT INTO reserved_premises (full_name, seq) VALUES (?, ?)", (premise, seq))
                held += free


def _rank(premise: str) -> str:
    """Order premises with equally many users by a hash: by name, one area of mathematics would be held out first."""
    return short_hash("rank of a premise", premise)
