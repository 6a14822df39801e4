"""The report of `unsorry status` as data: health, problems with their remedies, and the numbers.

Collected from the view, the end of the log, the lock and, where a daemon answers, its control socket. Standard
library and `store.view.queries` only: this is the answer that must come within 200 ms.
"""

from __future__ import annotations

import tomllib
from collections.abc import Container
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from daemon.cli.context import DaemonAnswer, Instance, ask, view
from daemon.cli.events import summary
from daemon.cli.jobs import try_again
from daemon.cli.render import ago, clean, counted, parse_time, row_json, size, span
from daemon.cli.repos import HEALTHY_STATES, LARGER, because
from daemon.cli.repos import described as described_repositories
from daemon.disk import refusals
from daemon.paths import SYSTEM_CONFIG
from store.errors import LogError
from store.log.reader import LogReader
from store.view import model_queries, queries, report_queries

if TYPE_CHECKING:
    import sqlite3

    from store.view.rows import JobRow, NotifierRow


LAST_EVENTS = 5
JOBS_LOOKED_AT = 500
VIEW_MAY_LAG_S = 10.0


def collect(instance: Instance) -> dict[str, Any]:
    """Return the whole document, without its schema number; as of an earlier moment if the place has one.

    As of then, the problems are those that the log knew of: what is wrong with the daemon or a file is of now.
    """
    report = _empty(instance)
    problems: list[Problem] = []
    if instance.moment is None:
        _collect_now(report, problems, instance=instance)
    else:
        with view(instance) as database:
            _from_view(report, problems, database, instance=instance, live=DaemonAnswer())
        with LogReader.open(instance.paths.events_db) as log:
            _from_log(report, problems, log, instance=instance, has_view=True)
    # What stops everything first, then the other errors, then the warnings.
    problems.sort(key=lambda item: (item["severity"] != "error", not item["code"].startswith("daemon_")))
    report["problems"] = problems
    report["healthy"] = not any(item["severity"] == "error" for item in problems)
    report["summary"] = _summary(report, ran=_ran(instance))
    return report


def _empty(instance: Instance) -> dict[str, Any]:
    return {
        "healthy": False,
        "summary": "",
        **instance.head,
        "daemon": {**instance.daemon_json, "version": None, "started_at": None, "stopped_at": None},
        "problems": [],
        "repositories": [],
        "jobs": {
            "running": [],
            "queued": [],
            "due": {"scan": 0, "check": 0},
            "failed": [],
            "counts": dict.fromkeys(queries.JOB_STATES, 0),
        },
        "sorries": dict.fromkeys(queries.SORRY_STATES, 0),
        "disproved": 0,
        "proofs": dict.fromkeys(queries.PROOF_STATES, 0),
        "simulated_proofs": 0,
        "theorems": 0,
        "log": {"position": 0, "view_position": 0, "path": str(instance.paths.events_db), "last_events": []},
        "lean": "none",
        "lean_detail": "",
        "sandbox": None,
        "models": {"in_use": [], "training_waits_for": None},
        "proving": {"seconds_today": 0.0, "seconds_per_day": None, "waits_for": []},
        "notifications": [],
        "work": dict(NO_WORK),
        "config": {"path": str(instance.config), "loaded_at": None, "rejected_at": None, "errors": []},
        "state_dir": str(instance.paths.state),
    }


def _collect_now(report: dict[str, Any], problems: list[Problem], *, instance: Instance) -> None:
    live = ask(instance)
    has_view = instance.paths.database_db.exists()
    again = "restart the daemon: it makes the database anew" if instance.running else "unsorry db rebuild"
    if has_view:
        try:
            with view(instance, quiet=True) as database:
                _from_view(report, problems, database, instance=instance, live=live)
        except LogError as error:
            # Half an answer with the reason is worth more to who is on call than none.
            has_view = False
            problems.append(problem("view_unreadable", str(error), again))
    elif instance.paths.events_db.exists():
        problems.append(problem("view_missing", f"{instance.paths.database_db}: missing", again))
    if instance.paths.events_db.exists():
        try:
            with LogReader.open(instance.paths.events_db) as log:
                _from_log(report, problems, log, instance=instance, has_view=has_view)
        except LogError as error:
            problems.append(problem("log_unreadable", str(error), "unsorry db check"))
    elif has_view:
        message = f"{instance.paths.events_db}: missing, while the database made of it is there"
        remedy = (
            "move events.db-wal and events.db-shm aside, put events.db.rescued-* (if the daemon saved it) or the last "
            "backup there, run `unsorry db rebuild`"
        )
        problems.append(problem("log_missing", message, remedy))
    _of_the_daemon(report, problems, instance=instance, live=live)


