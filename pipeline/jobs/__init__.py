"""The common part of all jobs: protocol, process, preemption."""

from __future__ import annotations
