module
prelude
public import Init.Logic
public meta import Init.Logic
/-! Facts that `simp`, `simp_all`, `split`, `by_cases` and friends build their proofs from. -/
@[expose] public section
set_option autoImplicit false
set_option linter.unusedVariables false
universe u v w
variable {a b c d p q r : Prop}

theorem of_eq_true (h : p = True) : p := h ▸ trivial
theorem eq_true (h : p) : p = True := propext ⟨fun _ => trivial, fun _ => h⟩
theorem of_eq_false (h : p = False) : ¬p := fun x => h ▸ x
theorem eq_false (h : ¬p) : p = False := propext ⟨h, False.elim⟩
theorem eq_false' (h : p → False) : p = False := eq_false h
theorem eq_true_of_decide [i : Decidable p] (h : decide p = true) : p = True :=
  eq_true (of_decide_eq_true h)
theorem eq_false_of_decide [i : Decidable p] (h : decide p = false) : p = False :=
  eq_false (of_decide_eq_false h)
theorem eq_self {α : Sort u} (x : α) : (x = x) = True := eq_true rfl
theorem ne_true_of_eq_false {b : Bool} (h : b = false) : ¬b = true := fun e => Bool.noTF (e.symm.trans h)
theorem ne_false_of_eq_true {b : Bool} (h : b = true) : ¬b = false := fun e => Bool.noTF (h.symm.trans e)
theorem eq_false_of_ne_true {b : Bool} (h : ¬b = true) : b = false :=
  match b, h with
  | true, n => absurd rfl n
  | false, _ => rfl
theorem eq_true_of_ne_false {b : Bool} (h : ¬b = false) : b = true :=
  match b, h with
  | true, _ => rfl
  | false, n => absurd rfl n
theorem ne_of_eq_false {α : Sort u} {x y : α} (h : (x = y) = False) : x ≠ y := of_eq_false h

theorem implies_congr {p₁ p₂ : Sort u} {q₁ q₂ : Sort v} (h₁ : p₁ = p₂) (h₂ : q₁ = q₂) :
    (p₁ → q₁) = (p₂ → q₂) := h₁ ▸ h₂ ▸ rfl
theorem implies_dep_congr_ctx {p₁ p₂ q₁ : Prop} (h₁ : p₁ = p₂) {q₂ : p₂ → Prop} (h₂ : (h : p₂) → q₁ = q₂ h) :
    (p₁ → q₁) = ((h : p₂) → q₂ h) :=
  propext ⟨fun f x => h₂ x ▸ f (h₁ ▸ x), fun f x => (h₂ (h₁ ▸ x)).symm ▸ f (h₁ ▸ x)⟩
theorem implies_congr_ctx {p₁ p₂ q₁ q₂ : Prop} (h₁ : p₁ = p₂) (h₂ : p₂ → q₁ = q₂) :
    (p₁ → q₁) = (p₂ → q₂) := implies_dep_congr_ctx h₁ h₂
theorem forall_congr {α : Sort u} {p q : α → Prop} (h : ∀ x, p x = q x) : (∀ x, p x) = (∀ x, q x) :=
  (funext h : p = q) ▸ rfl
theorem pi_congr {α : Sort u} {β β' : α → Sort v} (h : ∀ x, β x = β' x) :
    ((x : α) → β x) = ((x : α) → β' x) := (funext h : β = β') ▸ rfl
theorem forall_prop_domain_congr {p₁ p₂ : Prop} {q : p₁ → Prop} (h : p₁ = p₂) :
    ((x : p₁) → q x) = ((x : p₂) → q (h.symm ▸ x)) := by cases h; rfl
theorem forall_prop_congr_dom {p₁ p₂ : Prop} (h : p₁ = p₂) (q : p₁ → Prop) :
    ((x : p₁) → q x) = ((x : p₂) → q (h.symm ▸ x)) := by cases h; rfl
theorem let_congr {α : Sort u} {β : Sort v} {x y : α} {f g : α → β} (h₁ : x = y) (h₂ : ∀ z, f z = g z) :
    (let z := x; f z) = (let z := y; g z) := h₁ ▸ (funext h₂ : f = g) ▸ rfl
theorem let_val_congr {α : Sort u} {β : Sort v} {x y : α} (f : α → β) (h : x = y) :
    (let z := x; f z) = (let z := y; f z) := h ▸ rfl
theorem let_body_congr {α : Sort u} {β : α → Sort v} {f g : (x : α) → β x} (x : α) (h : ∀ z, f z = g z) :
    (let z := x; f z) = (let z := x; g z) := (funext h : f = g) ▸ rfl
theorem ite_congr {α : Sort u} {b c : Prop} {x y z w : α} {s : Decidable b} [i : Decidable c] (h₁ : b = c)
    (h₂ : c → x = z) (h₃ : ¬c → y = w) : ite b x y = ite c z w := by
  cases h₁
  cases s with
  | isTrue h => cases i with
    | isTrue k => exact h₂ h
    | isFalse k => exact absurd h k
  | isFalse h => cases i with
    | isTrue k => exact absurd k h
    | isFalse k => exact h₃ h
