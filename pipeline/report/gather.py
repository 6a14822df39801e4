"""The data of the report, read from the view at one moment; trees of searches and curves of trainings from the log.

`gather` returns one frozen `ReportData`. Everything that is counted, added up or cut into periods is computed here, so
that `pipeline.report.page` only writes.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pipeline.models.curve import Point, read_curve
from pipeline.report.front import Front, front
from pipeline.report.matrix import Matrix, matrices
from pipeline.report.opened import Blueprints, OpenSorry, no_blueprints, open_sorries
from store.errors import DatabaseMissingError, LogError
from store.log.envelope import utc_text
from store.log.reader import LogReader
from store.view import model_queries, queries, report_queries
from store.view.counts import NO_SORRIES, sorry_counts
from store.view.report_queries import AttemptTotals, JobCount, ProofVerdict, Searches, Turn
from store.view.rows import (
    AttemptRow,
    CheckpointRow,
    EvaluationRow,
    JobRow,
    ProofRow,
    ServiceRow,
    too_large_said,
)

if TYPE_CHECKING:
    from pipeline.prove.tree import Tree

WEEK = timedelta(days=7)
MOST_PERIODS = 60
"""Periods that are shown; of more, the newest."""
_MOST_DAYS, _MOST_WEEKS = 45, 52
"""The longest time that is shown by days, and by weeks."""
MOST_MOMENTS = 60
"""Moments of the history that are shown; of more, the last of each of so many equal parts."""
MOST_PROOFS = 50
"""Verified proofs that are shown with their text, and as many of the other texts; the newest."""
MOST_TREES = 20
"""Of each of the two, the newest that are shown with the tree of their search."""
MOST_CURVES = 8
"""Of each model, the newest trainings whose losses are drawn."""

SORRY_COLUMNS = ("open", "verified", "by_people", "by_us", "by_simulation", "removed")
"""The counts of a repository's sorries: by state, and the filled ones by who filled them."""
DEVICES = ("gpu", "cpu", "unknown")
"""The device of an attempt: with a GPU, on the processor alone, or not recorded."""
TRAININGS = ("train", "train_tactics", "train_grpo", "train_progress")
"""The kinds of the jobs that train. `pipeline.jobs.kinds` has them too, but importing it loads pydantic."""

Unit = Literal["day", "week", "month"]
Key = TypeVar("Key", bound=Hashable)
Blob = Callable[[str], bytes]
"""Returns a payload of the log by its hash, as `LogReader.blob` does."""


# ---- the data


@dataclass(frozen=True, slots=True)
class OverTime(Generic[Key]):
    """Amounts by key, one a period; `begins` are the periods' first days, without gaps, oldest first.

    `before` has, by key, the sum of the `left_out` periods before the first of them.
    """

    unit: Unit
    begins: tuple[date, ...]
    amounts: Mapping[Key, tuple[float, ...]]
    left_out: int
    before: Mapping[Key, float]

    @property
    def said(self) -> str:
        """Name the periods, in words."""
        more = (
            f", the newest {len(self.begins)} of {len(self.begins) + self.left_out}" if self.left_out else ""
        )
        return f"by {self.unit}{more}"

    @property
    def heading(self) -> str:
        """Name the column of their first days."""
        return "Day (UTC)" if self.unit == "day" else f"{self.unit.capitalize()} from (UTC)"


