import Naturals
/-! Options and pairs. -/

def Option.map (f : α → β) : Option α → Option β
  | .none => .none
  | .some x => .some (f x)
def Option.bind (o : Option α) (f : α → Option β) : Option β :=
  match o with
  | .none => .none
  | .some x => f x
def Option.getD (o : Option α) (d : α) : α :=
  match o with
  | .none => d
  | .some x => x
def Option.isSome : Option α → Bool
  | .none => false
  | .some _ => true
def Option.isNone : Option α → Bool
  | .none => true
  | .some _ => false
def Option.or (o p : Option α) : Option α :=
  match o with
  | .none => p
  | .some x => .some x
def Option.filter (p : α → Bool) : Option α → Option α
  | .none => .none
  | .some x => if p x = true then .some x else .none
@[simp] theorem Option.map_none (f : α → β) : map f .none = .none := rfl
@[simp] theorem Option.map_some (f : α → β) (x : α) : map f (.some x) = .some (f x) := rfl
@[simp] theorem Option.bind_none (f : α → Option β) : bind .none f = .none := rfl
@[simp] theorem Option.bind_some (x : α) (f : α → Option β) : bind (.some x) f = f x := rfl
@[simp] theorem Option.getD_none (d : α) : getD .none d = d := rfl
@[simp] theorem Option.getD_some (x d : α) : getD (.some x) d = x := rfl
@[simp] theorem Option.isSome_some (x : α) : isSome (.some x) = true := rfl
@[simp] theorem Option.isSome_none : isSome (.none : Option α) = false := rfl
theorem Option.none_or (p : Option α) : or .none p = p := rfl
theorem Option.some_or (x : α) (p : Option α) : or (.some x) p = .some x := rfl
theorem Option.or_none (o : Option α) : or o .none = o := by
  cases o with
  | none => exact none_or .none
  | some x => exact some_or x .none
theorem Option.or_assoc (o p q : Option α) : or (or o p) q = or o (or p q) := by
  cases o with
  | none => rw [none_or, none_or]
  | some x => rw [some_or, some_or, some_or]
theorem Option.or_self (o : Option α) : or o o = o := by
  cases o with
  | none => exact none_or .none
  | some x => exact some_or x (.some x)
theorem Option.some_injective : Function.Injective (some : α → Option α) := by
  intro x y e
  cases e
  rfl
theorem Option.some_ne_none (x : α) : some x ≠ .none := fun e => nomatch e
theorem Option.eq_none_or_exists_some (o : Option α) : o = .none ∨ ∃ x, o = .some x := by
  cases o with
  | none => exact Or.inl rfl
  | some x => exact Or.inr ⟨x, rfl⟩
theorem Option.map_id (o : Option α) : map id o = o := by
  cases o with
  | none => exact map_none id
  | some x => exact map_some id x
theorem Option.map_map (g : β → γ) (f : α → β) (o : Option α) : map g (map f o) = map (Function.compose g f) o := by
  cases o with
  | none => rw [map_none, map_none, map_none]
  | some x => rw [map_some, map_some, map_some, Function.compose_apply]
theorem Option.bind_some_eq_self (o : Option α) : bind o some = o := by
  cases o with
  | none => exact bind_none some
  | some x => exact bind_some x some
theorem Option.bind_assoc (o : Option α) (f : α → Option β) (g : β → Option γ) :
    bind (bind o f) g = bind o (fun x => bind (f x) g) := by
  cases o with
  | none => rw [bind_none, bind_none, bind_none]
  | some x => rw [bind_some, bind_some]
theorem Option.map_eq_bind (f : α → β) (o : Option α) : map f o = bind o (fun x => some (f x)) := by
  cases o with
  | none => rw [map_none, bind_none]
  | some x => rw [map_some, bind_some]
theorem Option.bind_map (f : α → β) (g : β → Option γ) (o : Option α) : bind (map f o) g = bind o (Function.compose g f) := by
  cases o with
  | none => rw [map_none, bind_none, bind_none]
  | some x => rw [map_some, bind_some, bind_some, Function.compose_apply]
