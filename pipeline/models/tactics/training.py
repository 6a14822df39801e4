"""Fine-tune a tactic model on rows: each a proof state, with its premises, and people's tactic on it.

A row is a system message, a user message with the row's premises and its state, and the tactic as the assistant's:
those of `pipeline.models.tactics.prompt`, shared with the provers. An encoder-decoder reads premises and state, and
answers with the tactic. The loss is on the tactic and its end mark alone.
"""

from __future__ import annotations

import copy
import resource
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import psutil
import torch
from datasets import Dataset
from peft import PeftConfig, PeftModel, TaskType, get_peft_model
from torch import Tensor
from transformers import Trainer, TrainingArguments, set_seed
from transformers.trainer_pt_utils import LengthGroupedSampler

from pipeline.models.adapters import name_base, new_adapter
from pipeline.models.batching import padded
from pipeline.models.config import TacticsConfig
from pipeline.models.errors import ConfigError, NothingToLearnError
from pipeline.models.libraries import DType, dtype_of, quiet_libraries
from pipeline.models.running import CHECKPOINTING, NO_REPORTS, FitResult, Reports, Saves, Training, mean_loss
from pipeline.models.tactics.models import TacticModel, UnloadedModel, load_model, read_model
from pipeline.models.tactics.prompt import Prompts
from pipeline.models.tactics.rows import Row
from store.text import gigabytes

_LR, _LR_OF_AN_ADAPTER = 2e-5, 2e-4
_COPIES = 4
"""For a trained weight: itself, its gradient, and AdamW's two moments: ZeRO's model states (Rajbhandari et al. 2020,
arXiv:1910.02054, section 3.1), all in the type of the weights. Under an adapter the weights alone count: its own are
some hundredths of them.
"""
IGNORED = -100
"""The label of a token to ignore."""


class FineTuning(Training[TacticsConfig]):
    """Supervised fine-tuning of a tactic model: of all its weights, or of an adapter.

    Its measure is "loss", the mean over the run.

    Attributes:
        found: the model, with its tokenizer and prompts.
        checkpointing: whether to compute activations again instead of keeping them: slower, with less memory.
    """

    libraries: ClassVar[tuple[str, ...]] = ("torch", "transformers", "peft")

    def __init__(
        self,
        config: TacticsConfig,
        start: str,
        reports: Reports = NO_REPORTS,
        *,
        adapter: PeftConfig | None = None,
        dtype: DType = "auto",
    ) -> None:
        """Args:
        config: how to train.
        start: the model's folder or hub name; an adapter's folder too, to train it further.
        reports: of the run.
        adapter: the kind of a new one, if `config.lora`; None: one of `config.lora_rank` on all linear layers.
        dtype: of the weights. "auto": float32, and on a GPU bfloat16 under an adapter. Every weight is best trained in
            float32, with bfloat16 in the computations if the GPU has it: at usual learning rates most updates are
            lost to the rounding of bfloat16. That takes 16 bytes of GPU memory a weight; "bfloat16" takes 8.

        Raises:
            ConfigError: there is no GPU, or the available memory is too small.
            ModelError, CheckpointError: the model cannot be loaded.
        """
        super().__init__(config, reports)
        self.checkpointing = self.device.type == "cuda"
        self.found = self._load(start, dtype)
        if config.lora and not self.found.is_adapter:
            self.found = self._adapted(adapter or new_adapter(config.lora_rank, "CAUSAL_LM"))
        self.model, self.tokenizer = self.found.model, self.found.tokenizer
        model = self.model
        if isinstance(model, PeftModel):
            trained, weights = model.get_nb_trainable_parameters()
            reports.say(
                f"an adapter is trained: {trained:,} of {weights:,} weights ({trained / weights:.2%})"
            )
            name_base(model, self.found.base)

    def _load(self, start: str, dtype: DType) -> TacticModel:
        config, unloaded = self.config, read_model(start)
        weights_in = dtype_of(dtype, self.device, adapter=config.lora)
        # A quantised model's configuration does not have the size of its weights.
        if not getattr(unloaded.config, "quantization_config", None):
            adapter = config.lora or unloaded.is_adapter
            hold_that_it_fits(unloaded, device=self.device, dtype=weights_in, adapter=adapter)
        found = load_model(
            start,
            device=self.device,
            dtype=weights_in,
            max_seq_len=config.max_seq_len,
            trainable=True,
        )
        if found.max_seq_len < config.max_seq_len:
            self.reports.say(
                f"{start} takes {found.max_seq_len} tokens, which is less than max_seq_len: so many it is"
            )
        return found

    def _adapted(self, kind: PeftConfig) -> TacticModel:
        found, kind = self.found, copy.deepcopy(kind)
        if found.prompts.kind == "seq2seq":
            kind.task_type = TaskType.SEQ_2_SEQ_LM
        set_seed(self.config.seed)
        with quiet_libraries():
            adapted = get_peft_model(found.model, kind)
        return replace(found, name=f"a new adapter of {found.base}", model=adapted)

    def fit(self, rows: Sequence[Row], saves: Saves) -> FitResult:
        most = self.found.answer_length
        examples = encode(rows, self.found.prompts, answer_length=most)
        dropped = len(rows) - len(examples)
        if not examples:
            raise NothingToLearnError(f"all {dropped} steps are dropped. Set max_seq_len higher")
        trainer = self.trainer(examples, saves)
        steps = self.drive(trainer, saves)
        warning = (
            f"{dropped} of {len(rows)} steps were left out: their tactics have more than {most} tokens, a quarter of "
            "max_seq_len"
        )
        measures = {"loss": mean_loss(trainer.state.log_history)}
        return FitResult(len(examples), dropped, steps, measures, (warning,) if dropped else ())

    def trainer(self, examples: list[dict[str, list[int]]], saves: Saves) -> Trainer:
        """Return transformers' trainer of the model for the examples of `encode`."""
        found = self.found
        if self.checkpointing and isinstance(found.model, PeftModel):
            found.model.enable_input_require_grads()
        return _GroupedByLength(
            model=found.model,
            args=TrainingArguments(
                **self.arguments(saves),
                # An encoder-decoder's loss is a mean; every process would count it again.
                average_tokens_across_devices=found.prompts.kind != "seq2seq",
            ),
            train_dataset=Dataset.from_list(examples),
            data_collator=partial(collated, pad=int(found.tokenizer.pad_token_id)),
            processing_class=found.tokenizer,
        )

    def write(self, folder: Path) -> None:
        super().write(folder)
        # An empty model card from PEFT.
        (folder / "README.md").unlink(missing_ok=True)

    def arguments(self, saves: Saves) -> dict[str, Any]:
        return {
            **super().arguments(saves),
            "num_train_epochs": self.config.epochs,
            "learning_rate": self.config.lr or (_LR_OF_AN_ADAPTER if self.found.is_adapter else _LR),
            CHECKPOINTING: self.checkpointing,
            "save_strategy": "no",
        }


