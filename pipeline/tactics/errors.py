"""What can go wrong between proofs and a trained tactic model, as one small tree.

`reason` is the stable word that a job's failure event carries.
"""

from __future__ import annotations

from pipeline.learning.errors import ConfigError, LearningError


class TacticsError(LearningError):
    """A tactic model cannot be trained or asked as wanted. No checkpoint that was there is touched."""

    reason = "tactics"


class ModelError(TacticsError):
    """A model cannot be used: missing, damaged, without a tokenizer, or of a kind that does not fit."""

    reason = "bad_model"


class RowsError(TacticsError):
    """A dataset cannot be trained on: unreadable, or with nothing in it to learn."""

    reason = "bad_dataset"
    for_good = True


class NothingToLearnError(RowsError):
    """A dataset has no step to learn from."""


class SettingsError(TacticsError, ConfigError):
    """A setting of a trainer has a value that it does not take, or one that does not work here."""

    reason = "bad_config"
    for_good = True


class CheckpointError(TacticsError):
    """A trained model cannot be written, or what lies in its folder cannot be read."""

    reason = "bad_checkpoint"


class DivergedError(TacticsError):
    """A training step's loss, or a weight after it, is no finite number."""

    reason = "diverged"
    for_good = True


class RewardError(TacticsError):
    """Lean cannot reward anything here: there is none, or none that starts."""

    reason = "no_lean"
