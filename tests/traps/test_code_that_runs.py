"""Traps: a proof whose text makes Lean run code while it elaborates.

A tactic's configuration is a term that Lean compiles and evaluates (`Meta.evalExpr'`, with unsafe code allowed), and an
action on the world is a function that can be applied to the unit there. Code that runs in the build can overwrite what
was built. So the names of such actions are refused, and every option but those that a proof needs.
"""

from __future__ import annotations

import pytest

from tests.support.gate import Case, Refused

ACTIONS = {
    "writing a file in a configuration": "simp (config := (match IO.FS.writeFile a b () with | _ => {}))",
    "starting a program in a configuration": "decide (config := (IO.Process.run args ()).rec)",
    "the same in the new spelling": "simp (maxSteps := (IO.FS.removeFile a ()).rec) [h]",
    "an action of the file's open namespace": "simp (maxSteps := act (writeFile a b default))",
    "a panic's message": 'simp +arith (maxSteps := panic! "no axioms") [h]',
    "an action by its open namespace": "open IO.FS in simp (config := (writeFile a b ()).rec)",
    "an action by a renamed namespace": "open IO renaming println → say in simp (config := (say a ()).rec)",
    "an action from the root": "simp (config := (_root_.IO.FS.writeFile a b ()).rec)",
    "an action, quoted": "simp (config := («IO».«FS».writeFile a b ()).rec)",
    "an action in look-alike letters": "simp (config := (ΙO.FS.writeFile a b ()).rec)",
    "an unsafe action": "simp (config := unsafeIO act)",
    "an unsafe action of another kind": "simp (config := unsafeBaseIO act)",
    "an unsafe action of a namespace": "simp (config := Foo.unsafePerform act)",
    "an address of memory": "exact (ptrAddrUnsafe h).rec",
    "a file's methods": "simp (config := (System.FilePath.readDir a ()).rec)",
    "Lean's own programs": "exact Lean.Meta.foo",
    "Lean's own programs, opened": "open Lean Elab Tactic in exact h",
    "Lean's own programs, from the root": "exact _root_.Lean.saveModuleData a b c",
    "Lean's own programs, quoted": "exact «Lean».saveModuleData a b c",
    "the build program's": "exact Lake.build",
    "a conversion that runs code": "conv => run_conv act",
    "an expression evaluated": "exact eval_expr% act",
    "elaborator rules": "exact h\n  elab_rules : tactic | `(tactic| x) => pure ()",
    "an evaluated command that kills": "exact h\n  #eval IO.Process.exit 0",
    "an evaluated command, glued": "exact h#eval 1",
    "a command with a bang": "exact h\n  #eval! 1",
    "messages checked away": "exact h\n  #guard_msgs in theorem x : False := h",
    "an initializer": "exact h\n  builtin_initialize x : Unit ← pure ()",
    "a configuration of its own": "exact h\n  declare_config_elab foo Bar",
    "an evaluated command, its argument glued": "exact h\n  #evalact",
    "a quoted elaborator": "exact «by_elab» return h",
    "in a proof that recursion ends": "exact mine p q h\n  termination_by h\n  decreasing_by run_tac act",
    "a conversion's tactic": "conv => tactic => run_tac act",
    "a file's text": 'exact absurd h (include_str "/etc/passwd")',
    "a command under an option": "exact h\n  set_option maxHeartbeats 5 in run_cmd act",
    "a command under an open namespace": "exact h\n  open Nat in #eval act",
    "a local macro": 'exact h\n  local macro "x" : tactic => `(tactic| rfl)',
    "a rule's term": "aesop (add unsafe (by exact unsafe act))",
    "a program of Lean's beside its lemmas": "exact Lean.Omega.foo Lean.Elab.Command.runLinters",
}
OPTIONS = {
    "the kernel by a weak option": "set_option weak.debug.skipKernelTC true in exact h",
    "the interpreter": "set_option interpreter.prefer_native true in exact h",
    "the compiler": "set_option compiler.check false in exact h",
    "traces": "set_option trace.Meta.synthInstance true in exact h",
    "statistics": "set_option profiler true in exact h",
    "diagnostics": "set_option diagnostics true in exact h",
    "where output goes": "set_option stderrAsMessages false in exact h",
    "what may be made reducible": "set_option allowUnsafeReducibility true in exact h",
    "what is in quotations": "set_option quotPrecheck false in exact h",
    "what inductive types may be": "set_option bootstrap.inductiveCheckResultingUniverse false in exact h",
    "the command line's own": "set_option internal.cmdlineSnapshots true in exact h",
    "quoted": "set_option «Elab.async» true in exact h",
    "the kernel, behind another": "set_option maxRecDepth 9 in set_option debug.skipKernelTC true in exact h",
    "an option that nobody knows": "set_option future.dangerous true in exact h",
}
NO_TACTICS = {
    "a command of a library": "exact h\n  mk_iff_of_inductive_prop x y",
    "another command of a library": "exact h\n  insert_to_additive_translation a b",
    "the quotients of the kernel": "exact h\n  init_quot",
    "a private name made public": "open private foo in Bar exact foo",
    "a private name imported": "import_private foo",
    "a search by rewriting": "rw_search",
    "a search with a bang": "apply?!",
    "a search that trusts a solver": "bv_decide?",
    "termination that is searched": "exact h\n  termination_by?",
    "termination with a sorry": "exact h\n  decreasing_by sorry",
    "after a semicolon": "exact ⟨h.2, h.1⟩; theorem extra : True := trivial",
    "behind a bracket": "exact (h)theorem extra : True := trivial",
    "an axiom behind a quoted name": "exact «h»axiom cheat : False",
    "a theorem behind a quoted name": "exact ⟨h.2, h.1⟩.«left»theorem extra : False := cheat",
    "a sorry behind a quoted name": "exact ⟨«h»sorry⟩",
    "a word before a quoted name": "exact h; theorem«extra» : True := trivial",
    "two quoted names": "exact «h»«h»",
    "a sorry behind a comment that is none": "exact /--/ sorry /- -/ h",
    "a sorry behind a comment in a comment": "exact /- /- -/ -/ (sorry) -- /- -/",
    "a sorry between characters": "exact f 'a' sorry 'b'",
    "a sorry behind a comment with a quotation mark": 'exact h -- it\'s "\n  sorry -- "',
    "a sorry in a message": 'exact panic! s!"{sorry}"',
    "compiled code under another name": "open Lean renaming ofReduceBool → ok in exact ok _ _ rfl",
    "an end with a semicolon": "exact ⟨h.2, h.1⟩; end Demo",
    "a rest that is left out": "constructor\n  · stop\n    exact h.2\n  · exact h.1",
    "a dotless letter": "natıve_decide",
    "a Roman numeral": "exact ⅽheat",
}


@pytest.mark.parametrize("proof", ACTIONS.values(), ids=ACTIONS.keys())
def test_a_proof_that_acts_on_the_world_is_refused(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")


@pytest.mark.parametrize("proof", OPTIONS.values(), ids=OPTIONS.keys())
def test_only_options_that_a_proof_needs_may_be_set(refused: Refused, proof: str) -> None:
    assert "none that a proof may set" in refused(Case(proof), step="text").reason


@pytest.mark.parametrize("proof", NO_TACTICS.values(), ids=NO_TACTICS.keys())
def test_what_is_no_tactic_is_refused(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")
