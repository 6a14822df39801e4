"""Run a program within bounds, to a certain end: output kept at both ends, one of seven outcomes, no process left.

The program runs in a session of its own with no input; standard output and error are read as one stream. While it
runs, its whole tree is sampled: memory (RssAnon, RssShmem, page tables, open memory files, and in a sandbox the
greatest content of its sockets; pages shared by fork count twice), number of processes, growth of the watched folders
with files deleted there and still open. The interval follows the cost of a look, so that the watch over a large folder
does not eat a core. So a bound can be passed for a moment before it bites.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import selectors
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

import psutil

# ---- usage of a process tree


_SMALLEST_FILE_BYTES = 4096
"""The least count of a folder's entry: empty files take no block, and yet a disk runs out of them."""
_DEEPEST = 200
"""Levels of folders; a deeper program would hide its files, or break the walk through them."""


@dataclass(frozen=True, slots=True)
class Tree:
    memory_bytes: int
    processes: int
    deleted_bytes: int


def below(pid: int) -> list[int]:
    """Return the descendants of a process; this reads every process of the machine."""
    with contextlib.suppress(psutil.Error):
        return [process.pid for process in psutil.Process(pid).children(recursive=True)]
    return []


def look_at(processes: Sequence[int], devices: frozenset[int], *, most: int | None = None) -> Tree:
    """Return the usage of a tree's processes.

    Files deleted and still open are seen through their descriptors: on `devices` they are disk, memory files (memfd)
    are memory. Beyond `most` processes, only their number counts: they may multiply faster than one can look.
    """
    memory = disk = 0
    seen: set[tuple[int, int]] = set()
    if most is not None and len(processes) > most:
        return Tree(0, len(processes), 0)
    for process in processes:
        memory += _own_memory(process)
        for name, stat in _deleted_files(process):
            if (stat.st_dev, stat.st_ino) in seen:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            if name.startswith("/memfd:"):
                memory += 512 * stat.st_blocks
            elif stat.st_dev in devices:
                disk += 512 * stat.st_blocks
    return Tree(memory + _held_by_sockets(processes), len(processes), disk)


_FREE_SOCKETS = 64
"""Lake, git and curl have fewer at the same time, with little in them."""
_OWN_NETWORK = Path("/proc/self/ns/net")
_SOCKETS = re.compile(rb"^sockets: used (\d+)", re.MULTILINE)


@functools.cache
def _socket_bytes() -> int:
    """Return the most bytes sent and not received that one socket can be made to hold."""
    with contextlib.suppress(OSError, ValueError):
        return 2 * int(Path("/proc/sys/net/core/wmem_max").read_bytes())
    return 2 * 212_992


def _held_by_sockets(processes: Sequence[int]) -> int:
    """Return the greatest content of the sockets in a sandbox's own network.

    No process shows a socket's buffer, nor a socket itself in flight. The network counts both.
    """
    for process in reversed(processes):
        with contextlib.suppress(OSError):
            network = Path(f"/proc/{process}/ns/net")
            if network.readlink() == _OWN_NETWORK.readlink():
                continue
            used = _SOCKETS.search(Path(f"/proc/{process}/net/sockstat").read_bytes())
            return max(0, int(used[1]) - _FREE_SOCKETS) * _socket_bytes() if used else 0
    return 0


