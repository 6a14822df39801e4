module
prelude
/-! The data types that the compiled library hands to and takes from our files. -/
@[expose] public section
set_option autoImplicit false
set_option linter.defProp false
universe u v w

unsafe axiom lcErased : Type
unsafe axiom lcAny : Type
unsafe axiom lcVoid : Type
unsafe axiom lcProof {α : Prop} : α
unsafe axiom lcUnreachable {α : Sort u} : α

@[inline] def id {α : Sort u} (a : α) : α := a

set_option bootstrap.inductiveCheckResultingUniverse false in
set_option genCtorIdx false in
inductive PUnit : Sort u where
  | unit : PUnit
abbrev Unit : Type := PUnit
@[match_pattern] abbrev Unit.unit : Unit := PUnit.unit

set_option genCtorIdx false in
inductive Eq {α : Sort u} : α → α → Prop where
  | refl (a : α) : Eq a a
init_quot
unsafe axiom Quot.lcInv {α : Sort u} {r : α → α → Prop} (q : Quot r) : α
abbrev Eq.ndrec {α : Sort v} {a : α} {C : α → Sort u} (m : C a) {b : α} (h : Eq a b) : C b :=
  Eq.rec (motive := fun x _ => C x) m h
theorem Eq.symm {α : Sort u} {a b : α} (h : Eq a b) : Eq b a :=
  Eq.ndrec (C := fun x => Eq x a) (Eq.refl a) h
abbrev Eq.ndrec_symm {α : Sort v} {a : α} {C : α → Sort u} (m : C a) {b : α} (h : Eq b a) : C b :=
  Eq.ndrec m (Eq.symm h)
@[match_pattern] def rfl {α : Sort u} {a : α} : Eq a a := Eq.refl a
theorem Eq.trans {α : Sort u} {a b c : α} (h₁ : Eq a b) (h₂ : Eq b c) : Eq a c :=
  Eq.ndrec (C := fun x => Eq a x) h₁ h₂
theorem Eq.subst {α : Sort u} {motive : α → Prop} {a b : α} (h₁ : Eq a b) (h₂ : motive a) : motive b :=
  Eq.ndrec h₂ h₁
@[macro_inline] def cast {α β : Sort u} (h : Eq α β) (a : α) : β :=
  Eq.rec (motive := fun T _ => T) a h
theorem congrArg {α : Sort u} {β : Sort v} {a b : α} (f : α → β) (h : Eq a b) : Eq (f a) (f b) :=
  Eq.ndrec (C := fun x => Eq (f a) (f x)) rfl h
theorem congrFun {α : Sort u} {β : α → Sort v} {f g : (x : α) → β x} (h : Eq f g) (a : α) :
    Eq (f a) (g a) :=
  @Eq.rec _ f (fun k _ => Eq (f a) (k a)) (Eq.refl (f a)) g h
theorem congrFun' {α : Sort u} {β : Sort v} {f g : α → β} (h : Eq f g) (a : α) : Eq (f a) (g a) :=
  congrFun h a
theorem congr {α : Sort u} {β : Sort v} {f g : α → β} {a b : α} (h₁ : Eq f g) (h₂ : Eq a b) :
    Eq (f a) (g b) :=
  Eq.trans (congrFun h₁ a) (congrArg g h₂)

set_option genCtorIdx false in
inductive HEq {α : Sort u} : α → {β : Sort u} → β → Prop where
  | refl (a : α) : HEq a a
@[match_pattern] protected def HEq.rfl {α : Sort u} {a : α} : HEq a a := HEq.refl a
theorem eq_of_heq {α : Sort u} {a b : α} (h : HEq a b) : Eq a b :=
  @HEq.rec α a (fun {β} x _ => (e : Eq α β) → Eq (cast e a) x) (fun _ => Eq.refl a) α b h (Eq.refl α)
theorem heq_of_eq {α : Sort u} {a b : α} (h : Eq a b) : HEq a b :=
  Eq.ndrec (C := fun x => HEq a x) (HEq.refl a) h

set_option bootstrap.inductiveCheckResultingUniverse false in
set_option genCtorIdx false in
structure PProd (α : Sort u) (β : Sort v) where
  fst : α
  snd : β

structure Prod (α : Type u) (β : Type v) where
  fst : α
  snd : β
structure And (a b : Prop) : Prop where
  intro ::
  left : a
  right : b

set_option genCtorIdx false in
structure PULift (α : Sort v) : Sort (max u 1 v) where
  up ::
  down : α

set_option genCtorIdx false in
inductive Bool : Type where
  | false : Bool
  | true : Bool
export Bool (false true)

@[macro_inline] def cond {α : Sort u} (c : Bool) (x y : α) : α :=
  match c with
  | true => x
  | false => y

