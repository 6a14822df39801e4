import Demo.Logic

/-! # Implication -/

namespace Demo

section Chains

variable (p q r s : Prop)

theorem identity : p → p := fun h => h

theorem const : p → q → p := fun hp _ => hp

theorem compose (f : p → q) (g : q → r) :
    p → r := fun hp => g (f hp)

theorem compose_three (f : p → q) (g : q → r) (h : r → s) : p → s := by
  intro hp
  exact h (g (f hp))

theorem curry (f : p ∧ q → r) : p → q → r := fun hp hq => sorry

theorem uncurry (f : p → q → r) : p ∧ q → r := by
  intro h
  exact sorry

theorem swap_arguments (f : p → q → r) : q → p → r := fun hq hp => f hp hq

end Chains

section Equivalences

variable {p q : Prop}

theorem iff_forward (h : p ↔ q) : p → q := h.mp

theorem iff_flip (h : p ↔ q) : q ↔ p := ⟨h.mpr, h.mp⟩

theorem and_swap_iff : p ∧ q ↔ q ∧ p := by
  constructor
  · sorry
  · sorry

theorem or_swap_iff : p ∨ q ↔ q ∨ p :=
  ⟨or_swap p q, or_swap q p⟩

end Equivalences

end Demo
