"""A small library that grows, for the demo: enough solved theorems that a retriever learns something from them.

The files are generated (`pipeline.lean.simulator.families_repository`): relations between propositions, lemmas that
lead from one to the other, and theorems whose goals say which lemmas they need, to those who have seen others. The
second revision adds a library with relations of its own and as many theorems. The proofs use `tauto`, which is
Mathlib's, so that without Mathlib only the simulator takes them.
"""

from __future__ import annotations

from pipeline.lean.simulator.families_repository import RepositorySize, revisions

NAME = "Atlas"
SEED = 4
SIZE = RepositorySize(
    theorems=160,
    per_file=80,
    shared_relations=5,
    shared_lemmas=10,
    relations=4,
    lemmas=10,
    difficulties=(1,),
)
REVISIONS = 2


def files(revision: int) -> dict[str, str]:
    """Return all files of a revision by path: of the first or, with what was there before, of the second.

    Raises:
        ValueError: there is no such revision.
    """
    if not 1 <= revision <= REVISIONS:
        raise ValueError(f"revision is {revision}: there are 1 to {REVISIONS}")
    commits = revisions(SEED, NAME, size=SIZE)
    found: dict[str, str] = {}
    for _ in range(revision):
        found = next(commits)
    return found
