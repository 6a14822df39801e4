"""Trace a commit with Lean: theorems with their tactics and premises, and the completeness of the trace."""
