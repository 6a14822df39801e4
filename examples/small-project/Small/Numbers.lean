import Small.Logic

/-! # Numbers: a slip, and what takes an idea -/

namespace Small

theorem square_of_17 : 17 * 17 = 299 := sorry

theorem add_right_comm (a b c : Nat) : a + b + c = a + c + b := by
  sorry

end Small
