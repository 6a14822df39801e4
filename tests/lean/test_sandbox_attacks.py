"""Hostile repositories: what a lakefile (in the build's sandbox) and an `#eval` (in the REPL's) try, one attack each.

The programs run in the very sandboxes that the build job and the REPL get: `LakeRunner` with `.lake` writable, and
`bubblewrap` with nothing writable. Each prints ALLOWED where its attack got through.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.lean.build.lake import Bounds, LakeRunner, Outcome
from pipeline.lean.build.trees import remove_tree
from pipeline.lean.sandbox import bounded, command
from pipeline.lean.sandbox.command import SandboxError, bubblewrap

pytestmark = pytest.mark.usefixtures("bubblewrap")
PYTHON = Path(sys.executable).resolve()
BASE = Path(sys.base_prefix).resolve()
GUARD = """
import os, sys
def attack():
{body}
try:
    attack()
except Exception as error:
    print("refused:", type(error).__name__, error)
else:
    print("ALLOWED")
"""


@dataclass(frozen=True)
class Place:
    """A machine in small: a home with a secret, a cache with a toolchain, packages and two worktrees."""

    root: Path

    @property
    def project(self) -> Path:
        return self.root / "cache/worktrees/mine"

    @property
    def packages(self) -> Path:
        return self.root / "cache/dependencies" / ("a" * 64) / "packages"

    def lakefile(self, body: str, **bounds: Any) -> Outcome:
        """Run Python as a lakefile would run in a build."""
        return self._run(body, (self.project / ".lake",), **bounds)

    def evaluated(self, body: str, **bounds: Any) -> Outcome:
        """Run Python as an `#eval` would run in the REPL's sandbox."""
        return self._run(body, (), **bounds)

    def _run(self, body: str, writable: tuple[Path, ...], **bounds: Any) -> Outcome:
        code = GUARD.format(body=textwrap.indent(textwrap.dedent(body).strip() or "pass", "    "))
        runner = LakeRunner(PYTHON, BASE, "bubblewrap", self.project, writable=writable)
        limits = Bounds(**{"timeout_s": 20.0, "watched": writable, **bounds})
        return runner.run("-I", "-S", "-c", code, bounds=limits)

    def both(self, body: str) -> list[str]:
        """Run it in both sandboxes and return what each said."""
        return [self.lakefile(body).output, self.evaluated(body).output]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    for folder in (place.project / ".lake", place.packages / "mathlib", tmp_path / "home/.ssh"):
        folder.mkdir(parents=True)
    (place.packages.parent / "dependency.json").write_text("{}", "utf-8")
    (place.packages / "mathlib/Mathlib.olean").write_text("compiled", "utf-8")
    (place.project / ".lake/packages").symlink_to(place.packages)
    (place.project / "Demo.lean").write_text("theorem", "utf-8")
    (tmp_path / "home/.ssh/id").write_text("s3cret", "utf-8")
    other = tmp_path / "cache/worktrees/other"
    other.mkdir()
    (other / "Private.lean").write_text("s3cret", "utf-8")
    return place


def refused(outputs: list[str]) -> None:
    for output in outputs:
        assert "refused: " in output, output
        assert "s3cret" not in output
        assert "ALLOWED" not in output


# --- secrets ------------------------------------------------------------------------------------------------


def test_a_secret_in_a_home_is_not_there(place: Place) -> None:
    refused(place.both(f"print(open({str(place.root / 'home/.ssh/id')!r}).read())"))


def test_the_passwords_of_the_machine_are_not_there(place: Place) -> None:
    refused(place.both("print(open('/etc/shadow').read(), open('/etc/passwd').read())"))


