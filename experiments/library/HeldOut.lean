import Orders
/-! Theorems that the experiment asks for: nothing is learned from them, and no other file imports them. -/

theorem Bool.or_and_distrib_right (a b c : Bool) : ((b || c) && a) = ((b && a) || (c && a)) := by
  rw [and_comm, and_or_distrib_left, and_comm a b, and_comm a c]
theorem Bool.and_left_comm (a b c : Bool) : (a && (b && c)) = (b && (a && c)) := by
  rw [← and_assoc, and_comm a b, and_assoc]
theorem Bool.or_left_comm (a b c : Bool) : (a || (b || c)) = (b || (a || c)) := by
  rw [← or_assoc, or_comm a b, or_assoc]
theorem And.rotate : p ∧ q ∧ r ↔ q ∧ r ∧ p := by
  rw [And.left_comm, and_comm (a := p)]
theorem Or.rotate : p ∨ q ∨ r ↔ q ∨ r ∨ p := by
  rw [Or.left_comm, or_comm (a := p)]
theorem And.of_imp_right (f : q → r) (h : p ∧ q) : p ∧ r := And.imp_both id f h
theorem Or.of_imp_right (f : q → r) (h : p ∨ q) : p ∨ r := Or.imp_both id f h
theorem or_and_distrib_of_and : (q ∨ r) ∧ p ↔ (p ∧ q) ∨ (p ∧ r) := by
  rw [and_comm, and_or_distrib_left]
theorem exists_left_of_or {p q : α → Prop} (h : ∃ x, p x ∨ q x) (k : ¬∃ x, q x) : ∃ x, p x := by
  rcases exists_or_distrib.mp h with g | g
  · exact g
  · exact absurd g k

theorem Function.LeftInverse.compose_apply {g : β → α} {f : α → β} (h : LeftInverse g f) (x : α) :
    compose g f x = x := by rw [LeftInverse.compose_eq_id h]; rfl
theorem Function.iterate_one (f : α → α) (x : α) : iterate f 1 x = f x := by rw [iterate_succ, iterate_zero]
theorem Function.iterate_two (f : α → α) (x : α) : iterate f 2 x = f (f x) := by
  rw [iterate_succ, iterate_succ, iterate_zero]
theorem Function.iterate_comm (f : α → α) (m n : Nat) (x : α) :
    iterate f m (iterate f n x) = iterate f n (iterate f m x) := by
  rw [← iterate_add, Nat.add_comm, iterate_add]
theorem Function.apply_iterate (f : α → α) (n : Nat) (x : α) : f (iterate f n x) = iterate f n (f x) := by
  rw [← iterate_succ, iterate_succ_apply]
theorem Function.iterate_id (n : Nat) (x : α) : iterate id n x = x := by
  induction n with
  | zero => rfl
  | succ n ih => rw [iterate_succ]; exact ih
theorem Function.injective_iterate {f : α → α} (h : Injective f) (n : Nat) : Injective (iterate f n) := by
  induction n with
  | zero => exact fun e => e
  | succ n ih => exact fun e => h (ih e)
theorem Relation.Total.flip_reflexive {r : α → α → Prop} (h : Total r) : Reflexive (Relation.flip r) :=
  Reflexive.flip (Total.reflexive h)
theorem Relation.Transitive.flip_on {r : β → β → Prop} (h : Transitive r) (f : α → β) :
    Transitive (On (Relation.flip r) f) := fun a b => h b a

theorem Nat.add_add_add_comm (a b c d : Nat) : a + b + (c + d) = a + c + (b + d) := by
  rw [add_assoc, add_assoc, add_left_comm b c d]
theorem Nat.add_rotate (a b c : Nat) : a + b + c = b + c + a := by rw [add_assoc, add_comm]
theorem Nat.succ_add_eq_add_succ (n m : Nat) : succ n + m = n + succ m := by rw [succ_add, add_succ]
theorem Nat.three_mul (n : Nat) : 3 * n = n + n + n := by
  rw [show (3 : Nat) = 2 + 1 from rfl, add_mul, two_mul, one_mul]
theorem Nat.mul_mul_mul_comm (a b c d : Nat) : a * b * (c * d) = a * c * (b * d) := by
  rw [mul_assoc, mul_assoc, mul_left_comm b c d]
