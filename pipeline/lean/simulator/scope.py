"""What surrounds an elaboration: the scope that names are looked up in, its budget, and contexts' hypotheses."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pipeline.lean.simulator.kernel import Exhausted
from pipeline.lean.simulator.meta import Context, Interrupted, Local, Meta
from pipeline.lean.simulator.terms import MVar, fvars


@dataclass(frozen=True, slots=True)
class Scope:
    """What namespaces and `open`s make names mean at one place of a file."""

    namespace: str = ""
    opens: tuple[str, ...] = ()

    def candidates(self, name: str) -> list[str]:
        """Return the full names that `name` may stand for, the first that exists winning."""
        if name.startswith("_root_."):
            return [name.removeprefix("_root_.")]
        found, prefix = [], self.namespace
        while prefix:
            found.append(f"{prefix}.{name}")
            prefix = prefix.rpartition(".")[0]
        return [*found, name, *(f"{opened}.{name}" for opened in reversed(self.opens))]


class Invocation(NamedTuple):
    """One tactic that ran: its range in code points, the goals as Lean prints them, and its term's constants."""

    start: int
    end: int
    goals_before: str
    goals_after: str
    used_constants: tuple[str, ...]


@dataclass(slots=True)
class Session:
    """What all elaborators of one declaration or tactic share.

    `holes_for_sorry`: a `sorry` becomes a goal, in `sorries`, instead of a `Sorry` (for `frontend.distil`).
    `sorry_spans[i]` is where `sorries[i]` stands, when there are goals for sorrys. `invocations`, where it is a
    list, gets the tactics that ran and were not undone, an outer one before those in it.
    """

    scope: Scope = field(default_factory=Scope)
    holes_for_sorry: bool = False
    sorries: list[MVar] = field(default_factory=list)
    sorry_spans: list[tuple[int, int]] = field(default_factory=list)
    invocations: list[Invocation] | None = None
    fuel: int = 20_000
    deadline_s: float | None = None

    def mark(self) -> tuple[int, int, int]:
        """Return how much has been recorded so far, for `rewind`."""
        return len(self.sorries), len(self.sorry_spans), len(self.invocations or ())

    def rewind(self, mark: tuple[int, int, int]) -> None:
        """Forget what was recorded since `mark`, because it was undone."""
        sorries, spans, invocations = mark
        del self.sorries[sorries:], self.sorry_spans[spans:]
        if self.invocations is not None:
            del self.invocations[invocations:]

    def burn(self) -> None:
        """Count a step; no input keeps the simulator busy for ever."""
        self.fuel -= 1
        if self.deadline_s is not None and time.monotonic() > self.deadline_s:
            raise Interrupted
        if self.fuel < 0:
            raise Exhausted


def extend(context: Context, fvar: int, name: str) -> Context:
    """Add a hypothesis; one of the same name before it becomes inaccessible."""
    shadowed = tuple(
        replace(local, name=f"{name}✝") if local.name == name and not name.endswith("✝") else local
        for local in context
    )
    return (*shadowed, Local(fvar, name))


def without(meta: Meta, context: Context, fvar: int) -> Context:
    """Drop a hypothesis that no other one mentions; else keep it."""
    for local in context:
        if fvar in fvars(meta.instantiate(meta.locals[local.fvar])):
            return context
    return tuple(local for local in context if local.fvar != fvar)


def split_name(name: str) -> list[str]:
    """Split a dotted name into its parts; quoted parts stay whole."""
    parts: list[str] = []
    rest = name
    while rest:
        if rest.startswith("«"):
            end = rest.index("»") + 1
            part, rest = rest[:end], rest[end:].removeprefix(".")
        else:
            part, _, rest = rest.partition(".")
        parts.append(part)
    return parts
