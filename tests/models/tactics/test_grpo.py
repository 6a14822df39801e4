"""Reinforcement learning: what rewards are given and may give back, Lean's reward in the loop, and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel
from torch import distributed
from transformers import AutoTokenizer, TrainerCallback

from pipeline.endpoint.dialect import ChatMessage
from pipeline.jobs.specs import GrpoSpec
from pipeline.models.config import TacticsConfig
from pipeline.models.errors import NothingToLearnError
from pipeline.models.running import Reports, Saves
from pipeline.models.tactics import grpo
from pipeline.models.tactics.grpo import RewardTraining, goals_of, prompts_of
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.prompt import messages
from pipeline.models.tactics.reward import FINISHERS, CompletionRow, LeanReward, Outcome
from pipeline.models.tactics.rows import Row
from tests.models.tactics.conftest import Training
from tests.models.tactics.test_thinking import QWEN3
from tests.support.lean.scripted import Script, backend, bare_place, in_process
from tests.support.tiny_models import make_tiny_causal

Begin = Callable[..., RewardTraining]
ROWS = [Row(f"p q : Prop\nh : p ∧ q\n⊢ {goal}", "simp", f"t{goal}", "A.lean", 0) for goal in ("p", "q")]


LEAN = Script(
    sorries={f"(h : p ∧ q) : {goal}": [f"p q : Prop\nh : p ∧ q\n⊢ {goal}"] for goal in ("p", "q")},
    tactics={("p", "exact h.1"): []},
)


@pytest.fixture
def lean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LeanReward:
    in_process(monkeypatch, LEAN)
    return LeanReward(bare_place(backend(), tmp_path))


@pytest.fixture
def rewarded(causal: Path, said: list[str]) -> Begin:
    """Begin a training with a reward, and these settings."""

    def begin(reward: Any, *, start: Path = causal, adapter: Any = None, **changes: Any) -> RewardTraining:
        config = TacticsConfig(str(start), lora=adapter is not None, max_seq_len=300, device="cpu")
        spec = GrpoSpec(**{"batch_size": 4, "num_generations": 4, "lr": 1e-3, "max_steps": 1, **changes})
        return RewardTraining(config, spec, reward, str(start), Reports(say=said.append), adapter=adapter)

    return begin


def some(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text)) for text in completions]


# ---- rewards


def test_a_reward_in_the_words_of_leandojo_s_documentation_gets_texts(
    tmp_path: Path, rewarded: Begin, saves: Saves
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

    fitted = rewarded(reward_func, start=model).fit(ROWS, saves)
    assert len(seen) == 4
    assert all(isinstance(text, str) and problem in {row.state for row in ROWS} for text, problem in seen)
    mean = sum(-0.01 * len(text) for text, _ in seen) / 4
    assert fitted.measures["reward"] == pytest.approx(mean, abs=1e-4)


def test_a_reward_may_be_silent_about_an_answer(rewarded: Begin, saves: Saves) -> None:
    def counting(completions: list[str], **_: Any) -> list[float | None]:
        return [None, *(0.5 for _ in completions[1:])]

    fitted = rewarded(counting).fit(ROWS, saves)
    assert fitted.measures["reward"] == pytest.approx(0.5)


def test_an_error_in_a_reward_of_one_s_own_is_seen(rewarded: Begin, saves: Saves) -> None:
    def wrong(completions: list[str], **_: Any) -> list[float]:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        rewarded(wrong).fit(ROWS, saves)


def test_a_model_learns_what_is_rewarded(rewarded: Begin, saves: Saves) -> None:
    rewards: list[float] = []

    def short(completions: list[str], **_: Any) -> list[float]:
        given = [1.0 - len(text) / 75 for text in completions]
        rewards.append(sum(given) / len(given))
        return given

    rewarded(short, batch_size=16, num_generations=8, lr=1e-2, max_steps=16).fit(ROWS, saves)
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.3


def test_a_model_that_is_kept_near_is_the_one_that_the_training_began_with(
    tmp_path: Path, rewarded: Begin, saves: Saves
) -> None:
    first = rewarded(some)
    first.fit(ROWS, saves)
    first.write(tmp_path / "first")
    made = rewarded(some, start=tmp_path / "first", kl_beta=0.1)
    kept = made.trainer(prompts_of(ROWS, made.found), Saves(tmp_path / "second")).ref_model
    assert same(kept, first.found.model)


def test_a_run_killed_after_its_last_step_takes_no_further_one(rewarded: Begin, saves: Saves) -> None:
    class Kill(TrainerCallback):  # type: ignore[misc]
        def on_train_end(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

    always, constant = Saves(saves.folder, 0), {"lr_scheduler_type": "constant"}
    killed, again = (rewarded(some, trl=constant) for _ in range(2))
    killed.reports = Reports(callbacks=[Kill()])
    with pytest.raises(KeyboardInterrupt):
        killed.fit(ROWS, always)
    assert again.fit(ROWS, always).steps == 1, "of the two of an epoch"
    assert same(again.found.model, killed.found.model)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    state = dict(other.named_parameters())
    return all(torch.equal(value, state[name]) for name, value in one.named_parameters())


# ---- prompts and batches


def test_the_prompts_are_those_of_supervised_training_each_goal_once(rewarded: Begin, saves: Saves) -> None:
    made = rewarded(some)
    found = made.found
    examples = prompts_of(goals_of([*ROWS, *ROWS]), found)
    assert [example["problem"] for example in examples] == [row.state for row in ROWS]
    trl = made.trainer(examples, saves)
    ids, *_ = trl._tokenize_prompts([example["prompt"] for example in examples])
    assert ids == [found.prompts.ids(row.state) for row in ROWS]


def test_a_model_that_can_think_gets_the_prompts_of_the_search(
    tmp_path: Path, rewarded: Begin, saves: Saves
) -> None:
    model = make_tiny_causal(tmp_path / "model", hidden=32, layers=1)
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = QWEN3
    tokenizer.save_pretrained(model)
    made = rewarded(some, start=model)
    examples = prompts_of(ROWS, made.found)
    ids, *_ = made.trainer(examples, saves)._tokenize_prompts([one["prompt"] for one in examples])
    assert ids == [made.found.prompts.ids(row.state) for row in ROWS]


@pytest.mark.parametrize(("batch_size", "num_generations", "steps"), [(1, 8, 8), (3, 2, 2), (8, 4, 1)])
def test_any_batch_size_is_gathered_to_whole_groups(
    rewarded: Begin, saves: Saves, batch_size: int, num_generations: int, steps: int
) -> None:
    made = rewarded(some, batch_size=batch_size, num_generations=num_generations)
    config = made.trainer(prompts_of(ROWS, made.found), saves).args
    assert config.gradient_accumulation_steps == steps
    assert config.generation_batch_size % num_generations == 0


def test_fewer_goals_than_a_step_takes_are_said_and_do_not_end_in_a_model_of_no_step(
    rewarded: Begin, lean: LeanReward, saves: Saves
) -> None:
    with pytest.raises(
        NothingToLearnError, match="2 goals that no finisher closes, of 2, and a step takes 3: set"
    ):
        rewarded(lean, batch_size=6, num_generations=2).fit(ROWS, saves)


def test_a_goal_is_judged_once_in_a_run_however_often_that_is_stopped(
    tmp_path: Path, rewarded: Begin, saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = replace(LEAN, tactics={**LEAN.tactics, ("p", "assumption"): []})
    for answers in (closing, LEAN):
        in_process(monkeypatch, answers)
        lean = LeanReward(bare_place(backend(), tmp_path))
        with pytest.raises(NothingToLearnError, match="1 goals that no finisher closes, of 2,"):
            rewarded(lean, batch_size=6, num_generations=2).fit(ROWS, saves)


def test_of_several_processes_the_first_one_judges_for_all(
    rewarded: Begin, lean: LeanReward, saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([[], [True, False]])
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(
        distributed, "broadcast_object_list", lambda box, src: box.__setitem__(src, next(told))
    )
    in_process(monkeypatch, replace(LEAN, tactics={(goal, "assumption"): [] for goal in ("p", "q")}))
    with pytest.raises(NothingToLearnError, match="1 goals that no finisher closes, of 2,"):
        rewarded(lean, batch_size=6, num_generations=2).fit(ROWS, saves)
    assert lean._pool is None, "no Lean of its own"


def test_too_few_goals_for_a_reward_of_ones_own_are_no_finishers_fault(rewarded: Begin, saves: Saves) -> None:
    with pytest.raises(NothingToLearnError, match="there are 2 goals, and a step takes 3"):
        rewarded(some, batch_size=6, num_generations=2).fit(ROWS, saves)


# ---- Lean in the loop, and what is kept


def test_a_goal_that_the_first_rung_closes_without_a_model_is_left_out(
    tmp_path: Path, rewarded: Begin, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    def reward(tactics: dict[tuple[str, str], Any]) -> LeanReward:
        in_process(monkeypatch, replace(LEAN, tactics=tactics))
        return LeanReward(bare_place(backend(), tmp_path))

    lean = reward({**LEAN.tactics, ("p", "assumption"): []})
    made = rewarded(lean, num_generations=2, batch_size=2)
    fitted = made.fit(ROWS, Saves(tmp_path / "first"))
    assert (fitted.rows, fitted.dropped) == (1, 1)
    assert said[-1] == "1 of 2 goals are left out: a finisher closes them"
    assert fitted.measures["unjudged"] == 0
    # Neither the last finisher's verdict nor the first one's counts for another goal.
    for goal, finisher in (("p", "assumption"), ("p", "grind"), ("q", "assumption"), ("q", "grind")):
        lean = reward({(goal, finisher): []})
        with pytest.raises(NothingToLearnError, match="1 goals that no finisher closes, of 2,"):
            rewarded(lean, num_generations=2, batch_size=6).fit(ROWS, Saves(tmp_path / f"{goal}-{finisher}"))
    # A reward of one's own may be for anything.
    own = rewarded(some, num_generations=2, batch_size=2)
    assert own.fit(ROWS, Saves(tmp_path / "own")).dropped == 0


def test_no_more_goals_are_judged_or_get_premises_and_a_prompt_than_the_steps_of_a_training_take(
    rewarded: Begin, lean: LeanReward, saves: Saves, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpo, "_JUDGED_TOGETHER", 1)
    judged: list[int] = []
    judge = lean.judge

    def noted(asked: Sequence[CompletionRow]) -> list[Outcome | None]:
        judged.append(len(asked))
        return judge(asked)

    def show(goals: Sequence[Row]) -> tuple[list[Row], dict[str, int]]:
        return [replace(goal, premises=("theorem a : p",)) for goal in goals], {"shown": len(goals)}

    monkeypatch.setattr(lean, "judge", noted)
    made = rewarded(lean, num_generations=2, batch_size=2, max_steps=1)
    made.show = show
    asked: list[str] = []

    def conversation(state: str, premises: Sequence[str]) -> list[ChatMessage]:
        asked.append(state)
        return messages(state, premises)

    monkeypatch.setattr(made.found.prompts, "conversation", conversation)
    fitted = made.fit(ROWS, saves)
    # A goal's finishers, and then the answers to it.
    assert (fitted.rows, judged) == (1, [len(FINISHERS), 2])
    assert (len(asked), fitted.about) == (1, {"shown": 1})


def test_an_adapter_that_was_trained_on_tactics_is_trained_further_on_goals(
    tmp_path: Path, rewarded: Begin, training: Training
) -> None:
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    training(adapter=lora).write(tmp_path / "sft")
    made = rewarded(some, start=tmp_path / "sft", adapter=lora, kl_beta=0.1)
    model = made.found.model
    before = {name: value.clone() for name, value in model.named_parameters()}
    assert isinstance(model, PeftModel)
    made.fit(ROWS, Saves(tmp_path / "run"))
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert changed
    assert all("lora" in name for name in changed)
    made.write(tmp_path / "again")
    assert isinstance(load_model(tmp_path / "again").model, PeftModel)
    assert [path for path in (tmp_path / "again").iterdir() if path.is_dir()] == []
