"""Two versions of a few files in which a sorry went: what `everlean diff` finds, and what the sorry's life says."""

from __future__ import annotations

from typing import NamedTuple

from store.domain.matching import How


class Filling(NamedTuple):
    """`kinds` are those of the findings, `how` what became of the one sorry; None: it was no sorry of a declaration."""

    before: dict[str, str]
    after: dict[str, str]
    kinds: frozenset[str]
    how: How | None


def _one(before: str, after: str, kinds: str, how: How | None) -> Filling:
    """Return a filling in one file; `kinds` with commas."""
    return Filling({"A.lean": before}, {"A.lean": after}, frozenset(kinds.split(", ")), how)


def _two(first: str, second: str, proof: str, kinds: str, how: How = "restated") -> Filling:
    """Return a filling of `theorem foo` below lines that change, before and after it is filled."""
    return _one(f"{first} := by\n  sorry\n", f"{second} := by\n  {proof}\n", kinds, how)


FALSE = "theorem foo : False"
TRUE_LATER = "namespace X\ndef G := False\nend X\nnamespace Y\ndef G := True\nend Y\n"
TWO_FILES = {"P.lean": "def G := False\n", "Q.lean": "def G := True\n"}
OK = "class Ok (p : Prop) : Prop where\n  ok : p\n"

