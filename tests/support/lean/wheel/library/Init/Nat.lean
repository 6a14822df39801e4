module
prelude
public import Init.Simp
public meta import Init.Simp
/-! Natural numbers and lists: definitions whose names the kernel, the literals and `simp` know. -/
@[expose] public section
set_option autoImplicit false
universe u v w

namespace Nat
set_option bootstrap.genMatcherCode false in
@[extern "lean_nat_add"] protected def add : Nat → Nat → Nat
  | n, .zero => n
  | n, .succ m => .succ (Nat.add n m)
set_option bootstrap.genMatcherCode false in
@[extern "lean_nat_mul"] protected def mul : Nat → Nat → Nat
  | _, .zero => .zero
  | n, .succ m => Nat.add (Nat.mul n m) n
set_option bootstrap.genMatcherCode false in
@[extern "lean_nat_pred"] def pred : Nat → Nat
  | .zero => .zero
  | .succ n => n
set_option bootstrap.genMatcherCode false in
@[extern "lean_nat_sub"] protected def sub : Nat → Nat → Nat
  | n, .zero => n
  | n, .succ m => pred (Nat.sub n m)
set_option bootstrap.genMatcherCode false in
@[extern "lean_nat_pow"] protected def pow (n : Nat) : Nat → Nat
  | .zero => .succ .zero
  | .succ m => Nat.mul (Nat.pow n m) n
protected inductive le (n : Nat) : Nat → Prop where
  | refl : Nat.le n n
  | step {m : Nat} (h : Nat.le n m) : Nat.le n (.succ m)
protected def lt (n m : Nat) : Prop := Nat.le (.succ n) m
end Nat
def Bool.ctorIdx (b : Bool) : Nat := cond b 1 0
def Nat.ctorIdx (n : Nat) : Nat := match n with | .zero => 0 | .succ _ => 1
instance instAddNat : Add Nat := ⟨Nat.add⟩
instance instMulNat : Mul Nat := ⟨Nat.mul⟩
instance instSubNat : Sub Nat := ⟨Nat.sub⟩
instance instNatPowNat : NatPow Nat := ⟨Nat.pow⟩
instance instLENat : LE Nat := ⟨Nat.le⟩
instance instLTNat : LT Nat := ⟨Nat.lt⟩
instance : Inhabited Nat := ⟨0⟩
attribute [match_pattern] Nat.add

namespace Nat
@[simp] theorem add_zero (n : Nat) : n + 0 = n := rfl
theorem add_succ (n m : Nat) : n + succ m = succ (n + m) := rfl
@[simp] theorem succ_eq_add_one (n : Nat) : succ n = n + 1 := rfl
@[simp] theorem zero_add (n : Nat) : 0 + n = n := by
  induction n with
  | zero => rfl
  | succ n ih => exact congrArg succ ih
theorem succ_add (n m : Nat) : succ n + m = succ (n + m) := by
  induction m with
  | zero => rfl
  | succ m ih => exact congrArg succ ih
theorem add_comm (n m : Nat) : n + m = m + n := by
  induction m with
  | zero => exact (zero_add n).symm
  | succ m ih => rw [succ_add]; exact congrArg succ ih
theorem add_assoc (n m k : Nat) : n + m + k = n + (m + k) := by
  induction k with
  | zero => rfl
  | succ k ih => exact congrArg succ ih
theorem add_left_comm (n m k : Nat) : n + (m + k) = m + (n + k) := by
  rw [← add_assoc, add_comm n m, add_assoc]
@[simp] theorem mul_zero (n : Nat) : n * 0 = 0 := rfl
theorem mul_succ (n m : Nat) : n * succ m = n * m + n := rfl
@[simp] theorem zero_mul (n : Nat) : 0 * n = 0 := by
  induction n with
  | zero => rfl
  | succ n ih => exact ih
@[simp] theorem mul_one (n : Nat) : n * 1 = n := zero_add n
@[simp] theorem pow_zero (n : Nat) : n ^ 0 = 1 := rfl
theorem pow_succ (n m : Nat) : n ^ succ m = n ^ m * n := rfl
theorem succ_mul (n m : Nat) : succ n * m = n * m + m := by
  induction m with
  | zero => rfl
  | succ m ih => rw [mul_succ, mul_succ, ih, add_succ, add_succ, add_assoc, add_assoc, add_comm m n]
