"""Proofs that the repository has already: where the same statement or goal comes again, they are tried first.

Another file or branch may state the same lemma, and a sorry whose file changed is a new one to every rung. What was
proved there is the first candidate here, tactic by tactic, and no more than that: Lean elaborates it in its new place,
and the gate judges it like any other. A lemma that is proved by us and still a sorry upstream is not cited: what rests
on it would rest on that sorry. One that is filled in the source is in Lean's environment, and every rung may cite it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pipeline.prove.proposing import Asked, Candidate
from store import queries
from store.proof_queries import known_proofs

MOST = 3
"""Known proofs that are tried for a sorry, the newest first."""


@dataclass(frozen=True, slots=True)
class Known:
    """A proof that is known: its id and its tactics, in order."""

    proof: str
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
