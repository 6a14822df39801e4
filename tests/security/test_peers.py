"""Whose the control socket is: the kernel says who asks, and another user is refused, whatever the file's mode."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.http.control import ControlServer, SocketInUseError
from daemon.place.control_client import ControlError, NotPermittedError, request
from daemon.place.paths import Paths
from daemon.place.peers import Doorkeeper, Peer
from store.documents.problems import Problem

STRANGER, THEIR_GROUP = 61234, 61235
ASK = """
import json, os, sys
uid, gid, groups, folder, calls = json.loads(sys.argv[1])
from daemon.place.control_client import ControlError, NotPermittedError, request
from daemon.place.paths import Paths
from pathlib import Path
os.setgroups(groups); os.setgid(gid); os.setuid(uid)
paths = Paths(*[Path(folder)] * 3)
for method, route in calls:
    try:
        status, answer = request(paths, method, route, None if method == "GET" else {})
    except NotPermittedError as error:
        print(method, "refused:", error)
    except ControlError as error:
        print(method, "error:", error)
    else:
        print(method, status)
"""


async def no_problems() -> list[Problem]:
    return []


class Daemon:
    """What is behind the socket: it counts what it was made to do."""

    def __init__(self) -> None:
        self.polled = 0

    @property
    def parts(self) -> Any:
        """The parts that the asked routes call; the others are taken hold of and not called."""
        nothing = SimpleNamespace(text=None, now=None)
        return SimpleNamespace(
            living=SimpleNamespace(problems=no_problems),
            polls=self,
            store=SimpleNamespace(room=SimpleNamespace(problem=""), ask=None),
            claims=None,
            metrics=nothing,
            page=nothing,
            desk=None,
        )

    def poll_now(self, repository: str | None) -> list[str]:
        self.polled += 1
        return []


@pytest.fixture
def paths() -> Iterator[Paths]:
    """A folder that every user may go through: that alone must not let them in."""
    folder = Path(tempfile.mkdtemp(prefix="everlean-peers-"))
    folder.chmod(0o755)
    yield Paths(folder, folder, folder)
    shutil.rmtree(folder)


def served(
    paths: Paths, ask: Callable[[Daemon], str], *, control_group: str = "", mode: int | None = None
) -> str:
    """Have the real server listen while `ask` runs in a thread; return what it returns."""

    async def serve() -> str:
        daemon = Daemon()
        server = await ControlServer.start(paths.socket, daemon.parts, control_group=control_group)
        try:
            if mode is not None:
                paths.socket.chmod(mode)
            return await asyncio.to_thread(ask, daemon)
        finally:
            await server.stop()

    return asyncio.run(serve())


def as_user(paths: Paths, uid: int, gid: int, *groups: int) -> Callable[[Daemon], str]:
    """Ask as another user: GET /health and POST /poll. Return what each said, and how often it was done."""

    def ask(daemon: Daemon) -> str:
        given = [uid, gid, list(groups), str(paths.runtime), [["GET", "/health"], ["POST", "/poll"]]]
        done = subprocess.run(
            [sys.executable, "-c", ASK, json.dumps(given)],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).resolve().parents[2],
            timeout=30,
        )
        return f"{done.stdout}{done.stderr}did {daemon.polled}"

    return ask


def test_the_daemon_s_own_user_reads_and_acts(paths: Paths) -> None:
    def ask(daemon: Daemon) -> str:
        return (
            f"{request(paths, 'GET', '/health')[0]} {request(paths, 'POST', '/poll', {})[0]} {daemon.polled}"
        )

    assert served(paths, ask) == "200 202 1"


@pytest.mark.usefixtures("as_root")
def test_another_user_does_not_get_through_the_socket_s_mode(paths: Paths) -> None:
    said = served(paths, as_user(paths, STRANGER, THEIR_GROUP))
    assert "GET refused" in said
    assert "permission denied" in said
    assert "did 0" in said


@pytest.mark.usefixtures("as_root")
def test_another_user_is_refused_also_where_the_mode_lets_everyone_in(paths: Paths) -> None:
    said = served(paths, as_user(paths, STRANGER, THEIR_GROUP), mode=0o666)
    assert f"GET refused: {paths.socket}: user {STRANGER} may not use this socket" in said
    assert f"POST refused: {paths.socket}: user {STRANGER} may not act through this socket" in said
    assert "control_group" in said, "the remedy"
    assert said.endswith("did 0")


@pytest.mark.usefixtures("as_root")
def test_a_member_of_the_socket_s_group_reads_and_does_not_act(paths: Paths) -> None:
    said = served(paths, as_user(paths, STRANGER, THEIR_GROUP, os.getegid()))
    assert "GET 200\n" in said
    assert "POST refused" in said
    assert said.endswith("did 0")


@pytest.mark.usefixtures("as_root")
def test_a_member_of_the_control_group_acts(paths: Paths) -> None:
    other = next(group for group in grp.getgrall() if group.gr_gid not in (0, os.getegid(), 65534))
    asked = as_user(paths, STRANGER, THEIR_GROUP, other.gr_gid)
    assert served(paths, asked, control_group=other.gr_name) == "GET 200\nPOST 202\ndid 1"
    assert "refused" in served(paths, asked)


@pytest.mark.usefixtures("as_root")
async def test_a_reload_changes_who_may_act_and_a_group_that_cannot_be_had_changes_nothing(
    paths: Paths,
) -> None:
    other = next(group for group in grp.getgrall() if group.gr_gid not in (0, os.getegid(), 65534))
    daemon = Daemon()
    server = await ControlServer.start(paths.socket, daemon.parts)
    said = []
    ask = as_user(paths, STRANGER, THEIR_GROUP, other.gr_gid)
    try:
        await server.admit(other.gr_name)
        said.append(await asyncio.to_thread(ask, daemon))
        with pytest.raises(SocketInUseError, match="no group 'nobody-has-this'"):
            await server.admit("nobody-has-this")
        said.append(await asyncio.to_thread(ask, daemon))
        await server.admit("")
        said.append(await asyncio.to_thread(ask, daemon))
    finally:
        await server.stop()
    first, second, third = said
    assert first == "GET 200\nPOST 202\ndid 1"
    assert second == "GET 200\nPOST 202\ndid 2"
    assert "POST refused" in third


CROWD = """
import json, os, socket, sys, time
uid, gid, groups, path, many = json.loads(sys.argv[1])
os.setgroups(groups); os.setgid(gid); os.setuid(uid)
lines = []
for _ in range(many):
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    line.sendall(b"GET /status HTTP/1.1\\r\\nX-a")
    lines.append(line)
