"""Trainers of tactic models: LeanDojo-v2's constructor, repository after repository, and supervised fine-tuning.

After each repository the model, its tokenizer and their description are written to `output_dir`, whole or not at all
(`trainer_folder.publish`), so a kill loses the work on one repository at most. A repeated call continues after its
earlier work; a trainer with other settings begins anew, and its model takes the place of the one in its folder.

Under `accelerate launch` every process runs the same program: the first one writes, the others wait for it.

    from pipeline.models.tactics.training import SFTTrainer
    from store.leandojo import DynamicDatabase

    database = DynamicDatabase("dynamic_database.json")
    trainer = SFTTrainer("Qwen/Qwen3-0.6B", output_dir="outputs", lora_config=LoraConfig(task_type="CAUSAL_LM"))
    trainer.train(database.sort_repositories_by_difficulty(), database, "raid/data/merged")

A row of fine-tuning is a system message, a user message with the row's premises and its state, and the tactic as the
assistant's: those of `pipeline.models.tactics.prompt`, shared with the provers. An encoder-decoder reads premises and
state, and answers with the tactic. The loss is on the tactic and its end mark alone. TRL gets tokens and labels, not
messages: on those it would train on the whole text, ignoring `completion_only_loss`, and silently drop long rows. TRL
takes no encoder-decoders: transformers' own trainer does.
"""

from __future__ import annotations

import copy
import gc
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import torch
from datasets import Dataset
from peft import PeftConfig, PeftModel, TaskType, get_peft_model
from pydantic import dataclasses
from torch.utils.data import Sampler
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_pt_utils import get_length_grouped_indices
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer as TRLTrainer

from pipeline.models.adapters import name_base
from pipeline.models.config import STRICT, Config, Device, Number, Positive, PositiveNumber
from pipeline.models.errors import ConfigError, NothingToLearnError
from pipeline.models.libraries import (
    DType,
    computes_in_bfloat16,
    dtype_of,
    load_tokenizer,
    quiet_libraries,
)
from pipeline.models.model_files import read_about
from pipeline.models.ranks import is_first, of_first
from pipeline.models.running import CHECKPOINTING, FitResult, LibraryTrainer, OnStep, Saves, mean_loss, wait
from pipeline.models.tactics.memory import hold_that_it_fits
from pipeline.models.tactics.models import MAX_SEQ_LEN, TacticModel, load_model, read_model
from pipeline.models.tactics.prompt import Prompts
from pipeline.models.tactics.rows import Rows, read_rows
from pipeline.models.trainer_folder import lock_folder, publish, settle


@dataclasses.dataclass(frozen=True, slots=True, config=STRICT)
class Settings(Config):
    """Settings of a training: a checkpoint follows from them, its model and its data."""

    epochs_per_repo: Positive
    batch_size: Positive
    lr: PositiveNumber
    lora: Mapping[str, Any] | None
    max_seq_len: Positive
    warmup_steps: Number
    dtype: DType
    seed: int
    enable_thinking: bool | None = None


def plain(value: Any) -> Any:
    """Return a value after a round trip through JSON; sets in order."""
    return json.loads(
        json.dumps(
            value, default=lambda item: sorted(item) if isinstance(item, set | frozenset) else str(item)
        )
    )


_log = logging.getLogger(__name__)


class Repository(Protocol):
    """A repository at a commit, as in LeanDojo-v2 and `store.leandojo`."""

    url: str
    commit: str


class Database(Protocol):
    """A trainer's part of a `store.leandojo.DynamicDatabase`."""

    def export_merged_data(self, repositories: Any, output_path: str | Path) -> None: ...


