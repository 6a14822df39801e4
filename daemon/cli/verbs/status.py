"""`everlean status`: a sentence on its health, the problems with their remedies, then the tables."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import Call, ExitCode, verb
from daemon.cli.render import cut_line, emit_json_line, fields, note, say, sparkline, styled, table
from daemon.cli.verbs import repos
from daemon.health.status_report import Daemon, Jobs, Models, Proving, Status, Work, collect
from daemon.place.control_client import ControlError
from daemon.place.instance import InstanceError, find_instance
from daemon.place.lock import FolderError
from store.documents.problems import Problem, ProblemCode
from store.errors import LogError
from store.text import ago, by_state, clean, counted, headline, span
from store.view.counts import elsewhere_text
from store.view.rows import NotifierRow

if TYPE_CHECKING:
    from store.documents.live import QueuedJob
    from store.documents.status import Week

EVERY_S = 2.0
SHORTEST_S, LONGEST_S = 0.2, 86400.0
_ERRORS_SHOWN = 3


@verb("status", Status, past=True)
def status(
    call: Call,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Show it again and again until Ctrl-C; --json: one line a turn."),
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Argument(
            metavar="SECONDS", min=SHORTEST_S, max=LONGEST_S, help="With --watch: how often; default 2."
        ),
    ] = None,
) -> Answer | None:
    """Show health, problems and activity."""
    if watch:
        if call.instance.moment is not None:
            raise typer.BadParameter("waits for news, and --as-of is about the past", param_hint="--watch")
        show_again(
            call.config, every_s=EVERY_S if seconds is None else seconds, as_json=call.as_json, show=show
        )
        return None
    if seconds is not None:
        raise typer.BadParameter("says how often, and only --watch asks more than once", param_hint="SECONDS")
    report = collect(call.instance, tell=note)
    return Answer(report, lambda: show(report), _exit_code(report))


def _exit_code(report: Status) -> ExitCode:
    """Return the code for scripts, as `systemctl status` does. An answer about an earlier moment is only an
    answer."""
    if report.healthy or report.as_of is not None:
        return ExitCode.OK
    return ExitCode.FAILURE if report.daemon.running else ExitCode.NOT_RUNNING


def show(report: Status) -> None:
    """Write the report for people."""
    colour = "green" if report.healthy else "red"
    say(f"{styled('●', colour)} {styled(report.summary, 'bold')}")
    if week := report.week:
        went = {
            "filled": sum(one.filled for one in week),
            "new": sum(one.opened for one in week),
            "gone": sum(one.gone for one in week),
        }
        say(f"  this week: {by_state(_some(went))}")
    for problem in report.problems:
        mark = styled("error", "red") if problem.severity == "error" else styled("warning", "yellow")
        _message(mark, problem)
        for line in problem.errors or ():
            say(f"      {clean(line)}")
        say(f"    -> {clean(problem.remedy)}")
    earlier = report.as_of is not None
    if not report.problems and not earlier and (ready := (report.sorries or {}).get("verified")):
        say(f"  next: {counted(ready, 'sorry')} with a proof that Lean accepted")
        say("    -> everlean proofs --state verified")
    daemon, log, jobs = report.daemon, report.log, report.jobs
    if not daemon.running and not log.position:
        return  # nothing was recorded: the rest would be zeros
    _repositories(report)
    if report.news:
        say()
        table(
            ("WHEN", "WHAT", "SORRY", "PLACE", "BY"),
            [
                (ago(item.at), item.step, item.declaration or item.sorry, f"{item.path}:{item.line}", item.by)
                for item in report.news
            ],
            shrink=(2, 3),
            names=(2, 3),
            spare=(4,),
        )
    if jobs.running:
        say()
        table(
            ("JOB", "STARTED", "PROGRESS", "WHAT"),
            [
                (
                    item.job,
                    ago(item.started_at),
                    item.progress.count if item.progress is not None else "-",
                    item.describes,
                )
                for item in jobs.running
            ],
            shrink=(3,),
        )
    say()
    fields(
        (
            ("daemon", _daemon(daemon, earlier=earlier)),
            ("lean", _lean(report)),
            *_counts(report),
            ("models", _models(report.models)),
            ("proving", _proving(report.proving)),
            *_work(report.work),
            ("jobs", _jobs(jobs, running=daemon.running, earlier=earlier)),
            ("told", _channels_text(report.notifications or ())),
            *_first_look(report),
            ("log", f"{log.path}, {counted(log.position, 'event')}"),
            (
                "config",
                f"{report.config.path}, loaded {ago(report.config.loaded_at)}"
                if report.config.loaded_at
                else f"{report.config.path}{', not loaded yet' if report.repositories is not None else ''}",
            ),
        )
    )


def _repositories(report: Status) -> None:
    """Write a line for each repository: its sorries, their changes this week, its state, its tips."""
    watched = [item for item in report.repositories or () if item.watched]
    if not watched:
        return
    week = {item.repository: item for item in report.week or ()}
    columns = [
        ("REPOSITORY", [item.repository.removeprefix("github.com/") for item in watched]),
        ("SORRIES", [item.sorries_text for item in watched]),
        ("THIS WEEK", [_week(week.get(item.repository)) for item in watched]),
        ("STATE", [repos.word(item) for item in watched]),
        ("TIP", [repos.tips(item) for item in watched]),
        ("LAST POLL", [ago(item.checked_at) for item in watched]),
    ]
    if not week:
        del columns[2]
    if report.as_of is not None:
        del columns[-1]  # polls are no events
    at = {header: index for index, (header, _) in enumerate(columns)}
    say()
    table(
        tuple(at),
        zip(*(cells for _, cells in columns), strict=True),
        shrink=(at["REPOSITORY"], at["SORRIES"], at["TIP"]),
        names=(at["REPOSITORY"],),
        spare=tuple(at[header] for header in ("LAST POLL", "TIP", "STATE") if header in at),
    )


def _week(week: Week | None) -> str:
    """Return the sorries in the source, day by day, and the numbers gone and new: "▇▅▅▅▃▃▃▁ -8 +1"."""
    if week is None:
        return "-"
    changes = (("-", week.filled + week.gone), ("+", week.opened))
    return " ".join([sparkline(week.sorries), *(f"{sign}{number:,}" for sign, number in changes if number)])


def _message(mark: str, problem: Problem) -> None:
    """Write a problem, and below it the first of a compiler's errors."""
    first, *rest = problem.message.rstrip().split("\n")
    say(f"  {mark}: {headline(first)}")
    errors = [line for line in rest if line.startswith("  ")]
    for line in errors[:_ERRORS_SHOWN]:
        say(f"      {clean(line)}")
    if len(rest) > min(len(errors), _ERRORS_SHOWN) and problem.code == "job_failed":
        say(f"      all that was said: everlean jobs show {problem.subject}")


