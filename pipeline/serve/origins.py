"""What a model's source stands for now, and whether it may be used here.

A checkpoint of the daemon's is one by promotion or by its folder. Of either the view says what it learned from: what
learned from the simulator is used where the simulator judges, and nowhere else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pipeline.serve.order import PROMOTED, ServeOrder
from pipeline.serve.swapping import About
from store.log.errors import LogError
from store.view.queries import basic as queries
from store.view.queries import models as model_queries
from store.view.rows import CheckpointRow

Wanted = tuple[str, str]
"""One of the daemon's models ("retriever", "tactics", "progress"), which "promoted" is of; and a source."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A source that may be loaded here: a folder, or the name of a hub or an endpoint; and what it is."""

    source: str
    about: About


def origins(order: ServeOrder, wanted: Iterable[Wanted]) -> Mapping[Wanted, Origin | str]:
    """Return what each source stands for; a text says why nothing may be loaded for it now."""
    found: dict[Wanted, Origin | str] = {}
    asked: dict[Wanted, Path | None] = {}
    for one in wanted:
        inside = None if one[1] == PROMOTED else _inside(order.checkpoints, one[1])
        if one[1] == PROMOTED or inside is not None:
            asked[one] = inside
        else:
            found[one] = Origin(one[1], About())
    if not asked:
        return found
    try:
        with closing(queries.connect(order.view)) as view:
            for one, inside in asked.items():
                model, source = one
                found[one] = (
                    _promoted(order, view, model) if inside is None else _named(order, view, source, inside)
                )
    except (LogError, sqlite3.Error) as error:
        found.update(dict.fromkeys(asked, f"the view cannot be read: {error}"))
    return found


def _inside(checkpoints: Path, source: str) -> Path | None:
    """Return a folder's path below that of the checkpoints; None where it lies elsewhere, or is no folder."""
    folder = Path(source)
    if not folder.is_dir():
        return None
    folder, checkpoints = folder.resolve(), checkpoints.resolve()
    return folder.relative_to(checkpoints) if folder.is_relative_to(checkpoints) else None


def _promoted(order: ServeOrder, view: sqlite3.Connection, model: str) -> Origin | str:
    row = model_queries.checkpoint_in_use(view, model)
    if row is None:
        return f"no checkpoint of the {model} model has been promoted yet"
    return _allowed(
        order,
        row,
        str(order.checkpoints / model / row.checkpoint),
        f"the promoted checkpoint {row.checkpoint}",
    )


def _named(order: ServeOrder, view: sqlite3.Connection, source: str, inside: Path) -> Origin | str:
    model, checkpoint = (*inside.parts, "", "")[:2]
    rows = (row for row in model_queries.checkpoints(view, model) if row.checkpoint == checkpoint)
    row = next(rows, None)
    if row is None:
        return (
            f"{inside} lies where the checkpoints do, and the view knows none of that name, so that nobody can tell "
            "what it learned from; name a checkpoint of `unsorry models`, or keep it in another folder"
        )
    return _allowed(order, row, source, f"the checkpoint {checkpoint}")


def _allowed(order: ServeOrder, row: CheckpointRow, source: str, what: str) -> Origin | str:
    if row.simulated and not order.simulated:
        return f"{what} learned from the simulator, and Lean judges here"
    return Origin(source, About(row.checkpoint, row.simulated))
