"""Run a trainer of transformers or TRL: quiet, reported, saved, in as many processes as Accelerate starts.

With `Saves` an interrupted run continues from the last saved step and ends with exactly the weights of an uninterrupted
one. A saved step counts once it is completely on the disk; then the earlier ones are removed.

    <saves.folder>/checkpoint-<step>/       the model, the optimiser, the random state; and `whole`, written last, with
                                            the SHA-256 of each: what a disk has damaged since is passed over
"""

from __future__ import annotations

import abc
import importlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from accelerate import PartialState
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainingArguments
from transformers.integrations.integration_utils import (
    TensorBoardCallback,
    default_logdir,
    get_available_reporting_integrations,
)
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.trainer_utils import SaveStrategy

from pipeline.jobs import preemption
from pipeline.models.chain import Chain, Checkpoint, Step, TrainingFacts
from pipeline.models.config import Config
from pipeline.models.curve import Curve
from pipeline.models.errors import CheckpointError, ConfigError, disk_reason
from pipeline.models.libraries import check_finite, device_of, diverged, quiet_libraries
from pipeline.models.model_files import changed_file, file_digest, files_in, start_of, versions
from pipeline.models.ranks import any_of, is_first, meet, of_first, world
from store.files import sync_tree, write_whole

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState

OnStep = Callable[[int, int], object]
R = TypeVar("R")
# Older versions of transformers lack the new name, and newer ones warn about the old one.
CHECKPOINTING = next(
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in TrainingArguments.__dataclass_fields__
)
_WHOLE = "whole"
_WATCHED = ("loss", "grad_norm", "eval_mse")


@dataclass(frozen=True, slots=True)
class Saves:
    """The folder and the interval of a run's saves.

    Attributes:
        folder: of this run alone: of the same model, data and settings.
        every_s: seconds between two saves; infinite: only at the end, if the trainer itself is set to save,
            and at a preemption (`pipeline.jobs.preemption`).
        tensorboard: the folder for TensorBoard's files; None: one beside the saves, if the trainer reports to it.
    """

    folder: Path
    every_s: float = math.inf
    tensorboard: Path | None = None

    @property
    def report_to(self) -> str:
        """The tracker for a trainer with these saves."""
        return "none" if self.tensorboard is None else "tensorboard"


def run(trainer: Any, on_step: OnStep, saves: Saves | None = None) -> int:
    """Run a trainer quietly to its end, from its last save; return its optimiser steps, earlier ones among them.

    Args:
        trainer: of transformers or TRL.
        on_step: takes (optimiser steps done, in all) after each.
        saves: folder and interval of its saves; None: no saves.

    Raises:
        DivergedError: a logged loss or a trained weight is not finite.
        CheckpointError: the disk refused; earlier saves stay.
        Yielded: the job was preempted, and the run is saved.
    """
    # They print to stdout, which belongs to the job's lines for the daemon.
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(_StepReports(on_step))
    with quiet_libraries(), _own_run(trainer.args.report_to):
        if saves is None:
            trainer.train()
        else:
            _run_saved(trainer, saves)
    check_finite(trainer.model)
    meet()  # another process may still read the best weights, which go with the run
    return int(trainer.state.global_step)


@dataclass(frozen=True, slots=True)
class FitResult:
    """The facts of a training run: used rows, dropped rows, optimiser steps, and its measures, by name."""

    rows: int
    dropped: int
    steps: int
    measures: Mapping[str, float]