def memory_of(device: torch.device) -> int:
    """Return the memory of a GPU, or this process's limit of the machine's, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    total = int(psutil.virtual_memory().total)
    return total if limit == resource.RLIM_INFINITY else min(total, limit)


def hold_that_it_fits(
    model: UnloadedModel, *, device: torch.device, dtype: torch.dtype, adapter: bool
) -> None:
    """Check that a device has memory for a model's training, without its activations.

    Raises:
        ConfigError: it does not fit; the message has a remedy.
    """
    weights, there = model.count_weights(), memory_of(device)
    needed = weights * dtype.itemsize * (1 if adapter else _COPIES)
    if needed <= there:
        return
    whole = "the weights alone" if adapter else "weights, gradients and AdamW's two moments"
    others = (
        ""
        if adapter
        else ', every weight in bfloat16 (dtype="bfloat16"), or an adapter (lora_config; of the daemon\'s jobs '
        "[train.tactics] lora = true)"
    )
    raise ConfigError(
        f"{model.base} has {weights / 1e9:.1f} billion weights, and training it needs at least {gigabytes(needed)} "
        f"({whole}, {str(dtype).removeprefix('torch.')}), where {device} has {gigabytes(there)}. Take a smaller model"
        f"{others}"
    )


def example(row: Row, prompts: Prompts) -> dict[str, list[int]]:
    """Return a row as tokens and labels; those of the prompt are to ignore."""
    prompt, answer = prompts.ids(row.state, row.premises), prompts.answer_ids(row.tactic)
    if prompts.kind == "seq2seq":
        return {"input_ids": prompt, "labels": answer}
    return {"input_ids": [*prompt, *answer], "labels": [IGNORED] * len(prompt) + answer}


def encode(rows: Sequence[Row], prompts: Prompts, *, answer_length: int) -> list[dict[str, list[int]]]:
    """Return the rows as examples, without those of longer tactics, end mark included: a model's answer ends there."""
    fit = [row for row in rows if len(prompts.answer_ids(row.tactic)) <= answer_length]
    return [example(row, prompts) for row in fit]


def collated(rows: Sequence[Mapping[str, Sequence[int]]], *, pad: int) -> dict[str, Tensor]:
    """Return examples of `encode` as a batch, padded at the right, wherever the tokenizer pads."""
    ids, mask = padded([row["input_ids"] for row in rows], pad)
    labels, _ = padded([row["labels"] for row in rows], IGNORED)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class _ByLength(LengthGroupedSampler):  # type: ignore[misc]
    """Transformers' order of rows in batches of like length, here by the seed and the epoch alone."""

    def __init__(self, batch_size: int, lengths: Sequence[int], seed: int) -> None:
        super().__init__(batch_size, lengths=lengths)
        self._seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Take the next epoch. Accelerate calls it, so a resumed run keeps its order."""
        self.generator = torch.Generator().manual_seed(self._seed + epoch)


class _GroupedByLength(Trainer):  # type: ignore[misc]
    """A trainer with rows of like length in a batch."""

    def _get_train_sampler(self, train_dataset: Any = None) -> _ByLength:
        rows: Any = self.train_dataset if train_dataset is None else train_dataset
        at_once = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        return _ByLength(at_once, [len(ids) for ids in rows["input_ids"]], self.args.seed)
