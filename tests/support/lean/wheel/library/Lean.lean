prelude
import Lean.Elab
