module
prelude
public import Init.Nat
public meta import Init.Nat
/-! What `macro`, `notation` and `syntax` in a file turn into: functions on syntax trees in one of two monads.
What is `opaque` with an `extern` is the function of that name in the shared library; its value here is never used. -/
@[expose] public section
set_option autoImplicit false
set_option linter.unusedVariables false
universe u v

/-! Monads -/
class Functor (f : Type u → Type v) : Type (max (u + 1) v) where
  map {α β : Type u} : (α → β) → f α → f β
  mapConst {α β : Type u} : α → f β → f α
class Pure (f : Type u → Type v) where
  pure {α : Type u} : α → f α
export Pure (pure)
class Seq (f : Type u → Type v) : Type (max (u + 1) v) where
  seq {α β : Type u} : f (α → β) → (Unit → f α) → f β
class SeqLeft (f : Type u → Type v) : Type (max (u + 1) v) where
  seqLeft {α β : Type u} : f α → (Unit → f β) → f α
class SeqRight (f : Type u → Type v) : Type (max (u + 1) v) where
  seqRight {α β : Type u} : f α → (Unit → f β) → f β
class Bind (m : Type u → Type v) where
  bind {α β : Type u} : m α → (α → m β) → m β
export Bind (bind)
class Applicative (f : Type u → Type v) extends Functor f, Pure f, Seq f, SeqLeft f, SeqRight f
class Monad (m : Type u → Type v) : Type (max (u + 1) v) extends Applicative m, Bind m
class MonadExceptOf (ε : semiOutParam (Type u)) (m : Type v → Type u) where
  throw {α : Type v} : ε → m α
  tryCatch {α : Type v} : m α → (ε → m α) → m α
class MonadExcept (ε : outParam (Type u)) (m : Type v → Type u) where
  throw {α : Type v} : ε → m α
  tryCatch {α : Type v} : m α → (ε → m α) → m α
export MonadExcept (throw tryCatch)

@[extern "l_String_toRawSubstring"] opaque String.toRawSubstring (s : String) : Substring.Raw := ⟨s, ⟨0⟩, ⟨0⟩⟩
def String.toRawSubstring' (s : String) : Substring.Raw := s.toRawSubstring
namespace Array
variable {α : Type u}
@[extern "l_Array_empty"] opaque empty : Array α := ⟨.nil⟩
@[extern "l_Array_map"] opaque map {α : Type u} {β : Type v} (f : α → β) (xs : Array α) : Array β := ⟨.nil⟩
@[extern "l_Array_appendCore"] opaque appendCore (xs ys : Array α) : Array α := xs
@[extern "l_Array_append"] protected opaque append (xs ys : Array α) : Array α := xs
instance : Append (Array α) := ⟨Array.append⟩
@[extern "l_Array_mkArray0"] opaque mkArray0 : Array α := ⟨.nil⟩
@[extern "l_Array_mkArray1"] opaque mkArray1 (a1 : α) : Array α := ⟨.nil⟩
@[extern "l_Array_mkArray2"] opaque mkArray2 (a1 a2 : α) : Array α := ⟨.nil⟩
@[extern "l_Array_mkArray3"] opaque mkArray3 (a1 a2 a3 : α) : Array α := ⟨.nil⟩
@[extern "l_Array_mkArray4"] opaque mkArray4 (a1 a2 a3 a4 : α) : Array α := ⟨.nil⟩
@[extern "l_Array_mkArray5"] opaque mkArray5 (a1 a2 a3 a4 a5 : α) : Array α := ⟨.nil⟩
@[extern "l_Array_mkArray6"] opaque mkArray6 (a1 a2 a3 a4 a5 a6 : α) : Array α := ⟨.nil⟩
@[extern "l_Array_mkArray7"] opaque mkArray7 (a1 a2 a3 a4 a5 a6 a7 : α) : Array α := ⟨.nil⟩
@[extern "l_Array_mkArray8"] opaque mkArray8 (a1 a2 a3 a4 a5 a6 a7 a8 : α) : Array α := ⟨.nil⟩
end Array
namespace Lean
abbrev MacroScope : Type := Nat
abbrev SyntaxNodeKinds : Type := List SyntaxNodeKind
structure TSyntax (ks : SyntaxNodeKinds) : Type where
  raw : Syntax
abbrev TSyntaxArray (ks : SyntaxNodeKinds) : Type := Array (TSyntax ks)
@[extern "l_Lean_TSyntaxArray_rawImpl"] opaque TSyntaxArray.rawImpl {ks : SyntaxNodeKinds} (xs : TSyntaxArray ks) :
    Array Syntax := ⟨.nil⟩
@[extern "l_Lean_TSyntaxArray_mkImpl"] opaque TSyntaxArray.mkImpl {ks : SyntaxNodeKinds} (xs : Array Syntax) :
    TSyntaxArray ks := ⟨.nil⟩
