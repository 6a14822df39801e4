"""Lean's reward, with the simulator as a real process: what earns how much, and that nothing breaks it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.backend import LeanBackend, simulator
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.session import Answer, Session, State
from pipeline.models.errors import ConfigError, RewardError
from pipeline.models.tactics.goals import GoalContext, SourcePlaces, bare_place
from pipeline.models.tactics.reward import CompletionRow, LeanReward, RewardValues

SWAP = "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"
LIMITS = PoolLimits(processes=2, ready_timeout_s=60, grace_s=0.5)


@pytest.fixture(scope="module")
def reward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeanReward]:
    places = bare_place(simulator(), tmp_path_factory.mktemp("project"))
    with LeanReward(places, limits=LIMITS) as made:
        yield made


def outcome(reward: LeanReward, state: str, completion: Any) -> str | None:
    (verdict,) = reward.judge([CompletionRow(state, completion, {})])
    return None if verdict is None else verdict.outcome


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("exact ⟨h.2, h.1⟩", "closed"),
        ("constructor\n· exact h.2\n· exact h.1", "closed"),
        ("```lean\nexact ⟨h.2, h.1⟩\n```", "closed"),
        ("exact ⟨h.2, h.1⟩ -- and the rest", "closed"),
        ([{"role": "assistant", "content": "exact ⟨h.2, h.1⟩"}], "closed"),
        ("constructor", "open"),
        ("obtain ⟨a, b⟩ := h", "open"),
        ("skip", "repeated"),
        ("have g := h", "repeated"),
        ("have g : q ∧ p := ?_", "repeated"),
        ("exact h", "failed"),
        ("exact everlean_goal p q h", "failed"),
        ("rfl", "failed"),
        ("no such tactic", "failed"),
        ("", "no_tactic"),
        (" \n\t", "no_tactic"),
        ("simp /- never closed", "no_tactic"),
        ("\x07", "no_tactic"),
        ("x " * 10_000, "no_tactic"),
        ("sorry", "forbidden"),
        ("admit", "forbidden"),
        ("exact sorry", "forbidden"),
        ("constructor\n· sorry\n· exact h.1", "forbidden"),
        ("native_decide", "forbidden"),
        ("exact?", "forbidden"),
        ("exact sorryAx _ false", "forbidden"),
    ],
)
def test_a_completion_earns_what_lean_says_of_it(reward: LeanReward, completion: Any, expected: str) -> None:
    assert outcome(reward, SWAP, completion) == expected


BOTH = "p q : Prop\nhp : p\nhq : q\n⊢ p ∧ q"
IMPLIES = "p q : Prop\n⊢ p → q → p ∧ q"
EXISTS = "p : Nat → Prop\nh : p 3\n⊢ ∃ x, p x"
FALSE = "p q : Prop\nh : p\n⊢ q"
TRICKS = [
    "exfalso",
    "refine Classical.byContradiction fun absurd => ?_",
    "have h0 : True := trivial",
    "have h0 : p → p := fun x => x",
    "have h0 : p ∨ ¬p := Classical.em p",
]
"""Steps that run on any goal; the second is what `by_contra absurd` does."""


@pytest.mark.parametrize("state", [BOTH, SWAP, IMPLIES, FALSE])
@pytest.mark.parametrize("trick", TRICKS)
def test_a_step_that_runs_on_every_goal_earns_nothing(reward: LeanReward, state: str, trick: str) -> None:
    assert outcome(reward, state, trick) in ("open", "repeated")
    assert reward.values.open == 0.0


@pytest.mark.parametrize(
    ("state", "step"), [(IMPLIES, "intro hp"), (IMPLIES, "intro hp hq"), (EXISTS, "refine ⟨3, ?_⟩")]
)
def test_a_step_earns_something_where_all_that_it_leaves_is_closed(
    reward: LeanReward, state: str, step: str
) -> None:
    assert outcome(reward, state, step) == "progress"


def test_a_trick_on_the_way_to_a_proof_earns_what_the_proof_earns(reward: LeanReward) -> None:
    absurd = "h : False\np : Prop\n⊢ p"
    assert outcome(reward, absurd, "exfalso\nexact h") == "closed"
    assert outcome(reward, absurd, "exfalso") == "open", "what closes the rest closes the goal without it"


def test_a_step_whose_rest_is_closed_by_no_proof_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Session.tactic

    async def mistaken(self: Session, state: State, tactic: str, **given: Any) -> Answer:
        """Close with every finisher what a step leaves, and not the goal itself."""
        closes = tactic == "assumption" and len(state.goals) == 1 and "→" not in repr(state.goals)
        return await real(self, state, "exact ⟨hp, hq⟩" if closes else tactic, **given)

    monkeypatch.setattr(Session, "tactic", mistaken)
    with LeanReward(bare_place(simulator(), tmp_path), limits=LIMITS) as made:
        (found,) = made.judge([CompletionRow(IMPLIES, "intro hp hq", {})])
    assert found is not None
    assert found.outcome == "open"
    assert found.why.startswith("it does not compile as a proof: ")


def test_the_stated_values_are_what_trl_is_given(reward: LeanReward) -> None:
    said = ["intro hp", "intro hp hq; exact ⟨hp, hq⟩", "skip", "exact h", "", "sorry", "exfalso"]
    values = [0.2, 1.0, -0.1, 0.0, -0.2, -0.5, 0.0]
    assert reward(completions=said, problem=[IMPLIES] * 7) == values
    as_messages = [[{"role": "assistant", "content": text}] for text in said]
    logged: dict[str, float] = {}
    assert (
        reward(
            completions=as_messages,
            problem=[IMPLIES] * 7,
            prompts=["…"] * 7,
            log_metric=lambda name, value: logged.update({name: value}),
        )
        == values
    )
    assert logged == {"lean/closed": 1 / 7, "lean/progress": 1 / 7, "lean/open": 1 / 7, "lean/unjudged": 0.0}


def test_what_was_judged_is_remembered_and_asked_once(tmp_path: Path) -> None:
    with LeanReward(bare_place(simulator(), tmp_path), limits=LIMITS) as made:
        asked = [CompletionRow(SWAP, text, {}) for text in ["exact h", "constructor", "exact h", "exact h  "]]
        first = made.judge(asked)
        assert (made.cached, made.counts["failed"], made.counts["open"]) == (0, 3, 1)
        made.close()
        # With no process any more: nothing is asked.
        made._pool = None
        assert made.judge(asked) == first
        assert made.cached == 4
        assert made._pool is None


def test_no_more_verdicts_are_kept_than_wanted_and_the_oldest_go_first(tmp_path: Path) -> None:
    with LeanReward(bare_place(simulator(), tmp_path), limits=LIMITS, remembered=2) as made:
        for text, cached in (("skip", 0), ("rfl", 0), ("skip", 1), ("exact h", 1), ("skip", 2), ("rfl", 2)):
            made([text], [SWAP])
            assert made.cached == cached


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


def test_only_the_first_goal_of_a_state_is_asked_for(reward: LeanReward) -> None:
    assert (
        outcome(
            reward,
            "2 goals\ncase left\np q : Prop\nh : p\n⊢ p\n\ncase right\np q : Prop\nh : p\n⊢ q",
            "exact h",
        )
        == "closed"
    )


def test_a_theorem_is_stated_in_its_file_with_what_stands_before_it_alone(tmp_path: Path) -> None:
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
    with LeanReward(SourcePlaces(simulator(), tmp_path), limits=LIMITS) as made:
        rewards = made(
            completions=said, problem=[state] * 5, path=["Demo.lean"] * 5, start=[[3, 1]] * 4 + [[6, 1]]
        )
    assert rewards == [1.0, 1.0, 0.0, 0.0, None]


def test_many_goals_are_judged_at_once_from_any_thread_and_inside_a_loop(tmp_path: Path) -> None:
    states = [f"p{number} : Prop\nh : p{number}\n⊢ p{number}" for number in range(12)]
    with LeanReward(bare_place(simulator(), tmp_path), limits=LIMITS) as made:

        async def inside() -> list[float | None]:
            return await asyncio.to_thread(made, ["exact h"] * 12, states)

        assert asyncio.run(inside()) == [1.0] * 12
        assert made(["assumption"] * 12, states) == [1.0] * 12
        assert made._pool is not None
        assert made._pool.stats.started <= 2


def test_no_goals_left_is_only_a_hint_and_the_whole_proof_has_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Session.tactic

    async def mistaken(self: Session, state: State, tactic: str, **given: Any) -> Answer:
        return await real(self, state, "exact ⟨h.2, h.1⟩", **given)

    monkeypatch.setattr(Session, "tactic", mistaken)
    with LeanReward(bare_place(simulator(), tmp_path), limits=LIMITS) as made:
        wrong, right = made.judge([CompletionRow(SWAP, text, {}) for text in ("exact h", "exact ⟨h.2, h.1⟩")])
    assert wrong is not None
    assert right is not None
    assert (wrong.outcome, right.outcome) == ("failed", "closed")
    assert wrong.why.startswith("it does not compile as a proof: ")


# ---- processes that die and hang


def faulty(*faults: str) -> LeanBackend:
    backend = simulator()
    return replace(backend, argv=(*backend.argv, "--seed=3", *(f"--fault={fault}" for fault in faults)))


def test_processes_that_die_are_replaced_and_the_verdicts_stand(tmp_path: Path) -> None:
    states = [f"p{number} q : Prop\nh : p{number}\n⊢ p{number} ∧ (q → q)" for number in range(8)]
    said = ["exact ⟨h, id⟩", "constructor", "exact h", "sorry"] * 8
    problem = [state for state in states for _ in range(4)]
    with LeanReward(bare_place(faulty("crash%0.05"), tmp_path), limits=LIMITS) as made:
        rewards = made(said, problem)
        assert made._pool is not None
        assert made._pool.stats.died > 2
    pairs = list(zip(rewards, [1.0, 0.0, 0.0, -0.5] * 8, strict=True))
    # A tactic that two processes died of has failed; nothing is ever better for a death.
    assert all(got is not None and got <= wanted for got, wanted in pairs)
    assert sum(got == wanted for got, wanted in pairs) >= 28


def test_a_process_that_hangs_does_not_hold_up_the_training(tmp_path: Path) -> None:
    limits = replace(LIMITS, call_timeout_s=30.0)
    with LeanReward(
        bare_place(faulty("hang@5"), tmp_path), limits=limits, tactic_timeout_s=30.0, batch_timeout_s=3.0
    ) as made:
        started = time.monotonic()
        rewards = made(["exact h", "skip", "sorry"] * 2, [SWAP] * 3 + ["p : Prop\nh : p\n⊢ p"] * 3)
        assert time.monotonic() - started < 20
    assert rewards.count(None) >= 2
    assert rewards[2] == rewards[5] == -0.5


def test_a_lean_that_does_not_start_ends_the_training_with_what_it_said(tmp_path: Path) -> None:
    with (
        LeanReward(bare_place(faulty("exit-before-ready"), tmp_path), limits=LIMITS) as made,
        pytest.raises(RewardError, match="Lean cannot be started to reward anything"),
    ):
        made(["exact h"], [SWAP])


def test_what_takes_too_long_is_left_out_and_the_call_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LeanReward(bare_place(simulator(), tmp_path), limits=LIMITS, batch_timeout_s=0.0) as made:
        started = time.monotonic()
        assert made(["exact h"], [SWAP]) == [None]
        assert time.monotonic() - started < 20
        assert made.counts == {"unjudged": 1}
    assert any("not judged within 0 s" in record.getMessage() for record in caplog.records)


# ---- bad input


def test_a_dataset_without_goals_is_refused(reward: LeanReward) -> None:
    with pytest.raises(TypeError, match='no column "problem"'):
        reward(completions=["simp"])


@pytest.mark.parametrize(
    "values",
    [
        {"progress": 1.0},
        {"progress": 0.0},
        {"failed": 0.1},
        {"open": 0.1},
        {"forbidden": 0.2},
        {"closed": 0.1},
    ],
)
def test_values_that_would_teach_the_wrong_thing_are_refused(values: Mapping[str, float]) -> None:
    with pytest.raises(ConfigError, match="closed must earn most, progress less and above 0"):
        RewardValues(**values)


def test_a_place_is_known_again() -> None:
    place = bare_place(simulator(), Path("x"))({})
    assert isinstance(place, GoalContext)
    assert place == bare_place(simulator(), Path("x"))({})
