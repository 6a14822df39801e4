/-! Propositions, truth values, functions and relations. -/

theorem Bool.of_not_eq_true {b : Bool} (h : ¬b = true) : b = false := by
  cases b with
  | true => exact absurd rfl h
  | false => rfl
theorem Bool.eq_false_or_eq_true (b : Bool) : b = true ∨ b = false := by
  cases b with
  | true => exact Or.inl rfl
  | false => exact Or.inr rfl
@[simp] theorem Bool.and_true (b : Bool) : (b && true) = b := by cases b <;> rfl
@[simp] theorem Bool.true_and (b : Bool) : (true && b) = b := by cases b <;> rfl
@[simp] theorem Bool.and_false (b : Bool) : (b && false) = false := by cases b <;> rfl
@[simp] theorem Bool.false_and (b : Bool) : (false && b) = false := by cases b <;> rfl
@[simp] theorem Bool.or_false (b : Bool) : (b || false) = b := by cases b <;> rfl
@[simp] theorem Bool.false_or (b : Bool) : (false || b) = b := by cases b <;> rfl
@[simp] theorem Bool.or_true (b : Bool) : (b || true) = true := by cases b <;> rfl
@[simp] theorem Bool.true_or (b : Bool) : (true || b) = true := by cases b <;> rfl
theorem Bool.and_comm (a b : Bool) : (a && b) = (b && a) := by
  cases a with
  | true => rw [true_and, and_true]
  | false => rw [false_and, and_false]
theorem Bool.or_comm (a b : Bool) : (a || b) = (b || a) := by
  cases a with
  | true => rw [true_or, or_true]
  | false => rw [false_or, or_false]
theorem Bool.and_assoc (a b c : Bool) : ((a && b) && c) = (a && (b && c)) := by
  cases a with
  | true => rw [true_and, true_and]
  | false => rw [false_and, false_and, false_and]
theorem Bool.or_assoc (a b c : Bool) : ((a || b) || c) = (a || (b || c)) := by
  cases a with
  | true => rw [true_or, true_or, true_or]
  | false => rw [false_or, false_or]
theorem Bool.and_or_distrib_left (a b c : Bool) : (a && (b || c)) = ((a && b) || (a && c)) := by
  cases a with
  | true => rw [true_and, true_and, true_and]
  | false => rw [false_and, false_and, false_and, false_or]
theorem Bool.not_not (b : Bool) : (!(!b)) = b := by cases b <;> rfl
theorem Bool.not_and (a b : Bool) : (!(a && b)) = ((!a) || (!b)) := by cases a <;> cases b <;> rfl
theorem Bool.and_self (b : Bool) : (b && b) = b := by cases b <;> rfl
theorem Bool.and_eq_true_iff {a b : Bool} : (a && b) = true ↔ a = true ∧ b = true := by
  cases a <;> cases b <;> decide
theorem Bool.or_eq_true_iff {a b : Bool} : (a || b) = true ↔ a = true ∨ b = true := by
  cases a <;> cases b <;> decide
theorem Bool.not_eq_true_iff {b : Bool} : (!b) = true ↔ b = false := by cases b <;> decide

theorem And.left_comm : p ∧ (q ∧ r) ↔ q ∧ (p ∧ r) := by
  rw [← and_assoc, ← and_assoc, and_comm (a := p)]
theorem Or.left_comm : p ∨ (q ∨ r) ↔ q ∨ (p ∨ r) := by
  rw [← or_assoc, ← or_assoc, or_comm (a := p)]
theorem And.imp_both (f : p → r) (g : q → s) (h : p ∧ q) : r ∧ s := ⟨f h.1, g h.2⟩
theorem Or.imp_both (f : p → r) (g : q → s) (h : p ∨ q) : r ∨ s := h.elim (fun x => Or.inl (f x)) (fun x => Or.inr (g x))
theorem Or.of_imp_left (f : p → q) (h : p ∨ r) : q ∨ r := by
  exact Or.imp_both f id h
