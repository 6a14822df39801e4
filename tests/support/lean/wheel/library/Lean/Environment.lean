prelude
import Lean.Data
/-! Names, terms, constants and modules, laid out in memory as those of Lean 4.35 are. What would be another type there
and is not looked into here has a simpler one: a field's place counts, and whether it is a number of the machine. -/
set_option autoImplicit false
set_option linter.unusedVariables false
universe u v w

namespace Lean
@[extern "l_Lean_versionString"] opaque versionString : String := ""
@[extern "l_Lean_githash"] opaque githash : String := ""
@[extern "l_Lean_version_major"] opaque version.major : Nat := 0
@[extern "l_Lean_version_minor"] opaque version.minor : Nat := 0

namespace Name
@[extern "lean_name_eq"] protected opaque beq (n m : Name) : Bool := false
@[extern "l_Lean_Name_hash___override"] opaque hash._override (n : Name) : UInt64 := ⟨0⟩
@[extern "l_Lean_Name_toString"] protected opaque toString (n : Name) (escape : Bool := true) : String := ""
@[extern "l_Lean_Name_append"] protected opaque append (n m : Name) : Name := n
@[extern "l_Lean_Name_isInternal"] opaque isInternal (n : Name) : Bool := false
instance : BEq Name := ⟨Name.beq⟩
instance : Hashable Name := ⟨hash._override⟩
instance : ToString Name := ⟨fun n => n.toString⟩
instance : Append Name := ⟨Name.append⟩
instance : Inhabited Name := ⟨.anonymous⟩
end Name

/-! Terms. What else each of these has in memory, such as its hash, comes after these fields. -/
structure FVarId where
  name : Name
structure MVarId where
  name : Name
structure LevelMVarId where
  name : Name
inductive Level where
  | zero
  | succ (u : Level)
  | max (u v : Level)
  | imax (u v : Level)
  | param (name : Name)
  | mvar (id : LevelMVarId)
/-- What else it has in memory is worked out where one is made. -/
@[extern "l_Lean_Level_param___override"] def Level.param._override (name : Name) : Level := .param name
attribute [implemented_by Level.param._override] Level.param
inductive Literal where
  | natVal (val : Nat)
  | strVal (val : String)
inductive BinderInfo where
  | default | implicit | strictImplicit | instImplicit
inductive Expr where
  | bvar (index : Nat)
  | fvar (id : FVarId)
  | mvar (id : MVarId)
  | sort (u : Level)
  | const (name : Name) (us : List Level)
  | app (fn arg : Expr)
  | lam (name : Name) (type body : Expr) (info : BinderInfo)
  | forallE (name : Name) (type body : Expr) (info : BinderInfo)
  | letE (name : Name) (type value body : Expr) (nondep : Bool)
  | lit (val : Literal)
  | mdata (data : List Name) (expr : Expr)
  | proj (type : Name) (index : Nat) (struct : Expr)
@[extern "lean_level_eq"] protected opaque Level.beq (u v : Level) : Bool := false
@[extern "l_Lean_Level_hash"] protected opaque Level.hash (u : Level) : UInt64 := ⟨0⟩
instance : BEq Level := ⟨Level.beq⟩
instance : Hashable Level := ⟨Level.hash⟩
@[extern "lean_expr_eqv"] opaque Expr.eqv (a b : Expr) : Bool := false
@[extern "l_Lean_Expr_hash"] protected opaque Expr.hash (a : Expr) : UInt64 := ⟨0⟩
/-- Where this stands in memory, the functions of Lean know. -/
@[extern "l_Lean_Expr_binderInfo"] opaque Expr.binderInfo (e : Expr) : BinderInfo := .default
@[extern "lean_expr_has_loose_bvar"] opaque Expr.hasLooseBVar (e : Expr) (i : Nat) : Bool := false
@[extern "l_Lean_Expr_getUsedConstants"] opaque Expr.getUsedConstants (e : Expr) : Array Name := .empty
@[extern "l_Lean_Expr_getForallBody"] opaque Expr.getForallBody (e : Expr) : Expr := .bvar 0
@[extern "l_Lean_Expr_getAppFn"] opaque Expr.getAppFn (e : Expr) : Expr := .bvar 0
@[extern "l_Lean_Expr_instantiateLevelParams"] opaque Expr.instantiateLevelParams (e : Expr) (names : List Name)
  (levels : List Level) : Expr := e
