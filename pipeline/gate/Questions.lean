import Lean

/-!
What the gate asks of one build of a module: the exact statement of a constant, what that statement means, and what
the constant rests on. Asked once of the build with the sorry and once of the build with the proof.

Run as `lean --run Questions.lean ANSWER NONCE MODULE CONSTANT`, with the project's modules on LEAN_PATH. The module is
read as data: none of its initializers, notations, macros or printers takes part, so nothing in it can change an answer.
Expressions are written node by node as the kernel has them, without the names and the kinds of bound variables, which
are no matter to it: two statements are the same if and only if the lines are the same. The answer goes to the file
ANSWER, between two lines with NONCE.

Lines: `lean V` is the version of Lean that answers. Facts have tabs between their fields: `module init|bare N PATH` is
a module that was read, the asked one included, with the file that it was read from; `bare` is one that imports no
`Init` (a `prelude` file). `axiom N MODULE` names an axiom and where it was declared; `sorried N` (uses `sorryAx`
itself), `native N` (has the kernel believe compiled code), `unsafe N`: what the constant rests on, as far down as it
goes. `statement`, `premise` (what the statement rests on in this module, with its value) and `declared` (every other
constant of the module) begin a section: ` kind name`, then tabbed lines, one a node, numbered from 0. In names and
paths `\\`, `\n`, `\r` and `\t` are escapes.

Written for Lean 4.9 and later, with what all of these have: no `HashMap` (it changed its namespace), no checked name of
a constant that some of them lack.
-/

open Lean

namespace Questions

/-- The nodes written so far. A node's number is its line's. -/
structure Writer where
  lines : Array String := #[]
  names : PersistentHashMap Name Nat := {}
  levels : PersistentHashMap Level Nat := {}
  exprs : PersistentHashMap Expr Nat := {}

abbrev W := StateM Writer

def node (text : String) : W Nat :=
  modifyGet fun w => (w.lines.size, { w with lines := w.lines.push text })

partial def nameNode (n : Name) : W Nat := do
  match (← get).names.find? n with
  | some k => return k
  | none =>
    let k ← match n with
      | .anonymous => node "N"
      | .str p s => do
        let p ← nameNode p
        node ("S " ++ toString p ++ " " ++ s.quote)
      | .num p i => do
        let p ← nameNode p
        node ("I " ++ toString p ++ " " ++ toString i)
    modify fun w => { w with names := w.names.insert n k }
    return k

partial def levelNode (l : Level) : W Nat := do
  match (← get).levels.find? l with
  | some k => return k
  | none =>
    let k ← match l with
      | .zero => node "L0"
      | .succ a => do
        let a ← levelNode a
        node ("LS " ++ toString a)
      | .max a b => do
        let a ← levelNode a
        let b ← levelNode b
        node ("LM " ++ toString a ++ " " ++ toString b)
      | .imax a b => do
        let a ← levelNode a
        let b ← levelNode b
        node ("LI " ++ toString a ++ " " ++ toString b)
      | .param n => do
        let n ← nameNode n
        node ("LP " ++ toString n)
      | .mvar _ => node "L?"
    modify fun w => { w with levels := w.levels.insert l k }
    return k

