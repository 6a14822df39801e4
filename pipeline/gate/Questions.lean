import Lean

/-!
What the gate asks of one build of a module: the exact statement of a constant, what that statement means, and what
the constant rests on. Asked once of the build with the sorry and once of the build with the proof.

Compiled once with `lean -o`, without a project; `Questions.main` is then run by a file that imports it, with the
arguments ANSWER EXPORT NONCE SCOPE BYTES MODULE CONSTANT OWN VOUCHED… and the project's modules on LEAN_PATH. MODULE is
read as data: none of its initializers, notations, macros or printers takes part, so nothing in it can change an answer.

EXPORT becomes declarations in the format of lean4export, version 3.1.0: a JSON object a line, nodes numbered from 1
(from 0 for terms), each before what it is part of, no node twice. Bound variables have no names and all are
explicit, and notes inside terms (`mdata`) are left out: these are no matter to the kernel. SCOPE says which
declarations: `statement`, what the statement rests on in this module, with its values, and the axioms below the
constant; `closure`, the constant with all that it rests on, as far down as it goes, so that a kernel needs nothing
else. The run fails where the export would have more than BYTES.

ANSWER gets facts, between two lines with NONCE, tabs between their fields. `lean V` is the version of Lean that
answers. `module N PATH` is a module that was read, the asked one included, with the file that it was read from, `import N
M` what it imports, `parts N` that it may lie in several files. The run fails where the first of these, of a module from
no folder of VOUCHED, has other imports than the whole: the kernel's replay takes them from there. `axiom N MODULE NUMBER` names an axiom, where it was
declared and its name in the export; `sorried N` (uses `sorryAx` itself), `native N` (has the kernel believe compiled
code), `unsafe N`: what the constant rests on, as far down as it goes; where SCOPE is `statement`, `rests MODULE N` each
of these constants that has a name of its own, with its module, the asked one included. `statement KIND N NAME LEVELS TYPE` is the
constant, `declared …` every other one of the module (where SCOPE is `statement`): its name, its universe parameters and
its type are numbers of the export. `apart N` is one of these that stands below no other constant's name, as what Lean
makes on the way does (`mine.match_1`, `List.map.eq_1`): a command or a tactic declared it. `ends LINE COLUMN` is
where Lean ends the asked constant's declaration, both from 0, the column in UTF-16 units; Lean before 4.20 does not
tell it here. `type WHOLE NAME TEXT` is the constant's name, with its universe parameters, and its type as text, by
`Printer.lean`, `binder KIND NAME TEXT` each variable that the type begins with, `below WHOLE KIND MODULE NAME TEXT` each
constant that the statement rests on, with its type, whose module was read from the folder OWN, and `more N` how many
there are of these that are not told; WHOLE is `whole` or `cut`. `lines N` is how many lines the export has. In names and paths `\\`, `\n`, `\r` and `\t` are escapes.

With the arguments ANSWER EXPORT NONCE constants BYTES ASKED it is asked about constants by their names. The file ASKED
has lines `module N` (import it), `constant PART PART…` and `write PART PART…`; a number among the parts of a name has a
`#` before it, a text that begins with one a second. ANSWER gets `module` as above, and `home NUMBER MODULE` for each
name that a module declares, by its place among those asked about, from 0; EXPORT the declarations of those to `write`,
with the inductive types that these belong to.

Written for Lean 4.9 and later, with what all of these have: no `HashMap` (it changed its namespace), no checked name of
a constant that some of them lack.
-/

open Lean Nodes

namespace Questions

def kindOf (c : ConstantInfo) : String :=
  match c with
  | .axiomInfo _ => "axiom"
  | .defnInfo _ => "def"
  | .thmInfo _ => "thm"
  | .opaqueInfo _ => "opaque"
  | .quotInfo _ => "quot"
  | .inductInfo _ => "inductive"
  | .ctorInfo _ => "constructor"
  | .recInfo _ => "recursor"

def truth (b : Bool) : String :=
  if b then "true" else "false"

def nameList (names : List Name) : W String := do
  let ns ← names.mapM nameNode
  return numbers ns

