"""Texts for models, all from one proof state: the retriever's query and documents, and states cut to fit.

Query and document are LeanDojo's (`format_state` and `Premise.serialize` of LeanDojo-v2's `lean_agent/common.py`), so
that its checkpoints see the texts of their training. Imports no torch and no NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pipeline.lean.goal_text import GOAL_END, split_goals

CUT = "…"
"""The line that replaces removed lines of a state."""


def state_text(state: str) -> str:
    """Return a tactic state as every model reads it: without "N goals", marks of premises and white space around."""
    return query_text(state).strip()


def without_marks(text: str) -> str:
    """Return a dataset's text without the marks of premises."""
    while MARK_START in text or MARK_END in text:  # removing one may form another
        text = text.replace(MARK_START, "").replace(MARK_END, "")
    return text


def fitting_state(state: str, fits: Callable[[str], bool]) -> str:
    """Return the longest fitting text: fewer goals, then fewer of the oldest hypotheses, then the target's end."""
    if fits(state):
        return state
    goals = split_goals(state_text(state)) or [""]
    less = least(1, len(goals), lambda number: fits(GOAL_END.join([*goals[:-number], CUT])))
    if less < len(goals):
        return GOAL_END.join([*goals[:-less], CUT])
    lines = goals[0].split("\n")
    cut = least(1, len(lines), lambda number: fits("\n".join([CUT, *lines[number:]])))
    if cut < len(lines):
        return "\n".join([CUT, *lines[cut:]])
    target = lines[-1]
    return CUT + target[least(0, len(target), lambda number: fits(CUT + target[number:])) :]


def least(low: int, high: int, enough: Callable[[int], bool]) -> int:
    """Return the least sufficient number from `low`, or `high`."""
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low


MARK_START = "<a>"
MARK_END = "</a>"
_GOAL_COUNT = re.compile(r"\d+ goals")


def query_text(state: str) -> str:
    """Return a tactic state as the retriever's query: without the leading "N goals" and without marks.

    A state without a turnstile (a `conv` goal, an empty one) is a query like any other.
    """
    counted = _GOAL_COUNT.match(state)
    return without_marks(state if counted is None else state[counted.end() :].strip())


def document_text(full_name: str, code: str) -> str:
    """Return a premise's code with its declared name marked, as `<a>Full.name</a>`.

    `_root_.Full.name` is marked at each of its places, then the longest dotted ending of the name behind white space
    (perhaps in French quotes), at each of its places. Without the name in it, the code stays.
    """
    marked = f"{MARK_START}{full_name}{MARK_END}"
    code = code.replace(f"_root_.{full_name}", marked)
    fields = full_name.split(".")
    for start in range(len(fields)):
        replaced = _with_mark(code, ".".join(fields[start:]), marked)
        if replaced != code:
            return replaced
    return code


def _with_mark(code: str, name: str, marked: str) -> str:
    r"""Return `code` with `(?<=\s)«?name»?` replaced: an expression for each name costs twenty times this search."""
    parts: list[str] = []
    done = 0
    at = code.find(name) if name else -1
    while at >= 0:
        begin = at - 1 if at > 0 and code[at - 1] == "«" else at
        if begin > 0 and code[begin - 1].isspace():
            parts += code[done:begin], marked
            done = at + len(name)
            done += code.startswith("»", done)
            at = code.find(name, done)
        else:
            at = code.find(name, at + 1)
    return "".join((*parts, code[done:]))
