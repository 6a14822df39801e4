"""Whether Lean text holds a sorry: the token `sorry` or `admit`, and not those letters in something else.

One regular expression splits the text into what can hide the letters and what cannot: comments (block comments
nest, which is counted), strings, characters, names. A name is taken whole, as Lean does: `sorry_lemma`, `h.sorry`,
`sorry'` and `«sorry»` are names, and so is the literal `` `sorry ``. A string is skipped whole, with the terms that an
interpolated one (`s!"{x}"`) has in braces.
"""

from __future__ import annotations

import re

SORRY_TOKENS = frozenset({"sorry", "admit"})

# Python's letters are a superset of Lean's; the subscripts and the marks that Lean allows in a name come with \w or
# are added. What Lean reads as an operator (λ, Π, Σ) cannot begin a name.
_ATOM = r"(?:«[^»\n]*»|(?![λΠΣ\d])\w[\w'!?₀-₉ₐ-ₜᵢ-ᵪ]*)"
_NAME = rf"{_ATOM}(?:\.{_ATOM})*"
_TOKEN = re.compile(
    rf"""
      (?P<line>--[^\n]*)
    | (?P<block>/-)
    | (?P<skip>
          r(?P<hashes>\#+)".*?"(?P=hashes)      # raw strings: no escapes
        | r"[^"]*"
        | "(?:\\.|[^"\\])*"
        | '(?:\\(?:x[0-9a-fA-F]{{2}}|u[0-9a-fA-F]{{4}}|.)|[^\\'\n])'
        | `+{_NAME}
        | (?<=[\w)\]}}⟩»'!?])\.{_NAME}          # a field of what stands before
        | \d[\w.]*
      )
    | (?P<name>{_NAME})
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE = re.compile(r"/-|-/")


def holds_sorry(text: str) -> bool:
    """Say whether Lean would read a `sorry` or `admit` in this tactic or term. An unclosed comment hides its rest."""
    if "sorry" not in text and "admit" not in text:
        return False
    at = 0
    while (found := _TOKEN.search(text, at)) is not None:
        if found["name"] in SORRY_TOKENS:
            return True
        at = _end_of_block(text, found.end()) if found["block"] else found.end()
    return False


def _end_of_block(text: str, at: int) -> int:
    """Return where the block comment ends whose `/-` ends at `at`."""
    depth = 1
    while depth:
        edge = _BLOCK_EDGE.search(text, at)
        if edge is None:
            return len(text)
        depth += 1 if edge[0] == "/-" else -1
        at = edge.end()
    return at
