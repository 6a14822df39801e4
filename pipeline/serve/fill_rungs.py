"""The rungs that `/fill` climbs, as they can be climbed now: with the checkpoints that are in use when it is asked.

They are the daemon's ladder as the order has it. What learned from the simulator is used where the simulator judges,
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.external.credentials import KeyPlace
from pipeline.lean.backend import LeanBackend
from pipeline.prove.order import PROVERS
from pipeline.serve.order import PROMOTED, RungOrder, ServeOrder
from pipeline.serve.rooms_checkouts import no_view
from store.log.errors import LogError
from store.view.queries import basic as queries
from store.view.queries.models import checkpoint_in_use
from store.view.rows import CheckpointRow


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung that can be climbed: what a prove job is told of it. `key` is where its secret is, if it has one.

    `memory_bytes` is the limit of each process of the job.
    """

    number: int
    model: str
    seconds: float
    parameters: Mapping[str, Any]
    key: KeyPlace | None = None
    memory_bytes: int = 2**32

    @property
    def prover(self) -> str:
        return PROVERS[self.number]


@dataclass(frozen=True, slots=True)
class Left:
    """A rung that is left out, and why."""

    number: int
    reason: str


class _Waits(Exception):  # noqa: N818 - control flow inside this module
    """The rung cannot be climbed now; the text says why."""


def rungs_now(order: ServeOrder, lean: LeanBackend, wanted: Sequence[int] | None) -> list[Rung | Left]:
    """Return the order's rungs as they stand now, in their order; of `wanted` ones those, where it names some.

    Raises:
        Problem: 503, the view cannot be read.
    """
    there = {rung.number: rung for rung in order.lean.rungs}
    numbers = list(there) if wanted is None else list(dict.fromkeys(wanted))
    try:
        with closing(queries.connect(order.view)) as view:

            def in_use(model: str) -> CheckpointRow:
                row = checkpoint_in_use(view, model)
                if row is None:
                    raise _Waits(f"no {model} model is in use yet")
                if row.simulated and not lean.simulated:
                    raise _Waits(
                        f"the {model} model in use learned from the simulator, and {lean.judge} judges here"
                    )
                return row

            return list(_each(there, numbers, in_use))
    except LogError as error:
        raise no_view(error) from error


def _each(
    there: Mapping[int, RungOrder], numbers: Sequence[int], in_use: Callable[[str], CheckpointRow]
) -> Iterator[Rung | Left]:
    for number in numbers:
        if number not in there:
            yield Left(number, "it is none of [prove] rungs")
            continue
        try:
            yield _now(there[number], in_use)
        except _Waits as reason:
            yield Left(number, str(reason))


def _now(rung: RungOrder, in_use: Callable[[str], CheckpointRow]) -> Rung:
    """Put the checkpoints in use where the order says "promoted"."""
    parameters = {name: dict(part) for name, part in rung.parameters.items()}
    model = rung.model
    retriever, generator = parameters.get("retriever"), parameters.get("generator")
    if retriever is not None and retriever.get("checkpoint") == PROMOTED:
        retriever["checkpoint"] = in_use("retriever").checkpoint
        model = model.replace(PROMOTED, retriever["checkpoint"], 1)
    if generator is not None and _is_promoted(generator.get("path")):
        try:
            tactics = in_use("tactics").checkpoint
            generator["path"] = str(Path(generator["path"]).with_name(tactics))
        except _Waits:
            if not rung.fallback:
                raise
            tactics = generator["path"] = rung.fallback
        model = model.replace(PROMOTED, tactics, 1)
    if "progress" in parameters and _is_promoted(parameters["progress"].get("path")):
        try:
            progress = parameters["progress"]
            progress["path"] = str(Path(progress["path"]).with_name(in_use("progress").checkpoint))
        except _Waits:
            del parameters["progress"]  # it only orders the search
    external = parameters.get("external")
    key = None if external is None else KeyPlace(external["credential"], external["key_variable"])
    return Rung(rung.number, model, rung.seconds, parameters, key, rung.memory_bytes)


def _is_promoted(path: object) -> bool:
    return isinstance(path, str) and Path(path).name == PROMOTED
