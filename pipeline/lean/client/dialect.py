"""The dialect of a `pantograph-repl`, found by probing it, and its consequences.

The version that it prints is no guide (`0.3.7/v4.21.0`, builds of branches, fields that one release still accepts
and ignores), so nothing is decided by it. Instead a few requests that make no state, and that every version
refuses, are sent after `ready.`: how they are refused tells the words for error kinds and which commands exist.

    older   no `frontend.distil`: `frontend.process` has `sorrys` and answers goals (up to about 0.3.5)
    middle  `frontend.distil`, but not yet `goal.subsume`; `sorrys` is accepted and does nothing (0.3.6, 0.3.7)
    newer   `goal.subsume` (0.3.8 and later); `sorrys` is gone

What a dialect lacks is an `UnsupportedByDialect` before anything is sent. One difference is not probed, because
asking costs tens of megabytes on the older side: whether `env.catalog` writes a file. Its answer says which.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from pipeline.lean.client.errors import MalformedReply, UnsupportedByDialect
from pipeline.lean.client.wire import Json
from store.text import shown

Name = Literal["older", "middle", "newer"]
Ask = Callable[[str, Json], Awaitable[Json]]

# Commands that not every supported version has, with the first one that does, and what else there is to do.
# goal.subsume is sent by the probe alone: the versions that know it are the newer ones.
_SINCE: dict[str, tuple[str, str]] = {
    "goal.subsume": ("0.3.8", "compare the goals' texts instead"),
    "frontend.distil": ("0.3.6", "use frontend.process with sorries instead"),
    "frontend.track": ("0.3.6", "compare the constants of two frontend.process runs instead"),
}
OPTIONAL = frozenset(_SINCE)
_UNKNOWN = "Unknown command"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The commands that one REPL process understands.

    `commands` are those of `OPTIONAL` that it has; `error_names` says whether it uses the older kinds
    (`arguments`, `parsing`, `core`, …) or the newer (`command`, `parse`, `io`), all of which `errors.refusal` knows.
    """

    name: Name
    error_names: Literal["older", "newer"]
    commands: frozenset[str]

    @property
    def sorry_goals(self) -> bool:
        """Return whether `frontend.process` may answer the goals of sorries; with `frontend.distil` it never does."""
        return "frontend.distil" not in self.commands

    @property
    def process_fields(self) -> dict[str, bool]:
        """The Bools of `frontend.process` that this dialect still wants spelt out."""
        return {} if self.name == "newer" else {"sorrys": False, "typeErrorsAsGoals": False}

    def require(self, command: str) -> None:
        """Check that the REPL has this command.

        Raises:
            UnsupportedByDialect: it has not.
        """
        if command in OPTIONAL and command not in self.commands:
            since, instead = _SINCE[command]
            raise UnsupportedByDialect(
                f"{command}: this REPL (dialect {self.name}) does not have it;"
                f" use a pantograph-repl of version {since} or later, or {instead}"
            )

    def require_sorry_goals(self) -> None:
        """Check that `frontend.process` can return the goals of sorries.

        Raises:
            UnsupportedByDialect: the field would be ignored in silence, or is gone.
        """
        if not self.sorry_goals:
            raise UnsupportedByDialect(
                f"frontend.process with sorries: this REPL (dialect {self.name}) ignores the field; use frontend.distil"
            )


NEWEST = Dialect("newer", "newer", OPTIONAL)


async def probe(ask: Ask) -> Dialect:
    """Find out the dialect; `ask` sends one request and returns its reply object, error objects included.

    Two requests for the newer dialect, four for the others; none makes a state or elaborates anything.

    Raises:
        MalformedReply: a reply that no known version gives.
    """
    # Both fields at once are refused by all; a command by its payload or, where it is unknown, by its name.
    reply = await ask("goal.start", {"expr": "True", "copyFrom": "True.intro"})
    kind = reply.get("error")
    if kind not in ("arguments", "command"):
        raise MalformedReply(
            f"goal.start: expected a refusal of two statements at once, got {shown(dict(reply))}"
        )
    error_names: Literal["older", "newer"] = "older" if kind == "arguments" else "newer"
    if await _has(ask, "goal.subsume"):
        return Dialect("newer", error_names, OPTIONAL)
    found = frozenset(
        [command for command in sorted(OPTIONAL - {"goal.subsume"}) if await _has(ask, command)]
    )
    return Dialect("middle" if "frontend.distil" in found else "older", error_names, found)


async def _has(ask: Ask, command: str) -> bool:
    reply = await ask(command, {})
    if "error" not in reply:
        raise MalformedReply(f"{command}: expected a refusal of an empty payload, got {shown(dict(reply))}")
    return not str(reply.get("desc", "")).startswith(_UNKNOWN)


def release(version: str) -> str:
    """Return the release number in what `--version` printed, for people: "0.3.7" of "0.3.7/v4.21.0", or all of it."""
    found = re.search(r"\d+(?:\.\d+)+", version)
    return found.group() if found else version.strip()
