"""The keywords of Lean's declarations, and their meaning here: one row a keyword.

A new keyword of Lean or of a library needs a row and no more: the scanner, the records, the splicer, the
prover, the gate and `everlean diff` derive their sets from this table. `class inductive` and `deriving
instance` are kinds of two words: the scanner puts them together, and each word begins a command by a rule of
its own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword of a declaration.

    Attributes:
        word: the keyword, also the kind of its declarations.
        reserved: by Lean itself: it begins a command at any column. A library's does at the beginning of a
            line.
        theorem: whether it is a theorem to people: its statement is followed.
        provable: whether a prover may fill its sorries: with proofs, never with data.
        restated: whether a model's answer may state it again and give the proof or value behind its `:=`.
        instance: whether Lean finds the declaration without its name.
        fields: whether its body is fields or constructors.
        unproved: whether it is taken for true, or announced, without a proof or a value.
        nameless: the name of an anonymous one inside its namespace; "" if it must have a name.
        constant: whether it makes a constant; it has no name of its own otherwise.
    """

    word: str
    reserved: bool = False
    theorem: bool = False
    provable: bool = False
    restated: bool = False
    instance: bool = False
    fields: bool = False
    unproved: bool = False
    nameless: str = ""
    constant: bool = True


DECLARATION_KEYWORDS = (
    Keyword("theorem", reserved=True, theorem=True, provable=True, restated=True),
    Keyword("lemma", theorem=True, provable=True, restated=True),
    Keyword("example", reserved=True, provable=True, restated=True, nameless="_example", constant=False),
    Keyword("def", reserved=True, restated=True),
    Keyword("abbrev", reserved=True, restated=True),
    Keyword("instance", reserved=True, restated=True, instance=True, nameless="_instance"),
    Keyword("deriving instance", reserved=True, instance=True, nameless="_instance"),
    Keyword("structure", reserved=True, fields=True),
    Keyword("class", reserved=True, fields=True),
    Keyword("inductive", reserved=True, fields=True),
    Keyword("class inductive", reserved=True, fields=True),
    Keyword("coinductive", fields=True),
    Keyword("axiom", reserved=True, unproved=True),
    Keyword("opaque", reserved=True, unproved=True),
    Keyword("proof_wanted", unproved=True),
    Keyword("theorem_wanted", unproved=True),
    Keyword("def_wanted", unproved=True),
    Keyword("instance_wanted", unproved=True),
    Keyword("irreducible_def"),
    Keyword("alias"),
    Keyword("initialize"),
    Keyword("builtin_initialize"),
    Keyword("simproc"),
    Keyword("dsimproc"),
    Keyword("simproc_decl"),
    Keyword("builtin_simproc"),
    Keyword("unif_hint"),
)

THEOREM_KINDS = tuple(one.word for one in DECLARATION_KEYWORDS if one.theorem)
"""The kinds of theorems to people."""
PROVABLE_KINDS = frozenset(one.word for one in DECLARATION_KEYWORDS if one.provable)
"""The kinds whose sorries stand for proofs, not data."""
RESTATED_KINDS = frozenset(one.word for one in DECLARATION_KEYWORDS if one.restated)
INSTANCE_KINDS = frozenset(one.word for one in DECLARATION_KEYWORDS if one.instance)
UNPROVED_KINDS = frozenset(one.word for one in DECLARATION_KEYWORDS if one.unproved)
"""Kinds without a proof or value to hold for anything: a declaration turned into one is not filled."""
_NAMELESS = {one.word: one.nameless for one in DECLARATION_KEYWORDS if one.nameless}
_NAMED = frozenset(one.word for one in DECLARATION_KEYWORDS if not one.nameless)
WITHOUT_CONSTANT = frozenset(one.word for one in DECLARATION_KEYWORDS if not one.constant)


def nameless(kind: str) -> str:
    """Return the name of an anonymous declaration, or of a command with a sorry and no declaration."""
    return _NAMELESS.get(kind) or f"_{kind.replace(' ', '_')}"


def is_nameless(name: str, kind: str) -> bool:
    """Return whether a declaration with this kind and full name has no name of its own in the source."""
    return kind not in _NAMED and name.rpartition(".")[2] == nameless(kind)