def test_the_environment_of_the_parent_is_not_seen(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", "s3cret")
    body = """
    import glob
    found = [open(name, "rb").read() for name in glob.glob("/proc/[0-9]*/environ")]
    print(found, dict(os.environ))
    """
    for output in place.both(body):
        assert "ALLOWED" in output
        assert "s3cret" not in output
        assert "TOKEN" not in output


def test_no_process_of_the_machine_is_seen(place: Place) -> None:
    body = """
    import glob
    names = [open(name).read().split(chr(0))[0] for name in glob.glob("/proc/[0-9]*/cmdline")]
    outside = [name for name in names if not name.endswith(("bwrap", sys.executable.rsplit("/")[-1]))]
    if outside or len(names) > 3: print("s3cret", names)
    else: raise PermissionError("only ourselves")
    """
    refused(place.both(body))


def test_no_descriptor_of_the_parent_is_open(place: Place) -> None:
    body = """
    open_ones = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]
    if open_ones == [0, 1, 2]: raise PermissionError(open_ones)
    print(open_ones)
    """
    with (place.root / "home/.ssh/id").open() as secret:
        os.set_inheritable(secret.fileno(), True)
        refused(place.both(body))


def test_the_worktrees_of_other_repositories_are_not_there(place: Place) -> None:
    other = place.root / "cache/worktrees/other/Private.lean"
    refused(place.both(f"print(open({str(other)!r}).read())"))
    refused(place.both(f"os.listdir({str(other.parent.parent)!r}).index('other')"))


def test_a_link_that_a_repository_made_opens_nothing(place: Place) -> None:
    (place.project / ".lake/packages").unlink()
    (place.project / ".lake/packages").symlink_to(place.root / "home")
    refused(place.both("print(os.listdir('.lake/packages'))"))


def test_a_link_in_place_of_a_writable_folder_is_refused(place: Place) -> None:
    """What an earlier run left must not lead the next one's mounts out of the project."""
    (place.project / "out").symlink_to(place.root / "home")
    with pytest.raises(SandboxError, match="link that leaves the project"):
        bubblewrap(["/bin/true"], project=place.project, writable=[place.project / "out"], environment={})


def test_the_home_folder_itself_is_never_bound(place: Place) -> None:
    with pytest.raises(SandboxError, match="home folder"):
        bubblewrap(["/bin/true"], project=place.project, readable=[Path.home()], environment={})


# --- writing ------------------------------------------------------------------------------------------------


def test_the_project_cannot_be_written_by_an_eval(place: Place) -> None:
    refused(
        [place.evaluated("open('Demo.lean', 'w')").output, place.evaluated("open('.lake/x', 'w')").output]
    )


def test_a_build_writes_its_own_folder_and_not_the_sources(place: Place) -> None:
    assert "ALLOWED" in place.lakefile("open('.lake/x', 'w').write('x')").output
    refused([place.lakefile("open('Demo.lean', 'w')").output, place.lakefile("open('new', 'w')").output])


def test_the_toolchain_and_the_packages_cannot_be_changed(place: Place) -> None:
    olean = place.packages / "mathlib/Mathlib.olean"
    refused(place.both(f"open({str(olean)!r}, 'w').write('forged')"))
    refused(place.both(f"open({str(BASE / 'bin' / 'lean')!r}, 'w')"))
    refused(place.both(f"os.rename({str(olean.parent)!r}, {str(olean.parent) + '2'!r})"))
    assert olean.read_text("utf-8") == "compiled"


@pytest.mark.parametrize(
    "where", ["/new", "/usr/new", "/etc/new", "/dev/new", "/home/new", "/proc/sys/kernel/core_pattern"]
)
def test_nothing_outside_can_be_written(place: Place, where: str) -> None:
    refused(place.both(f"open({where!r}, 'w').write('|/tmp/x')"))


def test_a_read_only_mount_cannot_be_made_writable_again(place: Place) -> None:
    body = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    remount, bind = 32, 4096
    for target in (b"/", os.getcwdb(), b"/proc", b"/usr"):
        if libc.mount(b"none", target, None, remount | bind, None) == 0: return
    if libc.umount2(b"/usr", 2) == 0: return
    raise OSError(ctypes.get_errno(), "mount")
    """
    refused(place.both(body))


def test_there_is_no_capability_and_no_way_to_new_ones(place: Place) -> None:
    body = """
    for pid in ("self", "1"):
        lines = open(f"/proc/{pid}/status").read().splitlines()
        status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
        if int(status["CapEff"], 16) or int(status["CapBnd"], 16) or status["NoNewPrivs"] != "1": return
    raise PermissionError("none")
    """
    refused(place.both(body))


def test_no_user_namespace_can_be_made_inside(place: Place) -> None:
    """In one of its own a program could mount memory file systems of any size."""
    body = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000) != 0: raise OSError(ctypes.get_errno(), "unshare")
    """
    refused(place.both(body))


# --- network ------------------------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_server_of_this_machine_cannot_be_reached(place: Place, listener: int) -> None:
    refused(place.both(f"import socket; socket.create_connection(('127.0.0.1', {listener}), 3)"))


def test_no_name_can_be_looked_up(place: Place) -> None:
    refused(
        place.both(
            "import socket; socket.getaddrinfo('localhost.localdomain', 80); socket.getaddrinfo('github.com', 443)"
        )
    )
    refused(
        place.both(
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('8.8.8.8', 53))"
        )
    )


