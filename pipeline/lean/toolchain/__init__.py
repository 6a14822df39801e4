"""Lean versions: the cache of REPL builds, one a version, and the refusal of stand-ins for Lean."""

from __future__ import annotations
