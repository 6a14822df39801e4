prelude
import Lean.Control
/-! Numbers of the machine, characters, texts, lists, arrays, input and output.
What is `opaque` with an `extern` is the function of the declaration's own name in the shared library; its value here is
never used, but it has to have the arguments that the function has. What only compiled code looks into has two fields,
whatever they are: with one field or none its values would be something else in memory. -/
set_option autoImplicit false
set_option linter.unusedVariables false
universe u v w

export Option (none some)
def Option.isSome {α : Type u} : Option α → Bool
  | some _ => true
  | none => false

structure UInt32 where
  number : Nat
structure UInt64 where
  toNat : Nat
@[extern "lean_uint32_to_nat"] opaque UInt32.toNat (n : UInt32) : Nat := 0
@[extern "lean_uint32_of_nat"] opaque UInt32.ofNat (n : Nat) : UInt32 := ⟨n⟩
instance (n : Nat) : OfNat UInt32 n := ⟨.ofNat n⟩

/-! Comparing -/
class Hashable (α : Type u) where
  hash : α → UInt64
@[inline] def bne {α : Type u} [BEq α] (a b : α) : Bool := not (BEq.beq a b)
@[extern "l_Char_ofNat"] opaque Char.ofNat (n : Nat) : Char := ⟨n⟩
@[extern "l_instDecidableEqChar"] instance instDecidableEqChar (c d : Char) : Decidable (c = d) :=
  match c, d with
  | ⟨n⟩, ⟨m⟩ => match Nat.decEq n m with
    | isTrue h => isTrue (h ▸ rfl)
    | isFalse h => isFalse fun e => h (congrArg Char.code e)

/-! Collections -/
class EmptyCollection (α : Type u) where
  emptyCollection : α
instance {α : Type u} : EmptyCollection (List α) := ⟨.nil⟩
namespace List
@[inline] def mapM {m : Type u → Type v} [Monad m] {α : Type w} {β : Type u} (f : α → m β) (xs : List α) : m (List β) :=
  let rec go : List α → m (List β)
    | nil => pure nil
    | cons x xs => bind (f x) fun y => bind (go xs) fun ys => pure (cons y ys)
  go xs
/-- `for x in xs do`, with a state. -/
def forEach {m : Type u → Type v} [Monad m] {α : Type w} {β : Type u} (f : α → β → m (ForInStep β)) : List α → β → m β
  | nil, b => pure b
  | cons x xs, b => bind (f x b) fun
    | .done b => pure b
    | .yield b => forEach f xs b
instance {m : Type u → Type v} [Monad m] {α : Type w} : ForIn m (List α) α := ⟨fun xs b f => forEach f xs b⟩
def foldl {α : Type u} {β : Type v} (f : β → α → β) (b : β) : List α → β
  | nil => b
  | cons x xs => foldl f (f b x) xs
@[inline] def isEmpty {α : Type u} : List α → Bool
  | nil => true
  | cons _ _ => false
def any {α : Type u} (xs : List α) (p : α → Bool) : Bool := xs.foldl (fun found x => found || p x) false
def filter {α : Type u} (p : α → Bool) : List α → List α
  | nil => nil
  | cons x xs => cond (p x) (cons x (filter p xs)) (filter p xs)
