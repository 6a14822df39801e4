import Lean

/-!
What tracing asks of one file: its commands, what Lean says of them, the goals before and after each tactic, the goals
of sorries, where constants are written, those that the file makes and those that they use.

`Trace.main` is run with the arguments `ANSWER FILE MODULE [OPTION KIND VALUE]…` and the project's modules on LEAN_PATH;
FILE is elaborated as the compiler does it. MODULE has a `/` between its parts; KIND is `bool`, `nat` or `text`. The
answer goes to the file ANSWER.

Each line is a word and then texts in quotes, with tabs between. Places are offsets in bytes, but for messages and
declarations, which have a line (from 1) and a column (from 0, in code points):

* `command START`
* `message SEVERITY LINE COLUMN LINE COLUMN TEXT`
* `tactic START END N GOAL… M GOAL… CONSTANT…`: N goals before it, M goals after it, and the constants in what it
  made of the goals itself
* `sorry START GOAL`: what a `sorry`, `admit` or `stop` leaves open; more than once where that is several goals
* `name START END CONSTANT`: a name of a constant, as it is written (`h.symm` has one for its `symm`)
* `made CONSTANT LINE COLUMN LINE COLUMN`: where the file's declaration of it has its name; without the place, a constant
  of no declaration
* `uses CONSTANT CONSTANT…`: what the value or proof of one that the file made mentions
* `home CONSTANT MODULE LINE COLUMN LINE COLUMN`: where one that is used, or what it belongs to, has its name; MODULE is
  empty for this file, and the place is there only if it is known
* `export LINE`: the types below, by `Nodes.lean`, their universe parameters called by their numbers
* `states CONSTANT TERM`: a theorem that the file declares, and its type in the export
* `proves CONSTANT TERM`: a theorem that it imports, and its type, which is that of one of the file's
* `unread`: the imports failed, and the messages say how; nothing else follows
* `end`

Written for Lean 4.9 and later, with what all of these have.
-/

open Lean Elab Nodes

namespace Trace

def say (out : IO.FS.Handle) (word : String) (texts : List String) : IO Unit :=
  out.putStr (texts.foldl (fun line text => line ++ "\t" ++ text.quote) word ++ "\n")

/-- Where a syntax begins and ends in the file; none for what a macro made. -/
def place (stx : Syntax) : Option (String × String) :=
  match stx.getPos? true, stx.getTailPos? true with
  | some start, some stop => some (toString start.byteIdx, toString stop.byteIdx)
  | _, _ => none

/-- How many goals there are, and each as Lean prints it. -/
def shown (ctx : ContextInfo) (mctx : MetavarContext) (goals : List MVarId) : IO (List String) := do
  let ctx : ContextInfo := { ctx with mctx := mctx }
  let texts ← goals.mapM fun goal => do
    let text ← ctx.ppGoals [goal]
    return text.pretty
  return toString goals.length :: texts

/-- The constants in a term. Since Lean 4.17 each sorry is a function of a name that says where it stands; this name's
own constants are nobody's premises. -/
def used (e : Expr) : Array Name := Id.run do
  let all := e.getUsedConstants
  if !all.contains ``sorryAx then
    return all
  let mut found : Array Name := #[]
  let mut seen : PersistentHashMap Expr Bool := {}
  let mut todo : List Expr := [e]
  while !todo.isEmpty do
    match todo with
    | [] => todo := []
    | e :: rest =>
      todo := rest
      if !(look seen e).isSome then
        seen := put seen e true
        match e with
        | .const name _ => if !found.contains name then found := found.push name
        | .app f a =>
          match f with
          | .app (.app (.const name _) (.forallE _ (.const domain _) body _)) _ =>
            if name == ``sorryAx && (domain == `Lean.Name || domain == `Unit) then
              if !found.contains name then found := found.push name
              todo := body :: todo
            else
              todo := f :: a :: todo
          | _ => todo := f :: a :: todo
        | .lam _ t b _ => todo := t :: b :: todo
        | .forallE _ t b _ => todo := t :: b :: todo
        | .letE _ t v b _ => todo := t :: v :: b :: todo
        | .mdata _ b => todo := b :: todo
        | .proj _ _ b => todo := b :: todo
        | _ => pure ()
  return found

/-- The constants in what a tactic assigned to its goals, without what the tactics inside it did. -/
def assigned (info : TacticInfo) : Array Name :=
  info.goalsBefore.foldl (fun (all : Array Name) goal =>
    match info.mctxAfter.getExprAssignmentCore? goal with
    | some value => all ++ used value
    | none => all) #[]

def texts (names : Array Name) : List String :=
  names.toList.map toString

