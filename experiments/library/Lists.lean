import Options
/-! Lists. -/

def List.filter (p : α → Bool) : List α → List α
  | [] => []
  | x :: xs => if p x = true then x :: filter p xs else filter p xs
def List.foldr (f : α → β → β) (b : β) : List α → β
  | [] => b
  | x :: xs => f x (foldr f b xs)
def List.foldl (f : β → α → β) (b : β) : List α → β
  | [] => b
  | x :: xs => foldl f (f b x) xs
def List.take : Nat → List α → List α
  | 0, _ => []
  | _ + 1, [] => []
  | n + 1, x :: xs => x :: take n xs
def List.drop : Nat → List α → List α
  | 0, xs => xs
  | _ + 1, [] => []
  | n + 1, _ :: xs => drop n xs
def List.replicate (n : Nat) (x : α) : List α :=
  match n with
  | 0 => []
  | n + 1 => x :: replicate n x
def List.flatten : List (List α) → List α
  | [] => []
  | xs :: xss => xs ++ flatten xss
def List.flatMap (f : α → List β) (xs : List α) : List β := flatten (map f xs)
def List.any (p : α → Bool) : List α → Bool
  | [] => false
  | x :: xs => p x || any p xs
def List.all (p : α → Bool) : List α → Bool
  | [] => true
  | x :: xs => p x && all p xs
def List.zip : List α → List β → List (α × β)
  | x :: xs, y :: ys => (x, y) :: zip xs ys
  | [], _ => []
  | _ :: _, [] => []
def List.head? : List α → Option α
  | [] => .none
  | x :: _ => .some x
def List.tail : List α → List α
  | [] => []
  | _ :: xs => xs
def List.find? (p : α → Bool) : List α → Option α
  | [] => .none
  | x :: xs => if p x = true then .some x else find? p xs
def List.sum : List Nat → Nat
  | [] => 0
  | x :: xs => x + sum xs
def List.countP (p : α → Bool) (xs : List α) : Nat := length (filter p xs)
inductive List.Mem (a : α) : List α → Prop
  | head (xs : List α) : Mem a (a :: xs)
  | tail (x : α) {xs : List α} (h : Mem a xs) : Mem a (x :: xs)
instance List.membership : Membership α (List α) := ⟨fun xs a => List.Mem a xs⟩
def List.Subset (xs ys : List α) : Prop := ∀ {a : α}, a ∈ xs → a ∈ ys
def List.IsPrefix (xs ys : List α) : Prop := ∃ zs, xs ++ zs = ys
def List.IsSuffix (xs ys : List α) : Prop := ∃ zs, zs ++ xs = ys
inductive List.Sublist : List α → List α → Prop
  | slnil : Sublist [] []
  | cons (x : α) {xs ys : List α} (h : Sublist xs ys) : Sublist xs (x :: ys)
  | cons₂ (x : α) {xs ys : List α} (h : Sublist xs ys) : Sublist (x :: xs) (x :: ys)
inductive List.Perm : List α → List α → Prop
  | nil : Perm [] []
  | cons (x : α) {xs ys : List α} (h : Perm xs ys) : Perm (x :: xs) (x :: ys)
  | swap (x y : α) (xs : List α) : Perm (y :: x :: xs) (x :: y :: xs)
  | trans {xs ys zs : List α} (h : Perm xs ys) (g : Perm ys zs) : Perm xs zs

theorem List.singleton_append (x : α) (xs : List α) : [x] ++ xs = x :: xs := by rw [cons_append, nil_append]
theorem List.cons_ne_nil (x : α) (xs : List α) : x :: xs ≠ [] := fun e => nomatch e
theorem List.append_cons (xs ys : List α) (y : α) : xs ++ y :: ys = xs ++ [y] ++ ys := by
  rw [append_assoc, singleton_append]
theorem List.append_eq_nil_left {xs ys : List α} (h : xs ++ ys = []) : xs = [] := by
  cases xs with
  | nil => rfl
  | cons x xs => exact absurd h (cons_ne_nil x (xs ++ ys))
theorem List.append_eq_nil_right {xs ys : List α} (h : xs ++ ys = []) : ys = [] := by
  cases xs with
  | nil => exact h
  | cons x xs => exact absurd h (cons_ne_nil x (xs ++ ys))
theorem List.append_cancel_left {xs ys zs : List α} (h : xs ++ ys = xs ++ zs) : ys = zs := by
  induction xs with
  | nil => exact h
  | cons x xs ih =>
    rw [cons_append, cons_append] at h
    injection h with _ h
    exact ih h

