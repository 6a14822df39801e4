"""A branch's theorems through time: one lineage a theorem, and a version for each change.

A lineage's id is `identity.theorem_id` of its name and statement at first sight; if another lineage of the
branch has that id, one is derived from it. It keeps the id through every rename, move and new statement, and
when it is deleted and returns under the same name with the same statement.

The versions of a lineage begin with its first sight: for theorems of a branch's first scan, the commit of
that scan. A log from before `theorems_followed` has scans without it: at the first such event of the branch
every present theorem gets a lineage (`appeared`), dated by the last scanned commit of its file, and unknown
theorems in the steps are adopted with the facts of the steps. Their earlier life stays unknown. From then on
every theorem of the branch has its one lineage.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from store.domain.identity import theorem_id
from store.domain.keywords import THEOREM_KINDS
from store.domain.life import TheoremAfter, TheoremBefore, TheoremStep
from store.events.scans import TheoremsFollowed
from store.log.envelope import StoredEvent

_CHUNK = 1000
_BRANCH = "repository = ? AND branch = ?"
_LINEAGE = "theorem, identity, name, kind, path, statement, statement_hash, text_hash"
_KINDS = ", ".join(f"'{kind}'" for kind in THEOREM_KINDS)
_STANDING = (
    "FROM declarations AS d LEFT JOIN files AS f "
    "ON f.repository = d.repository AND f.branch = d.branch AND f.path = d.path "
    f"WHERE d.repository = ? AND d.branch = ? AND d.kind IN ({_KINDS})"
)


class _Lineage(NamedTuple):
    """A theorem, by its row."""

    theorem: str
    identity: str
    name: str
    kind: str
    path: str
    statement: str
    statement_hash: str
    text_hash: str


class _Sight(NamedTuple):
    """A theorem without a lineage yet, and the commit of the sight."""

    after: TheoremAfter
    sha: str


def theorems_followed(
    db: sqlite3.Connection, event: StoredEvent, body: TheoremsFollowed, steps: Sequence[TheoremStep]
) -> None:
    """Apply one commit's steps. All lineages are looked up first: two may have swapped their names."""
    branch = _Branch(db, event, body)
    first = not db.execute(
        f"SELECT EXISTS (SELECT 1 FROM theorems WHERE {_BRANCH})", branch.where
    ).fetchone()[0]
    lines = [step for step in steps if step.before is not None]
    lineages = branch.find([step.before for step in lines if step.before is not None])
    gone: list[_Lineage] = []
    for step, lineage in zip(lines, lineages, strict=True):
        if step.after is not None:
            branch.change(lineage, step, step.after)
        elif lineage is not None:
            gone.append(lineage)
        elif step.before is not None:
            branch.adopt_deleted(step.before)
    came: Iterable[_Sight] = [
        _Sight(step.after, body.sha) for step in steps if step.before is None and step.after is not None
    ]
    if first or body.baseline:
        came = branch.settle(None, gone, came)
    elif body.unread:
        came = branch.settle(body.unread, gone, came)
    branch.pass_on(gone, came, first=first)


