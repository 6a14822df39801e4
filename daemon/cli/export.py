"""`unsorry export`: write what the database holds as other programs' files. The work is done in `store.leandojo`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.completion import repositories
from daemon.cli.context import AsOf, CliError, Config, Json, Place, locate, view
from daemon.cli.render import counted, emit_json, note, say, span, table

if TYPE_CHECKING:
    from store.leandojo.exporting import ExportReport
    from store.leandojo.progress import ProgressReport


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Write theorems, premises and splits as the files of other programs.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command(
        "leandojo", help="Write a folder that ReProver, LeanAgent and LeanDojo-v2 read; the daemon may run."
    )(leandojo)
    group.command(
        "progress",
        help="Write the steps of all proofs, each with how many come after it: LeanProgress's dataset.",
    )(progress)
    app.add_typer(group, name="export")


_Repo = Annotated[
    list[str] | None,
    typer.Option(
        "--repo",
        metavar="R",
        help="Only this repository (key or its end); may be repeated.",
        autocompletion=repositories,
    ),
]


def leandojo(
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The folder to make; an earlier export there is replaced whole."),
    ],
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
    place = _with_log(config, as_of)
    from store.leandojo.exporting import Mode, export_leandojo
    from store.log.reader import LogReader

    if as_imported:
        mode = Mode.AS_IMPORTED_COMPAT if compat else Mode.AS_IMPORTED
    else:
        mode = Mode.COMPAT if compat else Mode.FOR_LIFE
    with view(place) as database, LogReader.open(place.paths.events_db) as log:
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
        emit_json({**place.head, **_document(report)})
    else:
        _show(report)


def progress(
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The file to make; an earlier export there is replaced whole."),
    ],
    repo: _Repo = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Also what the simulator made.")] = False,
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    place = _with_log(config, as_of)
    from store.leandojo.progress import export_progress

    with view(place) as database:
        report = export_progress(out.absolute(), view=database, repositories=repo or (), simulated=simulated)
    if as_json:
        emit_json({**place.head, **asdict(report), "seconds": round(report.seconds, 3)})
    else:
        _show_progress(report)


def _with_log(config: Path | None, as_of: str | None) -> Place:
    place = locate(config, as_of)
    if not place.paths.events_db.exists():
        raise CliError(f"{place.paths.events_db}: no log there; start the daemon, or import something")
    return place


def _document(report: ExportReport) -> dict[str, Any]:
    return {
        "path": report.path,
        "mode": report.mode.value,
        "position": report.position,
        "simulated": report.simulated,
        "repositories": [
            {"url": item["url"], "commit": item["commit"], "in_dataset": in_dataset}
            for item, in_dataset in report.repositories
        ],
        "theorems": report.theorems,
        "withheld": report.withheld,
        "corpus_files": report.corpus_files,
        "files_renamed": report.files_renamed,
        "imports_left_out": report.imports_left_out,
        "files_untraced": report.files_untraced,
        "seconds": round(report.seconds, 3),
    }


def _show(report: ExportReport) -> None:
    if report.theorems:
        table(("LIST", "THEOREMS"), [(name, f"{number:,}") for name, number in report.theorems.items()])
    for split, number in report.withheld.items():
        if number:
            note(
                f"unsorry: {split}: {counted(number, 'theorem')} in no list: training on them would give a test away"
            )
    if report.files_renamed:
        note(
            f"unsorry: {counted(report.files_renamed, 'file')} of the corpus renamed: another repository has the path"
        )
    if report.imports_left_out:
        note(f"unsorry: {counted(report.imports_left_out, 'import')} left out, of files that were not traced")
    if report.files_untraced:
        note(
            f"unsorry: {counted(report.files_untraced, 'file')} of the corpus without premises: proofs name them and "
            "they were not traced"
        )
    what = counted(len(report.repositories), "repository")
    say(f"{report.path}: {what} as of event {report.position}, in {span(report.seconds)}")


def _show_progress(report: ProgressReport) -> None:
    rows = [(side, f"{report.proofs[side]:,}", f"{report.steps[side]:,}") for side in report.proofs]
    table(("SIDE", "PROOFS", "STEPS"), rows)
    if report.repeated:
        note(f"unsorry: {counted(report.repeated, 'proof')} left out that another one repeats word for word")
    if report.simulated:
        note("unsorry: simulated proofs are among them")
    say(f"{report.path}: as of event {report.position}, in {span(report.seconds)}")
