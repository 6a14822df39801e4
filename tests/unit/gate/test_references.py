"""Where Lean ends a declaration, by the references of a build in each of its formats."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.gate.references import ends_at, place_of

ELSEWHERE = [9, 0, 9, 9]
LISTED = {
    "version": 5,
    "decls": {"_private.A.0.N.mine": [3, 0, 4, 18, 3, 16, 3, 20], "N.other": [*ELSEWHERE, 9, 4, 9, 6]},
}
OF_PARENTS = {
    "version": 4,
    "references": {
        "c:N.mine": {"definition": [3, 16, 3, 20], "usages": []},
        "f:7": {"definition": None, "usages": [[4, 2, 4, 7, "N.mine", 3, 0, 4, 18, 3, 16, 3, 20]]},
        "c:And": {"definition": None, "usages": [[9, 5, 9, 6, "N.other", *ELSEWHERE, 9, 4, 9, 6]]},
    },
}
UNTOLD: dict[str, Any] = {
    "another declaration's": {"decls": {"N.other": [*ELSEWHERE, 9, 4, 9, 6]}},
    "two places": {"decls": {"mine": [0, 0, 1, 1], "N.mine": [0, 0, 1, 1], "«N».mine": [0, 0, 2, 2]}},
    "references without parents": {
        "references": {"c:N.mine": {"definition": [3, 16, 3, 20], "usages": [[1, 1, 1, 2]]}}
    },
    "another shape": {"decls": ["N.mine"]},
    "no object": 7,
}


@pytest.mark.parametrize(
    "known", [LISTED, OF_PARENTS], ids=["the list of declarations", "parents of references"]
)
def test_a_declaration_ends_where_its_last_token_does(known: object) -> None:
    assert ends_at(json.dumps(known).encode(), "N.mine") == (4, 18)


@pytest.mark.parametrize("known", UNTOLD.values(), ids=UNTOLD.keys())
def test_what_is_not_told_is_not_guessed(known: object) -> None:
    assert ends_at(json.dumps(known).encode(), "N.mine") is None
    assert ends_at(b"{", "N.mine") is None


def test_a_column_counts_as_the_language_server_counts() -> None:
    text = "théorème\r\n  ⟨𝕜, x⟩"
    assert place_of(text.encode(), len(text.encode())) == (1, 9)
