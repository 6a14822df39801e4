"""A small library that grows, for the demo: enough solved theorems that a retriever learns something from them.

The files are generated (`tests.support.exercises.families_repository`): relations between propositions, lemmas that
lead from one to the other, and theorems whose goals say which lemmas they need, to those who have seen others. The
second revision adds a library with relations of its own and as many theorems. The third leaves some open that are like
those. A proof names its lemma and the hypotheses that this is for, and leaves it to Lean which propositions they are
about: which lemma it is, a very small model can learn in seconds. The libraries' own proofs use `tauto`, which is
Mathlib's, so that without Mathlib only the simulator takes them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tests.support.exercises.families_repository import RepositorySize, revisions

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
OPEN = 6
REVISIONS = 3
_STATED = re.compile(
    r"(?<=:= by\n)  exact (?P<lemma>\w+)(?P<propositions>(?: [a-z])*)(?P<hypotheses>(?: h\d)+)\n"
)


def files(revision: int) -> dict[str, str]:
    """Return all files of a revision by path: with what was there before.

    Raises:
        ValueError: there is no such revision.
    """
    if not 1 <= revision <= REVISIONS:
        raise ValueError(f"revision is {revision}: there are 1 to {REVISIONS}")
    commits = revisions(SEED, NAME, size=replace(SIZE, theorems=SIZE.theorems + OPEN))
    first, second = next(commits), next(commits)
    extra = f"{SIZE.theorems // SIZE.per_file + 1}"
    found = {
        path: _STATED.sub(_for_lean_to_find, text)
        for path, text in (first if revision == 1 else second).items()
        if not path.endswith(f"_{extra}.lean")
    }
    if revision == REVISIONS:
        found[f"{NAME}/Open.lean"] = _STATED.sub("  sorry\n", second[f"{NAME}/Solved2_{extra}.lean"])
    return found


def _for_lean_to_find(proof: re.Match[str]) -> str:
    propositions = " _" * len(proof["propositions"].split())
    return f"  exact {proof['lemma']}{propositions}{proof['hypotheses']}\n"
