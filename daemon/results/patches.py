"""Patch files for people, re-made from the log whenever one is missing.

Owns the folder `patches/`. A patch is a file named after its declaration and its proof, complete or not
there: a killed daemon's unfinished files are removed when the next one writes them all.

A proof rejected after all has none any more: its file is taken away. A file holds the mail of the last record
(`daemon.results.mail`): one of an earlier check is written anew.
"""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from daemon.results.mail import first_line, mail
from daemon.state.store_service import StoreService
from store.domain.identity import slug
from store.files import write_whole
from store.log.reader import LogReader
from store.view import queries
from store.view.rows import ProofRow

_UNSAFE = re.compile(r"[^\w.'!?-]")
_LONGEST_NAME_BYTES = 150
_OFFERED = ("candidate", "verified")


@dataclass(frozen=True, slots=True)
class Patch:
    """The path of a proof's patch, the proof, and its blob; None for a proof without a patch."""

    path: Path
    row: ProofRow
    sha256: str | None


def patch_path(folder: Path, *, repository: str, declaration: str, proof: str) -> Path:
    """Return the file of a proof's patch, always directly inside the repository's own folder."""
    name = _UNSAFE.sub("_", declaration).lstrip(".").encode()[:_LONGEST_NAME_BYTES].decode(errors="ignore")
    return folder / slug(repository) / f"{name or '_'}-{_UNSAFE.sub('_', proof)[:64]}.patch"


def without_proof(view: sqlite3.Connection, folder: Path) -> list[Path]:
    """Return the patches on disk without a proof in the view: the log with it was lost."""
    paths = {
        patch_path(folder, repository=row.repository, declaration=row.declaration, proof=row.proof)
        for row in queries.proofs(view)
    }
    return sorted(path for path in folder.glob("*/*.patch") if path not in paths)


async def write_missing(
    store: StoreService, folder: Path, *, author: str, proofs: frozenset[str] | None = None
) -> list[Path]:
    """Write the missing or wrong patches (of these proofs, or of all); return their paths.

    Raises:
        OSError: the folder cannot be written.
        LogError: a patch's text cannot be read from the log.
    """
    due = await store.ask(partial(_due_patches, folder=folder, proofs=proofs))
    if proofs is None:
        await store.look_up(lambda _: _remove_halves(folder))
    # On the reader's thread: a blob is decompressed and a file fsynced.
    return [patch.path for patch in due if await store.look_up(partial(_write, patch=patch, author=author))]


def _due_patches(view: sqlite3.Connection, *, folder: Path, proofs: frozenset[str] | None) -> list[Patch]:
    return [
        Patch(
            patch_path(folder, repository=row.repository, declaration=row.declaration, proof=row.proof),
            row,
            row.patch_sha256 if row.state in _OFFERED else None,
        )
        for row in queries.proofs(view)
        if proofs is None or row.proof in proofs
    ]


def _write(log: LogReader, *, patch: Patch, author: str) -> bool:
    if patch.sha256 is None:
        patch.path.unlink(missing_ok=True)
        return False
    if _begins_with(patch.path, first_line(patch.row, author)):
        return False
    text = mail(patch.row, log.blob(patch.sha256), author)
    patch.path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(patch.path, text)
    return True


def _remove_halves(folder: Path) -> None:
    for half in folder.glob("*/.*.patch.*.tmp"):
        half.unlink(missing_ok=True)


def _begins_with(path: Path, line: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(line)) == line
    except FileNotFoundError:
        return False