theorem List.length_append (xs ys : List α) : length (xs ++ ys) = length xs + length ys := by
  induction xs with
  | nil => rw [nil_append, length_nil, Nat.zero_add]
  | cons x xs ih => rw [cons_append, length_cons, length_cons, ih, Nat.add_right_comm]
theorem List.length_singleton (x : α) : length [x] = 1 := rfl
theorem List.length_pos_of_ne_nil {xs : List α} (h : xs ≠ []) : 0 < length xs := by
  cases xs with
  | nil => exact absurd rfl h
  | cons x xs => rw [length_cons]; exact Nat.zero_lt_succ (length xs)
theorem List.eq_nil_of_length_eq_zero {xs : List α} (h : length xs = 0) : xs = [] := by
  cases xs with
  | nil => rfl
  | cons x xs => exact absurd h (Nat.succ_ne_zero (length xs))

@[simp] theorem List.map_nil (f : α → β) : map f [] = [] := rfl
@[simp] theorem List.map_cons (f : α → β) (x : α) (xs : List α) : map f (x :: xs) = f x :: map f xs := rfl
theorem List.length_map (f : α → β) (xs : List α) : length (map f xs) = length xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [map_cons, length_cons, length_cons, ih]
theorem List.map_append (f : α → β) (xs ys : List α) : map f (xs ++ ys) = map f xs ++ map f ys := by
  induction xs with
  | nil => rw [nil_append, map_nil, nil_append]
  | cons x xs ih => rw [cons_append, map_cons, map_cons, cons_append, ih]
theorem List.map_map (g : β → γ) (f : α → β) (xs : List α) : map g (map f xs) = map (Function.compose g f) xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [map_cons, map_cons, map_cons, ih, Function.compose_apply]
theorem List.map_id (xs : List α) : map id xs = xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [map_cons, ih]; rfl
theorem List.map_congr {f g : α → β} (h : ∀ x, f x = g x) (xs : List α) : map f xs = map g xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [map_cons, map_cons, h, ih]
theorem List.map_singleton (f : α → β) (x : α) : map f [x] = [f x] := by rw [map_cons, map_nil]

theorem List.reverse_nil : reverse ([] : List α) = [] := rfl
theorem List.reverse_cons (x : α) (xs : List α) : reverse (x :: xs) = reverse xs ++ [x] := rfl
theorem List.reverse_singleton (x : α) : reverse [x] = [x] := rfl
theorem List.reverse_append (xs ys : List α) : reverse (xs ++ ys) = reverse ys ++ reverse xs := by
  induction xs with
  | nil => rw [nil_append, reverse_nil, append_nil]
  | cons x xs ih => rw [cons_append, reverse_cons, reverse_cons, ih, append_assoc]
theorem List.reverse_reverse (xs : List α) : reverse (reverse xs) = xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [reverse_cons, reverse_append, ih, reverse_singleton, singleton_append]
theorem List.length_reverse (xs : List α) : length (reverse xs) = length xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [reverse_cons, length_append, ih, length_singleton, length_cons]
theorem List.map_reverse (f : α → β) (xs : List α) : map f (reverse xs) = reverse (map f xs) := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [reverse_cons, map_append, ih, map_singleton, map_cons, reverse_cons]

theorem List.filter_nil (p : α → Bool) : filter p [] = [] := rfl
theorem List.filter_cons_of_pos {p : α → Bool} {x : α} (h : p x = true) (xs : List α) :
    filter p (x :: xs) = x :: filter p xs := if_pos h
theorem List.filter_cons_of_neg {p : α → Bool} {x : α} (h : ¬p x = true) (xs : List α) :
    filter p (x :: xs) = filter p xs := if_neg h
theorem List.filter_append (p : α → Bool) (xs ys : List α) : filter p (xs ++ ys) = filter p xs ++ filter p ys := by
  induction xs with
  | nil => rfl
  | cons x xs ih =>
    by_cases h : p x = true
    · rw [cons_append, filter_cons_of_pos h, filter_cons_of_pos h, ih, cons_append]
    · rw [cons_append, filter_cons_of_neg h, filter_cons_of_neg h, ih]
theorem List.filter_filter_self (p : α → Bool) (xs : List α) : filter p (filter p xs) = filter p xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih =>
    by_cases h : p x = true
    · rw [filter_cons_of_pos h, filter_cons_of_pos h, ih]
    · rw [filter_cons_of_neg h, ih]
