"""The questions to the view: read-only, with the standard library alone."""

from __future__ import annotations