def _daemon(daemon: Daemon, *, earlier: bool) -> str:
    if earlier:
        stopped_at = daemon.stopped_at
        return f"started {ago(daemon.started_at)}" + (f", stopped {ago(stopped_at)}" if stopped_at else "")
    if daemon.running:
        return f"running, process {daemon.pid}, started {ago(daemon.started_at)}"
    return f"not running, last started {ago(daemon.started_at)}" if daemon.started_at else "not running"


def _lean(report: Status) -> str:
    detail = clean(report.lean_detail)
    match report.lean:
        case "pantograph":
            return f"Pantograph: {detail}"
        case "server":
            return detail
    return report.lean  # a problem above has the reason


def _proving(proving: Proving) -> str:
    limit, waits = proving.seconds_per_day, [clean(str(one)) for one in proving.ladder if one.waits]
    if proving.seconds_today is None:
        return "; ".join(["unknown", *waits])
    spent = f"{span(proving.seconds_today)} of search above rung 0 today"
    return "; ".join([spent + (f", of {span(limit)}" if limit is not None else ""), *waits])


def _models(models: Models) -> str:
    in_use = "; ".join(
        f"{item.model} {item.checkpoint}, promoted {ago(item.promoted_at)}" for item in models.in_use or ()
    )
    waits = models.training_waits_for
    lines = [
        in_use or ("unknown" if models.in_use is None else ""),
        f"training waits: {clean(waits)}" if waits else "",
    ]
    return "; ".join(filter(None, lines))


def _channels_text(channels: Sequence[NotifierRow]) -> str:
    """Describe the messages that each notification channel got; "" without channels."""
    return "; ".join(
        f"{item.channel} {counted(item.told, 'event')}, the last {ago(item.sent_at)}"
        for item in channels
        if item.kinds
    )


def _jobs(jobs: Jobs, *, running: bool, earlier: bool) -> str:
    """Describe the running and the queued jobs; without a daemon, the jobs due by the database."""
    queued = len(jobs.queued) + jobs.more_queued
    if jobs.running is None or jobs.due is None:
        return f"unknown which run, {queued:,} queued" if running else "unknown"
    text = f"{len(jobs.running)} running, {queued:,} queued"
    if queued:
        more = queued - 3
        return "\n".join([text, *map(_queued, jobs.queued[:3]), *([f"{more:,} more"] if more > 0 else [])])
    kinds = (("scan", jobs.due.scan), ("check", jobs.due.check))
    due = ", ".join(f"{count:,} to {kind}" for kind, count in kinds if count)
    if earlier:
        return f"{len(jobs.running)} running" + (f"; due: {due}" if due else "")
    return text if running or not due else f"{text}; due when the daemon starts: {due}"


def _queued(item: QueuedJob) -> str:
    return clean(item.describes) + (f" (waits: {clean(item.waits)})" if item.waits else "")


def _work(work: Work) -> tuple[tuple[str, str], ...]:
    """Return the lines for people; "" for an empty one."""
    triggered = "; ".join(
        f"{item.work} {item.repository} by {clean(item.by)}" for item in work.triggered or ()
    )
    gpus = "; ".join(
        f"{gpu.index} {clean(gpu.name)} {gpu.state}" + (f" ({clean(gpu.detail)})" if gpu.detail else "")
        for gpu in work.gpus
    )
    return (("triggered", triggered), ("gpus", gpus))


