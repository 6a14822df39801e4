"""When two states are one to a search: their goals read the same, but for names that nothing mentions.

What Lean counts up (`?m.12`) is numbered in the order in which it appears, so that a key is the same in every process.
Where a mentioned name is two hypotheses', as shadowed ones all print as `h✝`, reading the same says nothing.
"""

from __future__ import annotations

import re
from collections import Counter

from pipeline.lean.client.messages import Goal
from pipeline.lean.pool.states import renumbered

_WORD = re.compile(r"[^\W\d][\w'.!?₀-₉]*")


def goals_key(goals: tuple[Goal, ...]) -> str:
    """Render goals so that states that differ only in names and copies of hypotheses are one."""
    seen: dict[str, str] = {}
    return "\n\n".join(_goal_key(goal, seen) for goal in goals)


def ambiguous(goals: tuple[Goal, ...]) -> bool:
    """Say whether a name that is mentioned may be that of either of two hypotheses."""
    return any(_ambiguous(goal) for goal in goals)


def _ambiguous(goal: Goal) -> bool:
    counted = Counter(variable.user_name for variable in goal.vars)
    twice = [name for name, count in counted.items() if count > 1]
    return bool(twice) and any(
        name in text for text in (goal.target.render(), *_types(goal)) for name in twice
    )


def _types(goal: Goal) -> list[str]:
    return ["" if variable.type is None else variable.type.render() for variable in goal.vars]


def _mentioned(texts: list[str]) -> set[str]:
    words = set(_WORD.findall(" ".join(texts)))
    # A dotted word mentions its first part too: `h.left` mentions `h`.
    return words | {word.split(".")[0] for word in words}


def _goal_key(goal: Goal, seen: dict[str, str]) -> str:
    types = [renumbered(text, seen) for text in _types(goal)]
    target = renumbered(goal.target.render(), seen)
    mentioned = _mentioned([target, *types])
    lines = []
    for variable, text in zip(goal.vars, types, strict=True):
        value = "" if variable.value is None else f" := {renumbered(variable.value.render(), seen)}"
        named = variable.user_name in mentioned or value
        lines.append(f"{variable.user_name} : {text}{value}" if named else text)
    return "\n".join(dict.fromkeys(sorted(lines))) + f"\n⊢ {target}"
