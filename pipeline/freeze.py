"""Freeze what a job reads of the log and the view into its inputs, before it begins: a job reads no database.

It is done once for a job, whatever the number of its attempts (`pipeline.jobs.inputs`).
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pipeline.jobs.inputs import Inputs, InputStore
from pipeline.jobs.known import known_to_prove
from pipeline.jobs.specs import KNOWN, ProveSpec, Spec
from store.view import queries


def freeze(order: Spec, place: Path, *, database_db: Path, store: InputStore) -> Inputs:
    """Return a job's inputs, frozen if they are not there yet.

    Args:
        order: what the job is to do.
        place: the folder for them.
        database_db: the view, read only; the daemon may be running.
        store: for their contents, on the same disk.

    Raises:
        LogError: the view cannot be read.
        OSError: the disk refused.
    """
    if not isinstance(order, ProveSpec):
        return Inputs(place)
    frozen = store.frozen(place)
    if frozen is not None:
        return frozen
    with closing(queries.connect(database_db)) as view:
        known = known_to_prove(
            view,
            repository=order.repository,
            branch=order.branch,
            sorries=(one.sorry for one in order.sorries),
            simulated=order.lean.simulated,
        )
    return store.freeze(place, {KNOWN: known.model_dump_json().encode()})