section
variable {c : Prop}
theorem if_pos {h : Decidable c} (hc : c) {α : Sort u} {t e : α} : ite c t e = t :=
  match h with
  | isTrue _ => rfl
  | isFalse n => absurd hc n
theorem if_neg {h : Decidable c} (hn : ¬c) {α : Sort u} {t e : α} : ite c t e = e :=
  match h with
  | isTrue k => absurd k hn
  | isFalse _ => rfl
theorem dif_pos {h : Decidable c} (hc : c) {α : Sort u} {t : c → α} {e : ¬c → α} : dite c t e = t hc :=
  match h with
  | isTrue _ => rfl
  | isFalse n => absurd hc n
theorem dif_neg {h : Decidable c} (hn : ¬c) {α : Sort u} {t : c → α} {e : ¬c → α} : dite c t e = e hn :=
  match h with
  | isTrue k => absurd k hn
  | isFalse _ => rfl
/-! The names that 4.35's `simp` and `split` use for the same. -/
theorem ite_eq_left {_ : Decidable c} (h : c) {α : Sort u} {t e : α} : ite c t e = t := if_pos h
theorem ite_eq_right {_ : Decidable c} (h : ¬c) {α : Sort u} {t e : α} : ite c t e = e := if_neg h
theorem dite_eq_left {_ : Decidable c} (h : c) {α : Sort u} {t : c → α} {e : ¬c → α} : dite c t e = t h :=
  dif_pos h
theorem dite_eq_right {_ : Decidable c} (h : ¬c) {α : Sort u} {t : c → α} {e : ¬c → α} : dite c t e = e h :=
  dif_neg h
theorem ite_eq_left_of_eq_true {α : Sort u} {c : Prop} {_ : Decidable c} (t e : α) (h : c = True) :
    ite c t e = t := if_pos (of_eq_true h)
theorem ite_eq_right_of_eq_false {α : Sort u} {c : Prop} {_ : Decidable c} (t e : α) (h : c = False) :
    ite c t e = e := if_neg (of_eq_false h)
theorem dite_eq_left_of_eq_true {α : Sort u} {c : Prop} {_ : Decidable c} {t : c → α} {e : ¬c → α}
    (h : c = True) : dite c t e = t (of_eq_true h) := dif_pos _
theorem dite_eq_right_of_eq_false {α : Sort u} {c : Prop} {_ : Decidable c} {t : c → α} {e : ¬c → α}
    (h : c = False) : dite c t e = e (of_eq_false h) := dif_neg _
end
section
variable (a b p)
@[simp] theorem eq_self_iff_true {α : Sort u} (x : α) : (x = x) = True := eq_self x
@[simp] theorem ne_eq {α : Sort u} (x y : α) : (x ≠ y) = ¬(x = y) := rfl
@[simp] theorem not_true_eq_false : (¬True) = False := eq_false fun h => h trivial
@[simp] theorem not_false_eq_true : (¬False) = True := eq_true id
@[simp] theorem and_self : (p ∧ p) = p := propext ⟨fun h => h.1, fun h => ⟨h, h⟩⟩
@[simp] theorem and_true : (p ∧ True) = p := propext ⟨fun h => h.1, fun h => ⟨h, trivial⟩⟩
@[simp] theorem true_and : (True ∧ p) = p := propext ⟨fun h => h.2, fun h => ⟨trivial, h⟩⟩
@[simp] theorem and_false : (p ∧ False) = False := eq_false fun h => h.2
@[simp] theorem false_and : (False ∧ p) = False := eq_false fun h => h.1
@[simp] theorem or_self : (p ∨ p) = p := propext ⟨fun h => h.elim id id, .inl⟩
@[simp] theorem or_true : (p ∨ True) = True := eq_true (.inr trivial)
@[simp] theorem true_or : (True ∨ p) = True := eq_true (.inl trivial)
@[simp] theorem or_false : (p ∨ False) = p := propext ⟨fun h => h.elim id False.elim, .inl⟩
@[simp] theorem false_or : (False ∨ p) = p := propext ⟨fun h => h.elim False.elim id, .inr⟩
@[simp] theorem iff_self : (p ↔ p) = True := eq_true Iff.rfl
@[simp] theorem iff_true : (p ↔ True) = p :=
  propext ⟨fun h => h.2 trivial, fun h => ⟨fun _ => trivial, fun _ => h⟩⟩
@[simp] theorem true_iff : (True ↔ p) = p :=
  propext ⟨fun h => h.1 trivial, fun h => ⟨fun _ => h, fun _ => trivial⟩⟩
