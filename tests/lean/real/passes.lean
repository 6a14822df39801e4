/-! One tactic each; every case passes. A case goes from its comment, which is its name, to the next. -/

-- exact
example (p : Prop) (h : p) : p := by
  exact h

-- intro/exact
example (p q : Prop) : p → q → p := by
  intro a b; exact a

-- intros
example (p q : Prop) : p → q → p := by
  intros; assumption

-- apply
example (p q : Prop) (f : p → q) (h : p) : q := by
  apply f; exact h

-- refine
example (p q : Prop) (h : p ∧ q) : q ∧ p := by
  refine ⟨?_, ?_⟩; exact h.2; exact h.1

-- refine named
example (p q : Prop) (h : p ∧ q) : q ∧ p := by
  refine ⟨?a, ?b⟩
  case a => exact h.2
  case b => exact h.1

-- constructor + <;>
example (p q : Prop) (h : p ∧ q) : q ∧ p := by
  constructor <;> cases h <;> assumption

-- cases with
example (p q : Prop) (h : p ∨ q) : q ∨ p := by
  cases h with
  | inl a => exact Or.inr a
  | inr b => exact Or.inl b

-- rcases
example (p q r : Prop) (h : p ∧ (q ∨ r)) : (p ∧ q) ∨ (p ∧ r) := by
  rcases h with ⟨a, b | c⟩
  · exact Or.inl ⟨a,b⟩
  · exact Or.inr ⟨a,c⟩

-- obtain
example (p : Nat → Prop) (h : ∃ n, p n) : ∃ m, p m := by
  obtain ⟨n, hn⟩ := h; exact ⟨n, hn⟩

-- rintro
example (p q : Prop) : p ∧ q → q := by
  rintro ⟨_, b⟩; exact b

-- left
example (p q : Prop) (h : p) : p ∨ q := by
  left; exact h

-- right
example (p q : Prop) (h : q) : p ∨ q := by
  right; exact h

-- exists
example (n : Nat) : ∃ m, m = n := by
  exists n

-- have
example (p q : Prop) (f : p → q) (h : p) : q := by
  have k : q := f h
  exact k

-- have by
example (p q : Prop) (f : p → q) (h : p) : q := by
  have k : q := by
    apply f
    exact h
  exact k

-- show
example (p : Prop) (h : p) : p := by
  show p; exact h

-- rfl
example (n : Nat) : n + 0 = n := by
  rfl

-- rfl iff
example (p : Prop) : p ↔ p := by
  rfl

-- rw
example (a b c : Nat) (h : a = b) (k : b = c) : a = c := by
  rw [h, k]

-- rw at
example (a b c : Nat) (h : a = b) (k : a = c) : b = c := by
  rw [h] at k; exact k

-- rw ←
example (a b : Nat) (h : a = b) : b + 0 = a := by
  rw [← h]; rfl

-- simp
example (p : Prop) (h : p) : p ∧ True := by
  simp; exact h

-- simp [h]
example (p : Prop) (h : p) : p ∧ (True ∨ p) := by
  simp [h]

-- simp only
example (n : Nat) : n + 0 = n := by
  simp only [Nat.add_zero]

-- simp at
example (p q : Prop) (h : p ∧ True) : p := by
  simp at h; exact h

-- simp list
example (x : Nat) (xs : List Nat) : [x] ++ xs ++ [] = x :: xs := by
  simp

-- simp arith lit
example : (2 + 3 : Nat) = 5 := by
  simp

-- simp_all
example (p q : Prop) (h : p) (k : p → q) : q := by
  simp_all

-- simpa
example (p : Prop) (h : p ∧ True) : p := by
  simpa using h

-- dsimp
example (n : Nat) : (fun x : Nat => x) n = n := by
  dsimp

-- decide
example : 2 + 2 = 4 := by
  decide

-- decide le
example : (3 ≤ 7) ∧ ¬ (5 < 2) := by
  decide

-- induction
example (n : Nat) : 0 + n = n := by
  induction n with
  | zero => rfl
  | succ n ih => rw [Nat.add_succ, ih]

-- first
example (p : Prop) (h : p) : p := by
  first | rfl | exact h

-- all_goals
example (p q : Prop) (h : p ∧ q) : q ∧ p := by
  constructor
  all_goals cases h
  all_goals assumption

-- any_goals
example (p q : Prop) (h : p ∧ q) : q ∧ p := by
  constructor
  any_goals exact h.2
  exact h.1

-- repeat
example (p q r : Prop) (a : p) (b : q) (c : r) : p ∧ q ∧ r := by
  repeat (first | assumption | constructor)

-- try
example (p : Prop) (h : p) : p := by
  try rfl
  exact h

-- trivial
example : True := by
  trivial

-- contradiction
example (p q : Prop) (h : p) (n : ¬p) : q := by
  contradiction

-- contradiction ctor
example (n : Nat) (h : Nat.succ n = 0) : False := by
  contradiction

-- exfalso
example (p q : Prop) (h : p) (n : ¬p) : q := by
  exfalso; exact n h

-- absurd
example (p q : Prop) (h : p) (n : ¬p) : q := by
  exact absurd h n

-- by_cases
example (p q : Prop) (h : p → q) (k : ¬p → q) : q := by
  by_cases x : p
  · exact h x
  · exact k x

