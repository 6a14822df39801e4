"""The way from the log to its view, under one name: apply, catch up, rebuild, verify.

The parts are `store.projections` (what one event does), `store.catchup` (batches and the checkpoint),
`store.rebuild` and `store.verify`. Nothing here has an effect outside database.db.
"""

from __future__ import annotations

from store.catchup import Checkpoint, catch_up, read_checkpoint
from store.projections import apply
from store.rebuild import RebuildReport, rebuild
from store.verify import Difference, VerifyReport, verify

__all__ = [
    "Checkpoint",
    "Difference",
    "RebuildReport",
    "VerifyReport",
    "apply",
    "catch_up",
    "read_checkpoint",
    "rebuild",
    "verify",
]
