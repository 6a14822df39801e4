"""How a proof's two statements are told, the source's words and what Lean made of them: who shows one shows both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from store.text import cut

UNKNOWN = "not recorded: what judged the proof did not write it"
_BY_NAME = 300
_SHOWN = 5


def statement_facts(
    source: str, lean: str, not_in_header: Sequence[str] | None, below: Sequence[Mapping[str, str]], more: int
) -> dict[str, str]:
    """Return what people are told of a proof's statements, by name.

    Args:
        source: the source's words; "" where nothing of the statement was recorded, and then nothing is told.
        lean: Lean's statement; "" where it is not known.
        not_in_header: the variables of Lean's that the source's header does not write; None where nobody could tell.
        below: the project's constants that it rests on, each with `name` and `type`; `more` were not recorded.
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
