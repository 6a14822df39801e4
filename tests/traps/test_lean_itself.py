"""The gate before Lean 4.35.0 itself: honest proofs, traps, and projects that help, as far as its library can say them.

Build, questions, axioms and statements are Lean's own answers. Nothing replays, so that the grade is the
lowest, but with a second kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.gate.second_kernel import NANODA
from store.events.proofs import ProofChecked
from tests.support.gate import FILE, Case, GateProject
from tests.support.lean.real_gate import RealGate

PROOF = "exact ⟨h.2, h.1⟩"


def reason(verdict: ProofChecked, step: str) -> str:
    return next(one.evidence for one in verdict.checks if one.step == step and one.verdict == "not_checked")


def test_a_library_that_is_not_lean_s_own_verifies_nothing(strict: RealGate) -> None:
    verdict = strict.candidate(Case(PROOF))
    assert {"axioms", "statement"} <= set(verdict.not_checked)
    assert "is not Lean's own, since Init.Prelude is not in it" in reason(verdict, "axioms")


def test_what_does_not_compile_is_rejected_where_the_library_is_not_lean_s_own_too(strict: RealGate) -> None:
    assert "Type mismatch" in strict.rejected(Case("exact h"), step="compile").reason


# --- honest ---------------------------------------------------------------------------------------------------


HONEST = {
    "a term": Case(PROOF),
    "tactics on lines": Case("constructor\n  · exact h.2\n  · exact h.1"),
    "a lemma before it": Case("exact helper _ ⟨h.2, h.1⟩"),
    "by simp": Case("simp [h]"),
    "line ends of two bytes": Case(
        "constructor\r\n  · exact h.2\r\n  · exact h.1", file=FILE.replace("\n", "\r\n")
    ),
    "recursion": Case(
        "intro n\n  cases n with\n  | zero => rfl\n  | succ n => exact congrArg Nat.succ (mine n)",
        file="theorem mine : (n : Nat) → 0 + n = n := by\n  HOLE\n",
        declaration="mine",
    ),
    "a private theorem": Case(PROOF, file=FILE.replace("theorem mine", "private theorem mine")),
    "a quoted name": Case(
        "exact h", file="theorem «a b».mine (p : Prop) (h : p) : p := by\n  HOLE\n", declaration="«a b».mine"
    ),
    "a quoted name that needs no quotes": Case(
        "exact h", file="theorem «mine» (p : Prop) (h : p) : p := by\n  HOLE\n", declaration="«mine»"
    ),
    "an import of the project": Case(
        "exact swap h",
        file="import Demo.Lemmas\n" + FILE,
        others={"Demo/Lemmas.lean": "theorem swap {p q : Prop} (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩\n"},
    ),
    "attributes, which may add names by the statement": Case(
        PROOF, file=FILE.replace("theorem mine", "@[simp, grind] theorem mine")
    ),
    "an option of the file": Case(PROOF, file="set_option autoImplicit true\n" + FILE),
    "a projection of which a later lemma has the name": Case(
        "exact (id h).turned",
        file="import Demo.Lemmas\n" + FILE + "theorem Foo.turned (p : Prop) : p → p := fun h => h\n",
        others={"Demo/Lemmas.lean": "theorem And.turned {p q : Prop} (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩\n"},
    ),
    "hypotheses that are called as programs and searches are": Case(
        "have ⟨UV, hint⟩ := h\n  exact ⟨hint, UV⟩ -- the other way round"
    ),
    "a number and a text": Case('have _ : (0x1F, "a\\"b") = (31, "a\\"b") := rfl\n  exact ⟨h.2, h.1⟩'),
    "one of a mutual block": Case(
        "exact h",
        file="mutual\ntheorem mine (p : Prop) (h : p) : p := by\n  HOLE\ntheorem gap : 1 = 2 := by\n  sorry\nend\n",
        declaration="mine",
    ),
    "an instance that is a theorem": Case(
        "⟨h.out, trivial⟩",
        file="class Holds (p : Prop) : Prop where\n  out : p\n"
        "instance mine (p : Prop) [h : Holds p] : Holds (p ∧ True) := ⟨HOLE⟩\n",
        declaration="mine",
    ),
    "what Lean makes on the way: equations, also of an imported definition, and a matcher": Case(
        "unfold one two\n  match n with\n  | 0 => rfl\n  | _ + 1 => rfl",
        file="import Demo.Lemmas\ndef two (n : Nat) : Nat := n\ntheorem mine (n : Nat) : two n = one n := by\n  HOLE\n",
        declaration="mine",
        others={"Demo/Lemmas.lean": "def one (n : Nat) : Nat := n\n"},
    ),
    "a local recursion": Case("let rec other (n : Nat) : q := h.2\n  exact ⟨other 0, h.1⟩"),
    "another declaration on its line": Case(
        "⟨h.2, h.1⟩",
        file="theorem mine (p q : Prop) (h : p ∧ q) : q ∧ p := HOLE theorem gap : 1 = 2 := sorry\n",
        declaration="mine",
    ),
    "the second declaration of a line": Case(
        "⟨h.2, h.1⟩",
        file="theorem gap : 1 = 2 := sorry theorem mine (p q : Prop) (h : p ∧ q) : q ∧ p := HOLE\n",
        declaration="mine",
    ),
}


# What other tests show of Lean too is judged every night.
NIGHTLY = {
    "a term",
    "a quoted name",
    "tactics on lines",
    "a lemma before it",
    "by simp",
    "an import of the project",
    "hypotheses that are called as programs and searches are",
    "a number and a text",
    "another declaration on its line",
    "a quoted name that needs no quotes",
    "an option of the file",
    "attributes, which may add names by the statement",
    "by a body that is not exposed",
    "a theorem that is not public",
    "a private theorem of a module file",
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] if name in NIGHTLY else [])
        for name, case in HONEST.items()
    ],
)
def test_an_honest_proof_passes_every_question(lean: RealGate, case: Case) -> None:
    verdict = lean.verified(case)
    assert (verdict.grade, verdict.not_checked) == ("L0", ("kernel",))
    assert set(verdict.axioms) <= {"propext", "Classical.choice", "Quot.sound"}


def test_the_axioms_are_lean_s_own(lean: RealGate) -> None:
    file = "theorem mine (p : Prop) : p ∨ ¬p := by\n  HOLE\n"
    verdict = lean.verified(Case("exact Classical.em p", file=file, declaration="mine"))
    assert set(verdict.axioms) == {"propext", "Classical.choice", "Quot.sound"}


def test_a_real_second_kernel_judges_what_lean_exports(
    lean: RealGate, provide: Callable[[str], Path]
) -> None:
    provide(NANODA)
    verdict = lean.verified(HONEST["recursion"], second_kernel=NANODA)
    assert (verdict.grade, verdict.not_checked) == ("L1", ())
    assert verdict.kernel.startswith(f"{NANODA} ")


def test_an_instance_that_is_data_is_no_proof(lean: RealGate) -> None:
    file = "instance mine : Inhabited Nat := ⟨HOLE⟩\n"
    assert "def" in lean.rejected(Case("0", file=file, declaration="mine"), step="statement").reason


# --- traps ----------------------------------------------------------------------------------------------------


def test_a_proof_that_rests_on_a_sorry_is_conditional_and_names_it(lean: RealGate) -> None:
    file = FILE.replace("p → p := fun h => h\n\ntheorem mine", "p → p := sorry\n\ntheorem mine")
    event = lean.rejected(Case("exact helper _ ⟨h.2, h.1⟩", file=file), step="axioms")
    assert event.conditional_on == ("Demo.helper",)


def test_a_proof_that_rests_on_a_sorry_of_another_file_is_conditional_and_names_it(lean: RealGate) -> None:
    case = Case(
        "exact swap h",
        file="import Demo.Lemmas\n" + FILE,
        others={"Demo/Lemmas.lean": "theorem swap {p q : Prop} (h : p ∧ q) : q ∧ p := sorry\n"},
    )
    assert lean.rejected(case, step="axioms").conditional_on == ("swap",)


def test_an_axiom_of_the_project_is_rejected(lean: RealGate) -> None:
    file = "axiom cheat : False\n" + FILE
    assert "rests on cheat" in lean.rejected(Case("exact cheat.elim", file=file), step="axioms").reason


def test_a_statement_that_a_variable_makes_another_is_rejected(lean: RealGate) -> None:
    """`include` by the proof's own words: Lean 4.35 decides before the proof, so that this one does not compile."""
    file = "variable (p : Prop) (h : p)\ntheorem mine : p ∨ True := by\n  HOLE\n"
    lean.rejected(Case("exact Or.inl h", file=file, declaration="mine"), step="compile")


