"""The report of `everlean status` as data: health, problems with their remedies, and the numbers.

From the view and the end of the log (`store.documents.status`), and from this machine: the lock, the disks,
the file of the settings and, if a daemon answers, its control socket. Standard library and `store` only: this
is the answer that must come within 200 ms.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from daemon.health.problems import live_problems
from daemon.place.answers import Gpu, LiveStatus
from daemon.place.instance import DaemonAnswer, Instance, ask, open_view
from daemon.place.paths import SYSTEM_CONFIG
from daemon.state.disk import refusals
from store.documents.document import of_row
from store.documents.ladder import Rung
from store.documents.live import JobProgress, QueuedJob
from store.documents.problems import Problem, ProblemCode, problem
from store.documents.repositories import Repository
from store.documents.status import (
    NEVER_STARTED,
    NOTHING,
    Due,
    Happened,
    LastEvent,
    LogStatus,
    ModelInUse,
    TriggeredWork,
    ViewStatus,
    Week,
    describe_log,
    describe_view,
)
from store.errors import LogError
from store.log.envelope import Moment
from store.log.reader import LogReader
from store.text import ago, counted, parse_time
from store.view.counts import elsewhere_text
from store.view.rows import JobRow, NotifierRow, PauseRow

VIEW_MAY_LAG_S = 10.0


@dataclass(frozen=True, slots=True)
class Daemon:
    running: bool
    pid: int | None
    version: str | None
    started_at: str | None
    """of its last start"""
    stopped_at: str | None
    """null while it runs, or after it was killed"""


@dataclass(frozen=True, slots=True)
class RunningJob(JobRow):
    progress: JobProgress | None


@dataclass(frozen=True, slots=True)
class Jobs:
    running: list[RunningJob] | None
    queued: Sequence[QueuedJob]
    """the first 1,000 jobs in the queue of the running daemon"""
    more_queued: int
    """the number of further ones"""
    due: Due | None
    failed: Sequence[JobRow] | None
    """those after which none of their kind succeeded there"""
    counts: dict[str, int] | None
    """by state"""


@dataclass(frozen=True, slots=True)
class Models:
    in_use: Sequence[ModelInUse] | None
    training_waits_for: str | None
    """this machine's missing requirement"""


@dataclass(frozen=True, slots=True)
class Proving:
    seconds_today: float | None
    """from midnight UTC"""
    seconds_per_day: float | None
    """`[prove] hours_per_day`"""
    ladder: Sequence[Rung]
    """the rungs in their order"""


@dataclass(frozen=True, slots=True)
class Log:
    position: int
    view_position: int
    """of the database"""
    path: Path
    last_events: Sequence[LastEvent]


@dataclass(frozen=True, slots=True)
class Work:
    paused: Sequence[PauseRow] | None
    triggered: Sequence[TriggeredWork] | None
    """not begun"""
    gpus: Sequence[Gpu]


@dataclass(frozen=True, slots=True)
class ConfigState:
    path: Path
    loaded_at: str | None
    rejected_at: str | None
    errors: list[str]
    """of the last rejected file"""


@dataclass(frozen=True, slots=True)
class Status:
    """The whole document. As of an earlier moment, with the problems and running jobs of then."""

    healthy: bool
    """the daemon runs and no problem is an `error`"""
    summary: str
    """the first line for people"""
    daemon: Daemon
    """its process, and its last start"""
    problems: list[Problem]
    """the present problems. [The codes](operations.md#common-failures)"""
    repositories: list[Repository] | None
    """also those no longer watched; null, as all fields below from the database, if it cannot be read"""
    jobs: Jobs
    """the present jobs"""
    sorries: dict[str, int] | None
    """the number by state, on the [default branches](glossary.md)"""
    sorries_elsewhere: int | None
    """the number of further ones in the source of other watched branches"""
    week: Sequence[Week] | None
    """the changes of the last seven days by repository; a repository without changes is left out"""
    news: Sequence[Happened] | None
    """the newest of it, at most five"""
    disproved: int | None
    """the number of open ones that are false"""
    proofs: dict[str, int] | None
    """the number by state"""
    theorems: int | None
    """number of theorems and lemmas on the default branches"""
    log: Log
    """its end"""
    lean: str
    """`pantograph`, `server` (Lean's language server), `none`, or `unknown`"""
    lean_detail: str
    """its name, or why there is none"""
    sandbox: str | None
    """`bubblewrap` or `none`, as at the last start"""
    models: Models
    """those at work"""
    proving: Proving
    """above rung 0"""
    notifications: Sequence[NotifierRow] | None
    """the channels; `problem` and the fields after it are of a failing one"""
    work: Work
    """people's requests, and the GPUs"""
    config: ConfigState
    """the file"""
    state_dir: Path
    """the state folder"""
    as_of: Moment | None = None


