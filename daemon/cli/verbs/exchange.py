"""`everlean import` and `everlean export`: other programs' files, in and out."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.completion import repositories
from daemon.cli.context import GROUPS, Call, CliError, files, verb
from daemon.cli.options import Repo
from daemon.cli.render import note, say, table
from store.text import clean, counted, span

if TYPE_CHECKING:
    import sqlite3

    from daemon.results.lean_eval import Submission
    from store.leandojo.exporting import Exported
    from store.leandojo.progress import ProgressReport
    from store.leandojo.reading import Imported

GROUPS["import"] = "Import the database or a dataset of LeanDojo-v2 or LeanAgent."
GROUPS["export"] = "Write theorems, premises and splits as the files of other programs."
_EVERY_S = 0.2

_Repos = Annotated[
    list[str] | None,
    typer.Option(
        "--repo",
        metavar="R",
        help="Only this repository: its key, or a part that only it has; may be repeated.",
        autocompletion=repositories,
    ),
]
_File = Annotated[
    Path,
    typer.Argument(metavar="OUT", help="The file to make; an earlier export there is replaced whole."),
]


@dataclass(frozen=True, slots=True)
class WrittenSorries:
    path: Path
    sorries: int
    """number of sorries in the file"""
    repositories: int
    """number of repositories they come from"""
    left_out: dict[str, int]
    """number of open sorries left out, by reason"""


@verb("import leandojo", "store.leandojo.reading:Imported")
def take_in(
    call: Call,
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE|DIR", help="A dynamic_database.json, or a folder with metadata.json."),
    ],
) -> Answer:
    """Import a dynamic_database.json or a dataset folder; needs the daemon stopped."""
    from daemon.cli.offline import import_leandojo

    # Folders are read leniently, and a mistyped state_dir must not send the data to another log.
    assert call.settings
    if not source.exists():
        raise CliError(f"{source}: no such file or folder; name one of LeanDojo's")
    progress = _Progress()
    try:
        display = progress if sys.stderr.isatty() else None
        result = import_leandojo(call.instance.paths, source, progress=display)
    finally:
        progress.clear()
    for text in result.notes:
        note(f"everlean: note: {clean(text)}")
    return Answer(result, lambda: _show_import(result))


def _show_import(done: Imported) -> None:
    if done.repositories:
        rows = [
            (
                item.repository,
                item.commit[:12],
                *(f"{number:,}" for number in (item.theorems, item.tactics, item.premises, item.files)),
                item.outcome,
            )
            for item in done.repositories
        ]
        table(("repository", "commit", "theorems", "tactics", "premises", "files", ""), rows)
    nouns = ("theorem", "tactic", "premise", "file")
    numbers = zip((len(done.repositories), *astuple(done.totals)), ("repository", *nouns), strict=True)
    what = ", ".join(counted(number, noun) for number, noun in numbers)
    how = "already imported, nothing was written" if done.already_imported else "imported"
    say(f"{done.path}: {how}: {what}, in {span(done.seconds)}; the log is at event {done.position}")


class _Progress:
    """One line of progress on standard error; for terminals."""

    def __init__(self) -> None:
        self._shown_at = 0.0
        self._what = ""

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what == self._what and now - self._shown_at < _EVERY_S:
            return
        self._what, self._shown_at = what, now
        sys.stderr.write(f"\r\x1b[K{what} {done / max(total, 1):.0%}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._what:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@verb("export leandojo", "store.leandojo.exporting:Exported", past=True)
def write_out(
    call: Call,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The folder to make; an earlier export there is replaced whole."),
    ],
    repo: _Repos = None,
    every_commit: Annotated[
        bool,
        typer.Option("--every-commit", help="All imported commits of a repository, not the newest alone."),
    ] = False,
    compat: Annotated[
        bool, typer.Option("--compat", help="LeanDojo-v2's own merge, splits and bare Infinity.")
    ] = False,
    as_imported: Annotated[
        bool, typer.Option("--as-imported", help="Give an import back as it was: its files, in its order.")
    ] = False,
) -> Answer:
    """Write a dataset for ReProver, LeanAgent and LeanDojo-v2."""
    from store.leandojo.exporting import Mode, export_leandojo

    if every_commit and (compat or as_imported):
        raise typer.BadParameter(
            "--compat and --as-imported have every commit already", param_hint="--every-commit"
        )
    if as_imported:
        mode = Mode.AS_IMPORTED_COMPAT if compat else Mode.AS_IMPORTED
    else:
        mode = Mode.COMPAT if compat else Mode.FOR_LIFE
    with call.view() as database, call.log() as log:
        result = export_leandojo(
            out.absolute(),
            log=log,
            view=database,
            mode=mode,
            repositories=_traced(database, repo),
            every_commit=every_commit,
        )
    return Answer(result, lambda: _show_export(result))


def _traced(database: sqlite3.Connection, names: Sequence[str] | None) -> list[str]:
    """Return the keys of the traced repositories with these names; the names if none is traced."""
    from store.documents.lookup import one_of
    from store.view.trace_queries import traces

    keys = sorted({row.repository for row in traces(database)})
    return [one_of(keys, name, lists="everlean curriculum") if keys else name for name in names or ()]


def _show_export(done: Exported) -> None:
    if done.theorems:
        table(("LIST", "THEOREMS"), [(name, f"{number:,}") for name, number in done.theorems.items()])
    for split, number in done.withheld.items():
        if number:
            note(
                f"everlean: {split}: {counted(number, 'theorem')} in no list: training on them would give a test away"
            )
    for number, what, why in (
        (done.files_renamed, "file", "of the corpus renamed: another repository has the path"),
        (done.imports_left_out, "import", "left out, of files that were not traced"),
        (
            done.files_untraced,
            "file",
            "of the corpus without premises: proofs name them and they were not traced",
        ),
    ):
        if number:
            note(f"everlean: {counted(number, what)} {why}")
    what = counted(len(done.repositories), "repository")
    say(f"{done.path}: {what} as of event {done.position}, in {span(done.seconds)}")


@verb("export progress", "store.leandojo.progress:ProgressReport", past=True)
def progress(
    call: Call,
    out: _File,
    repo: _Repos = None,
) -> Answer:
    """Write LeanProgress's dataset: each proof step, and the number of steps after it."""
    from store.leandojo.progress import export_progress

    with call.view() as database:
        report = export_progress(out.absolute(), view=database, repositories=_traced(database, repo))
    result = replace(report, seconds=round(report.seconds, 3))
    return Answer(result, lambda: _show_progress(result))


