"""Many REPL processes for many searches: a bounded pool, and sessions whose states outlive a process."""

from __future__ import annotations
