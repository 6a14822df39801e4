"""What Lean says of a commit: theorems with their tactics and premises, and how complete that is."""
