"""The order to learn repositories in: those with most easy theorems first.

A theorem's difficulty is e^S, S being the steps of its proof; everything here is in S, which orders alike and
cannot overflow. A third of the proofs are easy, a third medium, a third hard: the limits are the 33rd and
67th percentile of S over the theorems with proof steps and without a sorry. A theorem with a sorry, or
without steps (proved by a term), has no difficulty; these are dealt out evenly over the three by a hash of
the theorem, so that adding or removing one moves no other. `compat` gives LeanDojo-v2 1.0.9's own buckets and
order instead, for comparison and not for use: its percentiles are taken over infinities and can be NaN, and a
proof of more than 709 steps stops everything.

Counted by SQLite, trace by trace: memory grows with the number of different S alone. Standard library only.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from store.domain.splits import files_of
from store.errors import LogError
from store.view import trace_queries
from store.view.rows import TraceRow

EASY_PERCENT = 33
MEDIUM_PERCENT = 67
_LARGEST_S = math.log(1.797e308)


COMPAT_LAST_STEPS = 709
"""The longest proof LeanDojo-v2 can rate: e^710 is no double."""

Number = TypeVar("Number", int, float)
_Buckets = tuple[int, int, int, int]
"""The numbers of easy, medium, hard, and unproved theorems."""


class CompatError(LogError):
    """LeanDojo-v2 fails on this input; there is nothing to reproduce."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The limits of the buckets, in steps, both inclusive; beyond `medium` is hard.

    Whole or fractional, as percentiles lie between two lengths; LeanDojo-v2's may be infinite or NaN.
    """

    easy: float
    medium: float


@dataclass(frozen=True, slots=True)
class CurriculumRepository:
    """A repository's place, and the numbers of its traced commit.

    Attributes:
        order: from 1.
        sha: the traced commit.
        theorems: all of them, the sum of `easy`, `medium`, `hard` and `no_proof`.
        no_proof: only with `compat`, those with a sorry.
        sorries: those with a sorry; without `compat` they are dealt out over the other three.
        proofless: those with neither a sorry nor steps; they are dealt out too.
        completeness: the share of files, 0 to 1, extracted whole.
    """

    order: int
    repository: str
    sha: str
    trace: str
    theorems: int
    easy: int
    medium: int
    hard: int
    no_proof: int
    sorries: int
    proofless: int
    files_traced: int
    files_failed: int
    completeness: float


@dataclass(frozen=True, slots=True)
class Curriculum:
    """Repositories in learning order. `thresholds` is None if no proof has steps."""

    repositories: tuple[CurriculumRepository, ...]
    thresholds: Thresholds | None
    compat: bool


@dataclass(frozen=True, slots=True)
class Limit:
    steps: float | None
    difficulty: float | None
    text: str
    """like `e^4`"""

    @classmethod
    def of(cls, steps: float) -> Limit:
        """Describe a limit; JSON has no infinity and no NaN, both possible in LeanDojo-v2's."""
        return cls(steps if math.isfinite(steps) else None, rating(steps), f"e^{steps:.4g}")

    @property
    def long_text(self) -> str:
        """Return "4 steps (e^4 = 54.6)"."""
        value = "" if self.difficulty is None else f" = {self.difficulty:.4g}"
        return f"{self.text.removeprefix('e^')} steps ({self.text}{value})"


@dataclass(frozen=True, slots=True)
class Limits:
    easy: Limit
    medium: Limit


@dataclass(frozen=True, slots=True)
class Ordered:
    compat: bool
    """whether these are LeanDojo-v2's own"""
    thresholds: Limits | None
    """both inclusive; null if no proof has steps"""
    repositories: list[CurriculumRepository]
    """in order"""

    @classmethod
    def of(cls, source: Curriculum, repository: str | None) -> Ordered:
        """Describe a curriculum, or the place of one repository in it."""
        limits = source.thresholds
        return cls(
            source.compat,
            None if limits is None else Limits(Limit.of(limits.easy), Limit.of(limits.medium)),
            [row for row in source.repositories if repository in (None, row.repository)],
        )


def difficulty(n_tactics: int, *, has_sorry: bool) -> int | None:
    """Return S, the steps of a proof; None for a proof by a term or with a sorry."""
    return None if has_sorry or n_tactics == 0 else n_tactics


