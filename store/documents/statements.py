"""A proof's two statements for people, in the source's words and in Lean's: always shown together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from store.text import cut

UNKNOWN = "not recorded: what judged the proof did not write it"
_BY_NAME = 300
_SHOWN = 5


def statement_facts(
    source: str, lean: str, not_in_header: Sequence[str] | None, below: Sequence[Mapping[str, str]], more: int
) -> dict[str, str]:
    """Return the facts of a proof's statements for people, by name.

    Args:
        source: the source's words; "" if the statement was not recorded: then the result is empty.
        lean: Lean's statement; "" if unknown.
        not_in_header: the variables of Lean's statement missing in the source's header; None if unknown.
        below: the project's constants below it, each with `name` and `type`; `more` were not recorded.
    """
    if not source:
        return {}
    if not lean:
        return {"statement": source, "Lean's statement": UNKNOWN}
    lines = [f"{one['name']} : {cut(one['type'], _BY_NAME)}" for one in below[:_SHOWN]]
    left = len(below) - len(lines) + more
    return {
        "statement": source,
        "Lean's statement": lean,
        "not in its header": "could not be told"
        if not_in_header is None
        else ", ".join(not_in_header) or "none",
        "speaks of": "; ".join([*lines, *([f"and {left} more"] if left else [])]) or "nothing of the project",
    }
