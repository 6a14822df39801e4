"""Goal states as handles that outlive the process they were made in: how each came about, and what it looked like.

A `State` knows its parent and its tactic, or the `Origin` of its root; where it is at the moment (`ref`), if it is
anywhere, is a number in one process. `canonical` tells whether a replay led to the same goals. Which process, and
when a replay is needed, is `session.py`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.lean.client.errors import InputRejected, ReplError
from pipeline.lean.client.messages import Goal, StateRef, render_goals
from pipeline.lean.client.repl import Repl

# Names that Lean counts up differ from process to process; what they are attached to does not.
_COUNTED = re.compile(r"(\?[mu]\.|_uniq\.)\d+")


class StateLost(ReplError):  # noqa: N818 - named by what happened
    """A state whose process is gone could not be made again. Other states of the session may still do.

    `step` is the tactic (or text) at which the replay failed.
    """

    def __init__(self, step: str, detail: str) -> None:
        super().__init__(
            f"replaying {shortened(step)}: {detail}; the state is lost, start it again from its text"
        )
        self.step = step


class ReplayDiverged(StateLost):
    """Replaying the state's tactics in another process did not lead to the same goals."""


class ReplayDied(StateLost):
    """Replaying the state's tactics ended one process after another."""


class State:
    """A goal state of a session, as a process-independent handle. `goals` is what Lean said when it was made.

    Names of goals are told apart across processes: the same name means the same goal throughout the session.
    """

    __slots__ = (
        "goals",
        "holds",
        "lost",
        "names",
        "origin",
        "parent",
        "ref",
        "released",
        "site",
        "tactic",
        "timeout_s",
    )

    def __init__(
        self,
        goals: tuple[Goal, ...],
        *,
        ref: StateRef,
        names: tuple[str, ...],
        origin: Origin | None = None,
        parent: State | None = None,
        tactic: str = "",
        site: int | None = None,
        timeout_s: float | None = None,
    ) -> None:
        self.goals = goals
        self.ref: StateRef | None = ref
        self.names = names  # the goals' names in the process of `ref`
        self.origin = origin
        self.parent = parent
        self.tactic = tactic
        self.site = site
        self.timeout_s = timeout_s
        self.lost: StateLost | None = None
        self.released = False
        self.holds = 1  # its own handle, and the children that are still wanted
        if parent is not None:
            parent.holds += 1

    def __repr__(self) -> str:
        return (
            f"<State of {len(self.goals)} goals by {shortened(self.tactic)}>"
            if self.parent
            else "<root State>"
        )


@dataclass(eq=False, slots=True)
class Origin:
    """How root states are made: from a closed statement, or one for each target of a text with sorrys."""

    expr: str | None = None
    text: str = ""
    ignore_values: bool = False
    timeout_s: float | None = None
    states: tuple[State, ...] = ()

    @property
    def step(self) -> str:
        """The statement or the text."""
        return self.text if self.expr is None else self.expr

    async def make(self, repl: Repl) -> list[tuple[StateRef, tuple[Goal, ...]]]:
        """Make the states in this process; raises what the process raises."""
        if self.expr is not None:
            ref = await repl.goal_start(self.expr, timeout_s=self.timeout_s)
            shown = await repl.goal_print(ref, root=False, timeout_s=self.timeout_s)
            return [(ref, shown.goals)]
        if repl.dialect.sorry_goals:
            units = await repl.process(self.text, sorrys=True, timeout_s=self.timeout_s)
            complaint = next((message for unit in units for message in unit.errors), None)
            if complaint is not None:
                # As the newer dialect's refusal of the same text.
                raise InputRejected("frontend", complaint.data, command="frontend.process")
            return [(unit.goal_state, unit.goals or ()) for unit in units if unit.goal_state is not None]
        targets = await repl.distil(self.text, ignore_values=self.ignore_values, timeout_s=self.timeout_s)
        return [(target.state, target.goals) for target in targets]


def names_of(goals: tuple[Goal, ...]) -> tuple[str, ...]:
    """Return the internal names of goals, in order."""
    return tuple(goal.name for goal in goals)


def canonical(goals: tuple[Goal, ...]) -> str:
    """Render goals with what Lean counts up (`?m.12`, `_uniq.5`) numbered in the order in which it appears."""
    return renumbered(render_goals(goals), {})


def renumbered(text: str, seen: dict[str, str]) -> str:
    """Number what Lean counts up in the order in which it appears; `seen` goes from one text to the next."""
    return _COUNTED.sub(lambda found: seen.setdefault(found.group(), f"{found.group(1)}#{len(seen)}"), text)


def difference(before: str, now: str) -> str:
    """Say where two canonical texts part first."""
    for old, new in zip(before.split("\n"), now.split("\n"), strict=False):
        if old != new:
            return f"{shortened(old)} before, {shortened(new)} now"
    return f"{before.count(chr(10)) + 1} lines before, {now.count(chr(10)) + 1} now"


def shortened(text: str) -> str:
    """Return the text quoted on one line, and cut where it is long."""
    text = " ".join(text.split())
    return repr(text if len(text) <= 120 else text[:117] + "...")
