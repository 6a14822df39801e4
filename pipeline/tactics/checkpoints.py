"""The checkpoints of tactic models and of the progress model, links of chains (`pipeline.learning.checkpoints`).

    <folder>/<id>/      what `tactics.models.load_model` and `progress.ProgressModel` load, and checkpoint.json

Imports no torch.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from pipeline.learning.checkpoints import Checkpoints
from pipeline.learning.errors import LearningError
from pipeline.learning.weights import weights_of
from pipeline.tactics.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a chain.

    Attributes:
        checkpoint: its id.
        parent: the checkpoint that it was trained from; None where that was `base`.
        base: the hub name or folder that the chain began with.
        task: the repository's key.
        data: the SHA-256 of what it was trained on.
        data_seq: the log position of the data.
        config: the training configuration.
        seed: of the run.
        steps: of the optimiser.
        files: the SHA-256 of each of its other files, by name.
        versions: of this program, Python and the libraries that made it.
        device: what it was trained on.
        seconds: how long that took; of a run that was cut off, its last attempt.
        warnings: what a reader should know of it.
        about: what else its checkpoint.json says.
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
    versions: dict[str, str]
    device: str
    seconds: float
    warnings: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def fisher(self) -> None:
        """No Fisher information: these models are not kept from forgetting by it."""
        return None

    def as_json(self) -> dict[str, Any]:
        said = asdict(self)
        about: dict[str, Any] = said.pop("about")
        return {**about, **said}


_FIELDS = frozenset(item.name for item in fields(Link)) - {"about"}


class Chain(Checkpoints[Link]):
    """The checkpoints of one folder."""

    error: ClassVar[type[LearningError]] = CheckpointError

    def described(self, found: Any) -> Link:
        """Return what a checkpoint.json says."""
        if not isinstance(found, dict) or not weights_of(found.get("files", {})):
            raise ValueError("it describes no checkpoint")
        known = {key: value for key, value in found.items() if key in _FIELDS}
        about = {key: value for key, value in found.items() if key not in _FIELDS}
        return Link(**{**known, "warnings": tuple(found["warnings"])}, about=about)


def versions(libraries: Sequence[str]) -> dict[str, str]:
    """Return the versions of this program, of Python, and of the libraries that a checkpoint's weights follow from."""
    return {
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("unsorry", *libraries)},
    }