@[extern "l_Lean_Expr_find_x3f"] opaque Expr.find? (p : Expr → Bool) (e : Expr) : Option Expr := none
instance : BEq Expr := ⟨Expr.eqv⟩
instance : Hashable Expr := ⟨Expr.hash⟩
instance : Inhabited Expr := ⟨.bvar 0⟩

/-! Constants -/
structure ConstantVal where
  name : Name
  levelParams : List Name
  type : Expr
structure AxiomVal extends ConstantVal where
  isUnsafe : Bool
inductive ReducibilityHints where
  | «opaque»
  | «abbrev»
  | regular (height : UInt32)
inductive DefinitionSafety where
  | «unsafe» | safe | «partial»
structure DefinitionVal extends ConstantVal where
  value : Expr
  hints : ReducibilityHints
  safety : DefinitionSafety
  all : List Name
structure TheoremVal extends ConstantVal where
  value : Expr
  all : List Name
structure OpaqueVal extends ConstantVal where
  value : Expr
  isUnsafe : Bool
  all : List Name
inductive QuotKind where
  | type | ctor | lift | ind
structure QuotVal extends ConstantVal where
  kind : QuotKind
structure InductiveVal extends ConstantVal where
  numParams : Nat
  numIndices : Nat
  all : List Name
  ctors : List Name
  numNested : Nat
  isRec : Bool
  isUnsafe : Bool
  isReflexive : Bool
structure ConstructorVal extends ConstantVal where
  induct : Name
  cidx : Nat
  numParams : Nat
  numFields : Nat
  isUnsafe : Bool
structure RecursorRule where
  ctor : Name
  nfields : Nat
  rhs : Expr
structure RecursorVal extends ConstantVal where
  all : List Name
  numParams : Nat
  numIndices : Nat
  numMotives : Nat
  numMinors : Nat
  rules : List RecursorRule
  k : Bool
  isUnsafe : Bool
inductive ConstantInfo where
  | axiomInfo (val : AxiomVal)
  | defnInfo (val : DefinitionVal)
  | thmInfo (val : TheoremVal)
  | opaqueInfo (val : OpaqueVal)
  | quotInfo (val : QuotVal)
  | inductInfo (val : InductiveVal)
  | ctorInfo (val : ConstructorVal)
  | recInfo (val : RecursorVal)
namespace ConstantInfo
@[extern "l_Lean_ConstantInfo_name"] opaque name (c : ConstantInfo) : Name := .anonymous
@[extern "l_Lean_ConstantInfo_levelParams"] opaque levelParams (c : ConstantInfo) : List Name := .nil
@[extern "l_Lean_ConstantInfo_type"] opaque type (c : ConstantInfo) : Expr := default
@[extern "l_Lean_ConstantInfo_isUnsafe"] opaque isUnsafe (c : ConstantInfo) : Bool := false
end ConstantInfo

/-! Maps and sets -/
structure PersistentHashMap (α : Type u) (β : Type v) [BEq α] [Hashable α] where
  fst : Name
  snd : Name
namespace PersistentHashMap
variable {α : Type u} {β : Type v} [BEq α] [Hashable α]
@[extern "l_Lean_PersistentHashMap_empty"] opaque empty : PersistentHashMap α β := ⟨.anonymous, .anonymous⟩
@[extern "l_Lean_PersistentHashMap_find_x3f"] opaque find? (m : PersistentHashMap α β) (k : α) : Option β := none
@[extern "l_Lean_PersistentHashMap_insert"] opaque insert (m : PersistentHashMap α β) (k : α) (v : β) :
  PersistentHashMap α β := m
