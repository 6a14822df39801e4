"""The state of a running daemon: its settings in force, its clock, the one writer of the log, the copies of
the log."""
