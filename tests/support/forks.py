"""Python programs as processes of their own, for tests, without loading torch and Lightning anew: ten seconds of each.

done = forks.start(PROGRAM, folder_of_data, 3, folder=tmp_path / "said").wait()
assert (done.returncode, done.stderr) == (0, "")

Each is a fork of the test's own process: what is imported here is there. It ends without tidying.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]


class Program:
    """A program that runs in a process of its own."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid = pid
        self._folder = folder

    def has_ended(self) -> bool:
        """Return whether it has; `wait` returns its status all the same."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end; what it said comes with its status, which is negative where a signal ended it."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        out, err = ((self._folder / name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess([], status, out, err)


def start(program: str, *arguments: object, folder: Path, stdin: Path | None = None) -> Program:
    """Run Python text as `python -c` would, in the repository's folder.

    Args:
        program: what runs.
        arguments: `sys.argv[1:]`.
        folder: takes what it says, as the files `stdout` and `stderr`; made if need be.
        stdin: what it reads; nothing where there is none.
    """
    folder.mkdir(exist_ok=True)
    for name in ("stdout", "stderr"):  # they can be read from now on, also before the program has begun
        (folder / name).touch()
    pid = os.fork()
    if pid == 0:
        _be(program, [str(argument) for argument in arguments], folder, stdin or Path(os.devnull))
    return Program(pid, folder)


def _be(program: str, arguments: list[str], folder: Path, stdin: Path) -> NoReturn:
    code = 1
    try:
        gc.freeze()  # a collection would copy all of what is loaded
        _forget_pytest()
        for number, (name, flags) in enumerate(
            ((stdin, os.O_RDONLY), (folder / "stdout", os.O_WRONLY), (folder / "stderr", os.O_WRONLY))
        ):
            opened = os.open(name, flags)
            os.dup2(opened, number)
            os.close(opened)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - they last as long as the process
            for number, mode in enumerate("rww")
        )
        sys.argv = ["-c", *arguments]
        os.chdir(ROOT)
        exec(compile(program, "the program", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - printed, as an interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _forget_pytest() -> None:
    """Have warnings, log records and signals do what they do in a process of its own."""
    warnings.resetwarnings()
    for category in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter("ignore", category)
    warnings.showwarning = lambda message, category, filename, lineno, file=None, line=None: print(
        warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr
    )
    logging.getLogger().handlers.clear()
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