@pytest.mark.parametrize("abstract", [False, True])
def test_the_daemons_socket_cannot_be_reached(place: Place, abstract: bool) -> None:
    name = f"\0everlean-test-{os.getpid()}" if abstract else str(place.root / "control.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        refused(place.both(f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"))


def test_the_terminal_cannot_be_typed_into(place: Place) -> None:
    refused(place.both("import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b'x')"))
    refused(place.both("open('/dev/tty')"))


NO_NAMESPACE = {
    "a socket to the machine's host": "import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "raw packets": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)",
    "keys in the kernel": "call({'x86_64': 248, 'aarch64': 217}, b'user', b'name', b'value', 5, -3)",
    "a ring of calls": "call({'x86_64': 425, 'aarch64': 425}, 8, ctypes.create_string_buffer(256))",
    "segments of memory": "call({'x86_64': 29, 'aarch64': 194}, 0, 1 << 20, 0o1600)",
    "queues of messages": "call({'x86_64': 68, 'aarch64': 186}, 0, 0o1600)",
    "semaphores": "call({'x86_64': 64, 'aarch64': 190}, 0, 100, 0o1600)",
    "named queues": "call({'x86_64': 240, 'aarch64': 180}, b'q', 0o102, 0o600, None)",
    "memory files": "os.memfd_create('x')",
    "memory files that nobody sees": "call({'x86_64': 447, 'aarch64': 447}, 0)",
    "another's memory": "call({'x86_64': 101, 'aarch64': 117}, 0, 0, 0, 0)",
    "a new namespace by clone": "call({'x86_64': 56, 'aarch64': 220}, 0x10000000 | 17, 0, 0, 0, 0)",
}
CALL = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(numbers, *arguments):
    if libc.syscall(numbers[platform.machine()], *arguments) < 0:
        number = ctypes.get_errno()
        if number not in (1, 97): raise SystemExit(f"not the filter: {number}")
        raise OSError(number, "refused")
