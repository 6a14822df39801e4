"""Errors of training, measuring and asking models, as one tree; `reason` is the word in a job's failure event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from typing import ClassVar

from store.text import first_line


class LearningError(Exception):
    """A training, a measurement or a request that failed. No existing checkpoint is changed.

    `reason` is stable; `for_good` means the same attempt would fail again with the same data and settings.
    """

    reason: ClassVar[str] = "learning"
    for_good: ClassVar[bool] = False


class ConfigError(LearningError):
    """A setting cannot be used; the message names the field, its value and the valid values."""

    reason = "bad_config"
    for_good = True


class DatasetError(LearningError):
    """A dataset, or its corpus, cannot be used: unreadable, empty, or without a single premise."""

    reason = "bad_dataset"
    for_good = True


class NothingToLearnError(DatasetError):
    """A dataset, or a split of it, has no step to learn from or to measure with."""


class ModelError(LearningError):
    """A model cannot be used: missing, damaged, without a tokenizer, or of an unsuitable kind."""

    reason = "bad_model"


class CheckpointError(LearningError):
    """A checkpoint cannot be written or used: missing, damaged, or of another model."""

    reason = "bad_checkpoint"


class DivergedError(LearningError):
    """A loss, a gradient, a weight, an embedding or a score is no finite number."""

    reason = "diverged"
    for_good = True


class RewardError(LearningError):
    """Lean cannot reward anything here: it is missing, or does not start."""

    reason = "no_lean"


_OF_A_PROGRAM = (TypeError, AttributeError, LookupError, AssertionError)


@contextmanager
def writing(what: str, remedy: str) -> Iterator[None]:
    """Write a model or a part of a run.

    Raises:
        CheckpointError: the disk refused; each library has a name of its own for that.
    """
    try:
        yield
    except (LearningError, *_OF_A_PROGRAM):
        raise
    except Exception as error:
        said = error.strerror if isinstance(error, OSError) else None
        raise CheckpointError(f"{what} cannot be written ({said or first_line(error)}). {remedy}") from error


def flaw_of(error: ValueError | RecursionError) -> str:
    """Return the first faulty place, and its proper content."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        # Of JSON without its place, which may be counted from the middle.
        return f": {error.msg if isinstance(error, JSONDecodeError) else first_line(error)}"
    flaw = error.errors(include_url=False, include_input=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in flaw["loc"])
    return f"{place}: {flaw['msg'][:1].lower()}{flaw['msg'][1:]}"
