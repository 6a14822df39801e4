"""What the progress model reads: LeanProgress's template, the same in training and in use, cut where it is too long.

The reference cuts what is too long at its end, which is where the step stands. Here the oldest steps of the prefix go
first, then what `pipeline.tactics.prompt` cuts of a state; the step itself is cut last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.tactics.prompt import CUT, fitting_state, state_text


@dataclass(frozen=True, slots=True)
class Step:
    """A step that a proof may take: `tactic` in the state `goal`, after the steps of `prefix` (one below the other)."""

    goal: str
    tactic: str
    prefix: str = ""


def progress_text(step: Step) -> str:
    """Return a step as LeanProgress's trainer renders it."""
    return _rendered(state_text(step.goal), step.prefix.strip(), step.tactic.strip())


def fitting_text(step: Step, fits: Callable[[str], bool]) -> str:
    """Return the text of a step, cut where `fits` says that it is too long."""
    text = progress_text(step)
    if fits(text):
        return text
    goal, tactic = state_text(step.goal), step.tactic.strip()
    lines = step.prefix.strip().splitlines()
    fewest, most = 0, len(lines)  # of the newest lines, those that stay: as many as fit
    while fewest < most:
        middle = (fewest + most + 1) // 2
        if fits(_rendered(goal, _newest(lines, middle), tactic)):
            fewest = middle
        else:
            most = middle - 1
    prefix = _newest(lines, fewest)
    if not fits(_rendered(goal, prefix, tactic)):
        goal = fitting_state(goal, lambda state: fits(_rendered(state, prefix, tactic)))
    return _rendered(goal, prefix, tactic)


def _newest(lines: list[str], number: int) -> str:
    if number == len(lines):
        return "\n".join(lines)
    return "\n".join([CUT, *lines[len(lines) - number :]])


def _rendered(goal: str, prefix: str, tactic: str) -> str:
    return f"Goal:\n{goal}\n\nPrefix:\n{prefix}\n\nCandidate tactic:\n{tactic}"