"""


@pytest.mark.parametrize("attack", NO_NAMESPACE.values(), ids=NO_NAMESPACE.keys())
def test_what_no_namespace_separates_is_refused(place: Place, attack: str) -> None:
    refused(place.both(CALL + attack))


SET_ID = {
    "chmod": "open('.lake/x', 'w').close(); os.chmod('.lake/x', 0o4755)",
    "chmod of a group's": "open('.lake/x', 'w').close(); os.chmod('.lake/x', 0o2755)",
    "fchmod": "os.fchmod(os.open('.lake/x', os.O_CREAT | os.O_RDWR), 0o6755)",
    "fchmodat": "open('.lake/x', 'w').close(); call({'x86_64': 268, 'aarch64': 53}, -100, b'.lake/x', 0o4755)",
    "fchmodat2": "open('.lake/x', 'w').close(); call({'x86_64': 452, 'aarch64': 452}, -100, b'.lake/x', 0o4755, 0)",
    "open": "os.close(os.open('.lake/x', os.O_CREAT | os.O_WRONLY, 0o4755))",
    "a file without a name": "os.close(os.open('.lake', os.O_TMPFILE | os.O_WRONLY, 0o4755))",
    "openat2": "call({'x86_64': 437, 'aarch64': 437}, -100, b'.lake/x', struct.pack('QQQ', 0o101, 0o4755, 0), 24)",
    "mknod": "os.mknod('.lake/x', 0o104755)",
    "mkdir": "os.mkdir('.lake/d'); call({'x86_64': 258, 'aarch64': 34}, -100, b'.lake/e', 0o2755)",
}


@pytest.mark.parametrize("attack", SET_ID.values(), ids=SET_ID.keys())
def test_no_program_of_another_user_s_rights_is_left_behind(place: Place, attack: str) -> None:
    said = place.lakefile(
        f"import struct\nos.umask(0)\n{CALL.replace('(1, 97)', '(1, 38, 97)')}\n{attack}"
    ).output
    left = [path for path in (place.project / ".lake").rglob("*") if path.lstat().st_mode & 0o6000]
    assert ("refused" in said, left) == (True, []), said


def test_what_has_an_ordinary_mode_is_made_and_changed(place: Place) -> None:
    """A mode that was not given is whatever a register held: an open that makes nothing is let through with it."""
    body = f"""
    {CALL.replace(chr(10), chr(10) + "    ")}
    os.mkdir('.lake/d', 0o755)
    os.close(os.open('.lake/d/x', os.O_CREAT | os.O_WRONLY, 0o755))
    os.chmod('.lake/d/x', 0o1777)
    call({{'x86_64': 257, 'aarch64': 56}}, -100, b'.lake/d/x', 0, 0o6777)
    """
    assert "ALLOWED" in place.lakefile(body).output


def test_the_calls_of_another_architecture_are_not_a_way_round_the_filter() -> None:
    """The numbers differ there; a call in them is refused before its number is looked at."""
    other = command.program(command._MACHINES["aarch64"])
    own = command.program(command._MACHINES["x86_64"])
    words = [struct.unpack("<HBBI", code[at : at + 8]) for code in (own, other) for at in (8, 16)]

    assert [words[0][3], words[2][3]] == [0xC000003E, 0xC00000B7]
    assert [words[1], words[3]] == [(0x06, 0, 0, 0x00050001)] * 2
    assert {len(own) % 8, len(other) % 8} == {0}


def test_every_jump_of_the_filter_stays_inside() -> None:
    for machine in command._MACHINES.values():
        code = command.program(machine)
        lines = [struct.unpack("<HBBI", code[at : at + 8]) for at in range(0, len(code), 8)]
        for at, (operation, yes, no, _) in enumerate(lines):
            assert operation == 0x06 or at + 1 + max(yes, no) < len(lines)
        assert lines[-1] == (0x06, 0, 0, 0x7FFF0000)


# --- processes ----------------------------------------------------------------------------------------------

DAEMON = """
import signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
        for descriptor in (0, 1, 2): os.close(descriptor)
        os.execv("/bin/sleep", [{name!r}, "300"])
    os._exit(0)
