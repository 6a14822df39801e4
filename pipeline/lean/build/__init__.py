"""Fetch and build a project's commit with lake, and keep the builds within a limit."""

from __future__ import annotations