theorem List.length_filter_le (p : α → Bool) (xs : List α) : length (filter p xs) ≤ length xs := by
  induction xs with
  | nil => exact Nat.le_refl 0
  | cons x xs ih =>
    by_cases h : p x = true
    · rw [filter_cons_of_pos h, length_cons, length_cons]; exact Nat.succ_le_succ ih
    · rw [filter_cons_of_neg h, length_cons]; exact Nat.le_succ_of_le ih
theorem List.filter_map (p : β → Bool) (f : α → β) (xs : List α) :
    filter p (map f xs) = map f (filter (Function.compose p f) xs) := by
  induction xs with
  | nil => rfl
  | cons x xs ih =>
    by_cases h : p (f x) = true
    · rw [map_cons, filter_cons_of_pos h, filter_cons_of_pos (p := Function.compose p f) h, map_cons, ih]
    · rw [map_cons, filter_cons_of_neg h, filter_cons_of_neg (p := Function.compose p f) h, ih]
theorem List.filter_reverse (p : α → Bool) (xs : List α) : filter p (reverse xs) = reverse (filter p xs) := by
  induction xs with
  | nil => rfl
  | cons x xs ih =>
    by_cases h : p x = true
    · rw [reverse_cons, filter_append, ih, filter_cons_of_pos h, filter_cons_of_pos h, reverse_cons, filter_nil]
    · rw [reverse_cons, filter_append, ih, filter_cons_of_neg h, filter_cons_of_neg h, filter_nil, append_nil]

theorem List.foldr_nil (f : α → β → β) (b : β) : foldr f b [] = b := rfl
theorem List.foldr_cons (f : α → β → β) (b : β) (x : α) (xs : List α) :
    foldr f b (x :: xs) = f x (foldr f b xs) := rfl
theorem List.foldr_append (f : α → β → β) (b : β) (xs ys : List α) :
    foldr f b (xs ++ ys) = foldr f (foldr f b ys) xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [cons_append, foldr_cons, foldr_cons, ih]
theorem List.foldr_map (f : β → γ → γ) (g : α → β) (c : γ) (xs : List α) :
    foldr f c (map g xs) = foldr (fun x => f (g x)) c xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [map_cons, foldr_cons, foldr_cons, ih]
theorem List.foldl_nil (f : β → α → β) (b : β) : foldl f b [] = b := rfl
theorem List.foldl_cons (f : β → α → β) (b : β) (x : α) (xs : List α) :
    foldl f b (x :: xs) = foldl f (f b x) xs := rfl
theorem List.foldl_append (f : β → α → β) (b : β) (xs ys : List α) :
    foldl f b (xs ++ ys) = foldl f (foldl f b xs) ys := by
  induction xs generalizing b with
  | nil => rfl
  | cons x xs ih => rw [cons_append, foldl_cons, foldl_cons, ih]
theorem List.foldr_cons_nil (xs : List α) : foldr cons [] xs = xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [foldr_cons, ih]

theorem List.take_zero (xs : List α) : take 0 xs = [] := rfl
theorem List.take_nil (n : Nat) : take n ([] : List α) = [] := by cases n <;> rfl
theorem List.take_succ_cons (n : Nat) (x : α) (xs : List α) : take (n + 1) (x :: xs) = x :: take n xs := rfl
theorem List.drop_zero (xs : List α) : drop 0 xs = xs := rfl
theorem List.drop_nil (n : Nat) : drop n ([] : List α) = [] := by cases n <;> rfl
theorem List.drop_succ_cons (n : Nat) (x : α) (xs : List α) : drop (n + 1) (x :: xs) = drop n xs := rfl
theorem List.take_append_drop (n : Nat) (xs : List α) : take n xs ++ drop n xs = xs := by
  induction n generalizing xs with
  | zero => rw [take_zero, drop_zero, nil_append]
  | succ n ih =>
    cases xs with
    | nil => rw [take_nil, drop_nil, nil_append]
    | cons x xs => rw [take_succ_cons, drop_succ_cons, cons_append, ih]
theorem List.length_take_le (n : Nat) (xs : List α) : length (take n xs) ≤ n := by
  induction n generalizing xs with
  | zero => exact Nat.le_refl 0
  | succ n ih =>
    cases xs with
    | nil => rw [take_nil, length_nil]; exact Nat.zero_le (n + 1)
    | cons x xs => rw [take_succ_cons, length_cons]; exact Nat.succ_le_succ (ih xs)
theorem List.length_drop (n : Nat) (xs : List α) : length (drop n xs) = length xs - n := by
  induction n generalizing xs with
  | zero => rw [drop_zero, Nat.sub_zero]
  | succ n ih =>
    cases xs with
    | nil => rw [drop_nil, length_nil, Nat.zero_sub]
    | cons x xs => rw [drop_succ_cons, ih, length_cons, Nat.add_sub_add_right]
