import Logic
/-! Natural numbers: sums, products, order, differences, the smaller and the larger of two. -/

theorem Nat.add_right_comm (n m k : Nat) : n + m + k = n + k + m := by
  rw [add_assoc, add_comm m k, ← add_assoc]
theorem Nat.one_add (n : Nat) : 1 + n = n + 1 := by rw [add_comm]
theorem Nat.add_left_cancel {n m k : Nat} (h : n + m = n + k) : m = k := by
  induction n with
  | zero => rw [← zero_add m, ← zero_add k]; exact h
  | succ n ih =>
    rw [succ_add, succ_add] at h
    exact ih (succ_inj h)
theorem Nat.add_right_cancel {n m k : Nat} (h : n + m = k + m) : n = k := by
  rw [add_comm n m, add_comm k m] at h
  exact add_left_cancel h
theorem Nat.add_left_cancel_iff {n m k : Nat} : n + m = n + k ↔ m = k :=
  ⟨fun h => add_left_cancel h, fun h => by rw [h]⟩
theorem Nat.add_right_cancel_iff {n m k : Nat} : n + m = k + m ↔ n = k :=
  ⟨fun h => add_right_cancel h, fun h => by rw [h]⟩
theorem Nat.eq_zero_of_add_eq_zero_right {n m : Nat} (h : n + m = 0) : n = 0 := by
  cases m with
  | zero => exact h
  | succ m => exact absurd h (succ_ne_zero (n + m))
theorem Nat.eq_zero_of_add_eq_zero_left {n m : Nat} (h : n + m = 0) : m = 0 := by
  rw [add_comm] at h
  exact eq_zero_of_add_eq_zero_right h
theorem Nat.eq_zero_of_add_eq_self {n m : Nat} (h : n + m = n) : m = 0 := by
  exact add_left_cancel (n := n) h
theorem Nat.two_mul (n : Nat) : 2 * n = n + n := by
  rw [show (2 : Nat) = 1 + 1 from rfl, add_mul, one_mul]
theorem Nat.mul_two (n : Nat) : n * 2 = n + n := by rw [mul_comm, two_mul]
theorem Nat.mul_left_comm (n m k : Nat) : n * (m * k) = m * (n * k) := by
  rw [← mul_assoc, mul_comm n m, mul_assoc]
theorem Nat.mul_right_comm (n m k : Nat) : n * m * k = n * k * m := by
  rw [mul_assoc, mul_comm m k, ← mul_assoc]
theorem Nat.mul_eq_zero_of_left {n : Nat} (h : n = 0) (m : Nat) : n * m = 0 := by rw [h, zero_mul]
theorem Nat.mul_eq_zero_of_right {m : Nat} (h : m = 0) (n : Nat) : n * m = 0 := by rw [h, mul_zero]
theorem Nat.eq_zero_or_of_mul_eq_zero {n m : Nat} (h : n * m = 0) : n = 0 ∨ m = 0 := by
  cases m with
  | zero => exact Or.inr rfl
  | succ m =>
    rw [mul_succ] at h
    exact Or.inl (eq_zero_of_add_eq_zero_left h)
theorem Nat.eq_zero_or_succ (n : Nat) : n = 0 ∨ ∃ m, n = m + 1 := by
  cases n with
  | zero => exact Or.inl rfl
  | succ m => exact Or.inr ⟨m, rfl⟩
theorem Nat.pow_one (n : Nat) : n ^ 1 = n := by rw [show (1 : Nat) = succ 0 from rfl, pow_succ, pow_zero, one_mul]
theorem Nat.pow_add (n m k : Nat) : n ^ (m + k) = n ^ m * n ^ k := by
  induction k with
  | zero => rw [add_zero, pow_zero, mul_one]
  | succ k ih => rw [add_succ, pow_succ, ih, pow_succ, mul_assoc]
theorem Nat.one_pow (n : Nat) : 1 ^ n = 1 := by
  induction n with
  | zero => rfl
  | succ n ih => rw [pow_succ, ih]
theorem Nat.mul_pow (n m k : Nat) : (n * m) ^ k = n ^ k * m ^ k := by
  induction k with
  | zero => rfl
  | succ k ih => rw [pow_succ, pow_succ, pow_succ, ih, mul_assoc, mul_assoc, mul_left_comm (m ^ k)]
theorem Nat.pow_two (n : Nat) : n ^ 2 = n * n := by
  rw [show (2 : Nat) = succ 1 from rfl, pow_succ, pow_one]

