"""`everlean mcp`: the server for agents."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from daemon.cli.context import Call, CliError, verb
from daemon.cli.options import listened_host


@verb("mcp")
def mcp(
    call: Call,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Over HTTP there, at /mcp, with the token of [serve]; else over standard input and output.",
        ),
    ] = None,
) -> None:
    """Serve sorries to agents, by the Model Context Protocol."""
    from importlib.util import find_spec

    from daemon.planning.serve_spec import check_store

    if find_spec("mcp") is None:
        raise CliError("mcp not installed: install everlean with its extra `mcp` (docs/mcp.md)")
    check_store(call.instance.paths)
    address = None if http is None else _address(http)
    settings = None if address is None else call.settings
    from daemon.agents.server import Tools, listen, make_server, serve_http, token_of

    server = make_server(Tools(call.instance.config))
    if address is None or settings is None:
        server.run("stdio")
        return
    token = token_of(settings)
    listener = listen(*address)
    host, port = listener.getsockname()[:2]
    print(json.dumps({"listening": {"host": host, "port": port}}), flush=True)
    serve_http(server, listener, token=token)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise typer.BadParameter(f'"{text}" is no HOST:PORT, such as 127.0.0.1:23338', param_hint="--http")
    return listened_host(host.removeprefix("[").removesuffix("]"), option="--http"), int(port)
