import Lists
/-! Orders: monotone functions, bounds, the orders of numbers and lists. -/

structure Order.Preorder (r : α → α → Prop) : Prop where
  refl : ∀ x, r x x
  trans : ∀ {x y z}, r x y → r y z → r x z
structure Order.Partial (r : α → α → Prop) : Prop where
  preorder : Order.Preorder r
  antisymm : ∀ {x y}, r x y → r y x → x = y
def Order.Monotone (r : α → α → Prop) (s : β → β → Prop) (f : α → β) : Prop := ∀ {x y}, r x y → s (f x) (f y)
def Order.Antitone (r : α → α → Prop) (s : β → β → Prop) (f : α → β) : Prop := ∀ {x y}, r x y → s (f y) (f x)
def Order.UpperBound (r : α → α → Prop) (p : α → Prop) (b : α) : Prop := ∀ {x}, p x → r x b
def Order.LowerBound (r : α → α → Prop) (p : α → Prop) (b : α) : Prop := ∀ {x}, p x → r b x
def Order.Greatest (r : α → α → Prop) (p : α → Prop) (b : α) : Prop := p b ∧ UpperBound r p b
def Order.Least (r : α → α → Prop) (p : α → Prop) (b : α) : Prop := p b ∧ LowerBound r p b
theorem Order.Preorder.flip {r : α → α → Prop} (h : Preorder r) : Preorder (Relation.flip r) :=
  ⟨fun x => h.refl x, fun a b => h.trans b a⟩
theorem Order.Preorder.reflexive {r : α → α → Prop} (h : Preorder r) : Relation.Reflexive r := fun x => h.refl x
theorem Order.Preorder.transitive {r : α → α → Prop} (h : Preorder r) : Relation.Transitive r := fun a b => h.trans a b
theorem Order.Partial.antisymmetric {r : α → α → Prop} (h : Partial r) : Relation.Antisymmetric r :=
  fun a b => h.antisymm a b
theorem Order.Partial.flip {r : α → α → Prop} (h : Partial r) : Partial (Relation.flip r) :=
  ⟨Preorder.flip h.preorder, fun a b => h.antisymm b a⟩
theorem Order.Preorder.on {r : β → β → Prop} (h : Preorder r) (f : α → β) : Preorder (Relation.On r f) :=
  ⟨fun x => h.refl (f x), fun a b => h.trans a b⟩
theorem Order.preorder_eq : Preorder (fun x y : α => x = y) := ⟨fun _ => rfl, fun a b => a.trans b⟩
theorem Order.preorder_le : Preorder (fun n m : Nat => n ≤ m) := ⟨fun n => Nat.le_refl n, fun a b => Nat.le_trans a b⟩
theorem Order.partial_le : Partial (fun n m : Nat => n ≤ m) := ⟨preorder_le, fun a b => Nat.le_antisymm a b⟩
theorem Order.preorder_divides : Preorder Nat.Divides := ⟨fun n => Nat.divides_refl n, fun a b => Nat.Divides.trans a b⟩
theorem Order.preorder_subset : Preorder (fun xs ys : List α => List.Subset xs ys) :=
  ⟨fun xs => List.Subset.refl xs, fun a b => List.Subset.trans a b⟩
theorem Order.preorder_isPrefix : Preorder (fun xs ys : List α => List.IsPrefix xs ys) :=
  ⟨fun xs => List.IsPrefix.refl xs, fun a b => List.IsPrefix.trans a b⟩
theorem Order.monotone_id (r : α → α → Prop) : Monotone r r id := fun h => h
theorem Order.monotone_const {s : β → β → Prop} (h : Preorder s) (r : α → α → Prop) (b : β) :
    Monotone r s (fun _ => b) := fun _ => h.refl b
theorem Order.Monotone.comp {r : α → α → Prop} {s : β → β → Prop} {t : γ → γ → Prop} {g : β → γ} {f : α → β}
    (hg : Monotone s t g) (hf : Monotone r s f) : Monotone r t (Function.compose g f) := fun h => hg (hf h)
theorem Order.Antitone.comp {r : α → α → Prop} {s : β → β → Prop} {t : γ → γ → Prop} {g : β → γ} {f : α → β}
    (hg : Antitone s t g) (hf : Antitone r s f) : Monotone r t (Function.compose g f) := fun h => hg (hf h)