@dataclass(frozen=True, slots=True)
class LearnedRepository:
    """A learned repository. `fitted` is None if it had no step to learn from."""

    url: str
    commit: str
    rows: str
    fitted: FitResult | None
    seconds: float

    def __str__(self) -> str:
        if self.fitted is None:
            return f"{self.url} at {self.commit}: nothing to learn"
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.fitted.measures.items())
        dropped = f", {self.fitted.dropped} dropped" if self.fitted.dropped else ""
        return (
            f"{self.url} at {self.commit}: {self.fitted.rows} rows{dropped}, {self.fitted.steps} steps, {shown}, "
            f"{self.seconds:.1f} s"
        )


class RepositoryTrainer(LibraryTrainer):
    """The base of the trainers: models, repositories, checkpoints.

    Attributes:
        lora_config, tokenizer: as in LeanDojo-v2's trainers.
        use_lora: whether it trains an adapter.
    """

    libraries = ("torch", "transformers", "trl", "peft")
    settings: Settings
    takes_encoder_decoders = False

    def __init__(
        self,
        model_name: str | Path,
        output_dir: str | Path = "outputs",
        epochs_per_repo: int = 1,
        batch_size: int = 1,
        lr: float = 2e-5,
        lora_config: PeftConfig | None = None,
        *,
        max_seq_len: int = MAX_SEQ_LEN,
        warmup_steps: float = 0,
        enable_thinking: bool | None = None,
        gradient_checkpointing: bool | None = None,
        dtype: DType = "auto",
        device: Device = "auto",
        seed: int = 3407,
        report_to: str | Sequence[str] = "none",
        callbacks: Sequence[TrainerCallback] = (),
        say: Callable[[str], object] = print,
        on_step: OnStep = lambda _done, _total: None,
    ) -> None:
        """Args:
        model_name: a folder or hub name; an adapter's folder too, to train it further.
        output_dir: the trained model's folder.
        epochs_per_repo: over the repositories so far, after each.
        batch_size: of one device.
        lr: the highest learning rate; it falls to 0 in a line.
        lora_config: trains an adapter of this kind; None trains every weight.
        max_seq_len: tokens of prompt and answer together, a quarter of them the answer's.
        warmup_steps: of the learning rate; below 1 a share of all steps.
        enable_thinking: whether to ask the model to think before it answers; None: as in its training, else no.
        gradient_checkpointing: slower, with less memory; None: on a GPU.
        dtype: of the weights. "auto": float32, and on a GPU bfloat16 under an adapter. Every weight is best trained in
            float32, with bfloat16 in the computations if the GPU has it: at usual learning rates most updates are
            lost to the rounding of bfloat16. That takes 16 bytes of GPU memory a weight; "bfloat16" takes 8.
        device: "auto": a GPU if there is one.
        seed: of everything drawn.
        report_to, callbacks: as `LibraryTrainer`'s.
        say: takes a line of text for each repository, and for left out steps.
        on_step: takes (optimiser steps done, in all) after each, of each repository.

        Raises:
            ConfigError: a setting is invalid, or there is no GPU.
            ModelError: the model has no tokenizer.
        """
        lora = None if lora_config is None else plain(lora_config.to_dict())
        self.settings = Settings(
            epochs_per_repo,
            batch_size,
            float(lr),
            lora,
            max_seq_len,
            warmup_steps,
            dtype,
            seed,
            enable_thinking,
        )
        super().__init__(model_name, output_dir, device, report_to, callbacks)
        self.lora_config = lora_config
        self.gradient_checkpointing = (
            self.device.type == "cuda" if gradient_checkpointing is None else gradient_checkpointing
        )
        self.say = say
        self.on_step = on_step
        self.tokenizer: PreTrainedTokenizerBase = load_tokenizer(model_name)
        self._loaded: TacticModel | None = None
        self._learned: list[dict[str, str]] = []

    @property
    def use_lora(self) -> bool:
        return self.lora_config is not None

    @property
    def learned_before(self) -> bool:
        """Return whether the model in `output_dir` is this trainer's, after at least one repository."""
        return bool(self._learned)

    @property
    def model(self) -> PreTrainedModel | PeftModel:
        """The model as trained so far, loaded at the first call.

        Raises:
            ModelError, CheckpointError: it cannot be loaded.
        """
        return self.loaded().model

    def train(
        self,
        repos: Sequence[Repository],
        database: Database,
        data_path: str | Path = Path("raid/data/merged"),
    ) -> list[LearnedRepository]:
        """Learn repositories in this order, each with those before it, from their training split.

        A repository at a commit known to the model in `output_dir`, under these settings, is not learned again; for
        that, name another folder. One without a step to learn from is reported and left out.

        Args:
            repos: of the database.
            database: exports the dataset of each step.
            data_path: where to; replaced at each step.

        Returns:
            the repositories learned in this call.

        Raises:
            LearningError: the model, a dataset or the folder cannot be used, a loss diverged, or the disk is full.
                Earlier work stays, and a repeated call continues after it.
        """
        folder = Path(self.output_dir)
        learned: list[LearnedRepository] = []
        with lock_folder(folder) if is_first() else nullcontext():
            self.loaded()
            for number, repo in enumerate(repos):
                key = {"url": repo.url, "commit": repo.commit}
                if key in self._learned:
                    self._report(f"{repo.url} at {repo.commit}: learned before")
                    continue
                try:
                    learned.append(self._learn(key, repos[: number + 1], database, Path(data_path)))
                except BaseException:
                    # The model in memory is half trained; the one on the disk counts.
                    self._loaded = None
                    raise
                self._report(str(learned[-1]))
        return learned

    def loaded(self) -> TacticModel:
        """Return the model with its tokenizer and prompts.

        It is the one in `output_dir` if that is this trainer's, else that of `model_name`.

        Raises:
            ModelError, CheckpointError: it cannot be loaded.
            ConfigError: the available memory is too small for its training.
        """
        if self._loaded is None:
            folder = Path(self.output_dir)
            about = self._earlier(folder)
            start = self.model_name if about is None else folder
            dtype = dtype_of(self.settings.dtype, self.device, adapter=self.use_lora)
            unloaded = read_model(start)
            # A quantised model's configuration does not have the size of its weights.
            if not getattr(unloaded.config, "quantization_config", None):
                adapter = self.use_lora or unloaded.is_adapter_of(start)
                weights = unloaded.count_weights()
                hold_that_it_fits(unloaded.base, weights, device=self.device, dtype=dtype, adapter=adapter)
            found = load_model(
                start,
                device=self.device,
                dtype=dtype,
                max_seq_len=self.settings.max_seq_len,
                enable_thinking=self.settings.enable_thinking,
                trainable=True,
            )
            if found.prompts.kind == "seq2seq" and not self.takes_encoder_decoders:
                raise ConfigError(
                    f"{self.model_name} is an encoder-decoder; this trainer takes causal language models"
                )
            if (most := found.lengths.prompt + found.lengths.answer) < self.settings.max_seq_len:
                self._report(
                    f"{self.model_name} takes {most} tokens, which is less than max_seq_len: so many it is"
                )
            if found.prompts.kind == "plain":
                self._report(
                    f"{self.model_name} has no chat template: it gets plain text, here and by the provers"
                )
            if self.lora_config is not None and not found.is_adapter:
                set_seed(self.settings.seed)
                config = copy.deepcopy(self.lora_config)
                if found.prompts.kind == "seq2seq":
                    config.task_type = TaskType.SEQ_2_SEQ_LM
                with quiet_libraries():
                    adapted = get_peft_model(found.model, config)
                found = TacticModel(adapted, found.tokenizer, found.prompts, found.lengths, found.base)
            if isinstance(found.model, PeftModel):
                trained, weights = found.model.get_nb_trainable_parameters()
                self._report(
                    f"an adapter is trained: {trained:,} of {weights:,} weights ({trained / weights:.2%})"
                )
            if isinstance(found.model, PeftModel) and Path(found.base).is_dir():
                # The adapter is loaded with its base from other folders too.
                for config in found.model.peft_config.values():
                    config.base_model_name_or_path = str(Path(found.base).absolute())
            self._loaded = found
            self.tokenizer = found.tokenizer
            self._learned = [] if about is None else list(about["repositories"])
        return self._loaded

    def unload(self) -> None:
        """Free the memory of the model; its next use loads it again."""
        self._loaded = None
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _learn(
        self, key: dict[str, str], repos: Sequence[Repository], database: Database, data_path: Path
    ) -> LearnedRepository:
        started = time.monotonic()
        self._run_name = f"{key['url']} at {key['commit'][:10]}"
        if is_first():
            database.export_merged_data(repos, data_path)
        wait(self.device)
        rows = ""
        fitted = None
        try:
            read = read_rows(data_path / "random" / "train.json")
            rows = read.digest
            if read.skipped:
                self._report(f"{key['url']} at {key['commit']}: {read}")
            fitted = self.fit(read)
        except NothingToLearnError as error:
            self._report(f"{key['url']} at {key['commit']}: {error}")
        seconds = time.monotonic() - started
        if fitted is not None:
            self._learned = [*self._learned, key]
            if is_first():
                place = Path(self.output_dir)
                publish(place, partial(self.write, home=place), self.description(rows, fitted, seconds))
        wait(self.device)
        return LearnedRepository(key["url"], key["commit"], rows, fitted, seconds)

    def write(self, folder: Path, *, home: Path | None = None) -> None:
        """Write the model, its tokenizer, the lengths of its prompts and its curve into a folder, made if need be.

        Args:
            folder: for the files.
            home: the final folder of the files; None: `folder`, or beside it.

        Raises:
            OSError, SafetensorError: the disk refused.
        """
        found = self.loaded()
        self.write_files(folder, found.model, found.tokenizer)
        found.lengths.save(folder)
        name_base(folder, found.base, home=home or folder)
        # An empty model card from PEFT.
        (folder / "README.md").unlink(missing_ok=True)

    def description(self, rows: str, fitted: FitResult, seconds: float) -> dict[str, Any]:
        return {**super().description(rows, fitted, seconds), "repositories": self._learned}

    def _earlier(self, folder: Path) -> dict[str, Any] | None:
        """Return the description of this trainer's earlier model; any other in the folder is replaced in the end."""
        if Path(self.model_name).resolve() == folder.resolve():
            raise ConfigError(
                f"output_dir is {folder}, which is the model to begin with, and would be replaced: name another folder"
            )
        about = None
        if is_first() and folder.is_dir():
            settle(folder)
            about = read_about(folder)
            wanted = plain({"kind": self.kind, **self.follows_from()})
            if about is not None and any(about.get(name) != value for name, value in wanted.items()):
                about = None
            if about is not None:
                read_about(folder, verify=True)
        wait(self.device)
        return of_first(about)

    def arguments(self) -> dict[str, Any]:
        """Return the common arguments of TRL's configurations for all trainers."""
        return {
            **super().arguments(),
            "num_train_epochs": self.settings.epochs_per_repo,
            "per_device_train_batch_size": self.settings.batch_size,
            "learning_rate": self.settings.lr,
            "warmup_steps": self.settings.warmup_steps,
            CHECKPOINTING: self.gradient_checkpointing,
            "bf16": computes_in_bfloat16(self.device),
            "seed": self.settings.seed,
            "ddp_find_unused_parameters": False,
            "save_strategy": "no",
        }

    def _report(self, line: str) -> None:
        _log.info("%s", line)
        if is_first():
            self.say(line)


