"""Raise a commit's Lean or one of its packages, name the breaks, and mend the broken proofs."""