set_option genCtorIdx false in
inductive False : Prop
set_option genCtorIdx false in
inductive True : Prop where
  | intro : True
def Not (a : Prop) : Prop := a → False
set_option genCtorIdx false in
class inductive Decidable (p : Prop) where
  | isFalse (h : Not p) : Decidable p
  | isTrue (h : p) : Decidable p
export Decidable (isTrue isFalse)
@[macro_inline] def False.elim {C : Sort u} (h : False) : C := h.rec
@[macro_inline] def absurd {a : Prop} {b : Sort v} (h₁ : a) (h₂ : Not a) : b := (h₂ h₁).rec
abbrev Ne {α : Sort u} (a b : α) : Prop := Not (Eq a b)
abbrev DecidableEq (α : Sort u) := (a b : α) → Decidable (Eq a b)

set_option genCtorIdx false in
inductive Nat where
  | zero : Nat
  | succ (n : Nat) : Nat

set_option bootstrap.genMatcherCode false in
@[extern "lean_nat_dec_eq"] def Nat.beq : Nat → Nat → Bool
  | .zero, .zero => true
  | .zero, .succ _ => false
  | .succ _, .zero => false
  | .succ n, .succ m => Nat.beq n m
set_option bootstrap.genMatcherCode false in
@[extern "lean_nat_dec_le"] def Nat.ble : Nat → Nat → Bool
  | .zero, .zero => true
  | .zero, .succ _ => true
  | .succ _, .zero => false
  | .succ n, .succ m => Nat.ble n m

@[macro_inline] def dite {α : Sort u} (c : Prop) [h : Decidable c] (t : c → α) (e : Not c → α) : α :=
  match h with
  | isTrue p => t p
  | isFalse n => e n
@[macro_inline] def ite {α : Sort u} (c : Prop) [h : Decidable c] (t e : α) : α :=
  match h with
  | isTrue _ => t
  | isFalse _ => e

theorem Bool.noTF (h : Eq true false) : False :=
  @Eq.rec Bool true (fun b _ => @cond Prop b True False) True.intro false h
theorem Nat.eq_of_beq : (n m : Nat) → Eq (Nat.beq n m) true → Eq n m
  | .zero, .zero, _ => rfl
  | .zero, .succ _, h => False.elim (Bool.noTF h.symm)
  | .succ _, .zero, h => False.elim (Bool.noTF h.symm)
  | .succ n, .succ m, h => congrArg succ (Nat.eq_of_beq n m h)
theorem Nat.beq_self : (n : Nat) → Eq (Nat.beq n n) true
  | .zero => rfl
  | .succ n => Nat.beq_self n
theorem noConfusion_of_Nat {α : Sort u} (f : α → Nat) {a b : α} (h : Eq a b) :
    @Bool.rec (fun _ => Prop) False True (Nat.beq (f a) (f b)) :=
  @Eq.rec α a (fun x _ => @Bool.rec (fun _ => Prop) False True (Nat.beq (f a) (f x)))
    (@Eq.rec Bool true (fun t _ => @Bool.rec (fun _ => Prop) False True t) True.intro
      (Nat.beq (f a) (f a)) (Eq.symm (Nat.beq_self (f a)))) b h
theorem Nat.ne_of_beq {n m : Nat} (h : Eq (Nat.beq n m) false) : Not (Eq n m) := fun e =>
  Bool.noTF (Eq.trans (Eq.symm (Eq.subst (motive :=
    fun x => Eq (Nat.beq n x) true) e (Nat.beq_self n))) h)
@[extern "lean_nat_dec_eq"] def Nat.decEq (n m : Nat) : Decidable (Eq n m) :=
  match h : Nat.beq n m with
  | true => isTrue (Nat.eq_of_beq n m h)
  | false => isFalse (Nat.ne_of_beq h)
instance : DecidableEq Nat := Nat.decEq

class OfNat (α : Type u) (_ : Nat) where
  ofNat : α
@[default_instance 100] instance instOfNatNat (n : Nat) : OfNat Nat n := OfNat.mk n

inductive List (α : Type u) where
  | nil : List α
  | cons (head : α) (tail : List α) : List α

structure Array (α : Type u) where
  mk ::
  toList : List α
/-! Arrays and texts lie in memory in their own way, so that not even a field of theirs is just read. -/
attribute [extern "lean_array_to_list"] Array.toList

inductive Option (α : Type u) where
  | none : Option α
  | some (val : α) : Option α

class Inhabited (α : Sort u) where
  default : α
export Inhabited (default)

structure Char where
  code : Nat

structure String where
  ofList ::
  toList : List Char
attribute [extern "lean_string_data"] String.toList

inductive Lean.Name : Type where
  | anonymous : Name
  | str (pre : Name) (str : String)
  | num (pre : Name) (i : Nat)

