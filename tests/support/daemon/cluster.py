"""Clusters on this machine: a launcher that is a script, and Ray with a head without CPUs, and nodes that have some.

deployment.write(repos=[…], extra=launcher_settings(tmp_path))

with Cluster(tmp_path, nodes=2) as cluster:
    deployment.write(repos=[…], extra=cluster.settings())
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

import psutil

NO_RAY = "" if importlib.util.find_spec("ray") else "Ray is not installed: pip install 'everlean[ray]'"

_START_S = 120.0


def launcher_settings(folder: Path, *, gpus: int = 1, lease_s: float = 8.0) -> str:
    """Write a launcher that runs its command here, with nothing of the environment; return the section of config.toml.

    It says on standard error what it was asked for.
    """
    launcher = folder / "launcher"
    launcher.write_text(
        '#!/bin/sh\necho "asked for $1" >&2; shift; exec env -i PATH="$PATH" "$@"\n', encoding="utf-8"
    )
    launcher.chmod(0o755)
    words = json.dumps([str(launcher), "gpus={gpus} memory={memory} {kind} {job}"])
    return f'[engine]\nlaunch = {words}\ngpus = {gpus}\nlease = "{lease_s:g}s"\n'


class Cluster:
    """Starts with the block and ends with it.

    Args:
        slots: the CPUs of each node.
        gpus: the GPUs that the first node says it has.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        slots: int = 3,
        gpus: int = 1,
        lease_s: float = 8.0,
    ) -> None:
        self.folder = folder
        self._gpus = gpus
        self.lease_s = lease_s
        self.token_file = folder / "token"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self._count, self._slots = nodes, slots
        # Ray's sockets have longer names than fit below a test's folder.
        self._temporary = Path(tempfile.mkdtemp(prefix="ray-"))
        self._port = _free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def settings(self) -> str:
        """Return the section of config.toml."""
        return (
            f'[engine]\nkind = "ray"\naddress = "{self.address}"\ntoken_file = "{self.token_file}"\n'
            f'lease = "{self.lease_s:g}s"\n'
        )

    def __enter__(self) -> Cluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.token_file.write_text(secrets.token_hex(32), encoding="ascii")
        try:
            self.start_head()
            for number in range(self._count):
                self.start_node(number)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_head(self) -> None:
        self.head = self._start(
            "head",
            "--head",
            f"--port={self._port}",
            "--include-dashboard=false",
            "--no-monitor",
            f"--temp-dir={self._temporary}",
        )
        deadline = time.monotonic() + 60
        while not _listens("127.0.0.1", self._port):
            assert self.head.poll() is None, "the head ended"
            assert time.monotonic() < deadline, "the head does not listen"
            time.sleep(0.1)

    def start_node(self, number: int) -> None:
        """Start a node beside the others, or anew one that was killed; return once Ray says that it runs.

        On a busy machine Ray gives up before it has started: then once more.
        """
        name = f"node-{number}"
        deadline = time.monotonic() + _START_S
        while True:
            for process in self.nodes[number : number + 1]:
                process.wait()
            process = self._start(
                name, f"--address={self.address}", cpus=self._slots, gpus=0 if number else self._gpus
            )
            self.nodes[number : number + 1] = [process]
            said = self.folder / f"{name}.log"
            while process.poll() is None:
                if b"Ray runtime started" in said.read_bytes():
                    return
                time.sleep(0.1)
            assert time.monotonic() < deadline, said.read_text(encoding="utf-8")

    def kill_node(self, number: int) -> None:
        """SIGKILL to every process of a node, but not to what has left them."""
        _kill(self.nodes[number])

    def processor_s(self) -> float:
        """Return the processor seconds of all its processes so far, with those that have ended."""
        found = 0.0
        for process in (self.head, *self.nodes):
            for one in _family(process.pid):
                with contextlib.suppress(psutil.Error):
                    found += sum(one.cpu_times()[:4])
        return found

    def close(self) -> None:
        for process in (*self.nodes, getattr(self, "head", None)):
            if process is not None:
                _kill(process)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _start(self, name: str, *arguments: str, cpus: int = 0, gpus: int = 0) -> subprocess.Popen[bytes]:
        environment = {
            # Tests see no GPU, and a node that is said to have one must not be told so.
            **{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"},
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "3000",
        }
        with (self.folder / f"{name}.log").open("wb") as output:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "ray.scripts.scripts",
                    "start",
                    "--block",
                    "--node-ip-address=127.0.0.1",
                    f"--num-cpus={cpus}",
                    f"--num-gpus={gpus}",
                    "--object-store-memory=80000000",
                    f"--memory={64 * 2**30}",
                    "--disable-usage-stats",
                    "--include-log-monitor=False",
                    *arguments,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )


def _family(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    except psutil.NoSuchProcess:
        return []


def _kill(process: subprocess.Popen[bytes]) -> None:
    # As a machine that loses its power: none sees the end of another.
    family = _family(process.pid)
    for what in (signal.SIGSTOP, signal.SIGKILL):
        for one in family:
            with contextlib.suppress(psutil.Error):
                one.send_signal(what)
    process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _listens(host: str, port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((host, port)) == 0
