import Demo.Logic
import Demo.Implication

/-! # Negation, without the excluded middle -/

namespace Demo.Negation

variable (p q : Prop)

theorem no_contradiction : ¬(p ∧ ¬p) := fun h => h.2 h.1

theorem add_double (hp : p) : ¬¬p := fun hn => hn hp

theorem drop_triple (h : ¬¬¬p) : ¬p := by
  intro hp
  apply h
  exact add_double p hp

theorem contrapose (f : p → q) : ¬q → ¬p := sorry

theorem explosion (hp : p) (hn : ¬p) : q := by
  sorry

-- Two gaps in one proof: the patch fills both, or there is none.
theorem neither (h : ¬(p ∨ q)) : ¬p ∧ ¬q := by
  have hp : ¬p := sorry
  have hq : ¬q := by sorry
  exact ⟨hp, hq⟩

theorem not_both (h : ¬p ∨ ¬q) : ¬(p ∧ q) := by
  intro both
  cases h with
  | inl hn => exact hn both.1
  | inr hn => exact absurd both.2 hn

theorem not_true_is_false : ¬True ↔ False := by
  constructor
  · intro h
    exact h trivial
  · intro h
    exact h.elim

end Demo.Negation