partial def exprNode (e : Expr) : W Nat := do
  match (← get).exprs.find? e with
  | some k => return k
  | none =>
    let k ← match e with
      | .bvar i => node ("B " ++ toString i)
      | .fvar _ => node "F?"
      | .mvar _ => node "M?"
      | .sort l => do
        let l ← levelNode l
        node ("U " ++ toString l)
      | .const n ls => do
        let n ← nameNode n
        let ls ← ls.mapM levelNode
        node ("C " ++ toString n ++ " " ++ toString ls)
      | .app f a => do
        let f ← exprNode f
        let a ← exprNode a
        node ("A " ++ toString f ++ " " ++ toString a)
      | .lam _ t b _ => do
        let t ← exprNode t
        let b ← exprNode b
        node ("H " ++ toString t ++ " " ++ toString b)
      | .forallE _ t b _ => do
        let t ← exprNode t
        let b ← exprNode b
        node ("P " ++ toString t ++ " " ++ toString b)
      | .letE _ t v b _ => do
        let t ← exprNode t
        let v ← exprNode v
        let b ← exprNode b
        node ("T " ++ toString t ++ " " ++ toString v ++ " " ++ toString b)
      | .lit (.natVal n) => node ("n " ++ toString n)
      | .lit (.strVal s) => node ("s " ++ s.quote)
      | .mdata _ b => exprNode b
      | .proj n i b => do
        let n ← nameNode n
        let b ← exprNode b
        node ("J " ++ toString n ++ " " ++ toString i ++ " " ++ toString b)
    modify fun w => { w with exprs := w.exprs.insert e k }
    return k

def kindOf (c : ConstantInfo) : String :=
  match c with
  | .axiomInfo _ => "axiom"
  | .defnInfo _ => "definition"
  | .thmInfo _ => "theorem"
  | .opaqueInfo _ => "opaque"
  | .quotInfo _ => "quotient"
  | .inductInfo _ => "inductive"
  | .ctorInfo _ => "constructor"
  | .recInfo _ => "recursor"

/-- The value of what has one that its meaning depends on: any two proofs of a theorem are the same. -/
def meaning (c : ConstantInfo) : Option Expr :=
  match c with
  | .defnInfo v => some v.value
  | .opaqueInfo v => some v.value
  | _ => none

/-- A constant's universe parameters, type and, where asked for, value, as lines. -/
def written (c : ConstantInfo) (withValue : Bool) : Array String :=
  let all : W Unit := do
    let levels ← c.levelParams.mapM nameNode
    let type ← exprNode c.type
    let value ← match (if withValue then meaning c else none) with
      | some v => do
        let v ← exprNode v
        pure (toString v)
      | none => pure "-"
    let _ ← node ("= " ++ toString levels ++ " " ++ toString type ++ " " ++ value)
    return ()
  (Id.run (StateT.run all {})).2.lines

/-- The constants that one mentions: in its type and in any value or proof it has. -/
def citedByAll (c : ConstantInfo) : Array Name :=
  let inType := c.type.getUsedConstants
  match c with
  | .defnInfo v => inType ++ v.value.getUsedConstants
  | .thmInfo v => inType ++ v.value.getUsedConstants
  | .opaqueInfo v => inType ++ v.value.getUsedConstants
  | .inductInfo v => inType ++ v.ctors.toArray
  | _ => inType

/-- The constants that the meaning of one depends on. -/
def citedByMeaning (c : ConstantInfo) : Array Name :=
  let inType := c.type.getUsedConstants
  match c with
  | .defnInfo v => inType ++ v.value.getUsedConstants
  | .opaqueInfo v => inType ++ v.value.getUsedConstants
  | .inductInfo v => inType ++ v.ctors.toArray
  | _ => inType

/-- A module and all that it imports: what a name means there, and what the module itself declares. -/
structure World where
  find : Name → Option ConstantInfo
  home : Name → Name
  inside : Name → Bool
  own : Array ConstantInfo
  modules : Array (Name × Bool)

