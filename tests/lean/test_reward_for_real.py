"""The reward of tactics, with Lean 4.35.0 itself as the judge: the steps that run on every goal earn nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lean.pool import PoolLimits
from pipeline.models.tactics.goals import bare_place
from pipeline.models.tactics.reward import CompletionRow, LeanReward
from tests.support.trace import lean_itself

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]

BOTH = "p q : Prop\nhp : p\nhq : q\n⊢ p ∧ q"
FALSE = "p q : Prop\nh : p\n⊢ q"
EXISTS = "f : Nat → Nat\n⊢ ∃ n, f (n + 1) = f 7 ∧ n < 9"


def test_lean_rewards_no_step_that_leaves_what_is_not_closed(real_lean: Path, tmp_path: Path) -> None:
    tricks = ["exfalso", "by_contra h0", "have h0 : True := trivial", "have h0 : p → p := fun x => x"]
    asked = [CompletionRow(state, trick, {}) for state in (BOTH, FALSE) for trick in tricks]
    asked += [CompletionRow(BOTH, "exact ⟨hp, hq⟩", {}), CompletionRow(EXISTS, "refine ⟨6, ?_⟩", {})]
    limits = PoolLimits(processes=1, ready_timeout_s=60)
    with LeanReward(bare_place(lean_itself(real_lean), tmp_path), limits=limits) as reward:
        found = ["unjudged" if one is None else one.outcome for one in reward.judge(asked)]
    assert set(found[: len(asked) - 2]) <= {"open", "repeated", "failed"}
    assert found.count("open") >= 4
    assert found[-2:] == ["closed", "progress"]