class LibraryTrainer(abc.ABC):
    """The common part of LeanDojo's trainers: arguments, running, reporting and writing.

    Attributes:
        model_name, output_dir: as in LeanDojo-v2's trainers.
        device: where to compute.
        settings: the origin of a checkpoint beside its model and its data.
    """

    kind: ClassVar[str]
    libraries: ClassVar[tuple[str, ...]]
    settings: Config

    def __init__(
        self,
        model_name: str | Path,
        output_dir: str | Path,
        device: str,
        report_to: str | Sequence[str],
        callbacks: Sequence[TrainerCallback],
    ) -> None:
        """Args:
        model_name: a folder, or a name of the hub.
        output_dir: the model's folder.
        device: "auto" (GPUs if there are any), "cpu" or "cuda".
        report_to: transformers' names of trackers: "tensorboard", "wandb", "mlflow", "trackio", as they are set up.
        callbacks: transformers' or of its shape, for each run.

        Raises:
            ConfigError: there is no such tracker or device.
        """
        self.model_name, self.output_dir = str(model_name), str(output_dir)
        self.device = device_of(device)
        self._trackers = trackers(report_to)
        self._callbacks = tuple(callbacks)
        self._run_name: str | None = None
        self._curve = Curve()

    def arguments(self) -> dict[str, Any]:
        """Return the common arguments of all trainers of transformers and TRL."""
        return {
            "output_dir": self.output_dir,
            "use_cpu": self.device.type == "cpu",
            "report_to": self._trackers or "none",
            # Trackers draw a name by the seed: the same for every repository.
            "run_name": self._run_name,
            "logging_steps": 1,
            # The filter would log a loss of NaN as 0.
            "logging_nan_inf_filter": False,
            "disable_tqdm": True,
        }

    def follows_from(self) -> dict[str, Any]:
        """Return a checkpoint's origin beside its data, the settings of this trainer among it."""
        return {
            "base": self.model_name,
            "begun": start_of(Path(self.model_name)),
            "settings": self.settings.to_dict(),
        }

    def about(self) -> dict[str, Any]:
        """Return further fields of a checkpoint's description."""
        return {}

    def description(self, rows: str, fitted: FitResult, seconds: float) -> dict[str, Any]:
        """Return the content of the checkpoint.json of `output_dir`; `rows` is the SHA-256 of the rows."""
        return {
            "kind": self.kind,
            **self.follows_from(),
            "rows": rows,
            "versions": versions(self.libraries),
            "device": str(self.device),
            "seconds": seconds,
            **self.facts(fitted),
        }

    @abc.abstractmethod
    def fit(self, rows: Any, saves: Saves | None = None) -> FitResult:
        """Train the model on rows; `saves`: folder and interval of the run's saves, None: no saves.

        Raises:
            NothingToLearnError: no row can be used. DivergedError: a loss was not finite.
            CheckpointError: the disk refused; the saved steps stay. Yielded: the job was preempted, and the run is
                saved.
        """

    @abc.abstractmethod
    def write(self, folder: Path) -> None:
        """Write the model, its tokenizer and the curve of its training into a folder, made if need be.

        Raises:
            OSError, SafetensorError: the disk refused.
        """

    def facts(self, fitted: FitResult) -> dict[str, Any]:
        """Return a description's fields about this training."""
        return {"fitted": {**asdict(fitted), "measures": dict(fitted.measures)}, **self.about()}

    def drive(self, trainer: Any, on_step: OnStep, saves: Saves | None = None) -> int:
        """Run a trainer as `run` does, and keep its curve."""
        for callback in self._callbacks:
            trainer.add_callback(callback)
        steps = run(trainer, on_step, saves)
        self._curve = Curve.of_history(trainer.state.log_history)
        return steps

    def write_files(self, folder: Path, model: Any, tokenizer: Any) -> None:
        """Write a model, its tokenizer and the curve of its training into a folder, made if need be.

        Raises:
            OSError, SafetensorError: the disk refused.
        """
        with quiet_libraries():
            model.save_pretrained(str(folder))
            tokenizer.save_pretrained(folder)
        self._curve.write(folder)


def make_checkpoint(
    begin: Callable[[Path, str], LibraryTrainer],
    step: Step,
    chain: Chain,
    *,
    rows: Callable[[], R],
    about: Callable[[R], Mapping[str, Any]],
    warn: Callable[[FitResult], tuple[str, ...]],
    save_minutes: float,
    tensorboard: Path | None,
) -> Checkpoint:
    """Return a step's checkpoint; if it does not exist, train it, from the last saved step.

    Args:
        begin: makes the trainer, of a folder to stay empty and transformers' name of a tracker.
        step: of the chain.
        chain: of the model.
        rows: returns the rows to learn.
        about: returns the description's fields about the rows.
        warn: returns the checkpoint's warnings, or refuses the result.
        save_minutes: between two saves.
        tensorboard: the folder for TensorBoard's files; None: there are none.

    Raises:
        LearningError: see `LibraryTrainer.fit`; or of `rows` and `warn`, or another process makes the same checkpoint.
        Yielded: the job was preempted, and the run is saved.
    """

    def make(run: Path) -> Checkpoint:
        began = time.monotonic()
        saves = Saves(run / "steps", 60 * save_minutes, tensorboard)
        trainer = begin(run / "model", saves.report_to)
        shown = rows()
        fitted = trainer.fit(shown, saves)
        warnings, described = warn(fitted), {**about(shown), **trainer.facts(fitted)}
        seconds, libraries = time.monotonic() - began, versions(trainer.libraries)
        facts = TrainingFacts(fitted.steps, trainer.device.type, seconds, libraries, warnings, described)
        return chain.put(step, trainer.write, facts)

    return chain.once(step, make)