os.wait()
while not any({name!r} in open(f"/proc/{{pid}}/cmdline").read() for pid in os.listdir("/proc") if pid.isdigit()): pass
{then}
"""


def _running(name: str) -> list[int]:
    every = psutil.process_iter(["cmdline"])
    return [process.pid for process in every if name in (process.info["cmdline"] or [])[:1]]


@pytest.mark.parametrize("then", ["pass", "time.sleep(300)"], ids=["it ends", "it is ended"])
def test_a_daemon_does_not_outlive_the_run(place: Place, then: str) -> None:
    name = f"everlean-orphan-{os.getpid()}"
    outcome = place.lakefile(DAEMON.format(name=name, then=then), timeout_s=1.0 if then != "pass" else 20.0)

    assert outcome.ending == ("exited" if then == "pass" else "timeout"), outcome
    assert _running(name) == []


def test_everything_dies_with_the_process_that_started_it(place: Place) -> None:
    argv = bubblewrap(
        ["/bin/sh", "-c", "echo up; exec sleep 300"],
        project=place.project,
        environment={"PATH": "/usr/bin:/bin"},
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({argv!r})"], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"up\n"
        inside = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
        parent.wait()
        gone, alive = psutil.wait_procs(inside, timeout=10)

    assert not alive
    assert gone


def test_no_other_process_can_be_signalled_or_traced(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            body = f"""
            import ctypes, signal
            libc = ctypes.CDLL(None, use_errno=True)
            for pid in ({victim.pid}, {os.getpid()}):
                try: os.kill(pid, signal.SIGKILL)
                except ProcessLookupError: pass
                else: return
                if libc.ptrace(16, pid, None, None) == 0: return
            raise ProcessLookupError("nobody there")
            """
            refused(place.both(body))
            assert victim.poll() is None
        finally:
            victim.kill()


def test_a_signal_to_everyone_reaches_only_the_sandbox(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            outcome = place.lakefile("import signal; os.kill(-1, signal.SIGKILL)")
            assert victim.poll() is None
            assert outcome.ending in ("exited", "signal")
        finally:
            victim.kill()


def test_what_a_killed_job_leaves_running_without_a_sandbox_carries_its_mark(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon finds it by the mark of the attempt, which everything that the job starts inherits."""
    monkeypatch.setenv("EVERLEAN_ATTEMPT", "/jobs/build-1")
    runner = LakeRunner(Path("/usr/bin/env"), None, "none", place.project)
    loose = runner.run(bounds=Bounds(20.0))
    boxed = runner.with_(sandbox="bubblewrap").run(bounds=Bounds(20.0))

    assert "EVERLEAN_ATTEMPT=/jobs/build-1\n" in loose.output
    assert "EVERLEAN" not in boxed.output


def test_no_zombie_is_left(place: Place) -> None:
    place.lakefile("import time; time.sleep(100)", timeout_s=0.3)
    children = [child for child in psutil.Process().children() if child.name() == "bwrap"]

    assert [child for child in children if child.status() == psutil.STATUS_ZOMBIE] == []


def test_an_exception_in_the_caller_ends_the_run(place: Place) -> None:
    """A job's SIGTERM arrives as SystemExit in the middle of the wait."""
    name = f"everlean-stopped-{os.getpid()}"
    runner = LakeRunner(Path("/bin/bash"), None, "bubblewrap", place.project)

    def stop(_line: str) -> None:
        raise SystemExit(143)

    with pytest.raises(SystemExit):
        runner.run("-c", f"echo up; exec -a {name} sleep 300", bounds=Bounds(20.0), on_line=stop)
    assert _running(name) == []


# --- bounds -------------------------------------------------------------------------------------------------

MIB = 2**20


def test_memory_of_one_process_is_bounded(place: Place) -> None:
    refused(
        [
            place.evaluated(f"bytearray({600 * MIB})", memory_bytes=200 * MIB).output.replace(
                "MemoryError", "x"
            )
        ]
    )


def test_its_limits_cannot_be_raised_again(place: Place) -> None:
    body = """
    import resource
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    """
    refused([place.evaluated(body, memory_bytes=200 * MIB).output])


