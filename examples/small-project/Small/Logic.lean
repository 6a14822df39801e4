/-! # Logic: what a list of tactics finds -/

namespace Small

theorem and_swap (p q : Prop) : p ∧ q ↔ q ∧ p := by
  sorry

theorem not_all {α : Type} (P : α → Prop) : (∃ x, ¬P x) → ¬∀ x, P x := by
  sorry

theorem double_negation (p : Prop) (h : ¬¬p) : p := sorry

end Small