@[extern "l_List_toArray"] opaque toArray {α : Type u} (xs : List α) : Array α := ⟨xs⟩
end List
namespace Array
variable {α : Type u} {β : Type v}
@[extern "lean_mk_empty_array_with_capacity"] opaque mkEmpty (capacity : Nat) : Array α := ⟨.nil⟩
@[extern "lean_array_get_size"] opaque size (xs : Array α) : Nat := 0
@[extern "lean_array_push"] opaque push (xs : Array α) (x : α) : Array α := xs
@[extern "lean_array_pop"] opaque pop (xs : Array α) : Array α := xs
@[extern "lean_array_get"] opaque get!Internal [Inhabited α] (xs : Array α) (i : Nat) : α := default
/-- What the compiler puts in its place where the element is only looked at. -/
@[extern "lean_array_get_borrowed"] opaque get!InternalBorrowed [Inhabited α] (xs : Array α) (i : Nat) : α := default
@[extern "l_Array_getD"] opaque getD (xs : Array α) (i : Nat) (x : α) : α := x
@[extern "l_Array_zip"] opaque zip (xs : Array α) (ys : Array β) : Array (α × β) := ⟨.nil⟩
@[extern "l_Array_any"] opaque any (xs : Array α) (p : α → Bool) (start : Nat := 0) (stop : Nat := xs.size) : Bool := false
@[extern "l_Array_filter"] opaque filter (p : α → Bool) (xs : Array α) (start : Nat := 0) (stop : Nat := xs.size) :
  Array α := xs
@[extern "l_Array_contains"] opaque contains [BEq α] (xs : Array α) (x : α) : Bool := false
@[extern "l_Array_foldl"] opaque foldl (f : β → α → β) (init : β) (xs : Array α) (start : Nat := 0)
    (stop : Nat := xs.size) : β := init
instance : EmptyCollection (Array α) := ⟨empty⟩
instance {m : Type u → Type v} [Monad m] {α : Type w} : ForIn m (Array α) α := ⟨fun xs b f => xs.toList.forEach f b⟩
end Array
class GetElem? (γ : Type u) (ι : Type v) (α : outParam (Type w)) where
  getElem! [Inhabited α] (xs : γ) (i : ι) : α
export GetElem? (getElem!)
instance {α : Type u} : GetElem? (Array α) Nat α := ⟨fun xs i => xs.get!Internal i⟩

/-! Texts -/
class ToString (α : Type u) where
  toString : α → String
export ToString (toString)
namespace String
@[extern "lean_string_append"] protected opaque append (s t : String) : String := s
@[extern "lean_string_push"] opaque push (s : String) (c : Char) : String := s
@[extern "lean_string_utf8_byte_size"] opaque utf8ByteSize (s : String) : Nat := 0
@[extern "l_String_toNat_x21"] opaque toNat! (s : String) : Nat := 0
@[extern "lean_string_dec_eq"] opaque decEq (s t : String) : Bool := false
@[extern "lean_string_hash"] protected opaque hash (s : String) : UInt64 := ⟨0⟩
instance : BEq String := ⟨String.decEq⟩
instance : Hashable String := ⟨String.hash⟩
@[extern "l_String_quote"] opaque quote (s : String) : String := s
instance : Append String := ⟨String.append⟩
instance : ToString String := ⟨fun s => s⟩
instance : Inhabited String := ⟨""⟩
/-- What `any` looks at one by one. -/
def anyOf (p : Char → Bool) : List Char → Bool
  | .nil => false
  | .cons c cs => p c || anyOf p cs
@[inline] def any (s : String) (p : Char → Bool) : Bool := anyOf p s.toList
end String
@[extern "l_Char_toNat"] opaque Char.toNat (c : Char) : Nat := 0
@[extern "l_Nat_digitChar"] opaque Nat.digitChar (n : Nat) : Char := ⟨n⟩
@[extern "l_Nat_reprFast"] opaque Nat.reprFast (n : Nat) : String := ""
instance : ToString Nat := ⟨Nat.reprFast⟩
@[extern "l_List_toString"] protected opaque List.toString {α : Type u} [ToString α] (xs : List α) : String := ""
instance {α : Type u} [ToString α] : ToString (List α) := ⟨List.toString⟩
structure System.FilePath where
  toString : String
instance : Coe String System.FilePath := ⟨System.FilePath.mk⟩
instance : Inhabited System.FilePath := ⟨⟨""⟩⟩

