"""Speak with one `pantograph-repl` process: bytes, JSON, typed requests and replies, dialects, errors."""

from __future__ import annotations
