"""REPL builds, one a Lean version: their names, the cache that holds them, and how one is made."""

from __future__ import annotations
