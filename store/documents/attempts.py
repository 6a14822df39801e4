"""An attempt on a sorry: its prover, outcome, progress and cost."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from store.documents.document import of_row
from store.text import clean, counted, span
from store.view import queries
from store.view.reading import read
from store.view.rows import AttemptRow


@dataclass(frozen=True, slots=True)
class Attempt(AttemptRow):
    number: int
    """Its number among its sorry's, from 1."""
    same_file: bool
    """The file is unchanged since."""
    weights: str
    """SHA-256 of the weights of its model; empty if that is no checkpoint of ours."""

    @property
    def by(self) -> str:
        """Return the prover: "tactics, rung 0" or "generator tactics-3, rung 2"."""
        return f"{self.prover}{f' {clean(self.model)}' if self.model else ''}, rung {self.rung}"

    @property
    def how_far(self) -> str:
        """Return the progress of its proof; "" if it proved the negation."""
        return "" if self.outcome == "disproved" else self.best

    @property
    def weights_text(self) -> str:
        """Return the hash of the weights, with their owner if a retriever stands before a generator."""
        whose = " (of the retriever)" if "+" in self.model else ""
        return f"sha256:{self.weights}{whose}" if self.weights else ""

    @property
    def took(self) -> str:
        """Return its cost: states, calls of Lean, time, tokens and money."""
        took = [counted(self.nodes, "node"), counted(self.repl_calls, "REPL call"), span(self.seconds)]
        if tokens := self.prompt_tokens + self.completion_tokens:
            took.append(counted(tokens, "token"))
        if self.usd is not None:
            took.append(f"${self.usd:.4f}")
        return ", ".join(took)

    @property
    def text(self) -> str:
        """Return in one line the number of attempts by then, and the outcome of this one."""
        left = f", {counted(self.goals_left, 'goal')} left" if self.goals_left and self.how_far else ""
        return f"{self.number}x, rung {self.rung}: {self.outcome}{left}"


def describe_attempts(view: sqlite3.Connection, sorries: Iterable[str]) -> dict[str, list[Attempt]]:
    """Return the attempts on sorries, by sorry, oldest first, with a fixed number of queries."""
    ids = json.dumps(sorted(set(sorries)))
    of_these = "sorry IN (SELECT value FROM json_each(?))"
    files = {
        (sorry, blob)
        for sorry, blob in view.execute(f"SELECT sorry, blob FROM sorries WHERE {of_these}", (ids,))
    }
    weights = dict(view.execute("SELECT checkpoint, weights FROM checkpoints").fetchall())
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for row in read(
        view, AttemptRow, "attempts", conditions=[of_these], parameters=[ids], order=queries.ATTEMPT_ORDER
    ):
        before = attempts[row.sorry]
        attempt = of_row(
            Attempt,
            row,
            number=len(before) + 1,
            same_file=(row.sorry, row.blob) in files,
            # Before the plus stands the retriever of a generator without kept weights.
            weights=weights.get(row.model.partition("+")[0], ""),
        )
        before.append(attempt)
    return dict(attempts)
