"""Run a stranger's program: what it sees, what it may use, which hosts it reaches, and its certain end."""

from __future__ import annotations
