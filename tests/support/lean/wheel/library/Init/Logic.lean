module
prelude
public import Init.Grammar
public meta import Init.Grammar
/-! Connectives, classes and instances that the elaborator looks for by name. -/
@[expose] public section
set_option autoImplicit false
set_option linter.defProp false
set_option linter.unusedVariables false
universe u v w u₁ u₂ u₃

/-! Markers read by the elaborator -/
@[reducible] def outParam (α : Sort u) : Sort u := α
@[reducible] def semiOutParam (α : Sort u) : Sort u := α
@[reducible] def optParam (α : Sort u) (default : α) : Sort u := α
@[reducible] def namedPattern {α : Sort u} (x a : α) (h : Eq x a) : α := a
@[extern "lean_sorry", never_extract] axiom sorryAx (α : Sort u) (synthetic : Bool := false) : α
@[reducible] def autoParam (α : Sort u) (tactic : Lean.Syntax) : Sort u := α
set_option checkBinderAnnotations false in
@[reducible] def inferInstance {α : Sort u} [i : α] : α := i
set_option checkBinderAnnotations false in
def letFun {α : Sort u} {β : α → Sort v} (x : α) (f : (y : α) → β y) : β x := f x

structure Iff (a b : Prop) : Prop where
  intro ::
  mp : a → b
  mpr : b → a
axiom propext {a b : Prop} : (a ↔ b) → a = b
@[refl] protected def Iff.rfl {a : Prop} : a ↔ a := ⟨id, id⟩
@[refl] theorem Iff.refl (a : Prop) : a ↔ a := ⟨id, id⟩
attribute [symm] Eq.symm
@[symm] theorem Iff.symm {a b : Prop} (h : a ↔ b) : b ↔ a := ⟨h.2, h.1⟩
theorem Iff.trans {a b c : Prop} (h : a ↔ b) (k : b ↔ c) : a ↔ c :=
  ⟨fun x => k.1 (h.1 x), fun x => h.2 (k.2 x)⟩
theorem Iff.of_eq {a b : Prop} (h : a = b) : a ↔ b := h ▸ Iff.rfl
theorem iff_of_eq {a b : Prop} (h : a = b) : a ↔ b := h ▸ Iff.rfl
@[symm] theorem Ne.symm {α : Sort u} {a b : α} (h : a ≠ b) : b ≠ a := fun e => h e.symm
theorem HEq.symm {α β : Sort u} {a : α} {b : β} (h : HEq a b) : HEq b a :=
  HEq.rec (motive := fun {γ} x _ => HEq x a) (HEq.refl a) h

inductive Or (a b : Prop) : Prop where
  | inl (h : a) : Or a b
  | inr (h : b) : Or a b
theorem Or.elim {a b c : Prop} (h : a ∨ b) (l : a → c) (r : b → c) : c :=
  match h with
  | .inl x => l x
  | .inr y => r y
inductive Exists {α : Sort u} (p : α → Prop) : Prop where
  | intro (w : α) (h : p w) : Exists p
theorem Exists.elim {α : Sort u} {p : α → Prop} {b : Prop} (h : Exists p)
    (k : (a : α) → p a → b) : b :=
  match h with
  | .intro w h => k w h
inductive Empty : Type
set_option bootstrap.inductiveCheckResultingUniverse false in
inductive PEmpty : Sort u
structure Subtype {α : Sort u} (p : α → Prop) where
  val : α
  property : p val
structure PSigma {α : Sort u} (β : α → Sort v) where
  fst : α
  snd : β fst
structure Sigma {α : Type u} (β : α → Type v) where
  fst : α
  snd : β fst
inductive Sum (α : Type u) (β : Type v) where
  | inl (val : α) : Sum α β
  | inr (val : β) : Sum α β
inductive PSum (α : Sort u) (β : Sort v) where
  | inl (val : α) : PSum α β
  | inr (val : β) : PSum α β
class inductive Nonempty (α : Sort u) : Prop where
  | intro (val : α) : Nonempty α
class Subsingleton (α : Sort u) : Prop where
  intro ::
  allEq : (a b : α) → a = b
