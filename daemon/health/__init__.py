"""Check whether this machine and this daemon can do the work, and report problems."""