def test_a_local_recursion_changes_nothing_that_the_file_says_further_down(lean: RealGate) -> None:
    """With the proof the later definition would be 1."""
    file = FILE.replace("namespace Demo", "namespace Demo\ndef base : Nat := 0")
    case = Case(f"let rec base : Nat := 1\n  {PROOF}", file=f"{file}def Demo.mine.user : Nat := base\n")
    assert "hides a base" in lean.rejected(case, step="statement").reason
    lean.verified(dataclasses.replace(case, proof=case.proof.replace("base", "other")))


@pytest.mark.parametrize("others", [True, False], ids=["of another file", "of the file itself"])
def test_a_macro_s_local_recursion_changes_nothing_that_the_file_says_further_down(
    lean: RealGate, others: bool
) -> None:
    """No text of the proof says what it declares: Lean does."""
    macro = (
        "set_option hygiene false in\n"
        f'macro "finish" : tactic => `(tactic| (let rec base : Nat := 1; {PROOF}))\n'
    )
    file = FILE.replace("namespace Demo", "namespace Demo\ndef base : Nat := 0")
    case = Case(
        "finish",
        file=f"{'import Demo.Own' if others else macro}\n{file}def Demo.mine.user : Nat := base\n",
        others={"Demo/Own.lean": macro} if others else {},
    )
    assert "hides a base" in lean.rejected(case, step="statement").reason
    lean.verified(dataclasses.replace(case, file=case.file.replace("Demo.mine.user", "Demo.user")))