theorem Nat.le_of_eq {n m : Nat} (h : n = m) : n ≤ m := by rw [h]; exact le_refl m
theorem Nat.lt_iff_succ_le {n m : Nat} : n < m ↔ n + 1 ≤ m := Iff.rfl
theorem Nat.lt_succ_iff {n m : Nat} : n < m + 1 ↔ n ≤ m := ⟨le_of_lt_succ, lt_succ_of_le⟩
theorem Nat.succ_le_succ_iff {n m : Nat} : n + 1 ≤ m + 1 ↔ n ≤ m := ⟨le_of_succ_le_succ, succ_le_succ⟩
theorem Nat.le_succ_of_le {n m : Nat} (h : n ≤ m) : n ≤ m + 1 := le_trans h (le_succ m)
theorem Nat.le_zero_iff {n : Nat} : n ≤ 0 ↔ n = 0 := ⟨fun h => le_antisymm h (zero_le n), le_of_eq⟩
theorem Nat.not_lt_zero (n : Nat) : ¬n < 0 := not_succ_le_zero n
theorem Nat.pos_of_ne_zero {n : Nat} (h : n ≠ 0) : 0 < n := by
  cases n with
  | zero => exact absurd rfl h
  | succ n => exact zero_lt_succ n
theorem Nat.ne_of_lt {n m : Nat} (h : n < m) : n ≠ m := by
  intro e
  subst e
  exact lt_irrefl n h
theorem Nat.ne_of_gt {n m : Nat} (h : m < n) : n ≠ m := fun e => ne_of_lt h e.symm
theorem Nat.ne_zero_of_pos {n : Nat} (h : 0 < n) : n ≠ 0 := ne_of_gt h
theorem Nat.not_le_of_lt {n m : Nat} (h : n < m) : ¬m ≤ n := fun k => lt_irrefl n (lt_of_lt_of_le h k)
theorem Nat.not_lt_of_le {n m : Nat} (h : n ≤ m) : ¬m < n := fun k => lt_irrefl m (lt_of_lt_of_le k h)
theorem Nat.lt_or_eq_of_le {n m : Nat} (h : n ≤ m) : n < m ∨ n = m := by
  cases h with
  | refl => exact Or.inr rfl
  | step h => exact Or.inl (lt_succ_of_le h)
theorem Nat.lt_or_ge (n m : Nat) : n < m ∨ m ≤ n := by
  rcases le_total m n with h | h
  · exact Or.inr h
  · rcases lt_or_eq_of_le h with k | k
    · exact Or.inl k
    · exact Or.inr (le_of_eq k.symm)
theorem Nat.lt_trichotomy (n m : Nat) : n < m ∨ n = m ∨ m < n := by
  rcases lt_or_ge n m with h | h
  · exact Or.inl h
  · rcases lt_or_eq_of_le h with k | k
    · exact Or.inr (Or.inr k)
    · exact Or.inr (Or.inl k.symm)
theorem Nat.lt_of_not_le {n m : Nat} (h : ¬m ≤ n) : n < m := by
  rcases lt_or_ge n m with k | k
  · exact k
  · exact absurd k h
theorem Nat.le_of_not_lt {n m : Nat} (h : ¬m < n) : n ≤ m := by
  rcases lt_or_ge m n with k | k
  · exact absurd k h
  · exact k
theorem Nat.add_le_add {n m k l : Nat} (h : n ≤ m) (g : k ≤ l) : n + k ≤ m + l :=
  le_trans (add_le_add_right h k) (add_le_add_left g m)
theorem Nat.le_of_add_le_add_left {n m k : Nat} (h : k + n ≤ k + m) : n ≤ m := by
  induction k with
  | zero => rw [zero_add, zero_add] at h; exact h
  | succ k ih =>
    rw [succ_add, succ_add] at h
    exact ih (le_of_succ_le_succ h)
theorem Nat.le_of_add_le_add_right {n m k : Nat} (h : n + k ≤ m + k) : n ≤ m := by
  rw [add_comm n k, add_comm m k] at h
  exact le_of_add_le_add_left h
theorem Nat.add_lt_add_right {n m : Nat} (h : n < m) (k : Nat) : n + k < m + k := by
  have h := add_le_add_right h k
  rw [succ_add] at h
  exact h
theorem Nat.add_lt_add_left {n m : Nat} (h : n < m) (k : Nat) : k + n < k + m := by
  rw [add_comm k n, add_comm k m]
  exact add_lt_add_right h k
