"""Read Lean source without Lean: characters, commands, declarations, sorrys."""

from __future__ import annotations
