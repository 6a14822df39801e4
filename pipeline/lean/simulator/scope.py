"""What surrounds an elaboration: the scope that names are looked up in, its budget, and contexts' hypotheses."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from pipeline.lean.simulator.meta import Context, Interrupted, LeanError, Local, Meta
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


@dataclass(slots=True)
class Session:
    """What all elaborators of one declaration or tactic share.

    `holes_for_sorry`: a `sorry` becomes a goal, in `sorries`, instead of a `Sorry` (for `frontend.distil`).
    """

    scope: Scope = field(default_factory=Scope)
    holes_for_sorry: bool = False
    sorries: list[MVar] = field(default_factory=list)
    sorry_spans: list[tuple[int, int]] = field(default_factory=list)
    fuel: int = 20_000
    deadline_s: float | None = None

    def burn(self) -> None:
        """Count a step; no input keeps the simulator busy for ever."""
        self.fuel -= 1
        if self.deadline_s is not None and time.monotonic() > self.deadline_s:
            raise Interrupted
        if self.fuel < 0:
            raise LeanError("(deterministic) timeout: the simulator's number of steps has been reached")


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