@[simp] theorem iff_false : (p ↔ False) = ¬p := propext ⟨fun h => h.1, fun h => ⟨h, False.elim⟩⟩
@[simp] theorem false_iff : (False ↔ p) = ¬p := propext ⟨fun h => h.2, fun h => ⟨False.elim, h⟩⟩
@[simp] theorem false_implies : (False → p) = True := eq_true False.elim
@[simp] theorem implies_true (α : Sort u) : (α → True) = True := eq_true fun _ => trivial
@[simp] theorem true_implies : (True → p) = p := propext ⟨fun h => h trivial, fun h _ => h⟩
@[simp] theorem and_not_self : (p ∧ ¬p) = False := eq_false fun h => h.2 h.1
@[simp] theorem not_and_self : (¬p ∧ p) = False := eq_false fun h => h.1 h.2
@[simp] theorem not_or : (¬(p ∨ q)) = (¬p ∧ ¬q) :=
  propext ⟨fun h => ⟨fun x => h (.inl x), fun x => h (.inr x)⟩, fun h k => k.elim h.1 h.2⟩
@[simp] theorem not_and : (¬(p ∧ q)) = (p → ¬q) := propext ⟨fun h x y => h ⟨x, y⟩, fun h k => h k.1 k.2⟩
@[simp] theorem imp_self : (p → p) = True := eq_true id
@[simp] theorem if_true {α : Sort u} {_ : Decidable True} (t e : α) : ite True t e = t := if_pos trivial
@[simp] theorem if_false {α : Sort u} {_ : Decidable False} (t e : α) : ite False t e = e := if_neg id
end
theorem And.comm : a ∧ b ↔ b ∧ a := ⟨fun h => ⟨h.2, h.1⟩, fun h => ⟨h.2, h.1⟩⟩
theorem and_comm : a ∧ b ↔ b ∧ a := And.comm
theorem Or.comm : a ∨ b ↔ b ∨ a := ⟨fun h => h.elim .inr .inl, fun h => h.elim .inr .inl⟩
theorem or_comm : a ∨ b ↔ b ∨ a := Or.comm
theorem and_assoc : (a ∧ b) ∧ c ↔ a ∧ b ∧ c := ⟨fun h => ⟨h.1.1, h.1.2, h.2⟩, fun h => ⟨⟨h.1, h.2.1⟩, h.2.2⟩⟩
theorem or_assoc : (a ∨ b) ∨ c ↔ a ∨ b ∨ c :=
  ⟨fun h => h.elim (fun h => h.elim .inl (.inr ∘ .inl)) (.inr ∘ .inr),
   fun h => h.elim (.inl ∘ .inl) fun h => h.elim (.inl ∘ .inr) .inr⟩

/-! Classical logic from choice -/
namespace Classical
theorem em (p : Prop) : p ∨ ¬p :=
  let U (x : Bool) : Prop := x = true ∨ p
  let V (x : Bool) : Prop := x = false ∨ p
  let S (W : Bool → Prop) := {x : Bool // W x}
  let u : S U := choice ⟨⟨true, .inl rfl⟩⟩
  let v : S V := choice ⟨⟨false, .inl rfl⟩⟩
  have key : u.1 ≠ v.1 ∨ p := match u.2, v.2 with
    | .inr h, _ => .inr h
    | _, .inr h => .inr h
    | .inl x, .inl y => .inl fun e => Bool.noTF (x.symm.trans (e.trans y))
  have same : p → u.1 = v.1 := fun h =>
    have : U = V := funext fun x => propext ⟨fun _ => .inr h, fun _ => .inr h⟩
    have go : ∀ (W : Bool → Prop) (n₁ : Nonempty (S U)) (n₂ : Nonempty (S W)),
        U = W → (choice n₁ : S U).1 = (choice n₂ : S W).1 := fun W n₁ n₂ e => by cases e; rfl
    go V _ _ this
  key.elim (fun n => .inr fun h => n (same h)) .inl
theorem exists_true_of_nonempty {α : Sort u} (h : Nonempty α) : ∃ _ : α, True :=
  match h with
  | ⟨x⟩ => ⟨x, trivial⟩
noncomputable def propDecidable (p : Prop) : Decidable p :=
  choice (match em p with | .inl h => ⟨isTrue h⟩ | .inr h => ⟨isFalse h⟩)
theorem byContradiction {p : Prop} (h : ¬p → False) : p :=
  match em p with
  | .inl k => k
  | .inr n => False.elim (h n)
theorem byCases {p q : Prop} (h : p → q) (k : ¬p → q) : q := (em p).elim h k
noncomputable scoped instance (priority := low) (p : Prop) : Decidable p := propDecidable p
end Classical
@[simp] theorem Classical.not_not {p : Prop} : (¬¬p) = p :=
  propext ⟨Classical.byContradiction, fun h n => n h⟩
instance {p : Prop} : Subsingleton p := ⟨fun _ _ => rfl⟩
instance {p : Prop} : Subsingleton (Decidable p) := ⟨fun
  | isTrue _, isTrue _ => rfl
  | isFalse _, isFalse _ => rfl
  | isTrue h, isFalse n => absurd h n
  | isFalse n, isTrue h => absurd h n⟩
theorem Subsingleton.elim {α : Sort u} [h : Subsingleton α] (a b : α) : a = b := h.allEq a b
theorem Subsingleton.helim {α β : Sort u} [Subsingleton α] (h : α = β) (a : α) (b : β) : HEq a b := by
  cases h; exact heq_of_eq (Subsingleton.elim a b)