theorem Option.map_or (f : α → β) (o p : Option α) : map f (or o p) = or (map f o) (map f p) := by
  cases o with
  | none => rw [none_or, map_none, none_or]
  | some x => rw [some_or, map_some, some_or]
theorem Option.isSome_map (f : α → β) (o : Option α) : isSome (map f o) = isSome o := by
  cases o with
  | none => rw [map_none, isSome_none, isSome_none]
  | some x => rw [map_some, isSome_some, isSome_some]
theorem Option.isSome_or (o p : Option α) : isSome (or o p) = (isSome o || isSome p) := by
  cases o with
  | none => rw [none_or, isSome_none, Bool.false_or]
  | some x => rw [some_or, isSome_some, Bool.true_or]
theorem Option.not_isSome (o : Option α) : (!isSome o) = isNone o := by cases o <;> rfl
theorem Option.not_isNone (o : Option α) : (!isNone o) = isSome o := by cases o <;> rfl
theorem Option.isSome_iff_exists {o : Option α} : isSome o = true ↔ ∃ x, o = .some x := by
  cases o with
  | none =>
    constructor
    · intro h
      exact nomatch h
    · intro h
      obtain ⟨x, h⟩ := h
      exact absurd h.symm (some_ne_none x)
  | some x => exact ⟨fun _ => ⟨x, rfl⟩, fun _ => isSome_some x⟩
theorem Option.isNone_iff_eq_none {o : Option α} : isNone o = true ↔ o = .none := by
  cases o with
  | none => exact ⟨fun _ => rfl, fun _ => rfl⟩
  | some x => exact ⟨fun h => (nomatch h), fun h => absurd h (some_ne_none x)⟩
theorem Option.getD_map (f : α → β) (o : Option α) (d : α) : getD (map f o) (f d) = f (getD o d) := by
  cases o with
  | none => rw [map_none, getD_none, getD_none]
  | some x => rw [map_some, getD_some, getD_some]
theorem Option.getD_or (o p : Option α) (d : α) : getD (or o p) d = getD o (getD p d) := by
  cases o with
  | none => rw [none_or, getD_none]
  | some x => rw [some_or, getD_some, getD_some]
theorem Option.filter_none (p : α → Bool) : filter p .none = .none := rfl
theorem Option.filter_some_of_pos {p : α → Bool} {x : α} (h : p x = true) : filter p (.some x) = .some x := if_pos h
theorem Option.filter_some_of_neg {p : α → Bool} {x : α} (h : ¬p x = true) : filter p (.some x) = .none := if_neg h

def Prod.swap (x : α × β) : β × α := (x.2, x.1)
def Prod.map (f : α → γ) (g : β → δ) (x : α × β) : γ × δ := (f x.1, g x.2)
theorem Prod.swap_swap (x : α × β) : swap (swap x) = x := by cases x; rfl
theorem Prod.fst_swap (x : α × β) : (swap x).1 = x.2 := rfl
theorem Prod.snd_swap (x : α × β) : (swap x).2 = x.1 := rfl
theorem Prod.ext_iff {x y : α × β} : x = y ↔ x.1 = y.1 ∧ x.2 = y.2 := by
  constructor
  · intro h
    rw [h]
    exact ⟨rfl, rfl⟩
  · intro h
    cases x
    cases y
    obtain ⟨a, b⟩ := h
    simp_all
theorem Prod.fst_map (f : α → γ) (g : β → δ) (x : α × β) : (map f g x).1 = f x.1 := rfl
theorem Prod.snd_map (f : α → γ) (g : β → δ) (x : α × β) : (map f g x).2 = g x.2 := rfl
theorem Prod.swap_map (f : α → γ) (g : β → δ) (x : α × β) : swap (map f g x) = map g f (swap x) := rfl
theorem Prod.swap_leftInverse : Function.LeftInverse (swap : β × α → α × β) (swap : α × β → β × α) :=
  fun x => swap_swap x
theorem Prod.swap_injective : Function.Injective (swap : α × β → β × α) :=
  fun e => Function.LeftInverse.injective swap_leftInverse e