theorem Nat.add_lt_add_of_lt_of_le {n m k l : Nat} (h : n < m) (g : k ≤ l) : n + k < m + l :=
  lt_of_lt_of_le (add_lt_add_right h k) (add_le_add_left g m)
theorem Nat.lt_add_of_pos_right {n k : Nat} (h : 0 < k) : n < n + k := by
  have h := add_lt_add_left h n
  rw [add_zero] at h
  exact h
theorem Nat.le_add_right_of_le {n m : Nat} (h : n ≤ m) (k : Nat) : n ≤ m + k := le_trans h (le_add_right m k)
theorem Nat.exists_eq_add_of_le {n m : Nat} (h : n ≤ m) : ∃ k, m = n + k := by
  induction h with
  | refl => exact ⟨0, rfl⟩
  | step _ ih =>
    obtain ⟨k, e⟩ := ih
    exact ⟨k + 1, by rw [e]; rfl⟩
theorem Nat.mul_le_mul_left {n m : Nat} (k : Nat) (h : n ≤ m) : k * n ≤ k * m := by
  obtain ⟨l, e⟩ := exists_eq_add_of_le h
  rw [e, mul_add]
  exact le_add_right (k * n) (k * l)
theorem Nat.mul_le_mul_right {n m : Nat} (k : Nat) (h : n ≤ m) : n * k ≤ m * k := by
  rw [mul_comm n k, mul_comm m k]
  exact mul_le_mul_left k h
theorem Nat.mul_pos {n m : Nat} (h : 0 < n) (g : 0 < m) : 0 < n * m := by
  cases m with
  | zero => exact g
  | succ m =>
    rw [mul_succ]
    exact lt_of_lt_of_le h (le_add_left n (n * m))
theorem Nat.pow_pos {n : Nat} (h : 0 < n) (m : Nat) : 0 < n ^ m := by
  induction m with
  | zero => rw [pow_zero]; exact zero_lt_succ 0
  | succ m ih => rw [pow_succ]; exact mul_pos ih h

theorem Nat.add_sub_cancel_left (n m : Nat) : n + m - n = m := by rw [add_comm, add_sub_cancel]
theorem Nat.zero_sub (n : Nat) : 0 - n = 0 := by
  induction n with
  | zero => rfl
  | succ n ih => rw [sub_succ, ih]; rfl
theorem Nat.sub_add_eq (n m k : Nat) : n - (m + k) = n - m - k := by
  induction k with
  | zero => rfl
  | succ k ih => rw [add_succ, sub_succ, ih, sub_succ]
theorem Nat.add_sub_add_right (n m k : Nat) : n + k - (m + k) = n - m := by
  rw [add_comm m k, sub_add_eq, add_sub_cancel]
theorem Nat.add_sub_add_left (n m k : Nat) : k + n - (k + m) = n - m := by
  rw [sub_add_eq, add_sub_cancel_left]
theorem Nat.sub_eq_zero_of_le {n m : Nat} (h : n ≤ m) : n - m = 0 := by
  obtain ⟨k, e⟩ := exists_eq_add_of_le h
  rw [e, sub_add_eq, sub_self, zero_sub]
theorem Nat.add_sub_of_le {n m : Nat} (h : n ≤ m) : n + (m - n) = m := by
  obtain ⟨k, e⟩ := exists_eq_add_of_le h
  rw [e, add_sub_cancel_left]
theorem Nat.sub_add_cancel {n m : Nat} (h : m ≤ n) : n - m + m = n := by rw [add_comm, add_sub_of_le h]
theorem Nat.sub_le_sub_right {n m : Nat} (h : n ≤ m) (k : Nat) : n - k ≤ m - k := by
  induction k with
  | zero => exact h
  | succ k ih => rw [sub_succ, sub_succ]; exact pred_le_pred ih
theorem Nat.sub_right_comm (n m k : Nat) : n - m - k = n - k - m := by
  rw [← sub_add_eq, add_comm, sub_add_eq]

def Nat.min (n m : Nat) : Nat := if n ≤ m then n else m
def Nat.max (n m : Nat) : Nat := if n ≤ m then m else n
theorem Nat.min_eq_left {n m : Nat} (h : n ≤ m) : min n m = n := if_pos h
theorem Nat.max_eq_right {n m : Nat} (h : n ≤ m) : max n m = m := if_pos h
theorem Nat.min_eq_right {n m : Nat} (h : m ≤ n) : min n m = m := by
  rcases lt_or_eq_of_le h with k | k
  · exact if_neg (not_le_of_lt k)
  · rw [k]; exact min_eq_left (le_refl n)
