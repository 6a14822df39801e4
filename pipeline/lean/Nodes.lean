/-!
Names, universe levels and terms as lines of an export, in the format of lean4export, version 3.1.0: a JSON object a
line, nodes numbered from 1 (from 0 for terms), parts before the whole, no node twice. Bound variables have no names
and all are explicit, and notes inside terms (`mdata`) are left out: the kernel ignores all this. `export.py` reads the
lines, and makes of each term the digest for comparisons.
-/

open Lean

namespace Nodes

/-- Look a key up. A function of its own, since Lean would compile a map for each type here, and run it uncompiled. -/
@[noinline] def look {α β : Type} [BEq α] [Hashable α] (m : PersistentHashMap α β) (k : α) : Option β :=
  m.find? k

/-- Insert into a map; see `look`. -/
@[noinline] def put {α β : Type} [BEq α] [Hashable α] (m : PersistentHashMap α β) (k : α) (v : β) :
    PersistentHashMap α β :=
  m.insert k v

/-- The export so far: lines not yet in the file, and the number of each node. Terms that differ only in notes have one
text and become one node. -/
structure Writer where
  lines : Array String := #[]
  names : PersistentHashMap Name Nat := {}
  levels : PersistentHashMap Level Nat := {}
  exprs : PersistentHashMap Expr Nat := {}
  texts : PersistentHashMap String Nat := {}
  nNames : Nat := 1
  nLevels : Nat := 1
  nExprs : Nat := 0

abbrev W := StateM Writer

def line (text : String) : W Unit :=
  modify fun w => { w with lines := w.lines.push text }

/-- A text in JSON. -/
def quoted (text : String) : String := Id.run do
  let mut out := "\""
  for c in text.toList do
    if c == '"' || c == '\\' then
      out := (out.push '\\').push c
    else if c == '\n' then
      out := out ++ "\\n"
    else if c.toNat < 16 then
      out := (out ++ "\\u000").push (Nat.digitChar c.toNat)
    else if c.toNat < 32 then
      out := (out ++ "\\u001").push (Nat.digitChar (c.toNat - 16))
    else
      out := out.push c
  return out.push '"'

def commas (texts : List String) : String :=
  match texts with
  | [] => ""
  | first :: more => more.foldl (fun out one => out ++ "," ++ one) first

def numbers (ns : List Nat) : String :=
  "[" ++ commas (ns.map toString) ++ "]"

def field (name value : String) : String :=
  "\"" ++ name ++ "\":" ++ value

def object (fields : List (String × String)) : String :=
  "{" ++ commas (fields.map fun f => field f.1 f.2) ++ "}"

/-- A new node: its number, and its line, the text with the number in front. -/
def node (tag : String) (k : Nat) (text : String) : W Unit :=
  line ("{\"" ++ tag ++ "\":" ++ toString k ++ "," ++ text ++ "}")

partial def nameNode (n : Name) : W Nat := do
  match look (← get).names n with
  | some k => return k
  | none =>
    match n with
    | .anonymous => return 0
    | .str p s => do
      let p ← nameNode p
      newName n (field "str" (object [("pre", toString p), ("str", quoted s)]))
    | .num p i => do
      let p ← nameNode p
      newName n (field "num" (object [("pre", toString p), ("i", toString i)]))
where
  newName (n : Name) (text : String) : W Nat := do
    let k := (← get).nNames
    node "in" k text
    modify fun w => { w with names := put w.names n k, nNames := k + 1 }
    return k

partial def levelNode (l : Level) : W Nat := do
  match look (← get).levels l with
  | some k => return k
  | none =>
    match l with
    | .zero => return 0
    | .succ a => do
      let a ← levelNode a
      newLevel l (field "succ" (toString a))
    | .max a b => do
      let a ← levelNode a
      let b ← levelNode b
      newLevel l (field "max" (numbers [a, b]))
    | .imax a b => do
      let a ← levelNode a
      let b ← levelNode b
      newLevel l (field "imax" (numbers [a, b]))
    | .param n => do
      let n ← nameNode n
      newLevel l (field "param" (toString n))
    | .mvar _ => newLevel l (field "hole" "0")
