"""`everlean scan PATH`: the scanner on any file or folder. No daemon, no database, no Lean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.context import CliError, Json
from daemon.cli.render import emit_json, note, say, styled
from store.text import clean, counted

if TYPE_CHECKING:
    from store.domain.records import ScannedFile

SKIPPED_FOLDERS = frozenset({".git", ".lake"})


def register(app: typer.Typer) -> None:
    app.command("scan", help="List declarations and sorries of Lean files.")(scan)


@dataclass(frozen=True, slots=True)
class Totals:
    files: int
    failed: int
    """files that were not read in full"""
    declarations: int
    theorems: int
    sorries: int


@dataclass(frozen=True, slots=True)
class Scanned:
    files: list[ScannedFile]
    """by path"""
    totals: Totals
    """counts"""


def scan(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file, or a folder.")],
    as_json: Json = False,
) -> None:
    from store.domain.keywords import THEOREM_KINDS

    if not path.exists():
        raise CliError(f"{path}: no such file or folder; name a Lean file or a folder that holds some")
    if not path.is_dir() and path.suffix != ".lean":
        note(f"everlean: {clean(_text(str(path)))} is no .lean file; it is read as if it were one")
    files = [_scan_one(file, name) for file, name in _lean_files(path)]
    totals = Totals(
        files=len(files),
        failed=sum(file.error is not None for file in files),
        declarations=sum(len(file.declarations) for file in files),
        theorems=sum(item.kind in THEOREM_KINDS for file in files for item in file.declarations),
        sorries=sum(len(file.sorries) for file in files),
    )
    if as_json:
        emit_json(Scanned(files, totals))
        return
    for file in files:
        if file.error is not None:
            say(f"{clean(file.path)}: {styled('not read in full', 'red')}: {clean(file.error)}")
        for item in file.sorries:
            say(f"{clean(file.path)}:{item.line}:{item.column}: {item.token} in {clean(item.declaration)}")
    failed = f", {counted(totals.failed, 'file')} not read in full" if totals.failed else ""
    say(
        f"{counted(totals.sorries, 'sorry')} in {counted(totals.files, 'file')}: "
        f"{counted(totals.declarations, 'declaration')}, {counted(totals.theorems, 'theorem')}{failed}"
    )


def _lean_files(path: Path) -> Iterator[tuple[Path, str]]:
    """Each file with the name that it is shown under: relative to a folder, as given for a file; sorted."""
    if not path.is_dir():
        yield path, _text(str(path))
        return
    found = []
    for folder, folders, names in os.walk(path, followlinks=False):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
        for name in names:
            file = Path(folder, name)
            # A symlinked file may lead out of the folder, or be a second name of one that is listed anyway.
            if name.endswith(".lean") and not file.is_symlink():
                found.append((file, _text(file.relative_to(path).as_posix())))
    yield from sorted(found, key=lambda pair: pair[1])


def _scan_one(file: Path, name: str) -> ScannedFile:
    from pipeline.lean.source.scanner import scan_source
    from store.domain.records import ScannedFile

    try:
        data = file.read_bytes()
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}; check its permissions"
        return ScannedFile(path=name, error=reason, imports=(), declarations=(), sorries=())
    return scan_source(data, path=name)


def _text(path: str) -> str:
    """File names are bytes; one that is no UTF-8 is shown with � where it is not."""
    return os.fsencode(path).decode("utf-8", errors="replace")
