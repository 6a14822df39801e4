"""Raise a commit's Lean or one of its packages, say what breaks, and mend the proofs that do."""