theorem Nat.mul_rotate (a b c : Nat) : a * b * c = b * c * a := by rw [mul_assoc, mul_comm]
theorem Nat.mul_succ_eq (n m : Nat) : n * (m + 1) = n * m + n := by rw [mul_add, mul_one]
theorem Nat.succ_mul_eq (n m : Nat) : (n + 1) * m = n * m + m := by rw [add_mul, one_mul]
theorem Nat.add_mul_self (a b : Nat) : (a + b) * (a + b) = a * a + a * b + (b * a + b * b) := by
  rw [mul_add, add_mul, add_mul, add_add_add_comm]
theorem Nat.mul_eq_zero_iff {n m : Nat} : n * m = 0 ↔ n = 0 ∨ m = 0 := by
  constructor
  · exact eq_zero_or_of_mul_eq_zero
  · intro h
    rcases h with h | h
    · exact mul_eq_zero_of_left h m
    · exact mul_eq_zero_of_right h n
theorem Nat.pow_succ_comm (n m : Nat) : n ^ (m + 1) = n * n ^ m := by rw [pow_add, pow_one, mul_comm]
theorem Nat.pow_two_mul (n m : Nat) : n ^ (2 * m) = n ^ m * n ^ m := by rw [two_mul, pow_add]
theorem Nat.pow_mul (n m k : Nat) : n ^ (m * k) = (n ^ m) ^ k := by
  induction k with
  | zero => rfl
  | succ k ih => rw [mul_succ, pow_add, ih, pow_succ]
theorem Nat.pow_right_comm (n m k : Nat) : (n ^ m) ^ k = (n ^ k) ^ m := by
  rw [← pow_mul, mul_comm, pow_mul]
theorem Nat.zero_pow_succ (n : Nat) : 0 ^ (n + 1) = 0 := by rw [pow_succ, mul_zero]
theorem Nat.eq_of_le_of_not_lt {n m : Nat} (h : n ≤ m) (g : ¬n < m) : n = m := le_antisymm h (le_of_not_lt g)
theorem Nat.lt_of_le_of_ne {n m : Nat} (h : n ≤ m) (g : n ≠ m) : n < m := by
  rcases lt_or_eq_of_le h with k | k
  · exact k
  · exact absurd k g
theorem Nat.lt_iff_not_le {n m : Nat} : n < m ↔ ¬m ≤ n := ⟨not_le_of_lt, lt_of_not_le⟩
theorem Nat.le_iff_not_lt {n m : Nat} : n ≤ m ↔ ¬m < n := ⟨not_lt_of_le, le_of_not_lt⟩
theorem Nat.pos_iff_ne_zero {n : Nat} : 0 < n ↔ n ≠ 0 := ⟨ne_zero_of_pos, pos_of_ne_zero⟩
theorem Nat.eq_zero_or_pos (n : Nat) : n = 0 ∨ 0 < n := by
  cases n with
  | zero => exact Or.inl rfl
  | succ n => exact Or.inr (zero_lt_succ n)
theorem Nat.add_le_add_iff_left {n m k : Nat} : k + n ≤ k + m ↔ n ≤ m :=
  ⟨le_of_add_le_add_left, fun h => add_le_add_left h k⟩
theorem Nat.add_le_add_iff_right {n m k : Nat} : n + k ≤ m + k ↔ n ≤ m :=
  ⟨le_of_add_le_add_right, fun h => add_le_add_right h k⟩
theorem Nat.add_lt_add {n m k l : Nat} (h : n < m) (g : k < l) : n + k < m + l := add_lt_add_of_lt_of_le h (le_of_lt g)
theorem Nat.le_of_add_right_le {n m k : Nat} (h : n + k ≤ m) : n ≤ m := le_trans (le_add_right n k) h
theorem Nat.lt_add_of_lt {n m : Nat} (h : n < m) (k : Nat) : n < m + k := lt_of_lt_of_le h (le_add_right m k)
theorem Nat.mul_le_mul {a b c d : Nat} (h : a ≤ b) (g : c ≤ d) : a * c ≤ b * d :=
  le_trans (mul_le_mul_right c h) (mul_le_mul_left b g)