theorem And.of_imp_left (f : p → q) (h : p ∧ r) : q ∧ r := by
  exact And.imp_both f id h
theorem Not.of_imp (f : p → q) (h : ¬q) : ¬p := fun x => h (f x)
theorem and_or_distrib_left : p ∧ (q ∨ r) ↔ (p ∧ q) ∨ (p ∧ r) := by
  constructor
  · intro h
    rcases h with ⟨hp, h⟩
    exact Or.imp_both (fun x => ⟨hp, x⟩) (fun x => ⟨hp, x⟩) h
  · intro h
    rcases h with h | h
    · exact ⟨h.1, Or.inl h.2⟩
    · exact ⟨h.1, Or.inr h.2⟩
theorem exists_or_distrib {p q : α → Prop} : (∃ x, p x ∨ q x) ↔ (∃ x, p x) ∨ (∃ x, q x) := by
  constructor
  · intro h
    obtain ⟨x, h⟩ := h
    exact Or.imp_both (fun y => ⟨x, y⟩) (fun y => ⟨x, y⟩) h
  · intro h
    rcases h with h | h
    · obtain ⟨x, h⟩ := h
      exact ⟨x, Or.inl h⟩
    · obtain ⟨x, h⟩ := h
      exact ⟨x, Or.inr h⟩
theorem forall_and_distrib {p q : α → Prop} : (∀ x, p x ∧ q x) ↔ (∀ x, p x) ∧ (∀ x, q x) :=
  ⟨fun h => ⟨fun x => (h x).1, fun x => (h x).2⟩, fun h x => ⟨h.1 x, h.2 x⟩⟩
theorem not_exists_of_forall_not {p : α → Prop} (h : ∀ x, ¬p x) : ¬∃ x, p x := by
  intro k
  obtain ⟨x, k⟩ := k
  exact h x k

def Function.compose (g : β → γ) (f : α → β) : α → γ := fun x => g (f x)
theorem Function.compose_apply (g : β → γ) (f : α → β) (x : α) : compose g f x = g (f x) := rfl
theorem Function.compose_assoc (h : γ → δ) (g : β → γ) (f : α → β) :
    compose (compose h g) f = compose h (compose g f) := rfl
theorem Function.compose_id (f : α → β) : compose f id = f := rfl
theorem Function.id_compose (f : α → β) : compose id f = f := rfl
def Function.Injective (f : α → β) : Prop := ∀ {x y : α}, f x = f y → x = y
def Function.Surjective (f : α → β) : Prop := ∀ y : β, ∃ x : α, f x = y
def Function.LeftInverse (g : β → α) (f : α → β) : Prop := ∀ x : α, g (f x) = x
theorem Function.Injective.eq {f : α → β} (h : Injective f) {x y : α} (e : f x = f y) : x = y := h e
theorem Function.injective_id : Injective (id : α → α) := fun e => e
theorem Function.surjective_id : Surjective (id : α → α) := fun y => ⟨y, rfl⟩
theorem Function.Injective.comp {g : β → γ} {f : α → β} (hg : Injective g) (hf : Injective f) :
    Injective (compose g f) := by
  intro x y e
  exact hf (hg e)
theorem Function.Surjective.comp {g : β → γ} {f : α → β} (hg : Surjective g) (hf : Surjective f) :
    Surjective (compose g f) := by
  intro z
  obtain ⟨y, hy⟩ := hg z
  obtain ⟨x, hx⟩ := hf y
  exact ⟨x, by rw [compose_apply, hx, hy]⟩
theorem Function.LeftInverse.injective {g : β → α} {f : α → β} (h : LeftInverse g f) : Injective f := by
  intro x y e
  rw [← h x, ← h y, e]
theorem Function.LeftInverse.surjective {g : β → α} {f : α → β} (h : LeftInverse g f) : Surjective g :=
  fun x => ⟨f x, h x⟩
