"""What every job has: its protocol, its process, preemption."""

from __future__ import annotations