theorem Nat.le_mul_of_pos_right {m : Nat} (n : Nat) (h : 0 < m) : n ≤ n * m := by
  have k := mul_le_mul_left n h
  rw [mul_one] at k
  exact k
theorem Nat.pow_ne_zero {n : Nat} (h : n ≠ 0) (m : Nat) : n ^ m ≠ 0 := ne_zero_of_pos (pow_pos (pos_of_ne_zero h) m)
theorem Nat.add_sub_self_right_comm (n m k : Nat) : n + m + k - m = n + k := by rw [add_right_comm, add_sub_cancel]
theorem Nat.sub_self_add (n m : Nat) : n - (n + m) = 0 := by rw [sub_add_eq, sub_self, zero_sub]
theorem Nat.sub_sub_comm (n m k : Nat) : n - (m + k) = n - k - m := by rw [sub_add_eq, sub_right_comm]
theorem Nat.sub_eq_zero_iff_le {n m : Nat} : n - m = 0 ↔ n ≤ m := by
  constructor
  · intro h
    rcases le_total n m with k | k
    · exact k
    · have e := sub_add_cancel k
      rw [h, zero_add] at e
      exact le_of_eq e.symm
  · exact sub_eq_zero_of_le
theorem Nat.sub_le_of_le {n m : Nat} (h : n ≤ m) (k : Nat) : n - k ≤ m := le_trans (sub_le n k) h
theorem Nat.min_le_max (n m : Nat) : min n m ≤ max n m := le_trans (min_le_left n m) (le_max_left n m)
theorem Nat.min_zero (n : Nat) : min n 0 = 0 := min_eq_right (zero_le n)
theorem Nat.max_zero (n : Nat) : max n 0 = n := max_eq_left (zero_le n)
theorem Nat.min_add_right_self (n k : Nat) : min n (n + k) = n := min_eq_left (le_add_right n k)
theorem Nat.max_add_right_self (n k : Nat) : max n (n + k) = n + k := max_eq_right (le_add_right n k)
theorem Nat.le_min_iff {k n m : Nat} : k ≤ min n m ↔ k ≤ n ∧ k ≤ m :=
  ⟨fun h => ⟨le_trans h (min_le_left n m), le_trans h (min_le_right n m)⟩, fun h => le_min_of_le h.1 h.2⟩
theorem Nat.max_le_iff {k n m : Nat} : max n m ≤ k ↔ n ≤ k ∧ m ≤ k :=
  ⟨fun h => ⟨le_trans (le_max_left n m) h, le_trans (le_max_right n m) h⟩, fun h => max_le_of_le h.1 h.2⟩
theorem Nat.le_max_of_le_left {k n : Nat} (h : k ≤ n) (m : Nat) : k ≤ max n m := le_trans h (le_max_left n m)
theorem Nat.min_le_of_le_left {k n : Nat} (h : n ≤ k) (m : Nat) : min n m ≤ k := le_trans (min_le_left n m) h
theorem Nat.min_left_self (n m : Nat) : min n (min n m) = min n m := min_eq_right (min_le_left n m)
theorem Nat.divides_self_mul_left (n m k : Nat) : Divides n (n * m * k) := Divides.mul_right (divides_mul_right n m) k
theorem Nat.Divides.mul_left {n m : Nat} (h : Divides n m) (k : Nat) : Divides n (k * m) :=
  Divides.trans h (divides_mul_left m k)
theorem Nat.Divides.add_self {n m : Nat} (h : Divides n m) : Divides n (m + n) := Divides.add h (divides_refl n)
theorem Nat.divides_pow_succ (n m : Nat) : Divides n (n ^ (m + 1)) := by
  rw [pow_add, pow_one]
  exact divides_mul_left n (n ^ m)
theorem Nat.Even.mul_left {n : Nat} (h : Even n) (m : Nat) : Even (m * n) := by rw [mul_comm]; exact Even.mul_right h m
theorem Nat.Even.add_two_mul {n : Nat} (h : Even n) (m : Nat) : Even (n + 2 * m) := Even.add h (even_two_mul m)
theorem Nat.even_mul_two (n : Nat) : Even (n * 2) := by rw [mul_two]; exact even_add_self n

