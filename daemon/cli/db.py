"""`everlean db`: the log and its view: verify, rebuild, check, back up, look back. The work is done in `store`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.context import CliError, Config, ExitCode, Json, locate, view
from daemon.cli.render import emit_json, fields, note, say
from daemon.instance import Instance
from store.documents.document import of_row
from store.documents.events import summary
from store.text import by_state, clean, counted, size

if TYPE_CHECKING:
    from store.view.rebuild import Difference

RESTORE = (
    "To restore: stop the daemon, move events.db, events.db-wal, events.db-shm and events.db-anchor aside (a -wal left "
    "there would damage the copy, and the anchor says where the old log ended), put {what} in the place of events.db, "
    "run `everlean db rebuild`"
)

DAMAGED = (
    "Restore the last backup if it goes further than what is sound; otherwise stop the daemon and run `everlean db "
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
    group.command(
        "restore", help="Make a log of the segments that the daemon shipped, whole or up to an event."
    )(restore)
    group.command("as-of", help="Show the view as of an event or a time, and keep or save it.")(as_of)
    app.add_typer(group, name="db")


def verify(
    scratch: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the second view is made; default: the temporary folder."),
    ] = None,
    segments: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Check this folder or URL of segments instead, and the log with it."
        ),
    ] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.log import backup as store_backup
    from store.view.rebuild import verify

    if segments:
        _verify_segments(segments, locate(config), as_json)
        return
    instance = _with_log(config)
    if damage := store_backup.damage(instance.paths.events_db):
        # What is made of such a log says nothing about the view.
        raise CliError(f"the log is damaged, so that the view cannot be judged by it: {damage}. {DAMAGED}")
    report = verify(instance.paths.events_db, instance.paths.database_db, scratch=scratch)
    if as_json:
        emit_json(
            Compared(report.ok, report.position, report.n_differences, report.differences), instance.head
        )
    elif report.ok:
        say(f"the view matches the log up to event {report.position}")
    else:
        for difference in report.differences:
            say(clean(str(difference)))
        if report.n_differences > len(report.differences):
            say(f"… and {counted(report.n_differences - len(report.differences), 'more difference')}")
        say("the view does not follow from the log; stop the daemon and run `everlean db rebuild`")
    if not report.ok:
        raise typer.Exit(ExitCode.DIFFERENCES)


def _verify_segments(url: str, instance: Instance, as_json: bool) -> None:
    from store.log.reader import LogReader
    from store.log.segments import SegmentStore, verify

    log_path = instance.paths.events_db if instance.paths.events_db.exists() else None
    found = verify(SegmentStore(url), log_path)
    position = None
    if log_path is not None:
        # Whether it is all of this log, no folder can tell.
        with LogReader.open(log_path) as log:
            position = log.position()
    link = found.end.link
    if as_json:
        emit_json(Shipped(found.segments, link.seq, link.hash.hex(), position), instance.head)
        return
    say(f"{counted(found.segments, 'segment')}, sound and without a gap, up to event {link.seq}")
    say(f"the chain's hash there: {link.hash.hex()}")
    if position is not None:
        say(f"they are this log's; it stands at event {position}")


@dataclass(frozen=True, slots=True)
class Shipped:
    segments: int
    """how many, all sound"""
    position: int
    """their last event"""
    hash: str
    """the chain's hash at that event"""
    log: int | None
    """the last event of the log here, whose beginning they are; null where there is no log"""


@dataclass(frozen=True, slots=True)
class Compared:
    same: bool
    """no difference"""
    position: int
    """the last event compared"""
    n_differences: int
    """how many"""
    differences: tuple[Difference, ...]
    """the first ones"""


def rebuild(config: Config = None, as_json: Json = False) -> None:
    from daemon import offline

    instance = _with_log(config)
    report = offline.rebuild(instance.paths)
    if as_json:
        emit_json(Rebuilt(report.position, report.poll_states, report.stopped), instance.head)
    else:
        say(f"rebuilt {instance.paths.database_db} from {counted(report.position, 'event')}")
    if report.stopped is not None:
        note(f"everlean: stopped before the end of the log: {clean(report.stopped)}")
        raise typer.Exit(ExitCode.FAILURE)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    position: int
    """the last event in the new view"""
    poll_states: int
    """how many poll times were carried over"""
    stopped: str | None
    """null, or why it ends before the log does (then code 1)"""


def check(config: Config = None, as_json: Json = False) -> None:
    from store.errors import LogDamagedError
    from store.log import backup as store_backup
    from store.log.anchor import anchor_path
    from store.view.view import refuse_lost_end

    instance = _with_log(config)
    log_path = instance.paths.events_db
    report = store_backup.check(log_path)
    try:
        refuse_lost_end(log_path, instance.paths.database_db)
    except LogDamagedError as error:
        report = replace(report, problems=(*report.problems, error.what))
    if not anchor_path(log_path).exists():
        note(
            f"everlean: {anchor_path(log_path)} is not there: whether the log lost its end, only the view could tell; "
            "the daemon makes a new one when it starts"
        )
    if as_json:
        emit_json(of_row(Checked, report, sound=report.ok), instance.head)
    elif report.ok:
        say(f"the log is sound: {counted(report.events, 'event')}, {counted(report.blobs, 'payload')}")
    else:
        for problem in report.problems:
            say(clean(problem))
        say(f"the log is damaged. {DAMAGED}. {RESTORE.format(what='the last backup')}")
    if not report.ok:
        raise typer.Exit(ExitCode.FAILURE)


