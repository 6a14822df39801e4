"""Fetch and build a project's commit with lake, and keep what came out within a limit."""

from __future__ import annotations
