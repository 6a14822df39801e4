"""Secrets that are planted in every way in which one can come in, and looked for in everything that comes out.

The daemon is the real one, and its REPL answers from a script; what it starts is watched all the while. A canary is
looked for as it is, as a URL has it, in capitals, backwards, in hexadecimal, and in base64 (at each of the three places
at which it can begin there).
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import psutil
import pytest

from daemon.place.control_client import ControlError, request
from daemon.place.paths import Paths, paths_from_config
from store.log.blobs import cited
from tests.support.daemon.deployment import Deployment, LeanOfTests
from tests.support.daemon.github import GitHubServer
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import TOOLCHAIN

TOKEN = "canary-token/of+no_known:shape-0123456789"
MODEL_KEY = "canary-model-key-9876543210"
WEBHOOK = "canary-webhook-secret-5555555555"
OTHER = "canary-credential-of-somebody-else-777"
CANARIES = (TOKEN, MODEL_KEY, WEBHOOK, OTHER)
FILES = {
    "lean-toolchain": f"{TOOLCHAIN}\n",
    "Demo.lean": "theorem one (p : Prop) (h : p) : p := by\n  sorry\n",
}


def needles() -> list[bytes]:
    found = []
    for canary in CANARIES:
        found += [canary.encode(), quote(canary).encode(), quote(canary, safe="").encode()]
        found += [canary.upper().encode(), canary[::-1].encode(), canary.encode().hex().encode()]
        for at in range(3):
            # The first and the last letters also depend on what stands beside it.
            whole = base64.b64encode(b"x" * at + canary.encode())
            found += [whole[4:-4], whole.translate(bytes.maketrans(b"+/", b"-_"))[4:-4]]
    return found


NEEDLES = needles()


def held(data: bytes) -> bool:
    return any(needle in data for needle in NEEDLES)


def test_the_needles_find_what_they_are_to_find() -> None:
    for canary in CANARIES:
        basic = base64.b64encode(f"x-access-token:{canary}".encode())
        for hidden in (canary.encode(), b"..." + basic + b"...", quote(canary).encode(), canary.encode() * 2):
            assert held(hidden)
    assert not held(b"canary-token")


@dataclass
class Watched:
    """What every process that descends from the daemon showed to `ps` and in /proc, as long as it lived."""

    pid: int
    arguments: set[bytes] = field(default_factory=set)
    environments: dict[str, set[bytes]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        while not self.over.wait(0.02):
            for pid in descendants(self.pid):
                with contextlib.suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    name = line.split(b"\0")[0].decode("utf-8", "replace").rpartition("/")[2]
                    seen = Path(f"/proc/{pid}/environ").read_bytes()
                    self.arguments.add(line)
                    self.environments.setdefault(name, set()).add(seen)


def descendants(pid: int) -> Iterator[int]:
    """Read the kernel's own lists, which cost little: slow polling would miss short-lived children."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_bytes().split()):
                yield child
                yield from descendants(child)


@contextlib.contextmanager
def watched(pid: int) -> Iterator[Watched]:
    seen = Watched(pid)
    thread = threading.Thread(target=seen.look)
    thread.start()
    try:
        yield seen
    finally:
        seen.over.set()
        thread.join()


