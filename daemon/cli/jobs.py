"""`everlean jobs`, `poll`, `pause`, `resume` and `trigger`: what runs, waits, ran and failed, and why; have the running
daemon do work now, or not."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.completion import JOBS, ids, one_of, repositories
from daemon.cli.context import AsOf, CliError, Config, Json, count, count_or_all, locate, view
from daemon.cli.render import (
    check_choice,
    emit_json,
    fields,
    listing_group,
    note,
    say,
    short_ids,
    styled,
    table,
)
from daemon.instance import DaemonAnswer, Instance, ask, command
from store.documents.jobs import Job, describe_jobs, try_again
from store.documents.live import QueuedJob
from store.documents.lookup import one_match, resolve
from store.text import ago, clean, clean_block, size, span

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from store.view.rows import JobRow

STATES = ("running", "succeeded", "failed", "interrupted", "cancelled", "released")
KINDS = (
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
    "evaluate",
)
SHOWN_TO_PEOPLE = 50
UNASKED = DaemonAnswer()
State = Annotated[
    str | None,
    typer.Option("--state", metavar="S", help=f"Only: {', '.join(STATES)}.", autocompletion=one_of(STATES)),
]
Kind = Annotated[
    str | None,
    typer.Option("--kind", metavar="K", help=f"Only: {', '.join(KINDS)}.", autocompletion=one_of(KINDS)),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", parser=count_or_all, help="At most N; 0 is all. Default: 50, with --json all."
    ),
]
JobId = Annotated[
    str, typer.Argument(metavar="ID", help="A job's id, or its beginning.", autocompletion=ids(JOBS))
]


def register(app: typer.Typer) -> None:
    group = listing_group(
        list_,
        help_text="List jobs, show one, print what it wrote, or try it again.",
        list_help="List jobs, newest first (the same as no verb).",
    )
    group.command("show", help="Show one job.")(show)
    group.command("retry", help="Try a failed or cancelled job again now.")(retry)
    group.command("cancel", help="End a job, or take it off the queue, until it is retried by hand.")(cancel)
    group.command("logs", help="Print what a job wrote on standard error.")(logs)
    app.add_typer(group, name="jobs")
    app.command("poll", help="Ask repositories for new commits now.")(poll)
    app.command("pause", help="Start no more of some work: poll, train, prove or all.")(pause)
    app.command("resume", help="Start paused work again: poll, train, prove or all.")(resume)
    app.command("trigger", help="Have a repository traced, learned from or searched once, now.")(trigger)


def list_(
    state: State = None,
    kind: Kind = None,
    limit: Limit = None,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.view import queries

    check_choice(state, STATES, option="--state")
    check_choice(kind, KINDS, option="--kind")
    instance = locate(config, as_of)
    most = (0 if as_json else SHOWN_TO_PEOPLE) if limit is None else limit
    live = ask(instance)
    with view(instance) as database:
        found = _described(
            database, queries.jobs(database, state=state, kind=kind, limit=most or None), instance, live
        )
    # A state is what the log says of a job, and it says nothing of one that has not begun.
    waiting = () if state is not None else live.queued
    queued = [item for item in waiting if kind in (None, item.kind)]
    more = live.more_queued if state is None else 0
    if as_json:
        emit_json(Jobs(found, queued, more), instance.head)
        return
    if not found and not queued:
        say("no job matches" if state or kind else "no job ran yet")
        return
    short = short_ids([*(item.job for item in queued), *(item.job for item in found)])
    table(
        ("ID", "STATE", "TRY", "STARTED", "TOOK", "MEMORY", "WHAT"),
        [(short[item.job], "queued", "-", "-", "-", "-", item.text) for item in queued]
        + [
            (
                short[item.job],
                item.state_text,
                str(item.attempt),
                ago(item.started_at),
                span(item.seconds) or "-",
                size(item.peak_rss_bytes) or "-",
                item.text,
            )
            for item in found
        ],
        shrink=(6,),
        spare=(5, 2, 4),
    )
    if more:
        say(f"and {more:,} more queued")


def show(job: JobId, as_of: AsOf = None, config: Config = None, as_json: Json = False) -> None:
    instance = locate(config, as_of)
    item = _find(instance, job, ask(instance))
    if as_json:
        emit_json(OneJob(item), instance.head)
        return
    say(f"{styled(item.job, 'bold')}  {item.state_text}{'  SIMULATED' if item.simulated else ''}")
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
            ("summary", "\n".join(_summary(item.summary))),
            ("folder", str(item.folder)),
        )
    )


def logs(
    job: JobId,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", metavar="N", parser=count, help="Of this attempt; default: the newest."),
    ] = None,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config, as_of)
    row = _find(instance, job)
    number = attempt if attempt is not None else row.attempt
    path = row.folder.with_name(str(number)) / "stderr.log"
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CliError(
            f"{path}: no such file; job {row.job} has attempts 1 to {row.attempt}, and the folders of old jobs are"
            " removed ([jobs] keep)"
        ) from error
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}; read it as the daemon's user") from error
    text = data.decode("utf-8", errors="replace")
    if as_json:
        emit_json(Log(row.job, number, path, text), instance.head)
        return
    if not text:
        note(
            f"everlean: attempt {number} of job {row.job} ({row.state}) wrote nothing; `everlean jobs show {row.job}`"
            " has what is known"
        )
    sys.stdout.write(clean_block(text))


def retry(job: JobId, config: Config = None, as_json: Json = False) -> None:
    instance = locate(config)
    row = _find(instance, job)
    answer = command(instance, "/retry", {"job": row.job})
    if as_json:
        emit_json(Retried(str(answer["job"])), instance.head)
        return
    say(f"{row.job} is due again: {clean(row.describes)}")


def cancel(job: JobId, config: Config = None, as_json: Json = False) -> None:
    instance = locate(config)
    answer = command(instance, "/cancel", {"job": _whole_id(instance, job)})
    if as_json:
        emit_json(Cancelled(str(answer["job"]), str(answer["was"])), instance.head)
        return
    done = "is being ended" if answer["was"] == "running" else "is taken off the queue"
    say(f"{answer['job']} {done}; {try_again(str(answer['job']))}")


@dataclass(frozen=True, slots=True)
class Jobs:
    jobs: list[Job]
    """newest first"""
    queued: Sequence[QueuedJob]
    """what the living daemon will start, the first 1,000; empty with `--state`"""
    more_queued: int
    """how many more, of every kind"""


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
    """which, from 1"""
    path: Path
    text: str
    """the content"""


def _summary(summary: dict[str, Any]) -> Iterator[str]:
    """One line for each thing that the job says of itself and that is not empty."""
    for key, value in summary.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        if text:
            yield f"{key} {clean(text)}"


def _whole_id(instance: Instance, prefix: str) -> str:
    """The id of a job that ran or waits, out of its beginning: one that waits need not be in the view."""
    queued = {item.job for item in ask(instance).queued}
    matching = [job for job in queued if job.startswith(prefix)]
    return matching[0] if len(matching) == 1 else str(_find(instance, prefix).job)


def _find(instance: Instance, prefix: str, live: DaemonAnswer = UNASKED) -> Job:
    from store.view import queries

    with view(instance) as database:
        row = one_match(queries.jobs_by_prefix(database, prefix), prefix, what="job", key="job")
        return _described(database, [row], instance, live)[0]


def _described(
    database: sqlite3.Connection, rows: Sequence[JobRow], instance: Instance, live: DaemonAnswer
) -> list[Job]:
    running = instance.running if instance.moment is None else None
    return describe_jobs(database, rows, folder=instance.paths.jobs, running=running, progress=live.progress)


@dataclass(frozen=True, slots=True)
class Polling:
    polling: list[str]
    """keys of the repositories that are asked"""


def poll(
    repository: Annotated[
        str | None,
        typer.Argument(
            metavar="[REPO]",
            help="Its key, such as github.com/owner/name, or the end of it.",
            autocompletion=repositories,
        ),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config)
    repository = _key(instance, repository) if instance.running else repository
    answer = command(instance, "/poll", {"repository": repository})
    polling = [str(key) for key in answer.get("polling", ())]
    if as_json:
        emit_json(Polling(polling), instance.head)
        return
    if not polling:
        say("nothing to poll: no repository is watched and enabled")
        return
    say(f"polling {', '.join(polling)} now; see the result with `everlean repos`")


def _key(instance: Instance, name: str | None) -> str | None:
    """The whole key where the view knows it; otherwise as written, for the daemon to judge."""
    if name is None or not instance.paths.database_db.exists():
        return name
    with view(instance) as database:
        return resolve(database, name)


WORK = ("poll", "train", "prove", "all")
Work = Annotated[
    str, typer.Argument(metavar="[WORK]", help=f"One of {', '.join(WORK)}.", autocompletion=one_of(WORK))
]
_WHAT = {
    "poll": "no repository is polled by itself",
    "train": "no training begins",
    "prove": "no search, no check and no bump begins",
    "all": "nothing begins",
}


def checked(work: str) -> str:
    """Return the name of a sort of work that can be paused; refuse another one."""
    if work not in WORK:
        raise typer.BadParameter(f'"{work}" is none of {", ".join(WORK)}', param_hint="WORK")
    return work


@dataclass(frozen=True, slots=True)
class Paused:
    work: str
    paused: bool
    """false where it was paused before"""


def pause(
    work: Work = "all",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="The reason, shown by `everlean status`.")
    ] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config)
    answer = command(instance, "/pause", {"work": checked(work), "reason": reason})
    paused = bool(answer["paused"])
    if as_json:
        emit_json(Paused(work, paused), instance.head)
        return
    if paused:
        say(f"{work} is paused: {_WHAT[work]} until `everlean resume {work}`")
    else:
        say(f"{work} was paused before, and stays so; `everlean status` says by whom")


@dataclass(frozen=True, slots=True)
class Resumed:
    work: str
    resumed: bool
    """false where it was not paused"""


def resume(work: Work = "all", config: Config = None, as_json: Json = False) -> None:
    instance = locate(config)
    answer = command(instance, "/resume", {"work": checked(work)})
    resumed = bool(answer["resumed"])
    if as_json:
        emit_json(Resumed(work, resumed), instance.head)
        return
    what = "everything" if work == "all" else work
    if resumed:
        say(f"{what} goes on")
    else:
        say("nothing was paused" if work == "all" else f"{work} was not paused")


TRIGGERED = ("trace", "train", "prove")


@dataclass(frozen=True, slots=True)
class Triggered:
    work: str
    repository: str | None
    triggered: bool
    """false where an earlier trigger waits still"""
    waits: str | None
    """why it has not started, or null"""


def trigger(
    work: Annotated[
        str,
        typer.Argument(
            metavar="WORK", help=f"One of {', '.join(TRIGGERED)}.", autocompletion=one_of(TRIGGERED)
        ),
    ],
    repository: Annotated[
        str,
        typer.Argument(
            metavar="REPO",
            help="Its key, such as github.com/owner/name, or the end of it.",
            autocompletion=repositories,
        ),
    ],
    config: Config = None,
    as_json: Json = False,
) -> None:
    if work not in TRIGGERED:
        raise typer.BadParameter(f'"{work}" is none of {", ".join(TRIGGERED)}', param_hint="WORK")
    instance = locate(config)
    key: str | None = repository
    if instance.running and instance.paths.database_db.exists():
        with view(instance) as database:
            key = resolve(database, repository)
    answer = command(instance, "/trigger", {"work": work, "repository": key})
    triggered, waits = bool(answer["triggered"]), answer.get("waits")
    if as_json:
        emit_json(Triggered(work, key, triggered, waits), instance.head)
        return
    done = "is due now" if triggered else "was triggered before, and has not begun yet"
    say(f"{work} {key}: {done}{f'; it waits: {clean(str(waits))}' if waits else ''}")