axiom Classical.choice {α : Sort u} : Nonempty α → α
instance {α : Sort u} [Inhabited α] : Nonempty α := ⟨default⟩

@[macro_inline] def Eq.mpr {α β : Sort u} (h : α = β) (b : β) : α := h ▸ b
@[macro_inline] def Eq.mp {α β : Sort u} (h : α = β) (a : α) : β := h ▸ a
theorem Eq.mpr_prop {p q : Prop} (h₁ : p = q) (h₂ : q) : p := h₁ ▸ h₂
theorem Eq.mpr_not {p q : Prop} (h₁ : p = q) (h₂ : ¬q) : ¬p := h₁ ▸ h₂
theorem mt {a b : Prop} (h : a → b) (k : ¬b) : ¬a := fun x => k (h x)
theorem trivial : True := ⟨⟩
abbrev Function.const {α : Sort u} (β : Sort v) (a : α) : β → α := fun _ => a
def Function.comp {α : Sort u} {β : Sort v} {δ : Sort w} (f : β → δ) (g : α → β) : α → δ :=
  fun x => f (g x)

/-! Quotients and function extensionality -/
axiom Quot.sound {α : Sort u} {r : α → α → Prop} {a b : α} : r a b → Quot.mk r a = Quot.mk r b
def Pointwise {α : Sort u} {β : α → Sort v} (f g : (x : α) → β x) : Prop := ∀ x, f x = g x
def Pointwise.at {α : Sort u} {β : α → Sort v} (q : @Quot ((x : α) → β x) Pointwise) (x : α) : β x :=
  Quot.lift (fun k => k x) (fun _ _ e => e x) q
theorem funext {α : Sort u} {β : α → Sort v} {f g : (x : α) → β x} (h : ∀ x, f x = g x) : f = g :=
  @congrArg (@Quot ((x : α) → β x) Pointwise) _ _ _ Pointwise.at (Quot.sound h)

attribute [ext] funext

/-! Coercions -/
class Coe (α : semiOutParam (Sort u)) (β : Sort v) where
  coe : α → β
class CoeTC (α : Sort u) (β : Sort v) where
  coe : α → β
class CoeOut (α : Sort u) (β : semiOutParam (Sort v)) where
  coe : α → β
class CoeHead (α : Sort u) (β : semiOutParam (Sort v)) where
  coe : α → β
class CoeTail (α : semiOutParam (Sort u)) (β : Sort v) where
  coe : α → β
class CoeHTCT (α : Sort u) (β : Sort v) where
  coe : α → β
class CoeDep (α : Sort u) (_ : α) (β : Sort v) where
  coe : β
class CoeT (α : Sort u) (_ : α) (β : Sort v) where
  coe : β
class CoeFun (α : Sort u) (γ : outParam (α → Sort v)) where
  coe : (f : α) → γ f
class CoeSort (α : Sort u) (β : outParam (Sort v)) where
  coe : α → β
/-! Unfolded where they are inserted. -/
attribute [coe_decl] Coe.coe CoeTC.coe CoeOut.coe CoeHead.coe CoeTail.coe CoeHTCT.coe CoeDep.coe CoeT.coe CoeFun.coe
  CoeSort.coe
instance {α : Sort u} {β : Sort v} (a : α) [Coe α β] : CoeT α a β := ⟨Coe.coe a⟩
instance {α : Sort u} {β : Sort v} (a : α) [CoeOut α β] : CoeT α a β := ⟨CoeOut.coe a⟩
instance : CoeSort Bool Prop := ⟨fun b => b = true⟩

/-! Deciding -/
@[inline] def Decidable.decide (p : Prop) [h : Decidable p] : Bool :=
  match h with
  | isTrue _ => true
  | isFalse _ => false
export Decidable (decide)
theorem of_decide_eq_true {p : Prop} [i : Decidable p] (h : decide p = true) : p :=
  match i, h with | isTrue k, _ => k | isFalse _, h => False.elim (Bool.noTF h.symm)
theorem of_decide_eq_false {p : Prop} [i : Decidable p] (h : decide p = false) : ¬p :=
  match i, h with | isTrue _, h => False.elim (Bool.noTF h) | isFalse k, _ => k
