"""Starts the plan's jobs, and does the small work between them."""
