"""The prove job on its rungs: models of this machine, and a script that answers in Lean's place."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.endpoint.errors import Usage
from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import KnownProof
from pipeline.lean.pool import PoolLimits
from pipeline.models.tactics.requests import Request, Suggestion, Suggestions
from pipeline.prove.declaration import tactics_of
from pipeline.prove.effort import Attempt
from pipeline.prove.generator import GeneratorProposer
from pipeline.prove.graph import Candidate, Proposer, TacticRequest
from pipeline.prove.rungs import Engine, ModelHealth, ladder
from pipeline.prove.tree import Tree
from pipeline.prove.whole_proof import AuthorAnswers, WholeAsk, WholeProofMethod
from store.events.proofs import AttemptFinished, ProofFound
from tests.support.lean.scripted import Script
from tests.support.prove import LINES, SCRIPT, SOURCE, Searches, attempts, parameters, recorded, run


def tree_of(body: AttemptFinished, folder: Path) -> Tree:
    assert body.tree is not None
    return Tree.from_json(json.loads((folder / "staging" / body.tree.sha256).read_bytes()))


# --- what a search leaves behind


def test_each_attempt_cites_the_tree_of_its_search(tmp_path: Path) -> None:
    bodies, _ = run(parameters(tmp_path, SOURCE), tmp_path / "job", script=SCRIPT)
    tried = attempts(bodies)
    assert {name: body.outcome for name, body in tried.items()} == {
        "first": "found",
        "second": "found",
        "third": "exhausted",
    }
    for body in tried.values():
        tree = tree_of(body, tmp_path / "job")
        assert (tree.outcome == "found") == (body.outcome == "found")
        assert (tree.best, bool(tree.proof)) == (body.best, body.outcome == "found")
    assert (tried["first"].goals_left, tried["third"].goals_left) == (0, 1)
    assert (tried["third"].model, tried["third"].usd, tried["third"].prompt_tokens) == ("", None, 0)


def test_two_jobs_that_find_the_same_text_record_it_as_events_of_their_own(tmp_path: Path) -> None:
    given = parameters(tmp_path, SOURCE.splitlines(keepends=True)[0])
    one = run(given, tmp_path / "one", job="prove-1", script=SCRIPT)
    two = run(given, tmp_path / "two", job="prove-2", script=SCRIPT)
    ids = [{event["event_id"] for event in events} for _, events in (one, two)]
    assert [len(some) for some in ids] == [2, 2]
    assert not ids[0] & ids[1]
    proofs = [body.proof for bodies, _ in (one, two) for body in bodies if isinstance(body, ProofFound)]
    assert proofs[0] == proofs[1]


# --- rungs


@pytest.mark.parametrize(
    ("changes", "reason", "deterministic"),
    [
        ({"generator": {"path": "nowhere", "device": "cpu"}}, "bad_model", False),
        ({"generator": {"path": "EMPTY", "device": "cpu"}}, "bad_model", True),
        ({"generator": {"path": "EMPTY", "device": "gpu"}}, "bad_config", True),
        ({"generator": {"path": "EMPTY", "candidates": 0}}, "bad_spec", True),
        ({}, "bad_spec", True),
        ({"rung": 1, "generator": {"path": "EMPTY"}}, "bad_spec", True),
        ({"rung": 5}, "bad_spec", True),
        ({"rung": 4, "whole": {}, "endpoint": {"model": "m"}}, "bad_spec", True),
        ({"rung": 4, "endpoint": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}}, "bad_spec", True),
    ],
)
def test_a_job_whose_model_cannot_be_used_fails_before_any_sorry(
    tmp_path: Path, changes: dict[str, Any], reason: str, deterministic: bool
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    text = json.dumps({"rung": 2} | changes).replace("EMPTY", str(empty))
    with pytest.raises(JobError) as caught:
        run(parameters(tmp_path, SOURCE, **json.loads(text)), tmp_path / "job")
    assert (caught.value.reason, caught.value.deterministic) == (reason, deterministic)


class Broken:
    """A service that fails for the states with these numbers, and answers `skip` to the others."""

    def __init__(self, *fails_at: int) -> None:
        self.fails_at = fails_at
        self.asked = 0

    async def suggest(self, request: Request) -> Suggestions:
        self.asked += 1
        if self.asked in self.fails_at:
            raise RuntimeError("the device is gone")
        return Suggestions((Suggestion("intro h", -1.0),), {}, Usage(5, 2))


@pytest.mark.parametrize(
    ("fails_at", "outcome", "cost"), [((1,), "error", (0, 0)), ((2,), "exhausted", (5, 2))]
)
def test_a_model_that_answers_for_no_state_leaves_an_error_and_nothing_that_was_tried(
    tmp_path: Path, fails_at: tuple[int, ...], outcome: str, cost: tuple[int, int]
) -> None:
    broken = Broken(*fails_at, 3, 4)
    engine = Engine(lambda _place, _shown: GeneratorProposer(broken.suggest))
    with Searches(tmp_path, script=Script(tactics={("", "intro h"): ["h : p\n⊢ q"]})) as lean:
        tried = lean.attempt("theorem t (p q : Prop) : p → q := sorry\n", engine)["t"]
    assert (tried.outcome, "the device is gone" in tried.detail) == (outcome, True), tried
    assert (tried.effort.cost.prompt_tokens, tried.effort.cost.completion_tokens) == cost


class Meeting(Proposer):
    """Proposes nothing until as many searches ask as are expected, so that only searches side by side get on."""

    def __init__(self, expected: int) -> None:
        self._barrier = asyncio.Barrier(expected)
        self._missing = expected

    async def propose(self, asked: TacticRequest) -> list[Candidate]:
        if self._missing:
            self._missing -= 1
            async with asyncio.timeout(10):
                await self._barrier.wait()
        return [Candidate("simp_all", "simp_all")]


def attempt_all(folder: Path, engine: Engine | None, **more: Any) -> dict[str, Attempt]:
    with Searches(folder, script=SCRIPT, limits=PoolLimits(processes=2)) as lean:
        return lean.attempt(SOURCE, engine, **more)


def test_the_sorries_of_one_file_ask_a_model_together(tmp_path: Path) -> None:
    meeting = Meeting(3)
    engine = Engine(lambda _place, _shown: meeting)
    tried = attempt_all(tmp_path, engine, slots=3)
    assert {name: attempt.outcome for name, attempt in tried.items()} == {
        "first": "found",
        "second": "found",
        "third": "exhausted",
    }


def test_the_day_s_last_money_ends_the_job_when_what_it_bought_is_recorded(tmp_path: Path) -> None:
    async def write(ask: WholeAsk) -> AuthorAnswers:
        if ask.declaration.name != "first":
            refused.set()
            return AuthorAnswers((), error="the day's cap leaves no room", reason="spending_cap")
        async with asyncio.timeout(60):
            await refused.wait()
        return AuthorAnswers(("by\n  simp_all",))

    refused, answering = asyncio.Event(), ModelHealth(alone=True)
    wholly = WholeProofMethod(answering.watch(write), proofs=1, repairs=0)
    engine = Engine(ladder().propose, wholly=wholly, again=False, answering=answering)
    with pytest.raises(JobError, match="leaves no room"):
        run(parameters(tmp_path, SOURCE, parallel=2), tmp_path / "job", script=SCRIPT, own=engine)
    bodies, _ = recorded((tmp_path / "job" / LINES).read_text())
    assert {name: one.outcome for name, one in attempts(bodies).items()} == {"first": "found"}


@pytest.mark.parametrize("reason", ["spending_cap", "auth_failed"])
def test_what_a_declaration_s_first_sorry_paid_for_is_recorded_where_the_model_fails_at_the_second(
    tmp_path: Path, reason: str
) -> None:
    async def write(ask: WholeAsk) -> AuthorAnswers:
        if ask.sorry.ordinal:
            return AuthorAnswers((), error="no more", reason=reason)
        return AuthorAnswers(("by\n  exact h",), Usage(10, 1, 0.5))

    answering = ModelHealth(alone=True)
    wholly = WholeProofMethod(answering.watch(write), proofs=1, repairs=0)
    engine = Engine(ladder().propose, wholly=wholly, again=False, answering=answering)
    source = "theorem pair (p q : Prop) (h : p) : p ∧ q := ⟨sorry, sorry⟩\n"
    script = Script(sorries={"theorem pair": ["h : p\n⊢ p", "h : p\n⊢ q"]})
    with pytest.raises((JobError, ExceptionGroup)):
        run(parameters(tmp_path, source), tmp_path / "job", script=script, own=engine)
    proof, attempt = recorded((tmp_path / "job" / LINES).read_text())[0]
    assert (proof.tactics, attempt.outcome, attempt.usd) == (("exact h",), "found", 0.5)


def test_a_model_that_is_silent_for_the_time_of_each_search_fails_the_job_and_no_sorry(
    tmp_path: Path,
) -> None:
    async def suggest(_: Request) -> Suggestions:
        await asyncio.Event().wait()
        raise AssertionError("nothing wakes it")

    answering = ModelHealth(alone=True)
    watched = answering.watch(suggest)
    engine = Engine(lambda _place, _shown: GeneratorProposer(watched), again=False, answering=answering)
    given = parameters(tmp_path, SOURCE, budget={"seconds": 0.1, "nodes": 20, "tactic_timeout_s": 5})
    with pytest.raises(JobError, match="at all: it gave no answer in time"):
        run(given, tmp_path / "job", script=SCRIPT, own=engine)
    assert recorded((tmp_path / "job" / LINES).read_text()) == ([], [])


def test_a_proof_text_is_recorded_as_its_tactics() -> None:
    proof = "by\n  intro h\n  cases h with\n  | inl a => exact a\n  | inr b =>\n    exact b\n  done"
    assert tactics_of(proof) == (
        "intro h",
        "cases h with\n| inl a => exact a\n| inr b =>\n  exact b",
        "done",
    )
    assert tactics_of("fun h => h") == ("exact fun h => h",)


# --- proofs that are known


def test_a_known_proof_is_tried_first_and_a_wrong_one_does_no_harm(tmp_path: Path) -> None:
    known = {
        "first": (KnownProof("k1", ("intro h", "exact h")),),
        "second": (KnownProof("k2", ("intro h", "exact h")), KnownProof("k3", ("simp_all",))),
        "third": (KnownProof("k4", ("rfl",)),),
    }
    engine = Engine(lambda _place, _shown: Meeting(1))
    tried = attempt_all(tmp_path, engine, known=known)
    first, second, third = (tried[name] for name in ("first", "second", "third"))
    assert first.proof is not None
    assert (first.proof.tactics, first.detail) == (("intro h", "exact h"), "by k1")
    assert second.proof is not None
    assert (second.proof.tactics, second.detail) == (("simp_all",), "by k3")
    assert second.effort.nodes == 2, "what was in vain before it counts"
    assert (third.outcome, third.detail) == ("exhausted", "no tactic is left to try")