theorem List.take_length (xs : List α) : take (length xs) xs = xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [length_cons, take_succ_cons, ih]
theorem List.drop_length (xs : List α) : drop (length xs) xs = [] := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [length_cons, drop_succ_cons, ih]
theorem List.drop_drop (m n : Nat) (xs : List α) : drop m (drop n xs) = drop (n + m) xs := by
  induction n generalizing xs with
  | zero => rw [drop_zero, Nat.zero_add]
  | succ n ih =>
    cases xs with
    | nil => rw [drop_nil, drop_nil, drop_nil]
    | cons x xs => rw [drop_succ_cons, ih, Nat.succ_add, drop_succ_cons]
theorem List.map_take (f : α → β) (n : Nat) (xs : List α) : map f (take n xs) = take n (map f xs) := by
  induction n generalizing xs with
  | zero => rfl
  | succ n ih =>
    cases xs with
    | nil => rfl
    | cons x xs => rw [take_succ_cons, map_cons, map_cons, take_succ_cons, ih]
theorem List.map_drop (f : α → β) (n : Nat) (xs : List α) : map f (drop n xs) = drop n (map f xs) := by
  induction n generalizing xs with
  | zero => rfl
  | succ n ih =>
    cases xs with
    | nil => rfl
    | cons x xs => rw [drop_succ_cons, map_cons, drop_succ_cons, ih]

theorem List.replicate_zero (x : α) : replicate 0 x = [] := rfl
theorem List.replicate_succ (n : Nat) (x : α) : replicate (n + 1) x = x :: replicate n x := rfl
theorem List.length_replicate (n : Nat) (x : α) : length (replicate n x) = n := by
  induction n with
  | zero => rfl
  | succ n ih => rw [replicate_succ, length_cons, ih]
theorem List.replicate_add (m n : Nat) (x : α) : replicate (m + n) x = replicate m x ++ replicate n x := by
  induction m with
  | zero => rw [Nat.zero_add, replicate_zero, nil_append]
  | succ m ih => rw [Nat.succ_add, replicate_succ, replicate_succ, cons_append, ih]
theorem List.map_replicate (f : α → β) (n : Nat) (x : α) : map f (replicate n x) = replicate n (f x) := by
  induction n with
  | zero => rfl
  | succ n ih => rw [replicate_succ, map_cons, ih, replicate_succ]
theorem List.replicate_append_singleton (n : Nat) (x : α) : replicate n x ++ [x] = replicate (n + 1) x := by
  rw [replicate_add]; rfl
theorem List.reverse_replicate (n : Nat) (x : α) : reverse (replicate n x) = replicate n x := by
  induction n with
  | zero => rfl
  | succ n ih => rw [replicate_succ, reverse_cons, ih, replicate_append_singleton, replicate_succ]

theorem List.flatten_nil : flatten ([] : List (List α)) = [] := rfl
theorem List.flatten_cons (xs : List α) (xss : List (List α)) : flatten (xs :: xss) = xs ++ flatten xss := rfl
theorem List.flatten_append (xss yss : List (List α)) : flatten (xss ++ yss) = flatten xss ++ flatten yss := by
  induction xss with
  | nil => rfl
  | cons xs xss ih => rw [cons_append, flatten_cons, flatten_cons, ih, append_assoc]
theorem List.map_flatten (f : α → β) (xss : List (List α)) : map f (flatten xss) = flatten (map (map f) xss) := by
  induction xss with
  | nil => rfl
  | cons xs xss ih => rw [flatten_cons, map_append, ih, map_cons, flatten_cons]
theorem List.flatMap_nil (f : α → List β) : flatMap f [] = [] := rfl
theorem List.flatMap_cons (f : α → List β) (x : α) (xs : List α) : flatMap f (x :: xs) = f x ++ flatMap f xs := rfl
theorem List.flatMap_append (f : α → List β) (xs ys : List α) : flatMap f (xs ++ ys) = flatMap f xs ++ flatMap f ys := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [cons_append, flatMap_cons, flatMap_cons, ih, append_assoc]

theorem List.any_nil (p : α → Bool) : any p [] = false := rfl
theorem List.any_cons (p : α → Bool) (x : α) (xs : List α) : any p (x :: xs) = (p x || any p xs) := rfl
theorem List.all_nil (p : α → Bool) : all p [] = true := rfl
theorem List.all_cons (p : α → Bool) (x : α) (xs : List α) : all p (x :: xs) = (p x && all p xs) := rfl
theorem List.any_append (p : α → Bool) (xs ys : List α) : any p (xs ++ ys) = (any p xs || any p ys) := by
  induction xs with
  | nil => rw [nil_append, any_nil, Bool.false_or]
  | cons x xs ih => rw [cons_append, any_cons, any_cons, ih, Bool.or_assoc]
