"""What a test asks for of the machine that runs it: each fixture brings it for that test, or skips and says why."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog

from pipeline.lean.sandbox.command import bubblewrap_problem
from pipeline.lean.toolchain.standins import SWITCH
from tests.support import machine, processes, programs
from tests.support.lean.toolchain import interpreter_in_usr

machine.hide()
# Programs that stand in for Lean run in these tests, and in the processes that they start, and nowhere else.
os.environ[SWITCH] = "1"
# A shell that starts a job in the background has it ignore SIGINT, and so would every program that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SELECTABLE = ("bubblewrap", "cuda", "elan_lean", "network", "real_lean")
"""`-m NAME` selects the tests that ask for the fixture of that name."""
NO_SANDBOX = "no sandbox: "

Provide = Callable[[str], Path]


def pytest_configure(config: pytest.Config) -> None:
    for name in SELECTABLE:
        config.addinivalue_line("markers", f"{name}: asks for the fixture of that name")


def pytest_addoption(parser: pytest.Parser) -> None:
    group: Any = parser.getgroup("processes")
    # As pytest-xdist calls it; small letters are pytest's own otherwise.
    group._addoption("-n", dest="processes", type=int, default=0, help="run the tests in so many processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in several processes if asked; else keep one where everything is imported and no test has run."""
    count = session.config.getoption("processes")
    if count > 1 and not session.testsfailed and not session.config.getoption("collectonly"):
        processes.run(session, count)
        return True
    programs.kept()
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" not in config.getoption("markexpr"):
        long = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    for item in items:
        for name in {*SELECTABLE}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(name)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    options = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**options))
    return True


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Show what the harness found, a line for each of its tests."""
    if "harness" not in config.getoption("markexpr"):
        return
    rows = [
        (report.outcome, f"{report.duration:.0f} s", *map(str, said))
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        for name, said in report.user_properties
        if name == "harness"
    ]
    terminalreporter.section("the harness")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in sorted(rows, key=lambda row: row[2]):
        terminalreporter.write_line(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


@pytest.fixture
def loggers_as_they_were() -> Iterator[None]:
    """Undo what a test configures of the process's loggers: the next test's lines would go to this one's stream."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str, str], None]:
    """Return what tells the nightly table what was done to the daemon or its files, how often, and what that cost."""
    return lambda done, cost: record_property("harness", (done, cost))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Say last of all how much of the sandbox went untested, and tell it to what runs the tests in several parts."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    skipped = [str(report.longrepr[2]) for report in reporter.stats.get("skipped", ())]
    reasons = [reason.partition(NO_SANDBOX)[2] for reason in skipped if NO_SANDBOX in reason]
    if reasons:
        reporter.write_line(f"{len(reasons)} tests of the sandbox were skipped: {reasons[0]}", yellow=True)
        if file := machine.user().get("EVERLEAN_TESTS_SKIPPED"):
            with Path(file).open("a", encoding="utf-8") as lines:
                lines.write(f"{len(reasons)} {reasons[0]}\n")


@pytest.fixture
def provide(monkeypatch: pytest.MonkeyPatch) -> Provide:
    """Return what puts a program on PATH for this test and says where it is; it skips where there is none."""

    def put(name: str) -> Path:
        try:
            place = machine.program(name)
        except machine.MissingError as error:
            pytest.skip(str(error))
        monkeypatch.setenv("PATH", str(place.parent), prepend=os.pathsep)
        return place

    return put


@pytest.fixture
def bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `bwrap` on PATH; skip where no sandbox can be made."""
    try:
        place = machine.program("bwrap")
    except machine.MissingError as error:
        pytest.skip(f"{NO_SANDBOX}{error}")
    monkeypatch.setenv("PATH", str(place.parent), prepend=os.pathsep)
    if problem := _sandbox_problem():
        pytest.skip(f"{NO_SANDBOX}{problem}")


@functools.cache
def _sandbox_problem() -> str | None:
    return bubblewrap_problem()


@pytest.fixture
def elan_lean(provide: Provide, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the user's lake and lean on PATH, with the toolchains that are installed."""
    provide("lake")
    provide("lean")
    monkeypatch.setenv("ELAN_HOME", machine.elan_home())


@pytest.fixture
def as_root() -> None:
    """Skip where the tests are another user's."""
    if os.geteuid() != 0:
        pytest.skip("only root may do this; run the test as root to see it")


@pytest.fixture
def users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the home folder and the configuration of whoever runs the tests."""
    for name in ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"):
        monkeypatch.delenv(name, raising=False)
        if value := machine.user().get(name):
            monkeypatch.setenv(name, value)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show the GPUs to the programs that the test starts; this process may have looked before."""
    from daemon.jobs.gpus import cuda_is_there

    visible = machine.user().get("CUDA_VISIBLE_DEVICES")
    if visible == "" or not cuda_is_there():
        pytest.skip("no CUDA device")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)


@pytest.fixture
def systemd_analyze(provide: Provide) -> None:
    """Have `systemd-analyze` on PATH."""
    provide("systemd-analyze")


@pytest.fixture
def sqlite_shell(provide: Provide) -> None:
    """Have `sqlite3` on PATH."""
    provide("sqlite3")


@pytest.fixture
def curl(provide: Provide) -> None:
    """Have `curl` on PATH."""
    provide("curl")


@pytest.fixture
def ssh_keygen(provide: Provide) -> None:
    """Have `ssh-keygen` on PATH."""
    provide("ssh-keygen")


@pytest.fixture(scope="session")
def chromium() -> Path:
    """Return where a Chromium is, which says so itself; skip where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        with suppress(machine.MissingError):
            # Some distributions have a program of this name that only says where to get the browser.
            place = machine.program(name)
            said = subprocess.run(
                [place, "--version"], capture_output=True, text=True, check=False, timeout=60
            )
            if said.returncode == 0 and "Chrom" in said.stdout:
                return place
    pytest.skip("no Chromium on this machine; Debian: apt-get install chromium")


@pytest.fixture(scope="session")
def python_in_usr() -> None:
    """Skip where there is no Python for programs that stand in for Lean in a sandbox, which shows them `/usr`."""
    if interpreter_in_usr() is None:
        pytest.skip("no Python in /usr for a stand-in to run in a sandbox")


@pytest.fixture(scope="session")
def network() -> None:
    """Skip where there is no internet."""
    try:
        socket.getaddrinfo("github.com", 443)
    except OSError as error:
        pytest.skip(f"no internet: github.com cannot be looked up ({error})")


@pytest.fixture(scope="session")
def real_lean() -> Path:
    """Return the folder of a toolchain with Lean 4.35.0 and a library of our own; skip where it cannot be had."""
    from tests.support.lean.wheel.lean import UnavailableError, toolchain

    try:
        return toolchain()
    except UnavailableError as error:
        pytest.skip(str(error))