/-- A constant's name, universe parameters and type. -/
def heading (c : ConstantInfo) : W (List (String × String)) := do
  let n ← nameNode c.name
  let ps ← nameList c.levelParams
  for p in c.levelParams do
    let _ ← levelNode (.param p)
  let t ← exprNode c.type
  return [("name", toString n), ("levelParams", ps), ("type", t)]

def hints (h : ReducibilityHints) : String :=
  match h with
  | .opaque => quoted "opaque"
  | .abbrev => quoted "abbrev"
  | .regular n => object [("regular", toString n.toNat)]

def safety (s : DefinitionSafety) : String :=
  match s with
  | .unsafe => quoted "unsafe"
  | .safe => quoted "safe"
  | .partial => quoted "partial"

def quotKind (k : QuotKind) : String :=
  match k with
  | .type => quoted "type"
  | .ctor => quoted "ctor"
  | .lift => quoted "lift"
  | .ind => quoted "ind"

def ruleText (r : RecursorRule) : W String := do
  let c ← nameNode r.ctor
  let rhs ← exprNode r.rhs
  return object [("ctor", toString c), ("nfields", toString r.nfields), ("rhs", rhs)]

/-- A constant's fields; `nested` is how many recursors its inductive types have beside one each. -/
def constant (nested : Nat) (c : ConstantInfo) : W String := do
  let start ← heading c
  let rest ← match c with
    | .axiomInfo v => pure [("isUnsafe", truth v.isUnsafe)]
    | .defnInfo v => do
      let value ← exprNode v.value
      let all ← nameList v.all
      pure [("value", value), ("hints", hints v.hints), ("safety", safety v.safety), ("all", all)]
    | .thmInfo v => do
      let value ← exprNode v.value
      let all ← nameList v.all
      pure [("value", value), ("all", all)]
    | .opaqueInfo v => do
      let value ← exprNode v.value
      let all ← nameList v.all
      pure [("value", value), ("isUnsafe", truth v.isUnsafe), ("all", all)]
    | .quotInfo v => pure [("kind", quotKind v.kind)]
    | .inductInfo v => do
      let all ← nameList v.all
      let ctors ← nameList v.ctors
      pure [("numParams", toString v.numParams), ("numIndices", toString v.numIndices), ("all", all),
        ("ctors", ctors), ("numNested", toString nested), ("isRec", truth v.isRec),
        ("isUnsafe", truth v.isUnsafe), ("isReflexive", truth v.isReflexive)]
    | .ctorInfo v => do
      let type ← nameNode v.induct
      pure [("induct", toString type), ("cidx", toString v.cidx), ("numParams", toString v.numParams),
        ("numFields", toString v.numFields), ("isUnsafe", truth v.isUnsafe)]
    | .recInfo v => do
      let all ← nameList v.all
      let rules ← v.rules.mapM ruleText
      pure [("all", all), ("numParams", toString v.numParams), ("numIndices", toString v.numIndices),
        ("numMotives", toString v.numMotives), ("numMinors", toString v.numMinors),
        ("rules", "[" ++ commas rules ++ "]"), ("k", truth v.k), ("isUnsafe", truth v.isUnsafe)]
  return object (start ++ rest)

/-- What is declared at once: one constant, the four of the quotient, or inductive types that belong together, with
their constructors and recursors. -/
structure Block where
  types : List ConstantInfo := []
  ctors : List ConstantInfo := []
  recs : List ConstantInfo := []
  others : List ConstantInfo := []

def Block.all (b : Block) : List ConstantInfo :=
  b.types ++ b.ctors ++ b.recs ++ b.others

def blockLine (b : Block) : W Unit := do
  if b.types.isEmpty then
    for c in b.others do
      let text ← constant 0 c
      line (object [(kindOf c, text)])
  else
    let nested := b.recs.length - b.types.length
    let types ← b.types.mapM (constant nested)
    let ctors ← b.ctors.mapM (constant nested)
    let recs ← b.recs.mapM (constant nested)
    let list := fun (texts : List String) => "[" ++ commas texts ++ "]"
    line (object [("inductive", object [("types", list types), ("ctors", list ctors), ("recs", list recs)])])

