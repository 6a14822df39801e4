"""Decide the due jobs and their starts, as pure functions of the view, the settings and the time."""

from __future__ import annotations
