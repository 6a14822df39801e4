"""The root of what goes wrong in training, whatever the model."""

from __future__ import annotations

from typing import ClassVar


class LearningError(Exception):
    """Something cannot be trained, measured or asked as wanted.

    `reason` is the stable word that a job's failure event carries; `for_good` says that the same attempt would end in
    the same way, as data and settings stay what they are.
    """

    reason: ClassVar[str] = "learning"
    for_good: ClassVar[bool] = False


class ConfigError(LearningError, ValueError):
    """A training configuration cannot be used; the message names the field, what it is and what it takes."""

    reason = "bad_config"
    for_good = True