/-- The constants that one mentions: in its type and in any value or proof it has. The type of what a projection is of
is not looked at: without it no term has that type, so that something else leads to it. -/
def citedByAll (c : ConstantInfo) : Array Name :=
  let inType := c.type.getUsedConstants
  match c with
  | .defnInfo v => inType ++ v.value.getUsedConstants
  | .thmInfo v => inType ++ v.value.getUsedConstants
  | .opaqueInfo v => inType ++ v.value.getUsedConstants
  | .inductInfo v => inType ++ v.ctors.toArray
  | .recInfo v => v.rules.foldl (fun all rule => all ++ rule.rhs.getUsedConstants) inType
  | _ => inType

/-- The constants that the meaning of one depends on. -/
def citedByMeaning (c : ConstantInfo) : Array Name :=
  let inType := c.type.getUsedConstants
  match c with
  | .defnInfo v => inType ++ v.value.getUsedConstants
  | .opaqueInfo v => inType ++ v.value.getUsedConstants
  | .inductInfo v => inType ++ v.ctors.toArray
  | .recInfo v => v.rules.foldl (fun all rule => all ++ rule.rhs.getUsedConstants) inType
  | _ => inType

/-- A module and all that it imports: what a name means there, and what the module itself declares. -/
structure World where
  find : Name → Option ConstantInfo
  home : Name → Name
  inside : Name → Bool
  own : Array ConstantInfo
  modules : Array (Name × Array Name)
  parts : NameSet
  ends : Name → Option (Nat × Nat)

def namesOf (imports : Array Import) : Array Name :=
  imports.map fun (i : Import) => i.module

def sameNames : List Name → List Name → Bool
  | [], [] => true
  | a :: as, b :: bs => a == b && sameNames as bs
  | _, _ => false

/-- Whether a module may lie in several files. To Lean before these had a field for it, none does. -/
def inParts (data : ModuleData) : Bool := by
  first
  | exact data.isModule
  | exact false

/-- Read the built files one by one. To Lean before 4.18, importing a module means running its initializers. -/
def readFiles (roots : Array Name) (home : Name) : IO World := do
  let mut constants : PersistentHashMap Name (ConstantInfo × Name) := {}
  let mut own : Array ConstantInfo := #[]
  let mut modules : Array (Name × Array Name) := #[]
  let mut seen : NameSet := {}
  let mut todo : Array Name := roots
  while todo.size > 0 do
    let n := todo[todo.size - 1]!
    todo := todo.pop
    if !seen.contains n then
      seen := seen.insert n
      let (data, _) ← readModuleData (← findOLean n)
      modules := modules.push (n, namesOf data.imports)
      for c in data.constants do
        match c, constants.find? c.name with
        | .axiomInfo _, some _ => throw (IO.userError ("declared twice: " ++ toString c.name))
        | _, some (.axiomInfo _, _) => throw (IO.userError ("declared twice: " ++ toString c.name))
        | _, _ => constants := constants.insert c.name (c, n)
      if n == home then
        own := data.constants
      for i in data.imports do
        todo := todo.push i.module
  let all := constants
  let names : NameSet := own.foldl (fun s c => s.insert c.name) {}
  return {
    find := fun n => match all.find? n with
      | some (c, _) => some c
      | none => none
    home := fun n => match all.find? n with
      | some (_, m) => m
      | none => Name.anonymous
    inside := fun n => names.contains n
    own := own
    modules := modules
    parts := {}
    ends := fun _ => none }

/-- Import modules without their extensions' states, which runs nothing of them. A module may lie in several files. -/
def importWhole (roots : Array Name) (home : Name) : IO World := do
  let env ← importModules (roots.map fun (one : Name) => { module := one }) {}
  let inside := fun (n : Name) =>
    match env.getModuleIdx? home, env.getModuleIdxFor? n with
    | some here, some i => i.toNat == here.toNat
    | _, _ => false
  let own := env.constants.fold
    (fun (all : Array ConstantInfo) n c => if inside n then all.push c else all) #[]
  let names := env.header.moduleNames
  let moduleOf := fun (n : Name) =>
    match env.getModuleIdxFor? n with
    | some i => names.getD i.toNat Name.anonymous
    | none => Name.anonymous
  let modules := (names.zip env.header.moduleData).map
    (fun (m : Name × ModuleData) => (m.1, namesOf m.2.imports))
  let parts := (names.zip env.header.moduleData).foldl
    (fun (all : NameSet) (m : Name × ModuleData) => if inParts m.2 then all.insert m.1 else all) {}
  let ends := fun (n : Name) =>
    match declRangeExt.find? env n with
    | some ranges => some (ranges.range.endPos.line - 1, ranges.range.endCharUtf16)
    | none => none
  return {
    find := fun n => env.find? n
    home := moduleOf
    inside := inside
    own := own
    modules := modules
    parts := parts
    ends := ends }

