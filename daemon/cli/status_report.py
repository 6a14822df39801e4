"""The report of `everlean status` as data: health, problems with their remedies, and the numbers.

Collected from the view, the end of the log, the lock and, where a daemon answers, its control socket. Standard
library and `store.view.queries` only: this is the answer that must come within 200 ms.
"""

from __future__ import annotations

import enum
import tomllib
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from daemon.cli.context import view
from daemon.cli.events import summary
from daemon.cli.jobs import try_again
from daemon.disk import refusals
from daemon.instance import DaemonAnswer, Instance, ask
from daemon.paths import SYSTEM_CONFIG
from store.documents.document import of_row
from store.documents.repositories import HEALTHY_STATES, Repository, because
from store.documents.repositories import described_repositories as described_repositories
from store.errors import LogError
from store.log.reader import LogReader
from store.text import ago, clean, counted, parse_time, size, span
from store.view import model_queries, queries, report_queries
from store.view.rows import DOUBT, DOUBT_ENDS, LARGER, CheckpointRow, JobRow, TriggerRow, too_large_said

if TYPE_CHECKING:
    import sqlite3

    from daemon.answers import CacheUse, Gpu, JobProgress, LackingLean, LiveStatus, QueuedJob, ToldJump
    from store.view.asof import Moment
    from store.view.rows import NotifierRow, PauseRow, ProofRow, ServiceRow


# ---- The problems, each with its code, which stays, and its remedy
# docs/operations.md has the codes, made of the docstrings below them: the first sentence says what it is, the others
# what to do.


class ProblemCode(enum.StrEnum):
    """What is wrong, as a word that programs may rely on. Links are those of docs/operations.md."""

    DAEMON_NOT_RUNNING = "daemon_not_running"
    """no process holds the state folder. `sudo systemctl start everlean`; if it ends again, `journalctl -u
    everlean -n 50`."""
    DAEMON_SILENT = "daemon_silent"
    """it does not answer. Wait a minute, then restart it, which loses nothing; beside `disk_full` it waits
    for room."""
    DAEMON_NOT_ASKED = "daemon_not_asked"
    """this user may not use the control socket. `sudo -u everlean`, or join the group `everlean` (to read) or
    `[daemon] control_group` (to act)."""
    DAEMON_PROBLEM = "daemon_problem"
    """the daemon names it itself. As it says."""
    KEPT_AWAY = "kept_away"
    """another command has the folders. Wait for its end."""
    STANDBY = "standby"
    """this machine follows another's log. Nothing while it does; [more](#a-standby)."""
    FENCED = "fenced"
    """another machine took the log over. [A standby](#a-standby)."""
    CONFIG_REJECTED = "config_rejected"
    """the file has mistakes; the settings before it hold. Correct the lines that are named."""
    CONFIG_BROKEN = "config_broken"
    """the file is no TOML. `everlean config check`."""
    REPOSITORY_UNREACHABLE = "repository_unreachable"
    """no connection. The network, DNS, the proxy."""
    REPOSITORY_OTHER_OWNER = "repository_other_owner"
    """the files belong to another user. `[poll] safe_directories`, or give them to the daemon's user."""
    REPOSITORY_NOT_FOUND = "repository_not_found"
    """nothing is there for this token. Correct its `url`, or give a token that may read it."""
    REPOSITORY_GONE = "repository_gone"
    """it is not there any more. Correct its `url`, or take it out of the file."""
    REPOSITORY_AUTH_FAILED = "repository_auth_failed"
    """the token is refused. [a new token](install.md#a-github-token)."""
    REPOSITORY_RATE_LIMITED = "repository_rate_limited"
    """the forge wants to be asked less. A token or a larger `[poll] every`."""
    REPOSITORY_EMPTY = "repository_empty"
    """it has no branch yet. Nothing."""
    REPOSITORY_INVALID = "repository_invalid"
    """it answers as no repository does. As the message says."""
    JOB_FAILED = "job_failed"
    """a job ended without success. `everlean jobs logs JOB`; then `everlean jobs retry JOB`."""
    WORK_PAUSED = "work_paused"
    """polls, training or proving were paused. `everlean resume all`."""
    NO_LEAN = "no_lean"
    """nothing here runs Lean. `everlean setup`."""
    TOOLCHAIN_MISSING = "toolchain_missing"
    """a branch's Lean version is not installed. `everlean setup`, or `install = "auto"` under `[lean]`."""
    SIMULATOR = "simulator"
    """the simulator stands in for Lean. `[lean] backend = "auto"`."""
    RUNS_AS_ROOT = "runs_as_root"
    """root runs the daemon, and Lean. A user of its own ([install.md](install.md))."""
    BOUNDS_WATCHED = "bounds_watched"
    """no control group bounds the memory of jobs. The shipped unit; cgroup v2."""
    NO_SANDBOX = "no_sandbox"
    """code of repositories runs unconfined. `[lean] sandbox = "bubblewrap"`."""
    GPU_LOST = "gpu_lost"
    """a GPU does not answer any more; its jobs wait. `nvidia-smi`, `dmesg`; restart the machine."""
    CACHE_OVER_LIMIT = "cache_over_limit"
    """builds in use are larger than `[cache] size`. Raise it, or watch fewer branches."""
    DISK_FULL = "disk_full"
    """a disk has no room. [Free some space](#when-a-disk-fills-up-or-fails)."""
    DISK_READ_ONLY = "disk_read_only"
    """a folder cannot be written. Mount it writable, `fsck`; [more](#when-a-disk-fills-up-or-fails)."""
    TOO_LARGE = "too_large"
    """more sorries or declarations than `[scan]` allows; the rest is counted only. Raise the limit, or
    exclude the file."""
    PROOFS_IN_DOUBT = "proofs_in_doubt"
    """all kernels that vouch for a verified proof have [known faults](certificates.md#recall). Raise the project's Lean
    version: the proof is then checked again by itself."""
    CLOCK_SET = "clock_set"
    """the clock was set. Let time synchronisation run."""
    MACHINE_SLEPT = "machine_slept"
    """the machine was suspended. Nothing."""
    NOTIFY_FAILING = "notify_failing"
    """a channel of `[notify]` takes no message. The receiver's address and secret, or the command."""
    VIEW_MISSING = "view_missing"
    """the database is not there. `everlean db rebuild`."""
    VIEW_UNREADABLE = "view_unreadable"
    """it is damaged. Stop the daemon; `everlean db rebuild`."""
    VIEW_BEHIND = "view_behind"
    """it lags behind the log. Start the daemon; if it runs, `everlean db rebuild`."""
    VIEW_STOPPED = "view_stopped"
    """the log holds what this version does not know. Install the version that it names."""
    LOG_MISSING = "log_missing"
    """the log is gone and the database is there. [Restore](#restore)."""
    LOG_UNREADABLE = "log_unreadable"
    """the log is damaged or of a newer version. `everlean db check`; [Restore](#restore), or the newer
    version."""
    LOG_BEHIND = "log_behind"
    """the log lost its end (power, a bad disk). `everlean db check`; [A damaged log](#a-damaged-log)."""