def collect(
    instance: Instance, *, tell: Callable[[str], None] | None = None, live: DaemonAnswer | None = None
) -> Status:
    """Return the whole document; as of an earlier moment if the place has one.

    As of then, the problems are the log's: those of the daemon or a file belong to the present.

    Args:
        tell: see `daemon.place.instance.open_view`; called for an earlier moment only.
        live: the daemon's own answer, if it asks itself; None: its control socket is asked.
    """
    if instance.moment is None:
        live = ask(instance) if live is None else live
        view = _view(instance)
        log = _log(instance, view)
        problems = [*view.problems, *log.problems, *_of_the_daemon(instance, view, live)]
    else:
        live = DaemonAnswer()
        with open_view(instance, tell=tell) as database:
            view = describe_view(database, moment=instance.moment)
        with LogReader.open(instance.paths.events_db) as reader:
            log = describe_log(reader, view, moment=instance.moment)
        problems = [*view.problems, *log.problems]
    # A stopped daemon first, then the other errors, then the warnings.
    problems.sort(key=lambda item: (item.severity != "error", not item.code.startswith("daemon_")))
    return _status(instance, view, log, live, problems)


def _status(
    instance: Instance, view: ViewStatus, log: LogStatus, live: DaemonAnswer, problems: list[Problem]
) -> Status:
    answer = live.status or LiveStatus()
    service = view.service or replace(
        NEVER_STARTED, lean=answer.lean or "unknown", lean_detail=answer.lean_detail
    )
    running = view.running if instance.running or instance.moment is not None else ()
    return of_row(
        Status,
        view,
        healthy=not any(item.severity == "error" for item in problems),
        summary=_summary(instance, view, problems),
        problems=problems,
        daemon=Daemon(
            instance.running,
            instance.pid,
            service.version or answer.version,
            service.started_at or answer.started_at,
            service.stopped_at,
        ),
        jobs=Jobs(
            running=None
            if running is None
            else [of_row(RunningJob, row, progress=live.progress.get(row.job)) for row in running],
            queued=answer.queued,
            more_queued=answer.more_queued,
            due=view.due,
            failed=view.failed,
            counts=view.jobs,
        ),
        log=Log(log.position, view.position, instance.paths.events_db, log.last_events),
        lean=service.lean,
        lean_detail=service.lean_detail,
        sandbox=log.sandbox,
        models=Models(view.models, answer.training.waits_for or None),
        proving=Proving(view.seconds_today, log.seconds_per_day, answer.ladder),
        work=Work(view.paused, view.triggered, answer.gpus),
        config=ConfigState(
            instance.config,
            service.config_loaded_at,
            service.config_rejected_at,
            service.config_errors,
        ),
        state_dir=instance.paths.state,
        as_of=instance.moment,
    )


def _view(instance: Instance) -> ViewStatus:
    """Return the view's answer; half an answer with the reason is worth more to an operator on call than
    none."""
    again = "restart the daemon: it makes the database anew" if instance.running else "everlean db rebuild"
    if instance.paths.database_db.exists():
        try:
            with open_view(instance) as database:
                return describe_view(database)
        except LogError as error:
            return ViewStatus([problem(ProblemCode.VIEW_UNREADABLE, str(error), again)])
    if instance.paths.events_db.exists():
        missing = f"{instance.paths.database_db}: missing"
        return ViewStatus([problem(ProblemCode.VIEW_MISSING, missing, again)])
    return NOTHING


