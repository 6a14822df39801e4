"""Read Lean source without Lean: characters, commands, declarations, sorries."""

from __future__ import annotations
