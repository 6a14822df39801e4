"""The axioms a proof may rest on, and a reader of Lean's `#print axioms`.

An axiom is allowed by its name here; `pipeline.gate.lake_checks` also asks for its home, a module of the toolchain's
own library. A search asks both of Lean before it believes that a theorem is false (`pipeline.prove.declaration`).
"""

from __future__ import annotations

import re

from store.text import end_of, one_line

ALLOWED_AXIOMS = frozenset({"propext", "Classical.choice", "Quot.sound"})
_PRINTED = re.compile(r"'(?P<name>.+)' depends on axioms: \[(?P<axioms>[^\[\]]+)\]")
_PRINTED_NONE = re.compile(r"'(?P<name>.+)' does not depend on any axioms")
PRINTED_FOR = re.compile(r"\A'(.+)' d(?:epends on|oes not depend on any) axioms")
"""The beginning of either text, with the name of the declaration in question."""


def read_axioms(data: str, declaration: str) -> tuple[str, ...] | str:
    """Read the answer of `#print axioms`; a text is the reason why it is unreadable."""
    text = one_line(data)  # Lean wraps long lists
    match = _PRINTED.fullmatch(text)
    if match is not None and match["name"] == declaration:
        names = tuple(name.strip() for name in match["axioms"].split(","))
        if all(name and " " not in name for name in names):
            return names
    none = _PRINTED_NONE.fullmatch(text)
    if none is not None and none["name"] == declaration:
        return ()
    return f"`#print axioms` answered: {end_of(data)}"
