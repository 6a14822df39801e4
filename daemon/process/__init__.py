"""The long-lived process: how it starts, runs and ends."""