class Echo(http.server.BaseHTTPRequestHandler):
    """A forge and an endpoint that repeat in their errors what they were sent; of one repository the forge tells."""

    asked: ClassVar[list[bytes]] = []
    forge: ClassVar[str] = ""

    def do_GET(self) -> None:
        said = "\n".join(f"{name}: {value}" for name, value in self.headers.items())
        type(self).asked.append(said.encode())
        if "/remotes/demo" in self.path:
            self._pass_on()
            return
        secret = self.headers.get("Authorization", "none").split()[-1]
        forms = [
            secret,
            quote(secret),
            quote(secret, safe=""),
            secret.upper(),
            secret[::-1],
            secret.encode().hex(),
        ]
        before = ("x-access-token:", "Bearer ", "Authorization: Bearer ")
        forms += [base64.b64encode(f"{told}{secret}".encode()).decode() for told in before]
        body = json.dumps({"message": f"no good: {' '.join(forms)} {said}"}).encode()
        self.send_response(403)
        self.send_header("WWW-Authenticate", f'Basic realm="{TOKEN}"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def _pass_on(self) -> None:
        with urllib.request.urlopen(f"{self.forge}{self.path}") as answer:
            data = answer.read()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        pass


@pytest.fixture
def echo(remote: Remote) -> Iterator[str]:
    with GitHubServer() as forge, http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        forge.add("remotes/demo", remote.path)
        Echo.asked.clear()
        Echo.forge = forge.url
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@dataclass(frozen=True)
class Way:
    """How the secrets come in: the environment, `[github]` and the files that both name."""

    name: str
    environment: dict[str, str]
    github: str = ""


def ways(folder: Path) -> list[Way]:
    credentials, files = folder / "credentials", folder / "files"
    for place in (credentials, files):
        place.mkdir()
    names = {
        "github-token": TOKEN,
        "everlean-model-key": MODEL_KEY,
        "webhook-secret": WEBHOOK,
        "somebody": OTHER,
    }
    for place in (credentials, files):
        for name, secret in names.items():
            (place / name).write_text(f"{secret}\n", "ascii")
            (place / name).chmod(0o600)
    variables = {
        "EVERLEAN_GITHUB_TOKEN": TOKEN,
        "EVERLEAN_MODEL_KEY": MODEL_KEY,
        "EVERLEAN_WEBHOOK_SECRET": WEBHOOK,
        "SOMEBODY_ELSES_KEY": OTHER,
    }
    named = f'token_file = "{files}/github-token"\nwebhook_secret_file = "{files}/webhook-secret"\n'
    folder_of_systemd = {"CREDENTIALS_DIRECTORY": str(credentials)}
    return [
        Way("all at once", {**variables, **folder_of_systemd}, named),
        Way("variables", variables),
        Way("files", {"EVERLEAN_MODEL_KEY": MODEL_KEY}, named),
        Way("credentials", folder_of_systemd),
    ]


def settings(deployment: Deployment, remote: Remote, echo: str, way: Way) -> None:
    """A watchlist of one that works and two that fail, a forge and an endpoint that repeat headers in their errors."""
    extra = f"""{LeanOfTests.scripted(deployment.folder).settings}
[github]
api_url = "http://{echo}"
local_repositories = true
webhook_port = {free_port()}
{way.github}
[jobs]
max_attempts = 1
retry_base = "1h"
[prove]
rungs = [4]
seconds_per_sorry = "5s"
[prove.external]
base_url = "http://{echo}/v1"
model = "m"
usd_per_day = 1
usd_per_million_prompt = 0
usd_per_million_completion = 0
[train]
enabled = false
"""
    others = ["https://127.0.0.1:1/owner/name", f"https://{echo}/owner/other"]
    deployment.write(repos=[remote.path, *others], extra=extra, every="1s")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def run_and_crash(deployment: Deployment, remote: Remote, way: Way) -> Watched:
    """A daemon through polls that fail, jobs, a reload and a crash, and the next one's start over what that left."""
    with (
        deployment.daemon(environment=way.environment, forked_jobs=False) as process,
        watched(process.pid) as seen,
    ):
        deployment.wait_for(lambda: deployment.events("repository_failed"), what="the failing repositories")
        deployment.wait_for(lambda: asked_with(MODEL_KEY), what="the endpoint to be asked", seconds=60)
        deployment.wait_for(lambda: rung_4_is_over(deployment), what="its refusal to be recorded", seconds=60)
        process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGHUP)
        with contextlib.suppress(ControlError):
            request(house_paths(deployment), "POST", "/poll", {"repository": TOKEN})
        process.send_signal(signal.SIGSEGV)
        assert process.wait(timeout=20) == -signal.SIGSEGV
    with (
        deployment.daemon(environment=way.environment, forked_jobs=False) as process,
        watched(process.pid) as again,
    ):
        deployment.wait_for(lambda: len(deployment.events("daemon_started")) == 2, what="the second start")
        time.sleep(0.2)
        process.terminate()
        process.wait(timeout=20)
    seen.arguments |= again.arguments
    for name, environments in again.environments.items():
        seen.environments.setdefault(name, set()).update(environments)
    return seen


def asked_with(secret: str) -> bool:
    return any(secret.encode() in said for said in Echo.asked)


def rung_4_is_over(deployment: Deployment) -> bool:
    return any(
        str(event.data["job"]).startswith("prove")
        for event in deployment.events("job_failed", "job_succeeded")
    )


def house_paths(deployment: Deployment) -> Paths:
    return paths_from_config(deployment.config)


