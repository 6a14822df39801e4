"""What an agent hears of the server for agents, through the protocol's official client."""

from __future__ import annotations

from typing import Any

from mcp_types import CallToolResult, TextContent


def answer_of(result: CallToolResult) -> tuple[bool, Any]:
    """Return whether a tool answered, and its answer; of a refusal the text."""
    if not result.is_error:
        return True, result.structured_content
    (text,) = result.content
    assert isinstance(text, TextContent)
    return False, text.text