OWN_COMMANDS = (
    'macro "finish" n:ident : command => `(attribute [simp] $n)\n'
    'macro "cheat" : command => `(axiom cheat : False)\n'
)


@pytest.mark.parametrize(
    "behind",
    [
        " finish helper",
        "\n  cheat",
        "\n      set_option maxRecDepth 99 in finish helper",
        "\n  decreasing_by decreasing_tactic\n  cheat",
    ],
)
def test_a_command_of_the_project_s_own_that_follows_in_the_proof_s_text_is_rejected(
    lean: RealGate, behind: str
) -> None:
    """Nobody but Lean knows its word: it is seen by where Lean ends the declaration."""
    case = Case(PROOF + behind, file="import Demo.Own\n" + FILE, others={"Demo/Own.lean": OWN_COMMANDS})
    assert "a command of its own" in lean.rejected(case, step="compile").reason


@pytest.mark.parametrize("header", ["", "module\n"])
def test_that_command_is_seen_too_behind_a_declaration_that_names_no_constant(
    lean: RealGate, header: str
) -> None:
    """Of such a one the build's references say nothing."""
    macro = 'macro "finish" n:ident : command => `(attribute [simp] $n)\n'
    file = f"{header}{macro}{FILE}".replace("q ∧ p := by", "p → p := by")
    case = Case("exact fun h => h\n  finish helper", file=file)
    assert "a command of its own" in lean.rejected(case, step="compile").reason
    lean.verified(dataclasses.replace(case, proof="exact fun h => h"))


