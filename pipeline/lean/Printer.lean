/-!
A term as text, out of a project's reach: no notation, no delaborator, no `pp` option, no code of an instance. Names are
whole, every argument is written, instances stand by their names, universe levels are there.

A name of other characters than letters, digits and `_` has `«»`; in it, and in a text, a character that is invisible,
changes the direction of writing or looks like a space stands as `\u{…}`. A bound name is changed (to `n_1`) if it would
be read as an outer bound name, or as a constant of the term.

A term shares its parts, so its text may be longer than any memory: a text has room for a number of characters, and the
rest is left out.
-/

open Lean

namespace Printer

/-- The text so far, the room left in characters, and whether all had room. -/
structure Text where
  out : String := ""
  room : Nat
  whole : Bool := true

abbrev P := StateM Text

instance : Inhabited (P Unit) := ⟨pure ()⟩

def put (text : String) : P Unit :=
  modify fun t =>
    if t.whole && Nat.ble text.utf8ByteSize t.room then
      { t with out := t.out ++ text, room := t.room - text.utf8ByteSize }
    else { t with whole := false }

def within (c first last : Nat) : Bool :=
  Nat.ble first c && Nat.ble c last

def isDigit (c : Nat) : Bool :=
  within c 48 57

/-- Whether a name may begin with it without `«»`: Lean's letters. -/
def isLetter (c : Nat) : Bool :=
  within c 65 90 || within c 97 122 || c == 95 ||
  within c 0x391 0x3a9 && c != 0x3a0 && c != 0x3a3 || within c 0x3b1 0x3c9 && c != 0x3bb || within c 0x3ca 0x3fb ||
  within c 0x1f00 0x1ffe || within c 0x2100 0x214f || within c 0x1d49c 0x1d59f

def isSubscript (c : Nat) : Bool :=
  within c 0x2080 0x2089 || within c 0x2090 0x209c || within c 0x1d62 0x1d6a

/-- Whether it is visible, stands in its place, and is not taken for a space. Letters written from the right turn the
text between two of them. -/
def isSeen (c : Nat) : Bool :=
  within c 32 126 || within c 0xa1 0x58f && c != 0xad && !within c 0x300 0x36f || within c 0x900 0x115e ||
  within c 0x1161 0x167f || within c 0x1681 0x17b3 || within c 0x17b6 0x180a || within c 0x1810 0x1fff ||
  within c 0x2010 0x2027 || within c 0x2030 0x205e || within c 0x2070 0x27ff || within c 0x2801 0x2fff ||
  within c 0x3001 0x3163 || within c 0x3165 0xd7ff || within c 0xf900 0xfb1c || within c 0xfe10 0xfe6f ||
  within c 0xff01 0xff9f || within c 0xffa1 0xffef || within c 0x10000 0x107ff || within c 0x11000 0x1d172 ||
  within c 0x1d17b 0x1e7ff || within c 0x1f000 0xdffff

def hex (n : Nat) : String := Id.run do
  let mut out := ""
  let mut power := 0x100000
  for _ in [0, 0, 0, 0, 0, 0] do
    if Nat.ble power n || power == 1 then
      out := out.push (Nat.digitChar (n / power % 16))
    power := power / 16
  return out

/-- The characters of a name or a text; invisible ones, a backslash and the closing quotes are escaped. -/
def visible (text : String) : String := Id.run do
  let mut out := ""
  for c in text.toList do
    if isSeen c.toNat && c != '\\' && c != '"' && c != '»' then
      out := out.push c
    else
      out := out ++ "\\u{" ++ hex c.toNat ++ "}"
  return out

def letters (text : String) : Bool :=
  match text.toList with
  | [] => false
  | first :: rest => isLetter first.toNat && !rest.any fun (c : Char) =>
    !(isLetter c.toNat || isDigit c.toNat || isSubscript c.toNat || c == '\'' || c == '!' || c == '?')

/-- A part of a name, in `«»` if it is no plain name or a word of this language. -/
def part (text : String) : String :=
  let words := ["Prop", "Type", "Sort", "max", "imax", "fun", "let", "_"]
  if letters text && !words.any (fun word => word == text) then text else "«" ++ visible text ++ "»"

