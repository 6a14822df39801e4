"""Errors of the agents, with messages for people."""

from __future__ import annotations


class AgentError(Exception):
    """Something asked of an agent cannot be done; the message names the thing, the reason and the remedy."""
