prelude
import Init
/-! `do`, loops and states: what `do` turns into, under the names that the elaborator looks for. -/
set_option autoImplicit false
set_option linter.unusedVariables false
universe u v w u₁ u₂

def Id (α : Type u) : Type u := α
@[always_inline, inline] def Id.run {α : Type u} (x : Id α) : α := x
instance : Monad Id where
  map f x := f x
  mapConst a _ := a
  pure a := a
  bind x f := f x
  seq f x := f (x .unit)
  seqLeft x _ := x
  seqRight _ y := y .unit

instance {α : Sort u} {β : Sort v} [Inhabited β] : Inhabited (α → β) := ⟨fun _ => default⟩
instance {α : Type u} {m : Type u → Type v} [Monad m] [Inhabited α] : Inhabited (m α) := ⟨pure default⟩
instance {α : Type u} {m : Type u → Type v} [Monad m] : Inhabited (α → m α) := ⟨pure⟩

instance : Coe Bool Prop := ⟨fun b => b = true⟩
instance {α : Sort u} {β : Sort v} (a : α) [CoeDep α a β] : CoeT α a β := ⟨CoeDep.coe a⟩
instance (p : Prop) [Decidable p] : CoeDep Prop p Bool := ⟨decide p⟩

class MonadLift (m : semiOutParam (Type u → Type v)) (n : Type u → Type w) where
  monadLift {α : Type u} : m α → n α
class MonadLiftT (m : Type u → Type v) (n : Type u → Type w) where
  monadLift {α : Type u} : m α → n α
export MonadLiftT (monadLift)
instance (m : Type u → Type v) : MonadLiftT m m := ⟨fun x => x⟩

class MonadState (σ : outParam (Type u)) (m : Type u → Type v) where
  get : m σ
  set : σ → m PUnit
  modifyGet {α : Type u} : (σ → Prod α σ) → m α
export MonadState (get modifyGet)
@[always_inline, inline] def modify {σ : Type u} {m : Type u → Type v} [MonadState σ m] (f : σ → σ) : m PUnit :=
  modifyGet fun s => (PUnit.unit, f s)

def StateT (σ : Type u) (m : Type u → Type v) (α : Type u) : Type (max u v) := σ → m (α × σ)
abbrev StateM (σ α : Type u) : Type u := StateT σ Id α
namespace StateT
variable {σ : Type u} {m : Type u → Type v} [Monad m] {α : Type u}
@[always_inline, inline] def run (x : StateT σ m α) (s : σ) : m (α × σ) := x s
instance : Monad (StateT σ m) where
  map f x s := bind (x s) fun p => pure (f p.1, p.2)
  mapConst a x s := bind (x s) fun p => pure (a, p.2)
  pure a s := pure (a, s)
  bind x f s := bind (x s) fun p => f p.1 p.2
  seq f x s := bind (f s) fun p => bind (x .unit p.2) fun q => pure (p.1 q.1, q.2)
  seqLeft x y s := bind (x s) fun p => bind (y .unit p.2) fun q => pure (p.1, q.2)
  seqRight x y s := bind (x s) fun p => y .unit p.2
instance : MonadState σ (StateT σ m) where
  get s := pure (s, s)
  set s _ := pure (PUnit.unit, s)
  modifyGet f s := pure (f s)
end StateT

inductive ForInStep (α : Type u) where
  | done (b : α)
  | yield (b : α)
class ForIn (m : Type u₁ → Type u₂) (ρ : Type u) (α : outParam (Type v)) where
  forIn {β : Type u₁} (xs : ρ) (b : β) (f : α → β → m (ForInStep β)) : m β
export ForIn (forIn)
inductive Lean.Loop where
  | mk
/-- The next round of `while` and `repeat`. -/
@[specialize] partial def Lean.Loop.next {β : Type u} {m : Type u → Type v} [Monad m] (f : Unit → β → m (ForInStep β))
    (b : β) : m β :=
  bind (f .unit b) fun
    | .done b => pure b
    | .yield b => next f b
instance {m : Type u → Type v} [Monad m] : ForIn m Lean.Loop Unit := ⟨fun _ b f => Lean.Loop.next f b⟩
