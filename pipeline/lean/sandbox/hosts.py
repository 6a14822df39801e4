"""The allowed hosts for fetching packages, unless the settings say otherwise. Imports nothing."""

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
"""The sources of Lean projects' packages and of Mathlib's compiled files; `*.` is every name below one."""