@dataclass(slots=True)
class _Branch:
    """The lineages of one branch, while one event is applied."""

    db: sqlite3.Connection
    event: StoredEvent
    body: TheoremsFollowed
    own_changes: set[str] = field(default_factory=set)
    """Lineages changed by the event's own steps: they have their version, whatever a comparison would add."""

    @property
    def where(self) -> tuple[str, str]:
        return self.body.repository, self.body.branch

    def identity(self, item: TheoremBefore | TheoremAfter) -> str:
        return theorem_id(self.body.repository, item.name, item.statement_hash)

    # --- lineages
    # --------------------------------------------------------------------------------------------

    def find(self, theorems: Sequence[TheoremBefore]) -> list[_Lineage | None]:
        """Return the present lineage of each; no lineage twice. None if unknown.

        Another scanner may have read the same text otherwise: then name and file decide.
        """
        result: list[_Lineage | None] = [None] * len(theorems)
        used: set[str] = set()
        for condition, by in (
            ("identity = ? AND path = ?", "theorems_by_identity"),
            ("name = ? AND path = ?", "theorems_by_name"),
        ):
            # Left to itself SQLite takes the primary key, for its order, and reads the whole branch each time.
            statement = (
                f"SELECT {_LINEAGE} FROM theorems INDEXED BY {by} WHERE {_BRANCH} AND {condition} "
                "AND state = 'present' ORDER BY theorem"
            )
            for index, item in enumerate(theorems):
                if result[index] is not None:
                    continue
                key = self.identity(item) if condition.startswith("identity") else item.name
                for row in self.db.execute(statement, (*self.where, key, item.path)):
                    if row[0] not in used:
                        used.add(row[0])
                        result[index] = _Lineage(*row)
                        break
        return result

    def settle(
        self, paths: Sequence[str] | None, gone: list[_Lineage], came: Iterable[_Sight]
    ) -> Iterator[_Sight]:
        """Compare the lineages of these files (None: of the branch) with the present declarations.

        Appends to `gone` the lineages without a declaration, and returns `came` with the declarations without
        a lineage.
        """
        leaving = {item.theorem for item in gone}
        lineages: dict[tuple[str, str], list[_Lineage]] = defaultdict(list)
        for row in self._select(
            f"SELECT {_LINEAGE} FROM theorems WHERE {_BRANCH} AND state = 'present'", paths
        ):
            if row[0] not in leaving:
                lineages[row[4], row[1]].append(_Lineage(*row))
        sights = list(came)
        appeared: dict[tuple[str, str], int] = defaultdict(int)
        for sight in sights:
            appeared[sight.after.path, self.identity(sight.after)] += 1
        new: list[int] = []  # row numbers: at a first scan these are all
        for number, path, identity in self._select(
            f"SELECT d.rowid, d.path, d.theorem {_STANDING}", paths, of="d", order='d.path, d."index"'
        ):
            key = (path, identity)
            if lineages.get(key):
                lineages[key].pop()
            elif appeared.get(key):
                appeared[key] -= 1
            else:
                new.append(number)
        gone += (item for left in lineages.values() for item in left if item.theorem not in self.own_changes)
        return self._sights(sights, new)

    def _select(
        self, statement: str, paths: Sequence[str] | None, *, of: str = "theorems", order: str = "theorem"
    ) -> Iterator[tuple[Any, ...]]:
        if paths is None:
            yield from self.db.execute(f"{statement} ORDER BY {order}", self.where)
            return
        for path in paths:
            yield from self.db.execute(f"{statement} AND {of}.path = ? ORDER BY {order}", (*self.where, path))

    def _sights(self, sights: Iterable[_Sight], numbers: Iterable[int]) -> Iterator[_Sight]:
        yield from sights
        columns = ", ".join(f"d.{name}" for name in TheoremAfter.__slots__)
        statement = f"SELECT coalesce(f.sha, ?), {columns} {_STANDING} AND d.rowid = ?"
        for number in numbers:
            row = self.db.execute(statement, (self.body.sha, *self.where, number)).fetchone()
            yield _Sight(TheoremAfter(*row[1:]), row[0])

    # --- changes
    # ---------------------------------------------------------------------------------------------

    def change(self, lineage: _Lineage | None, step: TheoremStep, after: TheoremAfter) -> None:
        """Apply a step to a remaining lineage. An unknown one is adopted with it."""
        if lineage is not None:
            self.own_changes.add(lineage.theorem)
            self._renew(lineage, ",".join(step.steps), after)
        elif step.before is not None:
            identity = self._free(
                theorem_id(self.body.repository, step.before.name, step.before.statement_hash)
            )
            self.own_changes.add(identity)
            self._insert([(identity, f"appeared,{','.join(step.steps)}", _Sight(after, self.body.sha))])

    def adopt_deleted(self, before: TheoremBefore) -> None:
        """Record a theorem deleted before its first sight; its statement is unknown."""
        after = TheoremAfter(
            name=before.name,
            kind=before.kind,
            path=before.path,
            statement="",
            statement_hash=before.statement_hash,
            text_hash=before.text_hash,
            n_sorries=0,
        )
        identity = self._free(self.identity(before))
        self.own_changes.add(identity)
        self._insert([(identity, "deleted", _Sight(after, self.body.sha))], state="deleted")

    def pass_on(self, gone: Sequence[_Lineage], came: Iterable[_Sight], *, first: bool) -> None:
        """Delete gone lineages; match new sights with them, with deleted ones, or make lineages."""
        leaving: dict[str, list[_Lineage]] = defaultdict(list)
        for lineage in gone:
            leaving[lineage.identity].append(lineage)
        new: list[tuple[str, str, _Sight]] = []
        ids: set[str] = set()
        for sight in came:
            identity = self.identity(sight.after)
            if leaving.get(identity):
                lineage = leaving[identity].pop()
                if lineage.path != sight.after.path:
                    self._renew(lineage, "file_moved", sight.after)
                continue
            # At a first scan no lineage can return.
            returned = None if first else self._find_returned(identity, sight.after.path)
            if returned is not None:
                moved = ",file_moved" if returned.path != sight.after.path else ""
                self._renew(returned, f"returned{moved}", sight.after)
                continue
            theorem = self._free(identity, ids)
            ids.add(theorem)
            new.append((theorem, "appeared", sight))
            if len(new) == _CHUNK:
                self._insert(new)
                new, ids = [], set()
        self._insert(new)
        self._delete([lineage for left in leaving.values() for lineage in left])

    def _find_returned(self, identity: str, path: str) -> _Lineage | None:
        """Return the last deleted lineage with this name and statement, preferably in this file."""
        rows = self.db.execute(
            f"SELECT {_LINEAGE} FROM theorems AS t WHERE {_BRANCH} AND identity = ? AND state = 'deleted' "
            "ORDER BY path = ? DESC, (SELECT max(seq) FROM theorem_versions AS v WHERE v.repository = t.repository "
            "AND v.branch = t.branch AND v.theorem = t.theorem) DESC, theorem",
            (*self.where, identity, path),
        )
        return next((_Lineage(*row) for row in rows if row[0] not in self.own_changes), None)

    def _free(self, identity: str, ids: Collection[str] = ()) -> str:
        """Return this id, or one derived from it if a lineage has it."""
        theorem, twin = identity, 0
        while theorem in ids or self._exists(theorem):
            twin += 1
            theorem = theorem_id(self.body.repository, identity, f"#{twin}")
        return theorem

    def _exists(self, theorem: str) -> bool:
        row = self.db.execute(
            f"SELECT 1 FROM theorems WHERE {_BRANCH} AND theorem = ?", (*self.where, theorem)
        )
        return row.fetchone() is not None

    # --- rows -----------------------------------------------------------------------------------------------

    def _renew(self, lineage: _Lineage, steps: str, after: TheoremAfter) -> None:
        changed = {
            "state": "present",
            "kind": after.kind,
            "statement": after.statement,
            "statement_hash": after.statement_hash,
            "text_hash": after.text_hash,
            "path": after.path,
            "last_sha": self.body.sha,
        }
        # Most only have another proof: SQLite writes the indexes of every column in the statement.
        identity = self.identity(after)
        if (identity, after.name) != (lineage.identity, lineage.name):
            changed |= {"identity": identity, "name": after.name}
        self.db.execute(
            f"UPDATE theorems SET {', '.join(f'{name} = ?' for name in changed)}, versions = versions + 1 "
            f"WHERE {_BRANCH} AND theorem = ?",
            (*changed.values(), *self.where, lineage.theorem),
        )
        self._versions([(lineage.theorem, steps, _Sight(after, self.body.sha))])

    def _insert(self, rows: Sequence[tuple[str, str, _Sight]], *, state: str = "present") -> None:
        self.db.executemany(
            "INSERT INTO theorems (repository, branch, theorem, identity, state, name, kind, statement, "
            "statement_hash, text_hash, path, first_sha, first_seen_at, last_sha, versions) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
            [
                (
                    *self.where,
                    theorem,
                    self.identity(after),
                    state,
                    after.name,
                    after.kind,
                    after.statement,
                    after.statement_hash,
                    after.text_hash,
                    after.path,
                    sha,
                    self.event.recorded_at,
                    sha,
                )
                for theorem, _, (after, sha) in rows
            ],
        )
        self._versions(rows)

    def _delete(self, lineages: Sequence[_Lineage]) -> None:
        self.db.executemany(
            "UPDATE theorems SET state = 'deleted', last_sha = ?, versions = versions + 1 "
            f"WHERE {_BRANCH} AND theorem = ?",
            [(self.body.sha, *self.where, lineage.theorem) for lineage in lineages],
        )
        self._versions(
            [(lineage.theorem, "deleted", _Sight(_as_it_was(lineage), self.body.sha)) for lineage in lineages]
        )

    def _versions(self, rows: Sequence[tuple[str, str, _Sight]]) -> None:
        self.db.executemany(
            "INSERT INTO theorem_versions (repository, branch, theorem, seq, steps, sha, recorded_at, name, path, "
            "statement, statement_hash, text_hash, n_sorries) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *self.where,
                    theorem,
                    self.event.seq,
                    steps,
                    sha,
                    self.event.recorded_at,
                    after.name,
                    after.path,
                    after.statement,
                    after.statement_hash,
                    after.text_hash,
                    after.n_sorries,
                )
                for theorem, steps, (after, sha) in rows
            ],
        )


def _as_it_was(lineage: _Lineage) -> TheoremAfter:
    """A deleted theorem's last version: without text, and so without sorries."""
    return TheoremAfter(
        name=lineage.name,
        kind=lineage.kind,
        path=lineage.path,
        statement=lineage.statement,
        statement_hash=lineage.statement_hash,
        text_hash=lineage.text_hash,
        n_sorries=0,
    )
