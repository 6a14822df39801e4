"""The event log: one append-only SQLite file."""

from __future__ import annotations
