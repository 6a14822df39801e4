"""Tests in several processes, each a fork of the one that has collected them: `pytest -n 4`.

So what tests import is loaded once, and is the processes' common memory. Each takes the tests of a file when it is done
with those that it has, and says through a pipe what becomes of them to the first, which reports them as its own.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import mmap
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import create_terminal_writer

from tests.support import programs

_ENTRY = 4
"""Bytes of a file's number in the pipe that files are taken from. It has room for all, and gives four bytes at once."""


def run(session: pytest.Session, count: int) -> None:
    """Run the collected tests in so many processes. One that ends or hangs fails the test that it ran.

    Raises:
        Failed: as many tests failed as `--maxfail` allows, or one ended its process.
    """
    files = [list(tests) for _, tests in itertools.groupby(session.items, key=lambda item: item.path)]
    taken, give = os.pipe()
    os.write(give, b"".join(number.to_bytes(_ENTRY, "big") for number in range(len(files))))
    os.close(give)
    stop = mmap.mmap(-1, 1)
    factory: Any = session.config
    folder = factory._tmp_path_factory.getbasetemp()
    running: dict[Connection, _Running] = {}
    gc.collect()
    gc.freeze()
    try:
        for number in range(min(count, len(files))):
            told, tell = multiprocessing.Pipe(duplex=False)
            pid = programs.fork()
            if pid == 0:
                _be_one(session, files, taken, stop, tell, folder / f"{number}")
            tell.close()
            running[told] = _Running(pid)
        while running:
            soonest = min(process.silent_until for process in running.values())
            for said in wait(list(running), max(0.0, soonest - time.monotonic())):
                assert isinstance(said, Connection)
                _hear(session, said, running)
            for process in running.values():
                process.end_if_it_hangs()
            if session.shouldfail:
                stop[0] = 1
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
    finally:
        _end(running)
        os.close(taken)


_TORN_DOWN_S = (2.0, 30.0)
"""How long a process may tear down what it set up: before it is asked to, as a terminal asks all; and after that."""
_MORE_S = 60.0
"""Beside a test's own time limit, which ends what Python runs: a library that waits for a lost thread ends by none."""


_DAY_S = 86400.0


class _Running:
    """A process and the test that it runs or ran last."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.test: pytest.Item | None = None
        self.speaks()

    def speaks(self) -> None:
        """Note that it said something, so that it has all of its test's time again."""
        limit = _MORE_S if self.test is None else _time_limit(self.test)
        self.silent_until = time.monotonic() + limit + _MORE_S

    def end_if_it_hangs(self) -> None:
        """Have a process that was silent for too long show what each of its threads does, and end."""
        if time.monotonic() >= self.silent_until:
            os.kill(self.pid, signal.SIGABRT)
            self.silent_until += _DAY_S


def _time_limit(test: pytest.Item) -> float:
    """Return a test's time limit as pytest-timeout has it; a day where it has none."""
    marker, config = test.get_closest_marker("timeout"), test.config
    if marker is not None:
        return float(marker.args[0] if marker.args else marker.kwargs["timeout"]) or _DAY_S
    return float(config.getoption("timeout", None) or config.getini("timeout") or _DAY_S)


def _hear(session: pytest.Session, told: Connection, running: dict[Connection, _Running]) -> None:
    """Take one thing that a process says: the test that it begins, what became of one, or that there are no more."""
    process, hook = running[told], session.config.hook
    try:
        said = told.recv()
    except (EOFError, OSError):  # the latter in the middle of what it said
        said = None
    if said is None:
        told.close()
        del running[told]
        status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if status:
            _fail(session, process.test, f"its process ended with status {status}")
    elif isinstance(said, int):
        process.test = session.items[said]
        process.speaks()
    else:
        process.speaks()
        report = hook.pytest_report_from_serializable(config=session.config, data=said)
        hook.pytest_runtest_logreport(report=report)


def _fail(session: pytest.Session, test: pytest.Item | None, why: str) -> None:
    """Have a test fail that could not say so, and the run stop."""
    session.shouldfail = f"{'no test yet' if test is None else test.nodeid}: {why}"
    if test is not None:
        report = pytest.TestReport(test.nodeid, test.location, {}, "failed", why, "call")
        session.config.hook.pytest_runtest_logreport(report=report)


def _end(running: dict[Connection, _Running]) -> None:
    """End processes that still run, after they have torn down what they set up."""
    for seconds, how in zip(_TORN_DOWN_S, (signal.SIGINT, signal.SIGKILL), strict=True):
        until = time.monotonic() + seconds
        while running and (said := wait(list(running), max(0.0, until - time.monotonic()))):
            for told in said:
                assert isinstance(told, Connection)
                try:
                    told.recv()
                except (EOFError, OSError):
                    os.waitpid(running.pop(told).pid, 0)
        for process in running.values():
            os.kill(process.pid, how)
    for process in running.values():
        os.waitpid(process.pid, 0)


def _run_files(session: pytest.Session, files: list[list[pytest.Item]], taken: int, stop: mmap.mmap) -> None:
    """Take one file after the other and run its tests, until none is left or all processes are to stop."""
    only_session: Any = session
    while entry := os.read(taken, _ENTRY):
        tests = files[int.from_bytes(entry, "big")]
        # Behind a file's last test its fixtures go, but for the session's: no process has to know what comes next.
        for item, following in zip(tests, [*tests[1:], only_session], strict=True):
            if session.shouldfail or stop[0]:
                return
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def _be_one(
    session: pytest.Session,
    files: list[list[pytest.Item]],
    taken: int,
    stop: mmap.mmap,
    tell: Connection,
    folder: Path,
) -> None:
    """Run tests, and end this process."""
    code = 1
    try:
        # What is registered is the first process's to do.
        atexit._clear()
        _have_its_own(session.config, folder)
        session.config.pluginmanager.register(_Teller(session, tell))
        programs.kept()
        try:
            _run_files(session, files, taken, stop)
        finally:
            # Something is left to tear down after a failure or an interruption; a second one is not to stop that.
            signal.signal(signal.SIGINT, lambda *_: None)
            setup: Any = session
            setup._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
        code = 0
        tell.send(None)
    except KeyboardInterrupt:
        pass  # the first process says so
    except BaseException:  # noqa: BLE001 - printed, as an interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _have_its_own(config: Any, folder: Path) -> None:
    """Have what the tests write and print in a folder and files of this process, and no report of its own."""
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder
    if config.getoption("capture") == "fd":
        capturing = config.pluginmanager.getplugin("capturemanager")._global_capturing
        for file in (capturing.out.tmpfile, capturing.err.tmpfile):
            # In place: libraries may keep what was sys.stderr when they were imported.
            with tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), file.fileno(), inheritable=False)
    nowhere = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - it lasts as long as the process
    config.pluginmanager.getplugin("terminalreporter")._tw = create_terminal_writer(config, nowhere)


class _Teller:
    """Says to the first process what becomes of the tests."""

    def __init__(self, session: pytest.Session, pipe: Connection) -> None:
        self._config = session.config
        self._numbers = {item.nodeid: number for number, item in enumerate(session.items)}
        self._pipe = pipe

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._pipe.send(self._numbers[nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._pipe.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))
