"""Run a trainer of transformers or TRL: quiet, reported, saved, in one process or several.

An interrupted run continues from the last saved step and ends with exactly the weights of an uninterrupted
one. A saved step counts once it is completely on the disk; then the earlier ones are removed.

    <saves.folder>/checkpoint-<step>/       the model, the optimiser, the random state; and `whole`, written last, with
                                            the SHA-256 of each: what a disk has damaged since is passed over
"""

from __future__ import annotations

import abc
import gc
import importlib
import json
import math
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import (
    TensorBoardCallback,
    get_available_reporting_integrations,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.trainer_utils import SaveStrategy

from pipeline.jobs import preemption
from pipeline.models.chain import Chain, Step, TrainingResult
from pipeline.models.config import Config
from pipeline.models.curve import Curve
from pipeline.models.errors import ConfigError, writing
from pipeline.models.libraries import (
    check_finite,
    computes_in_bfloat16,
    device_of,
    diverged,
    quiet_libraries,
)
from pipeline.models.model_files import Checkpoint, changed_file, file_digest, files_in, versions
from pipeline.models.ranks import any_of, is_first, meet, of_first, world
from store.files import sync_tree, write_whole

if TYPE_CHECKING:
    from transformers import TrainerControl

OnStep = Callable[[int, int], object]
C = TypeVar("C", bound=Config)
# Older versions of transformers lack the new name, and newer ones warn about the old one.
CHECKPOINTING = next(
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in TrainingArguments.__dataclass_fields__
)
_WHOLE = "whole"
_REMEDY = "Make room, then run it again: it continues from the last step that was saved"
_WATCHED = ("loss", "grad_norm", "eval_loss")


@dataclass(frozen=True, slots=True)
class Saves:
    """The folder and the interval of a run's saves.

    Attributes:
        folder: of this run alone: of the same model, data and settings.
        every_s: seconds between two saves; infinite: only at a preemption (`pipeline.jobs.preemption`), and when the
            trainer itself is set to save.
        tensorboard: the folder for TensorBoard's files, unless the reports have one; None: the tracker's own choice.
    """

    folder: Path
    every_s: float = math.inf
    tensorboard: Path | None = None


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports of a run.

    Attributes:
        on_step: takes (optimiser steps done, in all) after each.
        say: takes a line of text.
        trackers: transformers' names of trackers.
        callbacks: transformers', or of its shape.
        tensorboard: the folder for TensorBoard's files, without its name among the trackers; None: that of the saves.
        name: of the run, for trackers; without one they draw it by the seed.
    """

    on_step: OnStep = lambda _done, _total: None
    say: Callable[[str], object] = lambda _line: None
    trackers: Sequence[str] = ()
    callbacks: Sequence[TrainerCallback] = ()
    tensorboard: Path | None = None
    name: str | None = None


NO_REPORTS = Reports()


@dataclass(frozen=True, slots=True)
class FitResult:
    """The facts of a training run.

    Attributes:
        rows, dropped: the numbers of used and of dropped rows.
        steps: of the optimiser.
        measures: by name.
        warnings: about the model.
        about: further fields of a checkpoint's description.
    """

    rows: int
    dropped: int
    steps: int
    measures: Mapping[str, float]
    warnings: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


class Training(abc.ABC, Generic[C]):
    """A training of one model on rows, by a trainer of transformers or TRL.

    Attributes:
        config: how to train.
        device: where to compute.
        reports: of its run.
        curve: of its run.
        model, tokenizer: the trained ones; they are loaded with it.
    """

    libraries: ClassVar[tuple[str, ...]]
    model: Any
    tokenizer: PreTrainedTokenizerBase

    def __init__(self, config: C, reports: Reports) -> None:
        """Args:
        config: how to train.
        reports: of its run.

        Raises:
            ConfigError: there is no GPU.
        """
        self.config = config
        self.device = device_of(config.device)
        self.reports = reports
        self.curve = Curve()

    @abc.abstractmethod
    def fit(self, rows: Any, saves: Saves) -> FitResult:
        """Train the model on rows. A killed run goes on from its last save, the same to the bit.

        Raises:
            NothingToLearnError: no row can be used, or nothing was learned. DivergedError: a loss was not finite.
            CheckpointError: the disk refused; the saved steps stay. Yielded: the job was preempted, and the run is
                saved.
        """

    def write(self, folder: Path) -> None:
        """Write the model, its tokenizer and the curve of its training into a folder, made if need be.

        Raises:
            Exception: the disk refused; each library has a name of its own for that.
        """
        with quiet_libraries():
            self.model.save_pretrained(str(folder))
            self.tokenizer.save_pretrained(folder)
        self.curve.write(folder)

    def arguments(self, saves: Saves) -> dict[str, Any]:
        """Return the common arguments of all trainers of transformers and TRL."""
        return {
            "output_dir": str(saves.folder),
            "per_device_train_batch_size": self.config.batch_size // world(),
            "learning_rate": self.config.lr,
            "seed": self.config.seed,
            "use_cpu": self.device.type == "cpu",
            "bf16": computes_in_bfloat16(self.device),
            "report_to": [*self.reports.trackers, *(["tensorboard"] if self.reports.tensorboard else [])],
            "run_name": self.reports.name,
            "logging_steps": 1,
            # The filter would log a loss of NaN as 0.
            "logging_nan_inf_filter": False,
            "ddp_find_unused_parameters": False,
            "disable_tqdm": True,
        }

    def drive(self, trainer: Any, saves: Saves) -> int:
        """Run a trainer quietly to its end, from its last save; return its optimiser steps, earlier ones among them.

        Args:
            trainer: of transformers or TRL; its output folder is that of the saves.
            saves: folder and interval.

        Raises:
            DivergedError: a logged loss or a trained weight is not finite.
            CheckpointError, Yielded: as `fit`.
        """
        reports = self.reports
        # They print to stdout, which belongs to the job's lines for the daemon.
        for callback in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(callback)
        thread = ThreadPoolExecutor(1, "saving")
        saving = _SaveCallback(saves, thread)
        for callback in (*reports.callbacks, _StepReports(reports.on_step), saving):
            trainer.add_callback(callback)
        for callback in trainer.callback_handler.callbacks:
            folder = reports.tensorboard or saves.tensorboard
            if isinstance(callback, TensorBoardCallback) and folder is not None:
                # Its own choice is beside the saves, which are removed in the end.
                callback.logging_dir = str(folder)
        with quiet_libraries(), _own_run(reports.trackers), thread:
            with writing(str(saves.folder), _REMEDY):
                begun = _newest_whole(saves.folder)
            if begun is not None and _has_ended(begun):
                # transformers would take one more step, unless the run ended with an epoch.
                trainer.args.num_train_epochs, trainer.args.max_steps = 0, -1
            trainer._save_checkpoint = writing(str(saves.folder), _REMEDY)(trainer._save_checkpoint)
            with preemption.region(any_of):
                trainer.train(resume_from_checkpoint=None if begun is None else str(begun))
            saving.wait()
        check_finite(trainer.model)
        meet()  # another process may still read the best weights, which go with the run
        self.curve = Curve(trainer.state.log_history)
        return int(trainer.state.global_step)


def make_checkpoint(
    chain: Chain,
    step: Step,
    begin: Callable[[], Training[Any]],
    rows: Callable[[], tuple[Any, Mapping[str, Any]]],
) -> Checkpoint:
    """Return a step's checkpoint; if it does not exist, train it, from the last saved step.

    Args:
        chain: of the model.
        step: of the chain.
        begin: loads the model.
        rows: returns the rows to learn, and the checkpoint's fields about them.

    Raises:
        LearningError: see `Training.fit`; or of `begin` and `rows`, or another process makes the same checkpoint.
        Yielded: the job was preempted, and the run is saved.
    """

    def train(run: Path) -> TrainingResult:
        began = time.monotonic()
        training = begin()
        learned, described = rows()
        curves = chain.folder / "tensorboard" / step.checkpoint
        fitted = training.fit(learned, Saves(run / "steps", 60 * training.config.save_minutes, curves))
        told = {name: getattr(fitted, name) for name in ("rows", "dropped", "steps", "measures")}
        return TrainingResult(
            training.write,
            fitted.steps,
            training.device.type,
            time.monotonic() - began,
            versions(training.libraries),
            fitted.warnings,
            {**described, **fitted.about, "fitted": told},
        )

    made = chain.make(step, train)
    # A trainer and its model refer to each other, and the next model may need the GPU's memory.
    gc.collect()
    torch.cuda.empty_cache()
    return made


def trackers(report_to: str | Sequence[str]) -> list[str]:
    """Return transformers' names of a run's trackers; none of "none".

    Raises:
        ConfigError: there is none of this name, or its library is not installed.
    """
    names = [report_to] if isinstance(report_to, str) else list(report_to)
    installed: list[str] = get_available_reporting_integrations()
    for name in names:
        if name not in (*installed, "none"):
            raise ConfigError(
                f"report_to is {name!r}: it takes names of installed trackers ({', '.join(installed) or 'here none'}). "
                "Install tensorboard (everlean's extra of this name), wandb, mlflow or trackio, or pass no name"
            )
    return [name for name in names if name != "none"]


@contextmanager
def _own_run(reported_to: Sequence[str]) -> Iterator[None]:
    """End the run of W&B of one training: transformers leaves it open, and the next training would go on in it.

    The caller's own run goes on. The other trackers' runs end by themselves.
    """
    if "wandb" not in reported_to:
        yield
        return
    wandb: Any = importlib.import_module("wandb")
    begun_before = wandb.run is not None
    try:
        yield
    finally:
        if not begun_before:
            wandb.finish()


def mean_loss(history: Iterable[Mapping[str, Any]]) -> float:
    """Return the mean loss of a run's steps from its log; a resumed run's log has the earlier steps too."""
    before, summed = 0, 0.0
    for row in history:
        if "loss" in row:
            summed += row["loss"] * (row["step"] - before)
            before = row["step"]
    return summed / before if before else math.nan


class _StepReports(TrainerCallback):  # type: ignore[misc]
    """Reports each step, and ends a run with a loss that is not finite."""

    def __init__(self, on_step: OnStep) -> None:
        self._on_step = on_step

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002 - transformers' signature, here and below
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        # transformers leaves the last steps out of the log unless they are a round number.
        control.should_log |= state.global_step >= state.max_steps
        if not preemption.wanted():
            # After a preemption saving comes first: the reader of these lines may have exited.
            self._on_step(state.global_step, state.max_steps)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        for name in _WATCHED:
            if name == "grad_norm" and args.fp16:
                continue  # if it overflows, the step is skipped
            value = (logs or {}).get(name)
            if value is not None and not math.isfinite(value):
                raise diverged(f"{name} of step {state.global_step} is {value}")


class _SaveCallback(TrainerCallback):  # type: ignore[misc]
    """Decides when a run is saved. A thread flushes the save to the disk, during the next steps, and removes the
    earlier ones.
    """

    def __init__(self, saves: Saves, thread: ThreadPoolExecutor) -> None:
        self._saves = saves
        self._thread = thread
        self._flushing: Future[None] | None = None
        self._next = time.monotonic() + saves.every_s

    def wait(self) -> None:
        """Wait until the last save is on the disk.

        Raises:
            CheckpointError: the disk refused.
        """
        flushing, self._flushing = self._flushing, None
        if flushing is not None:
            with writing(str(self._saves.folder), _REMEDY):
                flushing.result()

    def on_train_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        if state.best_global_step:
            # The saved path is absolute, and the folder may have moved since.
            state.best_model_checkpoint = str(self._of(state.best_global_step))

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        ends_epoch = state.global_step >= state.max_steps or float(state.epoch or 0).is_integer()
        if args.save_strategy == SaveStrategy.EPOCH and ends_epoch:
            # transformers saves after the epoch's evaluation; resuming from before it would skip the evaluation.
            return
        if any_of(preemption.wanted() or time.monotonic() >= self._next):
            control.should_save = control.should_log = True

    def on_save(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        meet()  # each process has written its part
        self.wait()
        saved = self._of(state.global_step)
        if is_first():
            kept = {saved, Path(state.best_model_checkpoint or saved)}
            self._flushing = self._thread.submit(self._flush, saved, kept)
        self._next = time.monotonic() + self._saves.every_s
        if any_of(preemption.wanted()):
            self.wait()
            raise preemption.Yielded(f"step {state.global_step} is saved")

    def _flush(self, saved: Path, kept: Collection[Path]) -> None:
        sync_tree(saved)
        digests = {name: file_digest(saved / name) for name in files_in(saved)}
        write_whole(saved / _WHOLE, json.dumps(digests))
        for other in self._saves.folder.glob("checkpoint-*"):
            # The next save may have begun.
            if other not in kept and _step_of(other) < _step_of(saved):
                shutil.rmtree(other)

    def _of(self, step: int) -> Path:
        return self._saves.folder / f"checkpoint-{step}"


def _newest_whole(folder: Path) -> Path | None:
    """Return the newest whole step of a run, its best weights too; remove an interrupted save's remains, and damaged
    files.
    """
    whole: dict[int, Path] = {}
    if is_first():
        for path in folder.glob("checkpoint-*"):
            try:
                damaged = changed_file(path, json.loads((path / _WHOLE).read_bytes()))
            except (FileNotFoundError, ValueError):
                damaged = (_WHOLE, "")
            if damaged is None:
                whole[_step_of(path)] = path
            else:
                shutil.rmtree(path)
    usable = [step for step, path in whole.items() if (_state_of(path).best_global_step or step) in whole]
    return of_first(whole[max(usable)] if usable else None)


def _step_of(saved: Path) -> int:
    return int(saved.name.rpartition("-")[2])


def _state_of(saved: Path) -> TrainerState:
    return TrainerState.load_from_json(str(saved / TRAINER_STATE_NAME))


def _has_ended(saved: Path) -> bool:
    """Return whether a saved step is its run's last one, perhaps before its end was due."""
    return bool(_state_of(saved).stateful_callbacks["TrainerControl"]["args"]["should_training_stop"])
