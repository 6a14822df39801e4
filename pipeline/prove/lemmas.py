"""Proofs that the repository has already: for the same statement again, and for others that may cite what they prove.

Where the same statement or goal comes again (`Known`), its proof is the first candidate: another file or branch may
state the same lemma, and a sorry whose file changed is a new one to every rung. It is tried tactic by tactic, and no
more than that: Lean elaborates it in its new place, and the gate judges it like any other.

What is proved and still a sorry upstream (`Lemma`) is never cited by its name: what rests on it would rest on that
sorry. A later search may bring it in with its whole proof (`citing`). One that is filled in the source is in Lean's
environment, and every rung may cite it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pipeline.prove.proposing import Asked, Candidate
from store.view.queries import basic as queries
from store.view.queries.proofs import citable_proofs, known_proofs

MOST = 3
"""Known proofs that are tried for a sorry, the newest first."""
MOST_LEMMAS = 1000
"""Lemmas of a branch from which a search takes the few that are nearest to its goal: the newest that are proved."""


@dataclass(frozen=True, slots=True)
class Known:
    """A proof that is known: its id and its tactics, in order."""

    proof: str
    tactics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lemma:
    """What a sorry that still stands in the source says, and a proof of it that stood the gate.

    Attributes:
        sorry: its id.
        proof: the proof's.
        declaration: the full name.
        statement: the declaration's binders and type, as its source has them.
        goal: what the tactics prove, as Lean prints a goal; "" where Lean has not said it.
        tactics: the proof's, in order.
    """

    sorry: str
    proof: str
    declaration: str
    statement: str
    goal: str
    tactics: tuple[str, ...]


class Recalled:
    """Proposes a known proof's next tactic, as long as the search goes its way (`proposing.Proposer`)."""

    def __init__(self, known: Known) -> None:
        self._tactics = known.tactics

    async def propose(self, asked: Asked) -> Iterable[Candidate]:
        at = len(asked.steps)
        if asked.steps != self._tactics[:at] or at >= len(self._tactics):
            return []
        return [Candidate(self._tactics[at], self._tactics[at])]

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:
        """Learn nothing: there is one way to go."""


def known_to(
    database_db: Path, *, repository: str, sorries: Iterable[str], simulated: bool
) -> Mapping[str, tuple[Known, ...]]:
    """Return, by sorry, what the repository's proofs offer; one text once.

    Args:
        database_db: the view, read only; the daemon may be running.
        repository: its key.
        sorries: ids.
        simulated: whether the simulator's proofs are meant, and not Lean's; never both.

    Raises:
        LogError: the view cannot be read.
    """
    with closing(queries.connect(database_db)) as view:
        rows = known_proofs(view, repository=repository, sorries=sorries, simulated=simulated)
    found: dict[str, dict[tuple[str, ...], Known]] = {}
    for row in rows:
        offered = found.setdefault(row.sorry, {})
        if row.tactics and len(offered) < MOST:
            offered.setdefault(row.tactics, Known(row.proof, row.tactics))
    return {sorry: tuple(offered.values()) for sorry, offered in found.items()}


def lemmas_of(database_db: Path, *, repository: str, branch: str, simulated: bool) -> tuple[Lemma, ...]:
    """Return what a branch's searches may cite, one proof a sorry; the newest first.

    Args:
        database_db: the view, read only; the daemon may be running.
        repository: its key.
        branch: of it.
        simulated: as in `known_to`.

    Raises:
        LogError: the view cannot be read.
    """
    with closing(queries.connect(database_db)) as view:
        rows = citable_proofs(
            view, repository=repository, branch=branch, simulated=simulated, most=MOST_LEMMAS
        )
    found: dict[str, Lemma] = {}
    for row in rows:
        if row.tactics:
            lemma = Lemma(row.sorry, row.proof, row.declaration, row.statement, row.goal, row.tactics)
            found.setdefault(row.sorry, lemma)
    return tuple(found.values())
