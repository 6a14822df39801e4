"""Supervised fine-tuning of a causal model on people's tactics: LeanDojo-v2's `SFTTrainer`, with TRL underneath.

    from pipeline.tactics import SFTTrainer
    from store.leandojo import DynamicDatabase

    database = DynamicDatabase("dynamic_database.json")
    trainer = SFTTrainer("Qwen/Qwen3-0.6B", output_dir="outputs", lora_config=LoraConfig(task_type="CAUSAL_LM"))
    trainer.train(database.sort_repositories_by_difficulty(), database, "raid/data/merged")

A row is a system message, a user message with the state, and the tactic as the assistant's: those of
`pipeline.tactics.prompt`, which the provers use too. The loss is on the tactic and its end mark alone. TRL is given
tokens and labels, not messages: on messages it would train on the whole text whatever `completion_only_loss` says, and
it drops what is too long without a word.
"""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer as TRLTrainer

from pipeline.tactics.errors import NothingToLearnError
from pipeline.tactics.prompt import Prompts
from pipeline.tactics.rows import Rows
from pipeline.tactics.running import Saves, mean_loss, run
from pipeline.tactics.training import Fitted, RepositoryTrainer

IGNORED = -100
"""The label of a token that is not learned."""


def encode(rows: Rows, prompts: Prompts, *, answer_length: int) -> tuple[list[dict[str, list[int]]], int]:
    """Return the rows as tokens and labels, and how many were dropped because their tactic is too long.

    Args:
        rows: states and tactics.
        prompts: the model's.
        answer_length: tokens that a tactic may have, its end mark included; a model that is asked stops there.
    """
    examples: list[dict[str, list[int]]] = []
    for row in rows.rows:
        answer = prompts.answer_ids(row.tactic)
        if len(answer) > answer_length:
            continue
        prompt = prompts.ids(row.state)
        examples.append({"input_ids": [*prompt, *answer], "labels": [IGNORED] * len(prompt) + answer})
    return examples, len(rows.rows) - len(examples)


class SFTTrainer(RepositoryTrainer):
    """LeanDojo-v2's `SFTTrainer`, with its constructor; see `RepositoryTrainer`."""

    kind = "sft"

    def fit(self, rows: Rows, saves: Saves | None = None) -> Fitted:
        """Train the model on rows: measures are "loss" (the mean over the run) and "token_accuracy" (at its end).

        Args:
            rows: what is learned.
            saves: where the run is saved, to go on from; None: nowhere.

        Raises:
            NothingToLearnError, DivergedError: as `RepositoryTrainer.fit`.
            CheckpointError: the run cannot be saved. Yielded: the job was asked to make way, and the run is saved.
        """
        found = self.loaded()
        room = found.lengths.answer
        examples, dropped = encode(rows, found.prompts, answer_length=room)
        if dropped:
            self._tell(
                f"{dropped} of {len(rows.rows)} steps are dropped: their tactics have more than {room} tokens, a "
                "quarter of max_seq_len"
            )
        if not examples:
            raise NothingToLearnError(f"all {dropped} steps are dropped. Set max_seq_len higher")
        trainer = self.trainer(examples)
        steps = run(trainer, self.on_step, saves)
        logged: list[dict[str, float]] = trainer.state.log_history
        measures = {"loss": mean_loss(logged)}
        accuracy = next(
            (item["mean_token_accuracy"] for item in reversed(logged) if "mean_token_accuracy" in item), None
        )
        if accuracy is not None:
            measures["token_accuracy"] = accuracy
        return Fitted(len(examples), dropped, steps, measures)

    def trainer(self, examples: list[dict[str, list[int]]]) -> Any:
        """Return TRL's trainer of the model for what `encode` made."""
        found = self.loaded()
        config = SFTConfig(
            **self.arguments(),
            # Already within the lengths; TRL would cut the end, which is the tactic.
            max_length=None,
            packing=False,
        )
        return _Trainer(
            model=found.model,
            args=config,
            train_dataset=Dataset.from_list(examples),
            processing_class=found.tokenizer,
        )


class _Trainer(TRLTrainer):
    def _send_telemetry(self) -> None:
        """Tell nobody what is trained here."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write none: it would stand in the folder of a run."""
