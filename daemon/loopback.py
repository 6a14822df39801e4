"""An HTTP server on a port of 127.0.0.1, for the parts that offer one: started, and stopped, on the service's loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

ADDRESS = "127.0.0.1"
_MOST_CONNECTIONS = 32


class PortError(Exception):
    """The port cannot be listened on; the message says why and what to do."""


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Signals are the service's; uvicorn would take SIGTERM away from it.
        yield


class LoopbackServer:
    """A listening port. Made with `start`, ended with `stop`."""

    def __init__(self, port: int, server: _Server, task: asyncio.Task[None]) -> None:
        self.port = port
        self._server = server
        self._task = task

    @classmethod
    async def start(
        cls, application: ASGIApp, *, port: int, setting: str, host: str = ADDRESS
    ) -> LoopbackServer:
        """Listen; port 0 is any free one. `setting` names the port's setting in the error.

        Another `host`, an IP address, is for whoever was told plainly to listen there.

        Raises:
            PortError: somebody else listens there, or it is not ours to use.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(_MOST_CONNECTIONS)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            raise PortError(
                f"{setting}: {host}:{port} cannot be listened on: {error.strerror or error}; choose another port"
            ) from error
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            http="h11",
            ws="none",
            loop="none",
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
            server_header=False,
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]), name=f"loopback:{port}")
        while not server.started:
            if task.done():
                await task
                raise PortError(f"{setting}: the server of {host}:{port} ended while it started; see the log")
            await asyncio.sleep(0.01)
        return cls(listener.getsockname()[1] if port == 0 else port, server, task)

    async def stop(self) -> None:
        """Finish the answers under way, and close."""
        self._server.should_exit = True
        done, _ = await asyncio.wait({self._task}, timeout=5)
        if not done:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
