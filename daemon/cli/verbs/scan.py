"""`everlean scan PATH`: the scanner on any file or folder. No daemon, no database, no Lean."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import Call, CliError, verb
from daemon.cli.render import note, say, styled
from store.text import clean, counted

if TYPE_CHECKING:
    from store.domain.records import ScannedFile


@dataclass(frozen=True, slots=True)
class Totals:
    files: int
    failed: int
    """files not read in full"""
    declarations: int
    theorems: int
    sorries: int
    not_understood: int
    """unknown commands"""


@dataclass(frozen=True, slots=True)
class Scanned:
    files: list[ScannedFile]
    """by path"""
    totals: Totals
    """counts"""


@verb("scan", Scanned)
def scan(
    call: Call,  # noqa: ARG001 - it asks nothing of a daemon
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file, or a folder.")],
) -> Answer:
    """List declarations and sorries of Lean files."""
    from pipeline.lean.source.folder import lean_3_projects, scan_files, shown_path
    from store.domain.keywords import THEOREM_KINDS

    if not path.exists():
        raise CliError(f"{path}: no such file or folder; name a Lean file or a folder that holds some")
    if not path.is_dir() and path.suffix != ".lean":
        note(f"everlean: {clean(shown_path(str(path)))} is no .lean file; it is read as if it were one")
    for manifest in lean_3_projects(path):
        note(f"everlean: {clean(manifest)} is of a Lean 3 project, which is read as if it were Lean 4")
    result = scan_files(path)
    totals = Totals(
        files=len(result),
        failed=sum(file.error is not None for file in result),
        declarations=sum(len(file.declarations) for file in result),
        theorems=sum(item.kind in THEOREM_KINDS for file in result for item in file.declarations),
        sorries=sum(len(file.sorries) for file in result),
        not_understood=sum(len(file.not_understood) for file in result),
    )
    return Answer(Scanned(result, totals), lambda: _show(result, totals))


def _show(files: list[ScannedFile], totals: Totals) -> None:
    for file in files:
        if file.error is not None:
            say(f"{clean(file.path)}: {styled('not read in full', 'red')}: {clean(file.error)}")
        for item in file.sorries:
            say(f"{clean(file.path)}:{item.line}:{item.column}: {item.token} in {clean(item.declaration)}")
    for word, places in _by_word(files).items():
        path, line = places[0]
        times = "" if len(places) == 1 else f", and {counted(len(places) - 1, 'time')} more"
        say(f"{clean(path)}:{line}: the command {clean(word)} is not understood{times}")
    failed = f", {counted(totals.failed, 'file')} not read in full" if totals.failed else ""
    say(
        f"{counted(totals.sorries, 'sorry')} in {counted(totals.files, 'file')}: "
        f"{counted(totals.declarations, 'declaration')}, {counted(totals.theorems, 'theorem')}{failed}"
    )


def _by_word(files: Iterable[ScannedFile]) -> dict[str, list[tuple[str, int]]]:
    """Return the places of the unknown commands, by their first word."""
    places: dict[str, list[tuple[str, int]]] = {}
    for file in files:
        for item in file.not_understood:
            places.setdefault(item.word, []).append((file.path, item.line))
    return places