/-- The modules and all that they import; what is `inside` is of `home`. -/
def worldOf (roots : Array Name) (home : Name) : IO World :=
  if Lean.version.major == 4 && Lean.version.minor < 20 then readFiles roots home else importWhole roots home

def known (world : World) (n : Name) : IO ConstantInfo :=
  match world.find n with
  | some c => return c
  | none => throw (IO.userError ("not in the environment: " ++ toString n))

/-- Every constant that these lead to, themselves included, through those that `into` takes. -/
def reached (world : World) (roots : Array Name) (into : Name → Bool) (cited : ConstantInfo → Array Name) :
    IO (Array ConstantInfo) := do
  let mut seen : NameSet := {}
  let mut found : Array ConstantInfo := #[]
  let mut todo : Array Name := roots
  while todo.size > 0 do
    let n := todo[todo.size - 1]!
    todo := todo.pop
    if !seen.contains n && into n then
      seen := seen.insert n
      let c ← known world n
      found := found.push c
      todo := todo ++ cited c
  return found

/-- The name under which a constant's block is met: the first of its inductive types, or its own. -/
def headOf (c : ConstantInfo) : Name :=
  let first := fun (all : List Name) => all.foldl (fun (n : Name) m => if n == .anonymous then m else n) .anonymous
  match c with
  | .inductInfo v => first v.all
  | .recInfo v => first v.all
  | .quotInfo _ => `Quot
  | _ => c.name

/-- The recursors that nested types have beside those of the types themselves. -/
partial def nestedRecursors (world : World) (type : Name) (i : Nat) : List ConstantInfo :=
  match world.find (Name.str type ("rec_" ++ toString i)) with
  | some (.recInfo v) => .recInfo v :: nestedRecursors world type (i + 1)
  | _ => []

def blockOf (world : World) (c : ConstantInfo) : IO Block := do
  match c with
  | .inductInfo v =>
    let types ← v.all.mapM (known world)
    let mut ctors : List ConstantInfo := []
    for t in types do
      match t with
      | .inductInfo u =>
        let own ← u.ctors.mapM (known world)
        ctors := ctors ++ own
      | _ => throw (IO.userError ("no inductive type: " ++ toString t.name))
    let recs ← v.all.mapM (fun n => known world (Name.str n "rec"))
    return { types := types, ctors := ctors, recs := recs ++ nestedRecursors world (headOf c) 1 }
  | .quotInfo _ =>
    let all ← [`Quot, `Quot.mk, `Quot.lift, `Quot.ind].mapM (known world)
    return { others := all }
  | _ => return { others := [c] }

/-- The blocks that these lead to, each after those that it rests on, through the constants that `into` takes. -/
def blocks (world : World) (roots : List Name) (into : Name → Bool) (cited : ConstantInfo → Array Name) :
    IO (Array Block) := do
  let mut seen : NameSet := {}
  let mut found : Array Block := #[]
  let mut todo : List (Name × Option Block) := roots.map fun n => (n, none)
  while !todo.isEmpty do
    match todo with
    | [] => todo := []
    | (_, some block) :: rest =>
      found := found.push block
      todo := rest
    | (n, none) :: rest =>
      todo := rest
      if into n then
        let c ← known world n
        let c ← match c with
          | .ctorInfo v => known world v.induct
          | _ => pure c
        let top := headOf c
        if !seen.contains top then
          seen := seen.insert top
          let block ← blockOf world (← known world top)
          todo := (n, some block) :: todo
          for d in block.all do
            for m in (cited d).toList do
              todo := (m, none) :: todo
          match c with
          | .quotInfo _ => todo := (`Eq, none) :: todo
          | _ => pure ()
  return found

/-- The kernel evaluates what these are applied to by compiled code; some versions name no axiom for it. -/
def reducesNatively (n : Name) : Bool :=
  n == `Lean.reduceBool || n == `Lean.reduceNat

