"""Whether this machine and this daemon can do the work, and what is wrong when they cannot."""