theorem List.all_append (p : α → Bool) (xs ys : List α) : all p (xs ++ ys) = (all p xs && all p ys) := by
  induction xs with
  | nil => rw [nil_append, all_nil, Bool.true_and]
  | cons x xs ih => rw [cons_append, all_cons, all_cons, ih, Bool.and_assoc]
theorem List.not_any (p : α → Bool) (xs : List α) : (!any p xs) = all (fun x => !p x) xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [any_cons, all_cons, ← ih]; cases p x <;> rfl
theorem List.any_map (p : β → Bool) (f : α → β) (xs : List α) : any p (map f xs) = any (Function.compose p f) xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [map_cons, any_cons, any_cons, ih, Function.compose_apply]

theorem List.mem_cons_self (a : α) (xs : List α) : a ∈ a :: xs := Mem.head xs
theorem List.mem_cons_of_mem {a : α} (x : α) {xs : List α} (h : a ∈ xs) : a ∈ x :: xs := Mem.tail x h
theorem List.not_mem_nil (a : α) : ¬a ∈ ([] : List α) := fun h => nomatch h
theorem List.mem_cons {a x : α} {xs : List α} : a ∈ x :: xs ↔ a = x ∨ a ∈ xs := by
  constructor
  · intro h
    cases h with
    | head => exact Or.inl rfl
    | tail _ h => exact Or.inr h
  · intro h
    rcases h with h | h
    · rw [h]; exact mem_cons_self x xs
    · exact mem_cons_of_mem x h
theorem List.mem_singleton {a b : α} : a ∈ [b] ↔ a = b := by
  constructor
  · intro h
    rcases mem_cons.mp h with h | h
    · exact h
    · exact absurd h (not_mem_nil a)
  · intro h
    rw [h]
    exact mem_cons_self b []
theorem List.mem_append {a : α} {xs ys : List α} : a ∈ xs ++ ys ↔ a ∈ xs ∨ a ∈ ys := by
  induction xs with
  | nil => exact ⟨Or.inr, fun h => h.elim (fun k => absurd k (not_mem_nil a)) id⟩
  | cons x xs ih => rw [cons_append, mem_cons, mem_cons, ih, or_assoc]
theorem List.mem_append_left {a : α} {xs : List α} (ys : List α) (h : a ∈ xs) : a ∈ xs ++ ys := mem_append.mpr (Or.inl h)
theorem List.mem_append_right {a : α} (xs : List α) {ys : List α} (h : a ∈ ys) : a ∈ xs ++ ys := mem_append.mpr (Or.inr h)
theorem List.mem_map {b : β} {f : α → β} {xs : List α} : b ∈ map f xs ↔ ∃ a, a ∈ xs ∧ f a = b := by
  induction xs with
  | nil => exact ⟨fun h => absurd h (not_mem_nil b), fun h => by obtain ⟨a, h, _⟩ := h; exact absurd h (not_mem_nil a)⟩
  | cons x xs ih =>
    rw [map_cons, mem_cons, ih]
    constructor
    · intro h
      rcases h with h | h
      · exact ⟨x, mem_cons_self x xs, h.symm⟩
      · obtain ⟨a, h, e⟩ := h
        exact ⟨a, mem_cons_of_mem x h, e⟩
    · intro h
      obtain ⟨a, h, e⟩ := h
      rcases mem_cons.mp h with k | k
      · rw [← k]; exact Or.inl e.symm
      · exact Or.inr ⟨a, k, e⟩
theorem List.mem_map_of_mem (f : α → β) {a : α} {xs : List α} (h : a ∈ xs) : f a ∈ map f xs := mem_map.mpr ⟨a, h, rfl⟩
theorem List.mem_filter {a : α} {p : α → Bool} {xs : List α} : a ∈ filter p xs ↔ a ∈ xs ∧ p a = true := by
  induction xs with
  | nil => exact ⟨fun h => absurd h (not_mem_nil a), fun h => absurd h.1 (not_mem_nil a)⟩
  | cons x xs ih =>
    by_cases h : p x = true
    · rw [filter_cons_of_pos h, mem_cons, mem_cons, ih]
      constructor
      · intro k
        rcases k with k | k
        · exact ⟨Or.inl k, by rw [k]; exact h⟩
        · exact ⟨Or.inr k.1, k.2⟩
      · intro k
        rcases k.1 with l | l
        · exact Or.inl l
        · exact Or.inr ⟨l, k.2⟩
    · rw [filter_cons_of_neg h, mem_cons, ih]
      constructor
      · intro k
        exact ⟨Or.inr k.1, k.2⟩
      · intro k
        rcases k.1 with l | l
        · rw [l] at k; exact absurd k.2 h
        · exact ⟨l, k.2⟩