def _log(instance: Instance, view: ViewStatus) -> LogStatus:
    path = instance.paths.events_db
    if path.exists():
        try:
            with LogReader.open(path) as log:
                result = describe_log(log, view)
                result.problems.extend(_lag(log, view, result.position, instance))
                return result
        except LogError as error:
            return LogStatus([problem(ProblemCode.LOG_UNREADABLE, str(error), "everlean db check")])
    if not view.readable:
        return LogStatus([])
    message = f"{path}: missing, while the database made of it is there"
    remedy = (
        "move events.db-wal and events.db-shm aside, put events.db.rescued-* (if the daemon saved it) or the last "
        "backup there, run `everlean db rebuild`"
    )
    return LogStatus([problem(ProblemCode.LOG_MISSING, message, remedy)])


def _lag(log: LogReader, view: ViewStatus, position: int, instance: Instance) -> list[Problem]:
    """Return the problem of a view that stays behind: its daemon does not get on. A running one is a moment
    behind."""
    if not view.readable or view.stopped or view.position >= position:
        return []
    event = next(log.read(after=view.position, limit=1))
    behind = counted(position - view.position, "event")
    if not instance.running:
        text = f"the view is {behind} behind the log; the daemon catches up when it starts"
        return [problem(ProblemCode.VIEW_BEHIND, text, "everlean run", severity="warning")]
    age_s = (datetime.now(UTC) - parse_time(event.recorded_at)).total_seconds()
    if age_s < VIEW_MAY_LAG_S:
        return []
    text = f"the view stopped before event {event.seq} ({event.type}), {behind} behind the log"
    if any(one.code == "disk_full" for one in refusals(instance.paths)):
        # A rebuild would need more of the missing space.
        return [problem(ProblemCode.VIEW_BEHIND, text, "free some space; the daemon then goes on by itself")]
    remedy = "restart the daemon; if it stays so, stop it and run `everlean db rebuild`"
    return [problem(ProblemCode.VIEW_BEHIND, text, remedy)]


def _of_the_daemon(instance: Instance, view: ViewStatus, live: DaemonAnswer) -> list[Problem]:
    """Return the problems of the process, its disks and its settings' file, with the process's own."""
    refused = refusals(instance.paths)
    problems = [
        problem(ProblemCode(one.code), one.message, one.remedy, subject=str(one.folder)) for one in refused
    ]
    syntax = _syntax_error(instance)
    if syntax is not None and not (view.service and view.service.config_errors):
        remedy = "everlean config check"
        problems.append(problem(ProblemCode.CONFIG_BROKEN, syntax, remedy, subject=str(instance.config)))
    if (standby := _standby_problem(instance)) is not None:
        return [standby, *problems]
    if instance.held is not None:
        message = f"{instance.held.purpose} (process {instance.held.pid}) keeps the daemon away"
        return [problem(ProblemCode.KEPT_AWAY, message, "wait for its end"), *problems]
    if not instance.running:
        return [_not_running(instance, view), *problems]
    if live.error is not None and not live.permitted:
        remedy = "ask as the daemon's user for what only it knows: progress, queue, its own problems"
        return [
            problem(ProblemCode.DAEMON_NOT_ASKED, live.error, remedy, severity="warning"),
            *problems,
        ]
    if live.status is None:
        remedy = (
            "wait a minute and ask again; if it stays so, restart the daemon: it goes on where it was. What it does"
            " stands in `journalctl --unit everlean`"
        )
        if any(one.code == "disk_full" for one in refused):
            remedy = (
                "free some space: a daemon that finds no room when it starts waits for it, and then starts"
            )
        return [
            problem(ProblemCode.DAEMON_SILENT, live.error or "it did not answer", remedy),
            *problems,
        ]
    return [*live_problems(live.status), *problems]


