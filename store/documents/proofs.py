"""A proof with its attempt, whether it still fits, and its verdict in a word."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from store.documents.attempts import Attempt, describe_attempts
from store.documents.document import of_row
from store.documents.grades import GRADES, doubt_text, grade_text, kernel_text
from store.documents.statements import statement_facts
from store.view import queries
from store.view.rows import PROOF_STATES, ProofRow

Word = Literal["waiting", "accepted", "rejected", "unknown"]


@dataclass(frozen=True, slots=True)
class Proof(ProofRow):
    label: str
    """The state for people, with its grade."""
    stale: str | None
    """Why it does not fit the tip of its branch, or null."""
    verdict: Word
    """The gate's: `waiting`, `accepted` (by Lean and every required check), `rejected` or `unknown` (nothing
    failed, something could not be judged)."""
    why: str
    """The reason for the verdict; empty if there is nothing to add."""
    attempt: Attempt | None
    """The attempt behind it; null if its job ended before the record."""

    @property
    def statements(self) -> dict[str, str]:
        """Return the statement's facts for people, of the source's words and of Lean's, by name."""
        return statement_facts(
            self.statement, self.lean_statement, self.not_in_header, self.speaks_of, self.speaks_of_more
        )

    @property
    def facts(self) -> dict[str, str]:
        """Return the facts of its discovery and judgement for people, by name, without empty ones."""
        attempt = self.attempt
        judges = dict.fromkeys(check["by"] for check in self.checks if check["verdict"] != "not_checked")
        facts = {
            **self.statements,
            "found by": f"{self.prover}, rung {self.rung}, with {self.toolchain or 'no toolchain'}",
            "model": "" if attempt is None else attempt.model,
            "weights": "" if attempt is None else attempt.weights_text,
            "seed": "unknown" if attempt is None else str(attempt.seed),
            "took": "unknown" if attempt is None else attempt.took,
            "how": "" if attempt is None else attempt.detail,
            "found in": self.job,
            "checked by": ", ".join(judges) or ("nobody" if self.checked_job else ""),
            "checked in": self.checked_job or "",
            "Lean": self.judge,
            "checked at": self.checked_sha if self.judge else "",
            "reason": self.reason,
            "rests on": ", ".join(self.conditional_on),
            "axioms": ", ".join(self.axioms) or ("none" if self.state == "verified" else ""),
            "kernel": kernel_text(self.grade, self.kernel),
            "in doubt": doubt_text(self.doubts),
            "not checked": ", ".join(self.not_checked),
            "stale": self.stale or "",
            "proposed": self.pull_request_url or "",
        }
        return {name: text for name, text in facts.items() if text}

    @property
    def text(self) -> str:
        """Return the sorry's declaration and place in one line."""
        return f"{self.declaration} in {self.repository} ({self.path})"

    @property
    def graded(self) -> str:
        """The grade in words, with its doubts; "" until it is verified."""
        return grade_text(self.grade, self.doubts)


def describe_proofs(view: sqlite3.Connection, proofs: Sequence[ProofRow]) -> list[Proof]:
    """Return the documents of proofs, in their order, with a fixed number of queries."""
    if not proofs:
        return []
    sorries = {row.sorry for row in proofs}
    stale = queries.stale_proofs(view, sorry=sorries.pop() if len(sorries) == 1 else None)
    attempts = describe_attempts(view, (row.sorry for row in proofs))
    return [
        of_row(
            Proof,
            row,
            label=proof_label(row),
            stale=stale.get(row.proof),
            verdict=verdict,
            why=why,
            attempt=queries.behind(row, attempts.get(row.sorry, ())),
        )
        for row in proofs
        for verdict, why in [judged(row)]
    ]


def judged(row: ProofRow) -> tuple[Word, str]:
    """Return the verdict on a proof, and its reason (`Proof.verdict` and `Proof.why`)."""
    if row.state in ("rejected", "conditional"):
        return "rejected", row.reason
    if row.checked_at is None:
        return "waiting", "the gate has not judged it yet"
    if row.state == "verified":
        return "accepted", row.reason
    return "unknown", row.reason or f"could not be checked: {', '.join(row.not_checked)}"


def worth(row: ProofRow) -> tuple[int, int, str]:
    """Return the sort key of proofs, the best one last: by state, by grade, then by the time of judgement."""
    return PROOF_STATES.index(row.state), ["", *GRADES].index(row.grade), row.checked_at or row.found_at


def proof_label(row: ProofRow) -> str:
    """Return the state; for a verified proof its grade too."""
    if row.state == "verified":
        return f"{row.state}, {grade_text(row.grade, row.doubts)}"
    return ", ".join(filter(None, (row.state, doubt_text(row.doubts))))


def best_of_each_sorry(proofs: Iterable[Proof]) -> list[Proof]:
    """Return the best proof of each sorry among those that fit its branch's tip, oldest first."""
    best: dict[tuple[str, str, str], Proof] = {}
    for row in proofs:
        key = (row.repository, row.branch, row.sorry)
        if row.stale is None and (key not in best or worth(best[key]) <= worth(row)):
            best[key] = row
    return sorted(best.values(), key=lambda row: (row.found_at, row.proof))


def of_each_text(proofs: Iterable[Proof]) -> list[tuple[Proof, int]]:
    """Return each text for a place once, and the number of its sorries, filled together."""
    texts: dict[tuple[object, ...], tuple[Proof, int]] = {}
    for row in proofs:
        place = row.repository, row.branch, row.path, row.checked_blob, row.byte_start, row.byte_end
        first, number = texts.get((*place, row.replacement, row.state), (row, 0))
        texts[*place, row.replacement, row.state] = first, number + 1
    return list(texts.values())
