"""Serve: `python -m pipeline.serve SPEC.json` (`pipeline.serve.spec`).

Once it listens, before its models are loaded, it prints one line: {"listening": {"host": …, "port": …}}. SIGTERM and
SIGINT end it: requests under way are answered first. SIGHUP does the same and then runs the specification's `reload`
command in this process. Exit status 2, and one line on standard error, if it cannot start.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvicorn

from pipeline.connections import Server
from pipeline.endpoint.credentials import use_hub_key
from pipeline.endpoint.errors import CredentialError
from pipeline.jobs.gpu_lock import take
from pipeline.jobs.protocol import JobError
from pipeline.serve.auth import read_token
from pipeline.serve.spec import ServeSpec, SpecError
from store.files import Lock

_CANNOT_START = 2
_BACKLOG = 1024
_GRACE_S = 10
_CLOSING_S = 20
"""Time to close models, worktrees and Lean's processes after the last request."""
_LOOK_S = 0.2

_log = logging.getLogger(__name__)


class StartError(Exception):
    """The server cannot start; the message names the reason and the remedy."""


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal comes; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.serve", description=__doc__)
    parser.add_argument("spec", type=Path, help="written by `everlean serve`")
    environment = dict(os.environ)
    reloads = False
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    held: Lock | None = None
    try:
        spec = ServeSpec.read(parser.parse_args(arguments).spec)
        if spec.visible is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = spec.visible
        # Before torch is imported: until then nothing is on the GPU.
        held = None if spec.gpu_lock is None else take(spec.gpu_lock)
        token = read_token(spec)
        use_hub_key()
        with _listening(spec) as listener:
            reloads = _run(_serve(spec, token, listener))
    except (SpecError, CredentialError, JobError, StartError) as error:
        remedy = f"; {error.remedy}" if isinstance(error, JobError) and error.remedy else ""
        print(f"everlean serve: {error}{remedy}", file=sys.stderr)  # noqa: T201 - the caller reads this
        return _CANNOT_START
    finally:
        if held is not None:
            held.release()
    if reloads and spec.reload:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(spec.reload[0], spec.reload, environment)  # noqa: S606 - no shell
    return 0


def _run(serving: Coroutine[Any, Any, bool]) -> bool:
    """Run until it has ended. Unlike `asyncio.run` this waits for no thread: one may be embedding for an hour."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(serving)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_GRACE_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()


async def _serve(spec: ServeSpec, token: str | None, listener: socket.socket) -> bool:
    """Serve until a signal comes; return whether it was SIGHUP."""
    from pipeline.serve.app import make_app
    from pipeline.serve.limits import bounded_for

    config = uvicorn.Config(
        make_app(spec, token=token),
        http=bounded_for(spec.limits),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=5,
    )
    server = Server(config)
    hung_up = False

    def reload() -> None:
        nonlocal hung_up
        hung_up = True
        server.handle_exit(signal.SIGHUP, None)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.handle_exit, number, None)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for this
        await asyncio.sleep(0.01)
    if server.started:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        _log.info("serving at http://%s:%d, with its routes at /docs; Ctrl-C ends it", shown, port)
        print(json.dumps({"listening": {"host": host, "port": port}}), flush=True)  # noqa: T201 - the protocol
    while not server.should_exit and not serving.done():
        await asyncio.wait({serving}, timeout=_LOOK_S)
    ended, _ = await asyncio.wait({serving}, timeout=_GRACE_S + _CLOSING_S)
    if not ended:
        _log.warning("what was under way did not end within %d s; it is left as it is", _GRACE_S + _CLOSING_S)
        return hung_up
    serving.result()
    if not server.started:
        raise StartError("it ended while it started; the lines before say why")
    return hung_up


def _listening(spec: ServeSpec) -> socket.socket:
    """Return the socket, listening.

    Raises:
        StartError: the address is in use, or not allowed.
    """
    try:
        result = socket.getaddrinfo(spec.host, spec.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = result[0]
        listener = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise StartError(
            f"{spec.host}:{spec.port} cannot be listened on ({error.strerror or error}); set another [serve] port, "
            "or end what listens there"
        ) from error
    return listener


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Python would wait for the thread still loading a model, which no request needs now.
    os._exit(status)
