/-! What Lean refuses, and how it says so: a case's comment gives its name and a part of the message. -/

-- a false equation by decide: is false
example : 2 + 2 = 5 := by
  decide

-- a false equation by rfl: is not definitionally equal
example : 2 + 2 = 5 := by
  rfl

-- a false equation by simp: `simp` made no progress
example (n : Nat) : n + 1 = n := by
  simp only [Nat.add_comm]

-- a large product off by one: is false
example : 123456789 * 987654321 = 121932631112635268 := by
  decide

-- a quotient off by one: is false
example : 1000000 / 7 = 142856 := by
  decide

-- a power off by one: is false
example : 2 ^ 64 = 18446744073709551615 := by
  decide

-- a difference below zero: is false
example : 3 - 5 = 1 := by
  decide

-- a hypothesis turned round: Type mismatch
example (p q : Prop) (h : p → q) : q → p := by
  exact h

-- a case left out: unsolved goals
example (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor
  · exact h

-- done with a goal open: unsolved goals
example (p : Prop) (h : p) : p := by
  done

-- a rewrite that finds nothing: Did not find an occurrence of the pattern
example (a b c : Nat) (h : a = b) : c = c + 1 := by
  rw [h]

-- an unknown tactic: unknown tactic
example (p : Prop) (h : p) : p := by
  linarith

-- an unknown name: Unknown identifier
example (p : Prop) : p := by
  exact nothing

-- generalize without an end: unsolved goals
example (n : Nat) : n + 0 = n + 0 := by
  generalize n + 0 = m

-- the kernel's own check of recursion: structural
theorem loop (n : Nat) : False := loop n

-- a universe too small: Type mismatch
example : Type := Type

-- assumption without one: assumption
example (p q : Prop) (h : p) : q := by
  assumption
