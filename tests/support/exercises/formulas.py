"""Propositional formulas as data: how Lean writes them, and whether a truth table refutes them.

A formula is an atom (a name, `True`, `False`) or a tuple of a connective and its parts: ("¬", a), ("→", a, b), and
(name, a, b) for a defined relation, which `Meanings` gives as a formula over "0" and "1".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

Formula = str | tuple["str | Formula", ...]
Meanings = Mapping[str, Formula]

_STRENGTH = {"↔": (20, 21, 21), "→": (25, 26, 25), "∨": (30, 31, 30), "∧": (35, 36, 35)}
_NOTHING: Meanings = {}


def text(formula: Formula, strength: int = 0) -> str:
    """Print a formula as Lean does; in brackets where it stands in a place of more strength."""
    match formula:
        case str():
            return formula
        case ("¬", inner):
            # In an argument's place (1024) a negation needs brackets.
            shown, own = f"¬{text(inner, 40)}", 1023
        case (str(op), left, right) if op in _STRENGTH:
            own, at_left, at_right = _STRENGTH[op]
            shown = f"{text(left, at_left)} {op} {text(right, at_right)}"
        case (str(name), *args):
            shown, own = " ".join([name, *(text(arg, 1024) for arg in args)]), 1022
        case _:
            raise ValueError(f"no formula: {formula!r}")
    return f"({shown})" if own < strength else shown


def truth(formula: Formula, values: Mapping[str, bool], meanings: Meanings = _NOTHING) -> bool:
    """Evaluate a formula; `values` has its atoms, `meanings` its defined relations."""
    match formula:
        case "True" | "False":
            return formula == "True"
        case str():
            return values[formula]
        case ("¬", inner):
            return not truth(inner, values, meanings)
        case ("∧", left, right):
            return truth(left, values, meanings) and truth(right, values, meanings)
        case ("∨", left, right):
            return truth(left, values, meanings) or truth(right, values, meanings)
        case ("→", left, right):
            return not truth(left, values, meanings) or truth(right, values, meanings)
        case ("↔", left, right):
            return truth(left, values, meanings) == truth(right, values, meanings)
        case (str(name), *args):
            own = {str(index): truth(arg, values, meanings) for index, arg in enumerate(args)}
            return truth(meanings[name], own, meanings)
    raise ValueError(f"no formula: {formula!r}")


def atoms(formula: Formula) -> list[str]:
    """Return a formula's atoms, each once, in order of appearance."""
    return list(dict.fromkeys(_atoms(formula)))


def _atoms(formula: Formula) -> Iterator[str]:
    if isinstance(formula, str):
        if formula not in ("True", "False"):
            yield formula
    else:
        for part in formula[1:]:
            yield from _atoms(part)


def counterexample(formula: Formula, meanings: Meanings = _NOTHING) -> dict[str, bool] | None:
    """Return values of the atoms that make a formula false; None for a tautology."""
    names = atoms(formula)
    for row in itertools.product((True, False), repeat=len(names)):
        values = dict(zip(names, row, strict=True))
        if not truth(formula, values, meanings):
            return values
    return None


def substituted(formula: Formula, values: Mapping[str, Formula]) -> Formula:
    """Put formulas for atoms."""
    if isinstance(formula, str):
        return values.get(formula, formula)
    return (formula[0], *(substituted(part, values) for part in formula[1:]))


def implies(hypotheses: Sequence[Formula], goal: Formula) -> Formula:
    """Return h₁ → h₂ → … → goal."""
    for hypothesis in reversed(hypotheses):
        goal = ("→", hypothesis, goal)
    return goal


def joined(connective: str, parts: Sequence[Formula]) -> Formula:
    """Return a ∧ b ∧ …, which associates to the right."""
    result = parts[-1]
    for part in reversed(parts[:-1]):
        result = (connective, part, result)
    return result
