"""Lean 4.35.0 out of a Python wheel, with a library of our own: see `tests.support.lean.wheel.lean`."""

from __future__ import annotations
