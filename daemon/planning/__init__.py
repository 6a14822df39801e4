"""Decide which jobs are due and which may start: pure functions of the view, the settings and the time."""

from __future__ import annotations
