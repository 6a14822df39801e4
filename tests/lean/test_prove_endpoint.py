"""Rung 4 of the prove job: an endpoint on a real socket, well or badly behaved; a script answers in Lean's place."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.endpoint.spending import Spending
from pipeline.jobs.protocol import JobError
from tests.support.chat_server import ChatServer, Fails, Reply, Says, Sends, Silence
from tests.support.lean import scripted
from tests.support.lean.scripted import Script
from tests.support.prove import BUDGET, LINES, SCRIPT, SOURCE, attempts, parameters, recorded, run
from tests.support.specs import raw_spec

# To load what a search asks with takes long on a busy machine.
pytestmark = pytest.mark.timeout(180)

WHOLE = {"whole": {"proofs": 1, "repairs": 0, "max_tokens": 100}}


def external(server: ChatServer, asks: Mapping[str, Any] = WHOLE, **more: Any) -> dict[str, Any]:
    prices = {"usd_per_million_prompt": 2.0, "usd_per_million_completion": 8.0}
    endpoint = {"base_url": server.url, "model": "m-1", "retries": 0, "timeout_s": 10, **prices}
    return {"rung": 4, "model": "m-1", "endpoint": endpoint | more, **asks}


def failure(given: dict[str, Any], folder: Path) -> JobError:
    """Run a job that fails; return why."""
    with pytest.raises((JobError, ExceptionGroup)) as caught:
        run(given, folder, script=SCRIPT)
    error: BaseException = caught.value
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, JobError)
    return error


def test_an_endpoint_s_proofs_are_recorded_with_their_cost(tmp_path: Path) -> None:
    with ChatServer([Says("by\n  simp_all", usage=(1000, 50))]) as server:
        given = parameters(tmp_path, SOURCE, **external(server))
        bodies, _ = run(given, tmp_path / "job", script=SCRIPT)
    tried = attempts(bodies)
    assert {name: body.outcome for name, body in tried.items()} == {
        "first": "found",
        "second": "found",
        "third": "exhausted",
    }
    for body in tried.values():
        assert (body.model, body.prompt_tokens, body.completion_tokens) == ("m-1", 1000, 50)
        assert body.usd == pytest.approx(0.0024)
        assert body.tree is None


# --- outages


def test_a_spent_day_fails_the_job_until_tomorrow_and_no_sorry(tmp_path: Path) -> None:
    ledger = tmp_path / "spending.jsonl"
    Spending(ledger=ledger).reserve(1.0)
    capped: dict[str, Any] = {"cap_usd": 1.0, "ledger": str(ledger)}
    with ChatServer([]) as server:
        error = failure(parameters(tmp_path, SOURCE, **external(server, **capped)), tmp_path / "job")
    assert (error.reason, error.deterministic) == ("spending_cap", True)
    assert "usd_per_day" in error.remedy


@pytest.mark.parametrize(
    ("asks", "reply", "reason", "said"),
    [
        (WHOLE, Fails(401), "auth_failed", "401"),
        ({"tactics": {}}, Fails(401), "auth_failed", "401"),
        ({"tactics": {}}, Fails(500, "down for maintenance"), "unanswered", "down for maintenance"),
        (WHOLE, Sends(b"<html><body>Please log in</body></html>"), "unanswered", "Please log in"),
    ],
)
def test_an_endpoint_that_is_down_fails_the_job_and_no_sorry(
    tmp_path: Path, asks: Mapping[str, Any], reply: Reply, reason: str, said: str
) -> None:
    with ChatServer([reply]) as server:
        error = failure(parameters(tmp_path, SOURCE, **external(server, asks)), tmp_path / "job")
    assert (error.reason, error.deterministic) == (reason, False)
    assert said in str(error)
    assert error.remedy
    assert recorded((tmp_path / "job" / LINES).read_text()) == ([], [])


# --- what is one sorry's


BAD: dict[str, tuple[Reply, str]] = {
    "too_many": (Fails(429, "slow down"), "slow down"),
    "broken": (Fails(500, "oh no"), "oh no"),
    "page": (Sends(b"<html>a proxy's page</html>"), "a proxy's page"),
    "never": (Silence(), "did not answer within"),
    "hangs_up": (Silence(hangs_up=True), "the connection broke"),
    "forbidden": (Fails(403, "this text is blocked"), "this text is blocked"),
    "nothing": (Says(""), "1 empty"),
    "blank": (Says(" \n\t \n"), "1 empty"),
    "cut_off": (Says("by\n  intro", finish="length"), "1 cut off"),
    "endless": (Says("simp_all " * 10_000), "no proof has more than"),
    "control": (Says("by\n  simp_all\x00\x1b[2J\u202e"), "could be given to"),
    "comment": (Says("by\n  simp_all -- done /-\n  /- and this never ends"), "is not closed"),
    "admitted": (Says("by\n  sorry"), "could be given to"),
}


@pytest.mark.slow
def test_bad_answers_are_each_their_sorry_s_and_the_others_go_on(tmp_path: Path) -> None:
    """One job: a sorry for each bad answer, one between two."""
    names = [name for bad in BAD for name in (f"bad_{bad}", f"good_{bad}")]
    source = "".join(f"theorem {name} (p : Prop) : p → p := sorry\n" for name in names)

    def script(body: Mapping[str, Any]) -> Reply:
        asked = body["messages"][-1]["content"]
        mine = max(names, key=lambda name: asked.rfind(f"theorem {name} "))
        kind, _, which = mine.partition("_")
        return BAD[which][0] if kind == "bad" else Says("by\n  simp_all")

    with ChatServer(script) as server:
        given = parameters(tmp_path, source, parallel=4, **external(server, timeout_s=6))
        goals = {f"theorem {name} ": ["p : Prop\n⊢ p → p"] for name in names}
        bodies, _ = run(given, tmp_path / "job", script=Script(sorries=goals))
    tried = attempts(bodies)
    assert {name for name, body in tried.items() if body.outcome == "found"} == {
        name for name in names if name.startswith("good_")
    }
    assert set(tried) == set(names)
    for which, (_, said) in BAD.items():
        body = tried[f"bad_{which}"]
        assert said in f"{body.detail} {body.best}", (which, body.outcome, body.detail, body.best)


# --- what was paid is asked for once


def test_a_killed_job_pays_for_no_answer_twice(tmp_path: Path) -> None:
    """The endpoint falls silent in the middle of the second turn, and answers the job's next attempt."""
    source = "theorem t (p q : Prop) (h : p ∧ q) : q ∧ p := sorry\n"
    goals = Script(sorries={"theorem t": ["p q : Prop\nh : p ∧ q\n⊢ q ∧ p"]}, errors={"rfl": "it is not so"})
    silent, paid, answers = True, 0, tmp_path / "answers"

    def script(body: Mapping[str, Any]) -> Reply:
        nonlocal paid
        if paid == 3 and silent:
            return Silence()
        paid += 1
        return Says(f"by\n  exact rfl{paid}" if paid <= 4 else "by\n  simp_all", usage=(100, 10))

    with ChatServer(script, several="refused") as server:
        asked = external(server, answers=str(answers), timeout_s=100)
        asked |= {"whole": {"proofs": 2, "repairs": 2, "max_tokens": 100}}
        given = parameters(tmp_path, source, lean=scripted.backend(goals), **asked)
        given["budget"] = BUDGET | {"seconds": 100}
        killed = tmp_path / "one"
        killed.mkdir()
        spec = raw_spec("prove", given, killed).write()
        with subprocess.Popen([sys.executable, "-m", "pipeline.prove", "--spec", str(spec)]) as job:
            try:
                deadline = time.monotonic() + 100
                while len(list(answers.glob("[0-9a-f]*"))) < 3:
                    assert job.poll() is None, "it ended before it was to"
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
            finally:
                job.kill()
        silent = False
        tried = attempts(run(given, tmp_path / "two", script=goals)[0])["t"]
        assert (tried.outcome, paid) == ("found", 6), "what came before is not asked for again"
        assert tried.prompt_tokens == 600, "all of it was paid for, once"
        assert tried.usd == pytest.approx(0.00168)
        again = attempts(run(given, tmp_path / "three", script=goals)[0])["t"]
        assert (again.outcome, again.usd, paid) == ("found", tried.usd, 6), "nor is a whole search"


