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
from daemon.problems import try_again
from store.documents.document import of_row
from store.documents.lookup import one_match, resolve
from store.text import ago, clean, clean_block, headline, size, span
from store.view.rows import JobRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from daemon.answers import JobProgress, QueuedJob

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
        rows = queries.jobs(database, state=state, kind=kind, limit=most or None)
    # A state is what the log says of a job, and it says nothing of one that has not begun.
    waiting = () if state is not None else live.queued
    queued = [item for item in waiting if kind in (None, item.kind)]
    more = live.more_queued if state is None else 0
    if as_json:
        emit_json(Jobs([described(row, live, instance) for row in rows], queued, more), instance.head)
        return
    if not rows and not queued:
        say("no job matches" if state or kind else "no job ran yet")
        return
    short = short_ids([*(item.job for item in queued), *(row.job for row in rows)])
    table(
        ("ID", "STATE", "TRY", "STARTED", "TOOK", "MEMORY", "WHAT"),
        [(short[item.job], "queued", "-", "-", "-", "-", _queued(item)) for item in queued]
        + [
            (
                short[row.job],
                state_word(row, instance),
                str(row.attempt),
                ago(row.started_at),
                span(row.seconds) or "-",
                size(row.peak_rss_bytes) or "-",
                _what(row, live),
            )
            for row in rows
        ],
        shrink=(6,),
        spare=(5, 2, 4),
    )
    if more:
        say(f"and {more:,} more queued")


def show(job: JobId, as_of: AsOf = None, config: Config = None, as_json: Json = False) -> None:
    instance = locate(config, as_of)
    live = ask(instance)
    row = _find(instance, job)
    if as_json:
        emit_json(OneJob(described(row, live, instance)), instance.head)
        return
    say(f"{styled(row.job, 'bold')}  {state_word(row, instance)}{'  SIMULATED' if row.simulated else ''}")
    fields(
        (
            ("what", clean(row.describes)),
            ("repository", f"{row.repository or '-'} ({row.branch or '-'}) at {row.sha or '-'}"),
            ("attempt", str(row.attempt)),
            ("started", ago(row.started_at)),
            ("ended", ago(row.ended_at, never="")),
            ("took", span(row.seconds)),
            ("memory", size(row.peak_rss_bytes)),
            ("progress", live.progress_text(row.job)),
            ("reason", clean(row.reason)),
            ("message", clean_block(row.message.rstrip())),
            ("remedy", clean(row.remedy)),
            ("next try", _next_try(row)),
            ("summary", "\n".join(_summary(row.summary))),
            ("folder", str(_folder(instance, row))),
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
    path = instance.paths.jobs / row.job / str(number) / "stderr.log"
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
class Job(JobRow):
    alive: bool
    """It is running, and so is the daemon."""
    folder: Path
    """Of its newest attempt; old ones are removed."""
    progress: JobProgress | None
    """Null where it has said nothing."""


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


def described(row: JobRow, live: DaemonAnswer, instance: Instance) -> Job:
    """Return a job as `--json` shows it. `alive` is of now: false for one that was running when the daemon died."""
    alive = row.state == "running" and instance.running and instance.moment is None
    return of_row(Job, row, alive=alive, folder=_folder(instance, row), progress=live.progress(row.job))


def state_word(row: JobRow, instance: Instance) -> str:
    """The state; a job that was running when the daemon ended is not running now."""
    lost = row.state == "running" and not instance.running and instance.moment is None
    return "lost" if lost else row.state


def _what(row: JobRow, live: DaemonAnswer) -> str:
    text = row.describes + (" SIMULATED" if row.simulated else "")
    if row.state == "running":
        progress = live.progress_text(row.job)
        return f"{text} ({progress})" if progress else text
    if row.state == "failed":
        return f"{text}: {row.reason}: {headline(row.message)}"
    if row.state == "cancelled":
        return f"{text}: {row.message}"
    missing = row.summary.get("modules_failed")
    return f"{text}: without {', '.join(map(str, missing))}, which failed" if missing else text


def _next_try(row: JobRow) -> str:
    if row.state == "cancelled":
        return f"not automatically; {try_again(row.job)}"
    if row.state != "failed":
        return ""
    if row.retry_at is not None:
        return ago(row.retry_at)
    why = "the same inputs would fail again" if row.deterministic else "it was tried often enough"
    return f"not automatically ({why}); {try_again(row.job)}"


def _summary(summary: dict[str, Any]) -> Iterator[str]:
    """One line for each thing that the job says of itself and that is not empty."""
    for key, value in summary.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        if text:
            yield f"{key} {clean(text)}"


def _folder(instance: Instance, row: JobRow) -> Path:
    return instance.paths.jobs / row.job / str(row.attempt)


def _queued(item: QueuedJob) -> str:
    return item.describes + (f"; waits: {item.waits}" if item.waits else "")


def _whole_id(instance: Instance, prefix: str) -> str:
    """The id of a job that ran or waits, out of its beginning: one that waits need not be in the view."""
    queued = {item.job for item in ask(instance).queued}
    matching = [job for job in queued if job.startswith(prefix)]
    return matching[0] if len(matching) == 1 else str(_find(instance, prefix).job)


def _find(instance: Instance, prefix: str) -> JobRow:

    from store.view import queries

    with view(instance) as database:
        found: JobRow = one_match(queries.jobs_by_prefix(database, prefix), prefix, what="job", key="job")
    return found


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
