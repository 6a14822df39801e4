"""Every trap that a text must not walk through, and honest proofs that must."""

from __future__ import annotations

import pytest

from pipeline.lean.source.forbidden import complaints

HONEST = [
    "rfl",
    "by\n  intro h\n  exact ⟨h.2, h.1⟩",
    "(by simp [Nat.add_comm]; omega)",
    "cases h with\n  | inl h => exact h -- not a sorry\n  | inr h => exact h",
    "exact /- sorry, said in a comment -/ h",
    'exact absurd h (by simp [show "sorry" = "sorry" from rfl])',
    "exact sorry_free h",
    "exact h.axiomatic",
    "rcases h with ⟨a, b⟩ | ⟨«odd name», c⟩",
    "set_option maxRecDepth 2000 in decide",
    "exact ‹p ∧ q›.1",
    "simp [h', f '' s, f ⁻¹' s] at h'",
    "exact x.1.elim h.2.symm",
    "nlinarith [sq_nonneg (a - b), h 1e-3 2.5]",
    "open Nat in\n  set_option maxRecDepth 9 in\n  omega",
    "constructor -- a comment\n  -- another -- one\n  exact h",
    "/- first -/ exact h /-- -/".replace("/-- -/", "/- - -/"),
    "exact «a name» «another»",
    "simp [Matrix.trace, trace A]",
]

TRAPS = [
    "sorry",
    "exact sorry",
    "by admit",
    "exact sorryAx _ false",
    "exact «sorryAx» _ false",
    "exact @Lean.sorryAx _ false",
    "exact @_root_.sorryAx p true",
    "exact «Lean».«sorryAx» _",
    "native_decide",
    "by native_decide",
    "exact Lean.ofReduceBool a b rfl",
    "exact «Lean.ofReduceBool» a b rfl",
    "bv_decide",
    "run_tac Lean.Elab.admitGoal",
    "exact by_elab return",
    "exact unsafe cheat",
    "exact (unsafeCast ())",
    "set_option debug.skipKernelTC true in exact h",
    "set_option «debug».skipKernelTC true in exact h",
    "rfl\naxiom cheat : False",
    "rfl\n\ntheorem extra : 1 = 1 := rfl",
    "rfl\nend Demo\nnamespace Demo",
    "rfl\nattribute [simp] bad",
    "rfl\n#eval IO.println 1",
    'rfl\nmacro "x" : tactic => `(tactic| rfl)',
    "rfl\nlocal instance : Add Nat := ⟨Nat.mul⟩",
    'rfl\nopen Lean Elab in\nelab "x" : tactic => pure ()',
    "rfl\ninitialize pure ()",
    "rfl\nimport Evil",
    "rfl\n@[implemented_by f] def g := 1",
    'rfl\n@[extern "c"] opaque g : Nat',
    "rfl)",
    "(rfl",
    "⟨rfl",
    "⟨rfl)",
    "rfl /- and then",
    "rfl /- /- nested -/",
    'exact foo "open',
    "rfl -- hides what follows",
    "rfl -/",
    "decide +native",
    "decide (config := { native := true })",
    "let rec @[instance] add : Add Nat := ⟨Nat.mul⟩\n  exact h",
    "exact eval% cheat",
    "rfl\nunseal f",
    "exact s\u200borry",
    "exact ѕorry",  # a Cyrillic letter
    "exact ｓｏｒｒｙ",
    "exact h\u202e",
    "exact h\ufe00",
    "exact h\ufe0f",
    "rfl\x00",
    'exact (s!"{sorry}").elim',
    "exact f 0'\"' sorry '\"'",  # to Lean: a number, a character, code
    "exact f !'\"' sorry '\"'",
    'exact f 0r"\\" sorry \'"\'',  # to Lean: a number, a raw string, code
    "exact f 0'«' sorry '»'",
    "exact f ⁻¹'\"' \" sorry \"'\"' '",  # where `⁻¹'` is one token
    "exact f 0x1sorry",
    "exact f 1e5run_tac",
    "exact f 2.5e3sorry",
    "simp\ropen Foo in exact h",
    "simp\u00a0[h]",
    "simp\u2028[h]",
    "simp\nopen Foo",
    "simp\n  open Foo",
    "simp\nset_option autoImplicit true in",
    "open Foo in",
    "simp\ninclude h",
    "simp\nomit h",
    "simp\nsuppress_compilation",
    "simp\nproof_wanted x : False",
    "simp\n/-- of what follows -/",
    "simp\n/-! a command -/",
    "exact foo\n  where foo : False := foo",
    "stop exact h",
    "exact (rfl : Lean.reduceBool b = true)",
    "run_tacq x",
    "exact f «x\n/- » sorry «-/ y»",  # to Lean: a name with a line end, code, a name
    'exact f «x\n "» sorry «" »',
    "exact f «x\n-- » sorry",
    "exact ⟨0, {x : Nat //-1 = sorry -- -/\n }⟩",  # to Lean: `//`, a minus, code
    "rw [<--sorry]",  # to Lean: `<-`, a minus, code
    "exact f «a«b»",
    "exact f » h",
    "apply?",
    "exact?",
    "set_option warn.sorry false in exact h",
    'trace "x"',
    'dbg_trace "x"\n  exact h',
]


