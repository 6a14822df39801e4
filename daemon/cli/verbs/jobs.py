"""`everlean jobs`, `poll`, `pause`, `resume` and `trigger`: show jobs, and steer the running daemon's
work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from daemon.cli.answer import Answer, Column, Listing, nothing
from daemon.cli.completion import repositories
from daemon.cli.context import GROUPS, Call, files, verb
from daemon.cli.options import JobId, Limit, RepositoryKey, count, most
from daemon.cli.render import fields, note, say, styled
from daemon.place.answers import read_answer
from daemon.place.instance import DaemonAnswer, ask
from store.documents.jobs import Job, describe_jobs, try_again
from store.documents.live import QueuedJob
from store.documents.lookup import one_match
from store.text import ago, clean, clean_block, size, span
from store.view.rows import JOB_STATES, JobState

if TYPE_CHECKING:
    import sqlite3

    from store.view.rows import JobRow

GROUPS["jobs"] = "List, show, retry and cancel jobs."
UNASKED = DaemonAnswer()
JobKind = Literal[
    "scan",
    "build",
    "trace",
    "prove",
    "check",
    "bump",
    "train",
    "train_tactics",
    "train_grpo",
    "train_progress",
    "count",
]
COLUMNS: list[Column[Job | QueuedJob]] = [
    Column("ID", lambda item: item.job, id=True),
    Column("STATE", lambda item: item.state_text if isinstance(item, Job) else "queued"),
    Column("TRY", lambda item: str(item.attempt) if isinstance(item, Job) else "-", spare=2),
    Column("STARTED", lambda item: ago(item.started_at) if isinstance(item, Job) else "-"),
    Column("TOOK", lambda item: (span(item.seconds) if isinstance(item, Job) else "") or "-", spare=3),
    Column(
        "MEMORY", lambda item: (size(item.peak_rss_bytes) if isinstance(item, Job) else "") or "-", spare=1
    ),
    Column("WHAT", lambda item: item.text, shrink=True),
]


@dataclass(frozen=True, slots=True)
class Jobs:
    jobs: list[Job]
    """newest first"""
    queued: Sequence[QueuedJob]
    """the first 1,000 jobs in the running daemon's queue; empty with `--state`"""
    more_queued: int
    """the number of further ones, of every kind"""


@dataclass(frozen=True, slots=True)
class OneJob:
    job: Job


@dataclass(frozen=True, slots=True)
class Retried:
    job: str
    """its id"""


@dataclass(frozen=True, slots=True)
class Cancelled:
    job: str
    """its id"""
    was: str
    """`running` or `waiting`"""


@dataclass(frozen=True, slots=True)
class Log:
    job: str
    """its id"""
    attempt: int
    """its number, from 1"""
    path: Path
    text: str
    """the content"""


@verb("jobs", Jobs, past=True)
def list_(
    call: Call,
    state: Annotated[
        JobState | None,
        typer.Option("--state", metavar="S", help=f"Only: {', '.join(JOB_STATES)}."),
    ] = None,
    kind: Annotated[
        JobKind | None,
        typer.Option(
            "--kind",
            metavar="K",
            help=f"Only: {', '.join(get_args(JobKind))}.",
        ),
    ] = None,
    limit: Limit = None,
) -> Listing[Job | QueuedJob]:
    """List jobs, newest first."""
    from store.view import queries

    at_most = most(limit, as_json=call.as_json)
    live = ask(call.instance)
    with call.view() as database:
        rows = queries.jobs(database, state=state, kind=kind, limit=at_most or None)
        result = _described(database, rows, call, live)
    # A state comes from the log, which has nothing about jobs not begun.
    queued = [item for item in live.queued if state is None and kind in (None, item.kind)]
    more = live.more_queued if state is None else 0
    return Listing(
        [*queued, *result],
        COLUMNS,
        Jobs(result, queued, more),
        empty=nothing("job", state, kind),
        total=f"and {more:,} more queued" if more else "",
    )


@verb("jobs show", OneJob, past=True)
def show(call: Call, job: JobId) -> Answer:
    """Show one job."""
    item = _find(call, job, ask(call.instance))
    return Answer(OneJob(item), lambda: _show(item))


def _show(item: Job) -> None:
    say(f"{styled(item.job, 'bold')}  {item.state_text}")
    summary = (
        (key, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for key, value in item.summary.items()
    )
    fields(
        (
            ("what", clean(item.describes)),
            ("repository", f"{item.repository or '-'} ({item.branch or '-'}) at {item.sha or '-'}"),
            ("attempt", str(item.attempt)),
            ("started", ago(item.started_at)),
            ("ended", ago(item.ended_at, never="")),
            ("took", span(item.seconds)),
            ("memory", size(item.peak_rss_bytes)),
            ("progress", "" if item.progress is None else item.progress.text),
            ("reason", clean(item.reason)),
            ("message", clean_block(item.message.rstrip())),
            ("remedy", clean(item.remedy)),
            ("next try", item.next_try),
            ("summary", "\n".join(f"{key} {clean(text)}" for key, text in summary if text)),
            ("folder", str(item.folder)),
        )
    )


@verb("jobs logs", Log, past=True)
def logs(
    call: Call,
    job: JobId,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", metavar="N", parser=count, help="Of this attempt; default: the newest."),
    ] = None,
) -> Answer:
    """Print a job's standard error."""
    row = _find(call, job)
    number = attempt if attempt is not None else row.attempt
    path = row.folder.with_name(str(number)) / "stderr.log"
    with files(f"job {row.job} has attempts 1 to {row.attempt}; folders of old jobs are removed"):
        text = path.read_bytes().decode("utf-8", errors="replace")
    if not text and not call.as_json:
        note(
            f"everlean: attempt {number} of job {row.job} ({row.state}) wrote nothing; `everlean jobs show {row.job}`"
            " has what is known"
        )
    return Answer(Log(row.job, number, path, text), lambda: print(clean_block(text), end=""))