@dataclass(frozen=True, slots=True)
class Moment:
    """The sorries at one time: how many were opened, filled and removed until then, and how many are left.

    `open` are those still in the source, with a verified proof or not. `by_simulation` were filled with the text of a
    simulated proof and are counted in no other field than `opened`.
    """

    at: str
    opened: int = 0
    by_people: int = 0
    by_us: int = 0
    by_simulation: int = 0
    removed: int = 0
    open: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """The result of `followed`: the moments, and how the sorries that are filled now were filled.

    `filled` maps (repository, "by_people" | "by_us" | "by_simulation") to a number of sorries.
    """

    moments: tuple[Moment, ...]
    filled: Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class MachineTime:
    """The jobs of one kind: how many there are, how many run or failed at their newest attempt, the time of all.

    `attempts` and `seconds`, by `DEVICES`, are of those that ended. `peak_rss_bytes` is the largest of any newest
    attempt; None if none was measured.
    """

    kind: str
    simulated: bool
    jobs: int = 0
    running: int = 0
    failed: int = 0
    attempts: int = 0
    seconds_on: Mapping[str, float] = field(default_factory=dict)
    peak_rss_bytes: int | None = None

    @property
    def seconds(self) -> float:
        """Return the time on all devices."""
        return sum(self.seconds_on.values())


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """A repository; `sorries` counts its sorries, by `SORRY_COLUMNS`, and `elsewhere` those of other branches only.

    One that is not `enabled` is not polled; its state is that of the last time.
    """

    repository: str
    state: str
    watched: bool
    enabled: bool
    reason: str
    remedy: str
    checked_at: str | None
    sorries: Mapping[str, int]
    elsewhere: int
    too_large: str = ""
    """what the limits of [scan] left out"""

    @property
    def left(self) -> int:
        """Return how many sorries are still in the source."""
        return self.sorries["open"] + self.sorries["verified"]


@dataclass(frozen=True, slots=True)
class ProofCount:
    """The number of proofs with a verdict; `simulated` ones are no proofs."""

    state: str
    simulated: bool
    n: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """The number of rejections for this reason, which begins with the step that failed.

    `conditional`: the proof rests on another sorry, and may hold once that one is filled.
    """

    reason: str
    conditional: bool
    simulated: bool
    n: int


@dataclass(frozen=True, slots=True)
class ShownProof:
    """A proof, and the attempt that found it with its tree. Without a tree `no_tree` says why."""

    row: ProofRow
    attempt: AttemptRow | None = None
    tree: Tree | None = None
    no_tree: str = ""


