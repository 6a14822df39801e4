"""Speak with one `pantograph-repl` process: bytes, JSON, requests, typed replies, dialects, errors."""

from __future__ import annotations

CALL_TIMEOUT_S = 60.0
GRACE_S = 3.0
