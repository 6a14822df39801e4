"""Goals as text: Lean's printing, LeanDojo's, keys equal for equal states, and the outermost connective.

Lean prints goals one after the other; LeanDojo puts an empty line between two and writes `no goals` for none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.lean.client.messages import Goal, Variable

NO_GOALS = "no goals"
GOAL_END = "\n\n"
_TARGET = ("⊢", "|")
_UNIVERSE = re.compile(r"\?u\.\d+")


def split_goals(text: str) -> list[str]:
    """Return the goals of Lean's text of a state. After a target, an unindented line begins the next goal."""
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


def whole_lines(goal: str, *, tag: bool = False) -> list[str]:
    """Return a goal's lines, each with its continuation lines; its tag's only if `tag`."""
    whole: list[str] = []
    for line in goal.split("\n"):
        if whole and line.startswith((" ", "\t")):
            whole[-1] += f"\n{line}"
        elif line.strip() and (tag or not line.startswith("case ")):
            whole.append(line)
    return whole


def dojo_state(text: str) -> str:
    """Return Lean's text of a state in LeanDojo's form."""
    return GOAL_END.join(split_goals(text)) or NO_GOALS


def state_of(goals: Sequence[Goal]) -> str:
    """Return a REPL's goals as the text of a state, as in the datasets for training."""
    return GOAL_END.join(as_lean_prints(goal) for goal in goals) or NO_GOALS


def joined(goals: Iterable[str]) -> str:
    """Return several goals as one text, without repetitions."""
    return GOAL_END.join(dict.fromkeys(goals))


def hypotheses(text: str) -> set[str]:
    """Return the names of the hypotheses in Lean's text of a state, which hide constants of the same name."""
    names: set[str] = set()
    for line in text.splitlines():
        if line.startswith((" ", *_TARGET, "case ")):
            continue
        before, colon, _ = line.partition(" : ")
        if colon:
            names.update(before.split())
    return names


def same_goal(one: str, other: str) -> bool:
    """Return whether two texts are the same goal.

    The counters of universe variables change with any edit, and hypotheses of one type may share a line or not.
    """
    first, second = (single_lines(_UNIVERSE.sub("?u", goal), tag=True) for goal in (one, other))
    return first == second


def single_lines(goal: str, *, tag: bool = False) -> list[str]:
    """Return a goal's lines as `whole_lines` does, with each hypothesis on one of its own."""
    lines: list[str] = []
    for line in whole_lines(goal, tag=tag):
        names, colon, said = line.partition(" : ")
        if colon and not line.startswith((*_TARGET, "case ")):
            lines += [f"{name} : {said}" for name in names.split()]
        else:
            lines.append(line)
    return lines


def as_lean_prints(goal: Goal) -> str:
    """Return a goal object as Lean prints it: consecutive hypotheses of one type share a line."""
    lines = [] if goal.user_name is None else [f"case {goal.user_name}"]
    lines += _grouped(goal.vars)
    mark = "|" if goal.fragment == "conv" else "⊢"
    return "\n".join([*lines, f"{mark} {goal.target}"])


def _grouped(variables: Sequence[Variable]) -> list[str]:
    groups: list[tuple[list[str], str]] = []
    for item in variables:
        name = item.user_name or "_"
        text = "" if item.type is None else item.type
        if item.value is not None:
            groups.append(([name], f"{text} := {item.value}"))
            groups.append(([], ""))  # nothing joins it
        elif groups and groups[-1][0] and groups[-1][1] == text and ":=" not in groups[-1][1]:
            groups[-1][0].append(name)
        else:
            groups.append(([name], text))
    return [f"{' '.join(names)} : {said}" for names, said in groups if names]


# ---- keys of states
# Lean numbers metavariables as it goes (`?m.12`); a key renumbers them by first appearance, so that it is the same in
# every process. If a mentioned name belongs to two hypotheses (shadowed ones all print as `h✝`), equal texts prove
# nothing.


# Numbers in Lean's generated names differ from process to process; the rest does not.
_COUNTED = re.compile(r"(\?[mu]\.|_uniq\.)\d+")
_WORD = re.compile(r"[^\W\d][\w'.!?₀-₉]*")


def goals_key(goals: tuple[Goal, ...]) -> str:
    """Render goals, equal for states that differ only in names and copies of hypotheses."""
    seen: dict[str, str] = {}
    return GOAL_END.join(_goal_key(goal, seen) for goal in goals)


