"""The view of the log: tables that follow from the events, and questions to them."""

from __future__ import annotations