theorem Option.some_eq_some_iff {x y : α} : some x = some y ↔ x = y := ⟨fun e => some_injective e, fun e => by rw [e]⟩
theorem Option.map_eq_none_iff {f : α → β} {o : Option α} : map f o = .none ↔ o = .none := by
  cases o with
  | none => exact ⟨fun _ => rfl, fun _ => rfl⟩
  | some x => exact ⟨fun h => absurd h (some_ne_none (f x)), fun h => absurd h (some_ne_none x)⟩
theorem Option.map_bind (f : β → γ) (g : α → Option β) (o : Option α) : map f (bind o g) = bind o (fun x => map f (g x)) := by
  cases o with
  | none => rw [bind_none, map_none, bind_none]
  | some x => rw [bind_some, bind_some]
theorem Option.isNone_map (f : α → β) (o : Option α) : isNone (map f o) = isNone o := by
  rw [← not_isSome, isSome_map, not_isSome]
theorem Option.isNone_or (o p : Option α) : isNone (or o p) = (isNone o && isNone p) := by cases o <;> rfl
theorem Option.isSome_map_or (f : α → β) (o p : Option α) : isSome (map f (or o p)) = (isSome o || isSome p) := by
  rw [isSome_map, isSome_or]
theorem Option.getD_map_map (g : β → γ) (f : α → β) (o : Option α) (d : α) :
    getD (map g (map f o)) (g (f d)) = g (f (getD o d)) := by rw [getD_map, getD_map]
theorem Option.ne_none_of_isSome {o : Option α} (h : isSome o = true) : o ≠ .none := by
  intro e
  rw [e, isSome_none] at h
  exact nomatch h
theorem Option.filter_filter_self (p : α → Bool) (o : Option α) : filter p (filter p o) = filter p o := by
  cases o with
  | none => rfl
  | some x =>
    by_cases h : p x = true
    · rw [filter_some_of_pos h, filter_some_of_pos h]
    · rw [filter_some_of_neg h, filter_none]

theorem List.append_eq_nil_iff {xs ys : List α} : xs ++ ys = [] ↔ xs = [] ∧ ys = [] :=
  ⟨fun h => ⟨append_eq_nil_left h, append_eq_nil_right h⟩, fun h => by rw [h.1, h.2, nil_append]⟩
theorem List.append_cancel_left_iff {xs ys zs : List α} : xs ++ ys = xs ++ zs ↔ ys = zs :=
  ⟨append_cancel_left, fun h => by rw [h]⟩
theorem List.append_assoc_three (ws xs ys zs : List α) : ws ++ xs ++ ys ++ zs = ws ++ (xs ++ (ys ++ zs)) := by
  rw [append_assoc, append_assoc]
theorem List.length_append_comm (xs ys : List α) : length (xs ++ ys) = length (ys ++ xs) := by
  rw [length_append, length_append, Nat.add_comm]
theorem List.length_append_singleton (xs : List α) (x : α) : length (xs ++ [x]) = length xs + 1 := by
  rw [length_append, length_singleton]
theorem List.length_pos_of_mem {a : α} {xs : List α} (h : a ∈ xs) : 0 < length xs := length_pos_of_ne_nil (ne_nil_of_mem h)
theorem List.length_le_append_left (xs ys : List α) : length xs ≤ length (xs ++ ys) := by
  rw [length_append]
  exact Nat.le_add_right (length xs) (length ys)
theorem List.length_map_append (f : α → β) (xs ys : List α) : length (map f (xs ++ ys)) = length xs + length ys := by
  rw [length_map, length_append]
theorem List.length_map_map (g : β → γ) (f : α → β) (xs : List α) : length (map g (map f xs)) = length xs := by
  rw [length_map, length_map]
theorem List.length_reverse_append (xs ys : List α) : length (reverse (xs ++ ys)) = length ys + length xs := by
  rw [reverse_append, length_append, length_reverse, length_reverse]
theorem List.map_append_singleton (f : α → β) (xs : List α) (x : α) : map f (xs ++ [x]) = map f xs ++ [f x] := by
  rw [map_append, map_singleton]
