prelude
import Lean.Environment
