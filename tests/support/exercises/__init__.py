"""Lean exercises whose answers are known: families of theorems, and repositories made of them."""
