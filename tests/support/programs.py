"""Python programs as processes of their own, for tests, without loading torch anew: ten seconds of each.

done = programs.start(PROGRAM, folder_of_data, 3, folder=tmp_path / "said").wait()
assert (done.returncode, done.stderr) == (0, "")

Each is a fork of pytest's process as it was when the tests were collected and none had run: what they import is there,
and no library has a thread yet. It ends without tidying.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.daemon import forks

ROOT = Path(__file__).resolve().parents[2]


class Program:
    """A program that runs in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def said(self) -> str:
        """Return what its standard output has so far."""
        return (self._folder / "stdout").read_text()

    def kill(self) -> None:
        self._process.kill()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end; what it said comes with its status, which is negative where a signal ended it."""
        status = self._process.wait()
        out, err = ((self._folder / name).read_text("utf-8") for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess([], status, out, err)


def start(
    program: str,
    *arguments: object,
    folder: Path,
    stdin: Path = Path(os.devnull),
    modules: Sequence[str] = (),
) -> Program:
    """Run Python text as `python -c` would, in the repository's folder.

    Args:
        program: what runs.
        arguments: `sys.argv[1:]`.
        folder: takes what it says, as the files `stdout` and `stderr`; made if need be.
        stdin: what it reads.
        modules: are imported first, once for all programs.
    """
    folder.mkdir(exist_ok=True)
    process = kept().program(
        program,
        [str(argument) for argument in arguments],
        output=folder / "stdout",
        errors=folder / "stderr",
        environment=os.environ,
        folder=ROOT,
        stdin=stdin,
        modules=modules,
    )
    return Program(process, folder)


@functools.cache
def kept() -> forks.Server:
    """Keep a fork of this process, which ends with it; the first call comes before any test."""
    if mappings := sys.modules.get("transformers.conversion_mapping"):
        mappings.get_checkpoint_conversion_mapping("t5")  # or each process compiles a thousand patterns
    asked, asks = os.pipe()
    answers, answer = os.pipe()

    def serve() -> None:
        os.dup2(asked, 0)
        os.dup2(answer, 1)
        forget_pytest()
        forks.serve(0, 1)

    pid = forked(serve)
    os.close(asked)
    os.close(answer)
    made = forks.Server(os.fdopen(asks, "wb"), os.fdopen(answers, "rb"), has_room=False)

    def end() -> None:
        os.kill(pid, signal.SIGKILL)  # it has nothing to tidy
        os.waitpid(pid, 0)
        made.asks.close()
        made.answers.close()

    atexit.register(end)
    return made


def fork() -> int:
    """Fork. Libraries' threads wait for work, and hold nothing that a fork needs; Python 3.12 warns of any thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def forked(run: Callable[[], None]) -> int:
    """Run a function in a fork that ends with it, as a program does; return its id."""
    pid = fork()
    if pid:
        return pid
    code = 1
    try:
        run()
        code = 0
    except SystemExit as said:
        code = said.code if isinstance(said.code, int) else int(said.code is not None)
    except KeyboardInterrupt:
        pass  # a terminal's, which pytest reports
    except BaseException:  # noqa: BLE001 - printed, as an interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def forget_pytest() -> None:
    """Have files, logs, warnings and errors do what they do in a process of its own; torch computes in one thread."""
    faulthandler.disable()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - they last as long as the process
        for number, mode in enumerate("rww")
    )
    # pytest's handlers keep records for itself.
    logging.getLogger().handlers[:] = [logging.StreamHandler(sys.stderr)]
    for logger in logging.root.manager.loggerDict.values():
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler):
                handler.setStream(sys.stderr)
                vars(handler).pop("flush", None)  # transformers has it flush what was standard error before
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.unraisablehook = sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