def _show_progress(report: ProgressReport) -> None:
    if report.repeated:
        note(f"everlean: {counted(report.repeated, 'proof')} left out that another one repeats word for word")
    what = f"{counted(report.steps, 'step')} of {counted(report.proofs, 'proof')}"
    say(f"{report.path}: {what} as of event {report.position}, in {span(report.seconds)}")


@verb("export sorrydb", WrittenSorries, past=True)
def to_sorrydb(
    call: Call,
    out: _File,
    repo: Repo = None,
    goalless: Annotated[
        bool,
        typer.Option("--goalless", help="Also sorries whose goal Lean has not stated; theirs is empty."),
    ] = False,
) -> Answer:
    """Write the open sorries as a database of SorryDB."""
    from store import sorrydb
    from store.documents.lookup import resolve

    path = out.absolute()
    with call.view() as database:
        result = sorrydb.database(database, repository=resolve(database, repo), goalless=goalless)
    with files("name a file that can be written"):
        sorrydb.write(path, result)
    done = WrittenSorries(
        path, len(result.records), len({record.remote for record in result.records}), dict(result.left_out)
    )
    text = f"{path}: {counted(done.sorries, 'sorry')} of {counted(done.repositories, 'repository')}"
    reasons = (f"{counted(number, 'sorry')} left out: {reason}" for reason, number in done.left_out.items())
    return Answer(done, lambda: _tell(reasons, text))


@verb("export lean-eval", "daemon.results.lean_eval:Submission")
def to_lean_eval(
    call: Call,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make; must not exist.")],
    repo: Annotated[
        str,
        typer.Option(
            "--repo",
            metavar="R",
            help="The repository with the workspaces: its key, or a part that only it has.",
            autocompletion=repositories,
        ),
    ],
    branch: Annotated[
        str | None,
        typer.Option("--branch", metavar="B", help="Of this branch; without it, of the default one."),
    ] = None,
) -> Answer:
    """Write the solved workspaces of lean-eval for submission."""
    from daemon.results import lean_eval
    from store.documents.lookup import repository_named

    with call.view() as database, files("name a new folder"):
        result = lean_eval.submit(
            database,
            call.instance.paths.mirrors,
            out.absolute(),
            repository=repository_named(database, repo),
            branch=branch,
        )
    reasons = (f"left out {clean(folder)}: {clean(reason)}" for folder, reason in result.left_out.items())
    return Answer(result, lambda: _tell(reasons, _submitted(result)))


def _submitted(done: Submission) -> str:
    if done.path is None:
        return "no workspace is solved; nothing is written"
    names = ", ".join(one.problem for one in done.workspaces)
    return (
        f"{done.path}: {counted(len(done.workspaces), 'problem')}: {names}\n"
        "next: run `lake test` in each workspace with these files, then push the folder and open a submission at\n"
        "https://github.com/leanprover/lean-eval-submissions/issues/new?template=submit.yml"
    )


def _tell(reasons: Iterable[str], sentence: str) -> None:
    for reason in reasons:
        note(f"everlean: {reason}")
    say(sentence)
