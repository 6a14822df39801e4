"""News of sorries: the openings and closings, and the sorries in the source that wait for a person.

The first screen of the report, the digest and the feed show these.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from store.documents.proofs import Proof, describe_proofs, judged
from store.documents.sorries import Sorry, SorryKey, by_text, describe_sorries
from store.view import queries
from store.view.reading import read
from store.view.report_queries import Turn
from store.view.rows import ProofRow, SorryRow

WORDS = {
    "opened": "opened",
    "removed": "removed",
    "by_people": "filled by people",
    "by_us": "filled by everlean",
}
"""The ways to open or close a sorry (`Turn.what`), in words."""
FILLED = ("by_people", "by_us")


@dataclass(frozen=True, slots=True)
class News:
    sorry: Sorry
    """Its present document."""
    what: str
    """One of `WORDS`."""
    at: str
    """The time of the commit."""
    by: str
    """Its author and pull request: "Ada, #7"."""

    @property
    def text(self) -> str:
        """Return the news in words."""
        return WORDS[self.what]


@dataclass(frozen=True, slots=True)
class Proved:
    """A sorry in the source, and a text in its place accepted by Lean."""

    sorry: Sorry
    proof: Proof


@dataclass(frozen=True, slots=True)
class Waiting:
    """The sorries in the source to report to a person, the newest first."""

    disproved: tuple[Sorry, ...]
    """False as they stand."""
    ready: tuple[Proved, ...]
    """With a verified proof."""
    candidates: tuple[Proved, ...]
    """Open, with a fitting patch, not judged in full."""


def describe_news(view: sqlite3.Connection, turns: Sequence[Turn]) -> list[News]:
    """Return the documents of openings and closings of sorries, in their order."""
    ids = json.dumps(sorted({turn.sorry for turn in turns}))
    condition = "sorry IN (SELECT value FROM json_each(?))"
    rows = read(view, SorryRow, "sorries", conditions=[condition], parameters=[ids])
    sorries: dict[SorryKey, Sorry] = {
        (one.repository, one.branch, one.sorry): one for one in describe_sorries(view, rows)
    }
    return [
        News(
            sorries[turn.repository, turn.branch, turn.sorry],
            turn.what,
            turn.at,
            by_text(turn.author, turn.pull_request),
        )
        for turn in turns
    ]


def describe_waiting(view: sqlite3.Connection, here: Sequence[SorryRow]) -> Waiting:
    """Return the sorries that wait for a person.

    Args:
        view: the database.
        here: the sorries in the source (`report_queries.sorries_here`).
    """
    open_ = {(row.repository, row.sorry): row for row in here if row.state == "open"}
    false = queries.disproved(view)
    rows = [row for row in open_.values() if (row.repository, row.branch, row.sorry) in false]
    disproved = describe_sorries(view, rows)
    disproved.sort(key=lambda one: one.tried.recorded_at if one.tried else "", reverse=True)
    verified = {row.verified_proof: row for row in here if row.verified_proof and row.state == "verified"}
    accepted = _proofs(view, "proof IN (SELECT value FROM json_each(?))", json.dumps(sorted(verified)))
    fitting: dict[tuple[str, str], ProofRow] = {}
    for proof in _proofs(view, "state = 'candidate' AND patch_sha256 IS NOT NULL"):
        key = proof.repository, proof.sorry
        unknown = judged(proof)[0] == "unknown"
        if unknown and key in open_ and open_[key].blob == proof.checked_blob:
            fitting.setdefault(key, proof)
    return Waiting(
        tuple(disproved),
        _describe_proved(view, [(verified[one.proof], one) for one in accepted]),
        _describe_proved(view, [(open_[key], proof) for key, proof in fitting.items()]),
    )


def _proofs(view: sqlite3.Connection, condition: str, *parameters: str) -> list[ProofRow]:
    order = "checked_at DESC, found_at DESC, proof"
    return read(view, ProofRow, "proofs", conditions=[condition], parameters=parameters, order=order)


def _describe_proved(
    view: sqlite3.Connection, pairs: Sequence[tuple[SorryRow, ProofRow]]
) -> tuple[Proved, ...]:
    sorries = describe_sorries(view, [row for row, _ in pairs])
    return tuple(map(Proved, sorries, describe_proofs(view, [proof for _, proof in pairs])))