/-- The goal of a term: a goal of the expected type, with the variables that the term may use. -/
def termGoal (ctx : ContextInfo) (info : TermInfo) (type : Expr) : IO String := do
  let goal : MVarId := { name := `goal }
  let mctx := ctx.mctx.addExprMVarDecl goal Name.anonymous info.lctx #[] type
  let ctx : ContextInfo := { ctx with mctx := mctx }
  let text ← ctx.ppGoals [goal]
  return text.pretty

/-- What only holds other tactics together. -/
def around : Array Name :=
  #[`null, `Lean.cdot, `Lean.cdotTk, `Lean.Parser.Term.byTactic, `Lean.Parser.Tactic.tacticSeq,
    `Lean.Parser.Tactic.tacticSeq1Indented, `Lean.Parser.Tactic.tacticSeqBracketed, `Lean.Parser.Tactic.paren,
    `Lean.Parser.Tactic.inductionAlt, `Lean.Parser.Tactic.case, `Lean.Parser.Tactic.«tactic_<;>_»]

/-- Where a tactic stands; none for one that is no step of a proof. -/
def step (stx : Syntax) : Option (String × String) :=
  match stx with
  | .node _ kind _ => if around.contains kind then none else place stx
  | _ => none

/-- Whether a tactic gives up. -/
def givesUp (stx : Syntax) : Bool :=
  match stx with
  | .node _ _ words => match words.toList with
    | .atom _ word :: _ => word == "sorry" || word == "admit" || word == "stop"
    | _ => false
  | _ => false

/-- Whether a term is a name in the file's own text. -/
def isName (stx : Syntax) : Bool :=
  match stx with
  | .ident (.original ..) .. => true
  | .node _ kind _ => kind == `Lean.Parser.Term.identProj || kind == `Lean.Parser.Term.dotIdent
  | _ => false

