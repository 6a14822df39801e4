"""The way out of a sandbox: named hosts pass through the proxy, nothing else does, and there is no way round it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipeline.lean.build.lake import Bounds, LakeRunner, Outcome
from pipeline.lean.sandbox.hosts import DEFAULT_HOSTS
from pipeline.lean.sandbox.network import Gateway, Refusal, Rules, forwarded

PYTHON = Path(sys.executable).resolve()


@pytest.fixture
def server() -> Iterator[int]:
    """A server that answers every connection with what it was sent, in capitals."""

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                while data := client.recv(65536):
                    client.sendall(data.upper())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def local(port: int, *hosts: str) -> Rules:
    return Rules(hosts or ("allowed.example",), ports=(port,), private_addresses=True)


async def to_loopback(_host: str, _port: int) -> Sequence[str]:
    return ("127.0.0.1",)


def ask(gateway: Gateway, request: str, *, then: bytes = b"") -> bytes:
    """Send a request to the proxy, then bytes once it has agreed; return all that came back."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(gateway.socket))
        client.sendall(f"{request}\r\nHost: x\r\n\r\n".encode())
        answer = client.recv(65536)
        if b" 200 " in answer:
            client.sendall(then)
            client.shutdown(socket.SHUT_WR)
        while data := client.recv(65536):
            answer += data
        return answer


def test_an_allowed_host_passes(server: int) -> None:
    with Gateway(local(server), resolver=to_loopback) as gateway:
        answer = ask(gateway, f"CONNECT allowed.example:{server} HTTP/1.1", then=b"hello")

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"HELLO")
    assert gateway.passed == (f"allowed.example:{server}",)
    assert gateway.refusals == ()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("evil.example:443", "not on the list"),
        ("allowed.example.evil.example:443", "not on the list"),
        ("notallowed.example:443", "not on the list"),
        ("allowed.example:22", "port 22"),
        ("allowed.example", "list"),
        ("127.0.0.1:443", "literal"),
        ("2130706433:443", "literal"),
        ("0x7f000001:443", "literal"),
        ("127.1:443", "literal"),
        ("[::1]:443", "literal"),
        ("allowed.example\x00.evil:443", "no host name"),
        ("user@allowed.example:443", "no host name"),
        ("allowed.example:443x", "port 0"),
        (f"{'a' * 300}:443", "list"),
    ],
)
def test_everything_else_is_refused_and_reported(target: str, reason: str) -> None:
    rules = Rules(("allowed.example", "*.pass.example"), private_addresses=True)
    with Gateway(rules, resolver=to_loopback) as gateway:
        answer = ask(gateway, f"CONNECT {target} HTTP/1.1")
        refusals = gateway.refusals

    assert b" 200 " not in answer
    assert len(refusals) == 1
    assert reason in refusals[0].reason or refusals[0].reason == "no host name"


def test_a_glob_allows_the_hosts_below_and_not_the_name_itself() -> None:
    rules = Rules(("*.pass.example",))

    assert rules.refuses("a.b.pass.example", 443) is None
    assert rules.refuses("A.PASS.example.", 443) is None
    assert rules.refuses("pass.example", 443) is not None
    assert rules.refuses("evilpass.example", 443) is not None


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.1.1",
        "172.16.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:ec2::254",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1%eth0",
        "fc00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "192.0.0.8",
        "fec0::1",
        "::7f00:1",
        "64:ff9b:1::7f00:1",
        "no address",
    ],
)
def test_a_name_that_leads_into_a_private_network_is_refused(address: str) -> None:
    """Rebinding: an allowed name whose owner points it at our own machines. One such address spoils all."""

    async def resolver(_host: str, _port: int) -> Sequence[str]:
        return ("140.82.112.3", address)

    with Gateway(Rules(("allowed.example",)), resolver=resolver) as gateway:
        answer = ask(gateway, "CONNECT allowed.example:443 HTTP/1.1")

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert "not a public address" in gateway.refusals[0].reason


def test_a_name_is_looked_up_once_for_a_connection(server: int) -> None:
    asked: list[str] = []

    async def resolver(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return ("127.0.0.1",) if len(asked) == 1 else ("10.0.0.1",)

    with Gateway(local(server), resolver=resolver) as gateway:
        assert ask(gateway, f"CONNECT allowed.example:{server} HTTP/1.1", then=b"x").endswith(b"X")
    assert asked == ["allowed.example"]


@pytest.mark.parametrize(
    "request_line", ["GET http://allowed.example/ HTTP/1.1", "POST / HTTP/1.1", "\x16\x03\x01"]
)
def test_nothing_but_a_tunnel_passes(request_line: str) -> None:
    with Gateway(Rules(("allowed.example",)), resolver=to_loopback) as gateway:
        assert b" 200 " not in ask(gateway, request_line)
        assert "only CONNECT passes" in gateway.refusals[0].reason


def test_the_same_refusal_is_reported_once() -> None:
    with Gateway(Rules(()), resolver=to_loopback) as gateway:
        for _ in range(3):
            ask(gateway, "CONNECT a.example:443 HTTP/1.1")

    assert gateway.refusals == (Refusal("a.example:443", "not on the list of hosts"),)


def test_a_head_without_end_is_not_read_for_ever() -> None:
    with Gateway(Rules(())) as gateway, socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(gateway.socket))
        try:
            for _ in range(100):
                client.sendall(b"CONNECT " + b"a" * 100_000)
            assert client.recv(100) == b""
        except (BrokenPipeError, ConnectionResetError):
            pass


