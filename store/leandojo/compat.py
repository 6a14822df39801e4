"""LeanDojo-v2 1.0.9's own splits, from the same input: for comparison, not for use.

Their faults are kept: a split is drawn anew at each export, so that theorems change sides as repositories grow; one
theorem can be in a side several times; a commit that moves lines doubles every theorem. Only the time differs: theirs
is quadratic, for they look theorems up in lists by equality (name, path, start, end), which after their own merging
is the same as identity. `store.domain.splits` is ours. LeanDojo's buckets and order are in `store.domain.curriculum`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Generic, TypeVar

from store.domain.curriculum import CompatError
from store.domain.records import Position

SEED = 3407
HELD_OUT = 0.2
"""The share of val, and the share of test, before rounding down."""

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class CompatTheorem(Generic[Item]):
    """What their export knows of a theorem. `item` is the caller's own and is not looked at.

    `premises` are the full names of all annotations of all tactics, in order, repetitions included.
    `processed` is its repository's `date_processed`: text (ISO 8601) or a datetime.
    """

    full_name: str
    file_path: str
    start: Position
    end: Position
    premises: tuple[str, ...]
    processed: str | datetime
    item: Item


Sides = dict[str, list[CompatTheorem[Item]]]


def split(theorems: Iterable[CompatTheorem[Item]]) -> dict[str, Sides[Item]]:
    """Return {"random": {"train", "val", "test"}, "novel_premises": {…}}, each list in their order.

    `theorems` come repository by repository, in each the proven ones first, then the sorrys that were proved, then
    the unproved: what their export iterates over.

    Raises:
        CompatError: some dates have a time zone and others do not.
    """
    rng = random.Random(SEED)  # noqa: S311 - theirs: what `random.seed(3407)` starts in the module's generator
    merged = _merged(theorems)
    held_out = int(len(merged) * HELD_OUT)
    rng.shuffle(merged)
    n_train = len(merged) - 2 * held_out
    drawn = {
        "train": merged[:n_train],
        "val": merged[n_train : n_train + held_out],
        "test": merged[n_train + held_out :],
    }
    return {"random": drawn, "novel_premises": _by_premise(merged, held_out, rng)}


def _merged(theorems: Iterable[CompatTheorem[Item]]) -> list[CompatTheorem[Item]]:
    """Keep one theorem of each path, name and position, whatever its repository: the later processed one."""
    kept: dict[tuple[str, str, Position, Position], tuple[CompatTheorem[Item], datetime]] = {}
    for theorem in theorems:
        processed = theorem.processed
        date = datetime.fromisoformat(processed) if isinstance(processed, str) else processed
        path = str(PurePosixPath(theorem.file_path))
        key = (path, theorem.full_name, theorem.start, theorem.end)
        try:
            if key not in kept or date > kept[key][1]:
                kept[key] = (theorem, date)
        except TypeError as error:
            raise CompatError(
                f"{theorem.full_name} in {theorem.file_path}: {error}; LeanDojo-v2 cannot merge repositories when "
                "`date_processed` has a time zone in some and none in others. Export without --compat"
            ) from error
    return [theorem for theorem, _ in kept.values()]


def _by_premise(theorems: list[CompatTheorem[Item]], held_out: int, rng: random.Random) -> Sides[Item]:
    users: dict[str, list[int]] = defaultdict(list)
    for number, theorem in enumerate(theorems):
        for premise in theorem.premises:
            users[premise].append(number)
    chosen: list[int] = []
    known: set[int] = set()
    for numbers in sorted(users.values(), key=len):
        if len(chosen) >= 2 * held_out:
            break
        # Looked up before any of these is added: a theorem that uses a premise twice is in twice.
        chosen.extend([number for number in numbers if number not in known])
        known.update(numbers)
    train = [theorem for number, theorem in enumerate(theorems) if number not in known]
    rng.shuffle(chosen)
    held = [theorems[number] for number in chosen]
    return {"train": train, "val": held[:held_out], "test": held[held_out:]}
