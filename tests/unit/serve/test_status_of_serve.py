"""How `unsorry status` tells of the server: a line while it is wanted, a problem with its remedy while it is ill."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from daemon.cli.problems import serve_problems
from daemon.cli.status import _serve

NOW = datetime.now(UTC).isoformat()


def told(**changes: Any) -> dict[str, Any]:
    fine = {
        "enabled": True, "state": "running", "since": NOW, "address": "127.0.0.1:23337", "pid": 7, "restarts": 0,
        "reason": "", "remedy": "", "device": "cpu", "memory": None,
    }  # fmt: skip
    return {**fine, **changes}


def test_one_that_runs_is_a_line_and_no_problem() -> None:
    assert _serve(told()).startswith("running at 127.0.0.1:23337, process 7, since ")
    assert "started again 2 times" in _serve(told(restarts=2))
    held = {"held_bytes": 3 * 2**30, "limit_bytes": 2**35, "by": "control group"}
    assert _serve(told(device="GPU 0 (A100)", memory=held)).endswith(
        ", on GPU 0 (A100); holds 3 GiB of 32 GiB (control group)"
    )
    assert "holds" not in _serve(told(memory={**held, "held_bytes": 0})), "nobody has looked yet"
    assert serve_problems(told()) == []


def test_one_that_is_not_wanted_or_not_known_is_neither() -> None:
    for nothing in (told(enabled=False, state="off", address=""), None):
        assert _serve(nothing) == ""
    assert serve_problems({}) == []


def test_one_that_ends_or_cannot_be_started_is_an_error_with_its_remedy() -> None:
    for state, code in (("resting", "serve_ends"), ("running", "serve_ends"), ("blocked", "serve_blocked")):
        (problem,) = serve_problems(told(state=state, reason="why", remedy="what to do"))
        assert (problem["code"], problem["severity"]) == (code, "error")
        assert (problem["message"], problem["remedy"]) == ("why", "what to do")
    assert _serve(told(state="resting", address="")).startswith("resting since ")
