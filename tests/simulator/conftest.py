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


@pytest.fixture
def process(ask: Ask) -> Callable[[str], list[str]]:
    """Process a file's text and return its errors, one line each."""

    def send(text: str) -> list[str]:
        reply = ask("frontend.process", file=text, readHeader=False, inheritEnv=True, newConstants=True)
        assert "error" not in reply, reply
        return [
            f"{message['pos']['line']}:{message['data']}"
            for unit in reply["units"]
            for message in unit["messages"]
            if message["severity"] == "error"
        ]

    return send


@pytest.fixture
def closes(ask: Ask) -> Callable[[str, str], bool]:
    """Return whether a tactic block closes a statement."""

    def run(statement: str, tactics: str) -> bool:
        started = ask("goal.start", expr=statement)
        assert "stateId" in started, started
        reply = ask("goal.tactic", stateId=started["stateId"], tactic=tactics)
        assert "error" not in reply, reply
        return reply.get("goals") == [] and not reply["hasSorry"]

    return run
