/-! Tactics and notations that a file declares for itself. -/

macro "evident" : tactic => `(tactic| first | assumption | trivial | (intros; simp_all))
example : True := by evident
example (p q : Prop) (h : p) : q → p := by evident

macro "finish" x:ident : tactic => `(tactic| exact $x)
example (p : Prop) (h : p) : p := by finish h

macro a:tactic " and_then " b:tactic : tactic => `(tactic| (($a); ($b)))
example (p q : Prop) (h : p) : q → p := by intro _ and_then exact h

macro "all!" s:tacticSeq : tactic => `(tactic| ($s))
example (p q : Prop) (h : p) : q → p := by
  all!
    intro _
    exact h

syntax "settle" (term)? : tactic
macro_rules
  | `(tactic| settle) => `(tactic| trivial)
  | `(tactic| settle $t) => `(tactic| exact $t)
example : True := by settle
example (p : Prop) (h : p) : p := by settle h

-- A line that begins with a tactic's name may begin with an identifier as well: hence `colGt`.
syntax "name_them" (colGt ident)* : tactic
macro_rules | `(tactic| name_them $xs*) => `(tactic| intro $[$xs:ident]*)
example : ∀ a b : Nat, a + b = b + a := by
  name_them x y
  exact Nat.add_comm x y

syntax "forget" (colGt ident)* : tactic
macro_rules | `(tactic| forget $xs*) => `(tactic| clear $[$xs:ident]*)
example (p : Prop) (h : p) (a b : Nat) : p := by
  forget a b
  exact h

macro "any_of" xs:(colGt ident)* : tactic => `(tactic| exists $[$xs:ident],*)
example (n : Nat) : ∃ m k, m + k = n + n := by any_of n n

syntax "listed" term,* : term
macro_rules | `(listed $xs,*) => `([$xs,*])
example : (listed 1, 2, 3 : List Nat) = [1, 2, 3] := rfl

macro "twice" t:term : term => `($t + $t)
example : (twice 3 : Nat) = 6 := rfl

notation:50 a:51 " ≡ " b:51 " [mod " n "]" => a % n = b % n
example : 7 ≡ 1 [mod 3] := by decide

infixl:65 " ⊞ " => Nat.add
prefix:max "√" => Nat.succ
local notation "ℕ" => Nat
example (n : ℕ) : √n ⊞ 1 = n ⊞ 2 := rfl