def name (n : Name) : String :=
  match n with
  | .anonymous => "«»"
  | .str .anonymous s => part s
  | .num .anonymous i => toString i
  | .str p s => name p ++ "." ++ part s
  | .num p i => name p ++ "." ++ toString i

/-- The name as given, without a macro's marks, and whether a macro made it. -/
def plain (n : Name) : Name × Bool :=
  match n with
  | .anonymous => (.anonymous, true)
  | .str p s =>
    let (above, made) := plain p
    if s == "_@" then (p, true)
    else match p with
      | .anonymous => (n, false)
      | _ => if made then (above, true) else (n, false)
  | .num p i =>
    let (above, made) := plain p
    match p with
    | .anonymous => (n, false)
    | _ => if made then (above, true) else (.num p i, false)

def rootOf (n : Name) : Name :=
  match n with
  | .str .anonymous _ => n
  | .num .anonymous _ => n
  | .str p _ => rootOf p
  | .num p _ => rootOf p
  | .anonymous => n

/-- The first of `n`, `n_1`, `n_2`, … not taken; after `tries` of them the last. -/
def another (base : String) (taken : String → Bool) (tries : Nat) : String := Id.run do
  let mut found := part base
  let mut i := 0
  while taken found && i < tries do
    i := i + 1
    found := part (base ++ "_" ++ toString i)
  return found

/-- The last part of a name, as text. -/
def lastOf (n : Name) : String :=
  match n with
  | .str _ s => s
  | .num _ i => toString i
  | .anonymous => "x"

def brackets (kind : BinderInfo) : String × String :=
  match kind with
  | .default => ("(", ")")
  | .implicit => ("{", "}")
  | .strictImplicit => ("⦃", "⦄")
  | .instImplicit => ("[", "]")

/-- The style of a term's text. `taken`: names no bound name may have; `isShort`: constants with arguments usually left
out, so that they have an `@` before all of them. -/
structure Style where
  taken : String → Bool
  isShort : Name → Bool

def deepest : Nat := 300

def joined (texts : List String) (between : String) : String :=
  match texts with
  | [] => ""
  | first :: more => more.foldl (fun out one => out ++ between ++ one) first

partial def level (depth : Nat) (l : Level) (isPart : Bool) : P Unit := do
  if Nat.ble deepest depth then
    modify fun t => { t with whole := false }
  else if (← get).whole then
    match l with
    | .zero => put "0"
    | .succ _ => do
      let mut under := l
      let mut n := 0
      let mut more := true
      while more do
        match under with
        | .succ u =>
          under := u
          n := n + 1
        | _ => more := false
      match under with
      | .zero => put (toString n)
      | _ => do
        if isPart then put "("
        level (depth + 1) under true
        put ("+" ++ toString n)
        if isPart then put ")"
    | .max a b => pair "max" a b
    | .imax a b => pair "imax" a b
    | .param n => put (name n)
    | .mvar _ => put "?"
where
  pair (word : String) (a b : Level) : P Unit := do
    if isPart then put "("
    put (word ++ " ")
    level (depth + 1) a true
    put " "
    level (depth + 1) b true
    if isPart then put ")"

def levels (ls : List Level) : P Unit := do
  let mut before := ".{"
  for l in ls do
    put before
    level 0 l false
    before := ", "
  if !ls.isEmpty then put "}"

def sort (l : Level) (isPart : Bool) : P Unit := do
  match l with
  | .zero => put "Prop"
  | .succ .zero => put "Type"
  | .succ u => do
    if isPart then put "("
    put "Type "
    level 0 u true
    if isPart then put ")"
  | _ => do
    if isPart then put "("
    put "Sort "
    level 0 l true
    if isPart then put ")"

/-- The name at a place in a list, innermost first. -/
def at? (names : List String) (i : Nat) : String :=
  match names, i with
  | [], _ => "?"
  | n :: _, 0 => n
  | _ :: rest, i + 1 => at? rest i

/-- The written name of a bound variable. -/
def bound (style : Style) (around : List String) (n : Name) : String :=
  let (given, _) := plain n
  another (lastOf given) (fun one => style.taken one || around.any fun other => other == one) 1000

