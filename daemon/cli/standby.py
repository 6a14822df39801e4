"""`unsorry standby`: follow the log that another machine ships, and take it over. The work is `daemon.standby`'s."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.config import refuse
from daemon.cli.context import CliError, Config, ExitCode, Json, locate
from daemon.cli.render import clean, counted, emit_json, say
from daemon.lock import STANDBY, AlreadyRunningError, DaemonLock, make_folder

if TYPE_CHECKING:
    from daemon.standby import Standby


def register(app: typer.Typer) -> None:
    app.command("standby", help="Follow the log that another machine ships ([log] ship), or take it over.")(
        standby
    )


def standby(
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Follow to the end, fence the other daemon, and end: start the daemon then."
        ),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Follow to the end of what was shipped, and end.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = locate(config)
    from daemon.service import held_secrets
    from daemon.settings import ConfigError, load
    from daemon.standby import Follower, follow

    try:
        settings = load(instance.config)
    except ConfigError as error:
        refuse(error)
        raise typer.Exit(ExitCode.BAD_CONFIG) from error
    if not settings.log.ship:
        raise CliError(
            f'{instance.config}: write ship = "…" under [log]: where the other machine ships its log',
            code=ExitCode.BAD_CONFIG,
        )
    make_folder(settings.paths.state)
    try:
        lock = DaemonLock.acquire(settings.paths.lock, purpose=STANDBY)
    except AlreadyRunningError as error:
        raise CliError(str(error), code=ExitCode.ALREADY_RUNNING) from error
    try:
        with Follower(settings.log.ship, settings.paths, hidden=held_secrets(settings)) as follower:
            if take_over:
                epoch = follower.take_over()
                last = epoch.after.seq
                if as_json:
                    emit_json(Following(settings.log.ship, last, last, epoch.taken_at, None, epoch.number))
                else:
                    say(
                        f"took over {settings.log.ship} behind event {last}, as epoch {epoch.number}: the other "
                        "daemon is fenced, and ends when it next asks there. Start the daemon here"
                    )
            elif once:
                done = follower.turn()
                _say(done, as_json)
                if done.problem:
                    raise typer.Exit(ExitCode.FAILURE)
            else:
                ended = threading.Event()
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, lambda *_: ended.set())
                follow(follower, settings.log.every_s, ended, lambda now: _say(now, as_json))
    finally:
        lock.release()


def _say(now: Standby, as_json: bool) -> None:
    if as_json:
        emit_json(
            Following(now.url, now.position, now.shipped, now.read_at or None, now.problem or None, None)
        )
    elif now.problem:
        behind = counted(now.shipped - now.position, "event")
        say(f"event {now.position}, at least {behind} behind: {clean(now.problem)}")
    else:
        say(f"event {now.position}, all that was shipped to {now.url}")


@dataclass(frozen=True, slots=True)
class Following:
    url: str
    """what is followed"""
    position: int
    """the last event here"""
    shipped: int
    """the last event there, as far as it is known"""
    read_at: str | None
    """when it was last read to its end"""
    problem: str | None
    """why the last try failed"""
    epoch: int | None
    """the epoch that `--take-over` began, else null"""