theorem List.map_eq_nil_iff {f : α → β} {xs : List α} : map f xs = [] ↔ xs = [] := by
  cases xs with
  | nil => exact ⟨fun _ => rfl, fun _ => rfl⟩
  | cons x xs => exact ⟨fun h => absurd h (cons_ne_nil (f x) (map f xs)), fun h => absurd h (cons_ne_nil x xs)⟩
theorem List.map_injective {f : α → β} (h : Function.Injective f) : Function.Injective (map f) := by
  intro xs
  induction xs with
  | nil =>
    intro ys e
    cases ys with
    | nil => rfl
    | cons y ys => exact absurd e.symm (cons_ne_nil (f y) (map f ys))
  | cons x xs ih =>
    intro ys e
    cases ys with
    | nil => exact absurd e (cons_ne_nil (f x) (map f xs))
    | cons y ys =>
      rw [map_cons, map_cons] at e
      injection e with a b
      rw [h a, ih b]
theorem List.reverse_append_singleton (xs : List α) (x : α) : reverse (xs ++ [x]) = x :: reverse xs := by
  rw [reverse_append, reverse_singleton, singleton_append]
theorem List.reverse_injective : Function.Injective (reverse : List α → List α) := by
  intro xs ys e
  rw [← reverse_reverse xs, ← reverse_reverse ys, e]
theorem List.reverse_eq_nil_iff {xs : List α} : reverse xs = [] ↔ xs = [] := by
  constructor
  · intro h
    rw [← reverse_reverse xs, h, reverse_nil]
  · intro h
    rw [h, reverse_nil]
theorem List.reverse_map_reverse (f : α → β) (xs : List α) : reverse (map f (reverse xs)) = map f xs := by
  rw [map_reverse, reverse_reverse]
theorem List.filter_append_singleton_of_pos {p : α → Bool} {x : α} (h : p x = true) (xs : List α) :
    filter p (xs ++ [x]) = filter p xs ++ [x] := by rw [filter_append, filter_cons_of_pos h, filter_nil]
theorem List.length_filter_append (p : α → Bool) (xs ys : List α) :
    length (filter p (xs ++ ys)) = length (filter p xs) + length (filter p ys) := by rw [filter_append, length_append]
theorem List.length_filter_reverse (p : α → Bool) (xs : List α) :
    length (filter p (reverse xs)) = length (filter p xs) := by rw [filter_reverse, length_reverse]
theorem List.foldl_append_singleton (f : β → α → β) (b : β) (xs : List α) (x : α) :
    foldl f b (xs ++ [x]) = f (foldl f b xs) x := by rw [foldl_append, foldl_cons, foldl_nil]
theorem List.foldl_reverse (f : β → α → β) (b : β) (xs : List α) :
    foldl f b (reverse xs) = foldr (fun x y => f y x) b xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [reverse_cons, foldl_append_singleton, ih, foldr_cons]
theorem List.sum_eq_foldr (ns : List Nat) : sum ns = foldr (fun n m => n + m) 0 ns := by
  induction ns with
  | nil => rfl
  | cons n ns ih => rw [sum_cons, foldr_cons, ih]
theorem List.length_take_append_drop (n : Nat) (xs : List α) : length (take n xs) + length (drop n xs) = length xs := by
  rw [← length_append, take_append_drop]
theorem List.take_one_cons (x : α) (xs : List α) : take 1 (x :: xs) = [x] := by rw [take_succ_cons, take_zero]
theorem List.drop_one (xs : List α) : drop 1 xs = tail xs := by
  cases xs with
  | nil => rfl
  | cons x xs => rw [drop_succ_cons, drop_zero, tail_cons]
theorem List.drop_length_add (n : Nat) (xs : List α) : drop (length xs + n) xs = [] := by
  rw [← drop_drop, drop_length, drop_nil]
theorem List.drop_append_length (xs ys : List α) : drop (length xs) (xs ++ ys) = ys := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [length_cons, cons_append, drop_succ_cons, ih]
theorem List.length_replicate_append (m n : Nat) (x : α) : length (replicate m x ++ replicate n x) = m + n := by
  rw [← replicate_add, length_replicate]