def _deleted_files(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                name = os.readlink(entry.path)  # noqa: PTH115 - the target is no path
                if name.endswith(" (deleted)"):
                    yield name, os.stat(entry.path)  # noqa: PTH116 - through the descriptor, not by name


_HELD = (b"RssAnon:", b"RssShmem:", b"VmPTE:")
"""The last are page tables: a look at each 2 MiB of a large empty mapping makes 4 KiB of them, and no page."""


def _own_memory(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in status.splitlines() if line.startswith(_HELD))


def taken_by(about: os.stat_result) -> int:
    """Return a file's or folder's count towards a bound of disk space."""
    return max(512 * about.st_blocks, _SMALLEST_FILE_BYTES)


def taken_below(folders: Sequence[Path]) -> int | None:
    """Return the size of the folders, links not followed, or None if one may not be looked into.

    Files that vanish meanwhile count as gone.
    """
    total = 0
    todo = [(str(folder), 0) for folder in folders]
    while todo:
        place, depth = todo.pop()
        if depth > _DEEPEST:
            return None
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        total += taken_by(entry.stat(follow_symlinks=False))
                        if entry.is_dir(follow_symlinks=False):
                            todo.append((entry.path, depth + 1))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # closed to us, or a path too long
            return None
    return total


HEAD_BYTES = 16 * 1024
TAIL_BYTES = 64 * 1024
LINE_BYTES = 8 * 1024
_CHUNK_BYTES = 64 * 1024
_SHORTEST_LOOK_S = 0.1
_LOOK_SHARE = 20.0
"""A look may take one part in this many of the time."""
_LONGEST_LOOK_S = 5.0
"""The longest pause: a program gains no more by making looks slow, with endless files or processes."""
_GONE_S = 10.0
_MARK = "EVERLEAN_RUN"
_ATTEMPT = "EVERLEAN_ATTEMPT"
"""By this the daemon finds the remains of a killed job; its value is a folder's name."""
_CHILD = re.compile(rb'"child-pid":\s*(\d+)\D')

Ending = Literal["exited", "signal", "timeout", "memory", "disk", "processes", "not_started"]
Compose = Callable[[int], Sequence[str]]
_OUT_OF_MEMORY = ("out of memory", "std::bad_alloc", "Cannot allocate memory", "MemoryError")
_OUT_OF_DISK = ("File too large", "No space left on device", "Disk quota exceeded")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a run; None is no limit.

    `memory_bytes` and `processes` are the whole tree's, `disk_bytes` is the growth of the folders `watched` together
    (hard links and sparse files by their blocks, each file and folder at least 4 KiB). At the time limit every process
    gets a SIGTERM, and `grace_s` to end; without any, and after it, SIGKILL.
    """

    timeout_s: float
    memory_bytes: int | None = None
    processes: int | None = None
    disk_bytes: int | None = None
    watched: tuple[Path, ...] = ()
    grace_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run.

    `ending` is `exited` (then `status` is the exit status), `signal` (then `signal`; bubblewrap passes a signal on as
    status 128 + n, which is read as one), `timeout`, `memory`, `disk`, `processes` (the bound it passed) or
    `not_started`. `output` is its head and its tail with the number of bytes left out between them.
    """

    ending: Ending
    status: int | None
    signal: int | None
    output: str
    left_out_bytes: int
    seconds: float
    peak_memory_bytes: int

    @property
    def ok(self) -> bool:
        return self.ending == "exited" and self.status == 0

    def explain(self, bounds: Bounds) -> str:
        """Describe the end for an error message."""
        if self.ending == "exited":
            return f"exit status {self.status}"
        if self.ending == "signal":
            return f"ended by signal {self.signal}"
        if self.ending == "timeout":
            return f"no end after {bounds.timeout_s:g} s"
        if self.ending == "not_started":
            return "could not be started"
        if self.ending == "memory":
            # Without a bound of its own it met its caller's, and said so.
            return f"more memory than {_mib(bounds.memory_bytes)}" if bounds.memory_bytes else "out of memory"
        if self.ending == "disk":
            return f"wrote more than {_mib(bounds.disk_bytes)}, or where it cannot be measured"
        return f"more than {bounds.processes} processes"

    def end(self, length: int = 2000) -> str:
        """Return the end of the output, cut at a line if possible."""
        text = self.output.rstrip()
        if len(text) <= length:
            return text
        cut = text[-length:]
        return cut.partition("\n")[2] or cut


class StoppedError(Exception):
    """The caller stopped the run; it is gone."""


def run_bounded(
    command: Sequence[str] | Compose,
    *,
    cwd: Path,
    bounds: Bounds,
    environment: Mapping[str, str] | None = None,
    stdin: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    stop: socket.socket | None = None,
) -> Outcome:
    """Run a command to its end, or to the first bound, and end all its processes.

    `command` is an argument list, or a function from a descriptor to the argument list of a bubblewrap that reports
    its child there (`info_fd`). `environment` is the whole of it, except for two marks added here. `stdin` is its input
    file; None: nothing. Blocks; when an exception passes through (a job's SIGTERM), everything is ended first. A signal
    reaches the main thread alone: a run in another thread stops when the other end of `stop` closes.

    Raises:
        StoppedError: `stop` has ended.
    """
    started = time.monotonic()
    with _Run(
        command,
        cwd=cwd,
        bounds=bounds,
        environment=environment or {},
        stdin=stdin,
        on_line=on_line,
        stop=stop,
    ) as run:
        if run.refusal is not None:
            return Outcome("not_started", None, None, run.refusal, 0, time.monotonic() - started, 0)
        broken = run.watch()
        if broken == "timeout" and bounds.grace_s:
            run.ask_to_end()
        status = run.finish()
    ending, code, number = _ending(broken, status, run.output)
    return Outcome(
        ending,
        code,
        number,
        run.output.text(),
        run.output.left_out,
        time.monotonic() - started,
        run.peak_memory,
    )


def _ending(
    broken: Ending | None, status: int, output: _BoundedOutput
) -> tuple[Ending, int | None, int | None]:
    if broken is not None:
        return broken, None, None
    number = -status if status < 0 else status - 128 if 128 < status <= 128 + signal.NSIG else 0
    if number == signal.SIGXFSZ:
        return "disk", None, number
    if status != 0:
        said = output.text()[-4096:]
        if any(words in said for words in _OUT_OF_MEMORY):
            return "memory", status if status > 0 else None, number or None
        if any(words in said for words in _OUT_OF_DISK):
            return "disk", status if status > 0 else None, number or None
    return ("signal", None, number) if number else ("exited", status, None)


class _BoundedOutput:
    """The head and the tail of a stream, and its lines one by one to a listener."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self.on_line = on_line
        self._head = bytearray()
        self._tail = bytearray()
        self._line = bytearray()
        self.left_out = 0

    def add(self, data: bytes) -> None:
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (over := len(self._tail) - TAIL_BYTES) > 0:
            del self._tail[:over]
            self.left_out += over
        if self.on_line is not None:
            *whole, rest = data.split(b"\n")
            for line in whole:
                self._line += line[: LINE_BYTES - len(self._line)]
                self.on_line(self._line.decode("utf-8", errors="replace"))
                self._line.clear()
            self._line += rest[: LINE_BYTES - len(self._line)]

    def end(self) -> None:
        """Give the listener the last line, unended."""
        if self.on_line is not None and self._line:
            self.on_line(self._line.decode("utf-8", errors="replace"))
            self._line.clear()

    def text(self) -> str:
        between = f"\n[… {self.left_out} bytes left out …]\n".encode() if self.left_out else b""
        return (bytes(self._head) + between + bytes(self._tail)).decode("utf-8", errors="replace")


class _Run:
    """One running program. As a context manager it leaves no process behind."""

    def __init__(
        self,
        command: Sequence[str] | Compose,
        *,
        cwd: Path,
        bounds: Bounds,
        environment: Mapping[str, str],
        stdin: Path | None,
        on_line: Callable[[str], None] | None,
        stop: socket.socket | None,
    ) -> None:
        self._stop = stop
        self._command = command
        self._stdin = stdin
        self._environment = environment
        self._cwd = cwd
        self._bounds = bounds
        self._mark = uuid.uuid4().hex
        self._sandboxed = callable(command)
        self._popen: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()
        self._descriptors: list[int] = []
        self._info = bytearray()
        self._init: int | None = None
        """A pidfd of the sandbox's first process: when it is gone, so is everything in the sandbox."""
        self._deadline = time.monotonic() + bounds.timeout_s
        self._before = 0
        self._open_bytes = 0
        """The size of files deleted and still open, at the last look."""
        self._devices: frozenset[int] = frozenset()
        self.output = _BoundedOutput(on_line)
        self.peak_memory = 0
        self.refusal: str | None = None

    def __enter__(self) -> _Run:
        if self._bounds.disk_bytes is not None:
            self._before = taken_below(self._bounds.watched) or 0
            self._devices = frozenset(folder.stat().st_dev for folder in self._bounds.watched)
        read, write = os.pipe()
        self._descriptors.append(read)
        try:
            argv = self._command(write) if callable(self._command) else self._command
            with (self._stdin or Path(os.devnull)).open("rb") as given:
                self._popen = subprocess.Popen(
                    argv,
                    cwd=self._cwd,
                    env={**_attempt(), **self._environment, _MARK: self._mark},
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(write,) if self._sandboxed else (),
                    start_new_session=True,
                )
        except OSError as error:
            self.refusal = f"{argv[0]}: cannot be started in {self._cwd}: {error}"
            self._close()
            return self
        except BaseException:
            self._close()
            raise
        finally:
            os.close(write)
        ended = os.pidfd_open(self._popen.pid)
        self._descriptors.append(ended)
        self._selector.register(ended, selectors.EVENT_READ, "ended")
        self._selector.register(self._stdout(), selectors.EVENT_READ, "output")
        if self._sandboxed:
            self._selector.register(read, selectors.EVENT_READ, "info")
        if self._stop is not None:
            self._selector.register(self._stop, selectors.EVENT_READ, "stop")
        os.set_blocking(self._stdout(), False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._popen is not None and self._popen.returncode is None:
                self.output.on_line = None  # a listener that raised gets no more lines
                self.finish()
        finally:
            self._close()

    def watch(self) -> Ending | None:
        """Read the output until the program ends (None) or passes a bound."""
        # Each at its own pace: a slow folder must not hide memory.
        due = {self._look_at_tree: 0.0, self._look_at_disk: 0.0}
        while True:
            for look, at in due.items():
                now = time.monotonic()
                if now >= self._deadline:
                    return "timeout"
                if now >= at:
                    if (passed := look()) is not None:
                        return passed
                    cost = time.monotonic() - now
                    pause = min(_LONGEST_LOOK_S, max(_SHORTEST_LOOK_S, _LOOK_SHARE * cost))
                    due[look] = time.monotonic() + pause
            next_at = min(self._deadline, *due.values())
            for key, _ in self._selector.select(max(0.0, next_at - time.monotonic())):
                if key.data == "ended":
                    return self._look_at_disk()
                if key.data == "stop":
                    raise StoppedError
                if key.data == "info":
                    self._note_init(key.fd)
                else:
                    self._read()

    def ask_to_end(self) -> None:
        """Send each process a SIGTERM, and watch the program until its grace is over.

        The sandbox's first process (bubblewrap), and bubblewrap outside of it, get none: they end with the rest.
        """
        assert self._popen is not None
        for pid in (*below(self._popen.pid), *(() if self._sandboxed else (self._popen.pid,))):
            with contextlib.suppress(psutil.Error):
                psutil.Process(pid).terminate()
        self._deadline = time.monotonic() + self._bounds.grace_s
        self.watch()

    def finish(self) -> int:
        """Kill the remaining processes, wait for their end, read the rest of the output; return the exit status."""
        popen = self._popen
        if popen is None:
            return 0
        if self._init is None and self._sandboxed:
            self._note_init(self._descriptors[0])
        # The leader is not reaped yet, so the number of its group is still its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
        status = popen.wait()
        if self._init is not None:
            with selectors.DefaultSelector() as gone:
                gone.register(self._init, selectors.EVENT_READ)
                gone.select(_GONE_S)
        elif not self._sandboxed:
            _kill_marked(self._mark)
        while self._read():
            pass
        self.output.end()
        return status

    def _stdout(self) -> int:
        if self._popen is None or self._popen.stdout is None:
            raise RuntimeError("started without a pipe")
        return self._popen.stdout.fileno()

    def _read(self) -> bool:
        """Read the available output; False if there is no more for now or for good."""
        try:
            data = os.read(self._stdout(), _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._stdout())
            return False
        self.output.add(data)
        return True

    def _note_init(self, descriptor: int) -> None:
        """Read bwrap's report: `{"child-pid": 1234, …}`; nothing if it ended before it made the sandbox."""
        os.set_blocking(descriptor, False)
        with contextlib.suppress(BlockingIOError):
            data = os.read(descriptor, _CHUNK_BYTES)
            self._info += data
            reported = _CHILD.search(self._info)
            if reported is not None and self._init is None:
                with contextlib.suppress(ProcessLookupError):
                    self._init = os.pidfd_open(int(reported[1]))
                    self._descriptors.append(self._init)
            if not data or reported is not None:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(descriptor)

    def _look_at_tree(self) -> Ending | None:
        bounds = self._bounds
        if self._popen is None:
            return None
        tree = look_at(below(self._popen.pid), self._devices, most=bounds.processes)
        self._open_bytes = tree.deleted_bytes
        self.peak_memory = max(self.peak_memory, tree.memory_bytes)
        if bounds.memory_bytes is not None and tree.memory_bytes > bounds.memory_bytes:
            return "memory"
        if bounds.processes is not None and tree.processes > bounds.processes:
            return "processes"
        if bounds.disk_bytes is not None and tree.deleted_bytes > bounds.disk_bytes:
            return "disk"
        return None

    def _look_at_disk(self) -> Ending | None:
        limit = self._bounds.disk_bytes
        if limit is None:
            return None
        taken = taken_below(self._bounds.watched)
        # A folder closed to us hides its size.
        return "disk" if taken is None or taken - self._before + self._open_bytes > limit else None

    def _close(self) -> None:
        self._selector.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        if self._popen is not None and self._popen.stdout is not None:
            self._popen.stdout.close()


def _attempt() -> dict[str, str]:
    return {name: os.environ[name] for name in (_ATTEMPT,) if name in os.environ}


def _kill_marked(mark: str) -> None:
    """Kill processes that left the group of a program without a sandbox; the mark in their environment tells them."""
    for _ in range(3):  # a process may fork between the look and the signal
        result = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and process.environ().get(_MARK) == mark:
                    process.kill()
                    result.append(process)
        if not result:
            return
        psutil.wait_procs(result, timeout=2)


def _mib(size: int | None) -> str:
    return f"{(size or 0) / 2**20:.0f} MiB"
