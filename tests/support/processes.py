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
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import create_terminal_writer

from tests.support import programs

_ENTRY = 4
"""Bytes of a file's number in the pipe that files are taken from. It has room for all, and gives four bytes at once."""


def run(session: pytest.Session, count: int) -> None:
    """Run the collected tests in so many processes.

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
                _be_one(session, _chosen(files, taken, stop), stop, tell, folder / f"{number}")
            tell.close()
            running[told] = _Running(pid)
        while running:
            for said in wait(list(running)):
                assert isinstance(said, Connection)
                _hear(session, said, running)
            if session.shouldfail:
                stop[0] = 1
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
    finally:
        for process in running.values():
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
        os.close(taken)


class _Running:
    """A process and the test that it runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.test = "no test yet"


def _hear(session: pytest.Session, told: Connection, running: dict[Connection, _Running]) -> None:
    """Take one thing that a process says: the test that it begins, what became of one, or that there are no more.

    Raises:
        Failed: it has ended otherwise than at the end of its tests.
    """
    try:
        said = told.recv()
    except EOFError:
        said = None
    if said is None:
        told.close()
        process = running.pop(told)
        status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if status:
            session.shouldfail = f"the process of {process.test} ended with status {status}"
            raise session.Failed(session.shouldfail)
    elif isinstance(said, str):
        running[told].test = said
    else:
        hook = session.config.hook
        report = hook.pytest_report_from_serializable(config=session.config, data=said)
        hook.pytest_runtest_logreport(report=report)


def _chosen(files: list[list[pytest.Item]], taken: int, stop: mmap.mmap) -> Iterator[pytest.Item]:
    """Take one file after the other, until none is left or all processes are to stop."""
    while entry := os.read(taken, _ENTRY):
        for item in files[int.from_bytes(entry, "big")]:
            if stop[0]:
                return
            yield item


def _be_one(
    session: pytest.Session, items: Iterator[pytest.Item], stop: mmap.mmap, tell: Connection, folder: Path
) -> None:
    """Run tests, and end this process."""
    code = 1
    try:
        # What is registered is the first process's to do.
        atexit._clear()
        _have_its_own(session.config, folder)
        session.config.pluginmanager.register(_Teller(session.config, tell))
        programs.kept()
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = None if session.shouldfail or stop[0] else following
        setup: Any = session
        setup._setupstate.teardown_exact(None)  # nothing is left to tear down but after a failure
        atexit._run_exitfuncs()
        code = 0
        tell.send(None)
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

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config = config
        self._pipe = pipe

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._pipe.send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._pipe.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))
