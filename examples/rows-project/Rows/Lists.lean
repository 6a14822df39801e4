/-! Lists of numbers: definitions, and the lemmas that everything else rests on. -/

namespace Lists

def total : List Nat → Nat
  | [] => 0
  | x :: xs => x + total xs

def size : List Nat → Nat
  | [] => 0
  | _ :: xs => size xs + 1

def back : List Nat → List Nat
  | [] => []
  | x :: xs => back xs ++ [x]

def twice : List Nat → List Nat
  | [] => []
  | x :: xs => (x + x) :: twice xs

def raise (n : Nat) : List Nat → List Nat
  | [] => []
  | x :: xs => (x + n) :: raise n xs

def copies (x : Nat) : Nat → List Nat
  | 0 => []
  | n + 1 => x :: copies x n

theorem total_append (xs ys : List Nat) : total (xs ++ ys) = total xs + total ys := by
  induction xs with
  | nil => simp [total]
  | cons x xs ih => simp [total, ih, Nat.add_assoc]

theorem size_append (xs ys : List Nat) : size (xs ++ ys) = size xs + size ys := by
  induction xs with
  | nil => simp [size]
  | cons x xs ih => simp [size, ih, Nat.add_assoc, Nat.add_comm 1]

theorem back_append (xs ys : List Nat) : back (xs ++ ys) = back ys ++ back xs := by
  induction xs with
  | nil => simp [back]
  | cons x xs ih => simp [back, ih, List.append_assoc]

theorem twice_append (xs ys : List Nat) : twice (xs ++ ys) = twice xs ++ twice ys := by
  induction xs with
  | nil => simp [twice]
  | cons x xs ih => simp [twice, ih]

theorem raise_append (n : Nat) (xs ys : List Nat) : raise n (xs ++ ys) = raise n xs ++ raise n ys := by
  induction xs with
  | nil => simp [raise]
  | cons x xs ih => simp [raise, ih]

theorem total_back (xs : List Nat) : total (back xs) = total xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [back, total, total_append, ih, Nat.add_comm]

theorem size_back (xs : List Nat) : size (back xs) = size xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [back, size, size_append, ih]

theorem back_back (xs : List Nat) : back (back xs) = xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [back, back_append, ih]

theorem twice_back (xs : List Nat) : twice (back xs) = back (twice xs) := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [back, twice, twice_append, ih]

theorem raise_back (n : Nat) (xs : List Nat) : raise n (back xs) = back (raise n xs) := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [back, raise, raise_append, ih]

theorem size_twice (xs : List Nat) : size (twice xs) = size xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [twice, size, ih]

theorem size_raise (n : Nat) (xs : List Nat) : size (raise n xs) = size xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [raise, size, ih]

theorem total_twice (xs : List Nat) : total (twice xs) = total xs + total xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [twice, total, ih, Nat.add_assoc, Nat.add_left_comm]

theorem total_raise (n : Nat) (xs : List Nat) : total (raise n xs) = total xs + size xs * n := by
  induction xs with
  | nil => simp [raise, total, size]
  | cons x xs ih => simp [raise, total, size, ih, Nat.add_mul, Nat.add_assoc, Nat.add_left_comm, Nat.add_comm]

theorem raise_raise (n m : Nat) (xs : List Nat) : raise n (raise m xs) = raise (m + n) xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [raise, ih, Nat.add_assoc]

theorem twice_raise (n : Nat) (xs : List Nat) : twice (raise n xs) = raise (n + n) (twice xs) := by
  induction xs with
  | nil => rfl
  | cons x xs ih => simp [raise, twice, ih, Nat.add_assoc, Nat.add_left_comm]

theorem size_copies (x n : Nat) : size (copies x n) = n := by
  induction n with
  | zero => rfl
  | succ n ih => simp [copies, size, ih]

theorem total_copies (x n : Nat) : total (copies x n) = n * x := by
  induction n with
  | zero => simp [copies, total]
  | succ n ih => simp [copies, total, ih, Nat.add_mul, Nat.add_comm]

theorem twice_copies (x n : Nat) : twice (copies x n) = copies (x + x) n := by
  induction n with
  | zero => rfl
  | succ n ih => simp [copies, twice, ih]

theorem raise_copies (m x n : Nat) : raise m (copies x n) = copies (x + m) n := by
  induction n with
  | zero => rfl
  | succ n ih => simp [copies, raise, ih]

end Lists