print("all there", flush=True)
sys.stdin.read()
"""


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.usefixtures("as_root")
def test_the_connections_of_others_leave_the_socket_open_to_root_and_to_the_daemon_s_user(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    """1,500 that say half a head and stay, by one who may only read."""

    def ask(daemon: Daemon) -> str:
        given = [STRANGER, THEIR_GROUP, [os.getegid()], str(paths.socket), 1500]
        command = [sys.executable, "-c", CROWD, json.dumps(given)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == "all there\n"
            said = [str(request(paths, "GET", "/health")[0]), str(descriptors() - before)]
            said.append(as_user(paths, STRANGER, THEIR_GROUP, os.getegid())(daemon).split("\n")[0])
            crowd.communicate()
        return " ".join(said)

    before = descriptors()
    health, more, same_user = served(paths, ask).split(" ", 2)
    assert health == "200"
    assert int(more) < 80, "64 of that user, and the test's own few"
    assert same_user == "GET 200", "the newest takes the place of the one that has said nothing the longest"
    assert len([record for record in caplog.records if "more connections" in record.getMessage()]) <= 1


async def test_what_another_daemon_refuses_is_told_with_the_remedy(paths: Paths) -> None:
    """Without a second user: the doorkeeper takes this process for one."""
    if os.geteuid() == 0:
        pytest.skip("root may always act; run as another user to see it")
    server = await ControlServer.start(paths.socket, Daemon().parts)
    server._guarded.keeper = Doorkeeper(owner=STRANGER, group=THEIR_GROUP)
    try:
        with pytest.raises(NotPermittedError, match="may not act through this socket") as caught:
            await asyncio.to_thread(request, paths, "POST", "/poll", {})
        assert isinstance(caught.value, ControlError)
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("peer", "reads", "acts"),
    [
        (Peer(1, 0, frozenset({0})), True, True),
        (Peer(1, 900, frozenset({900})), True, True),
        (Peer(1, 1000, frozenset({1000, 900})), True, False),
        (Peer(1, 1000, frozenset({1000, 77})), True, True),
        (Peer(1, 1000, frozenset({1000})), False, False),
        # A user namespace shows every unmapped user as the same overflow id, which is refused.
        (Peer(1, 65534, frozenset({65534})), False, False),
    ],
    ids=["root", "the owner", "a member", "a controller", "a stranger", "an unmapped one"],
)
def test_who_may_what(peer: Peer, reads: bool, acts: bool) -> None:
    keeper = Doorkeeper(owner=900, group=900, control_group=77)
    assert (keeper.refusal(peer, acts=False) is None, keeper.refusal(peer, acts=True) is None) == (
        reads,
        acts,
    )


def test_a_group_that_a_user_namespace_does_not_know_is_no_control_group() -> None:
    keeper = Doorkeeper(owner=900, group=65534, control_group=65534)
    assert keeper.refusal(Peer(1, 1000, frozenset({65534})), acts=False) is not None
