"""The retriever's checkpoints, links of a chain (`pipeline.learning.checkpoints`).

<folder>/<id>/model.safetensors     the encoder's weights, with config.json and the tokenizer beside them
<folder>/<id>/fisher.safetensors    what EWC keeps, or replay.jsonl what replay keeps, where either does
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from pipeline.learning import checkpoints
from pipeline.learning.checkpoints import Checkpoints
from pipeline.learning.errors import LearningError
from pipeline.retrieval.config import TrainingConfig
from pipeline.retrieval.encoder import WEIGHTS, weights_digest
from pipeline.retrieval.errors import CheckpointError
from pipeline.retrieval.fisher import FISHER
from pipeline.retrieval.retriever import PremiseRetriever
from pipeline.retrieval.strategies import Kept


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A link of a chain.

    Attributes:
        checkpoint: its id.
        parent: the checkpoint that it was trained from; None where that was `base`.
        base: the hub name or folder that the chain began with.
        task: what it was trained on last: a repository's key, or what the caller calls it.
        data: the SHA-256 of the corpus, the training examples, and those that chose the best epoch.
        data_seq: the log position of the data; 0 where it is from no log.
        config: the training configuration.
        seed: of the run.
        steps: of the optimiser.
        files: the SHA-256 of each of its other files, by name.
        digest: the SHA-256 of the weights by name and value (`encoder.weights_digest`).
        versions: of this program, Python and the libraries that made it.
        device: what it was trained on.
        seconds: how long that took; of a run that was cut off, its last attempt.
        warnings: what a reader should know of what it keeps for the next task.
    """

    checkpoint: str
    parent: str | None
    base: str
    task: str
    data: str
    data_seq: int
    config: dict[str, Any]
    seed: int
    steps: int
    files: dict[str, str]
    digest: str
    versions: dict[str, str]
    device: str
    seconds: float
    warnings: tuple[str, ...]

    @property
    def weights(self) -> str:
        """The SHA-256 of the weights' file."""
        return self.files[WEIGHTS]

    @property
    def fisher(self) -> str | None:
        """The SHA-256 of the Fisher information's file, if there is one."""
        return self.files.get(FISHER)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Chain(Checkpoints[Checkpoint]):
    """The retriever's checkpoints of one folder."""

    error: ClassVar[type[LearningError]] = CheckpointError

    def described(self, found: Any) -> Checkpoint:
        """Return what a checkpoint.json says."""
        if not isinstance(found, dict) or WEIGHTS not in found.get("files", {}):
            raise ValueError("it describes no checkpoint")
        return Checkpoint(**{**found, "warnings": tuple(found["warnings"])})

    def ancestors(self, checkpoint: str) -> list[Checkpoint]:
        """Return a checkpoint and those it was trained from, the newest first.

        Raises:
            CheckpointError: a link is missing, or is an ancestor of itself.
        """
        found = [self.read(checkpoint)]
        seen = {checkpoint}
        while (parent := found[-1].parent) is not None:
            if parent in seen:
                raise CheckpointError(
                    f"the checkpoint {parent} goes back to itself: a checkpoint.json in {self.folder} was changed. "
                    "Restore it from a backup"
                )
            seen.add(parent)
            found.append(self.read(parent))
        return found

    def save(
        self,
        checkpoint: str,
        model: PremiseRetriever,
        kept: Kept,
        *,
        parent: str | None,
        base: str,
        task: str,
        data: str,
        data_seq: int,
        config: TrainingConfig,
        steps: int,
        device: str,
        seconds: float,
    ) -> Checkpoint:
        """Write a checkpoint, as `put` does.

        Raises:
            CheckpointError: it could not be written (a full disk): there is no checkpoint then, and the run's folder
                stays, so that a repeated run only writes.
        """

        def write(folder: Path) -> None:
            model.save(folder)
            kept.save(folder)

        return self.put(
            checkpoint,
            write,
            lambda files: Checkpoint(
                checkpoint=checkpoint,
                parent=parent,
                base=base,
                task=task,
                data=data,
                data_seq=data_seq,
                config=config.to_dict(),
                seed=config.seed,
                steps=steps,
                files=files,
                digest=weights_digest(model.encoder.state_dict()),
                versions=versions(),
                device=device,
                seconds=seconds,
                warnings=kept.warnings,
            ),
        )


def checkpoint_id(
    *, parent: str | None, base: str, begun: str, task: str, data: str, config: Mapping[str, Any]
) -> str:
    """Return the id of the retriever that follows from these, as `pipeline.learning.checkpoints.checkpoint_id`."""
    # How often a run is saved, how it is watched and what an evaluation takes at once do not change what it makes.
    named = {key: value for key, value in config.items() if key not in _NOT_ITS_CONTENT}
    return checkpoints.checkpoint_id(
        parent=parent, base=base, begun=begun, task=task, data=data, config=named
    )


_NOT_ITS_CONTENT = frozenset(
    {"num_workers", "timeout_seconds", "log_every_n_steps", "checkpoint_every_n_steps", "eval_batch_size"}
)


def versions() -> dict[str, str]:
    """Return the versions of what decides a checkpoint's weights: this program, Python, and who computes and draws."""
    names = ("unsorry", "torch", "transformers", "pytorch-lightning", "numpy")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}