def _disproved(number: int) -> str:
    return f"; {number:,} of the open disproved: false as they stand" if number else ""


def _first_look(report: Status) -> tuple[tuple[str, str], ...]:
    """Return the number of repositories looked at, until it is all."""
    watched = [item for item in report.repositories or () if item.watched]
    number = sum(item.checked_at is not None for item in watched)
    if not report.daemon.running or report.as_of is not None or number == len(watched):
        return ()
    return (("first look", f"{number:,} of {len(watched):,} repositories"),)


def _counts(report: Status) -> tuple[tuple[str, str], ...]:
    """Return the lines of the view's counts, "unknown" if it cannot be read."""
    if report.sorries is None or report.proofs is None:
        return tuple((name, "unknown") for name in ("sorries", "proofs", "theorems"))
    sorries = by_state(_some(report.sorries, "open")) + elsewhere_text(report.sorries_elsewhere or 0)
    proofs = by_state(_some(report.proofs))
    return (
        ("sorries", sorries + _disproved(report.disproved or 0)),
        ("proofs", proofs),
        ("theorems", f"{report.theorems:,}"),
    )


def _some(counts: dict[str, int], *always: str) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {state: number for state, number in counts.items() if number or state in always}


_TRANSIENT = (InstanceError, LogError, ControlError, FolderError)
"""Errors that may pass by the next turn: an editor is replacing the file, or the view is being rebuilt."""

_OTHER_SCREEN, _OWN_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


# ---- Again and again, in place on a terminal, line by line anywhere else
# Each turn looks for the daemon, its folders and its database anew, so that a restart, a rebuild or an edited
# configuration in between is shown and ends nothing.


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A turn that could not be made, with the reason."""

    unreadable: str


def show_again(config: Path | None, *, every_s: float, as_json: bool, show: Callable[[Status], None]) -> None:
    """Answer every `every_s` seconds until Ctrl-C; `show` writes a report for people to standard output.

    Raises:
        CliError: the first answer cannot be given. Later failures are shown and tried again.
    """
    turns = _turns(collect(find_instance(config)), config, every_s)
    with contextlib.suppress(KeyboardInterrupt):
        if as_json:
            for turn in turns:
                emit_json_line(turn)
        elif sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            _redraw(turns, every_s=every_s, show=show)
        else:
            _tell(turns)


def _turns(first: Status, config: Path | None, every_s: float) -> Iterator[Status | Unreadable]:
    """Yield a report for each turn."""
    yield first
    due = time.monotonic()
    while True:
        # From the turn's beginning, so that a slow answer does not stretch the interval, and never a burst.
        due = max(due + every_s, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            report: Status | Unreadable = collect(find_instance(config))
        except _TRANSIENT as error:
            report = Unreadable(str(error))
        yield report


def _redraw(turns: Iterator[Status | Unreadable], *, every_s: float, show: Callable[[Status], None]) -> None:
    with _other_screen():
        for report in turns:
            screen = _Screen()
            with contextlib.redirect_stdout(screen):
                if isinstance(report, Unreadable):
                    say(f"cannot be said now: {headline(report.unreadable)}")
                else:
                    show(report)
            sys.stdout.write(_frame(screen.getvalue().splitlines(), every_s=every_s))
            sys.stdout.flush()
    # The last screen is gone with it: one line of it stays.
    if not isinstance(report, Unreadable):
        say(report.summary)


class _Screen(io.StringIO):
    """A frame for the terminal, buffered until it is complete."""

    def isatty(self) -> bool:
        return True


def _frame(lines: list[str], *, every_s: float) -> str:
    """Put the lines over those of the frame before, cut to the terminal as it is now."""
    size = shutil.get_terminal_size()
    clock = datetime.now(UTC).strftime("%H:%M:%S")
    head = f"{clock} UTC, every {every_s:g}s, Ctrl-C ends"
    room = max(size.lines - 1, 1)
    body = lines if len(lines) <= room else [*lines[: room - 1], f"({len(lines) - room + 1} more lines)"]
    visible = [cut_line(line, size.columns) for line in [head, *body][: size.lines]]
    return _HOME + f"{_REST_OF_LINE}\n".join(visible) + _REST_OF_LINE + _REST_OF_SCREEN


@contextlib.contextmanager
def _other_screen() -> Iterator[None]:
    """Draw on the terminal's second screen; at any end, the first one comes back with its cursor."""

    def end(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    sys.stdout.write(_OTHER_SCREEN)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write(_OWN_SCREEN)
        sys.stdout.flush()
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(turns: Iterator[Status | Unreadable]) -> None:
    """Write one line a turn, and below it each new problem."""
    earlier: set[tuple[ProblemCode, str | None, str]] = set()
    for report in turns:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if isinstance(report, Unreadable):
            say(f"{now}  cannot be said now: {headline(report.unreadable)}")
        else:
            say(f"{now}  {report.summary}")
            present = set()
            for problem in report.problems:
                key = (problem.code, problem.subject, headline(problem.message))
                present.add(key)
                if key not in earlier:
                    say(f"  {problem.severity}: {key[2]}  -> {clean(problem.remedy)}")
            earlier = present
        sys.stdout.flush()
