"""What a browser may do with a page of ours: show its own style, and load, run or send nothing at all."""

from __future__ import annotations

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The Content-Security-Policy, for the page's head and for whoever serves it."""