@dataclass(frozen=True, slots=True)
class Checked:
    sound: bool
    """nothing is wrong"""
    events: int
    """how many"""
    blobs: int
    """how many payloads"""
    problems: tuple[str, ...]
    """one line each"""


def recover(config: Config = None, as_json: Json = False) -> None:
    from daemon import offline

    instance = locate(config)
    found = offline.recover(instance.paths)
    if found is None:
        if as_json:
            emit_json(Recovered(False, None, None, None, None, []), instance.head)
        else:
            say("the log is sound and whole: there is nothing to recover")
        return
    done, orphans = found.log, found.patches_without_proof
    if as_json:
        lost_events = max(0, done.lost - done.kept)
        recovered = Recovered(True, done.kept, lost_events, done.reason, done.aside, orphans)
        emit_json(recovered, instance.head)
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


@dataclass(frozen=True, slots=True)
class Recovered:
    recovered: bool
    """whether there was something to recover; if not, what follows is null"""
    kept: int | None
    """the last event that was kept"""
    lost: int | None
    """how many events behind it are known to be lost"""
    reason: str | None
    """what was found"""
    aside: Path | None
    """the folder with the damaged files"""
    patches_without_proof: list[Path]
    """patch files of proofs that the log does not know any more"""


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy to make; must not exist.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    from store.log import backup as store_backup

    instance = _with_log(config)
    report = store_backup.backup(instance.paths.events_db, file.absolute())
    if as_json:
        emit_json(BackedUp(report.path, report.position, report.size_bytes), instance.head)
        return
    say(f"{report.path}: the log up to event {report.position}, {size(report.size_bytes)}")
    say(RESTORE.format(what="it"))


@dataclass(frozen=True, slots=True)
class BackedUp:
    file: Path
    """the copy"""
    position: int
    """its last event"""
    size_bytes: int
    """its size"""


def restore(
    url: Annotated[str, typer.Argument(metavar="URL", help="The folder or URL of segments.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The log to make; must not exist.")],
    upto: Annotated[
        int | None, typer.Option(metavar="SEQ", min=1, help="The last event to take; default: all.")
    ] = None,
    as_json: Json = False,
) -> None:
    from store.log import segments

    target = file.absolute()
    link = segments.restore(segments.SegmentStore(url), target, upto=upto)
    if as_json:
        emit_json(BackedUp(target, link.seq, target.stat().st_size))
        return
    say(f"{target}: the log up to event {link.seq}, with the hashes that it had")
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
    from store.view.counts import count_all, elsewhere_said

    instance = locate(config, moment)
    assert instance.moment is not None
    with LogReader.open(instance.paths.events_db) as log:
        event = next(log.read(after=instance.moment.seq - 1, limit=1))
    with view(instance, quiet=True) as database:
        counts = count_all(database)
        repositories = len(queries.repositories(database, watched_only=True))
        target = output.absolute() if output is not None else None
        size_bytes = None if target is None else store_backup.save_view(database, target)
    if as_json:
        at = Happened(event.type, event.stream, summary(event.data))
        earlier = of_row(
            Earlier, counts, event=at, repositories=repositories, file=target, size_bytes=size_bytes
        )
        emit_json(earlier, instance.head)
        return
    say(
        f"event {event.seq}, recorded {event.recorded_at}: {event.type}  {clean(summary(event.data))}".rstrip()
    )
    fields(
        (
            ("repositories", f"{repositories:,} watched"),
            ("theorems", f"{counts.theorems:,}"),
            ("sorries", by_state(counts.sorries) + elsewhere_said(counts.sorries_elsewhere)),
            ("proofs", by_state(counts.proofs)),
            ("jobs", by_state(counts.jobs)),
        )
    )
    if target is not None and size_bytes is not None:
        say(f"{target}: the view as it was then, {size(size_bytes)}")
    else:
        say(f"any reading verb answers as of then with --as-of {event.seq}")


@dataclass(frozen=True, slots=True)
class Happened:
    type: str
    stream: str
    summary: str


@dataclass(frozen=True, slots=True)
class Earlier:
    event: Happened
    """the last one that it shows"""
    repositories: int
    """how many were watched"""
    theorems: int
    """how many, as in `everlean status`"""
    sorries: dict[str, int]
    """by state, as in `everlean status`"""
    sorries_elsewhere: int
    """how many more on other branches"""
    proofs: dict[str, int]
    """by state"""
    jobs: dict[str, int]
    """by state"""
    file: Path | None
    """what `--output` wrote, or null"""
    size_bytes: int | None
    """of that file, or null"""


def _with_log(config: Path | None) -> Instance:
    instance = locate(config)
    if not instance.paths.events_db.exists():
        raise CliError(
            f"{instance.paths.events_db}: no log there; start the daemon with `everlean run --config {instance.config}`"
        )
    return instance