theorem decide_eq_true {p : Prop} [i : Decidable p] (h : p) : decide p = true :=
  match i with | isTrue _ => rfl | isFalse n => absurd h n
theorem decide_eq_false {p : Prop} [i : Decidable p] (h : ¬p) : decide p = false :=
  match i with | isTrue k => absurd k h | isFalse _ => rfl
theorem Decidable.em (p : Prop) [i : Decidable p] : p ∨ ¬p :=
  match i with
  | isTrue h => .inl h
  | isFalse h => .inr h
theorem Decidable.byContradiction {p : Prop} [i : Decidable p] (h : ¬p → False) : p :=
  match i with
  | isTrue k => k
  | isFalse n => False.elim (h n)
instance : Decidable True := isTrue ⟨⟩
instance : Decidable False := isFalse id
instance {p q : Prop} [a : Decidable p] [b : Decidable q] : Decidable (p ∧ q) :=
  match a, b with
  | isTrue x, isTrue y => isTrue ⟨x, y⟩
  | isFalse n, _ => isFalse fun h => n h.1
  | _, isFalse n => isFalse fun h => n h.2
instance {p q : Prop} [a : Decidable p] [b : Decidable q] : Decidable (p ∨ q) :=
  match a, b with
  | isTrue x, _ => isTrue (.inl x)
  | _, isTrue y => isTrue (.inr y)
  | isFalse n, isFalse m => isFalse fun h => h.elim n m
instance {p : Prop} [a : Decidable p] : Decidable (¬p) :=
  match a with
  | isTrue x => isFalse fun n => n x
  | isFalse n => isTrue n
instance {p q : Prop} [a : Decidable p] [b : Decidable q] : Decidable (p → q) :=
  match a, b with
  | isFalse n, _ => isTrue fun x => absurd x n
  | _, isTrue y => isTrue fun _ => y
  | isTrue x, isFalse m => isFalse fun h => m (h x)
instance {p q : Prop} [a : Decidable p] [b : Decidable q] : Decidable (p ↔ q) :=
  match a, b with
  | isTrue x, isTrue y => isTrue ⟨fun _ => y, fun _ => x⟩
  | isFalse n, isFalse m => isTrue ⟨fun x => absurd x n, fun y => absurd y m⟩
  | isTrue x, isFalse m => isFalse fun h => m (h.1 x)
  | isFalse n, isTrue y => isFalse fun h => n (h.2 y)
instance : DecidableEq Bool := fun a b =>
  match a, b with
  | true, true => isTrue rfl
  | false, false => isTrue rfl
  | true, false => isFalse Bool.noTF
  | false, true => isFalse fun h => Bool.noTF h.symm
@[macro_inline] def Bool.and (a b : Bool) : Bool := match a with | true => b | false => false
@[macro_inline] def Bool.or (a b : Bool) : Bool := match a with | true => true | false => b
@[inline] def Bool.not (a : Bool) : Bool := match a with | true => false | false => true
export Bool (and or not)
class BEq (α : Type u) where
  beq : α → α → Bool
open BEq (beq)
instance {α : Type u} [DecidableEq α] : BEq α := ⟨fun a b => decide (a = b)⟩

/-! Operator classes -/
class HAdd (α : Type u) (β : Type v) (γ : outParam (Type w)) where
  hAdd : α → β → γ
class HSub (α : Type u) (β : Type v) (γ : outParam (Type w)) where
  hSub : α → β → γ
class HMul (α : Type u) (β : Type v) (γ : outParam (Type w)) where
  hMul : α → β → γ
class HDiv (α : Type u) (β : Type v) (γ : outParam (Type w)) where
  hDiv : α → β → γ
class HMod (α : Type u) (β : Type v) (γ : outParam (Type w)) where
  hMod : α → β → γ
class HPow (α : Type u) (β : Type v) (γ : outParam (Type w)) where
  hPow : α → β → γ
class HAppend (α : Type u) (β : Type v) (γ : outParam (Type w)) where
  hAppend : α → β → γ
