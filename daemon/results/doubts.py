"""Put verified proofs in doubt if all their kernels have known faults, and end corrected doubts.

The faults are in the file of advisories (`pipeline.gate.advisories`). Doubt is an event and changes no
verdict: the next check of the proof ends it, and is planned once a kernel without the faults is there
(`daemon.planning.repository`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial

from daemon.state.store_service import StoreService
from pipeline.gate.advisories import Advisory, Kernel, against, witnesses
from store.events.proofs import ProofDoubted
from store.log.envelope import NewEvent
from store.view import queries
from store.view.rows import ProofRow


async def settle_doubts(store: StoreService, advisories: Sequence[Advisory]) -> list[ProofDoubted]:
    """Record changes of the doubts about verified proofs; return them."""
    result = await store.ask(partial(_doubts, advisories=advisories))
    if result:
        await store.append([NewEvent(f"proof:{body.proof}", body) for body in result])
    return result


def _doubts(view: sqlite3.Connection, *, advisories: Sequence[Advisory]) -> list[ProofDoubted]:
    result = []
    for row in queries.proofs(view, state="verified"):
        faults = against(_witnesses(row), advisories)
        if [one.id for one in faults] != row.doubts and row.checked_job is not None:
            result.append(_doubted(row, row.checked_job, faults))
    return result


def _witnesses(row: ProofRow) -> tuple[Kernel, ...]:
    return witnesses(row.grade, row.kernel, row.judge)


def _doubted(row: ProofRow, job: str, faults: Sequence[Advisory]) -> ProofDoubted:
    kernels = ", ".join(map(str, _witnesses(row)))
    return ProofDoubted(
        proof=row.proof,
        sorry=row.sorry,
        job=job,
        advisories=tuple(one.id for one in faults),
        reason=f"known faults of {kernels}: {', '.join(one.id for one in faults)}"
        if faults
        else f"no advisory is against {kernels} any more",
    )