@dataclass(frozen=True, slots=True)
class TrainingCurve:
    """What a training measured, by name: (step, value), by step. Without any `problem` says why."""

    row: CheckpointRow
    measures: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReportData:
    """The data of the pages. `position` is the last event that the view contains.

    `verified` are the newest proofs that Lean accepted, `others` the newest of all other texts; `proofs` counts them
    all. `curves` are of each model's newest trainings, oldest first; `failed_trainings` are jobs, the newest start
    first. `machine_periods` has seconds by (kind, simulated).
    """

    made_at: str
    position: int
    service: ServiceRow | None
    front: Front
    repositories: tuple[RepositoryState, ...]
    open_sorries: tuple[OpenSorry, ...]
    history: tuple[Moment, ...]
    proofs: tuple[ProofCount, ...]
    verified: tuple[ShownProof, ...]
    others: tuple[ShownProof, ...]
    searches: tuple[Searches, ...]
    rejections: tuple[Rejection, ...]
    matrices: tuple[Matrix, ...]
    trainings: tuple[CheckpointRow, ...]
    curves: tuple[TrainingCurve, ...]
    failed_trainings: tuple[JobRow, ...]
    measurements: tuple[EvaluationRow, ...]
    machine_time: tuple[MachineTime, ...]
    machine_periods: OverTime[tuple[str, bool]]

    @property
    def sorries(self) -> Mapping[str, int]:
        """Count the sorries of all repositories, by `SORRY_COLUMNS`."""
        return {name: sum(row.sorries[name] for row in self.repositories) for name in SORRY_COLUMNS}

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to report."""
        return not (
            self.repositories or self.history or self.proofs or self.searches or self.trainings or self.measurements
            or self.machine_time
        )  # fmt: skip

    @property
    def simulated(self) -> bool:
        """Return whether anything here comes from the simulator."""
        parts: tuple[Sequence[Any], ...] = (
            self.proofs, self.searches, self.trainings, self.measurements, self.machine_time
        )  # fmt: skip
        return (
            (self.service is not None and self.service.lean == "simulator")
            or self.front.simulated
            or any(one.goal_simulated or one.impact.simulated for one in self.open_sorries)
            or any(item.simulated for part in parts for item in part)
            or any(moment.by_simulation for moment in self.history)
        )


# ---- gathering


def gather(
    view: sqlite3.Connection,
    *,
    made_at: datetime,
    since: datetime | None = None,
    blob: Blob | None = None,
    blueprints: Blueprints = no_blueprints,
) -> ReportData:
    """Read what the report shows, all of it as it is at one moment, whatever is recorded meanwhile.

    Args:
        view: opened by `queries.connect`, or a copy of an earlier moment.
        made_at: when the report is made.
        since: when the time of its first screen begins; None: a week before.
        blob: reads the trees of searches and the curves of trainings, which are in the log; None: no log is at hand,
            and none is shown.
        blueprints: reads the blueprints, which are in the mirrors.
    """
    view.execute("BEGIN")
    try:
        return _gathered(
            view, made_at=made_at, since=since or made_at - WEEK, blob=blob, blueprints=blueprints
        )
    finally:
        # A disk error may have ended the transaction already; that error is the one to report.
        if view.in_transaction:
            view.execute("ROLLBACK")


def gather_at(
    view: sqlite3.Connection,
    events_db: Path,
    *,
    made_at: datetime,
    since: datetime | None = None,
    blueprints: Blueprints = no_blueprints,
) -> ReportData:
    """Like `gather`, with the trees of the log at this path.

    If the log is missing or cannot be read, the page is made without trees, and says why.
    """
    made = partial(gather, view, made_at=made_at, since=since, blueprints=blueprints)
    try:
        log = LogReader.open(events_db)
    except DatabaseMissingError:
        return made()
    except LogError as error:
        reason = str(error)

        def unread(_sha256: str) -> bytes:
            raise LogError(reason)

        return made(blob=unread)
    with log:
        return made(blob=log.blob)


def _gathered(
    view: sqlite3.Connection, *, made_at: datetime, since: datetime, blob: Blob | None, blueprints: Blueprints
) -> ReportData:
    checkpoints = model_queries.checkpoints(view)
    evaluations = model_queries.evaluations(view)
    verdicts = report_queries.proof_verdicts(view)
    history = followed(report_queries.turns(view))
    ran = report_queries.ran(view)
    failed = [
        row
        for kind in TRAININGS
        for row in queries.jobs(view, kind=kind)
        if row.state in ("failed", "interrupted")
    ]
    return ReportData(
        made_at=utc_text(made_at),
        position=queries.position(view),
        service=queries.service(view),
        front=front(view, since=utc_text(since), until=utc_text(made_at)),
        repositories=_repositories(view, history.filled),
        open_sorries=open_sorries(view, blueprints),
        history=history.moments,
        proofs=_proofs(verdicts),
        verified=_shown(view, blob, verified=True),
        others=_shown(view, blob, verified=False),
        searches=tuple(report_queries.searches(view)),
        rejections=tuple(
            Rejection(row.reason, row.state == "conditional", row.simulated, row.n)
            for row in sorted(verdicts, key=lambda row: row.simulated)
            if row.state in ("rejected", "conditional")
        ),
        matrices=matrices(checkpoints, evaluations),
        trainings=tuple(checkpoints),
        curves=_curves(checkpoints, blob),
        failed_trainings=tuple(sorted(failed, key=lambda row: row.started_at, reverse=True)),
        measurements=tuple(evaluations),
        machine_time=by_kind(ran, report_queries.job_counts(view)),
        machine_periods=by_period(ran),
    )


def _repositories(
    view: sqlite3.Connection, filled: Mapping[tuple[str, str], int]
) -> tuple[RepositoryState, ...]:
    counts = sorry_counts(view)
    too_large = too_large_said(queries.too_large(view))
    return tuple(
        RepositoryState(
            row.repository, row.state, row.watched, row.enabled, row.reason, row.remedy, row.checked_at,
            {column: number.by_state.get(column, filled.get((row.repository, column), 0)) for column in SORRY_COLUMNS},
            number.elsewhere,
            too_large.get(row.repository, ""),
        )
        for row in queries.repositories(view)
        for number in [counts.get(row.repository, NO_SORRIES)]
    )  # fmt: skip


def _proofs(verdicts: Iterable[ProofVerdict]) -> tuple[ProofCount, ...]:
    found: Counter[tuple[bool, str]] = Counter()
    for row in verdicts:
        found[row.simulated, row.state] += row.n
    return tuple(ProofCount(state, simulated, n) for (simulated, state), n in sorted(found.items()))


def _curves(checkpoints: Sequence[CheckpointRow], blob: Blob | None) -> tuple[TrainingCurve, ...]:
    """Return the curves of each model's newest trainings, oldest first."""
    with_one = [row for row in checkpoints if row.curve is not None]
    newest = {
        row.checkpoint
        for model in {row.model for row in with_one}
        for row in [row for row in with_one if row.model == model][-MOST_CURVES:]
    }
    return tuple(_curve(row, blob) for row in with_one if row.checkpoint in newest)