class Add (α : Type u) where
  add : α → α → α
class Sub (α : Type u) where
  sub : α → α → α
class Mul (α : Type u) where
  mul : α → α → α
class Div (α : Type u) where
  div : α → α → α
class Mod (α : Type u) where
  mod : α → α → α
class Pow (α : Type u) (β : Type v) where
  pow : α → β → α
class NatPow (α : Type u) where
  pow : α → Nat → α
class Append (α : Type u) where
  append : α → α → α
attribute [match_pattern] Add.add HAdd.hAdd
class LE (α : Type u) where
  le : α → α → Prop
class LT (α : Type u) where
  lt : α → α → Prop
@[reducible] def GE.ge {α : Type u} [LE α] (a b : α) : Prop := LE.le b a
@[reducible] def GT.gt {α : Type u} [LT α] (a b : α) : Prop := LT.lt b a
class Membership (α : outParam (Type u)) (γ : Type v) where
  mem : γ → α → Prop
@[default_instance] instance instHAdd {α : Type u} [Add α] : HAdd α α α := ⟨Add.add⟩
@[default_instance] instance instHSub {α : Type u} [Sub α] : HSub α α α := ⟨Sub.sub⟩
@[default_instance] instance instHMul {α : Type u} [Mul α] : HMul α α α := ⟨Mul.mul⟩
@[default_instance] instance instHDiv {α : Type u} [Div α] : HDiv α α α := ⟨Div.div⟩
@[default_instance] instance instHMod {α : Type u} [Mod α] : HMod α α α := ⟨Mod.mod⟩
@[default_instance] instance instHPow {α : Type u} {β : Type v} [Pow α β] : HPow α β α := ⟨Pow.pow⟩
@[default_instance] instance instPowNat {α : Type u} [NatPow α] : Pow α Nat := ⟨NatPow.pow⟩
@[default_instance] instance instHAppendOfAppend {α : Type u} [Append α] : HAppend α α α :=
  ⟨Append.append⟩
class Trans {α : Sort u₁} {β : Sort u₂} {γ : Sort u₃} (r : α → β → Sort u) (s : β → γ → Sort v)
    (t : outParam (α → γ → Sort w)) where
  trans {a : α} {b : β} {c : γ} : r a b → s b c → t a c
instance {α : Sort u₁} {γ : Sort u₂} {r : α → γ → Sort u} : Trans Eq r r := ⟨fun h k => h ▸ k⟩
instance {α : Sort u₁} {β : Sort u₂} {r : α → β → Sort u} : Trans r Eq r := ⟨fun h k => k ▸ h⟩
instance : @Trans Prop Prop Prop Iff Iff Iff := ⟨Iff.trans⟩

class Std.Associative {α : Sort u} (op : α → α → α) : Prop where
  assoc : (a b c : α) → op (op a b) c = op a (op b c)
class Std.Commutative {α : Sort u} (op : α → α → α) : Prop where
  comm : (a b : α) → op a b = op b a
class Std.IdempotentOp {α : Sort u} (op : α → α → α) : Prop where
  idempotent : (a : α) → op a a = a
class Std.LawfulIdentity {α : Sort u} (op : α → α → α) (o : outParam α) : Prop where
  left_id : ∀ a, op o a = a
  right_id : ∀ a, op a o = a

/-! Well-founded recursion and sizes -/
class SizeOf (α : Sort u) where
  sizeOf : α → Nat
export SizeOf (sizeOf)
set_option warn.classDefReducibility false in
@[instance low] def instSizeOfDefault (α : Sort u) : SizeOf α := ⟨fun _ => 0⟩
instance instSizeOfNat : SizeOf Nat := ⟨fun n => n⟩
inductive Acc {α : Sort u} (r : α → α → Prop) : α → Prop where
  | intro (x : α) (h : (y : α) → r y x → Acc r y) : Acc r x
inductive WellFounded {α : Sort u} (r : α → α → Prop) : Prop where
  | intro (h : ∀ a, Acc r a) : WellFounded r
class WellFoundedRelation (α : Sort u) where
  rel : α → α → Prop
  wf : WellFounded rel