@pytest.mark.parametrize("text", HONEST)
def test_an_honest_proof_passes(text: str) -> None:
    assert complaints(text) == ()


@pytest.mark.parametrize("text", TRAPS)
def test_a_trap_is_refused_with_a_reason(text: str) -> None:
    assert complaints(text)


def test_a_word_in_a_comment_does_not_hide_the_same_word_in_code() -> None:
    assert complaints("exact /- sorry -/ h") == ()
    assert complaints("exact /- fine -/ sorry") == ("the word sorry",)


def test_a_quoted_spelling_is_named_as_what_it_is() -> None:
    assert complaints("exact «sorryAx» _") == ("the word «sorryAx» (a spelling of sorryAx)",)


LEAN_S_TO_SAY = [
    "exact (id h).symm",
    "exact UV hint plausible",
    "exact f 0x1F 0b101",
    "exact f 'a' ('b')",
    'exact f "a\\"b" "\\\\" "\\n"',
    "exact f (α := PUnit)",
    "exact h -- by assumption",
    "exact f n\n  termination_by n",
    "exact f n\n  decreasing_by omega",
    "let rec f : Nat → False := f\n  exact f 0",
    "hint",
    "aesop (add unsafe [foo, N.bar], simp foo)",
    "aesop (add norm simp a, unsafe 50% apply b)",
    "simp (config := {contextual := True}) [h]",
    "exact f (g := fun r => r.unit⁻¹)",
    "open scoped Nat in\n  exact h",
    "simp +arith (maxSteps := 9) (disch := omega) only [f (n := m + 1)]",
    "rw (occs := .pos [1]) [f (x := g y)]",
    "exact f (g := default)",
    "exact h (stop := stop) (stop - 1)",
    "exact card_le (#A) #s.image",
    "exact hx'y' he''e' h2Y'",
    "observe h : p\n  exact h",
    "exact Lean.Omega.Fin.ofNat_val_sub System.Platform.numBits_eq Lean.Grind.Semiring.pow_succ",
    'exact h\n  -- the 1st of `k̄`, don\'t "quote" ❌\ufe0f «\n  exact k',
]
STILL_REFUSED = [
    "exact?",
    "stop\n  exact h",
    "exact (by stop exact h)",
    "constructor\n  · stop",
    "exact ⟨h, unsafe cheat⟩",
    "aesop (add safe (by exact unsafe cheat))",
    "exact f (add := 1, unsafe cheat)",
    "exact h scoped",
    "open scoped Nat",
    "exact #evalx",
    "exact h\n  #eval.x",
    "exact Lean.Elab.foo Lean.Meta.Grind.foo",
    "simp (maxSteps := .unit)",
    'simp (maxSteps := panic! "no axioms")',
    "simp +arith (contextual := true) (maxSteps := act default)",
    "decide (kernel := match writeFile a b (by constructor) with | _ => true)",
    "rw (occs := xs.get!) [h]",
    "exact h -- \u202e yrros",
    "exact f 'y'z'",
    "exact f.1'y'",
    "exact f 0 -- it's\n  '\"' sorry '\"'",
    "polyrith",
    "exact UV.loop",
    "open IO FS in writeFile x",
    "exact f 0x1sorry",
    "exact f 0x1Fsorry",
    'exact f 0x1F" sorry "',
    "exact f 'a'sorry",
    "exact f (α := PUnit.unit)",
    "simp (config := f ())",
    "exact h -- by assumption\n  sorry",
    "let rec @[instance] add : Add Nat := ⟨Nat.mul⟩\n  exact h",
    "exact f n\n  where g := 1",
    'exact f "\\" sorry "\\"',
    'exact f "{sorry}"',
    'exact f s!"a\\"{sorry}"',
    'exact f r"\\" sorry "',
    "run_tac x",
    "#eval x",
    "dbg_trace 1",
    "exact h\n\ntheorem x : 1 = 1 := rfl",
    "exact IO.println",
]


@pytest.mark.parametrize("text", LEAN_S_TO_SAY)
def test_whether_it_is_a_proof_is_lean_s_to_say(text: str) -> None:
    assert complaints(text, ends_line=True) == ()


@pytest.mark.parametrize("text", STILL_REFUSED)
def test_what_runs_code_prints_or_leaves_its_place_is_refused(text: str) -> None:
    assert complaints(text, ends_line=True)


def test_a_comment_at_the_end_hides_no_source() -> None:
    assert complaints("exact h -- so", ends_line=True) == ()
    assert "hide the source" in complaints("exact h -- so")[0]