def _curve(row: CheckpointRow, blob: Blob | None) -> TrainingCurve:
    if blob is None:
        return TrainingCurve(row, problem="it is in the log, which was not at hand")
    try:
        return TrainingCurve(row, read_curve(blob(row.curve or "")))
    except (LogError, ValueError, RecursionError) as error:
        # As with a tree: what is damaged costs this curve alone.
        return TrainingCurve(row, problem=f"it cannot be read: {error}")


def _shown(view: sqlite3.Connection, blob: Blob | None, *, verified: bool) -> tuple[ShownProof, ...]:
    rows = report_queries.newest_proofs(view, MOST_PROOFS, verified=verified)
    return tuple(_with_search(view, row, blob, number) for number, row in enumerate(rows))


def _with_search(view: sqlite3.Connection, row: ProofRow, blob: Blob | None, number: int) -> ShownProof:
    attempt = queries.attempt_behind(view, row)
    if attempt is None:
        return ShownProof(row, no_tree="the attempt that found it is not recorded")
    if attempt.tree_sha256 is None:
        return ShownProof(row, attempt, no_tree="none was kept; only a search by tactics has one")
    if number >= MOST_TREES:
        return ShownProof(row, attempt, no_tree=f"only the newest {MOST_TREES} are drawn here")
    if blob is None:
        return ShownProof(row, attempt, no_tree="it is in the log, which was not at hand")
    from pipeline.prove.tree import Tree, TreeError  # pydantic takes longer to load than most reports to make

    try:
        return ShownProof(row, attempt, Tree.from_json(json.loads(blob(attempt.tree_sha256))))
    except (LogError, TreeError, ValueError, RecursionError) as error:
        # A damaged payload or page of the log costs this tree, and not the report.
        return ShownProof(row, attempt, no_tree=f"it cannot be read: {error}")


# ---- the history of sorries


def followed(turns: Iterable[Turn], most: int = MOST_MOMENTS) -> History:
    """Follow the sorries through their turns, which come in the log's order; keep at most `most` moments.

    A sorry on several branches that are counted came with the first and goes with the last of them.
    """
    total: Counter[str] = Counter()
    present: dict[tuple[str, str], set[str]] = {}
    filled: dict[tuple[str, str], str] = {}
    moments: dict[str, tuple[Counter[str], int]] = {}
    at = ""
    for turn in turns:
        if turn.recorded_at != at:
            if at:
                moments[at] = (total.copy(), len(present))
            at = turn.recorded_at
        sorry, what = (turn.repository, turn.sorry), turn.what
        branches = present.setdefault(sorry, set())
        elsewhere = branches - {turn.branch}
        if what == "opened":
            branches.add(turn.branch)
        else:
            branches.discard(turn.branch)
        if elsewhere:
            continue
        total[what] += 1
        filled.pop(sorry, None)
        if what == "opened":
            continue
        del present[sorry]
        if what != "removed":
            filled[sorry] = what
    if at:
        moments[at] = (total, len(present))
    return History(
        tuple(
            Moment(at=time, open=moments[time][1], **moments[time][0])
            for time in _thinned(list(moments), most)
        ),
        Counter((repository, what) for (repository, _), what in filled.items()),
    )