def _of_the_daemon(
    report: dict[str, Any], problems: list[Problem], *, instance: Instance, live: DaemonAnswer
) -> None:
    daemon, refused = report["daemon"], refusals(instance.paths)
    if instance.held is not None:
        message = f"{instance.held.purpose} (process {instance.held.pid}) keeps the daemon away"
        problems.append(problem("kept_away", message, "wait for its end"))
    elif not instance.running:
        began, ended = daemon["started_at"], daemon["stopped_at"]
        died = began is not None and (ended is None or ended < began)
        message = "the daemon is not running"
        if not _ran(instance):
            message = f"the daemon has never run here ({instance.paths.state})"
        elif died:
            message += " and recorded no end: it was killed, or could not write any more"
        by_hand = f"unsorry run --config {instance.config}"
        remedy = "systemctl start unsorry" if instance.config == SYSTEM_CONFIG else by_hand
        problems.append(problem("daemon_not_running", message, remedy))
    elif live.error is not None and not live.permitted:
        remedy = "ask as the daemon's user for what only it knows: progress, queue, its own problems"
        problems.append(problem("daemon_not_asked", live.error, remedy, severity="warning"))
    elif live.error is not None:
        remedy = (
            "wait a minute and ask again; if it stays so, restart the daemon: it goes on where it was. What it does"
            " stands in `unsorry logs`"
        )
        if any(one.code == "disk_full" for one in refused):
            remedy = (
                "free some space: a daemon that finds no room when it starts waits for it, and then starts"
            )
        problems.append(problem("daemon_silent", live.error, remedy))
    else:
        report["jobs"]["queued"] = live.status.get("queued", [])
        report["proving"]["waits_for"] = live.status.get("proving", {}).get("waits_for", [])
        report["models"]["training_waits_for"] = live.status.get("training", {}).get("waits_for") or None
        for name in ("version", "started_at"):
            daemon[name] = daemon[name] or live.status.get(name)
        problems += [
            _said_problem(str(text))
            for text in live.status.get("problems", [])
            # Those of the configuration are in the view as well, and are reported from there.
            if not str(text).startswith("config: ")
        ]
        problems += [lacking_problem(item) for item in live.status.get("lacking", [])]
        problems += cache_problems(live.status.get("cache", {}))
        problems += clock_problems(live.status.get("clock"))
        problems += confinement_problems(live.status)
    problems += [problem(one.code, one.message, one.remedy, subject=str(one.folder)) for one in refused]
    syntax = _syntax_error(instance)
    if syntax is not None and not report["config"]["errors"]:
        problems.append(
            problem("config_broken", syntax, "unsorry config check", subject=str(instance.config))
        )


def _ran(instance: Instance) -> bool:
    """Return whether a daemon has ever recorded anything here."""
    return instance.paths.events_db.exists() or instance.paths.database_db.exists()


def _said_problem(text: str) -> Problem:
    """What the daemon says of itself ends with the remedy behind the last semicolon, where it knows one."""
    message, _, remedy = text.rpartition("; ")
    return problem("daemon_problem", message or text, remedy if message else "unsorry doctor")


def _syntax_error(instance: Instance) -> str | None:
    """A file that is no TOML would stop the next start; a full check would cost status its speed."""
    try:
        tomllib.loads(instance.config.read_bytes().decode())
    except ValueError as error:
        return f"{instance.config.name} is no valid TOML: {error}"
    return None