@verb("jobs retry", Retried)
def retry(call: Call, job: JobId) -> Answer:
    """Try a failed or cancelled job again now."""
    row = _find(call, job)
    result = read_answer(Retried, call.command("/retry", job=row.job))
    return Answer(result, f"{row.job} is due again: {clean(row.describes)}")


@verb("jobs cancel", Cancelled)
def cancel(call: Call, job: JobId) -> Answer:
    """End a job, or take it off the queue, until you retry it."""
    # A waiting one need not be in the view.
    queued = [item.job for item in ask(call.instance).queued if item.job.startswith(job)]
    whole = queued[0] if len(queued) == 1 else _find(call, job).job
    result = read_answer(Cancelled, call.command("/cancel", job=whole))
    how = "is being ended" if result.was == "running" else "is taken off the queue"
    return Answer(result, f"{result.job} {how}; {try_again(result.job)}")


def _find(call: Call, prefix: str, live: DaemonAnswer = UNASKED) -> Job:
    from store.view import queries

    with call.view() as database:
        row = one_match(queries.jobs_by_prefix(database, prefix), prefix, what="job", key="job")
        return _described(database, [row], call, live)[0]


def _described(
    database: sqlite3.Connection, rows: Sequence[JobRow], call: Call, live: DaemonAnswer
) -> list[Job]:
    instance = call.instance
    running = instance.running if instance.moment is None else None
    return describe_jobs(database, rows, folder=instance.paths.jobs, running=running, progress=live.progress)


# ---- Work of the running daemon

Work = Annotated[
    Literal["poll", "train", "prove", "all"],
    typer.Argument(metavar="[WORK]", help="One of poll, train, prove, all."),
]
_WHAT = {
    "poll": "no repository is polled by itself",
    "train": "no training begins",
    "prove": "no search, no check and no bump begins",
    "all": "nothing begins",
}


@dataclass(frozen=True, slots=True)
class Polling:
    polling: list[str]
    """keys of the polled repositories"""


@dataclass(frozen=True, slots=True)
class Paused:
    work: str
    paused: bool
    """false if it was paused before"""


@dataclass(frozen=True, slots=True)
class Resumed:
    work: str
    resumed: bool
    """false if it was not paused"""


@dataclass(frozen=True, slots=True)
class Triggered:
    work: str
    repository: str | None
    triggered: bool
    """false if an earlier trigger still waits"""
    waits: str | None
    """why it has not started, or null"""


@verb("poll", Polling)
def poll(
    call: Call,
    repository: Annotated[
        str | None,
        typer.Argument(
            metavar="[REPO]",
            help="Its key, such as github.com/owner/name, or a part that only it has.",
            autocompletion=repositories,
        ),
    ] = None,
) -> Answer:
    """Ask repositories for new commits now."""
    key = None if repository is None else call.key(repository)
    result = read_answer(Polling, call.command("/poll", repository=key))
    question = f"polling {', '.join(result.polling)} now; see the result with `everlean repos`"
    return Answer(
        result, question if result.polling else "nothing to poll: no repository is watched and enabled"
    )


@verb("pause", Paused)
def pause(
    call: Call,
    work: Work = "all",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason, shown by `everlean status`.")
    ] = "",
) -> Answer:
    """Pause poll, train, prove or all."""
    result = Paused(work, bool(call.command("/pause", work=work, reason=reason)["paused"]))
    now = f"{work} is paused: {_WHAT[work]} until `everlean resume {work}`"
    return Answer(
        result,
        now if result.paused else f"{work} was paused before, and stays so; `everlean status` says by whom",
    )


@verb("resume", Resumed)
def resume(call: Call, work: Work = "all") -> Answer:
    """Resume poll, train, prove or all."""
    result = Resumed(work, bool(call.command("/resume", work=work)["resumed"]))
    if result.resumed:
        return Answer(result, f"resumed {'polling, training and proving' if work == 'all' else work}")
    return Answer(result, "nothing was paused" if work == "all" else f"{work} was not paused")


@verb("trigger", Triggered)
def trigger(
    call: Call,
    work: Annotated[
        Literal["trace", "train", "prove"],
        typer.Argument(metavar="WORK", help="One of trace, train, prove."),
    ],
    repository: RepositoryKey,
) -> Answer:
    """Trace, train on or search a repository now."""
    key = call.key(repository)
    answer = call.command("/trigger", work=work, repository=key)
    result = Triggered(work, key, bool(answer["triggered"]), answer.get("waits"))
    due = "is due now" if result.triggered else "was triggered before, and has not begun yet"
    return Answer(
        result, f"{work} {key}: {due}{f'; it waits: {clean(result.waits)}' if result.waits else ''}"
    )
