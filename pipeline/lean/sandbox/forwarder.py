"""Inside a sandbox: give a program the proxy behind a unix socket, and nothing else of a network.

Run as `python -I -S -c <this file's text> SOCKET PROGRAM ARGUMENTS...`: listens on the sandbox's own loopback, names
that address in the proxy variables of the program's environment, and carries bytes between the two. The list of hosts
is enforced outside (`pipeline.lean.sandbox.network`). Standard library only; exits as the program does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_CHUNK_BYTES = 65536


def main(arguments: list[str]) -> int:
    path, *command = arguments
    # It goes to the program too, whose end we wait for. A handler, since the program would inherit an ignored signal.
    signal.signal(signal.SIGTERM, lambda *_: None)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
    threading.Thread(target=_serve, args=(listener, path), daemon=True).start()
    environment = {**os.environ, **dict.fromkeys(VARIABLES, proxy)}
    status = subprocess.run(command, env=environment, check=False).returncode
    return status if status >= 0 else 128 - status


def _serve(listener: socket.socket, path: str) -> None:
    while True:
        client, _ = listener.accept()
        proxy = socket.socket(socket.AF_UNIX)
        try:
            proxy.connect(path)
        except OSError as error:
            sys.stderr.write(f"forwarder: {path}: {error}\n")
            client.close()
            proxy.close()
            continue
        for source, target in ((client, proxy), (proxy, client)):
            threading.Thread(target=_carry, args=(source, target), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
