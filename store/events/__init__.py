"""The facts in the log, one frozen model a type."""

from __future__ import annotations
