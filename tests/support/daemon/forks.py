"""Processes for tests, forked from one that has loaded what they need and does nothing else.

process = server.program("print(1)", output=said, errors=said, environment=os.environ, folder=folder)
process = server.job(command, stderr=2, folder=folder, environment=environment)

`tests.support.daemon.warm` keeps such an interpreter, which has loaded the daemon, the command line and with them most
of what jobs need; `tests.support.programs` one that has what pytest has loaded. A program may fork once more, before it
has threads: from that one a daemon's jobs come, so that they are the daemon's children.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

PROGRAM = "from tests.support.daemon import forks; forks.main()"
ROOM = "x" * 8000
"""As an argument and as a variable of the interpreter: where a job's command line and environment are then seen."""
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
LAUNCH = ["-P", "-m", "pipeline.jobs.launch"]
"""How a daemon starts a job (`pipeline.jobs.child`)."""


class Adopted(subprocess.Popen[bytes]):
    """A Popen of a process that another one forked."""

    def __init__(self, pid: int, args: Sequence[str], stdout: IO[bytes] | None = None) -> None:
        self.args = args
        self.pid = pid
        self.returncode = None
        self.stdin = self.stderr = None
        self.stdout = stdout
        # What Popen keeps for poll(), wait(), communicate() and its own end.
        self._input = self.text_mode = None
        self._child_created = True
        self._waitpid_lock = threading.Lock()
        self._communication_started = False
        self._sigint_wait_secs = 0.25


@contextmanager
def _adopting() -> Iterator[None]:
    """Whatever loses its parent meanwhile below us becomes our child. No longer: orphans are init's business."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this kernel lets us adopt no process")
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@dataclass(frozen=True)
class Server:
    """A process that forks what it is asked for; each fork is our child."""

    asks: IO[bytes]
    answers: IO[bytes]
    has_room: bool = True
    """Whether it was started with `ROOM`, so that a forked job can overwrite its command line and environment."""

    def program(
        self,
        program: str,
        arguments: Sequence[str] = (),
        *,
        output: Path,
        errors: Path,
        environment: Mapping[str, str],
        folder: Path,
        stdin: Path = Path(os.devnull),
        modules: Sequence[str] = (),
        jobs: bool = False,
    ) -> Adopted:
        """Run Python text as `python -c` would.

        Args:
            program: what runs.
            arguments: `sys.argv[1:]`.
            output: what it says is appended here, and to `errors`.
            environment: the whole of it.
            folder: where it runs.
            stdin: what it reads.
            modules: are imported first, once for all forks.
            jobs: whether the jobs that it starts are forks, too.

        Raises:
            RuntimeError: none came; why is in the test's output.
        """
        output.touch()
        errors.touch()
        asked = {
            "program": program,
            "arguments": list(arguments),
            "input": str(stdin),
            "output": str(output),
            "errors": str(errors),
            "folder": str(folder),
            "environment": dict(environment),
            "modules": list(modules),
            "jobs": jobs,
        }
        if (pid := self._ask(asked)) is None:
            raise RuntimeError("no process was forked: the one that forks has ended")
        return Adopted(pid, ["python", "-c", program, *arguments])

    def job(
        self, command: Sequence[str], *, stderr: int, folder: Path | str, environment: Mapping[str, str]
    ) -> Adopted:
        """Start a job as the daemon does, by its command line; its standard output is a pipe.

        Raises:
            OSError: none came.
        """
        read, write = os.pipe()
        ours = f"/proc/{os.getpid()}/fd"
        asked = {
            "launch": list(command),
            "input": os.devnull,
            "output": f"{ours}/{write}",
            "errors": f"{ours}/{stderr}",
            "folder": str(folder),
            "environment": dict(environment),
            "modules": [],
            "umask": _umask(),
            "shown": self.has_room,
        }
        pid = self._ask(asked)
        os.close(write)
        if pid is None:
            os.close(read)
            raise OSError("no process was forked: see its standard error, or that of the interpreter")
        return Adopted(pid, command, os.fdopen(read, "rb"))

    def _ask(self, asked: dict[str, Any]) -> int | None:
        with _adopting():
            self.asks.write(json.dumps(asked).encode() + b"\n")
            self.asks.flush()
            answer = self.answers.readline()
        return int(answer) if answer.strip() else None


def main() -> None:
    """Load the daemon, then fork; each fork goes on from here as what it is asked to be."""
    import daemon.cli.app
    import daemon.process.run

    daemon.cli.app.build()
    serve(0, 1)


def serve(asked: int, answered: int) -> None:
    """Be a `Server`, by these two pipes. Returns in the forks alone, when they are done."""
    gc.freeze()  # what is loaded stays the forks' common memory: a collection would have each copy all of it
    _become(_forked(asked, answered))


def _forked(asked: int, answered: int) -> dict[str, Any]:
    """Fork for each line that is asked. Returns in the forks alone, with what is asked."""
    # Unbuffered: a fork would have what was read ahead.
    with os.fdopen(asked, "rb", buffering=0, closefd=False) as lines:
        while line := lines.readline():
            asks: dict[str, Any] = json.loads(line)
            for name in asks["modules"]:
                importlib.import_module(name)
            told, tell = os.pipe()
            # Fork twice and exit in between: the grandchild is then reparented to the process that asks.
            between = os.fork()
            if between == 0:
                between = os.getpid()
                if os.fork():
                    os._exit(0)
                while os.getppid() == between:
                    time.sleep(0.0005)
                return {**asks, "tell": tell}
            os.close(tell)
            os.waitpid(between, 0)
            os.write(answered, os.read(told, 20) + b"\n")
            os.close(told)
    os._exit(0)


def _become(asks: dict[str, Any]) -> None:
    """Be the program, or the job, that is asked for."""
    is_job = "launch" in asks
    if not is_job:
        # Before opening its output, which blocks if that is a named pipe.
        os.write(asks["tell"], str(os.getpid()).encode())
    os.environ.clear()
    os.environ.update(asks["environment"])
    time.tzset()
    os.chdir(asks["folder"])
    os.dup2(os.open(asks["input"], os.O_RDONLY), 0)
    for number, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(asks[name], os.O_WRONLY | os.O_APPEND), number)
    if is_job:
        os.setsid()  # before reporting the pid, whose group may be signalled from then on
        os.write(asks["tell"], str(os.getpid()).encode())
    os.closerange(3, 256)
    if is_job:
        os.umask(asks["umask"])
        _launch(asks["launch"], shown=asks["shown"])
        return
    if asks["jobs"]:
        _fork_jobs()
    sys.argv = ["-c", *asks["arguments"]]
    exec(compile(asks["program"], "<string>", "exec"), {"__name__": "__main__"})


def _fork_jobs() -> None:
    """Have the jobs that we are going to start forked, where they inherit nothing of ours."""
    import pipeline.jobs.child

    (asked, ask_it), (answer, answered) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(ask_it)
        os.close(answer)
        serve(asked, answered)
        sys.exit()
    os.close(asked)
    os.close(answered)
    child: Any = pipeline.jobs.child
    child.subprocess = with_forked_jobs(Server(os.fdopen(ask_it, "wb"), os.fdopen(answer, "rb")))


def with_forked_jobs(server: Server) -> SimpleNamespace:
    """Return `subprocess` for `pipeline.jobs.child`, in which jobs are forks.

    A job that inherits descriptors, or is started by another program than this interpreter, is started as it is.
    """

    def popen(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        is_job = list(words[:4]) == [sys.executable, *LAUNCH]
        if not is_job or options["pass_fds"]:
            return subprocess.Popen(words, **options)
        stderr = options["stderr"].fileno()
        return server.job(words, stderr=stderr, folder=options["cwd"], environment=options["env"])

    return SimpleNamespace(**{**vars(subprocess), "Popen": popen})


def _umask() -> int:
    """Return our umask; to ask the system for it would change it for a moment, for all threads."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("\nUmask:")[2].split()[0], 8)