def test_answers_that_cannot_be_kept_fail_the_job_and_no_sorry(tmp_path: Path) -> None:
    no_folder = tmp_path / "answers"
    no_folder.write_text("a file")
    with ChatServer([Says("by\n  rfl")]) as server:
        error = failure(
            parameters(tmp_path, SOURCE, **external(server, answers=str(no_folder))), tmp_path / "job"
        )
        assert (error.reason, error.deterministic) == ("answers_not_kept", False)
        assert server.requests == [], "what could not be kept is not paid for"


# --- tactics


def test_an_endpoint_may_suggest_the_tactics_of_a_search(tmp_path: Path) -> None:
    def script(body: Mapping[str, Any]) -> Reply:
        goal = body["messages"][-1]["content"].rpartition("⊢")[2]
        return Says(["intro h", "```lean\nexact h\n```"] if "→" in goal else ["exact h", ""], usage=(100, 10))

    with ChatServer(script) as server:
        tactics = {"candidates": 2, "temperature": 0.5, "max_tokens": 64}
        asked = external(server, {"tactics": tactics})
        source = SOURCE.splitlines(keepends=True)[0] + "theorem no (p q : Prop) : p → q := sorry\n"
        goals = dict(SCRIPT.sorries) | {"theorem no": ["p q : Prop\n⊢ p → q"]}
        given = parameters(tmp_path, source, **asked)
        bodies, _ = run(given, tmp_path / "job", script=Script(goals, tactics=SCRIPT.tactics))
        request = server.requests[0].body
    tried = attempts(bodies)
    assert {name: body.outcome for name, body in tried.items()} == {"first": "found", "no": "exhausted"}
    assert (request["n"], request["temperature"], request["max_tokens"]) == (2, 0.5, 64)
    assert tried["first"].tree is not None
    assert tried["first"].prompt_tokens == 200
    assert tried["first"].usd == pytest.approx(0.00056)
    assert tried["no"].goals_left == 1, "no negation is paid for"
