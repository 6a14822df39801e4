"""The report of `everlean status` as data: health, problems with their remedies, and the numbers.

Collected from the view, the end of the log, the lock and, where a daemon answers, its control socket. Standard
library and `store.view.queries` only: this is the answer that must come within 200 ms.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from daemon.disk import refusals
from daemon.instance import DaemonAnswer, Instance, ask, open_view
from daemon.paths import SYSTEM_CONFIG
from daemon.problems import (
    Problem,
    ProblemCode,
    cache_problems,
    clock_problems,
    confinement_problems,
    daemon_problem,
    doubt_problems,
    job_problems,
    lacking_problem,
    large_problems,
    lean_problems,
    left_branches,
    notify_problems,
    problem,
    repository_problems,
    still_failed,
    work_problems,
)
from store.documents.document import of_row
from store.documents.events import summary
from store.documents.repositories import Repository, described_repositories
from store.errors import LogError
from store.log.reader import LogReader
from store.text import ago, counted, parse_time
from store.view import model_queries, queries, report_queries
from store.view.counts import count_all, disproved, elsewhere_said
from store.view.rows import CheckpointRow, JobRow, TriggerRow

if TYPE_CHECKING:
    import sqlite3

    from daemon.answers import Gpu
    from store.documents.live import JobProgress, QueuedJob
    from store.view.asof import Moment
    from store.view.rows import PauseRow, ServiceRow


LAST_EVENTS = 5
JOBS_LOOKED_AT = 500
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
class Due:
    scan: int
    """commits"""
    check: int
    """candidates"""


@dataclass(frozen=True, slots=True)
class Jobs:
    running: list[RunningJob]
    queued: Sequence[QueuedJob]
    """what the living daemon will start, the first 1,000"""
    more_queued: int
    """how many more it will start"""
    due: Due
    failed: list[JobRow]
    """those after which none of their kind succeeded there"""
    counts: dict[str, int]
    """by state"""


@dataclass(frozen=True, slots=True)
class ModelInUse(CheckpointRow):
    SHOWN: ClassVar = ("model", "checkpoint", "promoted_at", "simulated")


@dataclass(frozen=True, slots=True)
class Models:
    in_use: list[ModelInUse]
    training_waits_for: str | None
    """what this machine lacks"""


@dataclass(frozen=True, slots=True)
class Proving:
    seconds_today: float
    """from midnight UTC"""
    seconds_per_day: float | None
    """`[prove] hours_per_day`"""
    waits_for: Sequence[str]
    """which rungs wait for what"""


@dataclass(frozen=True, slots=True)
class Channel:
    channel: str
    kinds: list[str]
    """empty: off"""
    position: int
    messages: int
    told: int
    """events in them"""
    problem: str
    reason: str
    remedy: str
    failing_since: str | None
    sent_at: str | None
    digest_at: str | None


@dataclass(frozen=True, slots=True)
class LastEvent:
    seq: int
    type: str
    recorded_at: str
    simulated: bool
    summary: str


@dataclass(frozen=True, slots=True)
class Log:
    position: int
    view_position: int
    """of the database"""
    path: Path
    last_events: list[LastEvent]


@dataclass(frozen=True, slots=True)
class TriggeredWork(TriggerRow):
    SHOWN: ClassVar = ("work", "repository", "by", "triggered_at")


@dataclass(frozen=True, slots=True)
class Work:
    paused: list[PauseRow]
    triggered: list[TriggeredWork]
    """not begun"""
    gpus: Sequence[Gpu]


@dataclass(frozen=True, slots=True)
class ConfigState:
    path: Path
    loaded_at: str | None
    rejected_at: str | None
    errors: list[str]
    """of the file that was rejected last"""


@dataclass(frozen=True, slots=True)
class Status:
    """The whole document. As of an earlier moment, the problems and the running jobs are those of then."""

    healthy: bool
    """the daemon runs and no problem is an `error`"""
    summary: str
    """the first line for people"""
    daemon: Daemon
    """its process, and its last start"""
    problems: list[Problem]
    """what is wrong. [The codes](operations.md#common-failures)"""
    repositories: list[Repository] | None
    """also those that are watched no more; null, as the counts below, where the database cannot be read"""
    jobs: Jobs
    """what is to be said of them now"""
    sorries: dict[str, int] | None
    """how many by state, of the [default branches](glossary.md)"""
    sorries_elsewhere: int | None
    """how many more in the source of other watched branches"""
    disproved: int | None
    """how many of the open ones are false as they stand"""
    proofs: dict[str, int] | None
    """how many by state"""
    simulated_proofs: int | None
    """how many are the simulator's"""
    theorems: int | None
    """how many theorems and lemmas, on watched branches"""
    log: Log
    """where it ends"""
    lean: str
    """`pantograph`, `server` (Lean's language server), `simulator` or `none`"""
    lean_detail: str
    """which one, or why there is none"""
    sandbox: str | None
    """`bubblewrap` or `none`, as at the last start"""
    models: Models
    """those at work"""
    proving: Proving
    """above rung 0"""
    notifications: list[Channel]
    """the channels; `problem` and what follows it are of one that fails"""
    work: Work
    """what people asked for, and the GPUs"""
    config: ConfigState
    """the file"""
    state_dir: Path
    """the state folder"""
    as_of: Moment | None = None


def collect(
    instance: Instance, *, tell: Callable[[str], None] | None = None, live: DaemonAnswer | None = None
) -> Status:
    """Return the whole document; as of an earlier moment if the place has one.

    As of then, the problems are those that the log knew of: what is wrong with the daemon or a file is of now.

    Args:
        tell: see `daemon.instance.open_view`; called for an earlier moment only.
        live: what the daemon says, where it asks itself; None: its control socket is asked.
    """
    report = _empty(instance)
    problems: list[Problem] = []
    if instance.moment is None:
        live = ask(instance) if live is None else live
        report = _collect_now(report, problems, instance=instance, live=live)
    else:
        with open_view(instance, tell=tell) as database:
            report = _from_view(report, problems, database, instance=instance, live=DaemonAnswer())
        with LogReader.open(instance.paths.events_db) as log:
            report = _from_log(report, problems, log, instance=instance, has_view=True)
    # What stops everything first, then the other errors, then the warnings.
    problems.sort(key=lambda item: (item.severity != "error", not item.code.startswith("daemon_")))
    healthy = not any(item.severity == "error" for item in problems)
    report = replace(report, problems=problems, healthy=healthy)
    return replace(report, summary=_summary(report, ran=_ran(instance)))


def _empty(instance: Instance) -> Status:
    return Status(
        healthy=False,
        summary="",
        daemon=Daemon(instance.running, instance.pid, None, None, None),
        as_of=instance.moment,
        problems=[],
        repositories=[],
        jobs=Jobs([], [], 0, Due(0, 0), [], dict.fromkeys(queries.JOB_STATES, 0)),
        sorries=dict.fromkeys(queries.SORRY_STATES, 0),
        sorries_elsewhere=0,
        disproved=0,
        proofs=dict.fromkeys(queries.PROOF_STATES, 0),
        simulated_proofs=0,
        theorems=0,
        log=Log(0, 0, instance.paths.events_db, []),
        lean="none",
        lean_detail="",
        sandbox=None,
        models=Models([], None),
        proving=Proving(0.0, None, []),
        notifications=[],
        work=Work([], [], []),
        config=ConfigState(instance.config, None, None, []),
        state_dir=instance.paths.state,
    )


def _unknown(report: Status) -> Status:
    """Return the report without the counts, which an unreadable view does not tell: 0 would be an answer."""
    return replace(
        report,
        repositories=None,
        sorries=None,
        sorries_elsewhere=None,
        disproved=None,
        proofs=None,
        simulated_proofs=None,
        theorems=None,
    )


def _collect_now(
    report: Status, problems: list[Problem], *, instance: Instance, live: DaemonAnswer
) -> Status:
    has_view = instance.paths.database_db.exists()
    again = "restart the daemon: it makes the database anew" if instance.running else "everlean db rebuild"
    if has_view:
        try:
            with open_view(instance) as database:
                report = _from_view(report, problems, database, instance=instance, live=live)
        except LogError as error:
            # Half an answer with the reason is worth more to who is on call than none.
            has_view, report = False, _unknown(report)
            problems.append(problem(ProblemCode.VIEW_UNREADABLE, str(error), again))
    elif instance.paths.events_db.exists():
        report = _unknown(report)
        problems.append(problem(ProblemCode.VIEW_MISSING, f"{instance.paths.database_db}: missing", again))
    if instance.paths.events_db.exists():
        try:
            with LogReader.open(instance.paths.events_db) as log:
                report = _from_log(report, problems, log, instance=instance, has_view=has_view)
        except LogError as error:
            problems.append(problem(ProblemCode.LOG_UNREADABLE, str(error), "everlean db check"))
    elif has_view:
        message = f"{instance.paths.events_db}: missing, while the database made of it is there"
        remedy = (
            "move events.db-wal and events.db-shm aside, put events.db.rescued-* (if the daemon saved it) or the last "
            "backup there, run `everlean db rebuild`"
        )
        problems.append(problem(ProblemCode.LOG_MISSING, message, remedy))
    return _of_the_daemon(report, problems, instance=instance, live=live)


def _of_the_daemon(
    report: Status, problems: list[Problem], *, instance: Instance, live: DaemonAnswer
) -> Status:
    daemon, refused = report.daemon, refusals(instance.paths)
    if (standby := _standby_problem(instance)) is not None:
        problems.append(standby)
    elif instance.held is not None:
        message = f"{instance.held.purpose} (process {instance.held.pid}) keeps the daemon away"
        problems.append(problem(ProblemCode.KEPT_AWAY, message, "wait for its end"))
    elif not instance.running:
        began, ended = daemon.started_at, daemon.stopped_at
        died = began is not None and (ended is None or ended < began)
        message = "the daemon is not running"
        if not _ran(instance):
            message = f"the daemon has never run here ({instance.paths.state})"
        elif died:
            message += " and recorded no end: it was killed, or could not write any more"
        by_hand = f"everlean run --config {instance.config}"
        remedy = "systemctl start everlean" if instance.config == SYSTEM_CONFIG else by_hand
        problems.append(problem(ProblemCode.DAEMON_NOT_RUNNING, message, remedy))
    elif live.error is not None and not live.permitted:
        remedy = "ask as the daemon's user for what only it knows: progress, queue, its own problems"
        problems.append(problem(ProblemCode.DAEMON_NOT_ASKED, live.error, remedy, severity="warning"))
    elif live.status is None:
        remedy = (
            "wait a minute and ask again; if it stays so, restart the daemon: it goes on where it was. What it does"
            " stands in `everlean logs`"
        )
        if any(one.code == "disk_full" for one in refused):
            remedy = (
                "free some space: a daemon that finds no room when it starts waits for it, and then starts"
            )
        problems.append(problem(ProblemCode.DAEMON_SILENT, live.error or "it did not answer", remedy))
    else:
        said = live.status
        report = replace(
            report,
            daemon=replace(
                daemon,
                version=daemon.version or said.version,
                started_at=daemon.started_at or said.started_at,
            ),
            jobs=replace(report.jobs, queued=said.queued, more_queued=said.more_queued),
            proving=replace(report.proving, waits_for=said.proving.waits_for),
            models=replace(report.models, training_waits_for=said.training.waits_for or None),
        )
        # Those of the configuration are in the view as well, and are reported from there.
        problems += [daemon_problem(text) for text in said.problems if not text.startswith("config: ")]
        problems += [lacking_problem(item) for item in said.lacking]
        problems += cache_problems(said.cache)
        problems += clock_problems(said.clock)
        problems += confinement_problems(said)
    problems += [
        problem(ProblemCode(one.code), one.message, one.remedy, subject=str(one.folder)) for one in refused
    ]
    syntax = _syntax_error(instance)
    if syntax is not None and not report.config.errors:
        problems.append(
            problem(ProblemCode.CONFIG_BROKEN, syntax, "everlean config check", subject=str(instance.config))
        )
    return report


STANDBY_BEHIND_S = 600.0
"""A standby that has not read the store to its end for so long is an error."""


def _standby_problem(instance: Instance) -> Problem | None:
    """What this machine is to another's log, and how far behind; None where it has nothing to do with one."""
    if instance.running or not instance.paths.standby.exists():
        return None
    from daemon.standby import read

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
    """A file that is no TOML would stop the next start; a full check would cost status its speed."""
    try:
        tomllib.loads(instance.config.read_bytes().decode())
    except ValueError as error:
        return f"{instance.config.name} is no valid TOML: {error}"
    return None


def _from_view(
    report: Status,
    problems: list[Problem],
    database: sqlite3.Connection,
    *,
    instance: Instance,
    live: DaemonAnswer,
) -> Status:
    counts = count_all(database)
    today = datetime.now(UTC).isoformat() if instance.moment is None else instance.moment.recorded_at
    seconds_today = queries.seconds_since(database, today[: len("2026-01-01")])
    checkpoint = queries.checkpoint(database)
    if checkpoint is not None and checkpoint.stopped_reason:
        reason = f"the view stopped before the end of the log: {checkpoint.stopped_reason}"
        problems.append(
            problem(
                ProblemCode.VIEW_STOPPED, reason, "everlean db rebuild, with the version that it asks for"
            )
        )
    service = queries.service(database)
    if service is not None:
        report = _of_service(report, problems, service)
    repositories = described_repositories(database)
    problems += repository_problems(repositories)
    problems += large_problems(repositories)
    problems += doubt_problems(queries.doubted_proofs(database))
    notifiers = report_queries.notifiers(database)
    problems += notify_problems(notifiers)
    failed = still_failed(queries.jobs(database, limit=JOBS_LOOKED_AT), left=left_branches(repositories))
    problems += job_problems(failed)
    running = (
        queries.jobs(database, state="running") if instance.running or instance.moment is not None else []
    )
    due = Due(queries.commits_to_scan(database), len(queries.proofs_to_check(database)))
    work = work_of(database, live)
    problems += work_problems(work.paused, work.gpus)
    in_use = [of_row(ModelInUse, row) for row in model_queries.checkpoints(database) if row.promoted]
    return replace(
        report,
        sorries=counts.sorries,
        sorries_elsewhere=counts.sorries_elsewhere,
        disproved=disproved(database) if counts.sorries["open"] else 0,
        proofs=counts.proofs,
        simulated_proofs=counts.simulated_proofs,
        theorems=counts.theorems,
        models=replace(report.models, in_use=in_use),
        proving=replace(report.proving, seconds_today=seconds_today),
        log=replace(report.log, view_position=queries.position(database)),
        repositories=repositories,
        notifications=[of_row(Channel, row, kinds=sorted(row.kinds)) for row in notifiers],
        jobs=replace(
            report.jobs,
            running=[of_row(RunningJob, row, progress=live.progress.get(row.job)) for row in running],
            due=due,
            failed=failed,
            counts=counts.jobs,
        ),
        work=work,
    )


def _of_service(report: Status, problems: list[Problem], service: ServiceRow) -> Status:
    """Return the report with what the daemon last said of itself."""
    if service.config_errors:
        problems.append(
            problem(
                ProblemCode.CONFIG_REJECTED,
                f"{report.config.path.name} changed and was rejected; the earlier settings stay in force",
                "correct these lines; the daemon then reloads the file",
                subject=service.config_path,
                errors=service.config_errors,
            )
        )
    problems += lean_problems(service.lean, service.lean_detail)
    return replace(
        report,
        daemon=replace(
            report.daemon,
            version=service.version,
            started_at=service.started_at,
            stopped_at=service.stopped_at,
        ),
        lean=service.lean,
        lean_detail=service.lean_detail,
        config=replace(
            report.config,
            loaded_at=service.config_loaded_at,
            rejected_at=service.config_rejected_at,
            errors=service.config_errors,
        ),
    )


def _from_log(
    report: Status, problems: list[Problem], log: LogReader, *, instance: Instance, has_view: bool
) -> Status:
    position = log.position() if instance.moment is None else instance.moment.seq
    last_events = [
        LastEvent(
            event.seq,
            event.type,
            event.recorded_at,
            bool(event.data.get("simulated")),
            # Why a repository failed stands among the problems.
            summary({**event.data, "reason": ""} if event.type == "repository_failed" else event.data),
        )
        for event in log.last(LAST_EVENTS, upto=position)
    ]
    report = replace(report, log=replace(report.log, position=position, last_events=last_events))
    for event in log.last(1, upto=position, types=("config_loaded",)):
        settings = event.data.get("settings", {})
        hours = settings.get("prove", {}).get("hours_per_day")
        a_day = None if hours is None else 3600 * hours
        sandbox = settings.get("lean", {}).get("sandbox")
        report = replace(report, proving=replace(report.proving, seconds_per_day=a_day), sandbox=sandbox)
        if sandbox == "none" and report.lean in ("pantograph", "server"):
            problems.append(
                problem(
                    ProblemCode.NO_SANDBOX,
                    'code of the watched repositories runs unconfined ([lean] sandbox = "none")',
                    'write sandbox = "bubblewrap"',
                    severity="warning",
                )
            )
    seen = report.log.view_position
    if has_view and seen > position:
        text = f"the database is at event {seen}, and the log ends at event {position}: its end was lost"
        problems.append(
            problem(
                ProblemCode.LOG_BEHIND,
                text,
                "everlean db check; restore the last backup if it is newer, else everlean db recover",
            )
        )
    if has_view and seen < position and not any(item.code == ProblemCode.VIEW_STOPPED for item in problems):
        problems.extend(_lag(log, seen=seen, position=position, instance=instance))
    return report


def _lag(log: LogReader, *, seen: int, position: int, instance: Instance) -> list[Problem]:
    """A running view is a moment behind; one that stays behind has a daemon that does not get on."""
    event = next(log.read(after=seen, limit=1))
    behind = counted(position - seen, "event")
    if not instance.running:
        text = f"the view is {behind} behind the log; the daemon catches up when it starts"
        return [problem(ProblemCode.VIEW_BEHIND, text, "everlean run", severity="warning")]
    age_s = (datetime.now(UTC) - parse_time(event.recorded_at)).total_seconds()
    if age_s < VIEW_MAY_LAG_S:
        return []
    text = f"the view stopped before event {event.seq} ({event.type}), {behind} behind the log"
    if any(one.code == "disk_full" for one in refusals(instance.paths)):
        # A rebuild would want more of what is missing.
        return [problem(ProblemCode.VIEW_BEHIND, text, "free some space; the daemon then goes on by itself")]
    remedy = "restart the daemon; if it stays so, stop it and run `everlean db rebuild`"
    return [problem(ProblemCode.VIEW_BEHIND, text, remedy)]


def _summary(report: Status, *, ran: bool) -> str:
    sorries = report.sorries
    numbers = "an unknown number of repositories and sorries"
    if sorries is not None and report.repositories is not None:
        watched = sum(item.watched and item.enabled for item in report.repositories)
        numbers = (
            f"{counted(watched, 'repository')} watched,"
            f" {counted(sorries['open'], 'sorry')} open, {sorries['verified']:,} verified,"
            f" {sorries['filled']:,} filled{elsewhere_said(report.sorries_elsewhere or 0)}"
        )
    if report.as_of is not None:
        return f"As of event {report.as_of.seq}: {numbers}."
    if not report.daemon.running:
        if any(item.code == ProblemCode.STANDBY for item in report.problems):
            return f"everlean follows another machine here: {numbers}."
        return f"everlean is not running; it left {numbers}." if ran else "everlean has never run here."
    errors = sum(item.severity == "error" for item in report.problems)
    if errors:
        return f"everlean is running with {counted(errors, 'problem')}: {numbers}."
    if report.problems:
        return f"everlean is running, with {counted(len(report.problems), 'warning')}: {numbers}."
    return f"everlean is running well: {numbers}."


def work_of(database: sqlite3.Connection, live: DaemonAnswer) -> Work:
    """Return what the view knows of it, and what the living daemon does."""
    triggered = [of_row(TriggeredWork, row) for row in queries.triggers(database) if row.waits]
    return Work(queries.pauses(database), triggered, live.status.gpus if live.status is not None else [])
