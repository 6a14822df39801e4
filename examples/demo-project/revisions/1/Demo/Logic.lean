/-!
# Conjunction and disjunction

The word sorry in this comment is no proof obligation, and neither is the one in /- sorry, nested -/ here.
-/

namespace Demo

theorem and_swap (p q : Prop) (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩

/-- Three at once. -/
theorem and_reverse (p q r : Prop) (h : p ∧ (q ∧ r)) : r ∧ (q ∧ p) := sorry

theorem and_take_left (p q : Prop) (h : p ∧ q) : p := h.left

theorem and_take_right (p q : Prop) (h : p ∧ q) : q := by
  exact h.right

theorem and_regroup (p q r : Prop) (h : (p ∧ q) ∧ r) : p ∧ (q ∧ r) :=
  ⟨h.1.1, ⟨h.1.2, h.2⟩⟩

/-- The other direction of `and_regroup`; by sorry for now. -/
theorem and_regroup_back (p q r : Prop) (h : p ∧ (q ∧ r)) : (p ∧ q) ∧ r := by sorry

theorem or_swap (p q : Prop) : p ∨ q → q ∨ p := sorry

theorem or_same (p : Prop) (h : p ∨ p) : p := by
  cases h with
  | inl h => exact h
  | inr h => exact h

theorem or_weaken_left (p q : Prop) (hp : p) : p ∨ q := Or.inl hp

theorem or_weaken_right (p q : Prop) (hq : q) : p ∨ q := by
  right
  exact hq

theorem or_regroup_right (p q r : Prop) : (p ∨ q) ∨ r → p ∨ (q ∨ r) := by
  intro h
  sorry

theorem and_over_or (p q r : Prop)
    (h : p ∧ (q ∨ r)) :
    (p ∧ q) ∨ (p ∧ r) :=
  sorry

theorem or_false_gone (p : Prop) (h : p ∨ False) : p := by
  cases h with
  | inl hp => exact hp
  | inr hf => sorry

theorem and_self_iff (p : Prop) : p ∧ p ↔ p := by
  constructor
  · intro h
    exact h.1
  · intro h
    exact ⟨h, h⟩

example (p q : Prop) (hp : p) (hq : q) : q ∧ p := sorry

end Demo
