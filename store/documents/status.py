"""The status of the whole: the facts of the view and the log, with their problems.

The daemon adds the facts of its process (`daemon.health.status_report`). Here too an answer takes a bounded
number of queries: `everlean status` has 200 ms.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from store.documents.document import of_row
from store.documents.events import summary
from store.documents.news import describe_news
from store.documents.problems import (
    Problem,
    ProblemCode,
    doubt_problems,
    job_problems,
    large_problems,
    left_branches,
    notify_problems,
    pause_problems,
    problem,
    project_problems,
    repository_problems,
    service_problems,
    still_failed,
)
from store.documents.repositories import Repository, described_repositories
from store.log.envelope import Moment, utc_text
from store.log.reader import LogReader
from store.text import parse_time
from store.view import model_queries, queries, report_queries, rows
from store.view.counts import count_all, disproved
from store.view.report_queries import Turn
from store.view.rows import CheckpointRow, JobRow, NotifierRow, PauseRow, ServiceRow, TriggerRow

LAST_EVENTS = 5
NEWS_OF = timedelta(days=7)
MOST_NEWS = 5
JOBS_LOOKED_AT = 500


@dataclass(frozen=True, slots=True)
class Due:
    scan: int
    """commits"""
    check: int
    """candidates"""


@dataclass(frozen=True, slots=True)
class ModelInUse(CheckpointRow):
    SHOWN: ClassVar = ("model", "checkpoint", "promoted_at")


@dataclass(frozen=True, slots=True)
class TriggeredWork(TriggerRow):
    SHOWN: ClassVar = ("work", "repository", "by", "triggered_at")


@dataclass(frozen=True, slots=True)
class Week:
    repository: str
    opened: int
    """new sorries, without those of a branch's first scan"""
    filled: int
    gone: int
    """without a proof"""
    sorries: list[int]
    """the number in the source at the beginning of the week, and at the end of each of its days"""


@dataclass(frozen=True, slots=True)
class Happened:
    at: str
    """the time of the commit"""
    step: str
    """`opened`, `filled`, `restated`, or another end of a sorry"""
    repository: str
    sorry: str
    declaration: str
    path: str
    line: int
    by: str
    """the commit's author and pull request"""


