"""The facts that the log records, one frozen model a type."""

from __future__ import annotations
