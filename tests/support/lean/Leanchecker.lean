import Lean

/-! `leanchecker` of the wheel's Lean: the kernel's replay that the toolchain's own calls, of the modules that are named.
It replays these alone, and not also what is named below them. -/

open Lean

/-- A hash map as Lean has it in memory; with one list it needs no hashes. -/
inductive Entries where
  | nil
  | cons (key : Name) (value : ConstantInfo) (rest : Entries)
structure Constants where
  size : Nat
  buckets : Array Entries

@[extern "l_Lean_Environment_replay"] opaque Lean.Environment.replay (new : Constants) (env : Environment) :
  IO Environment

def check (module : Name) : IO Unit := do
  let (data, _) ← readModuleData (← findOLean module)
  let env ← importModules data.imports {}
  let all := data.constants.foldl (fun (all : Entries) c => .cons c.name c all) .nil
  let _ ← Environment.replay ⟨data.constants.size, #[all]⟩ env

def nameOf (text : String) : Name := Id.run do
  let mut name := Name.anonymous
  let mut part := ""
  for c in text.toList do
    if c == '.' then
      name := Name.str name part
      part := ""
    else
      part := part.push c
  return Name.str name part

def main (modules : List String) : IO UInt32 := do
  initSearchPath (← getBuildDir)
  for module in modules do
    check (nameOf module)
  return 0