theorem Function.LeftInverse.compose_eq_id {g : β → α} {f : α → β} (h : LeftInverse g f) : compose g f = id := by
  funext x
  exact h x

def Function.iterate (f : α → α) : Nat → α → α
  | 0, x => x
  | n + 1, x => iterate f n (f x)
theorem Function.iterate_zero (f : α → α) (x : α) : iterate f 0 x = x := rfl
theorem Function.iterate_succ (f : α → α) (n : Nat) (x : α) : iterate f (n + 1) x = iterate f n (f x) := rfl
theorem Function.iterate_succ_apply (f : α → α) (n : Nat) (x : α) : iterate f (n + 1) x = f (iterate f n x) := by
  induction n generalizing x with
  | zero => rfl
  | succ n ih => rw [iterate_succ, ih, ← iterate_succ]
theorem Function.iterate_add (f : α → α) (m n : Nat) (x : α) :
    iterate f (m + n) x = iterate f m (iterate f n x) := by
  induction n generalizing x with
  | zero => rfl
  | succ n ih => rw [iterate_succ, ← ih (f x)]; rfl

def Relation.Reflexive (r : α → α → Prop) : Prop := ∀ x, r x x
def Relation.Symmetric (r : α → α → Prop) : Prop := ∀ {x y}, r x y → r y x
def Relation.Transitive (r : α → α → Prop) : Prop := ∀ {x y z}, r x y → r y z → r x z
def Relation.Antisymmetric (r : α → α → Prop) : Prop := ∀ {x y}, r x y → r y x → x = y
def Relation.Total (r : α → α → Prop) : Prop := ∀ x y, r x y ∨ r y x
def Relation.Irreflexive (r : α → α → Prop) : Prop := ∀ x, ¬r x x
def Relation.flip (r : α → α → Prop) : α → α → Prop := fun x y => r y x
def Relation.On (r : β → β → Prop) (f : α → β) : α → α → Prop := fun x y => r (f x) (f y)
theorem Relation.Reflexive.flip {r : α → α → Prop} (h : Reflexive r) : Reflexive (Relation.flip r) := fun x => h x
theorem Relation.Symmetric.flip_iff {r : α → α → Prop} (h : Symmetric r) (x y : α) : Relation.flip r x y ↔ r x y :=
  ⟨fun k => h k, fun k => h k⟩
theorem Relation.Transitive.flip {r : α → α → Prop} (h : Transitive r) : Transitive (Relation.flip r) := fun a b => h b a
theorem Relation.Antisymmetric.flip {r : α → α → Prop} (h : Antisymmetric r) : Antisymmetric (Relation.flip r) :=
  fun a b => h b a
theorem Relation.Total.flip {r : α → α → Prop} (h : Total r) : Total (Relation.flip r) := fun x y => h y x
theorem Relation.Total.reflexive {r : α → α → Prop} (h : Total r) : Reflexive r := by
  intro x
  rcases h x x with k | k
  · exact k
  · exact k
theorem Relation.Reflexive.on {r : β → β → Prop} (h : Reflexive r) (f : α → β) : Reflexive (On r f) :=
  fun x => h (f x)
theorem Relation.Transitive.on {r : β → β → Prop} (h : Transitive r) (f : α → β) : Transitive (On r f) :=
  fun a b => h a b
theorem Relation.Antisymmetric.on {r : β → β → Prop} (h : Antisymmetric r) {f : α → β}
    (hf : Function.Injective f) : Antisymmetric (On r f) := by
  intro x y a b
  exact hf (h a b)
theorem Relation.Irreflexive.ne {r : α → α → Prop} (h : Irreflexive r) {x y : α} (k : r x y) : x ≠ y := by
  intro e
  subst e
  exact h x k
theorem Relation.Transitive.asymmetric {r : α → α → Prop} (h : Transitive r) (k : Irreflexive r) {x y : α}
    (a : r x y) : ¬r y x := by
  intro b
  exact k x (h a b)
