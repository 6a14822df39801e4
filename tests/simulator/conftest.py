"""An in-process simulator for tests of its logic; the process itself is tested in tests/lean."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.simulator.frontend import Modules
from pipeline.lean.simulator.server import RECURSION_LIMIT, Server

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session", autouse=True)
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(RECURSION_LIMIT)
    yield
    sys.setrecursionlimit(before)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    modules = Modules(tmp_path)
    return Server(modules, modules.environment(["Init"]))


@pytest.fixture
def ask(server: Server) -> Ask:
    """Send one request: `ask("goal.start", expr="True")`."""

    def send(command: str, **payload: object) -> dict[str, Any]:
        return server.answer(command, dict(payload))

    return send