def _from_view(
    report: dict[str, Any],
    problems: list[Problem],
    database: sqlite3.Connection,
    *,
    instance: Instance,
    live: DaemonAnswer,
) -> None:
    counts = queries.counts(database)
    report["sorries"] = counts.sorries
    report["disproved"] = queries.disproved(database) if counts.sorries["open"] else 0
    report["proofs"] = counts.proofs
    report["simulated_proofs"] = counts.simulated_proofs
    report["theorems"] = counts.theorems
    report["models"]["in_use"] = [
        {
            "model": row.model,
            "checkpoint": row.checkpoint,
            "promoted_at": row.promoted_at,
            "simulated": row.simulated,
        }
        for row in model_queries.checkpoints(database)
        if row.promoted
    ]
    today = datetime.now(UTC).isoformat() if instance.moment is None else instance.moment.recorded_at
    report["proving"]["seconds_today"] = queries.seconds_since(database, today[: len("2026-01-01")])
    report["log"]["view_position"] = queries.position(database)
    checkpoint = queries.checkpoint(database)
    if checkpoint is not None and checkpoint.stopped_reason:
        reason = f"the view stopped before the end of the log: {checkpoint.stopped_reason}"
        problems.append(
            problem("view_stopped", reason, "unsorry db rebuild, with the version that it asks for")
        )
    service = queries.service(database)
    if service is not None:
        report["daemon"].update(
            version=service.version, started_at=service.started_at, stopped_at=service.stopped_at
        )
        report["lean"], report["lean_detail"] = service.lean, service.lean_detail
        report["config"].update(
            loaded_at=service.config_loaded_at,
            rejected_at=service.config_rejected_at,
            errors=list(service.config_errors),
        )
        if service.config_errors:
            problems.append(
                problem(
                    "config_rejected",
                    f"{instance.config.name} changed and was rejected; the earlier settings stay in force",
                    "correct these lines; the daemon then reloads the file",
                    subject=service.config_path,
                    errors=list(service.config_errors),
                )
            )
        problems += lean_problems(report["lean"], report["lean_detail"])
    report["repositories"] = described_repositories(database)
    problems += repository_problems(report["repositories"])
    problems += large_problems(report["repositories"])
    notifiers = report_queries.notifiers(database)
    report["notifications"] = [{**row_json(row), "kinds": sorted(row.kinds)} for row in notifiers]
    problems += notify_problems(notifiers)
    jobs = queries.jobs(database, limit=JOBS_LOOKED_AT)
    failed = still_failed(jobs, left=left_branches(report["repositories"]))
    report["jobs"]["failed"] = [row_json(row) for row in failed]
    report["jobs"]["running"] = [
        {**row_json(row), "progress": live.progress(row.job)}
        for row in queries.jobs(database, state="running")
        if instance.running or instance.moment is not None
    ]
    report["jobs"]["counts"] = counts.jobs
    report["jobs"]["due"] = {
        "scan": queries.commits_to_scan(database),
        "check": len(queries.proofs_to_check(database)),
    }
    problems += job_problems(failed)
    report["work"] = work_of(database, live)
    problems += work_problems(report["work"])


def _from_log(
    report: dict[str, Any], problems: list[Problem], log: LogReader, *, instance: Instance, has_view: bool
) -> None:
    position = log.position() if instance.moment is None else instance.moment.seq
    report["log"]["position"] = position
    report["log"]["last_events"] = [
        {
            "seq": event.seq,
            "type": event.type,
            "recorded_at": event.recorded_at,
            "simulated": bool(event.data.get("simulated")),
            # Why a repository failed stands among the problems.
            "summary": summary(
                {**event.data, "reason": ""} if event.type == "repository_failed" else event.data
            ),
        }
        for event in log.last(LAST_EVENTS, upto=position)
    ]
    for event in log.last(1, upto=position, types=("config_loaded",)):
        settings = event.data.get("settings", {})
        hours = settings.get("prove", {}).get("hours_per_day")
        report["proving"]["seconds_per_day"] = None if hours is None else 3600 * hours
        lean = settings.get("lean", {})
        report["sandbox"] = lean.get("sandbox")
        if report["sandbox"] == "none" and report["lean"] in ("pantograph", "server"):
            problems.append(
                problem(
                    "no_sandbox",
                    'code of the watched repositories runs unconfined ([lean] sandbox = "none")',
                    'write sandbox = "bubblewrap"',
                    severity="warning",
                )
            )
    seen = report["log"]["view_position"]
    if has_view and seen > position:
        text = f"the database is at event {seen}, and the log ends at event {position}: its end was lost"
        problems.append(
            problem(
                "log_behind",
                text,
                "unsorry db check; restore the last backup if it is newer, else unsorry db recover",
            )
        )
    if has_view and seen < position and not any(item["code"] == "view_stopped" for item in problems):
        problems.extend(_lag(log, seen=seen, position=position, instance=instance))


def _lag(log: LogReader, *, seen: int, position: int, instance: Instance) -> list[Problem]:
    """A running view is a moment behind; one that stays behind has a daemon that does not get on."""
    event = next(log.read(after=seen, limit=1))
    behind = counted(position - seen, "event")
    if not instance.running:
        text = f"the view is {behind} behind the log; the daemon catches up when it starts"
        return [problem("view_behind", text, "unsorry run", severity="warning")]
    age_s = (datetime.now(UTC) - parse_time(event.recorded_at)).total_seconds()
    if age_s < VIEW_MAY_LAG_S:
        return []
    text = f"the view stopped before event {event.seq} ({event.type}), {behind} behind the log"
    if any(one.code == "disk_full" for one in refusals(instance.paths)):
        # A rebuild would want more of what is missing.
        return [problem("view_behind", text, "free some space; the daemon then goes on by itself")]
    remedy = "restart the daemon; if it stays so, stop it and run `unsorry db rebuild`"
    return [problem("view_behind", text, remedy)]