theorem List.map_replicate_append (f : α → β) (m n : Nat) (x : α) :
    map f (replicate m x ++ replicate n x) = replicate (m + n) (f x) := by rw [← replicate_add, map_replicate]
theorem List.reverse_replicate_append (n : Nat) (x : α) (xs : List α) :
    reverse (replicate n x ++ xs) = reverse xs ++ replicate n x := by rw [reverse_append, reverse_replicate]
theorem List.flatten_append_singleton (xss : List (List α)) (xs : List α) : flatten (xss ++ [xs]) = flatten xss ++ xs := by
  rw [flatten_append, flatten_cons, flatten_nil, append_nil]
theorem List.flatMap_singleton (f : α → List β) (x : α) : flatMap f [x] = f x := by
  rw [flatMap_cons, flatMap_nil, append_nil]
theorem List.map_flatMap (g : β → γ) (f : α → List β) (xs : List α) :
    map g (flatMap f xs) = flatMap (fun x => map g (f x)) xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [flatMap_cons, map_append, ih, flatMap_cons]
theorem List.any_append_comm (p : α → Bool) (xs ys : List α) : any p (xs ++ ys) = any p (ys ++ xs) := by
  rw [any_append, any_append, Bool.or_comm]
theorem List.all_append_comm (p : α → Bool) (xs ys : List α) : all p (xs ++ ys) = all p (ys ++ xs) := by
  rw [all_append, all_append, Bool.and_comm]
theorem List.all_map (p : β → Bool) (f : α → β) (xs : List α) : all p (map f xs) = all (Function.compose p f) xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [map_cons, all_cons, all_cons, ih, Function.compose_apply]
theorem List.any_reverse (p : α → Bool) (xs : List α) : any p (reverse xs) = any p xs := by
  induction xs with
  | nil => rfl
  | cons x xs ih => rw [reverse_cons, any_append, ih, any_cons, any_nil, Bool.or_false, any_cons, Bool.or_comm]
theorem List.mem_append_comm {a : α} {xs ys : List α} : a ∈ xs ++ ys ↔ a ∈ ys ++ xs := by
  rw [mem_append, mem_append, or_comm]
theorem List.mem_append_cons_self (a : α) (xs ys : List α) : a ∈ xs ++ a :: ys := mem_append_right xs (mem_cons_self a ys)
theorem List.mem_reverse_append {a : α} {xs ys : List α} : a ∈ reverse xs ++ ys ↔ a ∈ xs ∨ a ∈ ys := by
  rw [mem_append, mem_reverse]
theorem List.mem_of_mem_drop {a : α} {n : Nat} {xs : List α} (h : a ∈ drop n xs) : a ∈ xs := by
  have k := mem_append_right (take n xs) h
  rw [take_append_drop] at k
  exact k
theorem List.mem_map_reverse {b : β} {f : α → β} {xs : List α} : b ∈ map f (reverse xs) ↔ b ∈ map f xs := by
  rw [map_reverse, mem_reverse]
theorem List.sum_append_comm (ms ns : List Nat) : sum (ms ++ ns) = sum (ns ++ ms) := by
  rw [sum_append, sum_append, Nat.add_comm]
theorem List.sum_append_singleton (ns : List Nat) (n : Nat) : sum (ns ++ [n]) = sum ns + n := by
  rw [sum_append, sum_singleton]
theorem List.sum_reverse (ns : List Nat) : sum (reverse ns) = sum ns := by
  exact Perm.sum_eq (reverse_perm ns)
theorem List.sum_replicate_zero (n : Nat) : sum (replicate n 0) = 0 := by rw [sum_replicate, Nat.mul_zero]
theorem List.sum_replicate_add (m n k : Nat) : sum (replicate (m + n) k) = m * k + n * k := by
  rw [sum_replicate, Nat.add_mul]
theorem List.countP_append_comm (p : α → Bool) (xs ys : List α) : countP p (xs ++ ys) = countP p (ys ++ xs) := by
  rw [countP_append, countP_append, Nat.add_comm]
theorem List.countP_append_le (p : α → Bool) (xs ys : List α) : countP p xs ≤ countP p (xs ++ ys) := by
  rw [countP_append]
  exact Nat.le_add_right (countP p xs) (countP p ys)
