import Demo.Negation

/-! # What follows from the impossible -/

namespace Demo.Absurd

section

variable (p q : Prop)

theorem from_false (h : False) : p := sorry

theorem from_clash (h : p ∧ ¬p) : q := by
  sorry

theorem resolve (h : p ∨ q) (hn : ¬p) : q := by
  cases h with
  | inl hp => sorry
  | inr hq => sorry

end

theorem one_is_not_two : ¬(1 = 2) := by sorry

theorem true_iff_itself : True ↔ True := Iff.intro (fun h => h) sorry

end Demo.Absurd
