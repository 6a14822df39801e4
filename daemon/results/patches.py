"""Patch files for people, re-made from the log whenever one is missing.

Owns the folder `patches/`. A patch is a file named after its declaration and its proof, complete or not there.
A proof that was rejected after all has none any more: its file is taken away. What the simulator found is only
written when its text says so in the first line, whatever made the text.
"""

from __future__ import annotations

import os
import re
import sqlite3
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from daemon.paths import slug
from daemon.store_service import StoreService
from store.log.reader import LogReader
from store.view import queries

_UNSAFE = re.compile(r"[^\w.'!?-]")
_LONGEST_NAME_BYTES = 150
_OFFERED = ("candidate", "verified")
SIMULATED_MARK = "SIMULATED"
SIMULATED_NOTE = f"{SIMULATED_MARK}: found by the simulator, not by Lean. This is not a proof."


@dataclass(frozen=True, slots=True)
class Patch:
    """The path of a proof's patch and its blob; None for a proof without a patch."""

    path: Path
    sha256: str | None
    simulated: bool


def patch_path(folder: Path, *, repository: str, declaration: str, proof: str) -> Path:
    """Return the file of a proof's patch, always directly inside the repository's own folder."""
    name = _UNSAFE.sub("_", declaration).lstrip(".").encode()[:_LONGEST_NAME_BYTES].decode(errors="ignore")
    return folder / slug(repository) / f"{name or '_'}-{_UNSAFE.sub('_', proof)[:64]}.patch"


async def write_missing(
    store: StoreService, folder: Path, *, proofs: frozenset[str] | None = None
) -> list[Path]:
    """Write the patches (of these proofs, or of all) that are not there; return their paths.

    Raises:
        OSError: the folder cannot be written.
        LogError: a patch's text cannot be read from the log.
    """
    wanted = await store.ask(partial(_wanted, folder=folder, proofs=proofs))
    # On the reader's thread: a blob is decompressed and a file fsynced.
    return [patch.path for patch in wanted if await store.look_up(partial(_write, patch=patch))]


def _wanted(view: sqlite3.Connection, *, folder: Path, proofs: frozenset[str] | None) -> list[Patch]:
    return [
        Patch(
            patch_path(folder, repository=row.repository, declaration=row.declaration, proof=row.proof),
            row.patch_sha256 if row.state in _OFFERED else None,
            row.simulated,
        )
        for row in queries.proofs(view)
        if proofs is None or row.proof in proofs
    ]


def _write(log: LogReader, *, patch: Patch) -> bool:
    if patch.sha256 is None:
        patch.path.unlink(missing_ok=True)
        return False
    if patch.path.exists():
        return False
    text = log.blob(patch.sha256)
    if patch.simulated and not text.startswith(SIMULATED_MARK.encode()):
        # No text may leave the house that could be taken for a proof.
        text = SIMULATED_NOTE.encode() + b"\n\n" + text
    patch.path.parent.mkdir(parents=True, exist_ok=True)
    temporary = patch.path.with_name(f".{patch.path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(patch.path)
    return True