theorem List.mem_reverse {a : α} {xs : List α} : a ∈ reverse xs ↔ a ∈ xs := by
  induction xs with
  | nil => exact Iff.rfl
  | cons x xs ih => rw [reverse_cons, mem_append, ih, mem_singleton, mem_cons, or_comm]
theorem List.ne_nil_of_mem {a : α} {xs : List α} (h : a ∈ xs) : xs ≠ [] := by
  intro e
  rw [e] at h
  exact not_mem_nil a h
theorem List.mem_of_mem_take {a : α} {n : Nat} {xs : List α} (h : a ∈ take n xs) : a ∈ xs := by
  have k := mem_append_left (drop n xs) h
  rw [take_append_drop] at k
  exact k
theorem List.eq_of_mem_replicate {a b : α} {n : Nat} (h : a ∈ replicate n b) : a = b := by
  induction n with
  | zero => exact absurd h (not_mem_nil a)
  | succ n ih =>
    rcases mem_cons.mp h with k | k
    · exact k
    · exact ih k

theorem List.sum_nil : sum [] = 0 := rfl
theorem List.sum_cons (n : Nat) (ns : List Nat) : sum (n :: ns) = n + sum ns := rfl
theorem List.sum_append (ms ns : List Nat) : sum (ms ++ ns) = sum ms + sum ns := by
  induction ms with
  | nil => rw [nil_append, sum_nil, Nat.zero_add]
  | cons m ms ih => rw [cons_append, sum_cons, sum_cons, ih, Nat.add_assoc]
theorem List.sum_singleton (n : Nat) : sum [n] = n := rfl
theorem List.sum_replicate (n m : Nat) : sum (replicate n m) = n * m := by
  induction n with
  | zero => rw [replicate_zero, sum_nil, Nat.zero_mul]
  | succ n ih => rw [replicate_succ, sum_cons, ih, Nat.succ_mul, Nat.add_comm]
theorem List.le_sum_of_mem {n : Nat} {ns : List Nat} (h : n ∈ ns) : n ≤ sum ns := by
  induction ns with
  | nil => exact absurd h (not_mem_nil n)
  | cons m ms ih =>
    rw [sum_cons]
    rcases mem_cons.mp h with k | k
    · rw [k]; exact Nat.le_add_right m (sum ms)
    · exact Nat.le_trans (ih k) (Nat.le_add_left (sum ms) m)

theorem List.countP_nil (p : α → Bool) : countP p [] = 0 := rfl
theorem List.countP_append (p : α → Bool) (xs ys : List α) : countP p (xs ++ ys) = countP p xs + countP p ys := by
  show length (filter p (xs ++ ys)) = length (filter p xs) + length (filter p ys)
  rw [filter_append, length_append]
theorem List.countP_le_length (p : α → Bool) (xs : List α) : countP p xs ≤ length xs := length_filter_le p xs

theorem List.head?_nil : head? ([] : List α) = .none := rfl
theorem List.head?_cons (x : α) (xs : List α) : head? (x :: xs) = .some x := rfl
theorem List.head?_append (xs ys : List α) : head? (xs ++ ys) = Option.or (head? xs) (head? ys) := by
  cases xs with
  | nil => rw [nil_append, head?_nil, Option.none_or]
  | cons x xs => rw [cons_append, head?_cons, head?_cons, Option.some_or]
theorem List.head?_map (f : α → β) (xs : List α) : head? (map f xs) = Option.map f (head? xs) := by
  cases xs with
  | nil => rfl
  | cons x xs => rw [map_cons, head?_cons, head?_cons, Option.map_some]
theorem List.tail_cons (x : α) (xs : List α) : tail (x :: xs) = xs := rfl
theorem List.length_tail (xs : List α) : length (tail xs) = length xs - 1 := by
  cases xs with
  | nil => rfl
  | cons x xs => rw [tail_cons, length_cons, Nat.add_sub_cancel]
