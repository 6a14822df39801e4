"""Run jobs as child processes: start, lines, limits, GPUs, recovery."""

from __future__ import annotations
