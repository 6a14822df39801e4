"""Train a causal tactic model with a reward on goals, by TRL's GRPO; the job `train_grpo`.

Each prompt is a goal of a row, in the words of `pipeline.models.tactics.prompt`; for each the model writes
`num_generations` answers, and learns from each one's lead over the others. The reward from Lean runs them
(`pipeline.models.tactics.reward`); it leaves out goals closed by a finisher alone, since the first rung closes those
without a model. Another function takes the texts of the answers as `completions`, whatever the model's template makes
of them, the goals as `problem` and the rows' other columns by name; it returns a tensor or a list.

The job's goals are those of the task's training split, each stated in its file at the trace's commit, behind the text
before its theorem: the job's worktree, built. Its measures are those of `train_tactics`, so the rule of promotion
compares like with like. A save falls between the answers to two groups of goals.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from peft import PeftConfig, PeftModel
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer as TRLTrainer

from pipeline.jobs.specs import GrpoSpec, TrainGrpoSpec
from pipeline.models.config import TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.errors import ConfigError, NothingToLearnError
from pipeline.models.libraries import DType
from pipeline.models.model_files import Checkpoint
from pipeline.models.ranks import is_first, of_first, world
from pipeline.models.replay import random_numbers
from pipeline.models.running import NO_REPORTS, FitResult, Reports, Saves, make_checkpoint
from pipeline.models.tactics.goals import SourcePlaces
from pipeline.models.tactics.job import TacticsJob, describe_premises
from pipeline.models.tactics.models import TacticModel
from pipeline.models.tactics.prompt import thinking
from pipeline.models.tactics.reward import FINISHERS, CompletionRow, LeanReward
from pipeline.models.tactics.rows import Row, digest_of, read_rows
from pipeline.models.tactics.training import FineTuning
from pipeline.models.training_job import OnStep
from store.files import write_whole
from store.text import first_line

RewardFunc = Callable[..., Any]
ShowPremises = Callable[[Sequence[Row]], tuple[Sequence[Row], Mapping[str, Any]]]
"""Returns goals with their premises, and the checkpoint's fields about these."""
_REFERENCE = "ref"
_JUDGED_TOGETHER = 64
"""Goals."""
_GOALS = 9
"""Separates this stream of random numbers from others of the same seed."""
_CLOSED = "closed.json"
"""In the folder of a run's saves: whether a finisher closes each goal."""
_COLUMNS = ("theorem", "path", "start", "url", "commit")
"""Of a goal's row, for a reward."""
_MOST_SILENT = 0.95
_MEASURES = {
    "reward": "reward",
    "reward_std": "reward_std",
    "frac_reward_zero_std": "groups_without_signal",
    "completions/mean_length": "answer_length",
    "completions/clipped_ratio": "answers_cut",
    "lean/closed": "closed",
    "lean/progress": "progress",
    "lean/open": "open",
    "lean/unjudged": "unjudged",
}
"""Fields of TRL's log to keep, as means over the run, and their names here."""


