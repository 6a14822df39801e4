"""The hosts that fetching packages may speak to, unless the settings say otherwise. Imports nothing."""

from __future__ import annotations

DEFAULT_HOSTS = (
    "github.com",
    "*.github.com",
    "*.githubusercontent.com",
    "lakecache.blob.core.windows.net",
    "mathlib4.lean-cache.cloud",
    "reservoir.lean-cache.cloud",
    "reservoir.lean-lang.org",
    "releases.lean-lang.org",
)
"""Where Lean projects' packages and Mathlib's compiled files come from; `*.` is all that is below a name."""
