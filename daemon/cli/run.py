"""`unsorry run`: the daemon, in the foreground."""

from __future__ import annotations

import sys

import typer

from daemon.cli.context import CliError, Config, ExitCode, locate


def register(app: typer.Typer) -> None:
    app.command("run", help="Run the daemon in the foreground.")(run)


def run(config: Config = None) -> None:
    place = locate(config)
    # The lock decides; this look only spares a second daemon the imports before it is refused.
    if place.pid is not None:
        raise CliError(
            f"already running: process {place.pid} holds {place.paths.state}; stop it first, or give this"
            " daemon another state_dir",
            code=ExitCode.ALREADY_RUNNING,
        )
    from daemon.lock import AlreadyRunningError
    from daemon.run import run as serve
    from daemon.settings.errors import ConfigError

    try:
        code = serve(place.config)
    except ConfigError as error:
        for line in error.errors:
            print(line, file=sys.stderr)
        raise typer.Exit(ExitCode.BAD_CONFIG) from error
    except AlreadyRunningError as error:
        raise CliError(str(error), code=ExitCode.ALREADY_RUNNING) from error
    raise typer.Exit(code)
