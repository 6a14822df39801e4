"""What every typed request to the REPL shares: which fields go on the wire, how, and what they must agree on.

Lean's decoder does not honour the defaults of its structures, so a field that is not optional is always in the
payload, every Bool included; optional fields are left out when None, which is the same to it as null. A request
whose fields contradict each other is a ValueError when it is made.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pipeline.lean.client.errors import ReplRefused
from pipeline.lean.client.goals import StateRef
from pipeline.lean.client.wire import Json

R_co = TypeVar("R_co", covariant=True)
Kind = Literal["text", "bool", "natural", "state", "texts", "states"]
Extra = tuple[tuple[str, object], ...]


def on_wire(name: str, kind: Kind = "text", *, optional: bool = False) -> dict[str, object]:
    return {"wire": name, "kind": kind, "optional": optional}


@dataclass(frozen=True, slots=True)
class Request(Generic[R_co]):
    """What all requests share. `extra` are further fields, sent as they are: the REPL ignores unknown ones."""

    extra: Extra = field(default=(), kw_only=True)
    command: ClassVar[str]

    def payload(self) -> dict[str, object]:
        """Return the payload's JSON object."""
        found: dict[str, object] = {}
        for attribute, name, kind in spec(type(self)):
            value: Any = getattr(self, attribute)
            if value is None:
                continue
            if kind == "state":
                value = value.id
            elif kind == "states":
                value = [state.id for state in value]
            elif kind == "texts":
                value = list(value)
            found[name] = value
        found.update(self.extra)
        return found

    @property
    def states(self) -> tuple[StateRef, ...]:
        """The goal states that the request names; a client checks that they are of its process."""
        found: list[StateRef] = []
        for attribute, _, kind in spec(type(self)):
            value = getattr(self, attribute)
            if kind == "state" and value is not None:
                found.append(value)
            elif kind == "states":
                found.extend(value)
        return tuple(found)

    @property
    def doubt(self) -> str:
        """What the states that this request makes are in doubt for; "" when nothing is against them."""
        return next((state.doubt for state in self.states if state.doubt), "")

    def refused(self, error: ReplRefused) -> R_co:
        """Return what an error object in answer to this request comes to; most requests raise it."""
        raise error

    def reply(self, raw: Json, generation: int, /) -> R_co:
        """Decode the answer, which is no error object.

        Raises:
            MalformedReply: it does not have the promised shape.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how its answer reads")


_SPECS: dict[type, tuple[tuple[str, str, str], ...]] = {}


def spec(kind: type) -> tuple[tuple[str, str, str], ...]:
    """Return (attribute, wire name, kind) of a request's fields, worked out once for each class."""
    found = _SPECS.get(kind)
    if found is None:
        found = tuple(
            (one.name, one.metadata["wire"], one.metadata["kind"])
            for one in dataclasses.fields(kind)
            if "wire" in one.metadata
        )
        _SPECS[kind] = found
    return found


def exactly_one(request: Request[object], **given: object) -> None:
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise ValueError(
            f"{request.command}: exactly one of {', '.join(given)} must be given, not {len(chosen)}"
            f" ({', '.join(chosen) or 'none'})"
        )