theorem mul_comm (n m : Nat) : n * m = m * n := by
  induction m with
  | zero => exact (zero_mul n).symm
  | succ m ih => rw [mul_succ, succ_mul, ih]
@[simp] theorem one_mul (n : Nat) : 1 * n = n := (mul_comm 1 n).trans (mul_one n)
protected theorem left_distrib (n m k : Nat) : n * (m + k) = n * m + n * k := by
  induction k with
  | zero => rfl
  | succ k ih => rw [add_succ, mul_succ, mul_succ, ih, add_assoc]
theorem mul_add (n m k : Nat) : n * (m + k) = n * m + n * k := Nat.left_distrib n m k
theorem add_mul (n m k : Nat) : (n + m) * k = n * k + m * k := by
  rw [mul_comm, mul_add, mul_comm k, mul_comm k]
theorem mul_assoc (n m k : Nat) : n * m * k = n * (m * k) := by
  induction k with
  | zero => rfl
  | succ k ih => rw [mul_succ, mul_succ, mul_add, ih]
instance : Std.Associative (α := Nat) (· + ·) := ⟨add_assoc⟩
instance : Std.Commutative (α := Nat) (· + ·) := ⟨add_comm⟩
instance : Std.Associative (α := Nat) (· * ·) := ⟨mul_assoc⟩
instance : Std.Commutative (α := Nat) (· * ·) := ⟨mul_comm⟩
theorem succ_inj {n m : Nat} (h : succ n = succ m) : n = m := congrArg pred h
theorem succ_ne_zero (n : Nat) : succ n ≠ 0 := fun h => nomatch h
theorem le_refl (n : Nat) : n ≤ n := Nat.le.refl
theorem le_succ (n : Nat) : n ≤ succ n := .step .refl
theorem le_trans {n m k : Nat} (h : n ≤ m) (g : m ≤ k) : n ≤ k := by
  induction g with
  | refl => exact h
  | step _ ih => exact Nat.le.step ih
theorem zero_le (n : Nat) : 0 ≤ n := by
  induction n with
  | zero => exact .refl
  | succ n ih => exact .step ih
theorem pred_le_pred {n m : Nat} (h : n ≤ m) : pred n ≤ pred m := by
  cases h with
  | refl => exact .refl
  | step h => cases n with
    | zero => exact h
    | succ n => exact le_trans (le_succ n) h
theorem le_of_succ_le_succ {n m : Nat} (h : succ n ≤ succ m) : n ≤ m := pred_le_pred h
theorem succ_le_succ {n m : Nat} (h : n ≤ m) : succ n ≤ succ m := by
  induction h with
  | refl => exact .refl
  | step _ ih => exact .step ih
theorem not_succ_le_zero (n : Nat) : ¬ succ n ≤ 0 := fun h => nomatch h
theorem ble_le : (n m : Nat) → Nat.ble n m = true → n ≤ m
  | .zero, m, _ => zero_le m
  | .succ _, .zero, h => nomatch h
  | .succ n, .succ m, h => succ_le_succ (ble_le n m h)
theorem le_ble : (n m : Nat) → n ≤ m → Nat.ble n m = true
  | .zero, .zero, _ => rfl
  | .zero, .succ _, _ => rfl
  | .succ n, .zero, h => absurd h (not_succ_le_zero n)
  | .succ n, .succ m, h => le_ble n m (le_of_succ_le_succ h)
end Nat
instance Nat.decLe (n m : Nat) : Decidable (n ≤ m) :=
  match h : Nat.ble n m with
  | true => isTrue (Nat.ble_le n m h)
  | false => isFalse fun k => Bool.noTF ((Nat.le_ble n m k).symm.trans h)
instance Nat.decLt (n m : Nat) : Decidable (n < m) := Nat.decLe (.succ n) m

namespace Nat
theorem lt_irrefl (n : Nat) : ¬n < n := by
  induction n with
  | zero => exact not_succ_le_zero 0
  | succ n ih => exact fun h => ih (le_of_succ_le_succ h)
