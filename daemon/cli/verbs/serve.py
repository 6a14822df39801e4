"""`everlean serve`: the server for editors."""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.cli.context import Call, verb
from daemon.cli.options import listened_host


@verb("serve")
def serve(
    call: Call,
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
) -> None:
    """Serve tactics, premises and verdicts to editors, over HTTP."""
    settings = call.settings
    from daemon.planning.serve_spec import become_server

    become_server(settings, host=None if host is None else listened_host(host), port=port)
