import Demo.Logic
import Demo.Negation

/-! # Classical statements, and false ones that no prover may fill -/

namespace Demo.Open

/-- Needs the excluded middle. -/
theorem drop_double (p : Prop) (h : ¬¬p) : p := sorry

/-- Peirce's law: classical again. -/
theorem peirce (p q : Prop) : ((p → q) → p) → p := by
  intro h
  sorry

/-- Was plainly false; off by one no more. -/
theorem off_by_one : 2 + 3 = 5 := sorry

/-- A classic fallacy; it stays open for as long as provers are honest. -/
theorem affirm_the_consequent (p q : Prop) (f : p → q) (hq : q) : p := by
  sorry

end Demo.Open