IGNORED = -100
"""The label of a token to ignore."""


def encode(rows: Rows, prompts: Prompts, *, answer_length: int) -> tuple[list[dict[str, list[int]]], int]:
    """Return the rows as tokens and labels, and the number of rows dropped for a long tactic.

    Args:
        rows: states and tactics.
        prompts: the model's.
        answer_length: the most tokens of a tactic, its end mark included; a model's answer ends there.
    """
    encoded = prompts.kind == "seq2seq"
    examples: list[dict[str, list[int]]] = []
    for row in rows.rows:
        answer = prompts.answer_ids(row.tactic)
        if len(answer) > answer_length:
            continue
        prompt = prompts.ids(row.state, row.premises)
        if encoded:
            examples.append({"input_ids": prompt, "labels": answer})
        else:
            examples.append({"input_ids": [*prompt, *answer], "labels": [IGNORED] * len(prompt) + answer})
    return examples, len(rows.rows) - len(examples)


_AT_THE_END = 10
"""Steps."""


class SFTTrainer(RepositoryTrainer):
    """LeanDojo-v2's `SFTTrainer`, with its constructor; see `RepositoryTrainer`."""

    kind = "sft"
    takes_encoder_decoders = True

    def fit(self, rows: Rows, saves: Saves | None = None) -> FitResult:
        """Train the model on rows: measures are "loss" (the mean over the run) and "token_accuracy" (at its end).

        Args:
            rows: to learn.
            saves: folder and interval of the run's saves; None: no saves.

        Raises:
            LearningError, Yielded: as `LibraryTrainer.fit`.
        """
        found = self.loaded()
        most = found.lengths.answer
        examples, dropped = encode(rows, found.prompts, answer_length=most)
        if dropped:
            self._report(
                f"{dropped} of {len(rows.rows)} steps are dropped: their tactics have more than {most} tokens, a "
                "quarter of max_seq_len"
            )
        if not examples:
            raise NothingToLearnError(f"all {dropped} steps are dropped. Set max_seq_len higher")
        trainer = self.trainer(examples)
        steps = self.drive(trainer, self.on_step, saves)
        logged: list[dict[str, float]] = trainer.state.log_history
        measures = {"loss": mean_loss(logged)}
        accuracies = [item["mean_token_accuracy"] for item in logged if "mean_token_accuracy" in item]
        if accuracies:
            measures["token_accuracy"] = fmean(accuracies[-_AT_THE_END:])
        return FitResult(len(examples), dropped, steps, measures)

    def trainer(self, examples: list[dict[str, list[int]]]) -> Any:
        """Return TRL's trainer of the model for the examples of `encode`, transformers' for an encoder-decoder."""
        found = self.loaded()
        if found.prompts.kind == "seq2seq":
            return _GroupedByLength(
                model=found.model,
                # Its loss is a mean; every process would count it again.
                args=TrainingArguments(**self.arguments(), average_tokens_across_devices=False),
                train_dataset=Dataset.from_list(examples),
                data_collator=DataCollatorForSeq2Seq(found.tokenizer, label_pad_token_id=IGNORED),
                processing_class=found.tokenizer,
            )
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


class _ByLength(Sampler[int]):
    """Orders rows into batches of like length, by the seed and the epoch alone."""

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths, self._batch_size, self._seed = list(lengths), batch_size, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Take the next epoch. Accelerate calls it, so a resumed run keeps its order."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        order: list[int] = get_length_grouped_indices(self._lengths, self._batch_size, generator=generator)
        return iter(order)


class _GroupedByLength(Trainer):  # type: ignore[misc]
    """A trainer with rows of like length in a batch."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        rows: Any = self.train_dataset if train_dataset is None else train_dataset
        at_once = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        return _ByLength([len(ids) for ids in rows["input_ids"]], at_once, self.args.seed)


class OnlyTrains:
    """Leaves out the work of TRL's trainers beside training."""

    def _send_telemetry(self) -> None:
        """Send nothing."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write none: it would lie in the folder of a run."""


class _Trainer(OnlyTrains, _GroupedByLength, TRLTrainer):  # type: ignore[misc]
    """TRL's, with rows of like length together."""