def TSyntaxArray.raw {ks : SyntaxNodeKinds} (xs : TSyntaxArray ks) : Array Syntax := xs.rawImpl
def TSyntaxArray.mk {ks : SyntaxNodeKinds} (xs : Array Syntax) : TSyntaxArray ks := .mkImpl xs
instance {ks : SyntaxNodeKinds} : CoeOut (TSyntaxArray ks) (Array Syntax) := ⟨TSyntaxArray.raw⟩
structure Syntax.SepArray (sep : String) : Type where
  elemsAndSeps : Array Syntax
structure Syntax.TSepArray (ks : SyntaxNodeKinds) (sep : String) : Type where
  elemsAndSeps : Array Syntax
@[extern "l_Lean_Syntax_TSepArray_getElems"] opaque Syntax.TSepArray.getElems {ks : SyntaxNodeKinds} {sep : String}
    (xs : TSepArray ks sep) : TSyntaxArray ks := ⟨.nil⟩
@[extern "l_Lean_Syntax_SepArray_ofElems"] opaque Syntax.SepArray.ofElems {sep : String} (xs : Array Syntax) :
    SepArray sep := ⟨⟨.nil⟩⟩
instance {ks : SyntaxNodeKinds} {sep : String} : CoeOut (Syntax.TSepArray ks sep) (TSyntaxArray ks) :=
  ⟨Syntax.TSepArray.getElems⟩
instance {ks : SyntaxNodeKinds} {sep : String} : Coe (TSyntaxArray ks) (Syntax.TSepArray ks sep) :=
  ⟨fun xs => ⟨(Syntax.SepArray.ofElems (sep := sep) xs.raw).elemsAndSeps⟩⟩
instance {ks : SyntaxNodeKinds} : CoeOut (TSyntax ks) Syntax := ⟨TSyntax.raw⟩
instance : Coe SyntaxNodeKind SyntaxNodeKinds := ⟨fun kind => .cons kind .nil⟩
instance : Coe (TSyntax `ident) (TSyntax `term) := ⟨fun s => ⟨s.raw⟩⟩
instance : Coe (TSyntax `num) (TSyntax `term) := ⟨fun s => ⟨s.raw⟩⟩
instance : Coe (TSyntax `str) (TSyntax `term) := ⟨fun s => ⟨s.raw⟩⟩
instance {k : SyntaxNodeKind} {ks : SyntaxNodeKinds} : Coe (TSyntax k) (TSyntax (.cons k ks)) := ⟨fun s => ⟨s.raw⟩⟩
instance {k : SyntaxNodeKind} {ks : SyntaxNodeKinds} : Coe (TSyntax ks) (TSyntax (.cons k ks)) := ⟨fun s => ⟨s.raw⟩⟩
instance {ks ls : SyntaxNodeKinds} [Coe (TSyntax ks) (TSyntax ls)] : Coe (TSyntaxArray ks) (TSyntaxArray ls) :=
  ⟨fun xs => .mk xs.raw⟩
instance : Inhabited Syntax := ⟨.missing⟩

class MonadRef (m : Type → Type) where
  getRef : m Syntax
  withRef {α : Type} : Syntax → m α → m α
export MonadRef (getRef)
class MonadQuotation (m : Type → Type) extends MonadRef m where
  getCurrMacroScope : m MacroScope
  getContext : m Name
  withFreshMacroScope {α : Type} : m α → m α
export MonadQuotation (getCurrMacroScope withFreshMacroScope)

namespace Syntax
@[extern "l_Lean_Syntax_getArg"] opaque getArg (stx : Syntax) (i : Nat) : Syntax := .missing
@[extern "l_Lean_Syntax_getArgs"] opaque getArgs (stx : Syntax) : Array Syntax := ⟨.nil⟩
@[extern "l_Lean_Syntax_getNumArgs"] opaque getNumArgs (stx : Syntax) : Nat := 0
@[extern "l_Lean_Syntax_getId"] opaque getId (stx : Syntax) : Name := .anonymous
@[extern "l_Lean_Syntax_isOfKind"] opaque isOfKind (stx : Syntax) (k : SyntaxNodeKind) : Bool := false
@[extern "l_Lean_Syntax_matchesIdent"] opaque matchesIdent (stx : Syntax) (id : Name) : Bool := false
@[extern "l_Lean_Syntax_matchesLit"] opaque matchesLit (stx : Syntax) (k : SyntaxNodeKind) (val : String) : Bool := false
@[extern "l_Lean_Syntax_matchesNull"] opaque matchesNull (stx : Syntax) (n : Nat) : Bool := false
@[extern "l_Lean_Syntax_node1"] opaque node1 (info : SourceInfo) (kind : SyntaxNodeKind)
    (a1 : Syntax) : Syntax := .missing
@[extern "l_Lean_Syntax_node2"] opaque node2 (info : SourceInfo) (kind : SyntaxNodeKind)
    (a1 a2 : Syntax) : Syntax := .missing