def _thinned(times: list[str], most: int) -> list[str]:
    if len(times) <= most:
        return times
    # Moments are cumulative, so the last of a part has all that happened in it; the first one keeps the beginning.
    first, *rest = times
    return [first, *(rest[(index + 1) * len(rest) // (most - 1) - 1] for index in range(most - 1))]


# ---- periods


def over_time(amounts: Mapping[date, Mapping[Key, float]], most: int = MOST_PERIODS) -> OverTime[Key]:
    """Add amounts of days up by days, weeks or months: as fine as the time that they span allows."""
    if not amounts:
        return OverTime("day", (), {}, 0, {})
    first, last = min(amounts), max(amounts)
    days = (last - first).days + 1
    unit: Unit = "day" if days <= _MOST_DAYS else "week" if days <= 7 * _MOST_WEEKS else "month"
    begins = [_begin(first, unit)]
    step = {"day": 1, "week": 7, "month": 32}[unit]
    while (after := _begin(begins[-1] + timedelta(days=step), unit)) <= last:
        begins.append(after)
    shown = begins[-most:]
    place = {begin: number for number, begin in enumerate(shown)}
    found: defaultdict[Key, list[float]] = defaultdict(lambda: [0] * len(shown))
    before: defaultdict[Key, float] = defaultdict(int)
    for day, of_day in sorted(amounts.items()):
        number = place.get(_begin(day, unit))
        for key, amount in of_day.items():
            if number is None:
                before[key] += amount
            else:
                found[key][number] += amount
    rows = {key: tuple(row) for key, row in found.items()}
    return OverTime(unit, tuple(shown), rows, len(begins) - len(shown), dict(before))


def _begin(day: date, unit: Unit) -> date:
    """Return the first day of the period of this day."""
    if unit == "month":
        return day.replace(day=1)
    return day if unit == "day" else day - timedelta(days=day.weekday())


def by_days(began: str, ended: str) -> dict[date, float]:
    """Cut the seconds between two times of the log at every midnight."""
    at, end = (datetime.fromisoformat(moment).replace(tzinfo=None) for moment in (began, ended))
    found: dict[date, float] = {}
    while at < end:
        midnight = datetime.combine(at.date() + timedelta(days=1), datetime.min.time())
        found[at.date()] = (min(midnight, end) - at).total_seconds()
        at = midnight
    return found


# ---- the machine's time


def by_kind(ran: Iterable[AttemptTotals], jobs: Iterable[JobCount]) -> tuple[MachineTime, ...]:
    """Add up jobs and attempts of each kind, the longest time first; the simulator's after all others."""
    seconds: defaultdict[tuple[str, bool], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    attempts: Counter[tuple[str, bool]] = Counter()
    counted: defaultdict[tuple[str, bool], list[JobCount]] = defaultdict(list)
    for row in ran:
        seconds[row.kind, row.simulated][row.device] += row.seconds
        attempts[row.kind, row.simulated] += row.n
    for count in jobs:
        counted[count.kind, count.simulated].append(count)
    found = [
        MachineTime(
            *key,
            jobs=sum(row.n for row in of_kind),
            running=sum(row.n for row in of_kind if row.state == "running"),
            failed=sum(row.n for row in of_kind if row.state == "failed"),
            attempts=attempts[key],
            seconds_on=dict(seconds[key]),
            peak_rss_bytes=max(
                (row.peak_rss_bytes for row in of_kind if row.peak_rss_bytes is not None), default=None
            ),
        )
        for key, of_kind in counted.items()
    ]
    return tuple(sorted(found, key=lambda row: (row.simulated, -row.seconds, row.kind)))


def by_period(ran: Iterable[AttemptTotals]) -> OverTime[tuple[str, bool]]:
    """Add seconds up by period and by (kind, simulated); an attempt counts in each period for its part there."""
    days: defaultdict[date, defaultdict[tuple[str, bool], float]] = defaultdict(lambda: defaultdict(float))
    for row in ran:
        parts = by_days(row.began, row.ended)
        if len(parts) == 1:
            # Several attempts of one day, which may have run side by side.
            parts = dict.fromkeys(parts, row.seconds)
        for day, seconds in parts.items():
            days[day][row.kind, row.simulated] += seconds
    return over_time(days)
