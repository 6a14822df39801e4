"""LeanDojo-v2 1.0.9's own splits, buckets and order, from the same input: for comparison, not for use.

What makes them unfit is kept: a split is drawn anew at each export, so that theorems change sides as repositories
grow; one theorem can be in a side several times; a commit that moves lines doubles every theorem; percentiles are taken
over infinities and can be NaN; a proof of more than 709 steps stops everything. Only the time differs: theirs is
quadratic, for they look theorems up in lists by equality (name, path, start, end), which after their own merging is
the same as identity. `store.splits` and `store.curriculum` are ours. Standard library only.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Generic, TypeVar

from store.errors import LogError
from store.traced import Position

SEED = 3407
HELD_OUT = 0.2
"""The share of val, and the share of test, before rounding down."""
LAST_STEPS = 709
"""The longest proof that they can rate: e^710 is no double."""

Item = TypeVar("Item")


class CompatError(LogError):
    """LeanDojo-v2 fails on this input; there is nothing to reproduce."""


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


@dataclass(frozen=True, slots=True)
class CompatBuckets:
    """How many theorems of a repository fall where; their `Hard (No proof)` is `no_proof`.

    `easy`, `medium` and `hard` contain the theorems without steps, which are dealt out in three parts.
    """

    easy: int
    medium: int
    hard: int
    no_proof: int


def difficulty(n_steps: int, *, has_sorry: bool) -> float | None:
    """Return their rating: e^steps, infinity with a sorry, None without steps.

    Raises:
        CompatError: the proof is too long for a float, which ends their program.
    """
    if has_sorry:
        return math.inf
    if n_steps == 0:
        return None
    if n_steps > LAST_STEPS:
        raise CompatError(
            f"a proof has {n_steps} steps, and e^{n_steps} is no float: LeanDojo-v2 stops there with an "
            "OverflowError. Leave --compat away"
        )
    return math.exp(n_steps)


def thresholds(ratings: Mapping[float, int]) -> tuple[float, float]:
    """Return their 33rd and 67th percentile of {rating: how many}, infinities included; NaN where theirs are.

    Raises:
        CompatError: there is no rating at all, which ends their program.
    """
    if not ratings:
        raise CompatError("no theorem has a proof step: LeanDojo-v2 stops there with an IndexError")
    ordered = sorted(ratings.items())
    return _percentile(ordered, 33), _percentile(ordered, 67)


def buckets(counted: Mapping[float | None, int], limits: tuple[float, float]) -> CompatBuckets:
    """Sort one repository's {rating: how many} into their buckets. Nothing is below a limit that is NaN."""
    found: Counter[str] = Counter()
    for rating, number in counted.items():
        found[_bucket(rating, limits)] += number
    third = found["rest"] // 3
    return CompatBuckets(
        easy=found["easy"] + third,
        medium=found["medium"] + third,
        hard=found["hard"] + found["rest"] - 2 * third,
        no_proof=found["no_proof"],
    )


def order(repositories: Sequence[tuple[Item, CompatBuckets]]) -> list[tuple[Item, CompatBuckets]]:
    """Return repositories with most easy theorems first; the others keep their order. Empty ones are left out."""
    known = [
        (item, found)
        for item, found in repositories
        if found.easy + found.medium + found.hard + found.no_proof
    ]
    return sorted(known, key=lambda pair: pair[1].easy, reverse=True)


def _bucket(rating: float | None, limits: tuple[float, float]) -> str:
    if rating is None:
        return "rest"
    if rating == math.inf:
        return "no_proof"
    if rating <= limits[0]:
        return "easy"
    return "medium" if rating <= limits[1] else "hard"


def _percentile(ordered: list[tuple[float, int]], percent: int) -> float:
    """What numpy's `percentile` gives (linear interpolation), with its arithmetic of infinities."""
    total = sum(number for _, number in ordered)
    at = (total - 1) * (percent / 100)
    below = math.floor(at)
    low, high = _nth(ordered, below), _nth(ordered, min(below + 1, total - 1))
    part = at - below
    difference = high - low
    return low + difference * part if part < 0.5 else high - difference * (1 - part)


def _nth(ordered: list[tuple[float, int]], index: int) -> float:
    for value, number in ordered:
        if index < number:
            return value
        index -= number
    raise IndexError(index)