theorem Order.Antitone.flip {r : α → α → Prop} {s : β → β → Prop} {f : α → β} (h : Antitone r s f) :
    Monotone (Relation.flip r) s f := fun k => h k
theorem Order.monotone_add_left (k : Nat) : Monotone (fun n m => n ≤ m) (fun n m => n ≤ m) (fun n => k + n) :=
  fun h => Nat.add_le_add_left h k
theorem Order.monotone_add_right (k : Nat) : Monotone (fun n m => n ≤ m) (fun n m => n ≤ m) (fun n => n + k) :=
  fun h => Nat.add_le_add_right h k
theorem Order.monotone_mul_left (k : Nat) : Monotone (fun n m => n ≤ m) (fun n m => n ≤ m) (fun n => k * n) :=
  fun h => Nat.mul_le_mul_left k h
theorem Order.monotone_iterate {r : α → α → Prop} {f : α → α} (h : Monotone r r f) (n : Nat) :
    Monotone r r (Function.iterate f n) := by
  induction n with
  | zero => exact fun k => k
  | succ n ih => exact fun k => ih (h k)
theorem Order.UpperBound.of_rel {r : α → α → Prop} (h : Relation.Transitive r) {p : α → Prop} {b c : α}
    (k : UpperBound r p b) (g : r b c) : UpperBound r p c := fun hp => h (k hp) g
theorem Order.LowerBound.of_rel {r : α → α → Prop} (h : Relation.Transitive r) {p : α → Prop} {b c : α}
    (k : LowerBound r p b) (g : r c b) : LowerBound r p c := fun hp => h g (k hp)
theorem Order.UpperBound.of_imp {r : α → α → Prop} {p q : α → Prop} {b : α} (h : UpperBound r q b)
    (g : ∀ x, p x → q x) : UpperBound r p b := fun hp => h (g _ hp)
theorem Order.Greatest.mem {r : α → α → Prop} {p : α → Prop} {b : α} (h : Greatest r p b) : p b := h.1
theorem Order.Greatest.upperBound {r : α → α → Prop} {p : α → Prop} {b : α} (h : Greatest r p b) :
    UpperBound r p b := fun hp => h.2 hp
theorem Order.Greatest.unique {r : α → α → Prop} (k : Relation.Antisymmetric r) {p : α → Prop} {b c : α}
    (h : Greatest r p b) (g : Greatest r p c) : b = c := k (g.2 h.1) (h.2 g.1)
theorem Order.Least.unique {r : α → α → Prop} (k : Relation.Antisymmetric r) {p : α → Prop} {b c : α}
    (h : Least r p b) (g : Least r p c) : b = c := k (h.2 g.1) (g.2 h.1)
theorem Order.least_zero {p : Nat → Prop} (h : p 0) : Least (fun n m => n ≤ m) p 0 :=
  ⟨h, fun {n} _ => Nat.zero_le n⟩

inductive Order.Sorted (r : α → α → Prop) : List α → Prop
  | nil : Sorted r []
  | cons {x : α} {xs : List α} (h : ∀ y, y ∈ xs → r x y) (g : Sorted r xs) : Sorted r (x :: xs)
theorem Order.sorted_nil (r : α → α → Prop) : Sorted r [] := Sorted.nil
theorem Order.sorted_singleton (r : α → α → Prop) (x : α) : Sorted r [x] :=
  Sorted.cons (fun y h => absurd h (List.not_mem_nil y)) Sorted.nil
theorem Order.Sorted.tail {r : α → α → Prop} {x : α} {xs : List α} (h : Sorted r (x :: xs)) : Sorted r xs := by
  cases h with
  | cons _ g => exact g
theorem Order.Sorted.rel_of_mem {r : α → α → Prop} {x y : α} {xs : List α} (h : Sorted r (x :: xs)) (k : y ∈ xs) :
    r x y := by
  cases h with
  | cons h _ => exact h y k
theorem Order.Sorted.filter {r : α → α → Prop} (p : α → Bool) {xs : List α} (h : Sorted r xs) :
    Sorted r (List.filter p xs) := by
  induction h with
  | nil => exact Sorted.nil
  | cons h _ ih =>
    rename_i x xs _
    by_cases k : p x = true
    · rw [List.filter_cons_of_pos k]; exact Sorted.cons (fun y l => h y (List.filter_subset p xs l)) ih
    · rw [List.filter_cons_of_neg k]; exact ih