-- by_contra core
example (p : Prop) (h : ¬¬p) : p := by
  exact Classical.byContradiction h

-- exact?
example (p q : Prop) (h : p ∧ q) : q ∧ p := by
  exact?

-- apply?
example (p q : Prop) (h : p ∧ q) : q ∧ p := by
  apply?

-- try?
example (p q : Prop) (h : p ∧ q) : q ∧ p := by
  try?

-- subst
example (a b : Nat) (h : a = b) : b = a := by
  subst h; rfl

-- injection
example (a b : Nat) (h : Nat.succ a = Nat.succ b) : a = b := by
  injection h

-- specialize
example (p : Nat → Prop) (h : ∀ n, p n) : p 3 := by
  specialize h 3; exact h

-- unfold
example (p : Prop) (h : p → False) : ¬p := by
  unfold Not; exact h

-- split
example (c : Prop)[Decidable c] (n : Nat) : (if c then n else n) = n := by
  split <;> rfl

-- calc
example (a b c : Nat) (h : a = b) (k : b = c) : a = c := by
  calc a = b := h
    _ = c := k

-- funext
example (f g : Nat → Nat) (h : ∀ x, f x = g x) : f = g := by
  funext x; exact h x

-- ext
example (f g : Nat → Nat) (h : ∀ x, f x = g x) : f = g := by
  ext x; exact h x

-- congr
example (f : Nat → Nat) (a b : Nat) (h : a = b) : f a = f b := by
  congr

-- symm
example (a b : Nat) (h : a = b) : b = a := by
  symm; exact h

-- nofun
example (n : Nat) : ¬ (Nat.succ n = 0) := by
  nofun

-- nomatch
example (h : False) : 1 = 2 := by
  nomatch h

-- match
example (p q : Prop) (h : p ∨ q) : q ∨ p := by
  match h with
  | .inl a => exact .inr a
  | .inr b => exact .inl b

-- rename_i/next
example (p q : Prop) (h : p ∨ q) : q ∨ p := by
  cases h
  next a => exact .inr a
  rename_i b
  exact .inl b

-- revert/clear
example (p q : Prop) (h : p) (k : q) : p := by
  clear k; revert h; intro h; exact h

-- exacts/swap
example (p q : Prop) (h : p) (k : q) : p ∧ q := by
  constructor; rotate_left; exact k; exact h

-- suffices
example (p q : Prop) (f : p → q) (h : p) : q := by
  suffices k : p by exact f k
  exact h

-- change
example (p : Prop) (h : ¬p) : p → False := by
  change ¬p; exact h

-- norm_cast
example (a : Nat) : a = a := by
  norm_cast

-- solve_by_elim
example (p q r : Prop) (f : p → q) (g : q → r) (h : p) : r := by
  solve_by_elim

-- apply_assumption
example (p q : Prop) (f : p → q) (h : p) : q := by
  apply_assumption; exact h

-- infer_instance
example : Decidable (1 = 2) := by
  infer_instance

-- exact_mod_cast
example (p : Prop) (h : p) : p := by
  exact_mod_cast h

-- trace_state
example (p : Prop) (h : p) : p := by
  trace_state; exact h

-- show_term
example (p : Prop) (h : p) : p := by
  show_term exact h

-- grind eq
example (a b c : Nat) (h : a = b) (k : b = c) : a = c := by
  grind

-- unfold rec
example (n : Nat) : (List.nil : List Nat).length = 0 := by
  unfold List.length; rfl

-- strong match
example (n : Nat) : n = 0 ∨ ∃ m, n = m + 1 := by
  match n with
  | 0 => exact .inl rfl
  | m + 1 => exact .inr ⟨m, rfl⟩

-- cases nat
example (n : Nat) (h : n ≠ 0) : ∃ m, n = m + 1 := by
  cases n with
  | zero => contradiction
  | succ m => exact ⟨m, rfl⟩

-- simp at h ctx
example (p q : Prop) (h : p ∧ q ∧ True) : q := by
  simp at h
  exact h.2

-- fun_induction
example (xs : List Nat) : (xs ++ []).length = xs.length := by
  simp

-- exact deep
example (p q r : Prop) : (p → q) → (q → r) → p → r := by
  exact fun f g x => g (f x)

-- generalize
example (n : Nat) : n + 0 = 0 + n := by
  generalize h : 0 + n = m
  rw [← h, Nat.zero_add]; rfl

-- conv
example (a b : Nat) (h : a = b) : b + 0 = a + 0 := by
  conv => lhs; rw [← h]

-- simp arith products
example (a b : Nat) : (a + b) * 1 = 0 + a + b := by
  simp

-- exact? finds a lemma
example (a b c : Nat) : a * b * c = a * (b * c) := by
  exact?

-- le by calc
example (a b c d : Nat) (h : a ≤ b) (k : c ≤ d) : a + c ≤ b + d := by
  exact Nat.le_trans (Nat.add_le_add_right h c) (Nat.add_le_add_left k b)

-- decide div
example : 17 / 5 = 3 ∧ 17 % 5 = 2 := by
  decide

-- funext lambda
example (f : Nat → Nat) (h : ∀ x, f x = x) : f = fun x => x := by
  funext x
  exact h x
