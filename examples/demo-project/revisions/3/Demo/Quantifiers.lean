import Demo.Implication

/-! # Statements about every proposition -/

namespace Demo

theorem every_self : ∀ p : Prop, p → p := sorry

theorem every_true_or : ∀ p : Prop, True ∨ p := by
  intro p
  left
  trivial

theorem not_everything : ¬(∀ p : Prop, p) := by
  intro all
  sorry

theorem true_of_every (h : ∀ p : Prop, p → p) : True := h True trivial

namespace Encoded

/-- What follows from a conjunction, said without `∧`. -/
theorem pair (p q : Prop) (hp : p) (hq : q) : ∀ r : Prop, (p → q → r) → r := by
  intro r f
  have first : q → r := sorry
  have second : r := by
    sorry
  exact second

end Encoded

end Demo
