"""Train a progress model: a regression head on any text model, on the steps of whole proofs.

    from pipeline.progress import ProgressTrainer

    ProgressTrainer("progress.jsonl", model_name="bert-base-uncased", output_dir="outputs-progress").train()

LeanDojo-v2's constructor and template. Rows are split by proof; the epoch with the least squared error on the proofs
held out is kept; a run that was cut off goes on from its last epoch when it is started again. transformers' Trainer
drives, so that Accelerate's launcher, bf16 and gradient checkpointing work as they do with it.

    <output_dir>/                the model: config.json, model.safetensors, the tokenizer, checkpoint.json
    <output_dir>/.run-<id>/      what a run has saved so far; gone when its model is there
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import math
import shutil
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerState, TrainingArguments

from pipeline.progress.measuring import (
    Collated,
    Errors,
    Steps,
    TrainedProgress,
    constant_errors,
    measured,
    numbers_of,
    proofs_of,
)
from pipeline.progress.model import load_model, resolved, text_length
from pipeline.progress.rows import Dataset, Halves, read_dataset, split
from pipeline.retrieval.encoder import weights_digest
from pipeline.retrieval.quiet import quiet_libraries
from pipeline.tactics.errors import SettingsError
from pipeline.tactics.running import CHECKPOINTING, OnStep, Saves, is_first, run, wait
from pipeline.tactics.saving import alone_in, publish
from pipeline.tactics.settings import computes_in_bfloat16

_log = logging.getLogger(__name__)

_RUN = ".run-"
_WEIGHT_DECAY = 0.01


class ProgressTrainer:
    """Trains a model that predicts how many steps of a proof remain. LeanDojo-v2's trainer of that name.

    `tokenizer` and `model` are loaded by the constructor, as there; after `train` the model is the one that was kept.
    """

    def __init__(
        self,
        data_path: str | Path,
        model_name: str = "bert-base-uncased",
        output_dir: str | Path = "outputs",
        max_length: int = 512,
        batch_size: int = 8,
        epochs: float = 3.0,
        learning_rate: float = 1e-5,
        eval_ratio: float = 0.2,
        seed: int = 42,
        *,
        device: str = "auto",
        bf16: bool | None = None,
        gradient_checkpointing: bool = False,
    ) -> None:
        """Args:
        data_path: a JSONL file of steps, as `unsorry export progress OUT` writes it.
        model_name: a folder, or a name of the hub.
        output_dir: where the model goes; a model that is there already is replaced when the new one is whole.
        max_length: tokens of a text; fewer where the model takes fewer.
        batch_size: rows at once, on each device.
        epochs: how often every row is seen.
        learning_rate: of AdamW, falling to 0.
        eval_ratio: the share of the proofs that is held out, where the rows have no `side`.
        seed: of the split, a new head, and the order of the rows.
        device: "auto" (GPUs where there are any), "cpu" or "cuda".
        bf16: compute in bfloat16; None: where the GPU does.
        gradient_checkpointing: less memory, more time.

        Raises:
            SettingsError: a number is one that cannot be meant.
            ModelError: the model cannot be loaded.
        """
        _check(
            max_length=max_length,
            batch_size=batch_size,
            epochs=epochs,
            learning_rate=learning_rate,
            eval_ratio=eval_ratio,
            seed=seed,
        )
        self.data_path = str(data_path)
        self.model_name = str(model_name)
        self.output_dir = str(output_dir)
        self.batch_size = batch_size
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.eval_ratio = eval_ratio
        self.seed = seed
        self.gradient_checkpointing = gradient_checkpointing
        self._cpu = resolved(device) == "cpu"
        where = torch.device("cpu" if self._cpu else "cuda")
        self._bf16 = computes_in_bfloat16(where) if bf16 is None else bf16
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tokenizer, self.model = load_model(model_name, new_head=True)
        self._begun = weights_digest(self.model.state_dict())
        self.max_length = text_length(self.tokenizer, self.model, max_length)

    def train(
        self,
        on_step: OnStep = lambda _done, _total: None,
        *,
        save_every_s: float = math.inf,
    ) -> TrainedProgress:
        """Train, keep the best epoch, write it to `output_dir`, and return how well it does.

        Args:
            on_step: told (optimiser steps done, in all) after each.
            save_every_s: seconds from one save to the next, beside that of every epoch. In a single process.

        Raises:
            RowsError: the dataset cannot be used. DivergedError: a loss was no finite number.
            CheckpointError: the disk refused; what was trained is kept, and a repeated run goes on.
            Yielded: the job was asked to make way, and the run is saved.
        """
        # Under `accelerate launch` every process comes here; the first one writes.
        alone = alone_in(Path(self.output_dir)) if is_first() else nullcontext()
        with alone:
            return self._train(on_step, save_every_s)

    def _train(self, on_step: OnStep, save_every_s: float) -> TrainedProgress:
        started = time.monotonic()
        data = read_dataset(self.data_path)
        if data.incomplete:
            _log.warning("%s: %d lines lack a field and are left out", self.data_path, data.incomplete)
        halves = split(data.rows, eval_ratio=self.eval_ratio, seed=self.seed)
        train = Steps(halves.train, self.tokenizer, self.max_length)
        held_out = Steps(halves.held_out, self.tokenizer, self.max_length)
        saves = Saves(Path(self.output_dir) / f"{_RUN}{self._id(data)}", save_every_s)
        trainer = self._trainer(train, held_out, saves.folder)
        run(trainer, on_step, saves)
        kept: Any = trainer.model
        self.model = kept
        made = self._described(trainer.state, data, halves, (train, held_out), time.monotonic() - started)
        # The others may still be reading the best epoch's weights, which are removed with the run.
        wait(self.model.device)
        if is_first():
            self._publish(made)
        wait(self.model.device)
        return made

    def _trainer(self, train: Steps, held_out: Steps, folder: Path) -> Trainer:
        checkpointing: dict[str, Any] = {CHECKPOINTING: self.gradient_checkpointing}
        with quiet_libraries():
            return Trainer(
                model=self.model,
                args=TrainingArguments(
                    **checkpointing,
                    output_dir=str(folder),
                    learning_rate=self.learning_rate,
                    per_device_train_batch_size=self.batch_size,
                    per_device_eval_batch_size=self.batch_size,
                    num_train_epochs=self.epochs,
                    weight_decay=_WEIGHT_DECAY,
                    eval_strategy="epoch",
                    save_strategy="epoch",
                    load_best_model_at_end=True,
                    metric_for_best_model="mse",
                    # Without it transformers keeps the worst epoch.
                    greater_is_better=False,
                    logging_steps=1,
                    # It would show a loss that is no number as 0.
                    logging_nan_inf_filter=False,
                    report_to="none",
                    disable_tqdm=True,
                    remove_unused_columns=False,
                    seed=self.seed,
                    use_cpu=self._cpu,
                    bf16=self._bf16,
                    dataloader_pin_memory=not self._cpu,
                ),
                data_collator=Collated(int(self.model.config.pad_token_id)),
                train_dataset=train,
                eval_dataset=held_out,
                compute_metrics=measured,
                # Some models give their hidden states too, which would be kept of every row.
                preprocess_logits_for_metrics=numbers_of,
            )

    def _described(
        self, state: TrainerState, data: Dataset, halves: Halves, texts: tuple[Steps, Steps], seconds: float
    ) -> TrainedProgress:
        epochs = tuple(
            Errors(row["eval_mae"], row["eval_mse"]) for row in state.log_history if "eval_mse" in row
        )
        best = min(range(len(epochs)), key=lambda number: epochs[number].mse)
        return TrainedProgress(
            base=self.model_name,
            data=data.digest,
            proofs=(proofs_of(halves.train), proofs_of(halves.held_out)),
            rows=(len(halves.train), len(halves.held_out)),
            by_side=halves.by_side,
            incomplete=data.incomplete,
            cut=sum(part.cut for part in texts),
            max_length=self.max_length,
            settings=self._settings(),
            epochs=epochs,
            best_epoch=best + 1,
            held_out=epochs[best],
            constant=constant_errors(halves),
            steps=state.global_step,
            digest=weights_digest(self.model.state_dict()),
            versions={
                name: importlib.metadata.version(name) for name in ("torch", "transformers", "accelerate")
            },
            device=str(self.model.device.type),
            seconds=seconds,
        )

    def _publish(self, made: TrainedProgress) -> None:
        place = Path(self.output_dir)

        def write(folder: Path) -> None:
            with quiet_libraries():
                self.model.save_pretrained(folder)
                self.tokenizer.save_pretrained(folder)

        publish(place, write, asdict(made))
        # Those of other data or settings too: what they were for is here now.
        for old in place.glob(f"{_RUN}*"):
            shutil.rmtree(old, ignore_errors=True)

    def _settings(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "weight_decay": _WEIGHT_DECAY,
            "eval_ratio": self.eval_ratio,
            "seed": self.seed,
            "bf16": self._bf16,
            "gradient_checkpointing": self.gradient_checkpointing,
        }

    def _id(self, data: Dataset) -> str:
        about = [self.model_name, self._begun, data.digest, self.max_length, self._settings()]
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def _check(**numbers: float) -> None:
    for name, value in numbers.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise SettingsError(f"{name} is {value!r}: it takes a finite number")
        if name == "seed":
            continue
        if name == "eval_ratio":
            if not 0 < value < 1:
                raise SettingsError(f"eval_ratio is {value}: it takes a number between 0 and 1")
        elif value <= 0:
            raise SettingsError(f"{name} is {value}: it takes a number above 0")