/-- Write a term; `isPart`: as an argument. -/
partial def term (style : Style) (around : List String) (depth : Nat) (e : Expr) (isPart : Bool) : P Unit := do
  if Nat.ble deepest depth then
    modify fun t => { t with whole := false }
  else if (← get).whole then
    match e with
    | .bvar i => put (at? around i)
    | .fvar _ => put "?"
    | .mvar _ => put "?"
    | .sort l => sort l isPart
    | .const n ls => do
      put (name n)
      levels ls
    | .lit (.natVal n) => put (toString n)
    | .lit (.strVal s) => put ("\"" ++ visible s ++ "\"")
    | .mdata _ b => term style around (depth + 1) b isPart
    | .proj type i b => do
      put (name type ++ "." ++ toString (i + 1) ++ "(")
      term style around (depth + 1) b false
      put ")"
    | .app _ _ => do
      if isPart then put "("
      let mut head := e
      let mut arguments : List Expr := []
      let mut more := true
      while more do
        match head with
        | .app f a =>
          arguments := a :: arguments
          head := f
        | _ => more := false
      match head with
      | .const n _ => if style.isShort n then put "@"
      | _ => pure ()
      term style around (depth + 1) head true
      for a in arguments do
        put " "
        term style around (depth + 1) a true
      if isPart then put ")"
    | .lam n t b _ => do
      let x := bound style around n
      if isPart then put "("
      put "fun "
      binder x e.binderInfo t
      put " => "
      term style (x :: around) (depth + 1) b false
      if isPart then put ")"
    | .letE n t v b _ => do
      let x := bound style around n
      if isPart then put "("
      put ("let " ++ x ++ " : ")
      term style around (depth + 1) t false
      put " := "
      term style around (depth + 1) v false
      put "; "
      term style (x :: around) (depth + 1) b false
      if isPart then put ")"
    | .forallE n t b _ => do
      let x := bound style around n
      if isPart then put "("
      let kind := e.binderInfo
      match kind, (plain n).2 && !b.hasLooseBVar 0 with
      | .default, true => do
        term style around (depth + 1) t true
        put " → "
      | _, _ => do
        put "∀ "
        binder x kind t
        put ", "
      term style (x :: around) (depth + 1) b false
      if isPart then put ")"
where
  binder (x : String) (kind : BinderInfo) (t : Expr) : P Unit := do
    put ((brackets kind).1 ++ x ++ " : ")
    term style around (depth + 1) t false
    put (brackets kind).2

/-- The style of a term: no bound name may be the beginning of a constant's. -/
def styleOf (find : Name → Option ConstantInfo) (e : Expr) : Style :=
  let roots : NameSet := e.getUsedConstants.foldl (fun s n => s.insert (Name.str .anonymous (name (rootOf n)))) {}
  { taken := fun one => roots.contains (Name.str .anonymous one)
    isShort := fun n => match find n with
      | some c => hidden c.type
      | none => true }
where
  hidden (e : Expr) : Bool :=
    match e with
    | .forallE _ _ b _ => match e.binderInfo with
      | .default => hidden b
      | _ => true
    | .mdata _ b => hidden b
    | _ => false

/-- The text of an act, and whether there was room for it. -/
def written (room : Nat) (act : P Unit) : String × Bool :=
  let (_, text) := Id.run (StateT.run act { room := room })
  (text.out, text.whole)

/-- A term's text. -/
def shown (find : Name → Option ConstantInfo) (room : Nat) (e : Expr) : String × Bool :=
  written room (term (styleOf find e) [] 0 e false)

/-- The first variables of a type: the kind of binder, the given name (empty for none but a macro's), and its text, as in
the type's. -/
def binders (find : Name → Option ConstantInfo) (room most : Nat) (e : Expr) : Array (String × String × String) :=
    Id.run do
  let style := styleOf find e
  let mut found := #[]
  let mut around : List String := []
  let mut rest := e
  let mut more := true
  while more do
    match rest with
    | .mdata _ b => rest := b
    | .forallE n t b _ =>
      let kind := rest.binderInfo
      if Nat.ble most found.size then
        more := false
      else
        let x := bound style around n
        let (text, _) := written room (do
          put ((brackets kind).1 ++ x ++ " : ")
          term style around 0 t false)
        let given := match plain n with
          | (_, true) => ""
          | (given, false) => name given
        found := found.push ((brackets kind).1, given, text ++ (brackets kind).2)
        around := x :: around
        rest := b
    | _ => more := false
  return found

end Printer