MANY_PROCESSES = """
import time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(60 << 20)
        time.sleep(300)
time.sleep(300)
"""
SHARED_MEMORY = """
import mmap, time
shared = mmap.mmap(-1, 500 << 20)
for at in range(0, 500 << 20, 4096):
    shared[at] = 1
time.sleep(300)
"""
SOCKET_BUFFERS = """
import socket, time
for _ in range(4):
    if os.fork() == 0:
        break
kept = []
try:
    while len(kept) < 400:
        kept += socket.socketpair()
        kept[-2].setblocking(False)
        try:
            while True: kept[-2].send(bytes(65536))
        except BlockingIOError: pass
except OSError: pass
time.sleep(300)
"""
SOCKETS_IN_FLIGHT = """
import array, socket, time
post = socket.socketpair()
for _ in range(200):
    a, b = socket.socketpair()
    a.setblocking(False)
    try:
        while True: a.send(bytes(65536))
    except BlockingIOError: pass
    post[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [a.fileno(), b.fileno()]))])
    a.close(); b.close()
time.sleep(300)
"""
PAGE_TABLES = """
import mmap, time
kept = []
for _ in range(4):
    kept.append(mmap.mmap(-1, 50 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ))
    for at in range(0, 50 << 30, 2 << 20): kept[-1][at]
time.sleep(300)
"""


@pytest.mark.parametrize(
    "body",
    [MANY_PROCESSES, SHARED_MEMORY, SOCKET_BUFFERS, SOCKETS_IN_FLIGHT, PAGE_TABLES],
    ids=["many processes", "shared memory", "socket buffers", "sockets in flight", "page tables"],
)
def test_memory_of_the_whole_tree_is_bounded(place: Place, body: str) -> None:
    outcome = place.evaluated(body, memory_bytes=200 * MIB)

    assert outcome.ending == "memory", outcome
    assert outcome.peak_memory_bytes > 200 * MIB


MANY_FILES = """
import time
for i in range(200):
    open(f".lake/{i}", "wb").write(bytes(1 << 20))
time.sleep(300)
"""
ONE_FILE = """
with open(".lake/big", "wb", buffering=0) as big:
    while True:
        big.write(bytes(1 << 20))
"""
DELETED_FILES = """
import time
kept = []
for _ in range(60):
    kept.append(open(".lake/x", "wb", buffering=0))
    kept[-1].write(bytes(1 << 20))
    os.unlink(".lake/x")
time.sleep(300)
"""
CLOSED_FOLDER = """
import time
os.mkdir(".lake/d")
for i in range(60):
    open(f".lake/d/{i}", "wb").write(bytes(1 << 20))
os.chmod(".lake/d", 0)
time.sleep(300)
"""


EMPTY_FILES = """
import time
os.mkdir(".lake/d")
for i in range(6000): os.close(os.open(f".lake/d/{i}", os.O_CREAT | os.O_WRONLY))
time.sleep(300)
"""
FOLDERS_IN_FOLDERS = """
import time
os.chdir(".lake")
for _ in range(300):
    os.mkdir("d")
    os.chdir("d")
open("x", "wb").write(bytes(30 << 20))
"""


@pytest.mark.parametrize(
    "body",
    [MANY_FILES, ONE_FILE, DELETED_FILES, CLOSED_FOLDER, EMPTY_FILES, FOLDERS_IN_FOLDERS],
    ids=[
        "many files",
        "one file",
        "deleted files",
        "a closed folder",
        "empty files",
        "folders in folders",
    ],
)
def test_the_disk_is_bounded(place: Place, body: str) -> None:
    outcome = place.lakefile(body, disk_bytes=20 * MIB)
    sizes = subprocess.run(["du", "-s", "-k", str(place.project / ".lake")], capture_output=True, check=False)
    remove_tree(place.project / ".lake")

    assert outcome.ending == "disk" or "File too large" in outcome.output, outcome
    assert int(sizes.stdout.split()[0]) < 400 * 1024
    assert not (place.project / ".lake").exists()