theorem Nat.max_eq_left {n m : Nat} (h : m ≤ n) : max n m = n := by
  rcases lt_or_eq_of_le h with k | k
  · exact if_neg (not_le_of_lt k)
  · rw [k]; exact max_eq_right (le_refl n)
theorem Nat.min_comm (n m : Nat) : min n m = min m n := by
  rcases le_total n m with h | h
  · rw [min_eq_left h, min_eq_right h]
  · rw [min_eq_right h, min_eq_left h]
theorem Nat.max_comm (n m : Nat) : max n m = max m n := by
  rcases le_total n m with h | h
  · rw [max_eq_right h, max_eq_left h]
  · rw [max_eq_left h, max_eq_right h]
theorem Nat.min_le_left (n m : Nat) : min n m ≤ n := by
  rcases le_total n m with h | h
  · rw [min_eq_left h]; exact le_refl n
  · rw [min_eq_right h]; exact h
theorem Nat.min_le_right (n m : Nat) : min n m ≤ m := by rw [min_comm]; exact min_le_left m n
theorem Nat.le_max_left (n m : Nat) : n ≤ max n m := by
  rcases le_total n m with h | h
  · rw [max_eq_right h]; exact h
  · rw [max_eq_left h]; exact le_refl n
theorem Nat.le_max_right (n m : Nat) : m ≤ max n m := by rw [max_comm]; exact le_max_left m n
theorem Nat.min_self (n : Nat) : min n n = n := min_eq_left (le_refl n)
theorem Nat.max_self (n : Nat) : max n n = n := max_eq_right (le_refl n)
theorem Nat.le_min_of_le {k n m : Nat} (h : k ≤ n) (g : k ≤ m) : k ≤ min n m := by
  rcases le_total n m with l | l
  · rw [min_eq_left l]; exact h
  · rw [min_eq_right l]; exact g
theorem Nat.max_le_of_le {k n m : Nat} (h : n ≤ k) (g : m ≤ k) : max n m ≤ k := by
  rcases le_total n m with l | l
  · rw [max_eq_right l]; exact g
  · rw [max_eq_left l]; exact h

def Nat.Divides (n m : Nat) : Prop := ∃ k, m = n * k
theorem Nat.Divides.intro {n m k : Nat} (h : m = n * k) : Divides n m := ⟨k, h⟩
theorem Nat.divides_refl (n : Nat) : Divides n n := Divides.intro (mul_one n).symm
theorem Nat.divides_zero (n : Nat) : Divides n 0 := Divides.intro (mul_zero n).symm
theorem Nat.one_divides (n : Nat) : Divides 1 n := Divides.intro (one_mul n).symm
theorem Nat.divides_mul_right (n m : Nat) : Divides n (n * m) := ⟨m, rfl⟩
theorem Nat.divides_mul_left (n m : Nat) : Divides n (m * n) := Divides.intro (mul_comm m n)
theorem Nat.Divides.trans {n m k : Nat} (h : Divides n m) (g : Divides m k) : Divides n k := by
  obtain ⟨a, e⟩ := h
  obtain ⟨b, f⟩ := g
  exact ⟨a * b, by rw [f, e, mul_assoc]⟩
theorem Nat.Divides.add {n m k : Nat} (h : Divides n m) (g : Divides n k) : Divides n (m + k) := by
  obtain ⟨a, e⟩ := h
  obtain ⟨b, f⟩ := g
  exact ⟨a + b, by rw [f, e, mul_add]⟩
theorem Nat.Divides.mul_right {n m : Nat} (h : Divides n m) (k : Nat) : Divides n (m * k) :=
  Divides.trans h (divides_mul_right m k)

def Nat.Even (n : Nat) : Prop := ∃ k, n = k + k
theorem Nat.even_zero : Even 0 := ⟨0, rfl⟩
theorem Nat.even_add_self (n : Nat) : Even (n + n) := ⟨n, rfl⟩
theorem Nat.even_two_mul (n : Nat) : Even (2 * n) := ⟨n, two_mul n⟩
theorem Nat.Even.add {n m : Nat} (h : Even n) (g : Even m) : Even (n + m) := by
  obtain ⟨a, e⟩ := h
  obtain ⟨b, f⟩ := g
  exact ⟨a + b, by rw [e, f, add_assoc, add_assoc, add_left_comm a b b]⟩
theorem Nat.Even.mul_right {n : Nat} (h : Even n) (m : Nat) : Even (n * m) := by
  obtain ⟨a, e⟩ := h
  exact ⟨a * m, by rw [e, add_mul]⟩