where
  newLevel (l : Level) (text : String) : W Nat := do
    let k := (← get).nLevels
    node "il" k text
    modify fun w => { w with levels := put w.levels l k, nLevels := k + 1 }
    return k

/-- The parts of a term. -/
def parts (e : Expr) : List Expr :=
  match e with
  | .app f a => [f, a]
  | .lam _ t b _ => [t, b]
  | .forallE _ t b _ => [t, b]
  | .letE _ t v b _ => [t, v, b]
  | .mdata _ b => [b]
  | .proj _ _ b => [b]
  | _ => []

/-- The number of a written term. For another term the result is no JSON. -/
def written (e : Expr) : W String := do
  match look (← get).exprs e with
  | some k => return toString k
  | none => return "?"

def binder (type body : Expr) : W String := do
  let t ← written type
  let b ← written body
  return object [("name", "0"), ("type", t), ("body", b), ("binderInfo", quoted "default")]

/-- Write a term after its parts. -/
def exprAlone (e : Expr) : W Unit := do
  let text ← match e with
    | .bvar i => pure (field "bvar" (toString i))
    | .fvar _ => pure (field "hole" "0")
    | .mvar _ => pure (field "hole" "0")
    | .sort l => do
      let l ← levelNode l
      pure (field "sort" (toString l))
    | .const n ls => do
      let n ← nameNode n
      let ls ← ls.mapM levelNode
      pure (field "const" (object [("name", toString n), ("us", numbers ls)]))
    | .app f a => do
      let f ← written f
      let a ← written a
      pure (field "app" (object [("fn", f), ("arg", a)]))
    | .lam _ t b _ => do
      let text ← binder t b
      pure (field "lam" text)
    | .forallE _ t b _ => do
      let text ← binder t b
      pure (field "forallE" text)
    | .letE _ t v b _ => do
      let t ← written t
      let v ← written v
      let b ← written b
      pure (field "letE" (object [("name", "0"), ("type", t), ("value", v), ("body", b), ("nondep", "false")]))
    | .lit (.natVal n) => pure (field "natVal" (quoted (toString n)))
    | .lit (.strVal s) => pure (field "strVal" (quoted s))
    | .mdata _ b => written b
    | .proj n i b => do
      let n ← nameNode n
      let b ← written b
      pure (field "proj" (object [("typeName", toString n), ("idx", toString i), ("struct", b)]))
  let known ← match e with
    | .mdata _ b => pure (look (← get).exprs b)
    | _ => pure (look (← get).texts text)
  match known with
  | some k => modify fun w => { w with exprs := put w.exprs e k }
  | none =>
    let k := (← get).nExprs
    node "ie" k text
    modify fun w => { w with exprs := put w.exprs e k, texts := put w.texts text k, nExprs := k + 1 }

/-- Write a term; with a list of open tasks, since a term may be deeper than the stack. -/
def exprNode (e : Expr) : W String := do
  let mut todo : List (Expr × Bool) := [(e, false)]
  while !todo.isEmpty do
    match todo with
    | [] => todo := []
    | (e, ready) :: rest =>
      if ready then
        exprAlone e
        todo := rest
      else
        match look (← get).exprs e with
        | some _ => todo := rest
        | none => todo := (parts e).foldl (fun all part => (part, false) :: all) ((e, true) :: rest)
  written e

/-- The first line of an export. -/
def metaLine : String :=
  let exporter := object [("name", quoted "everlean"), ("version", quoted "1")]
  let lean := object [("githash", quoted Lean.githash), ("version", quoted Lean.versionString)]
  let format := object [("version", quoted "3.1.0")]
  object [("meta", object [("exporter", exporter), ("lean", lean), ("format", format)])]

end Nodes

