"""The projects of `tests.acceptance.real_lean`: their files, and what has to become of each sorry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

MATHLIB = "https://github.com/leanprover-community/mathlib4"


@dataclass(frozen=True, slots=True)
class Project:
    """A project's name and files; `provable` and `false` are its sorries, as declaration and path.

    `theorems` counts those that a trace has to hold. `requires_mathlib`: a lakefile and a manifest are added. `folder`
    is where in its repository it lies. `deep` is a module and a theorem of it, with much below it.
    """

    name: str
    files: Mapping[str, str]
    provable: Mapping[str, str]
    false: Mapping[str, str]
    theorems: int
    requires_mathlib: bool = False
    folder: str = ""
    deep: tuple[str, str] | None = None

    @property
    def sorries(self) -> dict[str, str]:
        return {**self.provable, **self.false}


_BASIC = """namespace Small

def double (n : Nat) : Nat := n + n

theorem double_eq (n : Nat) : double n = n + n := by
  rfl

theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by
  constructor
  · exact h.2
  · exact h.1

theorem swap_twice (p q : Prop) (h : p ∧ q) : p ∧ q := by
  have turned := swap p q h
  exact swap q p turned

end Small
"""

_EASY = """import Small.Basic

namespace Small

theorem by_rfl (n : Nat) : double n = n + n := by
  sorry

/-! Patches have three lines of context: what is between two sorries keeps them apart. -/

theorem in_a_term : 2 + 2 = 4 :=
  sorry

/-! The word sorry in a comment is none. -/

theorem by_steps (p q r : Prop) (h : p ∧ q ∧ r) : r ∧ p := by
  sorry

/-! This one is false for every number: nothing may prove it. -/

theorem wrong (n : Nat) : double n = n + 1 := by
  sorry

end Small
"""

_ARITHMETIC = """namespace Small

theorem by_decide : ∃ n, n < 5 ∧ n * n = 9 := by
  exact ⟨3, by sorry⟩

/-! Linear arithmetic comes next. -/

theorem by_omega (a b c : Nat) (h : a < b) (k : b < c) : a + 1 < c := by
  sorry

/-! And a fact of the library. -/

theorem by_library (a b : Nat) (h : a ∣ b) (k : 0 < b) : a ≤ b := by
  sorry

/-! And lists. -/

theorem by_simp (l : List Nat) : (l ++ []).length = l.length := by
  sorry

end Small
"""

_MODERN = """module

namespace Small

public theorem modern (p q : Prop) (h : p ∧ q) : q ∧ p := by
  sorry

end Small
"""

_WINDOWS = """namespace Small

theorem windows (p q : Prop) (h : p) : p ∨ q := by
  left
  sorry

end Small
"""

_NESTED = """namespace Deep

theorem nested (a b : Nat) (h : a = b) : b = a := by
  sorry

end Deep
"""

# The option is what module files need with Lean 4.22 to 4.26; `weak` has other versions pass over it.
_LAKEFILE = """name = "small"
defaultTargets = ["Small", "Deep"]
leanOptions.weak.experimental.module = true

[[lean_lib]]
name = "Small"

