"""A found proof as a list of tactics, and the two texts that it can become: a block of lines, or one line.

Each step acts on the first goal. Where the goals left by each step fit a tree, the block shows it with `·`. A tactic of
several lines keeps its layout: its lines stand to each other as they did when Lean took it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One tactic and the number of open goals before and after it."""

    tactic: str
    goals_before: int
    goals_after: int


@dataclass(frozen=True, slots=True)
class Script:
    """A tactic proof of one goal."""

    steps: tuple[Step, ...]

    @property
    def tactics(self) -> tuple[str, ...]:
        return tuple(step.tactic for step in self.steps)

    def block(self) -> tuple[str, ...]:
        """Return the lines of a tactic block whose first line stands at column 0."""
        lines, used = _branch(self.steps, 0)
        if lines is None or used != len(self.steps):
            # A step closed another goal on the way (a shared unknown): no tree, so every step on its own line.
            return tuple(line for tactic in self.tactics for line in tactic.split("\n"))
        return tuple(lines)

    def inline(self) -> str:
        """Return the tactics on one line, or one below the other where one of them has several lines.

        Needs parentheses where it stands among other tactics.
        """
        if any("\n" in tactic for tactic in self.tactics):
            # Behind a `;` its lines would not stand below its own first one.
            return "\n".join(self.block())
        return "; ".join(self.tactics)


def _branch(steps: Sequence[Step], at: int) -> tuple[list[str] | None, int]:
    """Return the lines that close the first goal from step `at` on, and the index of the step after them."""
    lines: list[str] = []
    while at < len(steps):
        step = steps[at]
        left = step.goals_after - step.goals_before + 1
        at += 1
        lines += step.tactic.split("\n")
        if left < 0:
            return None, at
        if left == 0:
            return lines, at
        if left == 1:
            continue
        for _ in range(left):
            inner, at = _branch(steps, at)
            if inner is None:
                return None, at
            lines += [f"· {inner[0]}", *(f"  {line}" for line in inner[1:])]
        return lines, at
    return None, at
