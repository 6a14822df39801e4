"""SorryDB's files: its lists of repositories and of sorries, read; our open sorries, written as one of its databases.

Its format is doc/DATABASE.md of https://github.com/SorryDB/SorryDB: a JSON object with `repos` (addresses under
`remote`, or `remote_url` in a database) or `sorries` or both. The id of a sorry is the SHA-256 of the rest of its
record without the inclusion date, keys sorted.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from store.documents.sorries import Sorry, describe_sorries, distinct
from store.domain.identity import line_url
from store.events.projects import project_of
from store.leandojo.folder import replaced_file
from store.view import queries
from store.view.rows import BranchRow

LARGEST_FILE_BYTES = 256 << 20
MOST_REPOSITORIES = 10_000


class SorryDBError(Exception):
    """Not a SorryDB file; the message names the field and the expected value."""


@dataclass(frozen=True, slots=True)
class Record:
    """A sorry in SorryDB's record. Lines are from 1, columns from 0, in code points; dates are ISO 8601.

    `goal` is "" without Lean's statement, `blame_email_hash` if no one looked.
    """

    remote: str
    branch: str
    commit: str
    lean_version: str
    path: str
    start_line: int
    start_column: int
    end_line: int
    end_column: int
    goal: str
    url: str
    blame_email_hash: str
    blame_date: str
    inclusion_date: str

    @property
    def id(self) -> str:
        """Return SorryDB's id of it."""
        content = self._parts()
        del content["metadata"]["inclusion_date"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def as_json(self) -> dict[str, Any]:
        return {**self._parts(), "id": self.id}

    def _parts(self) -> dict[str, dict[str, Any]]:
        return {part: {name: getattr(self, name) for name in names} for part, names in _PARTS.items()}

    @classmethod
    def from_json(cls, data: object, *, where: str = "the record") -> Record:
        """Read a record.

        Raises:
            SorryDBError: a part is missing or of another type.
        """
        values: dict[str, Any] = {}
        for part, names in _PARTS.items():
            fields = data.get(part) if isinstance(data, dict) else None
            for name in names:
                value = fields.get(name) if isinstance(fields, dict) else None
                expected_type = int if name.endswith(("_line", "_column")) else str
                if not isinstance(value, expected_type) or isinstance(value, bool):
                    kind = "a whole number" if expected_type is int else "a text"
                    raise SorryDBError(f"{where}: {part}.{name} should be {kind}")
                values[name] = value
        return cls(**values)


_PARTS: Mapping[str, tuple[str, ...]] = {
    "repo": ("remote", "branch", "commit", "lean_version"),
    "location": ("path", "start_line", "start_column", "end_line", "end_column"),
    "debug_info": ("goal", "url"),
    "metadata": ("blame_email_hash", "blame_date", "inclusion_date"),
}


@dataclass(frozen=True, slots=True)
class Listed:
    """The content of a list. `branches`, by address: those of its sorries; empty for a repository alone.

    Addresses stand in the order of the file, each once.
    """

    branches: Mapping[str, tuple[str, ...]]
    records: tuple[Record, ...]


def read(path: Path) -> Listed:
    """Read a list of repositories, a list of sorries or a database.

    Raises:
        SorryDBError: not a SorryDB file; nothing was imported.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(LARGEST_FILE_BYTES + 1)
    if len(data) > LARGEST_FILE_BYTES:
        raise SorryDBError(f"{path} has more than {LARGEST_FILE_BYTES >> 20} MiB; split it")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SorryDBError(f"{path} is no JSON: {error}") from error
    if not isinstance(document, dict) or not ("repos" in document or "sorries" in document):
        raise SorryDBError(
            f'{path} is no list of SorryDB\'s: it should be an object with "repos" or "sorries"'
        )
    result: dict[str, dict[str, None]] = {}
    for number, entry in enumerate(_list(path, document, "repos")):
        names = (entry.get("remote"), entry.get("remote_url")) if isinstance(entry, dict) else ()
        address = next((name for name in names if isinstance(name, str) and name), None)
        if address is None:
            raise SorryDBError(f'{path}: repos[{number}] has no "remote" and no "remote_url"')
        result.setdefault(address, {})
    records = tuple(
        Record.from_json(entry, where=f"{path}: sorries[{number}]")
        for number, entry in enumerate(_list(path, document, "sorries"))
    )
    for record in records:
        result.setdefault(record.remote, {})[record.branch] = None
    if len(result) > MOST_REPOSITORIES:
        raise SorryDBError(
            f"{path} lists {len(result):,} repositories, more than {MOST_REPOSITORIES:,}; split it"
        )
    return Listed({address: tuple(branches) for address, branches in result.items()}, records)


def is_list(path: Path) -> bool:
    """Return whether `read` can read a file.

    Raises:
        OSError: it cannot be read.
    """
    try:
        read(path)
    except SorryDBError:
        return False
    return True


def write(path: Path, content: Database) -> None:
    """Write a database, whole or not at all, in the place of an earlier one.

    Raises:
        SorryDBError: another kind of file is there.
        OSError: it cannot be written.
    """
    if path.exists() and not is_list(path):
        raise SorryDBError(f"{path} is no list of SorryDB's; name another file")
    with replaced_file(path) as file:
        file.write(json.dumps(content.document, ensure_ascii=False, indent=2).encode() + b"\n")


def _list(path: Path, document: Mapping[str, object], name: str) -> list[object]:
    value = document.get(name)
    if value is not None and not isinstance(value, list):
        raise SorryDBError(f'{path}: "{name}" should be a list')
    return value or []


@dataclass(frozen=True, slots=True)
class Database:
    """Our open sorries as SorryDB's, and the number left out, by the reason."""

    document: Mapping[str, Any]
    records: tuple[Record, ...]
    left_out: Mapping[str, int]


NO_GOAL = "Lean has not stated the goal"
NOT_A_SORRY = "SorryDB knows no `stop`"
NO_LEAN = "its branch names no Lean version"
BY_DESIGN = "it is there by design"


def database(view: sqlite3.Connection, *, repository: str | None = None, goalless: bool = False) -> Database:
    """Return the open sorries of watched branches at their scanned commits, each once for all branches.

    Args:
        goalless: also those without a goal stated by Lean; it is "" then.
    """
    branches = {(row.repository, row.branch): row for row in queries.branches(view, repository)}
    urls = {row.repository: row for row in queries.repositories(view)}
    records: list[Record] = []
    left_out: dict[str, int] = {}
    rows, _ = distinct(view, queries.sorries(view, repository=repository, state="open", watched_only=True))
    for item in describe_sorries(view, rows):
        branch = branches[item.repository, item.branch]
        lean_goal = item.goal if item.goal is not None and item.goal.stands else None
        project = project_of(item.path, branch.lake_projects)
        version = "" if project is None else project.toolchain.rpartition(":")[2]
        reason = (
            NOT_A_SORRY
            if item.token not in ("sorry", "admit")
            else BY_DESIGN
            if item.by_design
            else NO_LEAN
            if not version
            else NO_GOAL
            if lean_goal is None and not goalless
            else ""
        )
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
            continue
        goal = "" if lean_goal is None else lean_goal.goal
        records.append(_record(item, branch, urls[item.repository].url, version, goal))
    named = dict.fromkeys(record.remote for record in records)
    polled = {row.url: row.checked_at for row in urls.values()}
    document = {
        "documentation": "Open sorries of the repositories that everlean watches",
        # The hash of all heads is unknown if only some branches are watched.
        "repos": [
            {"remote_url": url, "last_time_visited": _date(polled[url]), "remote_heads_hash": None}
            for url in named
        ],
        "sorries": [record.as_json() for record in records],
    }
    return Database(document, tuple(records), left_out)


def _record(row: Sorry, branch: BranchRow, url: str, version: str, goal: str) -> Record:
    commit, seen = branch.scanned or "", _date(row.opened_at) or ""
    return Record(
        remote=url,
        branch=row.branch,
        commit=commit,
        lean_version=version,
        path=row.path,
        start_line=row.line,
        start_column=row.column,
        end_line=row.line,
        end_column=row.column + len(row.token),
        goal=goal,
        url=line_url(row.repository, commit, row.path, row.line),
        blame_email_hash="",
        blame_date=_date(row.written_at) or seen,
        inclusion_date=seen,
    )


def _date(text: str | None) -> str | None:
    """Return a moment in SorryDB's form, also for its hash."""
    return None if text is None else datetime.fromisoformat(text).isoformat()
