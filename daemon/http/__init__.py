"""Serve the control socket, metrics, status and the report."""

from __future__ import annotations
