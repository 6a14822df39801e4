"""Queries about trained models and their training data. Read-only, with the standard library alone."""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from store.domain.identity import split_key
from store.domain.splits import files_of, held_out
from store.view.reading import columns, make_all, read
from store.view.rows import CheckpointRow, EvaluationRow, OfferRow, ProofRow, TraceRow


def checkpoints(db: sqlite3.Connection, model: str | None = None) -> list[CheckpointRow]:
    """Return the checkpoints of one model ("retriever", "tactics", "progress"), or of all, oldest first."""
    rows = db.execute(
        f"SELECT {_names(CheckpointRow)} FROM checkpoints WHERE :model IS NULL OR model = :model "
        "ORDER BY saved_at, checkpoint",
        {"model": model},
    )
    return make_all(CheckpointRow, rows)


def checkpoint_in_use(db: sqlite3.Connection, model: str) -> CheckpointRow | None:
    """Return the checkpoint of a model in use; None before the first."""
    rows = db.execute(
        f"SELECT {_names(CheckpointRow)} FROM checkpoints WHERE model = ? AND promoted = 1", (model,)
    )
    return next(iter(make_all(CheckpointRow, rows)), None)


def in_use(db: sqlite3.Connection) -> dict[str, str]:
    """Map each model to its checkpoint in use."""
    return dict(db.execute("SELECT model, checkpoint FROM checkpoints WHERE promoted = 1"))


def offers(db: sqlite3.Connection, model: str) -> list[OfferRow]:
    """Return users' models of this kind, oldest first."""
    return read(db, OfferRow, "offers", equal={"model": model}, order="offered_at, weights")


def evaluations(db: sqlite3.Connection, checkpoint: str | None = None) -> list[EvaluationRow]:
    """Return the evaluations of one checkpoint, or of all, oldest first."""
    rows = db.execute(
        f"SELECT {_names(EvaluationRow)} FROM evaluations "
        "WHERE :checkpoint IS NULL OR checkpoint = :checkpoint "
        "ORDER BY recorded_at, evaluation",
        {"checkpoint": checkpoint},
    )
    return make_all(EvaluationRow, rows)


def once_in_use(db: sqlite3.Connection, model: str) -> list[EvaluationRow]:
    """Return the evaluations of all checkpoints of a model ever in use."""
    rows = db.execute(
        f"SELECT {_names(EvaluationRow)} FROM evaluations WHERE checkpoint IN "
        "(SELECT checkpoint FROM checkpoints WHERE model = ? AND promoted_at IS NOT NULL) "
        "ORDER BY recorded_at, evaluation",
        (model,),
    )
    return make_all(EvaluationRow, rows)


def _names(cls: type) -> str:
    return ", ".join(f'"{name}"' for name in columns(cls))


Learnable = Literal["premise", "tactic"]


@dataclass(frozen=True, slots=True)
class Learned:
    """A checkpoint with its training's repository, and the state of its training job.

    `data_seq` is the log position of the training data; `removed_at` the removal of its files. While
    `promoted_at` and `refused_at` are both None, it is undecided.
    """

    checkpoint: str
    model: str
    parent: str | None
    repository: str
    job: str
    data_seq: int
    saved_at: str
    promoted: bool
    promoted_at: str | None
    refused_at: str | None
    removed_at: str | None
    job_state: str


def accepted_proofs(
    db: sqlite3.Connection, *, repositories: Iterable[str], since: str = ""
) -> list[ProofRow]:
    """Return the accepted proofs of these repositories found after a time, oldest first.

    Without conditional proofs and those with an incomplete verdict.
    """
    return read(
        db,
        ProofRow,
        "proofs",
        conditions=[
            "state = 'verified'",
            "repository IN (SELECT value FROM json_each(?))",
            "found_at > ?",
        ],
        parameters=[json.dumps(sorted(repositories)), since],
        order="found_at, proof",
    )


def is_held_out(db: sqlite3.Connection, proof: ProofRow) -> bool:
    """Return whether a proof's theorem is barred from training (`store.domain.splits.held_out`).

    The theorem is identified by its name, its statement on any branch, and its statements in traces.
    """
    statements = db.execute(
        "SELECT statement FROM sorries WHERE repository = ? AND sorry = ?", (proof.repository, proof.sorry)
    )
    traced = db.execute("SELECT split_key FROM traced_theorems WHERE full_name = ?", (proof.declaration,))
    keys = {split_key(proof.declaration, statement or None) for (statement,) in statements}
    keys |= {key for (key,) in traced}
    return held_out(db, name=proof.declaration, keys=keys or {split_key(proof.declaration, None)})


def held_out_goals(db: sqlite3.Connection) -> Iterator[str]:
    """Yield the first goals in the proofs of theorems on val or test of `random`, in every version."""
    first = (
        'CROSS JOIN traced_tactics AS s ON s.content = t.content AND s.theorem = t."index" AND s."index" = 0 '
        "WHERE m.split = 'random' AND m.side <> 'train' AND m.\"of\" ="
    )
    for row in db.execute(
        'SELECT s.state_before FROM split_members AS m CROSS JOIN traced_theorems AS t ON t.split_key = m."key" '
        f"{first} 'theorem' UNION SELECT s.state_before FROM split_members AS m "
        f"CROSS JOIN traced_theorems AS t ON t.full_name = m.\"key\" {first} 'name'"
    ):
        yield row[0]


