prelude
import Lean.Environment
/-! Elaborating a file, and what the elaborator notes of it. As in `Lean.Environment` it is the places of fields that
count; what is only handed on has two fields of a name. -/
set_option autoImplicit false
set_option linter.unusedVariables false
universe u v w

/-! Collections and texts -/
namespace String
@[extern "l_String_splitOn"] opaque splitOn (s : String) (separator : String := " ") : List String := .nil
end String
structure Std.Format where
  fst : Lean.Name
  snd : Lean.Name
instance : Inhabited Std.Format := ⟨⟨.anonymous, .anonymous⟩⟩
@[extern "l_Std_Format_pretty"] opaque Std.Format.pretty (f : Std.Format) (width : Nat := 120) (indent column : Nat := 0) :
  String := ""

/-! What cannot fail gives its result as it is. -/
structure ST.Out (σ α : Type) where
  val : α
  state : Void σ
def BaseIO (α : Type) : Type := Void IO.RealWorld → ST.Out IO.RealWorld α
@[inline] abbrev liftM {m : Type u → Type v} {n : Type u → Type w} [MonadLiftT m n] {α : Type u} (x : m α) : n α :=
  monadLift x
instance {α : Type} [Inhabited α] : Inhabited (BaseIO α) := ⟨fun w => ⟨default, w⟩⟩
instance : MonadLiftT BaseIO IO := ⟨fun x w => match x w with | ⟨a, w⟩ => .ok a w⟩
@[extern "l_IO_FS_readFile"] opaque IO.FS.readFile (path : System.FilePath) : IO String

namespace Lean
@[extern "l_Lean_Name_getPrefix"] opaque Name.getPrefix (n : Name) : Name := .anonymous
namespace Syntax
@[extern "l_Lean_Syntax_getPos_x3f"] opaque getPos? (stx : Syntax) (canonicalOnly : Bool := false) :
  Option String.Pos.Raw := none
@[extern "l_Lean_Syntax_getTailPos_x3f"] opaque getTailPos? (stx : Syntax) (canonicalOnly : Bool := false) :
  Option String.Pos.Raw := none
end Syntax

/-! Options -/
class KVMap.Value (α : Type) where
  fst : Name
  snd : Name
namespace KVMap
@[extern "l_Lean_KVMap_instValueBool"] opaque instValueBool : KVMap.Value Bool := ⟨.anonymous, .anonymous⟩
@[extern "l_Lean_KVMap_instValueNat"] opaque instValueNat : KVMap.Value Nat := ⟨.anonymous, .anonymous⟩
@[extern "l_Lean_KVMap_instValueString"] opaque instValueString : KVMap.Value String := ⟨.anonymous, .anonymous⟩
attribute [instance] instValueBool instValueNat instValueString
end KVMap
@[extern "l_Lean_Options_set"] opaque Options.set {α : Type} [KVMap.Value α] (options : Options) (name : Name)
  (value : α) : Options := options

/-! Messages -/
structure Position where
  line : Nat
  column : Nat
inductive MessageSeverity where
  | information | warning | error
structure MessageData where
  fst : Name
  snd : Name
@[extern "l_Lean_MessageData_toString"] opaque MessageData.toString (data : MessageData) : BaseIO String
structure Message where
  fileName : String
  pos : Position
  endPos : Option Position
  keepFullRange : Bool
  severity : MessageSeverity
  isSilent : Bool
  caption : String
  data : MessageData
structure MessageLog where
  fst : Name
  snd : Name
instance : Inhabited MessageLog := ⟨⟨.anonymous, .anonymous⟩⟩
@[extern "l_Lean_MessageLog_hasErrors"] opaque MessageLog.hasErrors (log : MessageLog) : Bool := false
@[extern "l_Lean_MessageLog_toList"] opaque MessageLog.toList (log : MessageLog) : List Message := .nil

/-! Where constants are declared -/
structure DeclarationRange where
  pos : Position
  charUtf16 : Nat
  endPos : Position
  endCharUtf16 : Nat
structure DeclarationRanges where
  range : DeclarationRange
  selectionRange : DeclarationRange
instance : Inhabited DeclarationRanges :=
  ⟨⟨⟨⟨0, 0⟩, 0, ⟨0, 0⟩, 0⟩, ⟨⟨0, 0⟩, 0, ⟨0, 0⟩, 0⟩⟩⟩
structure MapDeclarationExtension (α : Type) where
  fst : Name
  snd : Name
/-- As far as it goes: the last one of Lean's has a field. -/
inductive EnvExtension.AsyncMode where
  | sync | «local» | mainOnly
  | async (branch : Name)
@[extern "l_Lean_declRangeExt"] opaque declRangeExt : MapDeclarationExtension DeclarationRanges :=
  ⟨.anonymous, .anonymous⟩
@[extern "l_Lean_MapDeclarationExtension_find_x3f"] opaque MapDeclarationExtension.find? {α : Type} [Inhabited α]
  (ext : MapDeclarationExtension α) (env : Environment) (name : Name) (mode : EnvExtension.AsyncMode := .mainOnly)
  (level : OLeanLevel := .«private») : Option α := none
@[extern "l_Lean_Environment_setMainModule"] opaque Environment.setMainModule (env : Environment) (home : Name) :
  Environment := env
@[extern "l_Lean_SMap_foldStage2"] opaque SMap.foldStage2 {α : Type u} {β : Type v} [BEq α] [Hashable α] {σ : Type w}
  (f : σ → α → β → σ) (init : σ) (m : SMap α β) : σ := init