@[extern "l_Lean_Syntax_node3"] opaque node3 (info : SourceInfo) (kind : SyntaxNodeKind)
    (a1 a2 a3 : Syntax) : Syntax := .missing
@[extern "l_Lean_Syntax_node4"] opaque node4 (info : SourceInfo) (kind : SyntaxNodeKind)
    (a1 a2 a3 a4 : Syntax) : Syntax := .missing
@[extern "l_Lean_Syntax_node5"] opaque node5 (info : SourceInfo) (kind : SyntaxNodeKind)
    (a1 a2 a3 a4 a5 : Syntax) : Syntax := .missing
@[extern "l_Lean_Syntax_node6"] opaque node6 (info : SourceInfo) (kind : SyntaxNodeKind)
    (a1 a2 a3 a4 a5 a6 : Syntax) : Syntax := .missing
@[extern "l_Lean_Syntax_node7"] opaque node7 (info : SourceInfo) (kind : SyntaxNodeKind)
    (a1 a2 a3 a4 a5 a6 a7 : Syntax) : Syntax := .missing
@[extern "l_Lean_Syntax_node8"] opaque node8 (info : SourceInfo) (kind : SyntaxNodeKind)
    (a1 a2 a3 a4 a5 a6 a7 a8 : Syntax) : Syntax := .missing
end Syntax
/-- A tactic where a sequence of tactics is wanted. -/
instance : Coe (TSyntax `tactic) (TSyntax `Lean.Parser.Tactic.tacticSeq) where
  coe t := ⟨.node1 .none `Lean.Parser.Tactic.tacticSeq
    (.node1 .none `Lean.Parser.Tactic.tacticSeq1Indented (.node1 .none `null t.raw))⟩
@[extern "l_Lean_mkSepArray"] opaque mkSepArray (xs : Array Syntax) (sep : Syntax) : Array Syntax := xs
@[extern "l_Lean_mkAtom"] opaque mkAtom (val : String) : Syntax := .missing
@[extern "l_Lean_replaceRef"] opaque replaceRef (ref oldRef : Syntax) : Syntax := .missing
@[extern "l_Lean_SourceInfo_fromRef"] opaque SourceInfo.fromRef (ref : Syntax) (canonical : Bool := false) : SourceInfo := .none
@[extern "l_Lean_addMacroScope"] opaque addMacroScope (mainModule : Name) (n : Name) (scp : MacroScope) : Name := n
section
variable {m : Type → Type} [Monad m]
def withRef [MonadRef m] {α : Type} (ref : Syntax) (x : m α) : m α :=
  bind getRef fun old => MonadRef.withRef (replaceRef ref old) x
def MonadRef.mkInfoFromRefPos [MonadRef m] : m SourceInfo := bind getRef fun ref => pure (SourceInfo.fromRef ref)
def MonadQuotation.addMacroScope [MonadQuotation m] (n : Name) : m Name :=
  bind MonadQuotation.getContext fun context => bind getCurrMacroScope fun scope =>
    pure (Lean.addMacroScope context n scope)
end

section
variable {ρ ε σ : Type}
instance : Monad (EvalM ρ ε σ) where
  map f x c s := match x c s with
    | .ok a s => .ok (f a) s
    | .error e s => .error e s
  mapConst a x c s := match x c s with
    | .ok _ s => .ok a s
    | .error e s => .error e s
  pure a _ s := .ok a s
  bind x f c s := match x c s with
    | .ok a s => f a c s
    | .error e s => .error e s
  seq f x c s := match f c s with
    | .error e s => .error e s
    | .ok f s => match x .unit c s with
      | .ok a s => .ok (f a) s
      | .error e s => .error e s
  seqLeft x y c s := match x c s with
    | .error e s => .error e s
    | .ok a s => match y .unit c s with
      | .ok _ s => .ok a s
      | .error e s => .error e s
  seqRight x y c s := match x c s with
    | .ok _ s => y .unit c s
    | .error e s => .error e s
instance : MonadExcept ε (EvalM ρ ε σ) where
  throw e _ s := .error e s
  tryCatch x f c s := match x c s with
    | .ok a s => .ok a s
    | .error e s => f e c s
end
@[extern "l_Lean_Macro_instMonadQuotationMacroM"] instance Macro.instMonadQuotationMacroM : MonadQuotation MacroM where
  getRef _ s := .ok .missing s
  withRef _ x := x
  getCurrMacroScope _ s := .ok 0 s
  getContext _ s := .ok .anonymous s
  withFreshMacroScope x := x
@[extern "l_Lean_PrettyPrinter_instMonadQuotationUnexpandM"]
instance PrettyPrinter.instMonadQuotationUnexpandM : MonadQuotation PrettyPrinter.UnexpandM where
  getRef ref s := .ok ref s
  withRef _ x := x
  getCurrMacroScope _ s := .ok 0 s
  getContext _ s := .ok .anonymous s
  withFreshMacroScope x := x
end Lean