def test_without_a_word_on_folders_what_may_be_written_is_watched(place: Place) -> None:
    assert place.lakefile(MANY_FILES, disk_bytes=20 * MIB, watched=()).ending == "disk"


def test_memory_is_seen_however_long_it_takes_to_look_through_the_folders(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(_folders: object) -> int:
        time.sleep(1.0)  # at one part in twenty of the time, the next look would be in twenty seconds
        return 0

    monkeypatch.setattr(bounded, "taken_below", slow)
    monkeypatch.setattr(bounded, "_LONGEST_LOOK_S", 60.0)
    outcome = place.lakefile(
        f"import time\ntime.sleep(0.6)\n{MANY_PROCESSES}", memory_bytes=200 * MIB, disk_bytes=20 * MIB
    )

    assert outcome.ending == "memory"
    assert outcome.seconds < 15


@pytest.mark.parametrize("where", ["/tmp", "/dev/shm", "/home/sandbox"])
def test_private_folders_cannot_be_filled_without_end(place: Place, where: str) -> None:
    body = f"""
    with open("{where}/big", "wb") as big:
        for _ in range(300): big.write(bytes(1 << 20))
    """
    assert all("No space left" in output for output in place.both(body))


def test_a_fork_bomb_is_ended(place: Place) -> None:
    """By the kernel, or as root, whom the kernel does not count, by the watch."""
    body = """
    import time
    while True:
        try:
            if os.fork() == 0: time.sleep(300)
        except BlockingIOError:
            os._exit(11)
    """
    outcome = place.evaluated(body, processes=60)

    assert outcome.ending == "processes" or outcome.status == 11, outcome


def test_output_without_end_is_kept_at_both_ends_only(place: Place) -> None:
    body = """
    print("first")
    for _ in range(200): print("x" * 100_000)
    print("last")
    """
    outcome = place.evaluated(body)

    assert outcome.ok
    assert outcome.output.startswith("first")
    assert outcome.output.rstrip().endswith("ALLOWED")
    assert len(outcome.output) < 100_000
    assert outcome.left_out_bytes > 19_000_000


def test_a_run_is_ended_at_its_time_whatever_it_ignores(place: Place) -> None:
    started = time.monotonic()
    body = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(1)"
    outcome = place.evaluated(body, timeout_s=0.5)

    assert outcome.ending == "timeout"
    assert time.monotonic() - started < 15


def test_a_signal_is_told_from_an_exit_status(place: Place) -> None:
    died = place.evaluated("import signal; os.kill(os.getpid(), signal.SIGSEGV)")
    left = place.evaluated("os._exit(7)")

    assert (died.ending, died.signal) == ("signal", 11)
    assert (left.ending, left.status) == ("exited", 7)


def test_a_program_that_is_not_there_is_an_outcome(place: Place) -> None:
    runner = LakeRunner(Path("/nonexistent/lake"), None, "none", place.project)
    outcome = runner.run("build", bounds=Bounds(5.0))

    assert outcome.ending in ("exited", "not_started")
    assert not outcome.ok
    assert "/nonexistent/lake" in outcome.output


def test_without_a_sandbox_the_limits_and_the_listed_environment_stay(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", "s3cret")
    name = f"everlean-loose-{os.getpid()}"
    code = f"import os\nprint(sorted(os.environ))\n{DAEMON.format(name=name, then='bytearray(2 << 30)')}"
    runner = LakeRunner(PYTHON, BASE, "none", place.project)
    outcome = runner.run("-I", "-c", code, bounds=Bounds(60.0, memory_bytes=300 * MIB))

    assert outcome.ending == "memory"
    assert "TOKEN" not in outcome.output
    assert _running(name) == []


def test_runs_of_several_threads_do_not_end_each_other(place: Place) -> None:
    results: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda: results.append(place.evaluated("print('well')"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [outcome.ok for outcome in results] == [True] * 4
