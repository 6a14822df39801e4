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
GOALS = 'scoped[X] notation "GOAL" => False\nscoped[Y] notation "GOAL" => True\n'
VEC = "structure Vec where\n  x : Nat\n"
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
    "a theorem that rests on one with a sorry": _one(
        f"theorem baz : False := sorry\ntheorem bar : False := baz\n{FALSE} := sorry\n",
        f"theorem baz : False := sorry\ntheorem bar : False := baz\n{FALSE} := bar\n", "filled, rests on", "filled",
    ),
    "a proved theorem called like one with a sorry": _one(
        "theorem N.bar : p := sorry\ntheorem bar : p := q\ntheorem foo : p := sorry\n",
        "theorem N.bar : p := sorry\ntheorem bar : p := q\ntheorem foo : p := bar\n", "filled", "filled",
    ),
    "a proved theorem called like a private one elsewhere": Filling(
        {"A.lean": "import P\ntheorem bar : p := q\ntheorem foo : p := sorry\n",
         "P.lean": "private theorem bar : p := sorry\n"},
        {"A.lean": "import P\ntheorem bar : p := q\ntheorem foo : p := bar\n"}, frozenset({"filled"}), "filled",
    ),
    "a theorem with a sorry in a file that is the same": Filling(
        {"A.lean": "import P\ntheorem foo : p := sorry\n", "P.lean": "theorem bar : p := sorry\n"},
        {"A.lean": "import P\ntheorem foo : p := bar\n"}, frozenset({"filled", "rests on"}), "filled",
    ),
    # variables
    "a variable whose type says something else": _two(
        "def G (n : Nat) := False\nvariable (n : Nat) (h : G n)\ntheorem foo : h = h ∧ P n",
        "def G (n : Nat) := True\nvariable (n : Nat) (h : G n)\ntheorem foo : h = h ∧ P n", "exact k", "meaning",
    ),
    "an instance as a variable, of another class": _two(
        f"{OK}variable (p : Prop) [Ok p]\ntheorem foo : p",
        "class Ok (p : Prop) : Prop where\n  ok : p ∧ p\nvariable (p : Prop) [Ok p]\ntheorem foo : p",
        "exact Ok.ok.1", "meaning",
    ),
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
    "an import of what imports the same": Filling(
        {"A.lean": "import P\ntheorem foo : G := sorry\n", "P.lean": "def G := False\n", "Q.lean": "import P\n"},
        {"A.lean": "import Q\ntheorem foo : G := proof\n"}, frozenset({"filled"}), "filled",
    ),
    "a definition that comes with its own theorem": _two(
        "theorem foo : 1 = 1", "def G := 1\ntheorem foo : 1 = 1", "rfl", "filled", "filled"
    ),
    "a namespace that was renamed": _two(
        "namespace M\ndef G := True\ntheorem foo : G", "namespace N\ndef G := True\ntheorem foo : G", "trivial",
        "filled", "filled",
    ),
    "a name that the statement binds": _two(
        "def s := 1\ntheorem foo (s : Nat) : s = s", "def s := 2\ntheorem foo (s : Nat) : s = s", "rfl",
        "filled", "filled",
    ),
    "a name in the binder of its own": _two(
        "def G := False\ntheorem foo (h : G) (G : Prop) : h = h",
        "def G := True\ntheorem foo (h : G) (G : Prop) : h = h", "rfl", "meaning",
    ),
    "a name behind the bracket that binds it": _two(
        "def G := False\ntheorem foo : (∀ G : Prop, G → G) ∧ G",
        "def G := True\ntheorem foo : (∀ G : Prop, G → G) ∧ G", "simp", "meaning",
    ),
    "a definition by an alias": _two(
        "def A := False\ndef B := True\nalias G := A\ntheorem foo : G",
        "def A := False\ndef B := True\nalias G := B\ntheorem foo : G", "trivial", "meaning",
    ),
    "a definition of its own behind where": _two(
        "def G : Prop := aux\n  where aux := False\ntheorem foo : G",
        "def G : Prop := aux\n  where aux := True\ntheorem foo : G", "trivial", "meaning",
    ),
    "a name that is hidden from what is open": _two(
        "def G := True\ndef X.G := False\nopen X\ntheorem foo : G",
        "def G := True\ndef X.G := False\nopen X hiding G\ntheorem foo : G", "trivial", "meaning",
    ),
    "a definition called like another that changed": _two(
        "def G := False\ndef N.G := True\nnamespace N\ntheorem foo : G",
        "def G := 1 = 2\ndef N.G := True\nnamespace N\ntheorem foo : G", "trivial", "filled", "filled",
    ),
    "a definition that has its own definition now": _one(
        "def G : Nat := sorry\ntheorem foo : G = G := sorry\n",
        "def H := 1\ndef G : Nat := H\ntheorem foo : G = G := rfl\n", "filled", "filled",
    ),
    "a structure from which more is derived": _two(
        f"{VEC}theorem foo (a : Vec) : a = a", f"{VEC}  deriving Repr, DecidableEq\ntheorem foo (a : Vec) : a = a",
        "rfl", "filled", "filled",
    ),
    "lines that open the same": _two(
        "open A B\ntheorem foo : p", "open A\nopen B\ntheorem foo : p", "rfl", "filled", "filled"
    ),
    "a definition below one that is the same": Filling(
        {"A.lean": "import M\ntheorem foo : K := sorry\n", "M.lean": "import N\ndef K := H\n",
         "N.lean": "import P\ndef H := G\n", "P.lean": "def G := False\n"},
        {"A.lean": "import M\ntheorem foo : K := trivial\n", "P.lean": "def G := True\n"},
        frozenset({"meaning"}), "restated",
    ),
    "a definition below a notation that is the same": Filling(
        {"A.lean": "import M\ntheorem foo : GOAL := sorry\n", "M.lean": 'import P\nnotation "GOAL" => G\n',
         "P.lean": "def G := False\n"},
        {"A.lean": "import M\ntheorem foo : GOAL := trivial\n", "P.lean": "def G := True\n"},
        frozenset({"meaning"}), "restated",
    ),
    "a definition of a file that is not imported": Filling(
        {"A.lean": "theorem foo : G := sorry\n", "P.lean": "def G := 1\n"},
        {"A.lean": "theorem foo : G := rfl\n", "P.lean": "def G := 2\n"}, frozenset({"filled"}), "filled",
    ),
    "a private definition of another file": Filling(
        {"A.lean": "import P\ntheorem foo : G := sorry\n", "P.lean": "\n"},
        {"A.lean": "import P\ntheorem foo : G := rfl\n", "P.lean": "private def G := 3\n"},
        frozenset({"filled"}), "filled",
    ),
    "a file in which the name is another's": Filling(
        {"A.lean": "def G := False\ntheorem foo : G := sorry\n", "B.lean": "def G := True\n"},
        {"A.lean": "def G := False\n", "B.lean": "def G := True\ntheorem foo : G := trivial\n"},
        frozenset({"meaning"}), "restated",
    ),
    "a file that imports the definition": Filling(
        {"A.lean": "def G := 1 = 1\ntheorem foo : G := sorry\n", "B.lean": "\n"},
        {"A.lean": "def G := 1 = 1\n", "B.lean": "import A\ntheorem foo : G := rfl\n"},
        frozenset({"filled"}), "filled",
    ),
    # notations and instances
    "another scoped notation": _two(
        f"{GOALS}open scoped X\ntheorem foo : GOAL", f"{GOALS}open scoped Y\ntheorem foo : GOAL", "trivial",
        "context, meaning",
    ),
    "a definition below a notation": _two(
        'def G := False\nlocal notation "GOAL" => G\ntheorem foo : GOAL',
        'def G := True\nlocal notation "GOAL" => G\ntheorem foo : GOAL', "trivial", "meaning",
    ),
    "how strongly a notation binds": _two(
        'infixl:65 " ⊕ " => f\ntheorem foo : a ⊕ b * c = a', 'infixl:80 " ⊕ " => f\ntheorem foo : a ⊕ b * c = a',
        "rfl", "meaning",
    ),
    "how a notation is printed": _two(
        'infixl:65 " ⊕ " => f\ntheorem foo : a ⊕ b = a', 'infixl:65 " ⊕" => f\ntheorem foo : a ⊕ b = a', "rfl",
        "filled", "filled",
    ),
    "a notation that is scoped to its namespace": _two(
        'namespace X\ninfixl:65 " ⊕ " => f\ntheorem foo : a ⊕ b = a',
        'namespace X\nscoped infixl:65 " ⊕ " => f\ntheorem foo : a ⊕ b = a', "rfl", "filled", "filled",
    ),
    "a macro of a file that is imported": Filling(
        {"A.lean": "import P\ntheorem foo : GOAL := sorry\n", "P.lean": 'macro "GOAL" : term => `(False)\n'},
        {"A.lean": "import P\ntheorem foo : GOAL := trivial\n", "P.lean": 'macro "GOAL" : term => `(True)\n'},
        frozenset({"meaning"}), "restated",
    ),
    "a program for a term": _two(
        'elab "GOAL" : term => return mkConst ``False\ntheorem foo : GOAL',
        'elab "GOAL" : term => return mkConst ``True\ntheorem foo : GOAL', "trivial", "meaning",
    ),
    "rules for every application": _two(
        "theorem foo : f a = 0", "macro_rules | `($g $x) => `(0)\ntheorem foo : f a = 0", "rfl", "meaning"
    ),
    "rules for other words of a language": _two(
        "theorem foo : iprop(a)", "macro_rules | `(iprop(▷ $x)) => `($x)\ntheorem foo : iprop(a)", "rfl",
        "filled", "filled",
    ),
    "syntax of a tactic's patterns": _two(
        "theorem foo : (a, _) = b", 'syntax "(" pats ")" : pat\nsyntax "_" : pat\ntheorem foo : (a, _) = b', "rfl",
        "filled", "filled",
    ),
    "an instance below a definition": _two(
        f"{VEC}instance : Add Vec := ⟨f⟩\ndef G := ∀ a : Vec, a + a = a\ntheorem foo : G",
        f"{VEC}instance : Add Vec := ⟨g⟩\ndef G := ∀ a : Vec, a + a = a\ntheorem foo : G", "rfl", "meaning",
    ),
    "an instance of what an abbreviation stands for": _two(
        f"{VEC}abbrev T := Vec\ninstance : Add Vec := ⟨f⟩\ntheorem foo (a : T) : a + a = a",
        f"{VEC}abbrev T := Vec\ninstance : Add Vec := ⟨g⟩\ntheorem foo (a : T) : a + a = a", "rfl", "meaning",
    ),
    "an instance that goes before others": _two(
        f"{VEC}instance : Add Vec := ⟨f⟩\ntheorem foo (a : Vec) : a + a = a",
        f"{VEC}instance (priority := high) : Add Vec := ⟨f⟩\ntheorem foo (a : Vec) : a + a = a", "rfl", "meaning",
    ),
    "a definition that is made an instance": _two(
        f"{VEC}def f : HAdd Nat Nat Vec := ⟨g⟩\ntheorem foo : 1 + 1 = 2",
        f"{VEC}def f : HAdd Nat Nat Vec := ⟨g⟩\nattribute [default_instance] f\ntheorem foo : 1 + 1 = 2",
        "rfl", "meaning",
    ),
    "an instance of a product": _two(
        f"{VEC}variable [Add α]\ntheorem foo (a : α) : a + a = a",
        f"{VEC}variable [Add α]\ninstance : Add (α × α) := ⟨f⟩\ntheorem foo (a : α) : a + a = a", "rfl",
        "filled", "filled",
    ),
    "a proof that is made an instance": _two(
        "theorem bar : Ok p := k\ntheorem foo : p",
        "theorem bar : Ok p := k\nattribute [instance] bar\ntheorem foo : p", "rfl", "filled", "filled",
    ),
    "an instance with another attribute": _two(
        f"{VEC}instance : Add Vec := ⟨f⟩\ntheorem foo (a : Vec) : a + a = a",
        f"{VEC}@[simp] instance f : Add Vec := ⟨f⟩\ntheorem foo (a : Vec) : a + a = a", "rfl", "filled", "filled",
    ),
    "an instance that is a proof": _two(
        f"{OK}theorem foo [Ok p] : Ok p", f"{OK}instance : Ok p := ⟨k⟩\ntheorem foo [Ok p] : Ok p", "exact k",
        "filled", "filled",
    ),
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
    "an own command on the next line": _one(
        f"{FALSE} := sorry\n",
        'macro "claim" n:ident ":" t:term : command => `(theorem $n : True := trivial)\nclaim foo : False\n',
        "hidden", "hidden",
    ),
    "an own command": _one(
        f"{FALSE} := sorry\n",
        'macro "claim" n:ident ":" t:term : command => `(theorem $n : True := trivial)\n\nclaim foo : False\n',
        "hidden", "hidden",
    ),
}  # fmt: skip
"""By what was put in the place of the sorry, or changed around it."""
