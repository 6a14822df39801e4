"""Reinforcement learning: what rewards are given and may give back, Lean's reward in the loop, and what is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from torch import distributed
from trl.trainer import base_trainer

from pipeline.models.errors import ConfigError, NothingToLearnError
from pipeline.models.running import Saves
from pipeline.models.tactics.goals import bare_place
from pipeline.models.tactics.grpo import GRPOTrainer, prompts_of
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.reward import LeanReward
from pipeline.models.tactics.rows import Row, Rows
from pipeline.models.tactics.training import SFTTrainer
from store.leandojo import DynamicDatabase
from tests.support.lean.scripted import Script, backend, in_process
from tests.support.tiny_models import make_tiny_causal

MakeTrainer = Callable[..., GRPOTrainer]
ROWS = Rows(
    tuple(Row(f"p q : Prop\nh : p ∧ q\n⊢ {goal}", "simp", f"t{goal}", "A.lean", 0) for goal in ("p", "q")),
    2,
    {},
)


LEAN = Script(
    sorries={f"(h : p ∧ q) : {goal}": [f"p q : Prop\nh : p ∧ q\n⊢ {goal}"] for goal in ("p", "q")},
    tactics={("p", "exact h.1"): []},
)


@pytest.fixture
def trainer(tmp_path: Path, causal: Path, monkeypatch: pytest.MonkeyPatch) -> MakeTrainer:
    in_process(monkeypatch, LEAN)

    def make(reward_func: Any, **changes: Any) -> GRPOTrainer:
        given: dict[str, Any] = {
            "model_name": str(causal),
            "output_dir": str(tmp_path / "outputs"),
            "batch_size": 4,
            "num_generations": 4,
            "lr": 1e-3,
            "max_seq_len": 300,
            "max_steps": 1,
            "device": "cpu",
            "say": lambda _: None,
            "places": bare_place(backend(), tmp_path),
        }
        return GRPOTrainer(reward_func=reward_func, **{**given, **changes})

    return make


# ---- rewards


def test_a_reward_in_the_words_of_leandojo_s_documentation_gets_texts(
    tmp_path: Path, trainer: MakeTrainer
) -> None:
    model = make_tiny_causal(tmp_path / "model", hidden=32, layers=1, chat_template=False)
    seen: list[tuple[str, str]] = []

    def reward_func(completions, **kwargs):  # type: ignore[no-untyped-def] # as people write it
        """Penalise long tactics and sorries."""
        rewards = []
        for tactic in completions:
            penalty = -1.0 if "sorry" in tactic else 0.0
            rewards.append(penalty - 0.01 * len(tactic))
        seen.extend(zip(completions, kwargs["problem"], strict=True))
        return torch.tensor(rewards)

    fitted = trainer(reward_func, model_name=model).fit(ROWS)
    assert len(seen) == 4
    assert all(
        isinstance(text, str) and problem in {row.state for row in ROWS.rows} for text, problem in seen
    )
    mean = sum(-0.01 * len(text) for text, _ in seen) / 4
    assert fitted.measures["reward"] == pytest.approx(mean, abs=1e-4)


def test_rewards_may_be_several_weighted_asynchronous_and_silent(trainer: MakeTrainer) -> None:
    async def later(completions: list[str], **_: Any) -> list[float]:
        return [1.0 for _ in completions]

    class Counting:
        def __call__(self, completions: list[str], **_: Any) -> list[float | None]:
            return [None, *(0.5 for _ in completions[1:])]

    made = trainer([later, Counting(), "lean"], trl={"reward_weights": [1.0, 2.0, 0.0]})
    fitted = made.fit(ROWS)
    # One row had no second reward: TRL leaves it out of that row's sum.
    assert fitted.measures["reward"] == pytest.approx((1.0 + 3 * 2.0) / 4)
    assert made.follows_from()["grpo"]["rewards"] == ["later", "Counting", "lean"]


def test_an_error_in_a_reward_of_one_s_own_is_seen(trainer: MakeTrainer) -> None:
    def wrong(completions: list[str], **_: Any) -> list[float]:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        trainer(wrong).fit(ROWS)


def test_a_model_learns_what_is_rewarded(trainer: MakeTrainer) -> None:
    rewards: list[float] = []

    def short(completions: list[str], **_: Any) -> list[float]:
        given = [1.0 - len(text) / 75 for text in completions]
        rewards.append(sum(given) / len(given))
        return given

    trainer(short, batch_size=16, num_generations=8, lr=1e-2, max_steps=16).fit(ROWS)
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.3


def test_a_model_that_is_kept_near_is_the_one_that_the_repository_found(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase, causal: Path
) -> None:
    def some(completions: list[str], **_: Any) -> list[float]:
        return [float(len(text)) for text in completions]

    made = trainer(some, kl_beta=0.1)
    examples = prompts_of(ROWS, made.loaded())
    assert same(made.trainer(examples).ref_model, made.model)
    made.train(database.repositories[:1], database, tmp_path / "merged")
    assert same(made.trainer(examples).ref_model, made.model)
    first = load_model(causal).model
    assert not same(first, made.model)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    state = dict(other.named_parameters())
    return all(torch.equal(value, state[name]) for name, value in one.named_parameters())


# ---- prompts and batches


def test_the_prompts_are_those_of_supervised_training_each_goal_once(trainer: MakeTrainer) -> None:
    made = trainer("lean")
    found = made.loaded()
    twice = Rows((*ROWS.rows, *ROWS.rows), 2, {})
    examples = prompts_of(twice, found)
    assert [example["problem"] for example in examples] == [row.state for row in ROWS.rows]
    trl = made.trainer(examples)
    ids, *_ = trl._tokenize_prompts([example["prompt"] for example in examples])
    assert ids == [found.prompts.ids(row.state) for row in ROWS.rows]


@pytest.mark.parametrize(("batch_size", "num_generations", "steps"), [(1, 8, 8), (3, 2, 2), (8, 4, 1)])
def test_any_batch_size_is_gathered_to_whole_groups(
    trainer: MakeTrainer, batch_size: int, num_generations: int, steps: int
) -> None:
    made = trainer("lean", batch_size=batch_size, num_generations=num_generations)
    config = made.trainer(prompts_of(ROWS, made.loaded())).args
    assert config.gradient_accumulation_steps == steps
    assert config.generation_batch_size % num_generations == 0


def test_fewer_goals_than_a_step_takes_are_said_and_do_not_end_in_a_model_of_no_step(
    trainer: MakeTrainer,
) -> None:
    with pytest.raises(
        NothingToLearnError, match="2 goals that no finisher closes, of 2, and a step takes 3: set"
    ):
        trainer("lean", batch_size=6, num_generations=2).fit(ROWS)


def test_a_goal_is_judged_once_in_a_run_however_often_that_is_stopped(
    tmp_path: Path, trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = replace(LEAN, tactics={**LEAN.tactics, ("p", "assumption"): []})
    for lean in (closing, LEAN):
        in_process(monkeypatch, lean)
        with pytest.raises(NothingToLearnError, match="1 goals that no finisher closes, of 2,"):
            trainer("lean", batch_size=6, num_generations=2).fit(ROWS, Saves(tmp_path / "run"))


def test_processes_that_judge_differently_learn_from_the_first_ones_goals(
    trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(
        distributed,
        "broadcast_object_list",
        lambda box, src: box.__setitem__(src, box[src] and [True, False]),
    )
    with pytest.raises(NothingToLearnError, match="1 goals that no finisher closes, of 2,"):
        trainer("lean", batch_size=6, num_generations=2).fit(ROWS)


def test_too_few_goals_for_a_reward_of_ones_own_are_no_finishers_fault(trainer: MakeTrainer) -> None:
    made = trainer(lambda completions, **_: [0.0] * len(completions), batch_size=6, num_generations=2)
    with pytest.raises(NothingToLearnError, match="there are 2 goals, and a step takes 3"):
        made.fit(ROWS)


# ---- Lean in the loop, and what is kept


def test_a_goal_that_the_first_rung_closes_without_a_model_is_left_out(
    trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_process(monkeypatch, replace(LEAN, tactics={**LEAN.tactics, ("p", "assumption"): []}))
    said: list[str] = []
    fitted = trainer("lean", num_generations=2, batch_size=2, say=said.append).fit(ROWS)
    assert (fitted.rows, fitted.dropped) == (1, 1)
    assert said[-1] == "1 of 2 goals are left out: a finisher closes them"
    # Neither the last finisher's verdict nor the first one's counts for another goal.
    for goal, finisher in (("p", "assumption"), ("p", "grind"), ("q", "assumption"), ("q", "grind")):
        in_process(monkeypatch, replace(LEAN, tactics={(goal, finisher): []}))
        with pytest.raises(NothingToLearnError, match="1 goals that no finisher closes, of 2,"):
            trainer("lean", num_generations=2, batch_size=6).fit(ROWS)
    # A reward of one's own may be for anything.
    own = trainer(lambda completions, **_: [0.0] * len(completions), num_generations=2, batch_size=2)
    assert own.fit(ROWS).dropped == 0


def test_lean_is_asked_where_the_trainer_says_at_each_training(tmp_path: Path, trainer: MakeTrainer) -> None:
    made = trainer("lean", places=lambda _row: None)
    examples = prompts_of(ROWS, made.loaded())
    asked = (["exact h.1"], [ROWS.rows[0].state])
    assert made.trainer(examples).reward_funcs[0](*asked) == [None]
    made.places = bare_place(backend(), tmp_path)
    assert made.trainer(examples).reward_funcs[0](*asked) == [1.0]
    made.close()


def test_training_with_lean_leaves_a_model_that_says_what_judged_it(
    tmp_path: Path, trainer: MakeTrainer, database: DynamicDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(base_trainer, "send_telemetry", lambda **given: sent.append(given))
    monkeypatch.delenv("CI", raising=False)
    made = trainer("lean")
    (learned,) = made.train(database.repositories[:1], database, tmp_path / "merged")
    assert learned.fitted is not None
    assert {"reward", "closed", "unjudged", "groups_without_signal"} <= learned.fitted.measures.keys()
    about = json.loads((tmp_path / "outputs" / "checkpoint.json").read_text())
    assert about["kind"] == "grpo"
    assert sum(about["lean"][0]["counts"].values()) == 4
    assert load_model(tmp_path / "outputs").prompts.kind == "chat"
    assert sent == []
    assert trainer("lean").train(database.repositories[:1], database, tmp_path / "merged") == []
    assert (
        len(trainer("lean", temperature=0.9).train(database.repositories[:1], database, tmp_path / "merged"))
        == 1
    )


def test_a_reward_from_lean_of_one_s_own_is_told_of_too(tmp_path: Path, trainer: MakeTrainer) -> None:
    with LeanReward(bare_place(backend(), tmp_path)) as reward:
        assert reward(["exact h.1"], [ROWS.rows[0].state]) == [1.0]
        made = trainer(reward)
        made.fit(ROWS)
        about = made.about()
    assert sum(about["lean"][0]["counts"].values()) == 5


def test_an_adapter_that_was_trained_on_tactics_is_trained_further_on_goals(
    tmp_path: Path, trainer: MakeTrainer, causal: Path
) -> None:
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    first = SFTTrainer(
        str(causal),
        str(tmp_path / "sft"),
        lora_config=lora,
        max_seq_len=300,
        device="cpu",
        say=lambda _: None,
    )
    first.loaded()
    (tmp_path / "sft").mkdir()
    first.write(tmp_path / "sft")

    def longer(completions: list[str], **_: Any) -> list[float]:
        return [float(len(text)) for text in completions]

    made = trainer(longer, model_name=tmp_path / "sft", lora_config=lora, kl_beta=0.1)
    before = {name: value.clone() for name, value in made.model.named_parameters()}
    assert isinstance(made.model, PeftModel)
    made.fit(ROWS)
    changed = {name for name, value in made.model.named_parameters() if not torch.equal(value, before[name])}
    assert changed
    assert all("lora" in name for name in changed)
    made.fit(ROWS)
    (tmp_path / "again").mkdir()
    made.write(tmp_path / "again")
    assert isinstance(load_model(tmp_path / "again").model, PeftModel)
    assert [path for path in (tmp_path / "again").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward_func": "coq"}, "reward_func is 'coq': it takes a function, \"lean\", or a list of these"),
        ({"num_generations": 1}, "num_generations is 1: it takes a whole number from 2"),
        ({"kl_beta": -1.0}, r"kl_beta is -1.0: it takes a number from 0"),
        ({"temperature": 0.0}, r"temperature is 0.0: it takes a number above 0"),
    ],
)
def test_a_setting_that_is_not_taken_is_named(
    trainer: MakeTrainer, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        trainer(**{"reward_func": "lean", **change})
