"""`everlean run`, `serve`, `mcp`, `standby`: the daemon, the servers for editors and agents, what follows a log."""

from __future__ import annotations

import json
import signal
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.config import loaded
from daemon.cli.context import CliError, Config, ExitCode, Json, locate
from daemon.cli.render import emit_json, say
from daemon.lock import STANDBY, DaemonLock, make_folder
from store.text import clean, counted

if TYPE_CHECKING:
    from daemon.standby import Standby


def register(app: typer.Typer) -> None:
    app.command("run", help="Run the daemon in the foreground.")(run)
    app.command("serve", help="Serve tactics, premises and verdicts to editors, over HTTP.")(serve)
    app.command("mcp", help="Serve sorries to agents, by the Model Context Protocol.")(mcp)
    app.command("standby", help="Follow the log that another machine ships ([log] ship), or take it over.")(
        standby
    )


def run(config: Config = None) -> None:
    instance = locate(config)
    # The lock decides; this look only spares a second daemon the imports before it is refused.
    if instance.pid is not None:
        raise CliError(
            f"already running: process {instance.pid} holds {instance.paths.state}; stop it first, or give this"
            " daemon another state_dir",
            code=ExitCode.ALREADY_RUNNING,
        )
    from daemon.run import run as run_daemon
    from daemon.settings.errors import ConfigError

    try:
        code = run_daemon(instance.config)
    except ConfigError as error:
        for line in error.errors:
            print(line, file=sys.stderr)
        raise typer.Exit(ExitCode.BAD_CONFIG) from error
    raise typer.Exit(code)


def serve(
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="ADDRESS", help="The address to listen on; default: that of [serve]."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=0,
            max=65535,
            help="The port; 0 for any free one; default: that of [serve].",
        ),
    ] = None,
    config: Config = None,
) -> None:
    instance = locate(config)
    from daemon.serve_spec import ServeError, become_server
    from pipeline.models.endpoint.errors import CredentialError

    settings = loaded(instance.config)
    try:
        become_server(settings, host=None if host is None else _checked(host), port=port)
    except ServeError as error:
        raise CliError(str(error)) from error
    except CredentialError as error:
        raise CliError(str(error), code=ExitCode.BAD_CONFIG) from error


def mcp(
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Over HTTP there, at /mcp, for who has the token of [serve]; else over standard input and output.",
        ),
    ] = None,
    config: Config = None,
) -> None:
    from importlib.util import find_spec

    from daemon.serve_spec import ServeError, check_store

    if find_spec("mcp") is None:
        raise CliError("mcp not installed: install everlean with its extra `mcp` (docs/mcp.md)")
    instance = locate(config)
    try:
        check_store(instance.paths)
    except ServeError as error:
        raise CliError(str(error)) from error
    address = None if http is None else _address(http)
    settings = None if address is None else loaded(instance.config)
    from daemon.agents.server import AgentError, Tools, listen, make_server, serve_http, token_of
    from pipeline.models.endpoint.errors import CredentialError

    server = make_server(Tools(instance.config))
    if address is None or settings is None:
        server.run("stdio")
        return
    try:
        token = token_of(settings)
        listener = listen(*address)
    except CredentialError as error:
        raise CliError(str(error), code=ExitCode.BAD_CONFIG) from error
    except AgentError as error:
        raise CliError(str(error)) from error
    host, port = listener.getsockname()[:2]
    print(json.dumps({"listening": {"host": host, "port": port}}), flush=True)
    serve_http(server, listener, token=token)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise typer.BadParameter(f'"{text}" is no HOST:PORT, such as 127.0.0.1:23338', param_hint="--http")
    return _checked(host.removeprefix("[").removesuffix("]"), option="--http"), int(port)


def _checked(host: str, *, option: str = "--host") -> str:
    from daemon.settings.models import checked_host

    try:
        return checked_host(host)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


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
    from daemon.standby import Follower, follow

    settings = loaded(instance.config)
    if not settings.log.ship:
        raise CliError(
            f'{instance.config}: write ship = "…" under [log]: where the other machine ships its log',
            code=ExitCode.BAD_CONFIG,
        )
    make_folder(settings.paths.state)
    lock = DaemonLock.acquire(settings.paths.lock, purpose=STANDBY)
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
    """the primary's segment store"""
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
