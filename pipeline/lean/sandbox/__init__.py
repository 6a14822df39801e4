"""Run a stranger's program: its view, its resources, its hosts, and its certain end."""

from __future__ import annotations
