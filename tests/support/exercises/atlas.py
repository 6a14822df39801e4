"""A small library that grows, for tests: enough solved theorems that a retriever learns something from them.

The files are generated (`tests.support.exercises.families_repository`): relations between propositions, lemmas that
lead from one to the other, and theorems whose goals say which lemmas they need, to those who have seen others. The
second revision adds a library with relations of its own and as many theorems.
"""

from __future__ import annotations

import itertools
import re

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
REVISIONS = 2
_STATED = re.compile(
    r"(?<=:= by\n)  exact (?P<lemma>\w+)(?P<propositions>(?: [a-z])*)(?P<hypotheses>(?: h\d)+)\n"
)


def files(revision: int) -> dict[str, str]:
    """Return all files of a revision by path: with what was there before.

    Raises:
        ValueError: there is no such revision.
    """
    if not 1 <= revision <= REVISIONS:
        raise ValueError(f"revision is {revision}: there are 1 and {REVISIONS}")
    first, second = itertools.islice(revisions(SEED, NAME, size=SIZE), REVISIONS)
    texts = first if revision == 1 else second
    return {path: _STATED.sub(_for_lean_to_find, text) for path, text in texts.items()}


def _for_lean_to_find(proof: re.Match[str]) -> str:
    propositions = " _" * len(proof["propositions"].split())
    return f"  exact {proof['lemma']}{propositions}{proof['hypotheses']}\n"