theorem le_of_lt {n m : Nat} (h : n < m) : n ≤ m := le_trans (le_succ n) h
theorem lt_of_lt_of_le {n m k : Nat} (h : n < m) (g : m ≤ k) : n < k := le_trans h g
theorem lt_of_le_of_lt {n m k : Nat} (h : n ≤ m) (g : m < k) : n < k := le_trans (succ_le_succ h) g
theorem lt_trans {n m k : Nat} (h : n < m) (g : m < k) : n < k := lt_of_lt_of_le h (le_of_lt g)
theorem le_of_lt_succ {n m : Nat} (h : n < succ m) : n ≤ m := le_of_succ_le_succ h
theorem lt_succ_of_le {n m : Nat} (h : n ≤ m) : n < succ m := succ_le_succ h
theorem lt_succ_self (n : Nat) : n < succ n := le_refl (succ n)
theorem zero_lt_succ (n : Nat) : 0 < succ n := succ_le_succ (zero_le n)
theorem le_antisymm {n m : Nat} (h : n ≤ m) (g : m ≤ n) : n = m := by
  cases h with
  | refl => rfl
  | step h => exact absurd (lt_of_le_of_lt h g) (lt_irrefl _)
theorem le_add_right (n m : Nat) : n ≤ n + m := by
  induction m with
  | zero => exact .refl
  | succ m ih => exact .step ih
theorem le_add_left (n m : Nat) : n ≤ m + n := add_comm n m ▸ le_add_right n m
theorem add_le_add_right {n m : Nat} (h : n ≤ m) (k : Nat) : n + k ≤ m + k := by
  induction k with
  | zero => exact h
  | succ k ih => exact succ_le_succ ih
theorem add_le_add_left {n m : Nat} (h : n ≤ m) (k : Nat) : k + n ≤ k + m := by
  rw [add_comm k n, add_comm k m]; exact add_le_add_right h k
theorem le_total (n m : Nat) : n ≤ m ∨ m ≤ n := by
  induction n with
  | zero => exact .inl (zero_le m)
  | succ n ih => cases ih with
    | inr h => exact .inr (.step h)
    | inl h => cases h with
      | refl => exact .inr (le_succ _)
      | step h => exact .inl (succ_le_succ h)

@[simp] theorem sub_zero (n : Nat) : n - 0 = n := rfl
theorem sub_succ (n m : Nat) : n - succ m = pred (n - m) := rfl
theorem succ_sub_succ (n m : Nat) : succ n - succ m = n - m := by
  induction m with
  | zero => rfl
  | succ m ih => exact congrArg pred ih
@[simp] theorem sub_self (n : Nat) : n - n = 0 := by
  induction n with
  | zero => rfl
  | succ n ih => rw [succ_sub_succ]; exact ih
@[simp] theorem add_sub_cancel (n m : Nat) : n + m - m = n := by
  induction m with
  | zero => rfl
  | succ m ih => rw [add_succ, succ_sub_succ]; exact ih
theorem sub_le (n m : Nat) : n - m ≤ n := by
  induction m with
  | zero => exact .refl
  | succ m ih => exact le_trans (pred_le_pred (.step ih)) .refl
theorem sub_lt {n m : Nat} (hn : 0 < n) (hm : 0 < m) : n - m < n := by
  cases n with
  | zero => exact absurd hn (lt_irrefl 0)
  | succ n => cases m with
    | zero => exact absurd hm (lt_irrefl 0)
    | succ m => rw [succ_sub_succ]; exact lt_succ_of_le (sub_le n m)

/-! Division: `fuel` is more than the number of subtractions. -/
def divFuel (m : Nat) : (fuel n : Nat) → Nat
  | .zero, _ => 0
  | .succ fuel, n => if 0 < m ∧ m ≤ n then divFuel m fuel (n - m) + 1 else 0
@[extern "lean_nat_div"] protected def div (n m : Nat) : Nat := divFuel m (n + 1) n
instance instDivNat : Div Nat := ⟨Nat.div⟩
@[extern "lean_nat_mod"] protected def mod (n m : Nat) : Nat := n - m * (n / m)
instance instModNat : Mod Nat := ⟨Nat.mod⟩
theorem divFuel_congr (m : Nat) : (f g n : Nat) → n < f → n < g → divFuel m f n = divFuel m g n
  | .zero, _, n, h, _ => absurd h (not_succ_le_zero n)
  | _, .zero, n, _, h => absurd h (not_succ_le_zero n)
  | .succ f, .succ g, n, hf, hg => by
    unfold divFuel
    by_cases h : 0 < m ∧ m ≤ n
    · have less : n - m < n := sub_lt (lt_of_lt_of_le h.1 h.2) h.1
      rw [if_pos h, if_pos h, divFuel_congr m f g (n - m) (lt_of_lt_of_le less (le_of_lt_succ hf))
        (lt_of_lt_of_le less (le_of_lt_succ hg))]
    · rw [if_neg h, if_neg h]
