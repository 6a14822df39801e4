module
prelude
public import Init.Base
public import Init.Grammar
public import Init.Logic
public import Init.Simp
public import Init.Nat
public import Init.Macro
public import Init.Show
