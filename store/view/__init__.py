"""The view of the log: tables derived from the events, and queries of them."""

from __future__ import annotations