@dataclass(frozen=True, slots=True)
class Problem:
    code: ProblemCode
    severity: Literal["error", "warning"]
    subject: str | None
    message: str
    remedy: str
    errors: list[str] | None = None
    """only of `config_rejected`"""


def problem(
    code: ProblemCode,
    message: str,
    remedy: str,
    *,
    severity: Literal["error", "warning"] = "error",
    subject: str | None = None,
    errors: list[str] | None = None,
) -> Problem:
    return Problem(code, severity, subject, message, remedy, errors)


# ---- The report


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
    repositories: list[Repository]
    """also those that are watched no more"""
    jobs: Jobs
    """what is to be said of them now"""
    sorries: dict[str, int]
    """how many by state, on watched branches"""
    disproved: int
    """how many of the open ones are false as they stand"""
    proofs: dict[str, int]
    """how many by state"""
    simulated_proofs: int
    """how many are the simulator's"""
    theorems: int
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


def collect(instance: Instance) -> Status:
    """Return the whole document; as of an earlier moment if the place has one.

    As of then, the problems are those that the log knew of: what is wrong with the daemon or a file is of now.
    """
    report = _empty(instance)
    problems: list[Problem] = []
    if instance.moment is None:
        report = _collect_now(report, problems, instance=instance)
    else:
        with view(instance) as database:
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


def _collect_now(report: Status, problems: list[Problem], *, instance: Instance) -> Status:
    live = ask(instance)
    has_view = instance.paths.database_db.exists()
    again = "restart the daemon: it makes the database anew" if instance.running else "everlean db rebuild"
    if has_view:
        try:
            with view(instance, quiet=True) as database:
                report = _from_view(report, problems, database, instance=instance, live=live)
        except LogError as error:
            # Half an answer with the reason is worth more to who is on call than none.
            has_view = False
            problems.append(problem(ProblemCode.VIEW_UNREADABLE, str(error), again))
    elif instance.paths.events_db.exists():
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
        problems += [_said_problem(text) for text in said.problems if not text.startswith("config: ")]
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


