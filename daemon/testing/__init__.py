"""Stand-ins that ship with the daemon, for its own tests and for yours: GitHub's HTTP and nothing else."""

from __future__ import annotations