def _summary(report: dict[str, Any], *, ran: bool) -> str:
    sorries = report["sorries"]
    watched = sum(item["watched"] and item["enabled"] for item in report["repositories"])
    numbers = (
        f"{counted(watched, 'repository')} watched,"
        f" {counted(sorries.get('open', 0), 'sorry')} open, {sorries.get('verified', 0):,} verified,"
        f" {sorries.get('filled', 0):,} filled"
    )
    if "as_of" in report:
        return f"As of event {report['as_of']['seq']}: {numbers}."
    if not report["daemon"]["running"]:
        return f"unsorry is not running; it left {numbers}." if ran else "unsorry has never run here."
    errors = sum(item["severity"] == "error" for item in report["problems"])
    if errors:
        return f"unsorry is running with {counted(errors, 'problem')}: {numbers}."
    warnings = len(report["problems"])
    if warnings:
        return f"unsorry is running, with {counted(warnings, 'warning')}: {numbers}."
    return f"unsorry is running well: {numbers}."


FAILED_JOBS_NAMED = 5
BRANCHES_NAMED = 3

Problem = dict[str, Any]


def problem(
    code: str, message: str, remedy: str, *, severity: str = "error", subject: str | None = None, **more: Any
) -> Problem:
    return {
        "code": code,
        "severity": severity,
        "subject": subject,
        "message": message,
        "remedy": remedy,
        **more,
    }


def lean_problems(lean: str, detail: str) -> list[Problem]:
    if lean == "simulator":
        return [
            problem(
                "simulator",
                "the simulator stands in for Lean: nothing here was checked by Lean",
                'write [lean] backend = "auto" once Lean is installed (unsorry setup)',
                severity="warning",
            )
        ]
    if lean == "none":
        return [
            problem(
                "no_lean",
                f"sorries are found, and none is filled: {detail or 'there is no Lean'}",
                'write [lean] backend = "auto" to search for proofs'
                if "switched off" in detail
                else "unsorry setup; unsorry doctor says what else is missing",
                severity="warning",
            )
        ]
    return []


def confinement_problems(status: dict[str, Any]) -> list[Problem]:
    """What stands between code of repositories and this machine, where Lean is real and something of it is missing."""
    if status.get("lean") not in ("pantograph", "server"):
        return []
    found = []
    if status.get("root"):
        text = (
            "root runs the daemon, as [lean] as_root allows: code that gets out of its sandbox is root here"
        )
        found.append(problem("runs_as_root", text, "run it as a user of its own", severity="warning"))
    if reason := status.get("no_groups"):
        message, _, remedy = str(reason).partition("; ")
        text = (
            "the memory of a job with all that it starts is looked at a few times a second, and not held by the kernel"
            f" ({message})"
        )
        found.append(problem("bounds_watched", text, remedy or _BY_THE_UNIT, severity="warning"))
    return found


_BY_THE_UNIT = "run the daemon by its unit, on a machine with control groups of version 2"


def lacking_problem(lacking: dict[str, Any]) -> Problem:
    """A Lean version that watched branches need and nothing here runs: their sorries are found and never tried."""
    branches: list[str] = lacking["branches"]
    more = f" and {len(branches) - BRANCHES_NAMED} more" if len(branches) > BRANCHES_NAMED else ""
    named = f"{', '.join(branches[:BRANCHES_NAMED])}{more}"
    return problem(
        "toolchain_missing",
        f"{named}: nothing is built, traced or proved there: {lacking['detail']}",
        lacking["remedy"],
        severity="warning",
        subject=lacking["toolchain"],
    )


def cache_problems(cache: dict[str, int]) -> list[Problem]:
    if cache.get("bytes", 0) <= cache.get("limit_bytes", 0):
        return []
    text = (
        f"builds and packages take {size(cache['bytes'])}, more than the {size(cache['limit_bytes'])} of [cache] size:"
        " what is left is in use or about to be"
    )
    return [problem("cache_over_limit", text, "raise [cache] size", severity="warning")]