/-- A name or a path as one field of a line. -/
def escaped (text : String) : String := Id.run do
  let mut out := ""
  for c in text.toList do
    if c == '\\' then
      out := out ++ "\\\\"
    else if c == '\n' then
      out := out ++ "\\n"
    else if c == '\r' then
      out := out ++ "\\r"
    else if c == '\t' then
      out := out ++ "\\t"
    else
      out := out.push c
  return out

def shown (n : Name) : String :=
  escaped (toString n)

/-- Where the answer's lines go. What was not escaped and has a line end would forge lines, so it ends the run. -/
def say (out : IO.FS.Handle) (text : String) : IO Unit := do
  if text.any (fun (c : Char) => c == '\n' || c == '\r') then
    throw (IO.userError "a line with a line end in it")
  out.putStr (text ++ "\n")

/-- Where the export goes, and how much of it may. -/
structure Exporter where
  out : IO.FS.Handle
  most : Nat
  bytes : Nat := 0
  lines : Nat := 0
  writer : Writer := {}

def Exporter.write {α : Type} (to : Exporter) (act : W α) : IO (α × Exporter) := do
  let (a, writer) := Id.run (StateT.run act to.writer)
  let mut bytes := to.bytes
  for text in writer.lines do
    bytes := bytes + text.utf8ByteSize + 1
    if bytes > to.most then
      throw (IO.userError ("the export is larger than " ++ toString to.most ++ " bytes"))
    to.out.putStr (text ++ "\n")
  return (a, { to with bytes := bytes, lines := to.lines + writer.lines.size, writer := { writer with lines := #[] } })

/-- A constant by its kind, its name, and the numbers of its name, its universe parameters and its type. -/
def fact (c : ConstantInfo) : W String := do
  let fields ← heading c
  let numbers := fields.map fun f => f.2
  return numbers.foldl (fun out one => out ++ "\t" ++ one) (kindOf c ++ "\t" ++ shown c.name)

/-- What the kernel knows of literals, which no term says. -/
def literals (world : World) (found : Array Block) : List Name :=
  let texts := found.any fun b => b.all.any fun c => (hasText c.type) || (match c with
    | .defnInfo v => hasText v.value
    | .thmInfo v => hasText v.value
    | .opaqueInfo v => hasText v.value
    | _ => false)
  let names := if texts then [`Nat, `Char.ofNat, `String.ofList, `String.mk] else [`Nat]
  names.filter fun n => (world.find n).isSome
where
  hasText (e : Expr) : Bool :=
    (e.find? fun (part : Expr) => match part with
      | .lit (.strVal _) => true
      | _ => false).isSome

/-- Lean's own name of a private constant of a module. -/
def privateName (home : Name) (name : Name) : Name :=
  Name.num (`_private ++ home) 0 ++ name

/-- How many bytes of a statement's text are written, and of those of the constants below it; how many of these. -/
def longestType : Nat := 16000
def longestBelow : Nat := 1000
def mostBinders : Nat := 200
def mostBelow : Nat := 50

def startsWith : List Char → List Char → Bool
  | _, [] => true
  | [], _ => false
  | c :: cs, d :: ds => c == d && startsWith cs ds

/-- The modules that were read from below a folder. -/
def readFrom (world : World) (folder : String) : IO NameSet := do
  let mut found : NameSet := {}
  for (name, _) in world.modules do
    let path ← findOLean name
    if startsWith path.toString.toList (folder ++ "/").toList then
      found := found.insert name
  return found

/-- Whether a text is the whole one, and the text. -/
def wholly (text : String × Bool) : String × String :=
  (if text.2 then "whole" else "cut", escaped text.1)

def entitled (room : Nat) (c : ConstantInfo) : String :=
  let (name, whole) := Printer.written room (do
    Printer.put (Printer.name c.name)
    Printer.levels (c.levelParams.map Level.param))
  if whole then escaped name else shown c.name

/-- Say the statement as text, and the types of the constants of these modules that it rests on. -/
def tell (out : IO.FS.Handle) (world : World) (c : ConstantInfo) (modules : NameSet) : IO Unit := do
  let (whole, text) := wholly (Printer.shown world.find longestType c.type)
  say out ("type\t" ++ whole ++ "\t" ++ entitled longestType c ++ "\t" ++ text)
  for (kind, given, text) in Printer.binders world.find longestBelow mostBinders c.type do
    say out ("binder\t" ++ kind ++ "\t" ++ escaped given ++ "\t" ++ escaped text)
  let below ← reached world c.type.getUsedConstants (fun n => modules.contains (world.home n)) citedByMeaning
  let mut n := 0
  for d in below do
    match d with
    | .recInfo _ => pure ()
    | _ =>
      if !d.name.isInternal then
        if n < mostBelow then
          let (whole, text) := wholly (Printer.shown world.find longestBelow d.type)
          let about := kindOf d ++ "\t" ++ escaped (Printer.name (world.home d.name)) ++ "\t" ++ entitled longestBelow d
          say out ("below\t" ++ whole ++ "\t" ++ about ++ "\t" ++ text)
        n := n + 1
  say out ("more\t" ++ toString (if n < mostBelow then 0 else n - mostBelow))

/-- The name without its last part. -/
def above (name : Name) : Name :=
  match name with
  | .str before _ => before
  | .num before _ => before
  | .anonymous => .anonymous

def answer (out file : IO.FS.Handle) (nonce : String) (home : Name) (asked : Name) (whole : Bool) (most : Nat)
    (own : String) (vouched : List String) : IO Unit := do
  let world ← worldOf #[home] home
  let target := if world.inside asked then asked else privateName home asked
  match world.find target with
  | none => throw (IO.userError ("no such constant: " ++ toString asked))
  | some c =>
    if !world.inside target then
      throw (IO.userError ("of another module: " ++ toString asked))
    say out ("everlean-questions 1 " ++ nonce)
    say out ("lean " ++ Lean.versionString)
    for (name, imports) in world.modules do
      let path ← findOLean name
      say out ("module\t" ++ shown name ++ "\t" ++ escaped path.toString)
      for one in imports do
        say out ("import\t" ++ shown name ++ "\t" ++ shown one)
      if world.parts.contains name then
        say out ("parts\t" ++ shown name)
        if !whole && !vouched.any fun folder => startsWith path.toString.toList (folder ++ "/").toList then
          let (first, _) ← readModuleData path
          if !sameNames (namesOf first.imports).toList imports.toList then
            throw (IO.userError ("its files do not import the same: " ++ toString name))
    let below ← reached world #[target] (fun _ => true) citedByAll
    for d in below do
      if (citedByAll d).contains ``sorryAx then
        say out ("sorried\t" ++ shown d.name)
      if (citedByAll d).any reducesNatively then
        say out ("native\t" ++ shown d.name)
      if d.isUnsafe then
        say out ("unsafe\t" ++ shown d.name)
      if !whole && !d.name.isInternal then
        say out ("rests\t" ++ shown (world.home d.name) ++ "\t" ++ shown d.name)
    let axioms := below.filter fun d => match d with
      | .axiomInfo _ => true
      | _ => false
    let found ← if whole then
        blocks world [target] (fun _ => true) citedByAll
      else
        blocks world c.type.getUsedConstants.toList world.inside citedByMeaning
    let found ← if whole then
        blocks world (literals world found ++ [target]) (fun _ => true) citedByAll
      else
        let more := axioms.filter fun d => !found.any fun b => b.all.any fun e => e.name == d.name
        pure (found ++ more.map fun d => { others := [d] })
    let (_, started) ← Exporter.write { out := file, most := most } (line metaLine)
    let mut to := started
    for block in found do
      let (_, next) ← to.write (blockLine block)
      to := next
    for d in axioms do
      let (n, next) ← to.write (nameNode d.name)
      to := next
      say out ("axiom\t" ++ shown d.name ++ "\t" ++ shown (world.home d.name) ++ "\t" ++ toString n)
    let (text, next) ← to.write (fact c)
    to := next
    say out ("statement\t" ++ text)
    match world.ends target with
    | some (line, column) => say out ("ends\t" ++ toString line ++ "\t" ++ toString column)
    | none => pure ()
    if !whole then
      let modules ← readFrom world own
      tell out world c modules
      for d in world.own do
        if d.name != target && !d.name.isInternal then
          let (text, next) ← to.write (fact d)
          to := next
          say out ("declared\t" ++ text)
          if !(world.find (above d.name)).isSome then
            say out ("apart\t" ++ shown d.name)
    say out ("lines\t" ++ toString to.lines)
    file.flush
    say out ("end " ++ nonce)

/-- The fields of a line: what stands between tabs, without the escapes of `escaped`. -/
def fieldsOf (line : String) : Array String := Id.run do
  let mut fields : Array String := #[]
  let mut field := ""
  let mut escape := false
  for c in line.toList do
    if escape then
      field := field.push (if c == 'n' then '\n' else if c == 'r' then '\r' else if c == 't' then '\t' else c)
      escape := false
    else if c == '\\' then
      escape := true
    else if c == '\t' then
      fields := fields.push field
      field := ""
    else if c != '\n' then
      field := field.push c
  return fields.push field

/-- A name by its parts: a number has a `#` before it, a text that begins with one a second. -/
def nameOfParts (parts : List String) : Name := Id.run do
  let mut name := Name.anonymous
  for part in parts do
    match part.toList with
    | '#' :: '#' :: rest => name := Name.str name (text ('#' :: rest))
    | '#' :: rest => name := Name.num name (text rest).toNat!
    | _ => name := Name.str name part
  return name
where
  text (chars : List Char) : String :=
    chars.foldl (fun (out : String) c => out.push c) ""

/-- The name that is written so, `«»` and all; `String.toName` takes these for letters of the name. -/
def nameOf (text : String) : Name := Id.run do
  let mut name := Name.anonymous
  let mut part := ""
  let mut quoted := false
  for c in text.toList do
    if c == '«' then
      quoted := true
    else if c == '»' then
      quoted := false
    else if c == '.' && !quoted then
      name := Name.str name part
      part := ""
    else
      part := part.push c
  return Name.str name part

/-- Say in which module each of the constants of the file `asked` is declared that the modules named there have, and
write those that it asks to be written. -/
def constants (out file asked : IO.FS.Handle) (nonce : String) (most : Nat) : IO Unit := do
  let mut roots : Array Name := #[]
  let mut names : Array Name := #[]
  let mut wanted : NameSet := {}
  let mut text ← asked.getLine
  while text != "" do
    match (fieldsOf text).toList with
    | kind :: fields =>
      if kind == "module" then
        for one in fields do
          roots := roots.push (nameOf one)
      else
        let n := nameOfParts fields
        names := names.push n
        if kind == "write" then
          wanted := wanted.insert n
    | [] => pure ()
    text ← asked.getLine
  let world ← worldOf roots Name.anonymous
  say out ("everlean-questions 1 " ++ nonce)
  say out ("lean " ++ Lean.versionString)
  for (name, _) in world.modules do
    let path ← findOLean name
    say out ("module\t" ++ shown name ++ "\t" ++ escaped path.toString)
  let mut declared : NameSet := {}
  let mut number := 0
  for n in names do
    if (world.find n).isSome then
      declared := declared.insert n
      say out ("home\t" ++ toString number ++ "\t" ++ shown (world.home n))
    number := number + 1
  let (_, started) ← Exporter.write { out := file, most := most } (line metaLine)
  let mut to := started
  let found ← blocks world names.toList (fun n => wanted.contains n && declared.contains n) (fun _ => #[])
  for block in found do
    let (_, next) ← to.write (blockLine block)
    to := next
  say out ("lines\t" ++ toString to.lines)
  file.flush
  say out ("end " ++ nonce)

def main (args : List String) : IO UInt32 := do
  match args with
  | answer :: file :: nonce :: scope :: most :: first :: rest =>
    initSearchPath (← getBuildDir)
    let out ← IO.FS.Handle.mk answer IO.FS.Mode.write
    let file ← IO.FS.Handle.mk file IO.FS.Mode.write
    match rest with
    | target :: own :: vouched =>
      Questions.answer out file nonce (nameOf first) (nameOf target) (scope == "closure") most.toNat! own vouched
    | _ =>
      let asked ← IO.FS.Handle.mk first IO.FS.Mode.read
      Questions.constants out file asked nonce most.toNat!
    out.flush
    return 0
  | _ =>
    IO.eprintln "usage: Questions.main ANSWER EXPORT NONCE SCOPE BYTES …"
    return 2

end Questions
