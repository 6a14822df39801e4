"""Reinforcement learning of a causal model on goals: LeanDojo-v2's `GRPOTrainer`, with TRL underneath.

    from pipeline.models.tactics.grpo import GRPOTrainer

    trainer = GRPOTrainer("outputs", "lean", output_dir="outputs-grpo", batch_size=8)
    trainer.train(database.sort_repositories_by_difficulty(), database, "raid/data/merged")

Each prompt is a goal from the training split, in the words of `pipeline.models.tactics.prompt`; for each the model
writes `num_generations` answers, and learns from each one's lead over the others. "lean" is the reward of running them
(`pipeline.models.tactics.reward`); it leaves out goals closed by a finisher alone, since the first rung closes those
without a model. A custom function is called as LeanDojo documents: `completions` are the texts of the tactics, whatever
the model's template makes of them, and it returns a torch tensor or a list; `problem` has the goals, and the dataset's
other columns come by name, so it should take `**kwargs`.
"""

from __future__ import annotations

import inspect
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset
from peft import PeftConfig, PeftModel
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer as TRLTrainer

from pipeline.lean.pool import PoolLimits
from pipeline.models.errors import ConfigError, NothingToLearnError
from pipeline.models.ranks import is_first, of_first
from pipeline.models.running import FitResult, Saves
from pipeline.models.tactics.goals import Places, place_here
from pipeline.models.tactics.models import TacticModel
from pipeline.models.tactics.requests import text_of
from pipeline.models.tactics.reward import FINISHERS, REWARDS, CompletionRow, LeanReward
from pipeline.models.tactics.rows import Rows
from pipeline.models.tactics.training import OnlyTrains, RepositoryTrainer
from store.files import write_whole
from store.text import first_line

RewardFunc = Callable[..., Any]
LEAN: Literal["lean"] = "lean"
_REFERENCE = "ref"
_JUDGED_TOGETHER = 64
"""Goals."""
_CLOSED = "closed.json"
"""In the folder of a run's saves: whether a finisher closes each goal."""
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


def prompts_of(rows: Rows, found: TacticModel) -> list[dict[str, Any]]:
    """Return the goals of the rows as TRL's prompts, each goal of a theorem once, with the columns for a reward."""
    examples: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows.rows:
        key = (row.url, row.theorem, row.state)
        if key in examples:
            continue
        chat = found.prompts.kind == "chat"
        examples[key] = {
            "prompt": (found.prompts.conversation if chat else found.prompts.text)(row.state, row.premises),
            "problem": row.state,
            "theorem": row.theorem,
            "path": row.path,
            "start": None if row.start is None else list(row.start),
            "url": row.url,
            "commit": row.commit,
        }
    return list(examples.values())


