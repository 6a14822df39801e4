"""`unsorry db`: the log and its view: verify, rebuild, check, back up, look back. The work is done in `store`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.context import CliError, Config, ExitCode, Instance, Json, locate, view
from daemon.cli.events import summary
from daemon.cli.render import by_state, clean, counted, emit_json, fields, note, say, size
from daemon.lock import AlreadyRunningError, DaemonLock

RESTORE = (
    "To restore: stop the daemon, move events.db, events.db-wal, events.db-shm and events.db-anchor aside (a -wal left "
    "there would damage the copy, and the anchor says where the old log ended), put {what} in the place of events.db, "
    "run `unsorry db rebuild`"
)

DAMAGED = (
    "Restore the last backup if it goes further than what is sound; otherwise stop the daemon and run `unsorry db "
    "recover`, which keeps what is sound as a new branch of history"
)


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Verify, rebuild, check, back up or look back in the event log and its view.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("verify", help="Make a second view elsewhere and compare; exit 6 on a difference.")(verify)
    group.command("rebuild", help="Make database.db anew from the log; needs the daemon stopped.")(rebuild)
    group.command("check", help="Check the log: SQLite's own check, the order, every payload's hash.")(check)
    group.command(
        "recover",
        help="Go on from what is sound of a damaged log; keeps the damaged files. Needs the daemon stopped.",
    )(recover)
    group.command("backup", help="Copy the log, whole and consistent, while the daemon runs or not.")(backup)
    group.command("as-of", help="Show the view as of an event or a time, and keep or save it.")(as_of)
    app.add_typer(group, name="db")


def verify(
    scratch: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the second view is made; default: the temporary folder."),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.log import backup as store_backup
    from store.view.rebuild import verify

    instance = _with_log(config)
    if damage := store_backup.damage(instance.paths.events_db):
        # What is made of such a log says nothing about the view.
        raise CliError(f"the log is damaged, so that the view cannot be judged by it: {damage}. {DAMAGED}")
    report = verify(instance.paths.events_db, instance.paths.database_db, scratch=scratch)
    if as_json:
        emit_json(
            {
                "daemon": instance.daemon_json,
                "same": report.ok,
                "position": report.position,
                "n_differences": report.n_differences,
                "differences": [
                    {
                        "table": item.table,
                        "key": list(item.key),
                        "what": item.what,
                        "columns": list(item.columns),
                    }
                    for item in report.differences
                ],
            }
        )
    elif report.ok:
        say(f"the view is what the log leads to, up to event {report.position}")
    else:
        for difference in report.differences:
            say(clean(str(difference)))
        if report.n_differences > len(report.differences):
            say(f"… and {counted(report.n_differences - len(report.differences), 'more difference')}")
        say("the view does not follow from the log; stop the daemon and run `unsorry db rebuild`")
    if not report.ok:
        raise typer.Exit(ExitCode.DIFFERENCES)


def rebuild(config: Config = None, as_json: Json = False) -> None:
    from store.view.rebuild import rebuild

    instance = _with_log(config)
    try:
        # Held for the whole rebuild, so that no daemon starts on a view that is about to be replaced.
        lock = DaemonLock.acquire(instance.paths.lock, purpose="unsorry db rebuild")
    except AlreadyRunningError as error:
        raise CliError(str(error), code=ExitCode.ALREADY_RUNNING) from error
    try:
        report = rebuild(instance.paths.events_db, instance.paths.database_db)
    finally:
        lock.release()
    if as_json:
        emit_json(
            {
                "daemon": {"running": False, "pid": None},
                "position": report.position,
                "poll_states": report.poll_states,
                "stopped": report.stopped,
            }
        )
    else:
        say(f"rebuilt {instance.paths.database_db} from {counted(report.position, 'event')}")
    if report.stopped is not None:
        note(f"unsorry: stopped before the end of the log: {clean(report.stopped)}")
        raise typer.Exit(ExitCode.FAILURE)


def check(config: Config = None, as_json: Json = False) -> None:
    from store.log import backup as store_backup

    instance = _with_log(config)
    report = store_backup.check(instance.paths.events_db)
    if as_json:
        emit_json(
            {
                "daemon": instance.daemon_json,
                "sound": report.ok,
                "events": report.events,
                "blobs": report.blobs,
                "problems": list(report.problems),
            }
        )
    elif report.ok:
        say(f"the log is sound: {counted(report.events, 'event')}, {counted(report.blobs, 'payload')}")
    else:
        for problem in report.problems:
            say(clean(problem))
        say(f"the log is damaged. {DAMAGED}. {RESTORE.format(what='the last backup')}")
    if not report.ok:
        raise typer.Exit(ExitCode.FAILURE)


def recover(config: Config = None, as_json: Json = False) -> None:
    from daemon.results.patches import without_proof
    from store.log.recover import recover
    from store.view import queries
    from store.view.rebuild import rebuild
    from store.view.view import reached

    instance = locate(config)
    paths = instance.paths
    try:
        lock = DaemonLock.acquire(paths.lock, purpose="unsorry db recover")
    except AlreadyRunningError as error:
        raise CliError(str(error), code=ExitCode.ALREADY_RUNNING) from error
    try:
        done = recover(paths.events_db, paths.database_db, reached=reached(paths.database_db))
        if done is not None:
            rebuild(paths.events_db, paths.database_db)
    finally:
        lock.release()
    orphans: list[Path] = []
    if done is not None:
        with closing(queries.connect(paths.database_db)) as database:
            orphans = without_proof(database, paths.patches)
    if as_json:
        emit_json(
            {
                "daemon": {"running": False, "pid": None},
                "recovered": done is not None,
                "kept": None if done is None else done.kept,
                "lost": None if done is None else max(0, done.lost - done.kept),
                "reason": None if done is None else done.reason,
                "aside": None if done is None else done.aside,
                "patches_without_proof": orphans,
            }
        )
        return
    if done is None:
        say("the log is sound and whole: there is nothing to recover")
        return
    say(clean(done.reason))
    kept = f"kept events 1 to {done.kept}" if done.kept else "kept no event"
    lost = f"lost {done.kept + 1} to {done.lost}" if done.lost else "none is known to be lost"
    say(f"{kept}; {lost}. The damaged files, and the view that was made of them, are in {done.aside}")
    if orphans:
        say(f"patches on disk of proofs that the log does not know any more: {len(orphans)}")
        for path in orphans:
            say(f"  {clean(str(path))}")
    say("start the daemon: it finds the commits again and records them anew")


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy to make; must not exist.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.log import backup as store_backup

    instance = _with_log(config)
    report = store_backup.backup(instance.paths.events_db, file.absolute())
    if as_json:
        emit_json(
            {
                "daemon": instance.daemon_json,
                "file": report.path,
                "position": report.position,
                "size_bytes": report.size_bytes,
            }
        )
        return
    say(f"{report.path}: the log up to event {report.position}, {size(report.size_bytes)}")
    say(RESTORE.format(what="it"))


def as_of(
    moment: Annotated[
        str,
        typer.Argument(
            metavar="SEQ|TIME", help="An event's number, or a time: 2d, yesterday, ISO 8601 (UTC)."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE", help="Also write that view to this new file, for SQLite tools."
        ),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.log import backup as store_backup
    from store.log.reader import LogReader
    from store.view import queries

    instance = locate(config, moment)
    seq = instance.head["as_of"]["seq"]
    with LogReader.open(instance.paths.events_db) as log:
        event = next(log.read(after=seq - 1, limit=1))
    with view(instance, quiet=True) as database:
        counts = queries.counts(database)
        repositories = len(queries.repositories(database, watched_only=True))
        target = output.absolute() if output is not None else None
        size_bytes = None if target is None else store_backup.save_view(database, target)
    if as_json:
        emit_json(
            {
                **instance.head,
                "event": {"type": event.type, "stream": event.stream, "summary": summary(event.data)},
                "repositories": repositories,
                "theorems": counts.theorems,
                "sorries": counts.sorries,
                "proofs": counts.proofs,
                "jobs": counts.jobs,
                "file": target,
                "size_bytes": size_bytes,
            }
        )
        return
    say(
        f"event {event.seq}, recorded {event.recorded_at}: {event.type}  {clean(summary(event.data))}".rstrip()
    )
    fields(
        (
            ("repositories", f"{repositories:,} watched"),
            ("theorems", f"{counts.theorems:,}"),
            ("sorries", by_state(counts.sorries)),
            ("proofs", by_state(counts.proofs)),
            ("jobs", by_state(counts.jobs)),
        )
    )
    if target is not None and size_bytes is not None:
        say(f"{target}: the view as it was then, {size(size_bytes)}")
    else:
        say(f"any reading verb answers as of then with --as-of {event.seq}")


def _with_log(config: Path | None) -> Instance:
    instance = locate(config)
    if not instance.paths.events_db.exists():
        raise CliError(
            f"{instance.paths.events_db}: no log there; start the daemon with `unsorry run --config {instance.config}`"
        )
    return instance
