"""All tactics together: `Runner` is what the server drives one step at a time, `run_block` what `by` does."""

from __future__ import annotations

from pipeline.lean.simulator.meta import LeanError, Meta
from pipeline.lean.simulator.scope import Session
from pipeline.lean.simulator.syntax import Stx
from pipeline.lean.simulator.tactics_auto import AutomationTactics
from pipeline.lean.simulator.terms import MVar


class Runner(AutomationTactics):
    """Every tactic of the simulator."""


def run_block(meta: Meta, session: Session, goal: MVar, block: Stx) -> None:
    """Run a tactic block on one goal; an error unless it closes it."""
    runner = Runner(meta, session)
    left = runner.block(block, [goal])
    if left:
        raise LeanError(
            "unsolved goals\n" + "\n\n".join(runner.show_goal(g) for g in left), (block.start, block.end)
        )