def renumbered(text: str, seen: dict[str, str]) -> str:
    """Renumber Lean's counters in order of appearance; pass `seen` from one text to the next."""
    return _COUNTED.sub(lambda found: seen.setdefault(found.group(), f"{found.group(1)}#{len(seen)}"), text)


def ambiguous(goals: tuple[Goal, ...]) -> bool:
    """Return whether a mentioned name may be that of either of two hypotheses."""
    return any(_ambiguous(goal) for goal in goals)


def _ambiguous(goal: Goal) -> bool:
    counted = Counter(variable.user_name for variable in goal.vars)
    twice = [name for name, count in counted.items() if count > 1]
    return bool(twice) and any(name in text for text in (goal.target, *_types(goal)) for name in twice)


def _types(goal: Goal) -> list[str]:
    return ["" if variable.type is None else variable.type for variable in goal.vars]


def _mentioned(texts: list[str]) -> set[str]:
    words = set(_WORD.findall(" ".join(texts)))
    # A dotted word mentions its first part too: `h.left` mentions `h`.
    return words | {word.split(".")[0] for word in words}


def _goal_key(goal: Goal, seen: dict[str, str]) -> str:
    types = [renumbered(text, seen) for text in _types(goal)]
    target = renumbered(goal.target, seen)
    mentioned = _mentioned([target, *types])
    lines = []
    for variable, text in zip(goal.vars, types, strict=True):
        value = "" if variable.value is None else f" := {renumbered(variable.value, seen)}"
        named = variable.user_name in mentioned or value
        lines.append(f"{variable.user_name} : {text}{value}" if named else text)
    return "\n".join(dict.fromkeys(sorted(lines))) + f"\n⊢ {target}"


# ---- propositions
# They only choose tactics to try: a wrong guess costs a failed tactic, never a wrong proof.


Connective = Literal[
    "forall", "exists", "iff", "arrow", "or", "and", "not", "equation", "true", "false", "other"
]

_OPENING = {"(": ")", "⟨": "⟩", "[": "]", "{": "}", "⦃": "⦄"}
_CLOSING = frozenset(_OPENING.values())
_BINDER = re.compile(r"(?:∀|∃!?|fun\b|λ|Σ|∑|∏|⋃|⋂)")
# Loosest first: the first one found outside brackets is the outermost.
_INFIX: tuple[tuple[str, Connective], ...] = (
    ("↔", "iff"),
    ("→", "arrow"),
    ("∨", "or"),
    ("∧", "and"),
)
_RELATION = re.compile(r"[=≠]")
_NAMES = re.compile(r"^∀\s+[({⦃]?\s*([^:,(){}⦃⦄]+)")


@dataclass(frozen=True, slots=True)
class Shape:
    """The outermost connective; for an arrow also its two sides, for `∀` its first bound names."""

    connective: Connective
    left: str = ""
    right: str = ""
    names: tuple[str, ...] = ()


def shape(text: str) -> Shape:
    """Return the outermost connective of a proposition in Lean's printing."""
    text = strip_parentheses(" ".join(text.split()))
    surface = _surface(text)
    for symbol, connective in _INFIX:
        at = surface.find(symbol)
        if at >= 0:
            return Shape(connective, text[:at].strip(), text[at + 1 :].strip())
    if text.startswith("∀"):
        match = _NAMES.match(text)
        names = tuple(match.group(1).split()) if match else ()
        return Shape(
            "forall", names=tuple(name for name in names if name not in ("_", "∈", "<", ">", "≤", "≥"))
        )
    if text.startswith("∃"):
        return Shape("exists")
    if text.startswith("¬"):
        return Shape("not", left=text[1:].strip())
    if text == "False":
        return Shape("false")
    if text == "True":
        return Shape("true")
    return Shape("equation" if _RELATION.search(surface) else "other")


def strip_parentheses(text: str) -> str:
    """Return the text without parentheses around all of it."""
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        for position, character in enumerate(text):
            depth += (character == "(") - (character == ")")
            if depth == 0 and position < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text


def _surface(text: str) -> str:
    """Blank out text inside brackets or under a binder, keeping every position."""
    depth = 0
    out = []
    for position, character in enumerate(text):
        if depth == 0 and _BINDER.match(text, position):
            out.append(" " * (len(text) - position))
            break
        if character in _OPENING:
            depth += 1
            out.append(" ")
        elif character in _CLOSING:
            depth -= 1
            out.append(" ")
        else:
            out.append(character if depth == 0 else " ")
    return "".join(out)
