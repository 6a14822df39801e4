"""The long-lived process: its start, work and end."""