/-- Whether a module with these imports has Lean's usual beginning. -/
def startsAtInit (imports : Array Import) : Bool :=
  imports.any (fun (i : Import) => i.module == `Init)

/-- Read the built files one by one. To Lean before 4.18, importing a module means running its initializers. -/
def readFiles (home : Name) : IO World := do
  let mut constants : PersistentHashMap Name (ConstantInfo × Name) := {}
  let mut own : Array ConstantInfo := #[]
  let mut modules : Array (Name × Bool) := #[]
  let mut seen : NameSet := {}
  let mut todo : Array Name := #[home]
  while todo.size > 0 do
    let n := todo[todo.size - 1]!
    todo := todo.pop
    if !seen.contains n then
      seen := seen.insert n
      let (data, _) ← readModuleData (← findOLean n)
      modules := modules.push (n, startsAtInit data.imports)
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
    modules := modules }

/-- Import the module without its extensions' states, which runs nothing of it. A module may lie in several files. -/
def importWhole (home : Name) : IO World := do
  let env ← importModules #[{ module := home }] {}
  match env.getModuleIdx? home with
  | none => throw (IO.userError ("not imported: " ++ toString home))
  | some here =>
    let inside := fun (n : Name) =>
      match env.getModuleIdxFor? n with
      | some i => i.toNat == here.toNat
      | none => false
    let own := env.constants.fold
      (fun (all : Array ConstantInfo) n c => if inside n then all.push c else all) #[]
    let names := env.header.moduleNames
    let moduleOf := fun (n : Name) =>
      match env.getModuleIdxFor? n with
      | some i => names.getD i.toNat Name.anonymous
      | none => Name.anonymous
    let modules := (names.zip env.header.moduleData).map
      (fun (m : Name × ModuleData) => (m.1, startsAtInit m.2.imports))
    return { find := fun n => env.find? n, home := moduleOf, inside := inside, own := own, modules := modules }

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
      match world.find n with
      | some c =>
        found := found.push c
        todo := todo ++ cited c
      | none => throw (IO.userError ("not in the environment: " ++ toString n))
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

def section_ (out : IO.FS.Handle) (head : String) (c : ConstantInfo) (withValue : Bool) : IO Unit := do
  say out (head ++ " " ++ kindOf c ++ " " ++ shown c.name)
  for text in written c withValue do
    say out ("\t" ++ text)

/-- Lean's own name of a private constant of a module. -/
def privateName (home : Name) (name : Name) : Name :=
  Name.num (`_private ++ home) 0 ++ name

def answer (out : IO.FS.Handle) (nonce : String) (home : Name) (asked : Name) : IO Unit := do
  let world ← if Lean.version.major == 4 && Lean.version.minor < 20 then readFiles home else importWhole home
  let target := if world.inside asked then asked else privateName home asked
  match world.find target with
  | none => throw (IO.userError ("no such constant: " ++ toString asked))
  | some c =>
    if !world.inside target then
      throw (IO.userError ("of another module: " ++ toString asked))
    say out ("unsorry-questions 3 " ++ nonce)
    say out ("lean " ++ Lean.versionString)
    for (name, init) in world.modules do
      let path ← findOLean name
      say out ("module\t" ++ (if init then "init" else "bare") ++ "\t" ++ shown name ++ "\t" ++ escaped path.toString)
    for d in (← reached world #[target] (fun _ => true) citedByAll) do
      match d with
      | .axiomInfo _ => say out ("axiom\t" ++ shown d.name ++ "\t" ++ shown (world.home d.name))
      | _ => pure ()
      if (citedByAll d).contains ``sorryAx then
        say out ("sorried\t" ++ shown d.name)
      if (citedByAll d).any reducesNatively then
        say out ("native\t" ++ shown d.name)
      if d.isUnsafe then
        say out ("unsafe\t" ++ shown d.name)
    section_ out "statement" c false
    for d in (← reached world c.type.getUsedConstants world.inside citedByMeaning) do
      section_ out "premise" d true
    for d in world.own do
      if d.name != target && !d.name.isInternal then
        section_ out "declared" d false
    say out ("end " ++ nonce)

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

end Questions

def main (args : List String) : IO UInt32 := do
  match args with
  | [path, nonce, home, target] =>
    initSearchPath (← getBuildDir)
    let out ← IO.FS.Handle.mk path IO.FS.Mode.write
    Questions.answer out nonce (Questions.nameOf home) (Questions.nameOf target)
    out.flush
    return 0
  | _ =>
    IO.eprintln "usage: lean --run Questions.lean ANSWER NONCE MODULE CONSTANT"
    return 2
