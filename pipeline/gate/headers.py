"""Find the binders of Lean's statement missing in the source's own header: those added by `variable`.

The header stands between a declaration's name and its colon; the `∀` at the front of the type belongs to it. A doubtful
binder counts as missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pipeline.lean.source.lexer import tokens_of_text

_OPENS, _CLOSES = "([{⦃⟨", ")]}⦄⟩"
_COLON = re.compile(r":(?!=)")
_FORALL = re.compile(r"\s*(?:∀|Π|forall\b)")
_WORDS = re.compile(r"[([{⦃⟨]|[)\]}⦄⟩]|<->|->|[→↔,∃λ]|\bfun\b")
_NAMES = re.compile(r"«[^»]*»|[^\s«»()\[\]{}⦃⦄,:]+")


class Variable(NamedTuple):
    """A leading variable of a type: its opening bracket, its given name ("" if it has none), and its text."""

    bracket: str
    name: str
    text: str


def not_in_header(statement: str, variables: Sequence[Variable]) -> tuple[str, ...] | None:
    """Return the texts of the variables that a statement's header, as in the source, does not write.

    None: the header does not match the variables, so nobody can tell.
    """
    # A bracket or an arrow in a literal does not count.
    words = (token.text for token in tokens_of_text(statement)[0])
    statement = " ".join('""' if word[0] in "\"'" else word for word in words)
    written, at = _group(statement, 0)
    colon = _COLON.match(statement, at)
    if colon is None:
        return None
    if forall := _FORALL.match(statement, colon.end()):
        bound, end = _group(statement, forall.end())
        # `∀ x ∈ s` is a variable with an arrow behind it.
        written += bound if statement[end : end + 1] in ("", ":", ",") else [*bound, ("(", "")]
    if not written:
        # An arrow has no name, and neither has a `variable` from a macro.
        named = (n for n, one in enumerate(variables, 1) if one.name or one.bracket != "(")
        last = max(len(variables) - _arrows(statement[colon.end() :]), *named, 0)
        return tuple(one.text for one in variables[:last])
    # The last matching place: a name used twice then hides no earlier variable.
    for start in range(len(variables) - len(written), -1, -1):
        if all(map(_is, written, variables[start : start + len(written)])):
            return tuple(one.text for one in variables[:start])
    return None


def _arrows(text: str) -> int:
    """Return the largest number of arrows at the front of a type."""
    result = depth = 0
    for word in _WORDS.findall(text):
        if word in _OPENS:
            depth += 1
        elif word in _CLOSES:
            depth -= 1
        elif depth == 0 and word in ("→", "->"):
            result += 1
        elif depth == 0:
            break
    return result


def _is(written: tuple[str, str], variable: Variable) -> bool:
    bracket, name = written
    return bracket == variable.bracket and name.strip("«»") == variable.name.strip("«»")


def _group(text: str, at: int) -> tuple[list[tuple[str, str]], int]:
    """Return the brackets and names of the binders from a place on, and their end: a colon, comma or symbol."""
    result: list[tuple[str, str]] = []
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text) or text[at] in ":,":
            return result, at
        if text[at] not in _OPENS:
            name = _NAMES.match(text, at)
            if name is None or not (name[0][0] in "_«" or name[0][0].isalpha()):
                return result, at
            result.append(("(", _given(name.group())))
            at = name.end()
            continue
        bracket, start, depth = text[at], at + 1, 0
        while at < len(text):
            depth += (text[at] in _OPENS) - (text[at] in _CLOSES)
            at += 1
            if not depth:
                break
        names, colon, _ = text[start : at - 1].partition(":")
        if bracket == "[":
            result.append((bracket, _given(names.strip()) if colon else ""))
        else:
            result += [(bracket, _given(name)) for name in _NAMES.findall(names)]


def _given(name: str) -> str:
    return "" if name == "_" else name