def _said_problem(text: str) -> Problem:
    """What the daemon says of itself ends with the remedy behind the last semicolon, where it knows one."""
    message, _, remedy = text.rpartition("; ")
    return problem(ProblemCode.DAEMON_PROBLEM, message or text, remedy if message else "everlean doctor")


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
    counts = queries.counts(database)
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
    problems += work_problems(work)
    in_use = [of_row(ModelInUse, row) for row in model_queries.checkpoints(database) if row.promoted]
    return replace(
        report,
        sorries=counts.sorries,
        disproved=queries.disproved(database) if counts.sorries["open"] else 0,
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
            running=[of_row(RunningJob, row, progress=live.progress(row.job)) for row in running],
            due=due,
            failed=failed,
            counts=counts.jobs,
        ),
        work=work,
    )


def doubt_problems(rows: Sequence[ProofRow]) -> list[Problem]:
    """Return, by repository, that verified proofs are in doubt."""
    found = []
    for repository, number in Counter(row.repository for row in rows).items():
        message = f"{counted(number, 'verified proof')} in doubt: {DOUBT}"
        code = ProblemCode.PROOFS_IN_DOUBT
        found.append(problem(code, message, DOUBT_ENDS, severity="warning", subject=repository))
    return found


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
    watched = sum(item.watched and item.enabled for item in report.repositories)
    numbers = (
        f"{counted(watched, 'repository')} watched,"
        f" {counted(sorries.get('open', 0), 'sorry')} open, {sorries.get('verified', 0):,} verified,"
        f" {sorries.get('filled', 0):,} filled"
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


FAILED_JOBS_NAMED = 5
BRANCHES_NAMED = 3


def lean_problems(lean: str, detail: str) -> list[Problem]:
    if lean == "simulator":
        return [
            problem(
                ProblemCode.SIMULATOR,
                "the simulator stands in for Lean: nothing here was checked by Lean",
                'write [lean] backend = "auto" once Lean is installed (everlean setup)',
                severity="warning",
            )
        ]
    if lean == "none":
        return [
            problem(
                ProblemCode.NO_LEAN,
                f"sorries are found, and none is filled: {detail or 'there is no Lean'}",
                'write [lean] backend = "auto" to search for proofs'
                if "switched off" in detail
                else "everlean setup; everlean doctor says what else is missing",
                severity="warning",
            )
        ]
    return []


def confinement_problems(status: LiveStatus) -> list[Problem]:
    """What stands between code of repositories and this machine, where Lean is real and something of it is missing."""
    if status.lean not in ("pantograph", "server"):
        return []
    found = []
    if status.root:
        text = (
            "root runs the daemon, as [lean] as_root allows: code that gets out of its sandbox is root here"
        )
        found.append(
            problem(ProblemCode.RUNS_AS_ROOT, text, "run it as a user of its own", severity="warning")
        )
    if status.no_groups:
        message, _, remedy = status.no_groups.partition("; ")
        text = (
            "the memory of a job with all that it starts is looked at a few times a second, and not held by the kernel"
            f" ({message})"
        )
        found.append(problem(ProblemCode.BOUNDS_WATCHED, text, remedy or _BY_THE_UNIT, severity="warning"))
    return found


_BY_THE_UNIT = "run the daemon by its unit, on a machine with control groups of version 2"


def lacking_problem(lacking: LackingLean) -> Problem:
    """A Lean version that watched branches need and nothing here runs: their sorries are found and never tried."""
    branches = lacking.branches
    more = f" and {len(branches) - BRANCHES_NAMED} more" if len(branches) > BRANCHES_NAMED else ""
    named = f"{', '.join(branches[:BRANCHES_NAMED])}{more}"
    return problem(
        ProblemCode.TOOLCHAIN_MISSING,
        f"{named}: nothing is built, traced or proved there: {lacking.detail}",
        lacking.remedy,
        severity="warning",
        subject=lacking.toolchain,
    )


def cache_problems(cache: CacheUse) -> list[Problem]:
    if cache.bytes <= cache.limit_bytes:
        return []
    text = (
        f"builds and packages take {size(cache.bytes)}, more than the {size(cache.limit_bytes)} of [cache] size:"
        " what is left is in use or about to be"
    )
    return [problem(ProblemCode.CACHE_OVER_LIMIT, text, "raise [cache] size", severity="warning")]


def clock_problems(jump: ToldJump | None) -> list[Problem]:
    """Return problems from jumps of the clock within the last hour, as the running daemon saw them."""
    found = []
    if jump is not None and jump.set_s:
        way = "back" if jump.set_s < 0 else "forward"
        text = (
            f"the clock was set {way} by {span(abs(jump.set_s))} at {jump.noticed_at}: times in the log"
            " before and after do not compare, their order does"
        )
        remedy = (
            "nothing to be done here: intervals and deadlines do not hang on it; look at the time service"
        )
        found.append(problem(ProblemCode.CLOCK_SET, text, remedy, severity="warning"))
    if jump is not None and jump.slept_s:
        text = f"the machine slept for {span(jump.slept_s)}, until {jump.noticed_at}: the daemon did not run"
        remedy = "nothing to be done: what was due is caught up with, and running jobs have their time left"
        found.append(problem(ProblemCode.MACHINE_SLEPT, text, remedy, severity="warning"))
    return found


def repository_problems(repositories: list[Repository]) -> list[Problem]:
    return [
        problem(
            ProblemCode(f"repository_{item.state}"),
            because(item),
            item.remedy or f"everlean poll {item.repository}",
            subject=item.repository,
        )
        for item in repositories
        if item.watched and item.enabled and item.state not in HEALTHY_STATES
    ]


def large_problems(repositories: list[Repository]) -> list[Problem]:
    """Return what the limits of [scan] left out."""
    return [
        problem(
            ProblemCode.TOO_LARGE,
            f"{item.repository} {said}",
            LARGER,
            severity="warning",
            subject=item.repository,
        )
        for item in repositories
        for said in too_large_said(item.too_large).values()
    ]


def notify_problems(notifiers: list[NotifierRow]) -> list[Problem]:
    return [
        problem(
            ProblemCode.NOTIFY_FAILING,
            f"no message was delivered by {row.channel} since {ago(row.failing_since)}: {row.reason}",
            f"{row.remedy}; waiting messages are sent as soon as it accepts them",
            severity="warning",
            subject=row.channel,
        )
        for row in notifiers
        if row.kinds and row.problem
    ]


def left_branches(repositories: list[Repository]) -> set[tuple[str | None, str | None]]:
    return {
        (item.repository, head.branch)
        for item in repositories
        for head in item.heads
        if head.state != "live" or not (item.watched and item.enabled)
    }


def still_failed(jobs: list[JobRow], *, left: Container[tuple[str | None, str | None]] = ()) -> list[JobRow]:
    """The failed jobs after which none of their kind succeeded on the branch: the rest is history.

    So is what failed on a branch that is deleted or not watched any more: it is not tried again.
    """
    healed: set[tuple[str, str | None, str | None]] = set()
    found = []
    for job in sorted(jobs, key=lambda row: row.started_at, reverse=True):
        what = (job.kind, job.repository, job.branch)
        if job.state == "succeeded":
            healed.add(what)
        elif job.state == "failed" and what not in healed and (job.repository, job.branch) not in left:
            found.append(job)
    return found


def job_problems(failed: list[JobRow]) -> list[Problem]:
    problems = [
        problem(
            ProblemCode.JOB_FAILED,
            f"{job.describes}: {job.reason}: {job.message}",
            _job_remedy(job),
            # One that will be tried again may pass by itself.
            severity="error" if job.retry_at is None else "warning",
            subject=job.job,
        )
        for job in failed[:FAILED_JOBS_NAMED]
    ]
    if len(failed) > FAILED_JOBS_NAMED:
        rest = len(failed) - FAILED_JOBS_NAMED
        problems.append(
            problem(
                ProblemCode.JOB_FAILED, f"{counted(rest, 'more job')} failed", "everlean jobs --state failed"
            )
        )
    return problems


def _job_remedy(job: JobRow) -> str:
    remedy = job.remedy or f"everlean jobs logs {job.job}"
    # A permanent failure stays one after its cause is mended, until it is retried by hand.
    return remedy if job.retry_at is not None else f"{remedy}; {try_again(job.job)}"


def work_of(database: sqlite3.Connection, live: DaemonAnswer) -> Work:
    """Return what the view knows of it, and what the living daemon does."""
    triggered = [of_row(TriggeredWork, row) for row in queries.triggers(database) if row.waits]
    return Work(queries.pauses(database), triggered, live.status.gpus if live.status is not None else [])


def work_problems(work: Work) -> list[Problem]:
    """List what keeps work from being done, with the remedies."""
    found = [
        problem(
            ProblemCode.WORK_PAUSED,
            f"{item.work} is paused by {item.by}, {ago(item.since)}"
            + (f": {item.reason}" if item.reason else ""),
            f"everlean resume {item.work}",
            severity="warning",
            subject=item.work,
        )
        for item in work.paused
    ]
    for gpu in work.gpus:
        if gpu.state == "lost":
            text = f"{gpu.called} is lost, and its jobs wait: {gpu.detail}"
            found.append(problem(ProblemCode.GPU_LOST, text, gpu.remedy, subject=gpu.uuid or None))
    return found


def work_lines(work: Work) -> tuple[tuple[str, str], ...]:
    """Return the lines for people; "" where there is nothing to say."""
    triggered = "; ".join(f"{item.work} {item.repository} by {clean(item.by)}" for item in work.triggered)
    gpus = "; ".join(
        f"{gpu.index} {clean(gpu.name)} {gpu.state}" + (f" ({clean(gpu.detail)})" if gpu.detail else "")
        for gpu in work.gpus
    )
    return (("triggered", triggered), ("gpus", gpus))
