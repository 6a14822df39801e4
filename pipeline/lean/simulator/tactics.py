"""All tactics together: importing this module registers every one of them."""

from __future__ import annotations

from pipeline.lean.simulator import (
    tactics_apply,
    tactics_auto,
    tactics_cases,
    tactics_control,
    tactics_intro,
    tactics_rewrite,
)
from pipeline.lean.simulator.meta import LeanError, Meta
from pipeline.lean.simulator.registry import block_runner
from pipeline.lean.simulator.scope import Session
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactic_runner import Runner
from pipeline.lean.simulator.terms import MVar

__all__ = ["RULES", "Runner", "run_block"]
RULES = (
    tactics_apply,
    tactics_auto,
    tactics_cases,
    tactics_control,
    tactics_intro,
    tactics_rewrite,
)


@block_runner
def run_block(meta: Meta, session: Session, goal: MVar, block: Stx) -> None:
    """Run a tactic block on one goal; a LeanError unless it closes it."""
    runner = Runner(meta, session)
    left = runner.block(block, [goal])
    if left:
        raise LeanError(
            "unsolved goals\n" + "\n\n".join(runner.show_goal(g) for g in left), (block.start, block.end)
        )