# --- module files ---------------------------------------------------------------------------------------------

HEADER = """module

public import Demo.Lemmas
import all Demo.Lemmas

@[expose] public section

"""
LEMMAS = {
    "Demo/Lemmas.lean": """module

private theorem swap {p q : Prop} (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩

public section

def hidden : Nat := 2

theorem open_one {p q : Prop} (h : p ∧ q) : q ∧ p := by
  sorry
"""
}
HONEST_IN_MODULES = {
    "by what the header imports all of": Case("exact swap h", file=HEADER + FILE, others=LEMMAS),
    "by what the header imports all of, which a later declaration is named after": Case(
        "exact swap h",
        file=HEADER + FILE.replace("theorem later", "theorem swap"),
        others=LEMMAS,
    ),
    "by a body that is not exposed": Case(
        "rfl",
        file=HEADER + "theorem mine : hidden = 2 := by\n  HOLE\n",
        others=LEMMAS,
        declaration="mine",
    ),
    "a theorem that is not public": Case(PROOF, file="module\n" + FILE),
    "a private theorem of a module file": Case(
        PROOF, file=HEADER + FILE.replace("theorem mine", "private theorem mine"), others=LEMMAS
    ),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.slow] if name in NIGHTLY else [])
        for name, case in HONEST_IN_MODULES.items()
    ],
)
def test_an_honest_proof_in_a_module_file_passes_every_question(lean: RealGate, case: Case) -> None:
    verdict = lean.verified(case)
    assert (verdict.grade, verdict.not_checked) == ("L0", ("kernel",))


def test_what_a_module_file_does_not_see_is_no_proof_there(lean: RealGate) -> None:
    file = HEADER.replace("import all Demo.Lemmas\n", "") + FILE
    lean.rejected(Case("exact swap h", file=file, others=LEMMAS), step="compile")


def test_a_proof_by_a_sorry_of_another_module_file_is_conditional(lean: RealGate) -> None:
    event = lean.rejected(Case("exact open_one h", file=HEADER + FILE, others=LEMMAS), step="axioms")
    assert event.conditional_on == ("open_one",)


@pytest.mark.parametrize(
    "proof",
    [
        f"{PROOF}\n\n@[expose] public section",
        f"{PROOF}\n\nattribute [expose] helper",
        f"{PROOF}\n\npublic section",
        f"{PROOF}\n\nend\n\nsection",
    ],
)
def test_a_proof_that_changes_what_its_file_shows_is_rejected(lean: RealGate, proof: str) -> None:
    lean.rejected(Case(proof, file=HEADER + FILE, others=LEMMAS), step="text")


# --- projects that help ---------------------------------------------------------------------------------------


def test_a_prelude_file_is_refused(lean: RealGate) -> None:
    """It can say what `propext` means."""
    case = Case(
        "exact swap h",
        file="import Demo.Own\n" + FILE,
        others={
            "Demo/Own.lean": "prelude\nimport Init.Nat\ntheorem swap {p q : Prop} (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩\n"
        },
    )
    assert "is a prelude file" in reason(lean.candidate(case), "axioms")


def test_a_command_that_a_macro_makes_another_of_is_not_proved(lean: RealGate) -> None:
    """It proves `True` under the name of what the text states, with the sorry and without."""
    macro = "macro_rules | `(theorem $n:declId : False := by $_:tacticSeq) => `(theorem $n : True := trivial)"
    case = Case("trivial", file=f"{macro}\ntheorem mine : False := by\n  HOLE\n", declaration="mine")
    assert "rests on no sorry, so it is not what the sorry is in" in reason(lean.candidate(case), "axioms")