theorem div_eq (n m : Nat) : n / m = if 0 < m ∧ m ≤ n then (n - m) / m + 1 else 0 := by
  show divFuel m (n + 1) n = if 0 < m ∧ m ≤ n then divFuel m (n - m + 1) (n - m) + 1 else 0
  unfold divFuel
  by_cases h : 0 < m ∧ m ≤ n
  · rw [if_pos h, if_pos h, divFuel_congr m n (n - m + 1) (n - m)
      (sub_lt (lt_of_lt_of_le h.1 h.2) h.1) (lt_succ_self _)]
    rfl
  · rw [if_neg h, if_neg h]
theorem mod_eq_sub (n m : Nat) : n % m = n - m * (n / m) := rfl
@[simp] theorem div_zero (n : Nat) : n / 0 = 0 := by
  rw [div_eq]; exact if_neg fun h => lt_irrefl 0 h.1
@[simp] theorem mod_zero (n : Nat) : n % 0 = n := by rw [mod_eq_sub, zero_mul]; rfl

/-! The other functions that the kernel computes by their names. They are here so that no file can give one of these
names another meaning. `fuel` is an upper bound of the recursion's depth. -/
def gcdFuel : (fuel n m : Nat) → Nat
  | .zero, _, m => m
  | .succ fuel, n, m => if n = 0 then m else gcdFuel fuel (m % n) n
def gcd (n m : Nat) : Nat := gcdFuel n n m
def log2Fuel : (fuel n : Nat) → Nat
  | .zero, _ => 0
  | .succ fuel, n => if 2 ≤ n then log2Fuel fuel (n / 2) + 1 else 0
def log2 (n : Nat) : Nat := log2Fuel n n
/-- Apply `f` to the bits, where `f false false = false`. -/
def bitsFuel (f : Bool → Bool → Bool) : (fuel n m : Nat) → Nat
  | .zero, _, _ => 0
  | .succ fuel, n, m => 2 * bitsFuel f fuel (n / 2) (m / 2) + cond (f (n % 2 == 1) (m % 2 == 1)) 1 0
def land (n m : Nat) : Nat := bitsFuel and (n + m) n m
def lor (n m : Nat) : Nat := bitsFuel or (n + m) n m
def xor (n m : Nat) : Nat := bitsFuel (fun a b => cond a (not b) b) (n + m) n m
def shiftLeft (n m : Nat) : Nat := n * 2 ^ m
def shiftRight (n m : Nat) : Nat := n / 2 ^ m
end Nat
/-! Evaluated by compiled code in the kernel. -/
opaque Lean.reduceBool (b : Bool) : Bool := b
opaque Lean.reduceNat (n : Nat) : Nat := n

instance {α : Type u} : Inhabited (List α) := ⟨.nil⟩
namespace List
variable {α : Type u} {β : Type v}
protected def append : List α → List α → List α
  | nil, ys => ys
  | cons x xs, ys => cons x (List.append xs ys)
instance : Append (List α) := ⟨List.append⟩
def length : List α → Nat
  | nil => 0
  | cons _ xs => length xs + 1
def map (f : α → β) : List α → List β
  | nil => nil
  | cons x xs => cons (f x) (map f xs)
def reverse : List α → List α
  | nil => nil
  | cons x xs => reverse xs ++ cons x nil
@[simp] theorem nil_append (xs : List α) : nil ++ xs = xs := rfl
@[simp] theorem cons_append (x : α) (xs ys : List α) : cons x xs ++ ys = cons x (xs ++ ys) := rfl
@[simp] theorem append_nil (xs : List α) : xs ++ nil = xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [ih]
@[simp] theorem length_nil : (nil : List α).length = 0 := rfl
@[simp] theorem length_cons (x : α) (xs : List α) : (cons x xs).length = xs.length + 1 := rfl
theorem append_assoc (xs ys zs : List α) : xs ++ ys ++ zs = xs ++ (ys ++ zs) := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [ih]
end List