_OF_JOBS = {"repository": "jobs.repository", "job_state": "jobs.state"}
_LEARNED = (
    f"SELECT {', '.join(_OF_JOBS.get(name, f'c.{name}') for name in columns(Learned))} FROM checkpoints AS c "
    "CROSS JOIN jobs ON jobs.job = c.job WHERE jobs.repository IS NOT NULL AND"
)
_OLDEST_FIRST = "ORDER BY c.saved_at, c.checkpoint"


def learned(db: sqlite3.Connection, model: str) -> list[Learned]:
    """Return the checkpoints of one model ("retriever", "tactics", "progress"), oldest first.

    Without those with a job, or a job's repository, unknown to the view.
    """
    return make_all(Learned, db.execute(f"{_LEARNED} c.model = ? {_OLDEST_FIRST}", (model,)))


def undecided(db: sqlite3.Connection) -> list[Learned]:
    """Return the undecided checkpoints of all models whose job succeeded, oldest first."""
    return make_all(
        Learned,
        db.execute(
            f"{_LEARNED} c.promoted_at IS NULL AND c.refused_at IS NULL AND jobs.state = 'succeeded' {_OLDEST_FIRST}"
        ),
    )


def ancestry(checkpoints: Iterable[Learned], checkpoint: str | None) -> list[Learned]:
    """Return a checkpoint and its predecessors in training, the newest first, as far as `checkpoints` goes."""
    links = {link.checkpoint: link for link in checkpoints}
    result: list[Learned] = []
    while checkpoint is not None and (link := links.pop(checkpoint, None)) is not None:
        result.append(link)
        checkpoint = link.parent
    return result


def new_theorems(
    db: sqlite3.Connection, *, trace: TraceRow, since: int, with_a: Learnable = "premise"
) -> int:
    """Count the theorems of a trace with something to learn and new since log position `since`.

    Something to learn is a premise in some tactic or, for models without premises, a tactic. Old, by their
    `split_key`, are those of the repository's traces closed by then; with `since` 0 there are none. The work
    grows with the files changed since.
    """
    versions = _versions(db, trace)
    settled = {content for content, (_, closed) in versions.items() if closed <= since}
    half_done = {content for content, (begun, _) in versions.items() if begun <= since} - settled
    changed = json.dumps(sorted(_contents(db, trace) - settled))
    if not (settled or half_done):
        result = db.execute(f"SELECT count(*) {_learnable(with_a)}", {"changed": changed})
        return int(result.fetchone()[0])
    parameters = {
        "changed": changed,
        "settled": json.dumps(sorted(settled)),
        "half_done": json.dumps(sorted(half_done)),
        "since": since,
    }
    return int(db.execute(_NEW.format(learnable=_learnable(with_a)), parameters).fetchone()[0])


# The learnable content of the contents :changed.
_HAS: Mapping[Learnable, str] = {
    "premise": 'EXISTS (SELECT 1 FROM tactic_premises AS p WHERE p.content = t.content AND p.theorem = t."index")',
    "tactic": "t.n_tactics > 0",
}


def _learnable(with_a: Learnable) -> str:
    return (
        "FROM json_each(:changed) AS c CROSS JOIN traced_theorems AS t ON t.content = c.value "
        f"WHERE {_HAS[with_a]}"
    )


def _in(contents: str) -> str:
    # Without the plus SQLite would look for the key in each of the contents by itself.
    return (
        "EXISTS (SELECT 1 FROM traced_theorems AS o WHERE o.split_key = t.split_key "
        f"AND +o.content IN (SELECT value FROM json_each(:{contents})))"
    )


# Grouped, and so sorted: the indices are then read from one end to the other. A theorem's side is decided
# when its first commit is closed.
_NEW = (
    "SELECT coalesce(sum(n), 0) FROM (SELECT t.split_key, count(*) AS n {learnable} GROUP BY t.split_key) AS t "
    f"WHERE NOT {_in('settled')} AND NOT ({_in('half_done')} AND EXISTS (SELECT 1 FROM split_members AS m "
    "WHERE m.split = 'random' AND m.\"of\" = 'theorem' AND m.\"key\" = t.split_key AND m.seq <= :since))"
)


def _contents(db: sqlite3.Connection, trace: TraceRow) -> set[int]:
    rows = db.execute(
        f"SELECT traced_files.content FROM traces CROSS JOIN traced_files ON {files_of()} WHERE traces.trace = ?",
        (trace.trace,),
    )
    return {row[0] for row in rows}


def _versions(db: sqlite3.Connection, trace: TraceRow) -> dict[int, tuple[int, int]]:
    """Map each content of this repository's traces to two log positions: first sight and first closing.

    A trace half done at a position had the first by then and not the second. A commit shared with a second
    branch looks the same: it is closed once more, and the view has its later closing alone. The decision on a
    theorem's side tells the two apart; only for a theorem known from another repository does the decision
    precede the first closing here, and in a half-done trace it counts as known.
    """
    closings: dict[str, list[int]] = defaultdict(list)
    for line, seq in db.execute(
        "SELECT line, seq FROM traces WHERE repository = ? ORDER BY seq",
        (trace.repository,),
    ):
        closings[line].append(seq)
    begun: dict[int, int] = {}
    closed: dict[int, int] = {}
    for line, content, begin, end in db.execute(
        "SELECT line, content, from_seq, until_seq FROM traced_files WHERE repository = ?",
        (trace.repository,),
    ):
        begun[content] = min(begin, begun.get(content, begin))
        seqs = closings[line]
        after = bisect_left(seqs, begin)
        if after < len(seqs) and (end is None or seqs[after] < end):
            closed[content] = min(seqs[after], closed.get(content, seqs[after]))
    return {content: (begun[content], seq) for content, seq in closed.items()}
