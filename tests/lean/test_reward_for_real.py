"""The reward of tactics, with Lean 4.35.0 itself as the judge: the steps that run on every goal earn nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.lean.pool import PoolLimits
from pipeline.models.tactics.goals import SourcePlaces
from pipeline.models.tactics.reward import CompletionRow, LeanReward
from tests.support.lean.scripted import bare_place
from tests.support.trace import lean_itself

pytestmark = pytest.mark.timeout(120)

LIMITS = PoolLimits(processes=1, ready_timeout_s=60)
SWAP = "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"
BOTH = "p q : Prop\nhp : p\nhq : q\n⊢ p ∧ q"
FALSE = "p q : Prop\nh : p\n⊢ q"
ABSURD = "h : False\np : Prop\n⊢ p"
EXISTS = "f : Nat → Nat\n⊢ ∃ n, f (n + 1) = f 7 ∧ n < 9"
TWO = "2 goals\ncase left\np q : Prop\nh : p\n⊢ p\n\ncase right\np q : Prop\nh : p\n⊢ q"


@pytest.fixture(scope="module")
def reward(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeanReward]:
    places = bare_place(lean_itself(real_lean), tmp_path_factory.mktemp("project"))
    with closing(LeanReward(places, limits=LIMITS)) as made:
        yield made


def outcomes(reward: LeanReward, *asked: tuple[str, str]) -> list[str]:
    found = reward.judge([CompletionRow(state, text, {}) for state, text in asked])
    return [one or "unjudged" for one in found]


def test_lean_rewards_what_proves_and_no_step_that_leaves_what_is_not_closed(reward: LeanReward) -> None:
    tricks = ["exfalso", "by_contra h0", "have h0 : True := trivial", "have h0 : p → p := fun x => x"]
    found = outcomes(reward, *((state, trick) for state in (BOTH, FALSE) for trick in tricks))
    assert set(found) <= {"open", "repeated", "failed"}
    assert found.count("open") >= 4
    said = {
        (SWAP, "exact ⟨h.2, h.1⟩"): "closed",
        (SWAP, "constructor\n· exact h.2\n· exact h.1"): "closed",
        (SWAP, "have g : q ∧ p := ?_"): "repeated",
        (SWAP, "exact h"): "failed",
        (SWAP, "exact everlean_goal p q h"): "failed",
        (SWAP, "no such tactic"): "failed",
        (EXISTS, "refine ⟨6, ?_⟩"): "progress",
        (ABSURD, "exfalso\nexact h"): "closed",
        (ABSURD, "exfalso"): "open",
        (TWO, "exact h"): "closed",
    }
    assert dict(zip(said, outcomes(reward, *said), strict=True)) == said


def test_a_goal_that_does_not_come_back_from_its_text_is_left_out_and_the_others_go_on(
    reward: LeanReward, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = "x : Unknown.Type\n⊢ x = x"
    with_value = "x : Nat := 3\n⊢ x = 3"
    otherwise = "p : Prop\nh : (p)\n⊢ p"
    states = [unknown, SWAP, with_value, unknown, otherwise]
    said = ["rfl", "exact ⟨h.2, h.1⟩", "rfl", "trivial", "exact h"]
    assert reward(completions=said, problem=states) == [None, 1.0, None, None, None]
    noted = {
        record.getMessage().split(";")[0].removeprefix("no reward for a goal: ") for record in caplog.records
    }
    assert {"it cannot be written as a theorem", "Lean reads another goal in it"} < noted
    assert any(line.startswith("Lean does not read it as it was printed: ") for line in noted)
    assert len(caplog.records) == 3


def test_a_theorem_is_stated_in_its_file_with_what_stands_before_it_alone(
    real_lean: Path, tmp_path: Path
) -> None:
    lines = [
        "namespace Demo",
        "theorem helper (p : Prop) (h : p) : p ∧ p := ⟨h, h⟩",
        "theorem goal (p : Prop) (h : p) : p ∧ p := by",
        "  exact helper p h",
        "theorem later (p : Prop) (h : p) : p ∧ p := ⟨h, h⟩",
        "end Demo",
    ]
    (tmp_path / "Demo.lean").write_text("\n".join(lines) + "\n", encoding="utf-8")
    state = "p : Prop\nh : p\n⊢ p ∧ p"
    said = ["exact helper p h", "exact Demo.helper p h", "exact goal p h", "exact later p h", "exact ⟨h, h⟩"]
    with closing(LeanReward(SourcePlaces(lean_itself(real_lean), tmp_path), limits=LIMITS)) as made:
        rewards = made(
            completions=said, problem=[state] * 5, path=["Demo.lean"] * 5, start=[[3, 1]] * 4 + [[6, 1]]
        )
    assert rewards == [1.0, 1.0, 0.0, 0.0, None]