def rating(steps: float | None) -> float | None:
    """Return e^S; None without S, or if e^S is no float (beyond 709 steps)."""
    return None if steps is None or not steps <= _LARGEST_S else math.exp(steps)


def thresholds(counted: Mapping[int, int]) -> Thresholds | None:
    """Return the limits over {S: number of proofs}; None without any."""
    total = sum(counted.values())
    if total == 0:
        return None
    ordered = sorted(counted.items())
    return Thresholds(_percentile(ordered, total, EASY_PERCENT), _percentile(ordered, total, MEDIUM_PERCENT))


def curriculum(db: sqlite3.Connection, *, compat: bool = False) -> Curriculum:
    """Return the order of all repositories with a current trace, by the newest of each.

    With `compat` every current trace is a repository of its own, as in LeanDojo-v2, and those with as many
    easy theorems stand in the order of their recording, else in that of their names.

    Raises:
        CompatError: `compat`, and LeanDojo-v2 fails on these theorems.
    """
    if compat:
        newest_first = reversed(trace_queries.traces(db))
        return _as_leandojo([(row, _count(db, row, sorry=_LEANDOJO_SORRY)) for row in newest_first])
    traces = trace_queries.newest_traces(db)
    return _ours([(row, _count(db, row, sorry="t.has_sorry")) for row in traces])


_LEANDOJO_SORRY = (
    'EXISTS (SELECT 1 FROM traced_tactics AS step WHERE step.content = t.content AND step.theorem = t."index" '
    "AND instr(step.tactic, 'sorry') > 0)"
)
"""Its rule: the letters anywhere in a tactic. `has_sorry` is Lean's word."""

# Other digits of the key than the splits use.
_THIRD = "CASE WHEN substr(t.split_key, 13) < '5555' THEN 0 WHEN substr(t.split_key, 13) < 'aaaa' THEN 1 ELSE 2 END"


@dataclass(frozen=True, slots=True)
class _Counted:
    """A trace's theorems: by S if they have one, else by their dealt third."""

    by_steps: Counter[int]
    dealt: tuple[int, int, int]
    sorries: int
    proofless: int

    @property
    def theorems(self) -> int:
        return self.by_steps.total() + self.sorries + self.proofless


def _count(db: sqlite3.Connection, trace: TraceRow, *, sorry: str) -> _Counted:
    by_steps: Counter[int] = Counter()
    dealt = [0, 0, 0]
    no_steps = [0, 0]
    for has_sorry, steps, third, number in _groups(db, trace, sorry):
        s = difficulty(steps, has_sorry=bool(has_sorry))
        if s is not None:
            by_steps[s] += number
        else:
            dealt[third] += number
            no_steps[has_sorry] += number
    easy, medium, hard = dealt
    return _Counted(by_steps, (easy, medium, hard), sorries=no_steps[1], proofless=no_steps[0])


def _groups(db: sqlite3.Connection, trace: TraceRow, sorry: str) -> Iterator[tuple[int, int, int, int]]:
    yield from db.execute(
        "SELECT has_sorry, steps, CASE WHEN has_sorry OR steps = 0 THEN third ELSE 0 END AS dealt, count(*) FROM ("
        f"SELECT {sorry} AS has_sorry, t.n_tactics AS steps, {_THIRD} AS third "
        f"FROM traces CROSS JOIN traced_files ON {files_of()} "
        "CROSS JOIN traced_theorems AS t ON t.content = traced_files.content WHERE traces.trace = ?) "
        "GROUP BY has_sorry, steps, dealt",
        (trace.trace,),
    )


def _ours(counted: Sequence[tuple[TraceRow, _Counted]]) -> Curriculum:
    everything: Counter[int] = Counter()
    for _, of_trace in counted:
        everything.update(of_trace.by_steps)
    limits = thresholds(everything)
    result = [(trace, of_trace, (*_buckets(of_trace, limits), 0)) for trace, of_trace in counted]
    result.sort(key=lambda item: (-item[2][0], item[0].repository))
    return Curriculum(_rows(result), limits, compat=False)


def _buckets(counted: _Counted, limits: Thresholds | None) -> tuple[int, int, int]:
    easy, medium, hard = counted.dealt
    if limits is not None:
        for steps, number in counted.by_steps.items():
            if steps <= limits.easy:
                easy += number
            elif steps <= limits.medium:
                medium += number
            else:
                hard += number
    return easy, medium, hard


