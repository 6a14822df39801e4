"""Proving: the rungs of the ladder, the search over goal states, and the text that a found proof becomes."""
