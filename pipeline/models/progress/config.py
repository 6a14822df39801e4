"""Settings of a progress model's training job. Imports no torch: the daemon checks its settings against this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

from pipeline.models.config import Config, Device, FieldLimits

_TAKES = FieldLimits(
    positive=frozenset({"epochs", "batch_size", "lr", "max_seq_len"}),
    choices={"device": get_args(Device)},
)


@dataclass(frozen=True, slots=True)
class ProgressConfig(Config):
    """Settings of a training. Checked when made.

    Attributes:
        model_name: what the first checkpoint begins with: a folder or hub name of any text model.
        epochs: over the repository's training split; the one that does best on its val split is kept.
        batch_size: rows at once.
        lr: of AdamW, falling to 0.
        max_seq_len: tokens of a text; fewer where the model takes fewer.
        device: where; "auto": a GPU where there is one.
        seed: of a new head and the order of the rows.
        save_minutes: what a run that is killed loses at most, and a step; every epoch is saved too. 0: every step is.

    Raises:
        ConfigError: a field has a value that it does not take.
    """

    model_name: str = "bert-base-uncased"
    epochs: float = 3.0
    batch_size: int = 8
    lr: float = 1e-5
    max_seq_len: int = 512
    device: Device = "auto"
    seed: int = 42
    save_minutes: float = 10.0

    takes: ClassVar[FieldLimits] = _TAKES
    no_content: ClassVar[frozenset[str]] = frozenset({"save_minutes"})

    def __post_init__(self) -> None:
        self.checked()