def test_connections_that_say_nothing_do_not_use_up_descriptors() -> None:
    """Those beyond the limit are closed unread; the others go, and then there is room again."""
    before = open_sockets()
    with Gateway(Rules(())) as gateway:
        with ExitStack() as stack:
            silent = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(400)]
            for client in silent:
                client.connect(str(gateway.socket))
                client.settimeout(10)
            answers = [read_all(client) for client in silent[200:]]
            assert all(answer.startswith(b"HTTP/1.1 429 ") for answer in answers)
            # Both ends of a connection are ours here.
            assert open_sockets() - before < 400 + 200
        deadline = time.monotonic() + 10
        while b" 403 " not in (answer := ask_or_nothing(gateway)) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert b" 403 " in answer
    assert {refusal.reason for refusal in gateway.refusals} == {
        "more than 128 connections at once",
        "not on the list of hosts",
    }


def open_sockets() -> int:
    links = (link for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    return sum(str(link.readlink()).startswith("socket:") for link in links)


def read_all(client: socket.socket) -> bytes:
    """Read until the other end has closed, which it does a moment after its answer."""
    answer = b""
    while data := client.recv(1000):
        answer += data
    return answer


def ask_or_nothing(gateway: Gateway) -> bytes:
    try:
        return ask(gateway, "CONNECT a.example:443 HTTP/1.1")
    except (BrokenPipeError, ConnectionResetError):
        return b""


def test_what_is_reported_can_be_shown_on_a_terminal() -> None:
    with Gateway(Rules(())) as gateway:
        ask(gateway, "CONNECT \x1b]0;owned\x07\x9b31m:443 HTTP/1.1")
        ask(gateway, "\x1b[2J / HTTP/1.1")
        shown = "".join(refusal.target + refusal.reason for refusal in gateway.refusals)

    assert len(gateway.refusals) == 2
    assert shown.isprintable()
    assert shown.isascii()


def test_what_projects_need_is_on_the_list_as_shipped() -> None:
    rules = Rules(DEFAULT_HOSTS)

    for host in ("github.com", "objects.githubusercontent.com", "lakecache.blob.core.windows.net"):
        assert rules.refuses(host, 443) is None


# --- from inside a sandbox ------------------------------------------------------------------------------------

CLIENT = """
import os, socket, sys, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
def ask(target, text):
    with socket.create_connection((proxy.hostname, proxy.port), 10) as s:
        s.sendall(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode())
        answer = s.recv(65536)
        if b" 200 " in answer:
            s.sendall(text); s.shutdown(socket.SHUT_WR)
            while data := s.recv(65536): answer += data
        return answer
"""


def inside(tmp_path: Path, gateway: Gateway, code: str) -> Outcome:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    wrap, readable = forwarded(gateway.socket)
    base = Path(sys.base_prefix).resolve()
    runner = LakeRunner(PYTHON, base, "bubblewrap", project, readable=readable, wrap=wrap)
    return runner.run("-I", "-S", "-c", CLIENT + code, bounds=Bounds(20.0))


@pytest.mark.usefixtures("bubblewrap")
def test_a_program_in_the_sandbox_reaches_an_allowed_host_through_the_forwarder(
    tmp_path: Path, server: int
) -> None:
    with Gateway(local(server), resolver=to_loopback) as gateway:
        outcome = inside(tmp_path, gateway, f"print(ask('allowed.example:{server}', b'hello')[-5:])")

    assert outcome.ok, outcome
    assert outcome.output.strip() == "b'HELLO'"


@pytest.mark.usefixtures("bubblewrap")
def test_a_program_in_the_sandbox_reaches_nothing_else(tmp_path: Path, server: int) -> None:
    code = f"""
print(ask('evil.example:{server}', b'hello')[:12])
def refused(what):
    try: what()
    except OSError as error: print("refused", type(error).__name__)
    else: print("ALLOWED")
refused(lambda: socket.create_connection(("127.0.0.1", {server}), 3))
refused(lambda: socket.getaddrinfo("allowed.example", 443))
refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 53)))
print(sorted(os.listdir(os.path.dirname({str(tmp_path)!r}))))
"""
    with Gateway(local(server), resolver=to_loopback) as gateway:
        outcome = inside(tmp_path, gateway, code)

    assert "HTTP/1.1 403" in outcome.output, outcome
    assert outcome.output.count("refused") == 3
    assert "ALLOWED" not in outcome.output
    assert [refusal.target for refusal in gateway.refusals] == [f"evil.example:{server}"]


@pytest.mark.usefixtures("bubblewrap")
def test_the_forwarder_ends_as_the_program_does(tmp_path: Path) -> None:
    with Gateway(Rules(())) as gateway:
        left = inside(tmp_path, gateway, "sys.exit(7)")
        died = inside(tmp_path, gateway, "import signal; os.kill(os.getpid(), signal.SIGSEGV)")

    assert (left.ending, left.status) == ("exited", 7)
    assert (died.ending, died.signal) == ("signal", 11)


def test_closing_ends_what_is_open_and_removes_the_socket(server: int) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        with Gateway(local(server), resolver=to_loopback) as gateway:
            path = gateway.socket
            client.settimeout(10)
            client.connect(str(path))
            client.sendall(f"CONNECT allowed.example:{server} HTTP/1.1\r\n\r\n".encode())
            assert b" 200 " in client.recv(1000)
        assert client.recv(1000) == b""
    assert not path.parent.exists()


def test_what_a_killed_job_left_is_removed_by_the_next() -> None:
    program = (
        "import os, signal; from pipeline.lean.sandbox.network import Gateway, Rules\n"
        "gateway = Gateway(Rules(())).__enter__(); print(gateway.socket, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert left.exists()
    with Gateway(Rules(())):
        assert not left.parent.exists()
