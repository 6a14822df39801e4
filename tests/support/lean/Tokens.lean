import Lean

/-!
Lean's own tokens of files, for comparison: `lean --run Tokens.lean FILE…`. On stderr, for each file a line `file`, then
for each token a line with its first byte, the byte after it, and its kind (`atom`, `ident`, or the kind of a literal).
Doc comments are left out. `error BYTE` is where Lean finds no token; nothing of the file follows.

What it takes of Lean's library is bound by name, with as much of each record's fields as is read.
-/

open Lean

namespace Tokens
structure ModuleContext where
  env : Environment
  options : Options
  currNamespace : Name
  openDecls : List Name
structure Table where
  fst : Name
  snd : Name
structure Stack where
  raw : Array Syntax
  drop : Nat
structure State where
  stack : Stack
  lhsPrec : Nat
  pos : String.Pos.Raw
  cache : Name
  errorMsg : Option Name
  recovered : Name
structure Context where
  fst : Name
  snd : Name
abbrev Fn := Context → State → State
instance : Inhabited Table := ⟨⟨.anonymous, .anonymous⟩⟩
instance : Inhabited State := ⟨⟨⟨.empty, 0⟩, 0, ⟨0⟩, .anonymous, none, .anonymous⟩⟩
end Tokens

namespace Lean.Parser
open Tokens
@[extern "l_Lean_Parser_getTokenTable"] opaque getTokenTable (env : Environment) : Table := default
@[extern "l_Lean_Parser_mkParserState"] opaque mkParserState (input : String) : State := default
@[extern "l_Lean_Parser_ParserState_setPos"] opaque ParserState.setPos (s : State) (pos : String.Pos.Raw) : State := s
@[extern "l_Lean_Parser_whitespace"] opaque whitespace (c : Context) (s : State) : State := s
@[extern "l_Lean_Parser_tokenFn"] opaque tokenFn (expected : List String) (c : Context) (s : State) : State := s
@[extern "l_Lean_Parser_finishCommentBlock"] opaque finishCommentBlock (push : Bool) (nesting : Nat) (c : Context)
  (s : State) : State := s
@[extern "l_Lean_Parser_ParserFn_run"] opaque ParserFn.run (p : Fn) (i : InputContext) (m : ModuleContext) (t : Table)
  (s : State) : State := s
end Lean.Parser

namespace Tokens
open Lean.Parser
def failed (s : State) : Bool := match s.errorMsg with | none => false | some _ => true

def isDoc : Syntax → Bool
  | .atom _ text => text == "/--" || text == "/-!"
  | _ => false

def out (words : List String) : IO Unit := IO.eprintln (words.foldl (fun a b => a ++ b ++ " ") "")

unsafe def go (input : String) (run : Fn → State → State) (pos : Nat) : IO Unit := do
  let s := run whitespace (ParserState.setPos (mkParserState input) ⟨pos⟩)
  if failed s then
    out ["error", toString s.pos.byteIdx]
  else if s.pos.byteIdx < input.utf8ByteSize then
    let start := s.pos.byteIdx
    let s := run (tokenFn []) (ParserState.setPos (mkParserState input) ⟨start⟩)
    if failed s then
      out ["error", toString start]
    else
      match s.stack.raw.toList with
      | stx :: _ =>
        let stop := match stx.getTailPos? with | some p => p.byteIdx | none => start
        match isDoc stx with
        | true =>
          let s := run (finishCommentBlock true 1) (ParserState.setPos (mkParserState input) s.pos)
          if failed s then out ["error", toString start] else
            go input run s.pos.byteIdx
        | false =>
          let kind := match stx with | .node _ k _ => toString k | .atom _ _ => "atom" | .ident .. => "ident" | _ => "?"
          out [toString start, toString stop, kind]
          go input run (if s.pos.byteIdx > start then s.pos.byteIdx else start + 1)
      | _ => out ["error", toString start]
end Tokens

unsafe def all (env : Environment) (paths : List String) : IO Unit := do
  match paths with
  | [] => return
  | path :: more =>
    let input ← IO.FS.readFile path
    let ctx := Parser.mkInputContext input path
    let m : Tokens.ModuleContext := ⟨env, {}, .anonymous, []⟩
    let t := Parser.getTokenTable env
    Tokens.out ["file"]
    Tokens.go input (fun p s => Parser.ParserFn.run p ctx m t s) 0
    all env more

unsafe def main (args : List String) : IO UInt32 := do
  initSearchPath (← getBuildDir)
  enableInitializersExecution
  let env ← importModules #[{ module := `Init }] {} (loadExts := true)
  all env args
  return 0