def _launch(words: Sequence[str], *, shown: bool) -> None:
    """Be a job, and look like one that was started by this command line."""
    if shown:
        _show(words)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr] # PYTHONUNBUFFERED
    sys.path[:] = [place for place in sys.path if place]  # -P
    become_module(words[4], words[5:])


def become_module(name: str, arguments: Sequence[str]) -> None:
    """Run a job's module as `pipeline.jobs.launch` does, though it is loaded."""
    from pipeline.jobs import launch

    ran = f"{name}.__main__" if hasattr(sys.modules.get(name), "__path__") else name
    sys.modules.pop(ran, None)
    sys.argv = ["launch", name, *arguments]
    sys.exit(launch.main())


def _show(words: Sequence[str]) -> None:
    """Have /proc show this command line and our variables, by which a job is found, in place of the interpreter's."""
    with open("/proc/self/stat", "rb", buffering=0) as file:  # noqa: PTH123
        places = [int(field) for field in file.read().rpartition(b") ")[2].split()[45:49]]
    line = b"\0".join(word.encode() for word in words) + b"\0"
    variables = b"".join(f"{name}={value}".encode() + b"\0" for name, value in os.environ.items())
    # Of a command line the last word counts.
    _write(line.rjust(places[1] - places[0], b"x"), *places[:2])
    _write(variables.ljust(places[3] - places[2], b"\0"), *places[2:])


def _write(text: bytes, begin: int, end: int) -> None:
    if len(text) > end - begin:
        raise ValueError(f"{len(text)} bytes, and room for {end - begin}: raise ROOM")
    ctypes.memmove(begin, text, len(text))
