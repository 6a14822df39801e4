"""`everlean run` and `standby`: the daemon, and a follower of its log."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import Call, CliError, ExitCode, verb
from daemon.cli.render import emit_json
from daemon.place.lock import STANDBY, DaemonLock, make_folder
from store.text import clean, counted

if TYPE_CHECKING:
    from daemon.state.standby import Standby


@dataclass(frozen=True, slots=True)
class Following:
    url: str
    """the primary's segment store"""
    position: int
    """the last event here"""
    shipped: int
    """the last event known there"""
    read_at: str | None
    """the time of the last read to its end"""
    problem: str | None
    """why the last try failed"""
    epoch: int | None
    """the epoch begun by `--take-over`, else null"""


@verb("run")
def run(call: Call) -> None:
    """Run the daemon in the foreground."""
    instance = call.instance
    # The lock decides; this look only spares a second daemon the imports before its refusal.
    if instance.pid is not None:
        raise CliError(
            f"already running: process {instance.pid} holds {instance.paths.state}; stop it first, or give this"
            " daemon another state_dir",
            code=ExitCode.ALREADY_RUNNING,
        )
    from daemon.process.run import run as run_daemon
    from daemon.settings.errors import ConfigError

    try:
        code = run_daemon(instance.config)
    except ConfigError as error:
        for line in error.errors:
            print(line, file=sys.stderr)
        raise typer.Exit(ExitCode.BAD_CONFIG) from error
    raise typer.Exit(code)


@verb("standby", Following)
def standby(
    call: Call,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Follow to the end, fence the other daemon, and end: start the daemon then."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="With --take-over: even if another machine has taken over and its daemon has not started.",
        ),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Follow to the end of the shipped events, and end.")
    ] = False,
) -> Answer | None:
    """Follow another machine's shipped log ([log] ship), or take it over."""
    from daemon.process.service import held_secrets
    from daemon.state.standby import Follower, follow

    settings = call.settings
    url = settings.log.ship
    if not url:
        raise CliError(
            f'{call.instance.config}: write ship = "…" under [log]: where the other machine ships its log',
            code=ExitCode.BAD_CONFIG,
        )
    make_folder(settings.paths.state)
    lock = DaemonLock.acquire(settings.paths.lock, purpose=STANDBY)
    try:
        with Follower(url, settings.paths, hidden=held_secrets(settings)) as follower:
            if take_over:
                epoch = follower.take_over(force=force)
                last = epoch.after.seq
                return Answer(
                    Following(url, last, last, epoch.taken_at, None, epoch.number),
                    f"took over {url} behind event {last}, as epoch {epoch.number}: the other daemon is fenced, and "
                    "ends when it next asks there. Start the daemon here",
                )
            if once:
                return _report(follower.turn())
            ended = threading.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: ended.set())
            follow(follower, settings.log.every_s, ended, lambda now: _tell(call, now))
    finally:
        lock.release()
    return None


def _report(now: Standby) -> Answer:
    document = Following(now.url, now.position, now.shipped, now.read_at or None, now.problem or None, None)
    if not now.problem:
        return Answer(document, f"event {now.position}, all that was shipped to {now.url}")
    behind = counted(now.shipped - now.position, "event")
    text = f"event {now.position}, at least {behind} behind: {clean(now.problem)}"
    return Answer(document, text, ExitCode.FAILURE)


def _tell(call: Call, now: Standby) -> None:
    answer = _report(now)
    if call.as_json:
        emit_json(answer.document)
    else:
        answer.show()