@[extern "l_Lean_enableInitializersExecution"] opaque enableInitializersExecution : IO Unit

/-! What stands for what is to be found -/
structure LocalContext where
  fst : Name
  snd : Name
structure MetavarContext where
  fst : Name
  snd : Name
instance : Inhabited MetavarContext := ⟨⟨.anonymous, .anonymous⟩⟩
inductive MetavarKind where
  | natural | synthetic | syntheticOpaque
namespace MetavarContext
@[extern "l_Lean_MetavarContext_getExprAssignmentCore_x3f"] opaque getExprAssignmentCore? (m : MetavarContext)
  (id : MVarId) : Option Expr := none
@[extern "l_Lean_MetavarContext_addExprMVarDecl"] opaque addExprMVarDecl (m : MetavarContext) (id : MVarId)
  (userName : Name) (lctx : LocalContext) (instances : Array Name) (type : Expr) (kind : MetavarKind := .natural)
  (numScopeArgs : Nat := 0) : MetavarContext := m
end MetavarContext

/-! Reading a file -/
namespace Parser
structure InputContext where
  fst : Name
  snd : Name
structure ModuleParserState where
  fst : Name
  snd : Name
instance : Inhabited InputContext := ⟨⟨.anonymous, .anonymous⟩⟩
@[extern "l_Lean_Parser_mkInputContext"] opaque mkInputContext (input fileName : String) (normalize : Bool := true)
  (stop : String.Pos.Raw := ⟨input.utf8ByteSize⟩) (valid : True := trivial) : InputContext := default
@[extern "l_Lean_Parser_parseHeader"] opaque parseHeader (input : InputContext) :
  IO (Syntax × ModuleParserState × MessageLog)
end Parser

/-! Elaborating it -/
namespace Elab
structure CommandContextInfo where
  env : Environment
  cmdEnv? : Option Environment
  fileMap : Name
  mctx : MetavarContext
  options : Options
  currNamespace : Name
  openDecls : List Name
  ngen : Name
structure ContextInfo extends CommandContextInfo where
  parentDecl? : Option Name
  autoImplicits : Array Expr
@[extern "l_Lean_Elab_ContextInfo_ppGoals"] opaque ContextInfo.ppGoals (ctx : ContextInfo) (goals : List MVarId) :
  IO Std.Format
structure ElabInfo where
  elaborator : Name
  stx : Syntax
structure TermInfo extends ElabInfo where
  lctx : LocalContext
  expectedType? : Option Expr
  expr : Expr
  isBinder : Bool
  isDisplayableTerm : Bool
structure TacticInfo extends ElabInfo where
  mctxBefore : MetavarContext
  goalsBefore : List MVarId
  mctxAfter : MetavarContext
  goalsAfter : List MVarId
/-- What is after the first two is not looked into. -/
inductive Info where
  | ofTacticInfo (info : TacticInfo)
  | ofTermInfo (info : TermInfo)
  | ofOther (info : Name)
  | ofAnother (info : Name)
structure InfoTree where
  fst : Name
  snd : Name
@[extern "l_Lean_Elab_InfoTree_foldInfo"] opaque InfoTree.foldInfo {α : Type} (f : ContextInfo → Info → α → α) (init : α)
  (tree : InfoTree) : α := init
end Elab
structure PersistentArray (α : Type u) where
  fst : Name
  snd : Name
@[extern "l_Lean_PersistentArray_toArray"] opaque PersistentArray.toArray {α : Type u} (xs : PersistentArray α) :
  Array α := .empty
namespace Elab
structure InfoState where
  enabled : Bool
  assignment : Name
  lazyAssignment : Name
  trees : PersistentArray InfoTree
structure Command.State where
  env : Environment
  messages : MessageLog
  scopes : List Name
  usedQuotCtxts : NameSet
  nextMacroScope : Nat
  maxRecDepth : Nat
  ngen : Name
  auxDeclNGen : Name
  infoState : InfoState
  traceState : Name
  snapshotTasks : Array Name
  newDecls : List Name
  prevLinterStates : Array Name
instance : Inhabited Command.State :=
  ⟨⟨⟨.anonymous, .anonymous⟩, default, .nil, .leaf, 0, 0, .anonymous, .anonymous,
    ⟨false, .anonymous, .anonymous, ⟨.anonymous, .anonymous⟩⟩, .anonymous, .empty, .nil, .empty⟩⟩
@[extern "l_Lean_Elab_Command_mkState"] opaque Command.mkState (env : Environment) (messages : MessageLog)
  (options : Options) : Command.State := default
structure Frontend.State where
  commandState : Command.State
  parserState : Parser.ModuleParserState
  cmdPos : String.Pos.Raw
  commands : Array Syntax
@[extern "l_Lean_Elab_processHeader"] opaque processHeader (header : Syntax) (options : Options) (messages : MessageLog)
  (input : Parser.InputContext) (trustLevel : UInt32 := 0) (plugins : Array System.FilePath := .empty)
  (leakEnv : Bool := false) (mainModule : Name := .anonymous) : IO (Environment × MessageLog)
@[extern "l_Lean_Elab_IO_processCommands"] opaque IO.processCommands (input : Parser.InputContext)
  (start : Parser.ModuleParserState) (state : Command.State) : IO Frontend.State
end Elab
end Lean
