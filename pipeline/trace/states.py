"""Goals as text: from Lean's printing to LeanDojo's, and from a REPL's goal objects to Lean's.

Lean prints goals one after the other; LeanDojo puts an empty line between two, and says `no goals` where none is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pipeline.lean.client.messages import Goal, Variable

NO_GOALS = "no goals"
_TARGET = ("⊢", "|")
_UNIVERSE = re.compile(r"\?u\.\d+")


def split_goals(text: str) -> list[str]:
    """Return the goals of Lean's text of a state. After a target, a line that is not indented begins the next goal."""
    goals: list[list[str]] = []
    ended = True
    for line in text.splitlines():
        if not line.strip():
            continue
        if ended and not line.startswith((" ", "\t")):
            goals.append([])
            ended = False
        if not goals:
            goals.append([])
        goals[-1].append(line)
        ended = ended or line.startswith(_TARGET)
    return ["\n".join(lines) for lines in goals]


def dojo_state(text: str) -> str:
    """Return Lean's text of a state as LeanDojo writes it."""
    return "\n\n".join(split_goals(text)) or NO_GOALS


def joined(goals: Iterable[str]) -> str:
    """Return several goals as one text, each different one once."""
    return "\n\n".join(dict.fromkeys(goals))


def hypotheses(text: str) -> set[str]:
    """Return the names of the hypotheses in Lean's text of a state: what hides a constant of that name."""
    names: set[str] = set()
    for line in text.splitlines():
        if line.startswith((" ", *_TARGET, "case ")):
            continue
        before, colon, _ = line.partition(" : ")
        if colon:
            names.update(before.split())
    return names


def same_goal(one: str, other: str) -> bool:
    """Say whether two texts are the same goal.

    The counters of universe variables change with any edit, and hypotheses of one type may share a line or not.
    """
    return _canonical(one) == _canonical(other)


def _canonical(goal: str) -> list[str]:
    lines: list[str] = []
    for line in _UNIVERSE.sub("?u", goal).splitlines():
        names, colon, said = line.partition(" : ")
        if colon and not line.startswith((" ", *_TARGET, "case ")):
            lines += [f"{name} : {said}" for name in names.split()]
        else:
            lines.append(line)
    return lines


def as_lean_prints(goal: Goal) -> str:
    """Return a goal object as Lean prints it: hypotheses of one type that follow one another share a line."""
    lines = [] if goal.user_name is None else [f"case {goal.user_name}"]
    lines += _grouped(goal.vars)
    mark = "|" if goal.fragment == "conv" else "⊢"
    return "\n".join([*lines, f"{mark} {goal.target.render()}"])


def _grouped(variables: Sequence[Variable]) -> list[str]:
    groups: list[tuple[list[str], str]] = []
    for item in variables:
        name = item.user_name or "_"
        said = "" if item.type is None else item.type.render()
        if item.value is not None:
            groups.append(([name], f"{said} := {item.value.render()}"))
            groups.append(([], ""))  # nothing joins it
        elif groups and groups[-1][0] and groups[-1][1] == said and ":=" not in groups[-1][1]:
            groups[-1][0].append(name)
        else:
            groups.append(([name], said))
    return [f"{' '.join(names)} : {said}" for names, said in groups if names]
