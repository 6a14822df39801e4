"""Event types of trained models: checkpoints, promotions, and evaluations. Stream: `model:<name>`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from store.events.base import BlobRef, Digest, EventBody

ModelKind = Literal["retriever", "tactics", "progress"]


class CheckpointSaved(EventBody):
    """A training run ended with these weights, the next link of its model's chain.

    `checkpoint` is its id, `parent` the checkpoint before the run (None: from `base`, a hub name or folder),
    or, for an offered model, the one in use. `data_seq` is the log position of the training data. `weights`
    is the SHA-256 of the weights' file (of several parts: of the names and SHA-256 of all), safetensors below
    the artifact folder; it is not in the log. `size_bytes` is that of all parts. `curve` is JSON: for each
    measure of the training, its loss among them, the steps and the values (`pipeline.models.curve`). None: it
    was not kept.
    """

    type: ClassVar[str] = "checkpoint_saved"
    model: ModelKind
    checkpoint: str
    parent: str | None
    base: str
    data_seq: int
    config: dict[str, Any]
    seed: int
    steps: int
    weights: Digest
    size_bytes: int
    curve: BlobRef | None
    versions: dict[str, str]
    device: str
    seconds: float
    job: str


class ModelOffered(EventBody):
    """A user offers a model trained elsewhere: it is measured, and decided on like one trained here.

    `folder` holds it, with weights of this SHA-256. It is measured on the repository's test set beside those
    of all earlier tasks; `learned`: it was trained on this repository. `trace` is the repository's trace;
    None: its newest one.
    """

    type: ClassVar[str] = "model_offered"
    model: ModelKind
    folder: str
    weights: Digest
    repository: str
    trace: str | None
    learned: bool
    by: str


class CheckpointPromoted(EventBody):
    """From here on this checkpoint is the one in use. `previous` is None for the first."""

    type: ClassVar[str] = "checkpoint_promoted"
    model: ModelKind
    checkpoint: str
    previous: str | None
    reason: str


class CheckpointRefused(EventBody):
    """The promotion rule refused this checkpoint for `reason`.

    `in_use` is the checkpoint in use, which stays so, None if there was none. A refused one can still be
    promoted by hand.
    """

    type: ClassVar[str] = "checkpoint_refused"
    model: ModelKind
    checkpoint: str
    in_use: str | None
    reason: str


class CheckpointRemoved(EventBody):
    """The files of this checkpoint were removed, for `reason`: `size_bytes` of weights, and the rest.

    Its facts and results stay in the log.
    """

    type: ClassVar[str] = "checkpoint_removed"
    model: ModelKind
    checkpoint: str
    reason: str
    size_bytes: int


class EvaluationFinished(EventBody):
    """A checkpoint was measured on one dataset.

    `metrics` maps names like "recall@10" to values in 0..1; the progress model's "mae" and "mse" are in
    steps, and in their square. `dataset` is the SHA-256 of the evaluated examples, `repository` None if they
    are of several, `n` their number. `scores` is JSON: for each theorem a hash of its name, the number of its
    examples, and the sum over those of the score in the model's promotion rule. None: it was not kept.
    """

    type: ClassVar[str] = "evaluation_finished"
    model: ModelKind
    evaluation: str
    checkpoint: str
    repository: str | None
    split: str
    dataset: Digest
    metrics: dict[str, float]
    n: int
    scores: BlobRef | None
    seconds: float
    job: str