LOOKS_LIKE_ANOTHER = {
    "a local notation": (
        'local notation "Two" => 1\ntheorem mine : 1 = Two := by\n  HOLE\n',
        ("rfl", ": 1 = Two", "@Eq.{1} Nat (@OfNat.ofNat.{0} Nat 1 (instOfNatNat 1)) (@OfNat.ofNat.{0} Nat 1"),
    ),
    "a namespace's own False": (
        "namespace Demo\ndef False : Prop := True\ntheorem mine : False := by\n  HOLE\nend Demo\n",
        ("exact True.intro", ": False", "Demo.False"),
    ),
    "a name that an open brings": (
        "def Weird.Claim : Prop := True\nopen Weird\ntheorem mine : Claim := by\n  HOLE\n",
        ("exact True.intro", ": Claim", "Weird.Claim"),
    ),
    "an instance of the file's own": (
        "local instance odd : LE Nat := ⟨fun _ _ => True⟩\ntheorem mine : 3 ≤ 2 := by\n  HOLE\n",
        ("exact True.intro", ": 3 ≤ 2", "@LE.le.{0} Nat odd "),
    ),
}


@pytest.mark.parametrize(("file", "words"), LOOKS_LIKE_ANOTHER.values(), ids=LOOKS_LIKE_ANOTHER.keys())
def test_a_statement_that_reads_like_another_is_shown_as_lean_has_it(
    lean: RealGate, file: str, words: tuple[str, str, str]
) -> None:
    proof, source, leans = words
    name = "Demo.mine" if "namespace Demo" in file else "mine"
    material = lean.verified(Case(proof, file=file, declaration=name)).material
    assert material is not None
    assert material.lean is not None
    assert (material.statement, material.lean.type.startswith(leans)) == (source, True), material.lean.type


LAST = "\n  exact ⟨h.2, h.1⟩"
HIDES = {
    "a notation with a comment's sign in its token": (
        'local notation:65 a:65 " +-- " b:66 => And.left (And.intro a b)\n',
        f"have := h +-- sorry{LAST}",
    ),
    "a notation with a string's mark in its token": (
        'local notation "tell\\"" a => a\n',
        f'have : p := tell"sorry -- "{LAST}',
    ),
    "a minus behind an arrow": ("", f"have : ∃ n : Nat, n = n := by\n    refine ⟨?_, rfl⟩ <--sorry{LAST}"),
    "a raw string behind a number": (
        "def two (_ : Nat) (_ : String) (_ : p) : p := by assumption\n",
        f'have := two 0r"\\" sorry -- "{LAST}',
    ),
}


@pytest.mark.parametrize(("head", "proof"), HIDES.values(), ids=HIDES.keys())
def test_no_token_hides_a_sorry_of_the_proof(court: GateProject, head: str, proof: str) -> None:
    """Lean reads the longest token that there is, where the scanner sees a comment or a string begin."""
    court.rejected(Case(proof, file=head + FILE), step="text")


def test_what_a_variable_line_brings_is_seen_beside_the_source_s_words(lean: RealGate) -> None:
    verdict = lean.verified(
        Case(
            "exact hyp.elim",
            file="variable (hyp : False)\ninclude hyp\ndef two : Nat := 2\ntheorem mine : 1 = two := by\n  HOLE\n",
            declaration="mine",
        )
    )
    assert verdict.material is not None
    told = verdict.material.lean
    assert told is not None
    one = "(@OfNat.ofNat.{0} Nat 1 (instOfNatNat 1))"
    assert (verdict.material.statement, told.type) == (
        ": 1 = two",
        f"∀ (hyp : False), @Eq.{{1}} Nat {one} two",
    )
    assert told.not_in_header == ("(hyp : False)",)
    assert [(below.kind, below.module, below.name, below.type) for below in told.below] == [
        ("definition", "A", "two", "Nat")
    ]
    patch = next((lean.folder / "job").rglob(verdict.patch.sha256)).read_text("utf-8")
    assert (
        f"Statement: : 1 = two\nLean's statement: mine : {told.type}\nNot in its header: (hyp : False)\n"
        in patch
    )