def clock_problems(jump: dict[str, Any] | None) -> list[Problem]:
    """Return problems from jumps of the clock within the last hour, as the running daemon saw them."""
    found = []
    if jump is not None and jump["set_s"]:
        way = "back" if jump["set_s"] < 0 else "forward"
        text = (
            f"the clock was set {way} by {span(abs(jump['set_s']))} at {jump['noticed_at']}: times in the log"
            " before and after do not compare, their order does"
        )
        remedy = (
            "nothing to be done here: intervals and deadlines do not hang on it; look at the time service"
        )
        found.append(problem("clock_set", text, remedy, severity="warning"))
    if jump is not None and jump["slept_s"]:
        text = f"the machine slept for {span(jump['slept_s'])}, until {jump['noticed_at']}: the daemon did not run"
        remedy = "nothing to be done: what was due is caught up with, and running jobs have their time left"
        found.append(problem("machine_slept", text, remedy, severity="warning"))
    return found


def repository_problems(repositories: list[dict[str, Any]]) -> list[Problem]:
    return [
        problem(
            f"repository_{item['state']}",
            because(item),
            item["remedy"] or "unsorry poll " + item["repository"],
            subject=item["repository"],
        )
        for item in repositories
        if item["watched"] and item["enabled"] and item["state"] not in HEALTHY_STATES
    ]


def large_problems(repositories: list[dict[str, Any]]) -> list[Problem]:
    """Return what the limits of [scan] left out."""
    return [
        problem(
            "too_large",
            f"{item['repository']} {large['branch']}: {large['said']}",
            LARGER,
            severity="warning",
            subject=item["repository"],
        )
        for item in repositories
        for large in item["too_large"]
    ]


def notify_problems(notifiers: list[NotifierRow]) -> list[Problem]:
    return [
        problem(
            "notify_failing",
            f"no message was delivered by {row.channel} since {ago(row.failing_since)}: {row.reason}",
            f"{row.remedy}; waiting messages are sent as soon as it accepts them",
            severity="warning",
            subject=row.channel,
        )
        for row in notifiers
        if row.kinds and row.problem
    ]


def left_branches(repositories: list[dict[str, Any]]) -> set[tuple[str | None, str | None]]:
    return {
        (item["repository"], head["branch"])
        for item in repositories
        for head in item["heads"]
        if head["state"] != "live" or not (item["watched"] and item["enabled"])
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
            "job_failed",
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
            problem("job_failed", f"{counted(rest, 'more job')} failed", "unsorry jobs --state failed")
        )
    return problems


def _job_remedy(job: JobRow) -> str:
    remedy = job.remedy or f"unsorry jobs logs {job.job}"
    # A permanent failure stays one after its cause is mended, until it is retried by hand.
    return remedy if job.retry_at is not None else f"{remedy}; {try_again(job.job)}"


NO_WORK: dict[str, Any] = {"paused": [], "triggered": [], "gpus": []}


def work_of(database: sqlite3.Connection, live: DaemonAnswer) -> dict[str, Any]:
    """Return what the view knows of it, and what the living daemon does."""
    return {
        "paused": [
            {"work": row.work, "by": row.by, "reason": row.reason, "since": row.since}
            for row in queries.pauses(database)
        ],
        "triggered": [
            {"work": row.work, "repository": row.repository, "by": row.by, "triggered_at": row.triggered_at}
            for row in queries.triggers(database)
            if row.waits
        ],
        "gpus": live.status.get("gpus", []),
    }


def work_problems(work: dict[str, Any]) -> list[Problem]:
    """List what keeps work from being done, with the remedies."""
    found = [
        problem(
            "work_paused",
            f"{item['work']} is paused by {item['by']}, {ago(item['since'])}"
            + (f": {item['reason']}" if item["reason"] else ""),
            f"unsorry resume {item['work']}",
            severity="warning",
            subject=item["work"],
        )
        for item in work["paused"]
    ]
    for gpu in work["gpus"]:
        if gpu["state"] == "lost":
            text = f"GPU {gpu['index']} ({gpu['name']}) is lost, and its jobs wait: {gpu['detail']}"
            found.append(problem("gpu_lost", text, gpu["remedy"], subject=gpu["uuid"] or None))
    return found


def work_lines(work: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the lines for people; "" where there is nothing to say."""
    triggered = "; ".join(
        f"{item['work']} {item['repository']} by {clean(item['by'])}" for item in work["triggered"]
    )
    gpus = "; ".join(
        f"{gpu['index']} {clean(gpu['name'])} {gpu['state']}"
        + (f" ({clean(gpu['detail'])})" if gpu["detail"] else "")
        for gpu in work["gpus"]
    )
    return (("triggered", triggered), ("gpus", gpus))
