"""The text of a step of a proof, as the progress model reads it.

It is LeanProgress's template, the same in training and in use. The reference cuts a long text at its end, where the
step is. Here the oldest steps of the prefix are cut first, then parts of the state (`pipeline.models.text`), and the
step itself last.
"""

from __future__ import annotations

from collections.abc import Callable

from pipeline.lean.tactic_text import Step
from pipeline.models.text import CUT, fitting_state, least, state_text


def progress_text(step: Step) -> str:
    """Return a step as LeanProgress's trainer renders it."""
    return _rendered(state_text(step.goal), step.prefix.strip(), step.tactic.strip())


def fitting_text(step: Step, fits: Callable[[str], bool]) -> str:
    """Return the text of a step, cut until `fits` accepts it."""
    text = progress_text(step)
    if fits(text):
        return text
    goal, tactic = state_text(step.goal), step.tactic.strip()
    lines = step.prefix.strip().splitlines()
    cut = least(0, len(lines), lambda at: fits(_rendered(goal, _without(lines, at), tactic)))
    prefix = _without(lines, cut)
    if not fits(_rendered(goal, prefix, tactic)):
        goal = fitting_state(goal, lambda state: fits(_rendered(state, prefix, tactic)))
    return _rendered(goal, prefix, tactic)


def _without(lines: list[str], oldest: int) -> str:
    return "\n".join([CUT, *lines[oldest:]] if oldest else lines)


def _rendered(goal: str, prefix: str, tactic: str) -> str:
    return f"Goal:\n{goal}\n\nPrefix:\n{prefix}\n\nCandidate tactic:\n{tactic}"
