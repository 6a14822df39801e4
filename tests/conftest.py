"""Tests that need what not every machine has run by themselves where it is, and say why where it is not."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.toolchain.standins import SWITCH
from tests.support import programs

# Programs that stand in for Lean run in these tests, and in the processes that they start, and nowhere else.
os.environ[SWITCH] = "1"
# A shell that starts a job in the background has it ignore SIGINT, and so would every program that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# No test takes a model from the hub, and to look for one that is not there takes half a minute without a network.
os.environ["HF_HUB_OFFLINE"] = "1"


def _found() -> LeanBackend:
    nowhere = Path("/nonexistent")
    return find_leans(backend="auto", repl="", sandbox="bubblewrap", toolchains=nowhere).summary


def _no_lean() -> str:
    found = _found()
    return "" if found.is_lean else f"no Lean: {found.detail}"


def _no_repl() -> str:
    found = _found()
    return "" if found.kind == "pantograph" else f"no pantograph-repl: {found.detail}"


def _no_network() -> str:
    try:
        socket.getaddrinfo("github.com", 443)
    except OSError as error:
        return f"no internet: github.com cannot be looked up ({error})"
    return ""


LACKS: dict[str, Callable[[], str]] = {"lean": _no_lean, "repl": _no_repl, "network": _no_network}


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Keep a process in which everything is imported and no test has run."""
    programs.kept()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" not in config.getoption("markexpr"):
        long = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    for name, lacking in LACKS.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        if marked and (reason := lacking()):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def real_lean() -> Path:
    """Return the folder of a toolchain with Lean 4.35.0 and a library of our own; skip where it cannot be had."""
    from tests.support.lean.wheel.lean import UnavailableError, toolchain

    try:
        return toolchain()
    except UnavailableError as error:
        pytest.skip(str(error))
