"""`unsorry import`: take in what another program made. The work is done in `store.leandojo`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daemon.cli.context import CliError, Config, ExitCode, Json, locate
from daemon.cli.render import clean, counted, emit_json, note, say, span, table
from daemon.lock import AlreadyRunningError, DaemonLock

if TYPE_CHECKING:
    from store.leandojo.reading import ImportedTrace, ImportReport

_EVERY_S = 0.2


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Import the database or a dataset of LeanDojo-v2 or LeanAgent.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command(
        "leandojo", help="Import a dynamic_database.json or a dataset folder; needs the daemon stopped."
    )(leandojo)
    app.add_typer(group, name="import")


def leandojo(
    source: Annotated[
        Path,
        typer.Argument(metavar="FILE|DIR", help="A dynamic_database.json, or a folder with metadata.json."),
    ],
    config: Config = None,
    as_json: Json = False,
) -> None:
    from daemon.cli.config import refuse
    from daemon.settings import ConfigError, load
    from store.leandojo.reading import import_leandojo

    place = locate(config)
    try:
        # Folders are read leniently, and a mistyped state_dir must not send the data to another log.
        load(place.config)
    except ConfigError as error:
        refuse(error)
        raise typer.Exit(ExitCode.BAD_CONFIG) from error
    if not source.exists():
        raise CliError(f"{source}: there is no such file or folder; name what LeanDojo wrote")
    try:
        # Held to the end: the daemon and an import would write the same log.
        lock = DaemonLock.acquire(place.paths.lock, purpose="unsorry import")
    except AlreadyRunningError as error:
        raise CliError(str(error), code=ExitCode.ALREADY_RUNNING) from error
    progress = _Progress()
    try:
        report = import_leandojo(
            source,
            events_db=place.paths.events_db,
            database_db=place.paths.database_db,
            stage=place.paths.state / "import",
            progress=progress if sys.stderr.isatty() else None,
        )
    finally:
        progress.clear()
        lock.release()
    for text in report.notes:
        note(f"unsorry: note: {clean(text)}")
    if as_json:
        emit_json({"daemon": {"running": False, "pid": None}, **_document(report)})
    else:
        _show(report)


def _document(report: ImportReport) -> dict[str, Any]:
    return {
        "path": str(report.path),
        "form": report.form,
        "already_imported": report.repeated,
        "repositories": [
            {
                "repository": item.head.repository,
                "url": item.head.url,
                "name": item.head.name,
                "commit": item.head.sha,
                "lean_version": item.head.lean_version,
                "lean_dojo_version": item.head.tracer_version,
                "trace": item.recorded.trace,
                "already_imported": item.recorded.repeated,
                "files_changed": item.recorded.files_changed,
                "files_removed": item.recorded.files_removed,
                **_counts([item]),
            }
            for item in report.traces
        ],
        "totals": _counts(report.traces),
        "notes": list(report.notes),
        "seconds": round(report.seconds, 3),
        "position": report.position,
    }


def _counts(traces: list[ImportedTrace] | tuple[ImportedTrace, ...]) -> dict[str, int]:
    return {
        "theorems": sum(item.recorded.n_theorems for item in traces),
        "tactics": sum(item.recorded.n_tactics for item in traces),
        "premises": sum(item.recorded.n_premises for item in traces),
        "files": sum(item.recorded.files_traced for item in traces),
    }


def _show(report: ImportReport) -> None:
    if report.traces:
        rows = [
            (
                item.head.repository,
                item.head.sha[:12],
                *(f"{number:,}" for number in _counts([item]).values()),
                _outcome(item),
            )
            for item in report.traces
        ]
        table(("repository", "commit", "theorems", "tactics", "premises", "files", ""), rows)
    totals = _counts(report.traces)
    what = ", ".join(
        (
            counted(len(report.traces), "repository"),
            counted(totals["theorems"], "theorem"),
            counted(totals["tactics"], "tactic"),
            counted(totals["premises"], "premise"),
            counted(totals["files"], "file"),
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
