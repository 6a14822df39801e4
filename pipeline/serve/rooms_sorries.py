"""Which sorry of a file a client means, and the patch that puts a text in its place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from pipeline.lean.source.scanner import scan_source
from pipeline.lean.source.splice import Replacement, splice
from pipeline.prove.attempt import Wanted
from pipeline.serve.problems import Problem
from pipeline.serve.rooms_checkouts import no_view
from pipeline.serve.wire import WHOLE
from store.domain.identity import git_blob, sorry_id
from store.domain.records import ScannedFile, Sorry
from store.log.errors import LogError
from store.view.queries import basic as queries
from store.view.rows import SorryRow

_SHOWN = 10
_STANDING = frozenset({"open", "verified"})
"""The states of a sorry that is in the branch's newest file."""


class SorryPlace(BaseModel):
    """Which sorry of the file: by its id, by its declaration, or by where it stands. What is given has to fit."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = Field(
        default=None, description="As `unsorry sorries` has it; then the path may be left out."
    )
    declaration: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="The full name of the declaration that it stands in."
    )
    ordinal: Annotated[int, Field(ge=0), WHOLE] | None = Field(
        default=None, description="Which one of the declaration's sorrys, from 0."
    )
    line: Annotated[int, Field(ge=1), WHOLE] | None = Field(default=None, description="From 1.")
    column: Annotated[int, Field(ge=1), WHOLE] | None = Field(
        default=None, description="From 1, in code points: any column of the word."
    )


class SorryFound(BaseModel):
    """A sorry of the file. Lines and columns from 1, columns in code points."""

    model_config = ConfigDict(frozen=True)

    id: str
    declaration: str
    ordinal: int
    line: int
    column: int
    byte_start: int
    byte_end: int


@dataclass(frozen=True, slots=True)
class File:
    """A file with its sorrys. `known` is what the view has of the sorry that was named by its id."""

    repository: str
    path: str
    data: bytes
    scanned: ScannedFile
    known: SorryRow | None = None

    @classmethod
    def read(cls, repository: str, path: str, data: bytes, *, known: SorryRow | None = None) -> File:
        """Scan a file.

        Raises:
            Problem: 422, it cannot be read as Lean.
        """
        scanned = scan_source(data, path=path)
        if scanned.error is not None:
            raise Problem(
                422, "unreadable_file", f"{path}: {scanned.error}", "send a file that Lean could read"
            )
        return cls(repository, path, data, scanned, known)

    def one(self, place: SorryPlace | None) -> Sorry:
        """Return the sorry that is meant.

        Raises:
            Problem: none is, or more than one.
        """
        fitting = self.fitting(place)
        if len(fitting) == 1:
            return fitting[0]
        known = self.known
        if (
            not fitting
            and known is not None
            and any(_stands_as(known, sorry) for sorry in self.scanned.sorries)
        ):
            raise Problem(
                409,
                "other_statement",
                f"{self.path} states {known.declaration} otherwise than it was when sorry {known.sorry} was seen",
                "send the file with the statement as it was, or name the sorry by its declaration or its line",
            )
        some = fitting or self.scanned.sorries
        there = ", ".join(f"{one.declaration} (line {one.line})" for one in some[:_SHOWN]) or "none"
        if fitting:
            raise Problem(
                409,
                "which_sorry",
                f"{self.path} has {len(fitting)} sorrys that may be meant: {there}",
                "say which: sorry.declaration and sorry.ordinal, or sorry.line and sorry.column",
            )
        raise Problem(
            404,
            "no_such_sorry",
            f"{self.path} has no sorry there; it has {there}",
            "name one of these, or send the text of the file that you mean",
        )

    def fitting(self, place: SorryPlace | None) -> list[Sorry]:
        """Return the sorrys that a place may mean; without one, all."""
        asked = place or SorryPlace()
        known = self.known
        return [
            sorry
            for sorry in self.scanned.sorries
            if (known is None or self._is(known, sorry))
            and asked.declaration in (None, sorry.declaration)
            and asked.ordinal in (None, sorry.ordinal)
            and asked.line in (None, sorry.line)
            and (
                asked.column is None
                or 0 <= asked.column - 1 - sorry.column < sorry.byte_end - sorry.byte_start
            )
        ]

    def id_of(self, sorry: Sorry) -> str:
        """Return the sorry's id: the view's where it is the known one, else the one that a scan would give it."""
        if self.known is not None and self._is(self.known, sorry):
            return self.known.sorry
        return sorry_id(self.repository, sorry.declaration, self._statement_hash(sorry), sorry.ordinal)

    def _is(self, known: SorryRow, sorry: Sorry) -> bool:
        # Its name alone does not make it that sorry: the text may be a client's, and state anything.
        return _stands_as(known, sorry) and self._statement_hash(sorry) == known.statement_hash

    def _statement_hash(self, sorry: Sorry) -> str:
        return self.scanned.declarations[sorry.index].statement_hash

    def told(self, sorry: Sorry) -> SorryFound:
        return SorryFound(
            id=self.id_of(sorry),
            declaration=sorry.declaration,
            ordinal=sorry.ordinal,
            line=sorry.line,
            column=sorry.column + 1,
            byte_start=sorry.byte_start,
            byte_end=sorry.byte_end,
        )

    def wanted(self, sorry: Sorry, *, blob: str) -> Wanted:
        """Return the sorry as a prove job is asked for it."""
        return Wanted(
            sorry=self.id_of(sorry),
            path=self.path,
            blob=blob,
            byte_start=sorry.byte_start,
            byte_end=sorry.byte_end,
            declaration=sorry.declaration,
            kind=self.scanned.declarations[sorry.index].kind,
            ordinal=sorry.ordinal,
        )

    def blob(self, *, like: str) -> str:
        """Return git's id of the file, in the hash that `like` is in."""
        return git_blob(self.data, like=like)

    def text_hash(self, sorry: Sorry, proof: str) -> str:
        """Return the scanner's hash of the declaration with the proof; "" where it is no declaration any more."""
        patched = splice(self.data, Replacement(sorry.byte_start, sorry.byte_end, proof))
        declarations = scan_source(patched, path=self.path).declarations
        inside = [one for one in declarations if one.byte_start <= sorry.byte_start < one.byte_end]
        return max(inside, key=lambda one: one.byte_start).text_hash if inside else ""