[[lean_lib]]
name = "Deep"
srcDir = "below"
"""

SMALL = Project(
    name="small",
    files={
        "lakefile.toml": _LAKEFILE,
        "Small.lean": "import Small.Basic\nimport Small.Easy\nimport Small.Arithmetic\nimport Small.Modern\n"
        "import Small.Windows\n",
        "Small/Basic.lean": _BASIC,
        "Small/Easy.lean": _EASY,
        "Small/Arithmetic.lean": _ARITHMETIC,
        "Small/Modern.lean": _MODERN,
        "Small/Windows.lean": _WINDOWS.replace("\n", "\r\n"),
        "below/Deep.lean": "import Deep.Nested\n",
        "below/Deep/Nested.lean": _NESTED,
    },
    provable={
        "Small.by_rfl": "Small/Easy.lean",
        "Small.in_a_term": "Small/Easy.lean",
        "Small.by_steps": "Small/Easy.lean",
        "Small.by_decide": "Small/Arithmetic.lean",
        "Small.by_omega": "Small/Arithmetic.lean",
        "Small.by_library": "Small/Arithmetic.lean",
        "Small.by_simp": "Small/Arithmetic.lean",
        "Small.modern": "Small/Modern.lean",
        "Small.windows": "Small/Windows.lean",
        "Deep.nested": "below/Deep/Nested.lean",
    },
    false={"Small.wrong": "Small/Easy.lean"},
    theorems=14,
)

# Only with the option of the lakefile has `intros` a name for what it introduces.
_WRITTEN = """theorem named (p : Prop) : p → p := by
  intros
  exact a

theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by
  sorry
"""

WRITTEN = Project(
    name="written",
    files={
        "README.md": "A project in a folder, whose lakefile is a program.\n",
        "proofs/lakefile.lean": "import Lake\nopen Lake DSL\n\npackage written where\n"
        "  leanOptions := #[⟨`tactic.hygienic, false⟩]\n\n@[default_target]\nlean_lib Written\n",
        "proofs/Written.lean": _WRITTEN,
    },
    provable={"swap": "proofs/Written.lean"},
    false={},
    theorems=2,
    folder="proofs",
)

_REALS = """import Mathlib.Data.Real.Basic
import Mathlib.Tactic

namespace Reals

theorem above (a b : ℝ) (h : a ≤ b) : a + 1 ≤ b + 1 := by
  linarith

theorem by_ring (a b : ℝ) : (a + b) * (a - b) = a ^ 2 - b ^ 2 := by
  sorry

/-! Patches have three lines of context: what is between two sorries keeps them apart. -/

theorem by_linarith (x y : ℝ) (h : x < y) (k : 0 < x) : 0 < x + y := by
  sorry

/-! Squares. -/

theorem by_positivity (x y : ℝ) : 0 ≤ x ^ 2 + y ^ 2 := by
  sorry

/-! This one is false at 0: nothing may prove it. -/

theorem wrong (x : ℝ) : x < x ^ 2 := by
  sorry

end Reals
"""

REALS = Project(
    name="mathlib",
    files={"Reals.lean": _REALS},
    provable={f"Reals.{name}": "Reals.lean" for name in ("by_ring", "by_linarith", "by_positivity")},
    false={"Reals.wrong": "Reals.lean"},
    theorems=5,
    requires_mathlib=True,
    deep=("Reals", "Reals.above"),
)

PROJECTS = (SMALL, WRITTEN, REALS)


def requiring_mathlib(tag: str, commit: str, theirs: str) -> dict[str, str]:
    """Return the lakefile and the manifest of a project that requires Mathlib at a commit.

    `theirs` is Mathlib's own manifest at that commit: what `lake update` would copy, without fetching anything.
    """
    lakefile = (
        'name = "reals"\ndefaultTargets = ["Reals"]\n\n'
        f'[[require]]\nname = "mathlib"\ngit = "{MATHLIB}"\nrev = "{tag}"\n\n[[lean_lib]]\nname = "Reals"\n'
    )
    manifest = json.loads(theirs)
    mathlib = {
        "url": MATHLIB,
        "type": "git",
        "subDir": None,
        "scope": "",
        "rev": commit,
        "name": "mathlib",
        "manifestFile": "lake-manifest.json",
        "inputRev": tag,
        "inherited": False,
        "configFile": "lakefile.lean",
    }
    inherited = [{**package, "inherited": True} for package in manifest["packages"]]
    manifest |= {"packages": [mathlib, *inherited], "name": "reals"}
    return {"lakefile.toml": lakefile, "lake-manifest.json": json.dumps(manifest, indent=1) + "\n"}
