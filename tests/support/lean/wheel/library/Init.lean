prelude
import Init.Base
import Init.Grammar
import Init.Logic
import Init.Simp
import Init.Nat
import Init.Macro
import Init.Show
