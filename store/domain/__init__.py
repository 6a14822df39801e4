"""The rules of the field: identity, matching, lives, splits, promotion. They own no file."""

from __future__ import annotations
