"""`everlean import` and `everlean export`: other programs' files, in and out. The work is done in `store.leandojo`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.completion import repositories
from daemon.cli.context import AsOf, CliError, Config, Json, Repo, locate, view
from daemon.cli.render import emit_json, note, say, table
from daemon.instance import Instance
from store.documents.document import of_row
from store.text import clean, counted, span

if TYPE_CHECKING:
    from store.leandojo.exporting import ExportReport
    from store.leandojo.progress import ProgressReport
    from store.leandojo.reading import ImportedTrace, ImportReport

_EVERY_S = 0.2


def register(app: typer.Typer) -> None:
    imports = typer.Typer(
        help="Import the database or a dataset of LeanDojo-v2 or LeanAgent.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    imports.command(
        "leandojo", help="Import a dynamic_database.json or a dataset folder; needs the daemon stopped."
    )(take_in)
    app.add_typer(imports, name="import")
    exports = typer.Typer(
        help="Write theorems, premises and splits as the files of other programs.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    exports.command(
        "leandojo", help="Write a folder that ReProver, LeanAgent and LeanDojo-v2 read; the daemon may run."
    )(write_out)
    exports.command(
        "progress",
        help="Write the steps of all proofs, each with how many come after it: LeanProgress's dataset.",
    )(progress)
    exports.command(
        "parquet",
        help="Write the splits and the corpus as Parquet, for the library datasets; the daemon may run.",
    )(parquet)
    exports.command("sorrydb", help="Write the open sorries as a database of SorryDB; the daemon may run.")(
        to_sorrydb
    )
    exports.command(
        "lean-eval",
        help="Write the workspaces of lean-eval that are solved, to be submitted; the daemon may run.",
    )(to_lean_eval)
    app.add_typer(exports, name="export")


def take_in(
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE|DIR", help="A dynamic_database.json, or a folder with metadata.json."),
    ],
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.cli.config import loaded
    from daemon.offline import import_leandojo

    instance = locate(config)
    # Folders are read leniently, and a mistyped state_dir must not send the data to another log.
    loaded(instance.config)
    if not source.exists():
        raise CliError(f"{source}: there is no such file or folder; name what LeanDojo wrote")
    progress = _Progress()
    try:
        shown = progress if sys.stderr.isatty() else None
        report = import_leandojo(instance.paths, source, progress=shown)
    finally:
        progress.clear()
    for text in report.notes:
        note(f"everlean: note: {clean(text)}")
    if as_json:
        emit_json(_document(report), instance.head)
    else:
        _show(report)


@dataclass(frozen=True, slots=True)
class ImportedRepository:
    repository: str
    """its key; `leandojo.import/…` of a merged dataset"""
    url: str
    name: str
    commit: str
    lean_version: str
    lean_dojo_version: str
    trace: str
    already_imported: bool
    files_changed: int
    files_removed: int
    theorems: int
    tactics: int
    premises: int
    files: int


@dataclass(frozen=True, slots=True)
class Totals:
    theorems: int
    tactics: int
    premises: int
    files: int


@dataclass(frozen=True, slots=True)
class Imported:
    path: Path
    form: str
    """`database` or `dataset`"""
    already_imported: bool
    """the log had all of it, nothing was written"""
    repositories: list[ImportedRepository]
    """one for each commit"""
    totals: Totals
    """counts"""
    notes: tuple[str, ...]
    """what is odd but did no harm"""
    seconds: float
    position: int


def _document(report: ImportReport) -> Imported:
    repositories = [
        of_row(
            ImportedRepository,
            _counts([item]),
            repository=item.head.repository,
            url=item.head.url,
            name=item.head.name,
            commit=item.head.sha,
            lean_version=item.head.lean_version,
            lean_dojo_version=item.head.tracer_version,
            trace=item.recorded.trace,
            already_imported=item.recorded.repeated,
            files_changed=item.recorded.files_changed,
            files_removed=item.recorded.files_removed,
        )
        for item in report.traces
    ]
    return of_row(
        Imported,
        report,
        already_imported=report.repeated,
        repositories=repositories,
        totals=_counts(report.traces),
        seconds=round(report.seconds, 3),
    )


def _counts(traces: Sequence[ImportedTrace]) -> Totals:
    return Totals(
        theorems=sum(item.recorded.n_theorems for item in traces),
        tactics=sum(item.recorded.n_tactics for item in traces),
        premises=sum(item.recorded.n_premises for item in traces),
        files=sum(item.recorded.files_traced for item in traces),
    )


def _show(report: ImportReport) -> None:
    if report.traces:
        rows = [
            (
                item.head.repository,
                item.head.sha[:12],
                *(f"{number:,}" for number in astuple(_counts([item]))),
                _outcome(item),
            )
            for item in report.traces
        ]
        table(("repository", "commit", "theorems", "tactics", "premises", "files", ""), rows)
    totals = _counts(report.traces)
    what = ", ".join(
        (
            counted(len(report.traces), "repository"),
            counted(totals.theorems, "theorem"),
            counted(totals.tactics, "tactic"),
            counted(totals.premises, "premise"),
            counted(totals.files, "file"),
        )
    )
    verb = "already imported, nothing was written" if report.repeated else "imported"
    say(f"{report.path}: {verb}: {what}, in {span(report.seconds)}; the log is at event {report.position}")


def _outcome(item: ImportedTrace) -> str:
    if item.recorded.repeated:
        return "already imported"
    parts = [(item.recorded.files_changed, "changed"), (item.recorded.files_removed, "removed")]
    return (
        ", ".join(f"{counted(number, 'file')} {what}" for number, what in parts if number) or "order changed"
    )


class _Progress:
    """One line on standard error that says how far it has come; for terminals."""

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


_Repo = Annotated[
    list[str] | None,
    typer.Option(
        "--repo",
        metavar="R",
        help="Only this repository (key or its end); may be repeated.",
        autocompletion=repositories,
    ),
]
_Folder = Annotated[
    Path, typer.Argument(metavar="OUT", help="The folder to make; an earlier export there is replaced whole.")
]
_Simulated = Annotated[bool, typer.Option("--simulated", help="Also what the simulator made.")]


def write_out(
    out: _Folder,
    repo: _Repo = None,
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
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Also what the simulator made; metadata.json then says so.")
    ] = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    if every_commit and (compat or as_imported):
        raise typer.BadParameter(
            "--compat and --as-imported have every commit already", param_hint="--every-commit"
        )
    instance = _with_log(config, as_of)
    from store.leandojo.exporting import Mode, export_leandojo
    from store.log.reader import LogReader

    if as_imported:
        mode = Mode.AS_IMPORTED_COMPAT if compat else Mode.AS_IMPORTED
    else:
        mode = Mode.COMPAT if compat else Mode.FOR_LIFE
    with view(instance) as database, LogReader.open(instance.paths.events_db) as log:
        report = export_leandojo(
            out.absolute(),
            log=log,
            view=database,
            mode=mode,
            repositories=repo or (),
            every_commit=every_commit,
            simulated=simulated,
        )
    if as_json:
        emit_json(_exported(report), instance.head)
    else:
        _show_export(report)


def progress(
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The file to make; an earlier export there is replaced whole."),
    ],
    repo: _Repo = None,
    simulated: _Simulated = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = _with_log(config, as_of)
    from store.leandojo.progress import export_progress

    with view(instance) as database:
        report = export_progress(out.absolute(), view=database, repositories=repo or (), simulated=simulated)
    if as_json:
        emit_json(replace(report, seconds=round(report.seconds, 3)), instance.head)
    else:
        _show_progress(report)


def parquet(
    out: _Folder,
    repo: _Repo = None,
    simulated: _Simulated = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = _with_log(config, as_of)
    from store.leandojo.parquet import export_parquet
    from store.log.reader import LogReader

    with view(instance) as database, LogReader.open(instance.paths.events_db) as log:
        report = export_parquet(
            out.absolute(), log=log, view=database, repositories=repo or (), simulated=simulated
        )
    if as_json:
        emit_json(replace(report, seconds=round(report.seconds, 3)), instance.head)
        return
    table(("LIST", "THEOREMS"), [(name, f"{number:,}") for name, number in report.theorems.items()])
    if report.simulated:
        note("everlean: simulated proofs are among them")
    what = f"{counted(report.premises, 'premise')} of {counted(report.files, 'file')}"
    say(f"{report.path}: {what} as of event {report.position}, in {span(report.seconds)}")


def to_sorrydb(
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The file to make; an earlier export there is replaced whole."),
    ],
    repo: Repo = None,
    goalless: Annotated[
        bool,
        typer.Option("--goalless", help="Also sorries whose goal Lean has not stated; theirs is empty."),
    ] = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = _with_log(config, as_of)
    from store import sorrydb
    from store.documents.lookup import resolve

    path = out.absolute()
    with view(instance) as database:
        made = sorrydb.database(database, repository=resolve(database, repo), goalless=goalless)
    try:
        sorrydb.write(path, made)
    except sorrydb.SorryDBError as error:
        raise CliError(str(error)) from error
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}") from error
    repositories = len({record.remote for record in made.records})
    if as_json:
        emit_json(WrittenSorries(path, len(made.records), repositories, dict(made.left_out)), instance.head)
        return
    for reason, number in made.left_out.items():
        note(f"everlean: {counted(number, 'sorry')} left out: {reason}")
    say(f"{path}: {counted(len(made.records), 'sorry')} of {counted(repositories, 'repository')}")


def to_lean_eval(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to make; must not exist.")],
    repo: Annotated[
        str,
        typer.Option(
            "--repo",
            metavar="R",
            help="The repository with the workspaces: its key or the end of it.",
            autocompletion=repositories,
        ),
    ],
    branch: Annotated[
        str | None,
        typer.Option("--branch", metavar="B", help="Of this branch; without it, of the default one."),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    instance = _with_log(config, None)
    from daemon.results import lean_eval
    from pipeline.jobs.mirror import Mirror
    from pipeline.jobs.protocol import JobError
    from store.documents.lookup import resolve
    from store.domain.identity import slug
    from store.view import queries

    path = out.absolute()
    if path.exists():
        raise CliError(f"{path} is there already; name a new folder")
    with view(instance) as database:
        key = resolve(database, repo) or repo
        known = queries.repository(database, key)
        wanted = branch or (known.default_branch if known else None)
        row = next((row for row in queries.branches(database, key) if row.branch == wanted), None)
        if row is None:
            raise CliError(
                f"{key} has no branch {wanted or 'that is the default one'}; name one with --branch"
            )
        try:
            with Mirror(instance.paths.mirrors / f"{slug(key)}.git") as mirror:
                found, left_out = lean_eval.solved(database, mirror, row)
        except JobError as error:
            raise CliError(clean(str(error))) from error
    if found:
        try:
            lean_eval.write(found, path)
        except OSError as error:
            raise CliError(f"{error.filename or path}: {error.strerror or error}") from error
    if as_json:
        workspaces = [SolvedWorkspace(one.problem, one.folder, list(one.proofs)) for one in found]
        emit_json(Submission(path if found else None, row.scanned, workspaces, left_out), instance.head)
        return
    for folder, reason in left_out.items():
        note(f"everlean: left out {clean(folder)}: {clean(reason)}")
    if not found:
        say("no workspace is solved; nothing is written")
        return
    say(f"{path}: {counted(len(found), 'problem')}: {', '.join(one.problem for one in found)}")
    say(
        "next: run `lake test` in each workspace with these files, then push the folder and open a submission at"
    )
    say("https://github.com/leanprover/lean-eval-submissions/issues/new?template=submit.yml")


@dataclass(frozen=True, slots=True)
class SolvedWorkspace:
    problem: str
    """its id"""
    folder: str
    """in the repository"""
    proofs: list[str]
    """their ids"""


@dataclass(frozen=True, slots=True)
class Submission:
    path: Path | None
    """null where none is solved: nothing is written then"""
    commit: str | None
    workspaces: list[SolvedWorkspace]
    left_out: dict[str, str]
    """why a workspace with a proof is not in it, by folder"""


@dataclass(frozen=True, slots=True)
class WrittenSorries:
    path: Path
    sorries: int
    """how many are in it"""
    repositories: int
    """how many they are of"""
    left_out: dict[str, int]
    """how many open sorries are not in it, by the reason"""


def _with_log(config: Path | None, as_of: str | None) -> Instance:
    instance = locate(config, as_of)
    if not instance.paths.events_db.exists():
        raise CliError(f"{instance.paths.events_db}: no log there; start the daemon, or import something")
    return instance


@dataclass(frozen=True, slots=True)
class ExportedRepository:
    url: str
    commit: str
    in_dataset: bool
    """it is in the splits and the corpus"""


@dataclass(frozen=True, slots=True)
class Exported:
    path: Path
    mode: str
    """`for life`, `compat`, `as imported`, `as imported, compat`"""
    position: int
    simulated: bool
    repositories: list[ExportedRepository]
    """one for each commit"""
    theorems: dict[str, int]
    """how many by list, such as `random/train`"""
    withheld: dict[str, int]
    """by split, theorems in no list: training on them would give a test away"""
    corpus_files: int
    """files in `corpus.jsonl`"""
    files_renamed: int
    """of these, files of another name than their path"""
    imports_left_out: int
    """imports of files that were not traced"""
    files_untraced: int
    """lines of `corpus.jsonl` without premises"""
    seconds: float


def _exported(report: ExportReport) -> Exported:
    return of_row(
        Exported,
        report,
        mode=report.mode.value,
        repositories=[
            ExportedRepository(item["url"], item["commit"], in_dataset)
            for item, in_dataset in report.repositories
        ],
        seconds=round(report.seconds, 3),
    )


def _show_export(report: ExportReport) -> None:
    if report.theorems:
        table(("LIST", "THEOREMS"), [(name, f"{number:,}") for name, number in report.theorems.items()])
    for split, number in report.withheld.items():
        if number:
            note(
                f"everlean: {split}: {counted(number, 'theorem')} in no list: training on them would give a test away"
            )
    if report.files_renamed:
        note(
            f"everlean: {counted(report.files_renamed, 'file')} of the corpus renamed: another repository has the path"
        )
    if report.imports_left_out:
        note(
            f"everlean: {counted(report.imports_left_out, 'import')} left out, of files that were not traced"
        )
    if report.files_untraced:
        note(
            f"everlean: {counted(report.files_untraced, 'file')} of the corpus without premises: proofs name them and "
            "they were not traced"
        )
    what = counted(len(report.repositories), "repository")
    say(f"{report.path}: {what} as of event {report.position}, in {span(report.seconds)}")


def _show_progress(report: ProgressReport) -> None:
    rows = [(side, f"{report.proofs[side]:,}", f"{report.steps[side]:,}") for side in report.proofs]
    table(("SIDE", "PROOFS", "STEPS"), rows)
    if report.repeated:
        note(f"everlean: {counted(report.repeated, 'proof')} left out that another one repeats word for word")
    if report.simulated:
        note("everlean: simulated proofs are among them")
    say(f"{report.path}: as of event {report.position}, in {span(report.seconds)}")