def _stands_as(known: SorryRow, sorry: Sorry) -> bool:
    return (sorry.declaration, sorry.ordinal) == (known.declaration, known.ordinal)


def known_sorry(view: Path, *, repository: str, sorry: str, branch: str | None) -> SorryRow:
    """Return what the view has of a sorry that stands on a branch; None: on any.

    Raises:
        Problem: 404, there is none of this id; 409, it is not the same one on every branch; 503, the view cannot be
            read.
    """
    try:
        with closing(queries.connect(view)) as db:
            rows: Sequence[SorryRow] = queries.sorries_by_prefix(db, sorry)
    except LogError as error:
        raise no_view(error) from error
    rows = [
        row
        for row in rows
        if row.repository == repository and branch in (None, row.branch) and row.state in _STANDING
    ]
    if not rows:
        where = repository if branch is None else f"branch {branch} of {repository}"
        raise Problem(
            404,
            "unknown_sorry",
            f"{where} has no sorry {sorry} that is open",
            "see `unsorry sorries`; give the whole id",
        )
    if len({(row.path, row.declaration, row.ordinal, row.statement_hash) for row in rows}) > 1:
        branches = ", ".join(row.branch for row in rows[:_SHOWN])
        raise Problem(
            409,
            "which_branch",
            f"sorry {sorry} of {repository} is not the same on each of {branches}",
            "name the branch",
        )
    return rows[0]