theorem List.map_tail (f : α → β) (xs : List α) : map f (tail xs) = tail (map f xs) := by cases xs <;> rfl
theorem List.find?_cons_of_pos {p : α → Bool} {x : α} (h : p x = true) (xs : List α) : find? p (x :: xs) = .some x := if_pos h
theorem List.find?_cons_of_neg {p : α → Bool} {x : α} (h : ¬p x = true) (xs : List α) :
    find? p (x :: xs) = find? p xs := if_neg h
theorem List.find?_append (p : α → Bool) (xs ys : List α) : find? p (xs ++ ys) = Option.or (find? p xs) (find? p ys) := by
  induction xs with
  | nil => rfl
  | cons x xs ih =>
    by_cases h : p x = true
    · rw [cons_append, find?_cons_of_pos h, find?_cons_of_pos h, Option.some_or]
    · rw [cons_append, find?_cons_of_neg h, find?_cons_of_neg h, ih]

theorem List.zip_nil_right (xs : List α) : zip xs ([] : List β) = [] := by cases xs <;> rfl
theorem List.zip_cons_cons (x : α) (xs : List α) (y : β) (ys : List β) : zip (x :: xs) (y :: ys) = (x, y) :: zip xs ys := rfl
theorem List.map_fst_zip_self (xs : List α) : map Prod.fst (zip xs xs) = xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [zip_cons_cons, map_cons, ih]
theorem List.length_zip_self (xs : List α) : length (zip xs xs) = length xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [zip_cons_cons, length_cons, length_cons, ih]

theorem List.Subset.refl (xs : List α) : Subset xs xs := fun h => h
theorem List.Subset.trans {xs ys zs : List α} (h : Subset xs ys) (g : Subset ys zs) : Subset xs zs := fun k => g (h k)
theorem List.nil_subset (xs : List α) : Subset [] xs := fun {a} h => absurd h (not_mem_nil a)
theorem List.subset_append_left (xs ys : List α) : Subset xs (xs ++ ys) := fun h => mem_append_left ys h
theorem List.subset_append_right (xs ys : List α) : Subset ys (xs ++ ys) := fun h => mem_append_right xs h
theorem List.subset_cons_self (x : α) (xs : List α) : Subset xs (x :: xs) := fun h => mem_cons_of_mem x h
theorem List.filter_subset (p : α → Bool) (xs : List α) : Subset (filter p xs) xs := fun h => (mem_filter.mp h).1
theorem List.Subset.append {xs ys zs : List α} (h : Subset xs zs) (g : Subset ys zs) : Subset (xs ++ ys) zs := by
  intro a k
  rcases mem_append.mp k with l | l
  · exact h l
  · exact g l

theorem List.IsPrefix.refl (xs : List α) : IsPrefix xs xs := ⟨[], append_nil xs⟩
theorem List.nil_isPrefix (xs : List α) : IsPrefix [] xs := ⟨xs, nil_append xs⟩
theorem List.IsPrefix.trans {xs ys zs : List α} (h : IsPrefix xs ys) (g : IsPrefix ys zs) : IsPrefix xs zs := by
  obtain ⟨a, e⟩ := h
  obtain ⟨b, f⟩ := g
  exact ⟨a ++ b, by rw [← append_assoc, e, f]⟩
theorem List.prefix_append (xs ys : List α) : IsPrefix xs (xs ++ ys) := ⟨ys, rfl⟩
theorem List.suffix_append (xs ys : List α) : IsSuffix ys (xs ++ ys) := ⟨xs, rfl⟩
theorem List.IsPrefix.subset {xs ys : List α} (h : IsPrefix xs ys) : Subset xs ys := by
  obtain ⟨zs, e⟩ := h
  rw [← e]
  exact subset_append_left xs zs
theorem List.IsPrefix.length_le {xs ys : List α} (h : IsPrefix xs ys) : length xs ≤ length ys := by
  obtain ⟨zs, e⟩ := h
  rw [← e, length_append]
  exact Nat.le_add_right (length xs) (length zs)
theorem List.take_isPrefix (n : Nat) (xs : List α) : IsPrefix (take n xs) xs := ⟨drop n xs, take_append_drop n xs⟩

theorem List.Sublist.refl (xs : List α) : Sublist xs xs := by
  induction xs with
  | nil => exact Sublist.slnil
  | cons x xs ih => exact Sublist.cons₂ x ih
theorem List.nil_sublist (xs : List α) : Sublist [] xs := by
  induction xs with
  | nil => exact Sublist.slnil
  | cons x xs ih => exact Sublist.cons x ih
theorem List.Sublist.length_le {xs ys : List α} (h : Sublist xs ys) : length xs ≤ length ys := by
  induction h with
  | slnil => exact Nat.le_refl 0
  | cons x _ ih => rw [length_cons]; exact Nat.le_succ_of_le ih
  | cons₂ x _ ih => rw [length_cons, length_cons]; exact Nat.succ_le_succ ih
