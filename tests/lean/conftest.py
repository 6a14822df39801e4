"""Backends for tests of the client: small scripts that play a REPL badly."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.lean.backend import LeanBackend

PRELUDE = """
import json, os, sys, time
def say(text):
    sys.stdout.write(text + "\\n"); sys.stdout.flush()
def requests():
    for line in sys.stdin:
        request = json.loads(line)
        if request["cmd"] == "options.set":
            say("{}")
            continue
        if request["payload"] == {} and request["cmd"] == "goal.subsume" or "copyFrom" in request["payload"]:
            # What the client asks at its start, answered as the newer dialect does.
            say('{"error":"command","desc":"no such request"}')
            continue
        yield request["cmd"], request["payload"]
"""

FakeRepl = Callable[[str], LeanBackend]


@pytest.fixture
def fake_repl(tmp_path: Path) -> FakeRepl:
    """Make a backend out of the body of a Python script; `say` and `requests` are at hand in it."""

    def make(body: str) -> LeanBackend:
        script = tmp_path / "fake_repl.py"
        script.write_text(PRELUDE + textwrap.dedent(body), "utf-8")
        return LeanBackend(
            kind="pantograph",
            argv=(sys.executable, "-I", "-S", str(script)),
            detail="a script of this test",
            toolchain="",
            sandbox="none",
        )

    return make


@pytest.fixture(params=["none", "bubblewrap"])
def sandbox(request: pytest.FixtureRequest) -> str:
    """Run the test twice, once where a sandbox can be made."""
    if request.param == "bubblewrap":
        request.getfixturevalue("bubblewrap")
    return str(request.param)
