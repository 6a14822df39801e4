"""LeanDojo's ExternalProver, against an endpoint on a real socket and Lean's stand-in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.endpoint.client import ChatClient
from pipeline.endpoint.errors import ExternalError, SpendingError
from pipeline.jobs.specs import Budget, EndpointSpec
from pipeline.lean.client.messages import Goal
from pipeline.models.tactics.requests import Decoding
from pipeline.prove.authors import EndpointModel
from pipeline.prove.generator import GeneratorProposer
from pipeline.prove.graph import Proposer, TacticRequest
from pipeline.prove.provers import ExternalProver
from pipeline.prove.server import Server
from tests.support.chat_server import ChatServer, Fails, Reply, Says, Sends

SMALL = Budget(nodes=6, seconds=20.0, tactic_timeout_s=5.0)
PROVABLE = "∀ (p : Prop), p → p"
SWAP = "theorem t (p q : Prop) : p ∧ q → q ∧ p"


def tactician(body: Mapping[str, Any]) -> Reply:
    """Answer as a model that knows a proof of PROVABLE, and talks too much."""
    goal = body["messages"][1]["content"].splitlines()[-1]
    if "→" in goal:
        return Says(["```lean\nintro p h\n```", "decide", "intro p h /- I think", "```lean\nintro p h\n```"])
    return Says(["sorry", "exact h", "", "exact h -- done"])


def prover(server: ChatServer, **options: Any) -> ExternalProver:
    settings: dict[str, Any] = {"base_url": server.url, "budget": SMALL, "retries": 0, "key_variable": "NONE"}
    return ExternalProver("org/model", **settings | options)


def test_a_proposition_is_proved_with_the_endpoint_s_tactics(server: Server) -> None:
    with ChatServer(tactician) as endpoint, prover(endpoint) as made:
        result, tactics = made.search(server, goal=PROVABLE)
        assert tactics == ["intro p h", "exact h"], result
        assert result.success
        assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (20, 10)
    assert [one.body["n"] for one in endpoint.requests] == [4, 4]
    assert made.usage.prompt_tokens == 20, "what was spent is known after the end too"


def test_an_endpoint_that_fails_ends_the_search_in_words(server: Server) -> None:
    with ChatServer([Sends(b"<html>Sign in</html>")]) as endpoint, prover(endpoint) as made:
        result, tactics = made.search(server, goal=PROVABLE)
        assert tactics is None
        assert not result.success
        assert "a page (Sign in)" in result.detail
        assert made.usage.completion_tokens > 0


def test_the_next_tactic_is_the_most_frequent_one() -> None:
    with ChatServer(tactician) as endpoint, prover(endpoint) as made:
        assert made.next_tactic(PROVABLE) == "intro p h"
        assert made.next_tactic(PROVABLE) == "decide"
        assert made.next_tactic(PROVABLE) is None
    assert len(endpoint.requests) == 1


def test_a_failure_is_not_remembered_as_the_answer() -> None:
    with ChatServer([Fails(400, "not now"), Says("intro p")]) as endpoint, prover(endpoint) as made:
        assert made.next_tactic(PROVABLE) is None
        assert made.next_tactic(PROVABLE) == "intro p"


def test_a_whole_proof_is_mended_by_lean_s_errors(server: Server) -> None:
    script = [
        Says("by\n  intro h\n  exact ⟨h.1, h.2⟩"),
        Says("```lean\nby\n  intro h\n  exact ⟨h.2, h.1⟩\n```"),
    ]
    with ChatServer(script) as endpoint, prover(endpoint) as made:
        assert made.generate_whole_proof(SWAP, server) == "by\n  intro h\n  exact ⟨h.2, h.1⟩"
        assert made.usage.completion_tokens == 10
    request = endpoint.requests[1].body["messages"][1]["content"]
    assert "exact ⟨h.1, h.2⟩" in request
    assert "at `exact ⟨h.1, h.2⟩`: " in request


def test_without_lean_the_first_text_is_returned_and_the_statement_is_the_caller_s() -> None:
    with ChatServer([Says("theorem t : False := by\n  simp_all")]) as endpoint, prover(endpoint) as made:
        assert made.generate_whole_proof(SWAP) == "by\n  simp_all"


@pytest.mark.parametrize(
    "reply", [Says(""), Says("by si", finish="length"), Fails(401), Says("theorem t : p")]
)
def test_no_whole_proof_is_an_empty_text_and_a_line_in_the_log(
    reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with ChatServer([reply]) as endpoint, prover(endpoint) as made:
        assert made.generate_whole_proof(SWAP) == ""
    assert caplog.text.count("no whole proof: ") == 1


def test_the_cap_of_a_day_holds_for_a_search(server: Server, tmp_path: Path) -> None:
    with ChatServer(tactician) as endpoint:
        prices = {"usd_per_million_prompt": 1, "usd_per_million_completion": 1}
        with prover(endpoint, usd_per_day=0.0001, ledger=tmp_path / "ledger.jsonl", **prices) as made:
            result, _ = made.search(server, goal=PROVABLE)
        assert "spending cap" in result.detail
        assert endpoint.requests == []


def test_unusable_settings_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpendingError, match="no prices"):
        ExternalProver("m", usd_per_day=1.0, ledger="x")
    monkeypatch.setenv("EVERLEAN_MODEL_KEY", "sk-secret")
    with pytest.raises(ExternalError, match="unencrypted"):
        ExternalProver("m", base_url="http://gpu.example.org/v1")


def test_the_router_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf secret")
    monkeypatch.setenv("EVERLEAN_MODEL_KEY", "fine")
    with pytest.raises(ExternalError, match="HF_TOKEN holds no key"):
        ExternalProver("m")
    ExternalProver("m", base_url="https://api.example.org/v1")


def test_a_rung_proposes_with_the_share_of_the_answers_as_probability() -> None:
    asked = TacticRequest(
        (Goal.from_json({"name": "g", "target": {"pp": "p → p"}, "vars": [], "isConversion": False}),), (), 7
    )

    async def propose(url: str) -> tuple[list[tuple[str, float]], str]:
        async with ChatClient(EndpointSpec(base_url=url, model="m")) as client:
            rung = GeneratorProposer(EndpointModel(client).suggest, decoding=Decoding(4, "sampling", 0.6))
            checked: Proposer = rung
            found = [(one.text, one.log_probability) for one in await checked.propose(asked)]
            return found, rung.reason

    with ChatServer(tactician) as endpoint:
        found, reason = asyncio.run(propose(endpoint.url))
    assert reason == ""
    assert [text for text, _ in found] == ["intro p h", "decide"]
    assert [round(number, 3) for _, number in found] == [-0.405, -1.099]