def goals_of(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows with different goals, the first of each goal of a theorem."""
    goals: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        goals.setdefault((row.url, row.theorem, row.state), row)
    return list(goals.values())


def prompts_of(goals: Sequence[Row], found: TacticModel) -> list[dict[str, Any]]:
    """Return goals as TRL's prompts, with the columns for a reward."""
    return [{"prompt": found.prompts.conversation(one.state, one.premises), **_columns(one)} for one in goals]


def _columns(goal: Row) -> dict[str, Any]:
    return {"problem": goal.state, **{name: getattr(goal, name) for name in _COLUMNS}}


class RewardTraining(FineTuning):
    """A training with a reward; its measures are means over the run, of those of `_MEASURES`."""

    libraries = ("torch", "transformers", "trl", "peft")

    def __init__(
        self,
        config: TacticsConfig,
        grpo: GrpoSpec,
        reward: RewardFunc,
        start: str,
        reports: Reports = NO_REPORTS,
        *,
        show: ShowPremises = lambda goals: (goals, {}),
        adapter: PeftConfig | None = None,
        dtype: DType = "auto",
    ) -> None:
        """Args:
        grpo: settings; its batch size is of all devices, and gradients are gathered up to a whole number of groups.
            With a `kl_beta` above 0 the initial model is held in memory too: a second model, or a second adapter.
        reward: from Lean, or another function.
        show: finds premises for the goals to learn from, a few of a large repository's.
        config, start, reports, adapter, dtype: as `FineTuning`'s.

        Raises:
            ConfigError: the model is an encoder-decoder. And those of `FineTuning`.
        """
        super().__init__(config, start, reports, adapter=adapter, dtype=dtype)
        if self.found.prompts.kind == "seq2seq":
            raise ConfigError(f"{start} is an encoder-decoder; this training takes causal language models")
        self.grpo = grpo
        self.reward = reward
        self.show = show

    def fit(self, rows: Sequence[Row], saves: Saves) -> FitResult:
        every = goals_of(rows)
        lean = self.reward if isinstance(self.reward, LeanReward) else None
        self._config(saves)  # before Lean judges for hours
        if not every:
            raise NothingToLearnError("there is no goal to learn from")
        try:
            _, needed = self._gathered()
            goals, dropped = every, 0
            if lean is not None:
                order = random_numbers(self.config.seed, _GOALS).permutation(len(every))
                drawn = [every[place] for place in order]
                most = None if self.grpo.max_steps is None else self.grpo.max_steps * needed
                goals, dropped = _beyond_finishers(drawn, most, lean, saves.folder)
            if dropped:
                self.reports.say(
                    f"{dropped} of {len(goals) + dropped} goals are left out: a finisher closes them"
                )
            if len(goals) < needed:
                # TRL drops an incomplete step: training would end without a step and without an error.
                which = "" if lean is None else f" that no finisher closes, of {len(every)}"
                raise NothingToLearnError(
                    f"there are {len(goals)} goals{which}, and a step takes {needed}: set batch_size lower"
                )
            goals, about = self.show(goals)
            trainer = self.trainer(prompts_of(goals, self.found), saves)
            steps = self.drive(trainer, saves)
        finally:
            if lean is not None:
                lean.close()
            if isinstance(self.found.model, PeftModel) and _REFERENCE in self.found.model.peft_config:
                # TRL's copy of the adapter before the training.
                self.found.model.delete_adapter(_REFERENCE)
        measures = {}
        for name, ours in _MEASURES.items():
            logged = [item[name] for item in trainer.state.log_history if name in item]
            if logged:
                measures[ours] = sum(logged) / len(logged)
        return FitResult(len(goals), dropped, steps, measures, _warnings(measures), about)

    def trainer(self, examples: list[dict[str, Any]], saves: Saves) -> Any:
        """Return TRL's trainer of the model for the prompts of `prompts_of`."""
        return _Trainer(
            model=self.found.model,
            args=self._config(saves),
            train_dataset=Dataset.from_list(examples),
            reward_funcs=as_documented(self.reward),
            processing_class=self.found.tokenizer,
        )

    def _config(self, saves: Saves) -> GRPOConfig:
        batches, _ = self._gathered()
        grpo = self.grpo
        ours: dict[str, Any] = {
            **self.arguments(saves),
            "learning_rate": grpo.lr,
            "per_device_train_batch_size": grpo.batch_size // world(),
            "gradient_accumulation_steps": batches,
            "num_generations": grpo.num_generations,
            "max_completion_length": self.found.answer_length,
            "chat_template_kwargs": thinking(False),
            "temperature": grpo.temperature,
            "beta": grpo.kl_beta,
            "max_steps": -1 if grpo.max_steps is None else grpo.max_steps,
        }
        if both := sorted(ours.keys() & grpo.trl.keys()):
            raise ConfigError(
                f"trl.{both[0]} follows from our own settings, and is none to pass on: leave it out"
            )
        try:
            return GRPOConfig(**ours, **grpo.trl)
        except (ValueError, TypeError, ImportError) as error:
            if not grpo.trl:
                raise
            raise ConfigError(f"TRL does not take trl ({grpo.trl}): {first_line(error)}") from error

    def _gathered(self) -> tuple[int, int]:
        """Return the numbers of batches and goals in a step.

        Its answers must be whole groups: LeanDojo's own default of 1 at a time is none.
        """
        answers = math.lcm(self.grpo.batch_size, self.grpo.num_generations)
        return answers // self.grpo.batch_size, answers // self.grpo.num_generations


def _warnings(measures: Mapping[str, float]) -> tuple[str, ...]:
    if measures.get("unjudged", 0.0) >= 1.0:
        raise NothingToLearnError(
            "Lean could judge none of the answers, so that nothing was learned: the goals cannot be stated again "
            "where they were traced"
        )
    silent = measures.get("groups_without_signal", 0.0)
    if silent < _MOST_SILENT:
        return ()
    why = "so that nothing was learned of them: the goals are too easy for the model, or too hard"
    return (f"in {silent:.0%} of the groups all answers earned the same, {why}",)


def _beyond_finishers(
    goals: Sequence[Row], most: int | None, lean: LeanReward, run: Path
) -> tuple[Sequence[Row], int]:
    """Return at most so many goals that no finisher closes, and the number of those that one closes.

    The first rung closes these without a model. Lean's answers are kept in the folder of a run's saves, so a stopped
    run goes on from there, and with the same goals.
    """
    kept = run / _CLOSED
    closed: list[bool] = of_first(json.loads(kept.read_bytes()) if is_first() and kept.exists() else [])
    while len(closed) < len(goals) and (most is None or closed.count(False) < most):
        part = goals[len(closed) : len(closed) + _JUDGED_TOGETHER] if is_first() else ()
        asked = [CompletionRow(one.state, tactic, _columns(one)) for one in part for tactic in FINISHERS]
        closes = [one == "closed" for one in lean.judge(asked)]
        closed += of_first(
            [any(closes[at : at + len(FINISHERS)]) for at in range(0, len(closes), len(FINISHERS))]
        )
        if is_first():
            run.mkdir(parents=True, exist_ok=True)
            write_whole(kept, json.dumps(closed))
    left = [one for one, easy in zip(goals, closed, strict=False) if not easy]
    return left[:most], closed.count(True)


def as_documented(reward: RewardFunc) -> RewardFunc:
    """Return a reward function for TRL, called as LeanDojo documents: with texts, for a tensor or a list of numbers.

    TRL has an answer as a string, or as a chat's messages, whose last one counts.
    """

    def called(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        texts = [one if isinstance(one, str) else str(one[-1]["content"] or "") for one in completions]
        given = reward(completions=texts, **columns)
        return [None if one is None else float(one) for one in given]

    # A lambda's name has brackets, invalid in MLflow's names of metrics.
    called.__name__ = str(getattr(reward, "__name__", type(reward).__name__)).strip("<>")
    return called


class _Trainer(TRLTrainer):  # type: ignore[misc]
    """TRL's, without its work beside training."""

    def _send_telemetry(self) -> None:
        """Send nothing."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write none: it would lie in the folder of a run."""


class GrpoJob(TacticsJob):
    """The job; its prompts, and the rows it measures on, show premises."""

    def learn(self, task: TaskData, on_step: OnStep) -> Checkpoint:
        """Return the checkpoint after the task's goals, made if need be.

        Raises:
            NothingToLearnError: there are fewer goals than a step takes, or Lean could judge no answer.
            LearningError: the dataset, the parent or a setting cannot be used, Lean does not start, the loss diverged,
                the disk is full, or another process makes the same checkpoint.
            Yielded: the job was preempted, and the run is saved.
        """
        order, config, premises = self.order, self.config, self._premises
        assert isinstance(order, TrainGrpoSpec)  # of the job's kind
        read = read_rows(task.dataset / config.split / "train.json").rows
        about = {"objective": "grpo", "grpo": order.grpo.model_dump(mode="json")}
        parts = [digest_of(read), premises.name, order.lean.kind, json.dumps(about, sort_keys=True)]
        data = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        step = self.chain.step(task, config, parent=order.parent, data=data)
        step = replace(step, config={**step.config, **about})
        places = SourcePlaces(order.lean, self.spec.project(order.folder), order.folder)
        reward = LeanReward(places, limits=order.limits)
        reports = Reports(on_step, tensorboard=self.tensorboard)

        def show(goals: Sequence[Row]) -> tuple[Sequence[Row], Mapping[str, Any]]:
            shown = premises.shown(goals, task)
            return shown, describe_premises(premises, shown)

        begin = partial(RewardTraining, config, order.grpo, reward, step.start, reports, show=show)
        return make_checkpoint(self.chain, step, begin, lambda: (read, about))