def _rows(groups: Iterable[tuple[TraceRow, _Counted, _Buckets]]) -> tuple[CurriculumRepository, ...]:
    return tuple(
        CurriculumRepository(
            order,
            trace.repository,
            trace.sha,
            trace.trace,
            counted.theorems,
            *buckets,
            sorries=counted.sorries,
            proofless=counted.proofless,
            files_traced=trace.files_traced,
            files_failed=trace.files_failed,
            completeness=trace.completeness,
        )
        for order, (trace, counted, buckets) in enumerate(groups, start=1)
    )


def _percentile(ordered: Sequence[tuple[int, int]], total: int, percent: int) -> float:
    """Interpolate between the two lengths around the percentile."""
    below, part = divmod((total - 1) * percent, 100)
    low, high = _nth(ordered, below), _nth(ordered, min(below + 1, total - 1))
    return (low * (100 - part) + high * part) / 100


def _nth(ordered: Sequence[tuple[Number, int]], index: int) -> Number:
    for value, number in ordered:
        if index < number:
            return value
        index -= number
    raise IndexError(index)


# LeanDojo-v2's own.


def compat_difficulty(n_steps: int, *, has_sorry: bool) -> float | None:
    """Return their rating: e^steps, infinity with a sorry, None without steps.

    Raises:
        CompatError: the proof is too long for a float, the end of their program.
    """
    if has_sorry:
        return math.inf
    if n_steps == 0:
        return None
    if n_steps > COMPAT_LAST_STEPS:
        raise CompatError(
            f"a proof has {n_steps} steps, and e^{n_steps} is no float: LeanDojo-v2 stops there with an "
            "OverflowError. Leave --compat away"
        )
    return math.exp(n_steps)


def _as_leandojo(counted: Iterable[tuple[TraceRow, _Counted]]) -> Curriculum:
    rated = [(trace, of_trace, _ratings(of_trace)) for trace, of_trace in counted if of_trace.theorems]
    if not rated:
        return Curriculum((), None, compat=True)
    everything: Counter[float] = Counter()
    for _, _, ratings in rated:
        everything.update(ratings)
    if not everything:
        raise CompatError("no theorem has a proof step: LeanDojo-v2 stops there with an IndexError")
    ordered = sorted(everything.items())
    easy, medium = (_compat_percentile(ordered, percent) for percent in (EASY_PERCENT, MEDIUM_PERCENT))
    result = [
        (trace, one, _compat_buckets(ratings, one.proofless, easy, medium)) for trace, one, ratings in rated
    ]
    # The others keep their order.
    result.sort(key=lambda item: item[2][0], reverse=True)
    return Curriculum(_rows(result), Thresholds(math.log(easy), math.log(medium)), compat=True)


def _ratings(counted: _Counted) -> Counter[float]:
    """Return {rating: number}, of the rated theorems."""
    rated = {compat_difficulty(steps, has_sorry=False): number for steps, number in counted.by_steps.items()}
    return +Counter(
        {math.inf: counted.sorries, **{value: one for value, one in rated.items() if value is not None}}
    )


def _compat_buckets(ratings: Mapping[float, int], proofless: int, easy: float, medium: float) -> _Buckets:
    """Sort one repository's theorems into their buckets.

    Those without steps are dealt out in three parts, the rest to hard. Nothing is below a NaN limit.
    """
    third = proofless // 3
    result = [third, third, proofless - 2 * third, 0]
    for rating, number in ratings.items():
        result[3 if rating == math.inf else 0 if rating <= easy else 1 if rating <= medium else 2] += number
    return result[0], result[1], result[2], result[3]


def _compat_percentile(ordered: list[tuple[float, int]], percent: int) -> float:
    """Return numpy's `percentile` (linear interpolation), with its arithmetic of infinities."""
    total = sum(number for _, number in ordered)
    at = (total - 1) * (percent / 100)
    below = math.floor(at)
    low, high = _nth(ordered, below), _nth(ordered, min(below + 1, total - 1))
    part = at - below
    difference = high - low
    return low + difference * part if part < 0.5 else high - difference * (1 - part)
