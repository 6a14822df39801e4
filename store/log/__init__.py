"""The event log: one SQLite file that is only appended to."""

from __future__ import annotations
