"""The dialect of a `pantograph-repl`, found by probing it, and its consequences.

Its printed version is no guide (`0.3.7/v4.21.0`, builds of branches, fields that one release still accepts and
ignores), so nothing is decided by it. Instead a few requests, stateless and refused by every version, are sent after
`ready.`: the form of the refusals shows the known commands.

    older   no `frontend.distil`: `frontend.process` has `sorrys` and answers goals (up to about 0.3.5)
    middle  `frontend.distil`, but not yet `goal.subsume`; `sorrys` is accepted and does nothing (0.3.6, 0.3.7)
    newer   `goal.subsume` (0.3.8 and later); `sorrys` is gone

The words for error kinds differ too; `errors.refusal` knows all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from pipeline.lean.client.errors import MalformedReply
from pipeline.lean.client.wire import Json
from store.text import shown

Dialect = Literal["older", "middle", "newer"]
Ask = Callable[[str, Json], Awaitable[Json]]

_UNKNOWN = "Unknown command"


async def probe(ask: Ask) -> Dialect:
    """Determine the dialect; `ask` sends one request and returns its reply object, error objects included.

    Two requests for the newer dialect, three for the others; none makes a state or elaborates anything.

    Raises:
        MalformedReply: a reply of no known version.
    """
    # All refuse both fields at once; a command is refused by its payload or, if unknown, by its name.
    reply = await ask("goal.start", {"expr": "True", "copyFrom": "True.intro"})
    if reply.get("error") not in ("arguments", "command"):
        raise MalformedReply(
            f"goal.start: expected a refusal of two statements at once, got {shown(dict(reply))}"
        )
    if await _has(ask, "goal.subsume"):
        return "newer"
    return "middle" if await _has(ask, "frontend.distil") else "older"


async def _has(ask: Ask, command: str) -> bool:
    reply = await ask(command, {})
    if "error" not in reply:
        raise MalformedReply(f"{command}: expected a refusal of an empty payload, got {shown(dict(reply))}")
    return not str(reply.get("desc", "")).startswith(_UNKNOWN)


def process_fields(dialect: Dialect, *, sorrys: bool = False) -> dict[str, bool]:
    """Return the Bools of `frontend.process` that only this dialect wants spelt out."""
    return {} if dialect == "newer" else {"sorrys": sorrys, "typeErrorsAsGoals": False}