def _run_saved(trainer: Any, saves: Saves) -> None:
    trainer.args.output_dir = str(saves.folder)
    trainer.add_callback(_SaveCallback(saves))
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:
            # Beside the saves, which are removed in the end.
            callback.logging_dir = str(saves.tensorboard or saves.folder.parent / default_logdir())
    try:
        begun = _newest_whole(saves.folder)
        with preemption.region(any_of):
            trainer.train(resume_from_checkpoint=None if begun is None else str(begun))
    except (OSError, RuntimeError, SafetensorError) as error:
        if not _is_disk_error(error):
            raise
        raise CheckpointError(
            f"{saves.folder} cannot be written ({disk_reason(error)}). Make room, then run it again: it continues from "
            "the last step that was saved"
        ) from error


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


def wait(device: torch.device) -> None:
    """Wait for the other processes of the run, if there are any."""
    if world() > 1:
        # Without `cpu` Accelerate takes processes on CPUs for single ones, and does not wait.
        PartialState(cpu=device.type == "cpu").wait_for_everyone()


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
    """Decides when a run is saved, flushes the save to the disk, and removes the earlier ones."""

    def __init__(self, saves: Saves) -> None:
        self._saves = saves
        self._next = time.monotonic() + saves.every_s

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
        last = state.global_step >= state.max_steps
        if last:
            # A repeated run only needs the weights: no step follows.
            args.save_only_model = True
        if args.save_strategy == SaveStrategy.EPOCH and (last or float(state.epoch or 0).is_integer()):
            # transformers saves after the epoch's evaluation; resuming from before it would skip the evaluation.
            return
        if last or any_of(preemption.wanted() or time.monotonic() >= self._next):
            control.should_save = control.should_log = True

    def on_save(
        self,
        args: TrainingArguments,  # noqa: ARG002
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        self._next = time.monotonic() + self._saves.every_s
        meet()  # each process has written its part
        if is_first():
            saved = self._of(state.global_step)
            sync_tree(saved)
            digests = {name: file_digest(saved / name) for name in files_in(saved)}
            write_whole(saved / _WHOLE, json.dumps(digests))
            kept = {saved, Path(state.best_model_checkpoint or saved)}
            for other in self._saves.folder.glob("checkpoint-*"):
                if other not in kept:
                    shutil.rmtree(other)
        if any_of(preemption.wanted()):
            raise preemption.Yielded(f"step {state.global_step} is saved")

    def _of(self, step: int) -> Path:
        return self._saves.folder / f"checkpoint-{step}"


def _newest_whole(folder: Path) -> Path | None:
    """Return the newest whole step of a run; remove an interrupted save's remains, and damaged files."""
    result: list[tuple[int, Path]] = []
    if is_first():
        for path in folder.glob("checkpoint-*"):
            try:
                damaged = changed_file(path, json.loads((path / _WHOLE).read_bytes()))
            except (FileNotFoundError, ValueError):
                damaged = (_WHOLE, "")
            if damaged is None:
                result.append((int(path.name.rpartition("-")[2]), path))
            else:
                shutil.rmtree(path)
    return of_first(max(result)[1] if result else None)


def _is_disk_error(error: BaseException) -> bool:
    # PyTorch turns a disk error on its own files into a RuntimeError.
    said = str(error)
    return (
        isinstance(error, OSError | SafetensorError) or "StreamWriter" in said or "inline_container" in said
    )