theorem List.head?_cons_append (x : α) (xs ys : List α) : head? (x :: xs ++ ys) = .some x := by
  rw [cons_append, head?_cons]
theorem List.head?_map_append (f : α → β) (xs ys : List α) :
    head? (map f (xs ++ ys)) = Option.or (Option.map f (head? xs)) (Option.map f (head? ys)) := by
  rw [map_append, head?_append, head?_map, head?_map]
theorem List.subset_append_of_left {xs ys : List α} (h : Subset xs ys) (zs : List α) : Subset xs (ys ++ zs) :=
  fun k => Subset.trans h (subset_append_left ys zs) k
theorem List.subset_cons_of {xs ys : List α} (x : α) (h : Subset xs ys) : Subset xs (x :: ys) :=
  fun k => Subset.trans h (subset_cons_self x ys) k
theorem List.append_self_subset (xs : List α) : Subset (xs ++ xs) xs :=
  fun k => Subset.append (Subset.refl xs) (Subset.refl xs) k
theorem List.take_length_le_length (n : Nat) (xs : List α) : length (take n xs) ≤ length xs :=
  IsPrefix.length_le (take_isPrefix n xs)
theorem List.prefix_append_of_prefix {xs ys : List α} (h : IsPrefix xs ys) (zs : List α) : IsPrefix xs (ys ++ zs) :=
  IsPrefix.trans h (prefix_append ys zs)
theorem List.sublist_cons_self (x : α) (xs : List α) : Sublist xs (x :: xs) := Sublist.cons x (Sublist.refl xs)
theorem List.length_le_of_append_sublist {xs ys zs : List α} (h : Sublist (xs ++ ys) zs) :
    length xs + length ys ≤ length zs := by
  rw [← length_append]
  exact Sublist.length_le h
theorem List.Perm.append {ws xs ys zs : List α} (h : Perm ws xs) (g : Perm ys zs) : Perm (ws ++ ys) (xs ++ zs) :=
  Perm.trans (Perm.append_right h ys) (Perm.append_left xs g)
theorem List.Perm.eq_nil {xs : List α} (h : Perm xs []) : xs = [] := eq_nil_of_length_eq_zero (Perm.length_eq h)
theorem List.Perm.mem_of_mem {a : α} {xs ys : List α} (h : Perm xs ys) (k : a ∈ xs) : a ∈ ys := (Perm.mem_iff h).mp k
theorem List.perm_append_singleton (x : α) (xs : List α) : Perm (xs ++ [x]) (x :: xs) := perm_append_comm xs [x]
theorem List.Perm.reverse_left {xs ys : List α} (h : Perm xs ys) : Perm (reverse xs) ys :=
  Perm.trans (reverse_perm xs) h
theorem List.perm_reverse (xs : List α) : Perm xs (reverse xs) := Perm.symm (reverse_perm xs)
theorem List.map_reverse_perm (f : α → β) (xs : List α) : Perm (map f (reverse xs)) (map f xs) :=
  Perm.map f (reverse_perm xs)

theorem Order.Partial.transitive {r : α → α → Prop} (h : Partial r) : Relation.Transitive r :=
  fun a b => h.preorder.trans a b
theorem Order.preorder_ge : Preorder (Relation.flip (fun n m : Nat => n ≤ m)) := Preorder.flip preorder_le
theorem Order.partial_ge : Partial (Relation.flip (fun n m : Nat => n ≤ m)) := Partial.flip partial_le
theorem Order.monotone_iterate_id (r : α → α → Prop) (n : Nat) : Monotone r r (Function.iterate id n) :=
  by
  intro x y h
  exact monotone_iterate (r := r) (fun k => k) n h
theorem Order.Sorted.filter_tail {r : α → α → Prop} (p : α → Bool) {x : α} {xs : List α} (h : Sorted r (x :: xs)) :
    Sorted r (List.filter p xs) := Sorted.filter p (Sorted.tail h)
theorem Order.sorted_pair {r : α → α → Prop} {x y : α} (h : r x y) : Sorted r [x, y] :=
  Sorted.cons (fun z k => by rw [List.mem_singleton.mp k]; exact h) (sorted_singleton r y)
