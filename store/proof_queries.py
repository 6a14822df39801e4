"""Questions about proofs that join several tables. As `store.queries`: read-only, with the standard library alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from store import queries
from store.rows import AttemptRow, ProofRow
from store.sql import statements


@dataclass(frozen=True, slots=True)
class KnownProofRow:
    """A proof that stood the gate, of what a sorry asks too. `of` is the sorry that it was found for."""

    sorry: str
    proof: str
    of: str
    tactics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CitableProofRow:
    """A proof that stood the gate, of a sorry that is still in the source of a branch as it was proved.

    `goal` is what Lean says is to be proved there, "" where it did not say; `statement` is the declaration's.
    """

    sorry: str
    proof: str
    declaration: str
    statement: str
    goal: str
    tactics: tuple[str, ...]


def known_proofs(
    db: sqlite3.Connection, *, repository: str, sorries: Iterable[str], simulated: bool
) -> list[KnownProofRow]:
    """Return proofs of the same statement, or of a goal that reads the same, as these sorrys have; the newest first.

    The same means: the sorry with the same number in a declaration of the repository with the same statement, whatever
    its name, file and branch; or one of which Lean said the same goal. It need not be provable in the same way: its
    context may differ.

    Args:
        db: the view.
        repository: whose sorrys.
        sorries: ids.
        simulated: False: what Lean verified. True: what the simulator found nothing against; never both.
    """
    rows = db.execute(
        statements("queries")["known_proofs"],
        {"repository": repository, "sorries": json.dumps(sorted(sorries)), "simulated": int(simulated)},
    )
    return [KnownProofRow(row[0], row[1], row[2], tuple(json.loads(row[3]))) for row in rows]


def citable_proofs(
    db: sqlite3.Connection, *, repository: str, branch: str, simulated: bool, most: int
) -> list[CitableProofRow]:
    """Return the proofs of a branch's theorems whose sorry still stands there as it was proved; the newest first.

    Not there: what was rejected, what is conditional on another sorry, what nobody checked yet, a sorry whose statement
    or surroundings are others since (for the simulator: whose file is), and a text that fills several sorrys at once,
    which proves none of them alone.

    Args:
        db: the view.
        repository: whose theorems.
        branch: of it.
        simulated: as in `known_proofs`.
        most: how many at most.
    """
    rows = db.execute(
        statements("queries")["citable_proofs"],
        {"repository": repository, "branch": branch, "simulated": int(simulated), "most": most},
    )
    return [
        CitableProofRow(row[0], row[1], row[2], row[3], row[4], tuple(json.loads(row[5]))) for row in rows
    ]


def attempt_behind(db: sqlite3.Connection, proof: ProofRow) -> AttemptRow | None:
    """Return the attempt that found a proof; None where it is not recorded (its job ended between the two).

    A proof that was judged names the job that judged it: then it is the first attempt that ended so after it was found.
    """
    key = (proof.blob, proof.prover, proof.rung)
    tried = [
        row for row in queries.attempts(db, sorry=proof.sorry) if (row.blob, row.prover, row.rung) == key
    ]
    of_its_job = [row for row in tried if row.job == proof.job]
    after = [row for row in tried if row.outcome == "found" and row.recorded_at >= proof.found_at]
    return next(iter(of_its_job or after), None)