def _not_running(instance: Instance, view: ViewStatus) -> Problem:
    service = view.service or NEVER_STARTED
    began, ended = service.started_at, service.stopped_at
    message = "the daemon is not running"
    if not _ran(instance):
        message = f"the daemon has never run here ({instance.paths.state})"
    elif began is not None and (ended is None or ended < began):
        message += " and recorded no end: it crashed or was killed"
    by_hand = f"everlean run --config {instance.config}"
    remedy = "systemctl start everlean" if instance.config == SYSTEM_CONFIG else by_hand
    return problem(ProblemCode.DAEMON_NOT_RUNNING, message, remedy)


STANDBY_BEHIND_S = 600.0
"""A standby this long without a read to the store's end is an error."""


def _standby_problem(instance: Instance) -> Problem | None:
    """Return the problem of this machine's role for another's log; None without a role."""
    if instance.running or not instance.paths.standby.exists():
        return None
    from daemon.state.standby import read

    try:
        standby = read(instance.paths)
    except LogError as error:
        return problem(ProblemCode.STANDBY, str(error), "as it says")
    if standby is None:
        return None
    if standby.fenced:
        return problem(
            ProblemCode.FENCED,
            standby.problem,
            "leave the daemon stopped, or let this machine follow: everlean standby",
        )
    if standby.token:
        return None
    behind = standby.shipped - standby.position
    message = (
        f"this is a standby of {standby.url}, at event {standby.position}, "
        + (f"at least {counted(behind, 'event')} behind" if behind else "all that was shipped")
        + (f" when last read, {ago(standby.read_at)}" if standby.read_at else "; not read to the end yet")
    )
    if instance.held is None:
        return problem(ProblemCode.STANDBY, f"{message}; nothing follows now", "everlean standby")
    if standby.problem:
        message += f"; refused: {standby.problem}"
    read_at = parse_time(standby.read_at) if standby.read_at else None
    late = read_at is None or (datetime.now(UTC) - read_at).total_seconds() > STANDBY_BEHIND_S
    return problem(
        ProblemCode.STANDBY,
        message,
        "once the other daemon is lost or stopped: everlean standby --take-over",
        severity="error" if standby.problem or late else "warning",
    )


def _ran(instance: Instance) -> bool:
    """Return whether a daemon has ever recorded anything here."""
    return instance.paths.events_db.exists() or instance.paths.database_db.exists()


def _syntax_error(instance: Instance) -> str | None:
    """Return the fault of a file with invalid TOML, which would stop the next start; a full check would be
    too slow here."""
    try:
        tomllib.loads(instance.config.read_bytes().decode())
    except ValueError as error:
        return f"{instance.config.name} is no valid TOML: {error}"
    return None


def _summary(instance: Instance, view: ViewStatus, problems: Sequence[Problem]) -> str:
    sorries = view.sorries
    numbers = "an unknown number of repositories and sorries"
    if sorries is not None and view.repositories is not None:
        watched = sum(item.watched and item.enabled for item in view.repositories)
        numbers = (
            f"{counted(watched, 'repository')} watched,"
            f" {counted(sorries['open'], 'sorry')} open, {sorries['verified']:,} verified,"
            f" {sorries['filled']:,} filled{elsewhere_text(view.sorries_elsewhere or 0)}"
        )
    if instance.moment is not None:
        return f"As of event {instance.moment.seq}: {numbers}."
    if not instance.running:
        if any(item.code == ProblemCode.STANDBY for item in problems):
            return f"everlean follows another machine here: {numbers}."
        return (
            f"everlean is not running. When it stopped: {numbers}."
            if _ran(instance)
            else "everlean has never run here."
        )
    errors = sum(item.severity == "error" for item in problems)
    if errors:
        return f"everlean is running with {counted(errors, 'problem')}: {numbers}."
    if problems:
        return f"everlean is running, with {counted(len(problems), 'warning')}: {numbers}."
    return f"everlean is running well: {numbers}."