NEVER_STARTED = ServiceRow(
    id=0, version="", pid=None, host="", lean="none", lean_detail="", started_at=None, stopped_at=None, stop_reason="",
    config_path="", config_digest="", config_loaded_at=None, config_errors=[], config_rejected_at=None,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """The facts of the view. All are unknown, neither 0 nor none, if no view can be read."""

    problems: list[Problem]
    readable: bool = False
    position: int = 0
    stopped: bool = False
    """It cannot continue behind `position`."""
    service: ServiceRow | None = None
    repositories: list[Repository] | None = None
    sorries: dict[str, int] | None = None
    sorries_elsewhere: int | None = None
    week: Sequence[Week] | None = None
    news: Sequence[Happened] | None = None
    disproved: int | None = None
    proofs: dict[str, int] | None = None
    theorems: int | None = None
    models: tuple[ModelInUse, ...] | None = None
    seconds_today: float | None = None
    """Of search above rung 0, from midnight UTC."""
    notifications: tuple[NotifierRow, ...] | None = None
    running: tuple[JobRow, ...] | None = None
    failed: tuple[JobRow, ...] | None = None
    """The jobs without a later success of their kind there."""
    due: Due | None = None
    jobs: dict[str, int] | None = None
    """By state."""
    paused: tuple[PauseRow, ...] | None = None
    triggered: tuple[TriggeredWork, ...] | None = None


NOTHING = ViewStatus(
    problems=[],
    service=NEVER_STARTED,
    repositories=[],
    sorries=dict.fromkeys(rows.SORRY_STATES, 0),
    sorries_elsewhere=0,
    week=(),
    news=(),
    disproved=0,
    proofs=dict.fromkeys(rows.PROOF_STATES, 0),
    theorems=0,
    models=(),
    seconds_today=0.0,
    notifications=(),
    running=(),
    failed=(),
    due=Due(0, 0),
    jobs=dict.fromkeys(rows.JOB_STATES, 0),
    paused=(),
    triggered=(),
)
"""The status before the first record."""


def describe_view(view: sqlite3.Connection, *, moment: Moment | None = None) -> ViewStatus:
    """Return the facts of the view, with its problems.

    Args:
        view: the database.
        moment: of the view; None: now.
    """
    checkpoint, service, counts = queries.checkpoint(view), queries.service(view), count_all(view)
    repositories, notifiers = described_repositories(view), report_queries.notifiers(view)
    jobs = queries.jobs(view, limit=JOBS_LOOKED_AT)
    failed = still_failed(jobs, left=left_branches(repositories))
    paused = queries.pauses(view)
    why_stopped = "" if checkpoint is None else checkpoint.stopped_reason
    today = datetime.now(UTC).isoformat() if moment is None else moment.recorded_at
    week, news = _week(view, repositories, parse_time(today) - NEWS_OF)
    return ViewStatus(
        problems=[
            *([_stop_problem(why_stopped)] if why_stopped else []),
            *([] if service is None else service_problems(service)),
            *repository_problems(repositories),
            *project_problems(repositories),
            *large_problems(repositories),
            *doubt_problems(queries.doubted_proofs(view)),
            *notify_problems(notifiers),
            *job_problems(failed),
            *pause_problems(paused),
        ],
        readable=True,
        position=queries.position(view),
        stopped=bool(why_stopped),
        service=service or NEVER_STARTED,
        repositories=repositories,
        sorries=counts.sorries,
        sorries_elsewhere=counts.sorries_elsewhere,
        week=week,
        news=news,
        disproved=disproved(view) if counts.sorries["open"] else 0,
        proofs=counts.proofs,
        theorems=counts.theorems,
        models=tuple(of_row(ModelInUse, row) for row in model_queries.checkpoints(view) if row.promoted),
        seconds_today=queries.seconds_since(view, today[: len("2026-01-01")]),
        notifications=tuple(notifiers),
        running=tuple(queries.jobs(view, state="running")),
        failed=tuple(failed),
        due=Due(queries.commits_to_scan(view), len(queries.proofs_to_check(view))),
        jobs=counts.jobs,
        paused=tuple(paused),
        triggered=tuple(of_row(TriggeredWork, row) for row in queries.triggers(view) if row.waits),
    )


def _week(
    view: sqlite3.Connection, repositories: Sequence[Repository], begin: datetime
) -> tuple[Sequence[Week], Sequence[Happened]]:
    """Return the openings and closings of a week: the numbers of each repository, and the newest ones."""
    turns = [one for one in report_queries.turns_since(view, utc_text(begin)) if not one.first_read]
    of_each: defaultdict[str, list[Turn]] = defaultdict(list)
    for one in turns:
        of_each[one.repository].append(one)
    week = []
    for repository in repositories:
        if changes := of_each.get(repository.repository):
            of = Counter(change.what for change in changes)
            filled = of["by_people"] + of["by_us"]
            levels = _levels(repository.in_source, changes, begin)
            week.append(Week(repository.repository, of["opened"], filled, of["removed"], levels))
    newest = turns[:MOST_NEWS]
    happened = [
        of_row(Happened, one.sorry, at=one.at, step=turn.step, by=one.by)
        for turn, one in zip(newest, describe_news(view, newest), strict=True)
    ]
    return week, happened


def _levels(now: int, changes: Sequence[Turn], begin: datetime) -> list[int]:
    """Return the numbers of sorries at a week's beginning and after each day, from the present one."""
    levels = [now] * (NEWS_OF.days + 1)
    for change in changes:
        # A commit may be older than the week of its first sight, and its author's clock may be wrong.
        day = min(max((parse_time(change.at) - begin).days, 0), NEWS_OF.days - 1)
        for before in range(day + 1):
            levels[before] += -1 if change.what == "opened" else 1
    return levels


def _stop_problem(why: str) -> Problem:
    message = f"the view stopped before the end of the log: {why}"
    return problem(
        ProblemCode.VIEW_STOPPED, message, "everlean db rebuild, with the version that it asks for"
    )


@dataclass(frozen=True, slots=True)
class LastEvent:
    seq: int
    type: str
    recorded_at: str
    summary: str


@dataclass(frozen=True, slots=True)
class LogStatus:
    """The end of the log, and the newest settings recorded in it."""

    problems: list[Problem]
    position: int = 0
    last_events: tuple[LastEvent, ...] = ()
    sandbox: str | None = None
    seconds_per_day: float | None = None


def describe_log(log: LogReader, view: ViewStatus, *, moment: Moment | None = None) -> LogStatus:
    """Return the facts of the log, and whether the view fits it."""
    position = log.position() if moment is None else moment.seq
    loaded = log.last(1, upto=position, types=("config_loaded",))
    settings = loaded[0].data.get("settings", {}) if loaded else {}
    sandbox, hours = (
        settings.get(part, {}).get(key) for part, key in (("lean", "sandbox"), ("prove", "hours_per_day"))
    )
    problems = []
    if sandbox == "none" and view.service and view.service.lean in ("pantograph", "server"):
        problems.append(
            problem(
                ProblemCode.NO_SANDBOX,
                'code of the watched repositories runs unconfined ([lean] sandbox = "none")',
                'write sandbox = "bubblewrap"',
                severity="warning",
            )
        )
    if view.readable and view.position > position:
        problems.append(
            problem(
                ProblemCode.LOG_BEHIND,
                f"the database is at event {view.position}, and the log ends at event {position}: its end was lost",
                "everlean db check; restore the last backup if it is newer, else everlean db recover",
            )
        )
    return LogStatus(
        problems,
        position,
        tuple(
            LastEvent(
                event.seq,
                event.type,
                event.recorded_at,
                # Why a repository failed stands among the problems.
                summary({**event.data, "reason": ""} if event.type == "repository_failed" else event.data),
            )
            for event in log.last(LAST_EVENTS, upto=position)
        ),
        sandbox,
        None if hours is None else 3600 * hours,
    )