/-! Input and output: functions of a token for the state of the world. -/
opaque Void.nonemptyType (σ : Type) : {α : Type // Nonempty α} := ⟨Unit, ⟨.unit⟩⟩
def Void (σ : Type) : Type := (Void.nonemptyType σ).val
inductive EST.Out (ε σ α : Type) : Type where
  | ok (a : α) (w : Void σ)
  | error (e : ε) (w : Void σ)
def EST (ε σ α : Type) : Type := Void σ → EST.Out ε σ α
def IO.RealWorld : Type := Unit
abbrev EIO (ε : Type) : Type → Type := EST ε IO.RealWorld
/-- In the order of Lean's own: compiled code makes these and reads them. -/
inductive IO.Error where
  | alreadyExists (code : UInt32) (details : String)
  | otherError (code : UInt32) (details : String)
  | resourceBusy (code : UInt32) (details : String)
  | resourceVanished (code : UInt32) (details : String)
  | unsupportedOperation (code : UInt32) (details : String)
  | hardwareFault (code : UInt32) (details : String)
  | unsatisfiedConstraints (code : UInt32) (details : String)
  | illegalOperation (code : UInt32) (details : String)
  | protocolError (code : UInt32) (details : String)
  | timeExpired (code : UInt32) (details : String)
  | interrupted (file : String) (code : UInt32) (details : String)
  | noFileOrDirectory (file : String) (code : UInt32) (details : String)
  | invalidArgument (file : Option String) (code : UInt32) (details : String)
  | permissionDenied (file : Option String) (code : UInt32) (details : String)
  | resourceExhausted (file : Option String) (code : UInt32) (details : String)
  | inappropriateType (file : Option String) (code : UInt32) (details : String)
  | noSuchThing (file : Option String) (code : UInt32) (details : String)
  | unexpectedEof
  | userError (text : String)
abbrev IO : Type → Type := EIO IO.Error
section
variable {ε σ : Type}
instance : Monad (EST ε σ) where
  map f x w := match x w with
    | .ok a w => .ok (f a) w
    | .error e w => .error e w
  mapConst a x w := match x w with
    | .ok _ w => .ok a w
    | .error e w => .error e w
  pure a w := .ok a w
  bind x f w := match x w with
    | .ok a w => f a w
    | .error e w => .error e w
  seq f x w := match f w with
    | .error e w => .error e w
    | .ok f w => match x .unit w with
      | .ok a w => .ok (f a) w
      | .error e w => .error e w
  seqLeft x y w := match x w with
    | .error e w => .error e w
    | .ok a w => match y .unit w with
      | .ok _ w => .ok a w
      | .error e w => .error e w
  seqRight x y w := match x w with
    | .ok _ w => y .unit w
    | .error e w => .error e w
instance : MonadExcept ε (EST ε σ) where
  throw e w := .error e w
  tryCatch x f w := match x w with
    | .ok a w => .ok a w
    | .error e w => f e w
end
namespace IO
def userError (text : String) : IO.Error := .userError text
instance : Inhabited IO.Error := ⟨.unexpectedEof⟩
instance {α : Type} : Inhabited (IO α) := ⟨throw default⟩
@[extern "l_IO_eprintln"] opaque eprintln {α : Type} [ToString α] (s : α) : IO Unit
inductive FS.Mode where
  | read | write | writeNew | readWrite | append
structure FS.Handle where
  file ::
  fst : Lean.Name
  snd : Lean.Name
namespace FS.Handle
@[extern "lean_io_prim_handle_mk"] opaque mk (path : System.FilePath) (mode : FS.Mode) : IO FS.Handle
@[extern "lean_io_prim_handle_put_str"] opaque putStr (h : FS.Handle) (s : String) : IO Unit
@[extern "lean_io_prim_handle_get_line"] opaque getLine (h : FS.Handle) : IO String
@[extern "lean_io_prim_handle_flush"] opaque flush (h : FS.Handle) : IO Unit
end FS.Handle
end IO
