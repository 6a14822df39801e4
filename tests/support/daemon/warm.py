"""Daemons, verbs and jobs as processes of their own, for tests, and nothing imported anew: up to a second of each.

process = warm.start(PROGRAM, str(config), output=folder / "daemon.log")
process.send_signal(signal.SIGTERM)
assert process.wait(timeout=20) == 0

done = warm.unsorry("status", "--json", environment=os.environ, folder=folder)
assert done.returncode == 0

process = warm.job("pipeline.trace", spec, output=folder / "stdout", errors=folder / "stderr")

One interpreter has imported the daemon and the command line, and does nothing else; each program is a fork of it. The
fork is adopted, so that it is our child like any other: `wait` returns its status, and no zombie is left.
It ends as an interpreter ends, threads and all. What is installed as `unsorry` (as in the demo) is not warm.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h

# Forks twice: the one between ends at once and leaves the other to be adopted.
_LOADED = """
import gc, json, os, sys, time
import daemon.cli.app, daemon.run

daemon.cli.app.build()
gc.freeze()  # what is loaded stays the forks' common memory: a collection would have each copy all of it
for line in sys.stdin:
    asked = json.loads(line)
    told, tell = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid:
            os.write(tell, str(pid).encode())
            os._exit(0)
        break
    os.waitpid(between, 0)
    os.write(1, os.read(told, 20) + b"\\n")
    os.close(told)
    os.close(tell)
else:
    sys.exit()
os.close(told)
os.close(tell)
os.environ.clear()
os.environ.update(asked["environment"])
time.tzset()
os.chdir(asked["folder"])
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, name in ((1, "output"), (2, "errors")):
    os.dup2(os.open(asked[name], os.O_WRONLY | os.O_APPEND), number)
sys.argv = ["-c", *asked["arguments"]]
exec(compile(asked["program"], "<string>", "exec"), {"__name__": "__main__"})
"""


_VERB = "import daemon.cli; daemon.cli.main()"
# In a session of its own, as the daemon starts it.
_JOB = """
import os, runpy, sys
os.setsid()
module, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = module
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class Adopted(subprocess.Popen[bytes]):
    """A Popen of a process that another one forked."""

    def __init__(self, pid: int, args: list[str]) -> None:
        self.args = args
        self.pid = pid
        self.returncode = None
        self.stdin = self.stdout = self.stderr = None
        # What Popen keeps for poll(), wait() and its own end.
        self._child_created = True
        self._waitpid_lock = threading.Lock()
        self._communication_started = False
        self._sigint_wait_secs = 0.25


@functools.cache
def _interpreter() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", _LOADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end() -> None:
        process.kill()
        process.communicate()

    atexit.register(end)
    return process


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


def start(
    program: str, *arguments: str, output: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Run Python text as `python -c` would, with this process's environment and folder.

    Args:
        program: what runs. `daemon.run`, every verb and all that they import is there already.
        arguments: `sys.argv[1:]`.
        output: what it says is appended here.
        environment: in addition to ours.

    Raises:
        RuntimeError: the warm interpreter is gone; its last words are in the test's output.
    """
    everything = {**os.environ, **(environment or {})}
    return _forked(program, arguments, output, output, everything, Path.cwd())


def job(module: str, spec: Path, *, output: Path, errors: Path) -> subprocess.Popen[bytes]:
    """Run a job's module on a specification; the files may be named pipes.

    Raises:
        RuntimeError: as `start`.
    """
    return _forked(_JOB, (module, "--spec", str(spec)), output, errors, os.environ, Path.cwd())


def _forked(
    program: str,
    arguments: Sequence[str],
    output: Path,
    errors: Path,
    environment: Mapping[str, str],
    folder: Path,
) -> subprocess.Popen[bytes]:
    asked = {
        "program": program,
        "arguments": arguments,
        "output": str(output),
        "errors": str(errors),
        "folder": str(folder),
        "environment": dict(environment),
    }
    output.touch()
    errors.touch()
    warm = _interpreter()
    assert warm.stdin is not None
    assert warm.stdout is not None
    with _adopting():
        warm.stdin.write(json.dumps(asked).encode() + b"\n")
        warm.stdin.flush()
        answer = warm.stdout.readline()
    if not answer:
        raise RuntimeError(f"the warm interpreter ended with status {warm.wait()}")
    return Adopted(int(answer), ["python", "-c", program, *arguments])


def unsorry(
    *arguments: str, environment: Mapping[str, str], folder: Path, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end, without a standard input; what it writes is UTF-8.

    Args:
        environment: the whole of it.

    Raises:
        RuntimeError: as `start`.
        TimeoutExpired: it took longer, and was killed.
    """
    with tempfile.TemporaryDirectory() as said:
        output, errors = Path(said, "output"), Path(said, "errors")
        process = _forked(_VERB, arguments, output, errors, environment, folder)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(
            ["unsorry", *arguments],
            code,
            output.read_text(encoding="utf-8"),
            errors.read_text(encoding="utf-8"),
        )
