"""The life of a sorry, and its history as lines for people.

A sorry is `verified` while it is in the source and a proof accepted by Lean waits for it. A patch names its
commit: a sorry that only moved (other lines, another file, a new name of its declaration) stays verified; a
changed statement, or other text right before the sorry, opens it again. If the same sorry turns up in exactly
the proof's version of the file (on a second branch, or after a revert), the proof holds there too.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from operator import attrgetter

from store.domain.identity import pull_request_of
from store.events.places import SorryPlace
from store.events.proofs import ClaimReleased, SorryClaimed
from store.events.scans import (
    SorryChanged,
    SorryEvent,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryRemoved,
    SorryWritten,
)
from store.log.envelope import StoredEvent, utc_text
from store.text import clean, cut
from store.view.projections.rows import as_json, quoted, upsert

# Statements here name their index: SQLite, without statistics here, would take one that reads all sorries of
# the repository, or all verified proofs.
LONGEST_AUTHOR = 200
_SORRY = "repository = ? AND branch = ? AND sorry = ?"
_PLACE = SorryPlace.__slots__
_place_of = attrgetter(*_PLACE)
_SET_PLACE = f"UPDATE sorries SET {', '.join(f'{name} = ?' for name in quoted(_PLACE))}, updated_sha = ?"
_SET_PLACE_ONLY = f"{_SET_PLACE} WHERE {_SORRY}"
_SET_PLACE_WITHOUT_PROOF = (
    f"{_SET_PLACE}, verified_proof = NULL, state = CASE state WHEN 'verified' THEN 'open' ELSE state END "
    f"WHERE {_SORRY}"
)


def sorry_opened(db: sqlite3.Connection, event: StoredEvent, body: SorryOpened) -> None:
    """Add a sorry, or open a filled or removed one again; its first sight stays on record."""
    proof = _verified_proof(db, body)
    upsert(
        db,
        "sorries",
        key=_key(body),
        values={
            **dict(zip(_PLACE, _place_of(body.place), strict=True)),
            "state": "open" if proof is None else "verified",
            "updated_sha": body.sha,
            "closed_sha": None,
            "filled_by": None,
            "went": "",
            "rests_on_json": "[]",
            "verified_proof": proof,
            # Its author is looked up anew.
            "written_sha": None,
            "written_by": "",
            "written_at": None,
            "pull_request": None,
        },
        once={"opened_sha": body.sha, "opened_at": _commit(db, event, body).at},
    )
    detail = f"{_spot(body.place)}, {body.place.mode} mode, in {body.place.kind} {body.place.declaration}"
    if proof is not None:
        detail += f"; proof {proof} was verified in this version of the file"
    _step(db, event, body, "reopened" if body.reopened else "opened", detail)


def sorry_moved(db: sqlite3.Connection, event: StoredEvent, body: SorryMoved) -> None:
    """Record the new place; a proof stays valid unless the text before the sorry changed."""
    before = db.execute(
        f'SELECT path, line, "column", declaration, statement_hash, context_hash FROM sorries WHERE {_SORRY}',
        _where(body),
    ).fetchone()
    # Not `body.what`: its "context" also stands for bytes elsewhere in the file.
    goal = (body.place.statement_hash, body.place.context_hash)
    stays = before is not None and (before[4], before[5]) == goal
    _update_place(db, body, body.place, keeps_proof=stays)
    what = ", ".join(body.what) or "place"
    detail = f"{what}: now {_spot(body.place)}"
    if before is not None:
        now = body.place
        if tuple(before)[:4] == (now.path, now.line, now.column, now.declaration):
            return  # other bytes of the file changed: nothing of its history
        detail = f"{what}: {before[0]}:{before[1]}:{before[2]} -> {_spot(body.place)}"
        if before[3] != body.place.declaration:
            detail += f", {before[3]} -> {body.place.declaration}"
    _step(db, event, body, "moved", detail)


def sorry_changed(db: sqlite3.Connection, event: StoredEvent, body: SorryChanged) -> None:
    """Record the new statement; a proof of the old one does not prove the new one."""
    _update_place(db, body, body.place, keeps_proof=False)
    _step(db, event, body, "changed", f"statement: {body.statement_before} -> {body.place.statement}")


def sorry_filled(db: sqlite3.Connection, event: StoredEvent, body: SorryFilled) -> None:
    """Close a sorry with a proof in its place."""
    db.execute(
        "UPDATE sorries SET state = 'filled', closed_sha = ?, updated_sha = ?, filled_by = ?, rests_on_json = ? "
        f"WHERE {_SORRY}",
        (body.sha, body.sha, body.by, as_json(body.rests_on), *_where(body)),
    )
    detail = f"by {body.by}"
    if body.proof:
        detail += f", with the text of proof {body.proof}"
    if body.rests_on:
        have = "has" if len(body.rests_on) == 1 else "have"
        detail += f"; rests on {', '.join(body.rests_on)}, which {have} a sorry"
    _step(db, event, body, "filled", detail, filled_by=body.by)


def sorry_removed(db: sqlite3.Connection, event: StoredEvent, body: SorryRemoved) -> None:
    """Close a sorry whose statement nothing proves."""
    db.execute(
        f"UPDATE sorries SET state = 'removed', closed_sha = ?, updated_sha = ?, went = ? WHERE {_SORRY}",
        (body.sha, body.sha, body.how, *_where(body)),
    )
    detail = body.detail or "its declaration is gone"
    if body.how == "restated":
        detail += f": {body.statement_before} -> {body.statement_after}"
    _step(db, event, body, "removed" if body.how == "deleted" else body.how, detail)


def sorry_written(db: sqlite3.Connection, event: StoredEvent, body: SorryWritten) -> None:
    """Record its author and the time; a sorry unknown to git has an empty commit."""
    # An author's clock may be wrong.
    authored = min(utc_text(body.authored_at), event.recorded_at) if body.authored_at else None
    db.execute(
        f"UPDATE sorries SET written_sha = ?, written_by = ?, written_at = ?, pull_request = ? WHERE {_SORRY}",
        (
            body.sha or "",
            body.author,
            authored,
            body.pull_request,
            body.repository,
            body.branch,
            body.sorry,
        ),
    )


def proof_stands(db: sqlite3.Connection, event: StoredEvent, *, proof: str, detail: str) -> None:
    """Mark every open sorry of a proof as verified: the same sorry in the same version of its file."""
    _for_each(
        db,
        event,
        "SELECT s.repository, s.branch, s.sorry, p.sha FROM proofs p JOIN sorries s INDEXED BY sorries_by_id "
        "ON s.repository = p.repository AND s.sorry = p.sorry AND s.blob = p.blob "
        "WHERE p.proof = ? AND s.state = 'open' ORDER BY s.branch",
        proof,
        "UPDATE sorries SET state = 'verified', verified_proof = ?",
        "verified",
        detail,
    )


def proof_falls(db: sqlite3.Connection, event: StoredEvent, *, proof: str, detail: str) -> None:
    """Reopen the sorries of a proof now rejected or in doubt."""
    _for_each(
        db,
        event,
        "SELECT s.repository, s.branch, s.sorry, s.updated_sha FROM proofs p JOIN sorries s INDEXED BY sorries_by_id "
        "ON s.repository = p.repository AND s.sorry = p.sorry "
        "WHERE p.proof = ? AND s.verified_proof = p.proof AND s.state = 'verified' ORDER BY s.branch",
        proof,
        "UPDATE sorries SET state = 'open', verified_proof = nullif(?, verified_proof)",
        "refuted",
        detail,
    )


def _for_each(
    db: sqlite3.Connection, event: StoredEvent, select: str, proof: str, update: str, step: str, detail: str
) -> None:
    for repository, branch, sorry, sha in db.execute(select, (proof,)).fetchall():
        db.execute(f"{update} WHERE {_SORRY}", (proof, repository, branch, sorry))
        add_step(db, event, (repository, branch, sorry), step, sha, detail)


def _verified_proof(db: sqlite3.Connection, body: SorryOpened) -> str | None:
    row = db.execute(
        "SELECT proof FROM proofs INDEXED BY ix_proofs_sorry "
        "WHERE sorry = ? AND repository = ? AND blob = ? AND state = 'verified' "
        "ORDER BY checked_at, proof LIMIT 1",
        (body.sorry, body.repository, body.place.blob),
    ).fetchone()
    return None if row is None else row[0]


def sorry_claimed(db: sqlite3.Connection, event: StoredEvent, body: SorryClaimed) -> None:
    """Give a sorry to an agent until a time, for readers to compare with theirs."""
    values = {name: getattr(body, name) for name in ("repository", "claim", "agent", "by")}
    values |= {"since": event.recorded_at, "until": utc_text(body.until)}
    upsert(db, "claims", key={"sorry": body.sorry}, values=values, once={})


def claim_released(db: sqlite3.Connection, _event: StoredEvent, body: ClaimReleased) -> None:
    """End a claim; a replaced one is over already."""
    db.execute("DELETE FROM claims WHERE sorry = ? AND claim = ?", (body.sorry, body.claim))


def _update_place(db: sqlite3.Connection, body: SorryEvent, place: SorryPlace, *, keeps_proof: bool) -> None:
    statement = _SET_PLACE_ONLY if keeps_proof else _SET_PLACE_WITHOUT_PROOF
    db.execute(statement, (*_place_of(place), body.sha, *_where(body)))


def _key(body: SorryEvent) -> dict[str, str]:
    return {"repository": body.repository, "branch": body.branch, "sorry": body.sorry}


def _where(body: SorryEvent) -> tuple[str, str, str]:
    return (body.repository, body.branch, body.sorry)


def _spot(place: SorryPlace) -> str:
    return f"{place.path}:{place.line}:{place.column}"


def _step(
    db: sqlite3.Connection,
    event: StoredEvent,
    body: SorryEvent,
    step: str,
    detail: str,
    *,
    filled_by: str | None = None,
) -> None:
    of = _commit(db, event, body)
    add_step(db, event, _where(body), step, body.sha, detail, commit=of, filled_by=filled_by)


@dataclass(frozen=True, slots=True)
class _Commit:
    at: str
    author: str = ""
    pull_request: int | None = None


def _commit(db: sqlite3.Connection, event: StoredEvent, body: SorryEvent) -> _Commit:
    """Return a commit's time and author; no committer's clock is ahead of ours."""
    row = db.execute(
        "SELECT committed_at, author, subject FROM commits WHERE repository = ? AND branch = ? AND sha = ?",
        (body.repository, body.branch, body.sha),
    ).fetchone()
    if row is None:
        return _Commit(event.recorded_at)
    return _Commit(
        min(row[0], event.recorded_at), cut(clean(row[1]), LONGEST_AUTHOR), pull_request_of(row[2])
    )


def add_step(
    db: sqlite3.Connection,
    event: StoredEvent,
    where: tuple[str, str, str],
    step: str,
    sha: str,
    detail: str,
    *,
    commit: _Commit | None = None,
    filled_by: str | None = None,
) -> None:
    """Add a step to a sorry's life (repository, branch, sorry), at its commit's or the event's time."""
    of = commit or _Commit(event.recorded_at)
    values = of.at, event.recorded_at, of.author, of.pull_request, filled_by, detail
    db.execute(
        "INSERT INTO sorry_steps "
        "(repository, branch, sorry, seq, step, sha, at, recorded_at, author, pull_request, filled_by, detail) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*where, event.seq, step, sha, *values),
    )
