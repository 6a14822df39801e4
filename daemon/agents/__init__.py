"""Give sorries to other people's agents, and take their claims and proofs."""
