"""Lean's reward, on a session whose answers are written down: what earns how much, and that nothing breaks it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.pool import PoolLimits
from pipeline.models.errors import RewardError
from pipeline.models.tactics.goals import statement
from pipeline.models.tactics.grpo import as_documented
from pipeline.models.tactics.reward import CompletionRow, LeanReward
from tests.support.lean.scripted import Script, backend, bare_place, in_process

SWAP = "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"
IMPLIES = "p q : Prop\n⊢ p → q → p ∧ q"
ABSURD = "p : Prop\nh : False\n⊢ p"
MANY = [f"p{number} : Prop\nh : p{number}\n⊢ p{number}" for number in range(12)]
LIMITS = PoolLimits(processes=2, ready_timeout_s=60, grace_s=0.5)


def script(
    tactics: Mapping[tuple[str, str], Any], *states: str, errors: Mapping[str, str] | None = None
) -> Script:
    """Return a Lean that reads these states as they were printed, and knows these tactics."""
    sorries = {}
    for state in states:
        stated = statement(state)
        assert stated is not None
        sorries[stated.header] = [state]
    return Script(sorries=sorries, tactics=tactics, errors=errors or {})


SAID = script(
    {
        ("q ∧ p", "exact ⟨h.2, h.1⟩"): [],
        ("q ∧ p", "constructor"): ["q", "p"],
        ("q ∧ p", "skip"): ["q ∧ p"],
        ("q ∧ p", "have g := h"): ["p q : Prop\nh g : p ∧ q\n⊢ q ∧ p"],
        ("q ∧ p", "exact h"): "type mismatch",
        ("q ∧ p", "exact hidden"): {"goals": [], "hasSorry": True},
        ("q ∧ p", "exact wrong"): [],
        ("p → q → p ∧ q", "intro hp"): ["p q : Prop\nhp : p\n⊢ q → p ∧ q"],
        ("q → p ∧ q", "grind"): [],
        ("p → q → p ∧ q", "intro hp hq"): ["p q : Prop\nhp : p\nhq : q\n⊢ p ∧ q"],
        ("p ∧ q", "assumption"): [],
        ("p", "exfalso"): ["False"],
        ("False", "assumption"): [],
        ("p", "contradiction"): [],
    },
    SWAP,
    IMPLIES,
    ABSURD,
    errors={"exact wrong": "unknown constant", "intro hp hq\n  assumption": "don't know how"},
)


@pytest.fixture
def reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeanReward]:
    in_process(monkeypatch, SAID)
    with closing(LeanReward(bare_place(backend(), tmp_path), limits=LIMITS)) as made:
        yield made


@pytest.mark.parametrize(
    ("state", "completion", "expected"),
    [
        (SWAP, "exact ⟨h.2, h.1⟩", "closed"),
        (SWAP, "```lean\nexact ⟨h.2, h.1⟩\n```", "closed"),
        (SWAP, "exact ⟨h.2, h.1⟩ -- and the rest", "closed"),
        (SWAP, "constructor", "open"),
        (SWAP, "skip", "repeated"),
        (SWAP, "have g := h", "repeated"),
        (SWAP, "exact h", "failed"),
        (SWAP, "exact wrong", "failed"),
        (SWAP, "exact hidden", "forbidden"),
        (IMPLIES, "intro hp", "progress"),
        (IMPLIES, "intro hp hq", "open"),
        (ABSURD, "exfalso", "open"),
        (SWAP, "", "no_tactic"),
        (SWAP, " \n\t", "no_tactic"),
        (SWAP, "simp /- never closed", "no_tactic"),
        (SWAP, "\x07", "no_tactic"),
        (SWAP, "x " * 10_000, "no_tactic"),
        (SWAP, "sorry", "forbidden"),
        (SWAP, "constructor\n· sorry\n· exact h.1", "forbidden"),
        (SWAP, "native_decide", "forbidden"),
        (SWAP, "exact?", "forbidden"),
        (SWAP, "exact sorryAx _ false", "forbidden"),
    ],
)
def test_a_completion_earns_what_lean_says_of_it(
    reward: LeanReward, state: str, completion: str, expected: str
) -> None:
    assert reward.judge([CompletionRow(state, completion, {})]) == [expected]


def test_the_stated_values_are_what_trl_is_given(reward: LeanReward) -> None:
    said = ["intro hp", "exact ⟨h.2, h.1⟩", "skip", "exact h", "", "sorry", "constructor"]
    states = [IMPLIES, *[SWAP] * 6]
    values = [0.2, 1.0, -0.1, 0.0, -0.2, -0.5, 0.0]
    as_messages = [[{"role": "assistant", "content": text}] for text in said]
    logged: dict[str, float] = {}
    assert (
        as_documented(reward)(
            completions=as_messages,
            problem=states,
            prompts=["…"] * 7,
            log_metric=lambda name, value: logged.update({name: value}),
        )
        == values
    )
    assert logged == {"lean/closed": 1 / 7, "lean/progress": 1 / 7, "lean/open": 1 / 7, "lean/unjudged": 0.0}


def test_the_same_tactics_get_the_same_verdicts_from_processes_that_start_again(
    reward: LeanReward, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [CompletionRow(SWAP, text, {}) for text in ["exact h", "constructor", "exact h", "exact h  "]]
    assert reward.judge(asked) == ["failed", "open", "failed", "failed"]
    reward.close()
    started = in_process(monkeypatch, SAID)
    assert reward.judge(asked) == ["failed", "open", "failed", "failed"]
    assert started


def test_many_goals_are_judged_at_once_from_any_thread_and_inside_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tactics = {
        (f"p{number}", text): list[str]() for number in range(12) for text in ("exact h", "assumption")
    }
    started = in_process(monkeypatch, script(tactics, *MANY))
    with closing(LeanReward(bare_place(backend(), tmp_path), limits=LIMITS)) as made:

        async def inside() -> list[float | None]:
            return await asyncio.to_thread(made, ["exact h"] * 12, MANY)

        assert asyncio.run(inside()) == [1.0] * 12
        assert made(["assumption"] * 12, MANY) == [1.0] * 12
    assert 1 <= len(started) <= 2


# ---- processes that die and hang


def test_what_a_process_dies_of_has_failed_and_the_other_verdicts_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = in_process(monkeypatch, SAID)
    said = ["exact ⟨h.2, h.1⟩", "fault crash", "constructor", "fault hang", "sorry", "exact h"]
    with closing(LeanReward(bare_place(backend(), tmp_path), limits=LIMITS)) as made:
        assert made(said, [SWAP] * 6) == [1.0, 0.0, 0.0, 0.0, -0.5, 0.0]
    assert len(started) > 2, "those that died were replaced"


def test_what_takes_too_long_is_left_out_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_process(monkeypatch, SAID)
    places = bare_place(backend(), tmp_path)
    with closing(LeanReward(places, limits=LIMITS, tactic_timeout_s=600.0, batch_timeout_s=0.2)) as made:
        assert made(["sleep 300000", "exact h", "sorry"], [SWAP] * 3) == [None, None, -0.5]
    assert any("not judged within 0.2 s" in record.getMessage() for record in caplog.records)


def test_a_lean_that_does_not_start_ends_the_training_with_what_it_said(tmp_path: Path) -> None:
    with (
        closing(LeanReward(bare_place(backend(start_fault=1.0), tmp_path), limits=LIMITS)) as made,
        pytest.raises(RewardError, match="Lean cannot be started to reward anything"),
    ):
        made(["exact h"], [SWAP])


# ---- bad input


def test_a_dataset_without_goals_is_refused(reward: LeanReward) -> None:
    with pytest.raises(TypeError, match='no column "problem"'):
        reward(completions=["simp"])