instance : EmptyCollection (PersistentHashMap α β) := ⟨empty⟩
end PersistentHashMap
/-- A tree; as its empty one is a number, not all values can be pointers. -/
inductive NameSet where
  | inner (fst snd : Name)
  | leaf
@[extern "l_Lean_NameSet_insert"] opaque NameSet.insert (s : NameSet) (n : Name) : NameSet := s
@[extern "l_Lean_NameSet_contains"] opaque NameSet.contains (s : NameSet) (n : Name) : Bool := false
instance : EmptyCollection NameSet := ⟨.leaf⟩
structure SMap (α : Type u) (β : Type v) [BEq α] [Hashable α] where
  fst : Name
  snd : Name
@[extern "l_Lean_SMap_fold"] opaque SMap.fold {α : Type u} {β : Type v} [BEq α] [Hashable α] {σ : Type w}
  (f : σ → α → β → σ) (init : σ) (m : SMap α β) : σ := init

/-! Built files and environments -/
structure Import where
  module : Name
  importAll : Bool := false
  isExported : Bool := true
  isMeta : Bool := false
structure ModuleData where
  isModule : Bool
  imports : Array Import
  constNames : Array Name
  constants : Array ConstantInfo
  extraConstNames : Array Name
  entries : Array Name
/-- A number, so that nobody follows it as a pointer. -/
def CompactedRegion : Type := Nat
instance : Inhabited ModuleData := ⟨false, .empty, .empty, .empty, .empty, .empty⟩
@[extern "lean_read_module_data"] opaque readModuleData (file : System.FilePath) : IO (ModuleData × CompactedRegion)
@[extern "l_Lean_findOLean"] opaque findOLean (module : Name) : IO System.FilePath
@[extern "lean_get_prefix"] opaque getBuildDir : IO System.FilePath
@[extern "l_Lean_initSearchPath"] opaque initSearchPath (root : System.FilePath) (more : List System.FilePath := .nil) :
  IO Unit

abbrev ModuleIdx : Type := Nat
def ModuleIdx.toNat (i : ModuleIdx) : Nat := i
structure Options where
  fst : Name
  flag : Bool
@[extern "l_Lean_Options_empty"] opaque Options.empty : Options := ⟨.anonymous, false⟩
instance : EmptyCollection Options := ⟨Options.empty⟩
structure EnvironmentHeader where
  mainModule : Name
  imports : Array Import
  regions : Array Nat
  modules : Array Name
  indices : Array Name
  others : Array Name
  moduleData : Array ModuleData
@[extern "l_Lean_EnvironmentHeader_moduleNames"] opaque EnvironmentHeader.moduleNames (h : EnvironmentHeader) :
  Array Name := .empty
structure Environment where
  fst : Name
  snd : Name
instance : Inhabited EnvironmentHeader := ⟨.anonymous, .empty, .empty, .empty, .empty, .empty, .empty⟩
namespace Environment
@[extern "l_Lean_Environment_find_x3f"] opaque find? (env : Environment) (n : Name) (skipRealize : Bool := false) :
  Option ConstantInfo := none
@[extern "l_Lean_Environment_getModuleIdx_x3f"] opaque getModuleIdx? (env : Environment) (module : Name) :
  Option ModuleIdx := none
@[extern "l_Lean_Environment_getModuleIdxFor_x3f"] opaque getModuleIdxFor? (env : Environment) (n : Name) :
  Option ModuleIdx := none
@[extern "l_Lean_Environment_header"] opaque header (env : Environment) : EnvironmentHeader := default
@[extern "l_Lean_Environment_constants"] opaque constants (env : Environment) : SMap Name ConstantInfo :=
  ⟨.anonymous, .anonymous⟩
end Environment
inductive OLeanLevel where
  | exported | server | «private»
@[extern "l_Lean_importModules"] opaque importModules (imports : Array Import) (options : Options)
  (trustLevel : UInt32 := 0) (plugins : Array System.FilePath := .empty) (leakEnv loadExts : Bool := false)
  (level : OLeanLevel := .«private») (artifacts : NameSet := .leaf) : IO Environment
end Lean
