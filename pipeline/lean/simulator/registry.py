"""The tables of what the language has: rules for terms and for tactics, filled by the modules that hold them.

A module that defines rules registers them when it is imported; `elaborator.py` imports all of them, so whoever
gets the elaborator from there has the whole language. This keeps terms and tactics, which need each other, from
importing each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.lean.simulator.terms import MVar, Term

if TYPE_CHECKING:
    from pipeline.lean.simulator.elaboration import Elaborator
    from pipeline.lean.simulator.meta import Meta
    from pipeline.lean.simulator.scope import Session
    from pipeline.lean.simulator.syntax import Stx
    from pipeline.lean.simulator.tactic_runner import Runner

Goals = list[MVar]
TermRule = Callable[["Elaborator", "Stx", Term | None], Term]
TacticRule = Callable[["Runner", "Stx", MVar], Goals]
ControlRule = Callable[["Runner", "Stx", Goals], Goals]
BlockRunner = Callable[["Meta", "Session", MVar, "Stx"], None]

TERMS: dict[str, TermRule] = {}  # by kind of syntax
TACTICS: dict[str, TacticRule] = {}  # by name; they work on the first goal
CONTROLS: dict[str, ControlRule] = {}  # by name; they see all goals
_BLOCK_RUNNERS: list[BlockRunner] = []


def term_rule(*kinds: str) -> Callable[[TermRule], TermRule]:
    """Register a function as what elaborates these kinds of terms."""

    def register(rule: TermRule) -> TermRule:
        TERMS.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def tactic(*names: str) -> Callable[[TacticRule], TacticRule]:
    """Register a function as the tactic of these names."""

    def register(rule: TacticRule) -> TacticRule:
        TACTICS.update(dict.fromkeys(names, rule))
        return rule

    return register


def control(*names: str) -> Callable[[ControlRule], ControlRule]:
    """Register a function as a tactic that works on all goals."""

    def register(rule: ControlRule) -> ControlRule:
        CONTROLS.update(dict.fromkeys(names, rule))
        return rule

    return register


def block_runner(run: BlockRunner) -> BlockRunner:
    """Register what runs the tactic block of a `by`."""
    _BLOCK_RUNNERS[:] = [run]
    return run


def run_block(meta: Meta, session: Session, goal: MVar, block: Stx) -> None:
    """Run a `by` block on a goal; a LeanError unless it closes it."""
    _BLOCK_RUNNERS[0](meta, session, goal, block)
