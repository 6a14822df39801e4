"""Read the outermost connective off a pretty-printed proposition.

A reading of text, used only to choose which tactics to try: a wrong guess costs one failed tactic, never a wrong
proof. Not a parser of Lean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

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
    """The outermost connective; for an arrow also its two sides, for `∀` the names that it binds first."""

    connective: Connective
    left: str = ""
    right: str = ""
    names: tuple[str, ...] = ()


def shape(text: str) -> Shape:
    """Return the outermost connective of a proposition as Lean prints it."""
    text = strip_parentheses(" ".join(text.split()))
    surface = _surface(text)
    for symbol, connective in _INFIX:
        at = surface.find(symbol)
        if at >= 0:
            return Shape(connective, text[:at].strip(), text[at + 1 :].strip())
    if text.startswith("∀"):
        found = _NAMES.match(text)
        names = tuple(found.group(1).split()) if found else ()
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
    """Return the text without parentheses that enclose the whole of it."""
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        for position, character in enumerate(text):
            depth += (character == "(") - (character == ")")
            if depth == 0 and position < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text


def _surface(text: str) -> str:
    """Blank out what is inside brackets or under a binder, keeping every position."""
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
