"""The side of a split for each theorem, and the rows of the traces in an export of that side.

A split has three sides: train, val and test, 80/10/10 in the long run. A theorem is put on one when its
commit is closed, and stays there for life, whatever is traced later (`store.view.projections.splits` decides
it and writes `split_members`). It is identified by its statement (`store.domain.identity.split_key`), and so
shares its side with every copy of it; a restated theorem follows its name, a renamed one its statement. A
theorem with different sides by the two is on its statement's side, but in no training export unless both are
train.

- `random`: by a hash of the key.
- `novel_premises`: a theorem of val or test used, when it was put there, a premise unused in every training
  proof. Such premises are reserved (`reserved_premises`): a proof with one is in no training export, and a
  theorem of val or test is exported while its proof uses one. A theorem without any premise is on train.

Here is the reading side, for the export and for training: `exported_side` is the one rule, as an SQL
expression for any query. Standard library only.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

Split = Literal["random", "novel_premises"]
Side = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("random", "novel_premises")
SIDES: tuple[Side, ...] = ("train", "val", "test")

HELD_OUT = 0.2
"""The share of val and test together."""


class ExportedTheorem(NamedTuple):
    """A theorem of an export: its trace, its file, and the key of its rows."""

    trace: str
    path: str
    content: int
    theorem: int


def exported_side(split: Split, *, theorem: str = "traced_theorems") -> str:
    """Return an SQL expression: the side whose export has the row, NULL for none.

    `theorem` is the name of `traced_theorems` in the query. NULL means withheld: the row must not be trained
    on and is no test either. A row of an unclosed trace is NULL too.
    """
    members = (
        "FROM split_members AS by_key JOIN split_members AS by_name ON by_name.split = by_key.split "
        f'AND by_name."of" = \'name\' AND by_name."key" = {theorem}.full_name '
        f"WHERE by_key.split = '{split}' AND by_key.\"of\" = 'theorem' AND by_key.\"key\" = {theorem}.split_key"
    )
    held_out = "WHEN by_key.side <> 'train' THEN by_key.side"
    trained_on = "WHEN by_name.side = 'train' THEN 'train'"
    if split == "random":
        return f"(SELECT CASE {held_out} {trained_on} END {members})"
    uses = uses_reserved_premise(theorem=theorem)
    return (
        f"(CASE WHEN {uses} THEN (SELECT CASE {held_out} END {members}) "
        f"ELSE (SELECT CASE WHEN by_key.side <> 'train' THEN NULL {trained_on} END {members}) END)"
    )


def uses_reserved_premise(*, theorem: str = "traced_theorems") -> str:
    """Return an SQL condition: the row's proof uses a premise barred from training by novel_premises."""
    return (
        "EXISTS (SELECT 1 FROM tactic_premises AS used CROSS JOIN reserved_premises AS reserved "
        "ON reserved.full_name = used.full_name "
        f'WHERE used.content = {theorem}.content AND used.theorem = {theorem}."index")'
    )


def files_of(trace: str = "traces", *, files: str = "traced_files") -> str:
    """Return an SQL condition to join `traced_files` to `traces`: the files of a traced commit."""
    return (
        f"{files}.repository = {trace}.repository AND {files}.line = {trace}.line AND {files}.from_seq <= {trace}.seq "
        f"AND ({files}.until_seq IS NULL OR {files}.until_seq > {trace}.seq)"
    )


_BELOW: tuple[tuple[Side, str], ...] = (("test", "1999999a"), ("val", "33333333"))


def drawn_side(key: str) -> Side:
    """Return the side of `random` for the `split_key` of an unknown theorem."""
    return next((side for side, below in _BELOW if key[:8] < below), "train")


def drawn_side_sql(key: str = '"key"') -> str:
    """Return `drawn_side` as an SQL expression of a column."""
    cases = " ".join(f"WHEN substr({key}, 1, 8) < '{below}' THEN '{side}'" for side, below in _BELOW)
    return f"CASE {cases} ELSE 'train' END"


def held_out(db: sqlite3.Connection, *, name: str, keys: Collection[str]) -> bool:
    """Return whether a theorem must not be trained on.

    By its name, or by one of its `split_key`s, it is on val or test of `random`; or it is unknown, and one of
    the keys would be drawn there.
    """
    sides = [
        side
        for (side,) in db.execute(
            "SELECT side FROM split_members WHERE split = 'random' AND (\"of\" = 'name' AND \"key\" = ? "
            'OR "of" = \'theorem\' AND "key" IN (SELECT value FROM json_each(?)))',
            (name, json.dumps(sorted(keys))),
        )
    ]
    return any(side != "train" for side in sides or map(drawn_side, keys))


def side_of(db: sqlite3.Connection, split: Split, key: str) -> Side | None:
    """Return the side of a theorem by its `split_key`; None before its first closed trace."""
    row = db.execute(
        'SELECT side FROM split_members WHERE split = ? AND "of" = \'theorem\' AND "key" = ?', (split, key)
    ).fetchone()
    return None if row is None else row[0]


def exported(
    db: sqlite3.Connection, trace: str, splits: tuple[Split, ...] = SPLITS
) -> Iterator[tuple[ExportedTheorem, tuple[Side | None, ...]]]:
    """Yield a trace's theorems by path and place in the file, each with its side in the export of each split.

    The side is None for a withheld theorem. Streamed: one pass over the theorems serves every file.
    """
    sides = ", ".join(exported_side(split, theorem="t") for split in splits)
    rows = db.execute(
        f'SELECT f.path, t.content, t."index", {sides} FROM traces CROSS JOIN traced_files AS f '
        f"ON {files_of('traces', files='f')} CROSS JOIN traced_theorems AS t ON t.content = f.content "
        'WHERE traces.trace = ? ORDER BY f.path, t."index"',
        (trace,),
    )
    for path, content, index, *result in rows:
        yield ExportedTheorem(trace, path, content, index), tuple(result)


def counts(db: sqlite3.Connection, split: Split) -> dict[Side, int]:
    """Count the theorems of each side, over all traces. Reads every member of the split."""
    result: dict[Side, int] = dict.fromkeys(SIDES, 0)
    result.update(
        db.execute(
            "SELECT side, count(*) FROM split_members WHERE split = ? AND \"of\" = 'theorem' GROUP BY side",
            (split,),
        )
    )
    return result
