"""What can go wrong between a dataset and a promoted checkpoint, as one small tree.

`reason` is the stable word that the job's failure event carries.
"""

from __future__ import annotations

from pipeline.learning.errors import LearningError


class RetrievalError(LearningError):
    """The retriever cannot do what was asked. The promoted checkpoint is untouched."""

    reason = "retrieval"


class CorpusError(RetrievalError):
    """A corpus.jsonl cannot be used: its message names the line and what is wrong with it."""

    reason = "bad_corpus"
    for_good = True


class DatasetError(RetrievalError):
    """A dataset cannot be trained or evaluated on: unreadable, empty, or without a single premise."""

    reason = "bad_dataset"
    for_good = True


class EmptySplitError(DatasetError):
    """A split file has no theorem."""


class NothingToMeasureError(DatasetError):
    """No step of a split uses a premise of the corpus."""


class CheckpointError(RetrievalError):
    """A checkpoint or a Fisher information cannot be used: missing, damaged, or of another model."""

    reason = "bad_checkpoint"


class DivergedError(RetrievalError):
    """A loss, a gradient, a weight, an embedding or a score is no finite number."""

    reason = "diverged"
    for_good = True


def first_line(error: BaseException) -> str:
    """Return what an error says first, for a message of our own; its kind, where it says nothing."""
    return next(iter(str(error).splitlines()), type(error).__name__)
