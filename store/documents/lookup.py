"""The meaning of a name or the beginning of an id: one thing, or an error with the reason."""

from __future__ import annotations

import sqlite3
from typing import Any

from store.documents.attempts import Attempt, describe_attempts
from store.documents.proofs import Proof, describe_proofs
from store.text import listed, plural
from store.view import queries
from store.view.rows import ProofRow, SorryRow, TheoremRow


class UnresolvedError(Exception):
    """A name means nothing here, or several things; the message lists them, or names the verb for a list."""


def one_match(rows: list[Any], prefix: str, *, what: str, key: str, verb: str = "") -> Any:
    """Return the row whose id starts with `prefix`; none or several are an error.

    A full id wins over longer ones with the same beginning. `verb` is the verb for a list, by default the
    plural.
    """
    what_many = verb or plural(what)
    exact = [row for row in rows if getattr(row, key) == prefix]
    if len(exact) == 1:
        return exact[0]
    if not rows:
        raise UnresolvedError(
            f'no {what} has an id that starts with "{prefix}"; `everlean {what_many}` lists them'
        )
    ids = sorted({getattr(row, key) for row in rows})
    if len(ids) > 1:
        shown = listed(ids, 5)
        raise UnresolvedError(
            f'"{prefix}" is the beginning of several {what} ids ({shown}); write more of it'
        )
    return rows[0]


def sorries_named(database: sqlite3.Connection, prefix: str) -> list[SorryRow]:
    """Return the sorry with this id or beginning, on each of its branches."""
    rows = queries.sorries_by_prefix(database, prefix)
    sorry = one_match(rows, prefix, what="sorry", key="sorry").sorry
    return [row for row in rows if row.sorry == sorry]


def proof_named(database: sqlite3.Connection, prefix: str) -> ProofRow:
    """Return the proof with this id or beginning."""
    row: ProofRow = one_match(queries.proofs_by_prefix(database, prefix), prefix, what="proof", key="proof")
    return row


def search_named(
    database: sqlite3.Connection, which: str, number: int | None
) -> tuple[Attempt, Proof | None]:
    """Return the attempt behind a proof, or one on a sorry, by default the newest.

    Args:
        which: the proof's or the sorry's id, or its beginning.
        number: of the sorry's attempt, from 1.
    """
    proofs, sorries = queries.proofs_by_prefix(database, which), queries.sorries_by_prefix(database, which)
    if not proofs and not sorries:
        raise UnresolvedError(
            f'no proof and no sorry has an id that starts with "{which}"; `everlean proofs` and `everlean sorries` list'
            " them"
        )
    if proofs and sorries:
        ids = sorted({*(row.proof for row in proofs), *(row.sorry for row in sorries)})
        raise UnresolvedError(
            f'"{which}" is the beginning of proofs and sorries ({", ".join(ids[:5])}); write more of it'
        )
    if sorries:
        sorry = one_match(sorries, which, what="sorry", key="sorry").sorry
        return _attempt_on(database, sorry, number), None
    (proof,) = describe_proofs(database, [one_match(proofs, which, what="proof", key="proof")])
    if number is not None:
        raise UnresolvedError(
            f"--attempt is for a sorry's id, and {proof.proof} is a proof: it has its own attempt"
        )
    if proof.attempt is None:
        raise UnresolvedError(
            f"no attempt of job {proof.job} is recorded that found proof {proof.proof}; how that job ended says"
            f" `everlean jobs show {proof.job}`"
        )
    return proof.attempt, proof


def _attempt_on(database: sqlite3.Connection, sorry: str, number: int | None) -> Attempt:
    attempts = describe_attempts(database, [sorry]).get(sorry, [])
    if not attempts:
        raise UnresolvedError(f"sorry {sorry} was not tried yet; `everlean status` says what is due")
    if number is None:
        return attempts[-1]
    if not 1 <= number <= len(attempts):
        raise UnresolvedError(
            f"sorry {sorry} has no attempt {number}, it has {len(attempts)}; `everlean sorries show {sorry}` lists"
            " them"
        )
    return attempts[number - 1]


def theorems_called(database: sqlite3.Connection, word: str) -> list[TheoremRow]:
    """Return the one theorem of a name or an id, on each of its branches, now or earlier.

    The name may be an earlier one, or the end of one; the id its own, or that of its present statement.
    """
    rows = queries.theorems_called(database, word)
    exact = [row for row in rows if row.theorem == word]
    if exact:
        return exact
    present = [row for row in rows if row.state == "present"]
    ids = sorted({row.theorem for row in rows})
    if len({row.theorem for row in present}) == 1:
        ids = [present[0].theorem]
    if len(ids) == 1:
        return [row for row in rows if row.theorem == ids[0]]
    if ids:
        shown = listed([f"{row.theorem} ({row.state}, {row.path})" for row in rows], 5)
        raise UnresolvedError(f'"{word}" may be any of several theorems; name one by its id: {shown}')
    if queries.theorems(database, name=word, limit=1):
        raise UnresolvedError(
            f"{word}: it stands in the source and was not followed yet: its history begins with the next scanned "
            "commit that changes a theorem of its branch"
        )
    near = [] if set(word) & set("*?[") else queries.theorems(database, name=f"*.{word}", limit=3)
    if near:
        named = " or ".join(dict.fromkeys(row.name for row in near))
        raise UnresolvedError(f'no theorem has the name or the id "{word}"; did you mean {named}?')
    raise UnresolvedError(f'no theorem has the name or the id "{word}"; `everlean theorems` lists them')


def resolve(database: sqlite3.Connection, name: str | None) -> str | None:
    """Return the key of a filter's repository, or None without a filter."""
    return None if name is None else repository_named(database, name)


def repository_named(database: sqlite3.Connection, name: str) -> str:
    """Return the key of the one repository meant: by its key, the end of it (owner/name, name), or a part."""
    return one_of(
        [row.repository for row in queries.repositories(database)], name, lists="everlean repos --all"
    )


def one_of(keys: list[str], name: str, *, lists: str) -> str:
    """Return the one key `name` means; `lists` is the command for a list."""
    if name in keys:
        return name
    part = name.lower().removesuffix(".git")
    near = [key for key in keys if key.lower().endswith(f"/{part}")]
    near = near or [key for key in keys if part and part in key.lower()]
    if len(near) == 1:
        return near[0]
    if near:
        raise UnresolvedError(f'"{name}" may be {", ".join(near)}; write the whole key')
    raise UnresolvedError(f'no repository is called "{name}"; `{lists}` lists them')