FILLINGS = {
    "a proof": _two("theorem foo : 1 = 1", "theorem foo : 1 = 1", "rfl", "filled", "filled"),
    "a proof in a file whose lines end otherwise now": _one(
        'variable (p : Prop)\ntheorem foo : "a\nb" = "a\nb" := by\n  sorry\n',
        'variable (p : Prop)\r\ntheorem foo : "a\r\nb" = "a\r\nb" := by\r\n  rfl\r\n', "filled", "filled",
    ),
    "another statement": _two(FALSE, "theorem foo : True", "trivial", "statement"),
    "an axiom": _one(f"{FALSE} := sorry\n", "axiom foo : False\n", "axiom", "became an axiom"),
    "an unsafe definition": _one(f"{FALSE} := sorry\n", "unsafe def foo : False := foo\n", "unchecked", "unchecked"),
    "a partial definition with attributes": _one(
        f"{FALSE} := sorry\n", "@[local simp] private partial def foo : False := foo\n", "unchecked", "unchecked"
    ),
    "an unsafe definition of one": _one(
        "def foo : False := sorry\n", "unsafe def foo : False := foo\n", "unchecked", "unchecked"
    ),
    "an unsafe instance": _one(
        "instance foo : Inhabited False := sorry\n", "unsafe instance foo : Inhabited False := foo\n",
        "unchecked", "unchecked",
    ),
    "a theorem that became a definition": _two(
        "theorem foo : 1 = 1", "def foo : 1 = 1", "rfl", "unchecked", "unchecked"
    ),
    "compiled code": _two("theorem foo : 1 = 1", "theorem foo : 1 = 1", "native_decide", "unchecked", "unchecked"),
    "a tactic that admits": _two(FALSE, FALSE, "plausible", "unchecked", "unchecked"),
    "a hint": _two(FALSE, FALSE, "hint", "unchecked", "unchecked"),
    "a hypothesis called hint": _two(
        "theorem foo (hint : p) : p", "theorem foo (hint : p) : p", "exact hint", "filled", "filled"
    ),
    "a macro with a sorry": _two(
        f'macro "easy" : tactic => `(tactic| sorry)\n{FALSE}',
        f'macro "easy" : tactic => `(tactic| sorry)\n{FALSE}', "easy", "hidden", "hidden",
    ),
    "a theorem with a sorry": _one(
        f"theorem bar : False := sorry\n{FALSE} := sorry\n", f"theorem bar : False := sorry\n{FALSE} := bar\n",
        "filled, rests on", "filled",
    ),
    "two sorries of one proof": _one(
        "theorem a : p ∧ q := ⟨sorry, sorry⟩\n", "theorem a : p ∧ q := ⟨h, k⟩\n", "filled", "filled"
    ),
    # variables
    "a variable that is included": _two(FALSE, f"variable (h : False)\ninclude h\n{FALSE}", "exact h", "statement"),
    "a variable that the proof names": _two(FALSE, f"variable (h : False)\n{FALSE}", "exact h", "statement"),
    "an instance as a variable": _two(f"{OK}{FALSE}", f"{OK}variable [Ok False]\n{FALSE}", "exact Ok.ok", "statement"),
    "a variable before the theorem": _two(
        f"{OK}{FALSE}", f"{OK}variable [Ok False] in\n{FALSE}", "exact Ok.ok", "statement"
    ),
    "a variable of a section": _two(
        "theorem foo (p : Prop) : p", "section\nvariable (q : False)\ninclude q\ntheorem foo (p : Prop) : p",
        "exact q.elim", "statement",
    ),
    "a variable that became the claim": _two(
        "variable (p : Prop) [h : Nonempty p]\ninclude h\ntheorem foo : p",
        "variable (p : Prop) (h : p)\ninclude h\ntheorem foo : p", "exact h", "statement",
    ),
    "a variable that is written otherwise": _two(
        "variable (p q : Prop)\ntheorem foo : p → p",
        "variable {p : Prop}\nvariable (q r : Prop)\ntheorem foo : p → p", "exact id", "filled", "filled",
    ),
    # what names mean
    "another definition": _two(
        "def G := False\ntheorem foo : G", "def G := True\ntheorem foo : G", "trivial", "meaning"
    ),
    "a definition below another": _two(
        "def H := False\ndef G := H\ntheorem foo : G", "def H := True\ndef G := H\ntheorem foo : G", "trivial",
        "meaning"
    ),
    "a structure with other fields": _two(
        "structure G : Prop where\n  out : False\ntheorem foo : G",
        "structure G : Prop where\n  out : True\ntheorem foo : G", "exact ⟨trivial⟩", "meaning",
    ),
    "a definition called on a term": _two(
        "def Nat.P (n : Nat) := n = 1\ntheorem foo (n : Nat) : n.P",
        "def Nat.P (n : Nat) := n = n\ntheorem foo (n : Nat) : n.P", "rfl", "meaning",
    ),
    "a definition that hides another": _two(
        "namespace N\ntheorem foo : False", "namespace N\ndef False := True\ntheorem foo : False", "trivial", "meaning"
    ),
    "a namespace in which the name is another's": _two(
        "def G := False\ntheorem N.foo : G",
        "def G := False\nnamespace N\ndef G := True\ntheorem foo : G", "trivial", "meaning",
    ),
    "another namespace is open": _two(
        f"{TRUE_LATER}open X\ntheorem foo : G", f"{TRUE_LATER}open Y\ntheorem foo : G", "trivial", "meaning"
    ),
    "another namespace is open before the theorem": _two(
        f"{TRUE_LATER}open X in\ntheorem foo : G", f"{TRUE_LATER}open Y in\ntheorem foo : G", "trivial", "meaning"
    ),
    "a name is exported": _two(
        f"{TRUE_LATER}open X\ntheorem foo : G", f"{TRUE_LATER}export Y (G)\ntheorem foo : G", "trivial", "meaning"
    ),
    "a library's namespace is opened": _two(
        "theorem foo : 1 = 1", "open Real\ntheorem foo : 1 = 1", "rfl", "filled, context", "filled"
    ),
    "another import": Filling(
        {"A.lean": "import P\ntheorem foo : G := by\n  sorry\n", **TWO_FILES},
        {"A.lean": "import Q\ntheorem foo : G := by\n  trivial\n", **TWO_FILES},
        frozenset({"meaning"}), "restated",
    ),
    "a definition that comes with its own theorem": _two(
        "theorem foo : 1 = 1", "def G := 1\ntheorem foo : 1 = 1", "rfl", "filled", "filled"
    ),
    "a namespace that was renamed": _two(
        "namespace M\ndef G := True\ntheorem foo : G", "namespace N\ndef G := True\ntheorem foo : G", "trivial",
        "filled", "filled",
    ),
    # notations and instances
    "a notation": _two(
        'local notation "GOAL" => False\ntheorem foo : GOAL',
        'local notation "GOAL" => True\ntheorem foo : GOAL', "trivial", "meaning",
    ),
    "an infix": _two(
        "theorem foo (a b : Nat) : a + b = a",
        'local infixl:65 (priority := high) " + " => fun (a _ : Nat) => a\n'
        "theorem foo (a b : Nat) : a + b = a", "rfl", "meaning",
    ),
    "a macro's rules": _two(
        "theorem foo (a b : Nat) : a + b = a",
        "macro_rules | `($a + $_b) => `($a)\ntheorem foo (a b : Nat) : a + b = a", "rfl", "meaning",
    ),
    "an instance": _two(
        "theorem foo (a : Nat) : a + 1 = a",
        "local instance (priority := 2000) : HAdd Nat Nat Nat := ⟨fun a _ => a⟩\n"
        "theorem foo (a : Nat) : a + 1 = a", "rfl", "meaning",
    ),
    "an instance of another type": _two(
        "theorem foo (a : Nat) : a + 0 = a", "instance : Add Vec := ⟨f⟩\ntheorem foo (a : Nat) : a + 0 = a",
        "rfl", "filled",
        "filled",
    ),
    "a notation below the theorem": _one(
        "theorem foo : 1 + 1 = 2 := sorry\n",
        'theorem foo : 1 + 1 = 2 := rfl\nlocal infixl:65 " + " => f\n', "filled", "filled"
    ),
    # what else changes what a text says
    "unbound names are bound": _two(
        "theorem foo (h : FALSE) : False", "set_option autoImplicit true\ntheorem foo (h : FALSE) : False",
        "exact h", "context"
    ),
    "white space of a text": _two('theorem foo : "a b" = "a  b"', 'theorem foo : "a b" = "a b"', "rfl", "statement"),
    "options that only print": _two(
        "theorem foo : 1 = 1",
        "set_option trace.profiler true in\nset_option weak.linter.all false in\ntheorem foo : 1 = 1",
        "rfl", "filled", "filled",
    ),
    "a command that reads like a theorem": _one(
        f"{FALSE} := sorry\n", "claim foo : False := proof\n", "hidden", "hidden"
    ),
    "an own command": _one(
        f"{FALSE} := sorry\n",
        'macro "claim" n:ident ":" t:term : command => `(theorem $n : True := trivial)\n\nclaim foo : False\n',
        "hidden", "hidden",
    ),
}  # fmt: skip
"""By what was put in the place of the sorry, or changed around it."""
