import Demo.Logic

/-! # Sums that a computer can do -/

namespace Demo

def dozen : Nat := 12

def answer : Nat := 42

def gross : Nat := dozen * dozen

theorem dozen_value : dozen = 12 := rfl

theorem two_and_two : 2 + 2 = 4 := by decide

theorem six_sevens : 6 * 7 = answer := sorry

theorem a_kibi : 2 ^ 10 = 1024 := by sorry

theorem gross_value : gross = 144 := by
  sorry

theorem both_sums : 1 + 1 = 2 ∧ 10 - 3 = 7 := ⟨sorry, rfl⟩

/-- Data may not be invented: this is left to a person. -/
def mystery : Nat := sorry

/-- Its proof is easy and rests on the sorry above, so it is refused as conditional. -/
theorem mystery_is_itself : mystery = mystery := sorry

end Demo
