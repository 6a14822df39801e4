"""A Ray cluster on this machine: a head without slots, and nodes of which each has slots and a folder of its own.

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
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

from pipeline.jobs.child import MARK

NO_RAY = "" if importlib.util.find_spec("ray") else "Ray is not installed: pip install 'everlean[ray]'"

_START_S = 120.0


class Link:
    """A pair of virtual network cards, one of them in a network namespace of its own; there with the block.

    Only root can make one, with `ip` of iproute2.

    Raises:
        CannotLinkError: here it cannot be made.
    """

    here, there = "10.251.77.1", "10.251.77.2"

    def __init__(self) -> None:
        self._name = f"everlean-{os.getpid()}"
        self._card, self._other = f"un{os.getpid()}a", f"un{os.getpid()}b"

    @property
    def command(self) -> tuple[str, ...]:
        """The prefix of a command that is to run at the other end."""
        return "ip", "netns", "exec", self._name

    def __enter__(self) -> Link:
        there = ("-n", self._name)
        try:
            _ip("netns", "add", self._name)
            _ip("link", "add", self._card, "type", "veth", "peer", "name", self._other, "netns", self._name)
            _ip("addr", "add", f"{self.here}/30", "dev", self._card)
            _ip(*there, "addr", "add", f"{self.there}/30", "dev", self._other)
            _ip(*there, "link", "set", self._other, "up")
            _ip(*there, "link", "set", "lo", "up")
            self.mend()
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__(None, None, None)
            raise CannotLinkError(str(error)) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            _ip("netns", "del", self._name)  # the cards go with it

    def cut(self) -> None:
        """Let nothing through, in neither direction; connections stay open at both ends."""
        _ip("link", "set", self._card, "down")

    def mend(self) -> None:
        """Let everything through again."""
        _ip("link", "set", self._card, "up")


class CannotLinkError(Exception):
    """A link cannot be made here."""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Cluster:
    """Starts with the block and ends with it.

    Args:
        environment: more of the environment of the nodes that are started; may be changed.
        link: the first node is at its other end.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        slots: int = 3,
        lease_s: float = 10.0,
        environment: Mapping[str, str] | None = None,
        link: Link | None = None,
    ) -> None:
        self.folder = folder
        self.link = link
        self._host = "127.0.0.1" if link is None else link.here
        self.environment = dict(environment or {})
        self.lease_s = lease_s
        self.token_file = folder / "token"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self._count, self._slots = nodes, slots
        # Ray's sockets have longer names than fit below a test's folder.
        self._temporary = Path(tempfile.mkdtemp(prefix="ray-"))
        self._port = _free_port()

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    def settings(self) -> str:
        """Return the section of config.toml."""
        return (
            f'[engine]\nkind = "ray"\naddress = "{self.address}"\ntoken_file = "{self.token_file}"\n'
            f'lease = "{self.lease_s:g}s"\n'
        )

    def node_folder(self, number: int) -> Path:
        """Return the folder that a node works in."""
        return self.folder / f"node-{number}"

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
        while not _listens(self._host, self._port):
            assert self.head.poll() is None, "the head ended"
            assert time.monotonic() < deadline, "the head does not listen"
            time.sleep(0.1)

    def start_node(self, number: int) -> None:
        """Start a node beside the others, or anew one that was killed; return once Ray says that it runs.

        On a busy machine Ray gives up before it has started: then once more.
        """
        resources = json.dumps({"everlean": self._slots})
        folder = self.node_folder(number)
        deadline = time.monotonic() + _START_S
        while True:
            for process in self.nodes[number : number + 1]:
                process.wait()
            process = self._start(
                folder.name,
                f"--address={self.address}",
                f"--resources={resources}",
                folder=folder,
                link=None if number else self.link,
            )
            self.nodes[number : number + 1] = [process]
            said = self.folder / f"{folder.name}.log"
            while process.poll() is None:
                if b"Ray runtime started" in said.read_bytes():
                    return
                time.sleep(0.1)
            assert time.monotonic() < deadline, said.read_text(encoding="utf-8")

    def signal_ray(self, number: int, what: signal.Signals) -> None:
        """Send a signal to all that Ray runs of a node, and to no job there."""
        for process in _family(self.nodes[number].pid):
            with contextlib.suppress(psutil.Error):
                if MARK not in process.environ():
                    process.send_signal(what)

    def kill_head(self) -> None:
        """SIGKILL to every process of the head."""
        _kill(self.head)

    def processor_s(self) -> float:
        """Return the processor seconds of all its processes so far, with those that have ended."""
        found = 0.0
        for process in (self.head, *self.nodes):
            for one in _family(process.pid):
                with contextlib.suppress(psutil.Error):
                    found += sum(one.cpu_times()[:4])
        return found

    def logs(self) -> str:
        """Return what its nodes said."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("node-*.log")))

    def environments(self) -> str:
        """Return the environments of all processes of the cluster, with those of the jobs there."""
        found = []
        for process in (self.head, *self.nodes):
            for one in _family(process.pid):
                with contextlib.suppress(psutil.Error):
                    found += [f"{name}={value}" for name, value in one.environ().items()]
        return "\n".join(found)

    def contents(self) -> str:
        """Return what lies in the folders of the cluster and of its nodes, the logs of Ray among it."""
        folders = (self.folder, self._temporary)
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        return "\n".join(path.read_bytes().decode(errors="replace") for path in files)

    def close(self) -> None:
        for process in (*self.nodes, getattr(self, "head", None)):
            if process is not None:
                _kill(process)
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _start(
        self, name: str, *arguments: str, folder: Path | None = None, link: Link | None = None
    ) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **self.environment,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "3000",
            "EVERLEAN_NODE_FOLDER": str(folder or self.folder / name),
        }
        with (self.folder / f"{name}.log").open("wb") as output:
            return subprocess.Popen(
                [
                    *(link.command if link else ()),
                    sys.executable,
                    "-m",
                    "ray.scripts.scripts",
                    "start",
                    "--block",
                    f"--node-ip-address={link.there if link else self._host}",
                    "--num-cpus=0",
                    "--num-gpus=0",
                    "--object-store-memory=80000000",
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
    for one in _family(process.pid):
        with contextlib.suppress(psutil.Error):
            one.kill()
    process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _listens(host: str, port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((host, port)) == 0
