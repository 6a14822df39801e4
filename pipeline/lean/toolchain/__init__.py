"""Lean versions: their names, elan's folder, and the refusal of stand-ins for Lean."""

from __future__ import annotations
