"""Starts the jobs that the plan holds, and does the small work between them."""