/-- Tell of one node of what the elaborator noted; return the constants that it names. -/
def node (out : IO.FS.Handle) (ctx : ContextInfo) (info : Info) : IO (Array Name) := do
  match info with
  | .ofTacticInfo info =>
    match step info.stx with
    | some (start, stop) =>
      let before ← shown ctx info.mctxBefore info.goalsBefore
      match givesUp info.stx, before with
      | true, _ :: goal :: _ => say out "sorry" [start, goal]
      | _, _ => pure ()
      let after ← shown ctx info.mctxAfter info.goalsAfter
      let names := assigned info
      say out "tactic" ([start, stop] ++ before ++ after ++ texts names)
      return names
    | none => return #[]
  | .ofTermInfo info =>
    match place info.stx with
    | some (start, stop) =>
      match info.elaborator == `Lean.Elab.Term.elabSorry, info.expectedType? with
      | true, some type =>
        let goal ← termGoal ctx info type
        say out "sorry" [start, goal]
      | _, _ => pure ()
      match isName info.stx && !info.isBinder, info.expr with
      | true, .const name _ =>
        say out "name" [start, stop, toString name]
        return #[name]
      | _, _ => return #[]
    | none => return #[]
  | _ => return #[]

def message (out : IO.FS.Handle) (m : Message) : IO Unit := do
  let severity := match m.severity with
    | .error => "error"
    | .warning => "warning"
    | .information => "info"
  let stop := match m.endPos with
    | some stop => stop
    | none => m.pos
  let text ← m.data.toString
  let places := [m.pos.line, m.pos.column, stop.line, stop.column].map toString
  say out "message" ([severity] ++ places ++ [text])

/-- Where the declaration of a constant has its name, as far as the environment knows. -/
def declared (env : Environment) (name : Name) : List String :=
  match declRangeExt.find? env name with
  | some ranges =>
    let range := ranges.selectionRange
    [range.pos.line, range.pos.column, range.endPos.line, range.endPos.column].map toString
  | none => []

/-- The same of what Lean adds to a declaration (`Or.casesOn`), which stands where that does. -/
def standing (env : Environment) (name : Name) : List String :=
  match declared env name, name with
  | [], .str owner _ => standing env owner
  | [], .num owner _ => standing env owner
  | place, _ => place

/-- The constants in the value or proof of one. -/
def cited (c : ConstantInfo) : Array Name :=
  match c with
  | .defnInfo v => used v.value
  | .thmInfo v => used v.value
  | .opaqueInfo v => used v.value
  | _ => #[]

/-- A constant's type, its universe parameters called by their numbers. -/
def plainType (c : ConstantInfo) : Expr :=
  let (_, levels) := c.levelParams.foldl (fun (n, all) _ => (n + 1, all ++ [Level.param (Name.num .anonymous n)])) (1, [])
  c.type.instantiateLevelParams c.levelParams levels

/-- The constant that a type's conclusion begins with. -/
def headOf (type : Expr) : Name :=
  match type.getForallBody.getAppFn with
  | .const name _ => name
  | _ => Name.anonymous

/-- Whether it may be a theorem that others can name. One that a `module` imports may be an axiom to it. -/
def isCitable (c : ConstantInfo) : Bool :=
  match c with
  | .thmInfo _ => !c.name.isInternal
  | .axiomInfo v => !v.isUnsafe && !c.name.isInternal
  | _ => false

/-- Tell of the types of the file's theorems, and of the imported theorems with such a type; return these. -/
def statements (out : IO.FS.Handle) (env : Environment) (own : Array ConstantInfo) : IO (Array Name) := do
  let mut theorems : Array (ConstantInfo × Expr) := #[]
  let mut types : PersistentHashMap Expr Bool := {}
  let mut heads : NameSet := {}
  for c in own do
    match c, declared env c.name with
    | .thmInfo _, _ :: _ =>
      let type := plainType c
      theorems := theorems.push (c, type)
      types := put types type true
      heads := heads.insert (headOf type)
    | _, _ => pure ()
  if theorems.size == 0 then
    return #[]
  let wanted := types
  let begins := heads
  let found := env.constants.fold (fun (all : Array (ConstantInfo × Expr)) _ c =>
    if isCitable c && begins.contains (headOf c.type) && (env.getModuleIdxFor? c.name).isSome then
      let type := plainType c
      if (look wanted type).isSome && !(cited c).contains ``sorryAx then all.push (c, type) else all
    else all) #[]
  let mut writer : Writer := { lines := #[metaLine] }
  for (word, all) in [("states", theorems), ("proves", found)] do
    for (c, type) in all do
      let (term, written) := StateT.run (exprNode type) writer
      for line in written.lines do
        say out "export" [line]
      writer := { written with lines := #[] }
      say out word [toString c.name, term]
  return found.map fun (c, _) => c.name

/-- Tell of the constants that the file made, and of the homes of those that they and the tactics use. -/
def constants (out : IO.FS.Handle) (env : Environment) (named : Array Name) : IO Unit := do
  let own := env.constants.foldStage2 (fun (all : Array ConstantInfo) _ c => all.push c) #[]
  let proved ← statements out env own
  let mut used := named ++ proved
  for c in own do
    say out "made" (toString c.name :: declared env c.name)
    let names := cited c
    if names.size > 0 then
      say out "uses" (toString c.name :: texts names)
      used := used ++ names
  let mut seen : NameSet := {}
  for name in used do
    if !seen.contains name then
      seen := seen.insert name
      let home := match env.getModuleIdxFor? name with
        | some i => toString (env.header.moduleNames.getD i.toNat Name.anonymous)
        | none => ""
      say out "home" (toString name :: home :: standing env name)

def file (out : IO.FS.Handle) (path : String) (home : Name) (options : Options) : IO Unit := do
  let text ← IO.FS.readFile path
  let input := Parser.mkInputContext text path
  let (header, start, messages) ← Parser.parseHeader input
  -- As the language server does: to others the modules that a `module` imports do not say where they declare what.
  let options' := options.set `Elab.inServer true
  -- `import all` is of modules of the same project, which Lean knows by this module's name. The first Leans do not ask.
  let (env, messages) ← (by
    first
    | exact processHeader header options' messages input (mainModule := home)
    | exact processHeader header options' messages input : IO (Environment × MessageLog))
  if messages.hasErrors then
    for m in messages.toList do
      message out m
    say out "unread" []
  else
    let state := Command.mkState (env.setMainModule home) messages options
    let state := { state with infoState := { state.infoState with enabled := true } }
    let done ← IO.processCommands input start state
    for stx in done.commands do
      match stx.getPos? with
      | some start => say out "command" [toString start.byteIdx]
      | none => pure ()
    let state := done.commandState
    for m in state.messages.toList do
      message out m
    let mut named : Array Name := #[]
    for tree in state.infoState.trees.toArray do
      let nodes := tree.foldInfo (fun ctx info (all : Array (ContextInfo × Info)) => all.push (ctx, info)) #[]
      for (ctx, info) in nodes do
        let names ← node out ctx info
        named := named ++ names
    constants out state.env named
  say out "end" []

/-- A name from its parts. -/
def nameOf (parts : List String) : Name :=
  parts.foldl Name.str Name.anonymous

/-- Options, each as its name, `bool`, `nat` or `text`, and its value. -/
def read (options : Options) : List String → Options
  | name :: kind :: value :: rest =>
    let name := nameOf (name.splitOn ".")
    let options :=
      if kind == "bool" then options.set name (value == "true")
      else if kind == "nat" then options.set name value.toNat!
      else options.set name value
    read options rest
  | _ => options

unsafe def main (args : List String) : IO UInt32 := do
  match args with
  | answer :: path :: home :: options =>
    initSearchPath (← getBuildDir)
    enableInitializersExecution
    let out ← IO.FS.Handle.mk answer IO.FS.Mode.write
    Trace.file out path (nameOf (home.splitOn "/")) (read {} options)
    out.flush
    return 0
  | _ =>
    IO.eprintln "usage: Trace.main ANSWER FILE MODULE [OPTION KIND VALUE]…"
    return 2

end Trace