def written(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every byte below the folder, blobs of the log unpacked too."""
    import sqlite3

    from store.log import blobs

    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path), path.read_bytes()
        yield f"{path} (its name)", os.fsencode(path.name)
    log = folder / "events.db"
    if log.exists():
        with contextlib.closing(sqlite3.connect(f"file:{log}?mode=ro", uri=True)) as connection:
            for (data,) in connection.execute("SELECT data FROM events"):
                yield "an event", data.encode()
                assert isinstance(cited(data), frozenset)
            for sha, size, content in connection.execute("SELECT sha256, size_bytes, content FROM blobs"):
                yield f"blob {sha}", blobs.unpack(sha, size, content, where="test")


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "name",
    [
        "all at once",
        *(pytest.param(way, marks=pytest.mark.slow) for way in ("variables", "files", "credentials")),
    ],
)
def test_a_planted_secret_is_nowhere_but_where_it_was_planted(
    name: str, deployment: Deployment, remote: Remote, echo: str, tmp_path: Path
) -> None:
    (way,) = [way for way in ways(tmp_path) if way.name == name]
    settings(deployment, remote, echo, way)
    seen = run_and_crash(deployment, remote, way)
    for used in (f"Bearer {TOKEN}", f"Bearer {MODEL_KEY}"):
        assert asked_with(used), "it was used, so there was something to leak"
    found = [
        place
        for folder in (deployment.folder / "state", deployment.folder / "remotes")
        for place, data in written(folder)
        if held(data)
    ]
    assert found == []
    assert not held(deployment.log().encode()), "the daemon's log"
    assert not [line for line in seen.arguments if held(line)], "an argument list, as ps shows it"
    # git alone is given a token, for the one remote that it speaks to; no program of a repository runs in it.
    leaky = {
        program
        for program, environments in seen.environments.items()
        if not program.startswith("git") and any(held(environment) for environment in environments)
    }
    # A fork of the daemon is the daemon until it becomes what it was forked for.
    assert leaky - {"python", Path(sys.executable).name} == set()
    jobs = [
        environment
        for environments in seen.environments.values()
        for environment in environments
        if b"EVERLEAN_ATTEMPT=" in environment
    ]
    assert jobs, "jobs were seen while they ran"
    assert not [
        environment for environment in jobs if held(environment) or b"CREDENTIALS_DIRECTORY" in environment
    ]
    assert not list(deployment.folder.rglob("core*")), "a core dump"


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path / "deployment")


@pytest.fixture
def remote(deployment: Deployment) -> Remote:
    deployment.folder.mkdir()
    remote = deployment.remote("demo")
    remote.commit("first", FILES)
    return remote


def test_a_crashing_daemon_leaves_no_memory_behind(deployment: Deployment, remote: Remote) -> None:
    deployment.write(repos=[remote.path], extra=LeanOfTests.scripted(deployment.folder).settings)
    with deployment.daemon(environment={"EVERLEAN_GITHUB_TOKEN": TOKEN}, forked_jobs=False) as process:
        deployment.wait_for(lambda: deployment.events("job_started"), what="a job")
        for child in [
            process.pid,
            *(one.pid for one in psutil.Process(process.pid).children(recursive=True)),
        ]:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                limits = Path(f"/proc/{child}/limits").read_text("ascii")
                kept = Path(f"/proc/{child}/coredump_filter").read_text("ascii")
                (core,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
                assert core.split()[4:6] == ["0", "0"]
                assert int(kept or "0", 16) == 0, "what a crash handler is given of its memory"
        os.kill(process.pid, signal.SIGABRT)
        _, status = os.waitpid(process.pid, 0)
        process.returncode = -signal.SIGABRT
    assert os.WTERMSIG(status) == signal.SIGABRT
    assert not os.WCOREDUMP(status)


def test_a_process_without_the_limits_would_leave_its_memory(tmp_path: Path) -> None:
    """So that the two tests above say something."""
    if Path("/proc/sys/kernel/core_pattern").read_text("ascii").startswith("|"):
        pytest.skip("cores go to a program on this machine (core_pattern)")
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("no process here may dump core")
    program = f"import os, resource; x = {TOKEN!r}; resource.setrlimit(4, (resource.getrlimit(4)[1],) * 2); os.abort()"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=tmp_path, check=False, capture_output=True
    )
    cores = list(tmp_path.glob("core*"))
    assert done.returncode == -signal.SIGABRT
    assert any(TOKEN.encode() in core.read_bytes() for core in cores)