theorem List.sublist_append_right (xs ys : List α) : Sublist ys (xs ++ ys) := by
  induction xs with
  | nil => rw [nil_append]; exact Sublist.refl ys
  | cons x xs ih => rw [cons_append]; exact Sublist.cons x ih
theorem List.filter_sublist (p : α → Bool) (xs : List α) : Sublist (filter p xs) xs := by
  induction xs with
  | nil => exact Sublist.slnil
  | cons x xs ih =>
    by_cases h : p x = true
    · rw [filter_cons_of_pos h]; exact Sublist.cons₂ x ih
    · rw [filter_cons_of_neg h]; exact Sublist.cons x ih

theorem List.Perm.refl (xs : List α) : Perm xs xs := by
  induction xs with
  | nil => exact Perm.nil
  | cons x xs ih => exact Perm.cons x ih
theorem List.Perm.symm {xs ys : List α} (h : Perm xs ys) : Perm ys xs := by
  induction h with
  | nil => exact Perm.nil
  | cons x _ ih => exact Perm.cons x ih
  | swap x y xs => exact Perm.swap y x xs
  | trans _ _ ih jh => exact Perm.trans jh ih
theorem List.Perm.length_eq {xs ys : List α} (h : Perm xs ys) : length xs = length ys := by
  induction h with
  | nil => rfl
  | cons x _ ih => rw [length_cons, length_cons, ih]
  | swap x y xs => rw [length_cons, length_cons, length_cons, length_cons]
  | trans _ _ ih jh => rw [ih, jh]
theorem List.Perm.append_left {ys zs : List α} (xs : List α) (h : Perm ys zs) : Perm (xs ++ ys) (xs ++ zs) := by
  induction xs with
  | nil => exact h
  | cons x xs ih => exact Perm.cons x ih
theorem List.Perm.append_right {xs ys : List α} (h : Perm xs ys) (zs : List α) : Perm (xs ++ zs) (ys ++ zs) := by
  induction h with
  | nil => exact Perm.refl zs
  | cons x _ ih => exact Perm.cons x ih
  | swap x y xs => exact Perm.swap x y (xs ++ zs)
  | trans _ _ ih jh => exact Perm.trans ih jh
theorem List.perm_middle (x : α) (xs ys : List α) : Perm (xs ++ x :: ys) (x :: (xs ++ ys)) := by
  induction xs with
  | nil => exact Perm.refl (x :: ys)
  | cons y xs ih => exact Perm.trans (Perm.cons y ih) (Perm.swap x y (xs ++ ys))
theorem List.perm_append_comm (xs ys : List α) : Perm (xs ++ ys) (ys ++ xs) := by
  induction xs with
  | nil => rw [nil_append, append_nil]; exact Perm.refl ys
  | cons x xs ih => exact Perm.trans (Perm.cons x ih) (Perm.symm (perm_middle x ys xs))
theorem List.Perm.map (f : α → β) {xs ys : List α} (h : Perm xs ys) : Perm (List.map f xs) (List.map f ys) := by
  induction h with
  | nil => exact Perm.nil
  | cons x _ ih => exact Perm.cons (f x) ih
  | swap x y xs => exact Perm.swap (f x) (f y) (List.map f xs)
  | trans _ _ ih jh => exact Perm.trans ih jh
theorem List.Perm.mem_iff {a : α} {xs ys : List α} (h : Perm xs ys) : a ∈ xs ↔ a ∈ ys := by
  induction h with
  | nil => exact Iff.rfl
  | cons x _ ih => rw [mem_cons, mem_cons, ih]
  | swap x y xs => rw [mem_cons, mem_cons, mem_cons, mem_cons, Or.left_comm]
  | trans _ _ ih jh => rw [ih, jh]
theorem List.Perm.sum_eq {ms ns : List Nat} (h : Perm ms ns) : sum ms = sum ns := by
  induction h with
  | nil => rfl
  | cons x _ ih => rw [sum_cons, sum_cons, ih]
  | swap x y ns => rw [sum_cons, sum_cons, sum_cons, sum_cons, Nat.add_left_comm]
  | trans _ _ ih jh => rw [ih, jh]
theorem List.reverse_perm (xs : List α) : Perm (reverse xs) xs := by
  induction xs with
  | nil => exact Perm.nil
  | cons x xs ih => rw [reverse_cons]; exact Perm.trans (perm_append_comm (reverse xs) [x]) (Perm.cons x ih)