namespace Lean.Name
@[extern "l_Lean_Name_str___override"] def str._override (p : Name) (s : String) : Name := .str p s
@[extern "l_Lean_Name_num___override"] def num._override (p : Name) (i : Nat) : Name := .num p i
def mkStr (p : Name) (s : String) : Name := str._override p s
def mkNum (p : Name) (i : Nat) : Name := num._override p i
@[extern "l_Lean_Name_mkSimple"] def mkSimple (a : String) : Name := .str .anonymous a
@[extern "l_Lean_Name_mkStr1"] def mkStr1 (a : String) : Name := .str .anonymous a
@[extern "l_Lean_Name_mkStr2"] def mkStr2 (a b : String) : Name := .str (mkStr1 a) b
@[extern "l_Lean_Name_mkStr3"] def mkStr3 (a b c : String) : Name := .str (mkStr2 a b) c
@[extern "l_Lean_Name_mkStr4"] def mkStr4 (a b c d : String) : Name := .str (mkStr3 a b c) d
@[extern "l_Lean_Name_mkStr5"] def mkStr5 (a b c d e : String) : Name := .str (mkStr4 a b c d) e
@[extern "l_Lean_Name_mkStr6"] def mkStr6 (a b c d e f : String) : Name := .str (mkStr5 a b c d e) f
end Lean.Name
attribute [implemented_by Lean.Name.str._override] Lean.Name.str
attribute [implemented_by Lean.Name.num._override] Lean.Name.num

inductive Lean.ParserDescr : Type where
  | const (name : Name)
  | unary (name : Name) (p : ParserDescr)
  | binary (name : Name) (p₁ p₂ : ParserDescr)
  | node (kind : Name) (prec : Nat) (p : ParserDescr)
  | trailingNode (kind : Name) (prec lhsPrec : Nat) (p : ParserDescr)
  | symbol (val : String)
  | nonReservedSymbol (val : String) (includeIdent : Bool)
  | cat (catName : Name) (rbp : Nat)
  | parser (declName : Name)
  | nodeWithAntiquot (name : String) (kind : Name) (p : ParserDescr)
  | sepBy (p : ParserDescr) (sep : String) (psep : ParserDescr) (allowTrailingSep : Bool)
  | sepBy1 (p : ParserDescr) (sep : String) (psep : ParserDescr) (allowTrailingSep : Bool)
  | unicodeSymbol (val asciiVal : String) (preserveForPP : Bool)

abbrev Lean.TrailingParserDescr : Type := Lean.ParserDescr

structure Lean.Parser.Category : Type where

/-! Syntax trees and macros -/
structure String.Pos.Raw : Type where
  byteIdx : Nat
structure Substring.Raw : Type where
  str : String
  startPos : String.Pos.Raw
  stopPos : String.Pos.Raw
inductive Lean.SourceInfo : Type where
  | original (leading : Substring.Raw) (pos : String.Pos.Raw) (trailing : Substring.Raw) (endPos : String.Pos.Raw)
  | synthetic (pos endPos : String.Pos.Raw) (canonical : Bool)
  | none
abbrev Lean.SyntaxNodeKind : Type := Name
inductive Lean.Syntax.Preresolved : Type where
  | namespace (ns : Name)
  | decl (n : Name) (fields : List String)
inductive Lean.Syntax : Type where
  | missing : Syntax
  | node (info : SourceInfo) (kind : SyntaxNodeKind) (args : Array Syntax) : Syntax
  | atom (info : SourceInfo) (val : String) : Syntax
  | ident (info : SourceInfo) (rawVal : Substring.Raw) (val : Name) (preresolved : List Syntax.Preresolved) : Syntax

inductive EStateM.Result (ε σ α : Type u) : Type u where
  | ok (a : α) (s : σ) : Result ε σ α
  | error (e : ε) (s : σ) : Result ε σ α
inductive Lean.Macro.Exception : Type where
  | error (ref : Syntax) (msg : String)
  | unsupportedSyntax
/-! What a macro may read and write. Only compiled code looks into them; without fields they would be numbers, and
references to them would not be counted. -/
structure Lean.Macro.Context : Type where
  fst : Name
  snd : Name
structure Lean.Macro.State : Type where
  fst : Name
  snd : Name
namespace Lean
/-- Read `ρ`, fail with `ε`, change `σ`: a reader over `EStateM`, in one piece. -/
def EvalM (ρ ε σ α : Type) : Type := ρ → σ → EStateM.Result ε σ α
abbrev MacroM : Type → Type := EvalM Macro.Context Macro.Exception Macro.State
abbrev Macro : Type := Syntax → MacroM Syntax
abbrev PrettyPrinter.UnexpandM : Type → Type := EvalM Syntax Unit Unit
abbrev PrettyPrinter.Unexpander : Type := Syntax → PrettyPrinter.UnexpandM Syntax
end Lean