class GRPOTrainer(RepositoryTrainer):
    """LeanDojo-v2's `GRPOTrainer`, with its constructor; see the module and `RepositoryTrainer`."""

    kind = "grpo"

    def __init__(
        self,
        model_name: str | Path,
        reward_func: RewardFunc | Literal["lean"] | Sequence[RewardFunc | Literal["lean"]],
        output_dir: str | Path = "outputs",
        epochs_per_repo: int = 1,
        batch_size: int = 1,
        lr: float = 2e-5,
        lora_config: PeftConfig | None = None,
        *,
        kl_beta: float = 0.0,
        num_generations: int = 8,
        temperature: float = 1.0,
        max_steps: int | None = None,
        places: Places | None = None,
        limits: PoolLimits | None = None,
        trl: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> None:
        """Args:
        reward_func: "lean", a function, or several of them.
        batch_size: answers in one device's batch; gradients are gathered up to a whole number of groups.
        kl_beta: the weight of the distance to the model before each repository; above 0 that is held in memory
            too: a second model, or a second adapter.
        num_generations: answers to each goal, from 2.
        temperature: of sampling.
        max_steps: of the optimiser, for each repository; None: one pass over its goals.
        places: where Lean states goals (`pipeline.models.tactics.goals`); None: Lean in the working directory.
        limits: of the pool of REPL processes.
        trl: further arguments of TRL's `GRPOConfig`, such as `loss_type`, `reward_weights`, or `use_vllm` and
                `vllm_mode` for a generator under TRL.
        others: those of `RepositoryTrainer`.

        Raises:
            ConfigError: a setting is invalid.
            ModelError: the model has no tokenizer.
        """
        super().__init__(model_name, output_dir, epochs_per_repo, batch_size, lr, lora_config, **others)
        given = [reward_func] if callable(reward_func) or isinstance(reward_func, str) else list(reward_func)
        for one in given:
            if not callable(one) and one != LEAN:
                raise ConfigError(f'reward_func is {one!r}: it takes a function, "lean", or a list of these')
        if num_generations < 2:
            raise ConfigError(f"num_generations is {num_generations}: it takes a whole number from 2")
        if not (math.isfinite(kl_beta) and kl_beta >= 0):
            raise ConfigError(f"kl_beta is {kl_beta}: it takes a number from 0")
        if not (math.isfinite(temperature) and temperature > 0):
            raise ConfigError(f"temperature is {temperature}: it takes a number above 0")
        self.reward_func = reward_func
        self.kl_beta = float(kl_beta)
        self.num_generations = num_generations
        self.temperature = float(temperature)
        self.max_steps = max_steps
        self.trl = dict(trl or {})
        self._rewards = given
        self.places = places
        self._limits = limits
        self._lean: LeanReward | None = None

    @property
    def wants_places(self) -> bool:
        """Return whether Lean rewards without places for the goals yet: `places` can be set."""
        return self.places is None and LEAN in self._rewards

    def fit(self, rows: Rows, saves: Saves | None = None) -> FitResult:
        """Train the model on the goals of rows: measures are means over the run, of those of `_MEASURES`.

        Args:
            rows: with the goals to prove.
            saves: folder and interval of the run's saves; None: no saves. A killed run goes on the same to the bit if
                generating and judging do: on one machine, with no tactic near its time limit.

        Raises:
            LearningError, Yielded: as `LibraryTrainer.fit`.
        """
        every = prompts_of(rows, self.loaded())
        self._config()  # before Lean judges for hours
        if not every:
            raise NothingToLearnError("there is no goal to learn from")
        try:
            judged = LEAN in self._rewards
            kept = None if saves is None else saves.folder / _CLOSED
            examples = self._beyond_finishers(every, kept) if judged else every
            dropped = len(every) - len(examples)
            if dropped:
                self._report(f"{dropped} of {len(every)} goals are left out: a finisher closes them")
            _, needed = self._gathered()
            if len(examples) < needed:
                # TRL drops an incomplete step: training would end without a step and without an error.
                which = f" that no finisher closes, of {len(every)}" if judged else ""
                raise NothingToLearnError(
                    f"there are {len(examples)} goals{which}, and a step takes {needed}: set batch_size lower"
                )
            trainer = self.trainer(examples)
            steps = self.drive(trainer, self.on_step, saves)
        finally:
            self.close()
            model = self.loaded().model
            if isinstance(model, PeftModel) and _REFERENCE in model.peft_config:
                # TRL's copy of the adapter before the training.
                model.delete_adapter(_REFERENCE)
        measures = {}
        for name, ours in _MEASURES.items():
            logged = [item[name] for item in trainer.state.log_history if name in item]
            if logged:
                measures[ours] = sum(logged) / len(logged)
        return FitResult(len(examples), dropped, steps, measures)

    def _beyond_finishers(self, examples: list[dict[str, Any]], kept: Path | None) -> list[dict[str, Any]]:
        """Return the prompts whose goals no finisher closes: the first rung closes the others without a model.

        Lean's answers are `kept` in a file, so a stopped run goes on from there, and with the same goals.
        """
        closed: list[bool] = []
        if kept is not None and kept.exists():
            closed = json.loads(kept.read_text(encoding="utf-8"))
        closed = of_first(closed)
        for first in range(len(closed), len(examples), _JUDGED_TOGETHER):
            part = examples[first : first + _JUDGED_TOGETHER]
            asked = [CompletionRow(one["problem"], finisher, one) for one in part for finisher in FINISHERS]
            closes = [one is not None and one.outcome == "closed" for one in self._lean_reward().judge(asked)]
            found = [any(closes[at : at + len(FINISHERS)]) for at in range(0, len(closes), len(FINISHERS))]
            # Near a time limit processes get different answers, but must learn from the same goals.
            closed += of_first(found)
            if kept is not None and is_first():
                kept.parent.mkdir(parents=True, exist_ok=True)
                write_whole(kept, json.dumps(closed))
        return [one for one, easy in zip(examples, closed, strict=True) if not easy]

    def close(self) -> None:
        """End the processes of the reward from Lean; training starts others."""
        if self._lean is not None:
            self._lean.close()

    def trainer(self, examples: list[dict[str, Any]]) -> Any:
        """Return TRL's trainer of the model for the prompts of `prompts_of`."""
        found, config = self.loaded(), self._config()
        # TRL loads the model to stay near from this one's recorded source.
        if self.kl_beta and self.learned_before:
            found.model.config._name_or_path = self.output_dir
        return _Trainer(
            model=found.model,
            args=config,
            train_dataset=Dataset.from_list(examples),
            reward_funcs=[
                self._lean_reward() if one == LEAN else as_documented(one) for one in self._rewards
            ],
            processing_class=found.tokenizer,
        )

    def _config(self) -> GRPOConfig:
        batches, _ = self._gathered()
        ours: dict[str, Any] = {
            **self.arguments(),
            "gradient_accumulation_steps": batches,
            "num_generations": self.num_generations,
            "max_completion_length": self.loaded().lengths.answer,
            "temperature": self.temperature,
            "beta": self.kl_beta,
            "max_steps": -1 if self.max_steps is None else self.max_steps,
        }
        if both := sorted(ours.keys() & self.trl.keys()):
            raise ConfigError(
                f"trl.{both[0]} follows from our own settings, and is none to pass on: leave it out"
            )
        try:
            return GRPOConfig(**ours, **self.trl)
        except (ValueError, TypeError, ImportError) as error:
            if not self.trl:
                raise
            raise ConfigError(f"TRL does not take trl ({self.trl}): {first_line(error)}") from error

    def follows_from(self) -> dict[str, Any]:
        return {
            **super().follows_from(),
            "grpo": {
                "rewards": [_name(one) for one in self._rewards],
                "kl_beta": self.kl_beta,
                "num_generations": self.num_generations,
                "temperature": self.temperature,
                "max_steps": self.max_steps,
                "values": dict(REWARDS) if LEAN in self._rewards else None,
                "trl": self.trl,
            },
        }

    def about(self) -> dict[str, Any]:
        """Return the reward's part of a checkpoint's description: the judging Lean."""
        leans = [one for one in (self._lean, *self._rewards) if isinstance(one, LeanReward)]
        return {
            "lean": [{"counts": dict(one.counts), "cached": one.cached} for one in leans],
        }

    def _gathered(self) -> tuple[int, int]:
        """Return the numbers of batches and goals in a step.

        Its answers must be whole groups: LeanDojo's own default of 1 at a time is none.
        """
        at_once = self.settings.batch_size * int(os.environ.get("WORLD_SIZE", "1"))
        answers = math.lcm(at_once, self.num_generations)
        return answers // at_once, answers // self.num_generations

    def _lean_reward(self) -> LeanReward:
        places = self.places or place_here()
        if self._lean is None:
            self._lean = LeanReward(places, limits=self._limits)
        # They may be new since the last training, for instance for more repositories.
        self._lean.places = places
        return self._lean


def as_documented(reward: Any) -> RewardFunc:
    """Return a reward function with LeanDojo's documented call: with texts, for a tensor or a list of numbers."""
    if isinstance(reward, LeanReward):
        return reward

    def numbers(given: Any) -> list[float | None]:
        return [None if one is None else float(one) for one in given]

    def called(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        return numbers(reward(completions=[text_of(one) for one in completions], **columns))

    async def awaited(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        return numbers(await reward(completions=[text_of(one) for one in completions], **columns))

    waits = inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)
    made: RewardFunc = awaited if waits else called
    # A lambda's name has brackets, invalid in MLflow's names of metrics.
    made.__name__ = _name(reward).strip("<>")
    return made


def _name(reward: Any) -> str:
    if isinstance(reward, str):
        return reward
    return getattr(reward, "__name__", type(reward).__name__)


class _Trainer(OnlyTrains, TRLTrainer):  # type: ignore[misc]
    """TRL's."""
