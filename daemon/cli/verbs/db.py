"""`everlean db`: the log and its view: verify, rebuild, check, back up. The work is done in `store`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daemon.cli.answer import Answer
from daemon.cli.context import GROUPS, Call, CliError, ExitCode, verb
from daemon.cli.render import note
from daemon.place.lock import keep_private
from store.documents.document import of_row
from store.text import clean, counted, size

if TYPE_CHECKING:
    from store.view.rebuild import Difference

GROUPS["db"] = "Verify, rebuild, check or back up the event log and its view."
RESTORE = (
    "To restore: stop the daemon, move events.db, events.db-wal, events.db-shm and events.db-anchor aside (a -wal left "
    "there would damage the copy, and the anchor says where the old log ended), put {what} in the place of events.db, "
    "run `everlean db rebuild`"
)
DAMAGED = (
    "Restore the last backup if it goes further than the sound part; otherwise stop the daemon and run `everlean db "
    "recover`, which keeps the sound part as a new branch of history"
)


@dataclass(frozen=True, slots=True)
class Shipped:
    segments: int
    """the number, all sound"""
    position: int
    """their last event"""
    hash: str
    """the chain's hash at that event"""
    log: int | None
    """the last event of the log here, which begins with them; null without a log"""


@dataclass(frozen=True, slots=True)
class Compared:
    same: bool
    """no difference"""
    position: int
    """the last event compared"""
    n_differences: int
    """the number"""
    differences: tuple[Difference, ...]
    """the first ones"""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    position: int
    """the last event in the new view"""
    poll_states: int
    """the number of poll times carried over"""
    stopped: str | None
    """null, or why it ends before the log does (then code 1)"""


@dataclass(frozen=True, slots=True)
class Checked:
    sound: bool
    """nothing is wrong"""
    events: int
    """the number"""
    blobs: int
    """the number of payloads"""
    problems: tuple[str, ...]
    """one line each"""


@dataclass(frozen=True, slots=True)
class Recovered:
    recovered: bool
    """false for a sound log: the fields below are then null"""
    kept: int | None
    """the number of the last event before the damage"""
    behind: int | None
    """the number of events kept from behind the damage"""
    lost: int | None
    """the number of events known to be lost"""
    reason: str | None
    """the damage"""
    aside: Path | None
    """the folder with the damaged files"""
    patches_without_proof: list[Path]
    """patch files of proofs missing in the log"""


@dataclass(frozen=True, slots=True)
class BackedUp:
    file: Path
    """the copy"""
    position: int
    """its last event"""
    size_bytes: int
    """its size"""


@verb("db verify", Compared)
def verify(
    call: Call,
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
) -> Answer:
    """Compare the view with a second one; exit 6 on a difference."""
    from store.log import backup as store_backup
    from store.view import rebuild

    if segments:
        return _verify_segments(call, segments)
    paths = call.instance.paths
    call.log().close()
    if damage := store_backup.damage(paths.events_db):
        # A view made from such a log proves nothing about the present one.
        raise CliError(f"the log is damaged, so that the view cannot be judged by it: {damage}. {DAMAGED}")
    report = rebuild.verify(paths.events_db, paths.database_db, scratch=scratch)
    document = Compared(report.ok, report.position, report.n_differences, report.differences)
    if report.ok:
        return Answer(document, f"the view matches the log up to event {report.position}")
    lines = [clean(str(difference)) for difference in report.differences]
    if report.n_differences > len(lines):
        lines.append(f"… and {counted(report.n_differences - len(lines), 'more difference')}")
    lines.append("the view does not follow from the log; stop the daemon and run `everlean db rebuild`")
    return Answer(document, "\n".join(lines), ExitCode.DIFFERENCES)


def _verify_segments(call: Call, url: str) -> Answer:
    from store.log.segments import SegmentStore, verify

    log_path = call.instance.paths.events_db if call.instance.paths.events_db.exists() else None
    result = verify(SegmentStore(url), log_path)
    link, position = result.end.link, None
    lines = [
        f"{counted(result.segments, 'segment')}, sound and without a gap, up to event {link.seq}",
        f"the chain's hash there: {link.hash.hex()}",
    ]
    if log_path is not None:
        # No folder can tell whether it is all of this log.
        with call.log() as log:
            position = log.position()
        lines.append(f"they are this log's; it stands at event {position}")
    return Answer(Shipped(result.segments, link.seq, link.hash.hex(), position), "\n".join(lines))


@verb("db rebuild", Rebuilt)
def rebuild(call: Call) -> Answer:
    """Make database.db anew from the log; needs the daemon stopped."""
    from daemon.cli import offline

    keep_private()
    report = offline.rebuild(call.instance.paths)
    text = f"rebuilt {call.instance.paths.database_db} from {counted(report.position, 'event')}"
    if report.stopped is not None:
        note(f"everlean: stopped before the end of the log: {clean(report.stopped)}")
    code = ExitCode.OK if report.stopped is None else ExitCode.FAILURE
    return Answer(Rebuilt(report.position, report.poll_states, report.stopped), text, code)


@verb("db check", Checked)
def check(call: Call) -> Answer:
    """Check the log: SQLite's own check, the order, every payload's hash."""
    from store.errors import LogDamagedError
    from store.log import backup as store_backup
    from store.log.anchor import anchor_path
    from store.view.view import refuse_lost_end

    log_path = call.instance.paths.events_db
    call.log().close()
    report = store_backup.check(log_path)
    try:
        refuse_lost_end(log_path, call.instance.paths.database_db)
    except LogDamagedError as error:
        report = replace(report, problems=(*report.problems, error.what))
    if not anchor_path(log_path).exists():
        note(
            f"everlean: {anchor_path(log_path)} is not there: whether the log lost its end, only the view could tell; "
            "the daemon makes a new one when it starts"
        )
    document = of_row(Checked, report, sound=report.ok)
    if report.ok:
        sound = f"{counted(report.events, 'event')}, {counted(report.blobs, 'payload')}"
        return Answer(document, f"the log is sound: {sound}")
    damaged = f"the log is damaged. {DAMAGED}. {RESTORE.format(what='the last backup')}"
    return Answer(document, "\n".join([*map(clean, report.problems), damaged]), ExitCode.FAILURE)


@verb("db recover", Recovered)
def recover(call: Call) -> Answer:
    """Make a new log of the sound part of a damaged one; needs the daemon stopped."""
    from daemon.cli import offline

    keep_private()
    result = offline.recover(call.instance.paths)
    if result is None:
        return Answer(
            Recovered(False, None, None, None, None, None, []),
            "the log is sound and whole: there is nothing to recover",
        )
    done, orphans = result.log, result.patches_without_proof
    saved = f"kept events 1 to {done.kept}" if done.kept else "kept no event before the damage"
    if done.behind:
        saved += f", and {done.behind} behind the damage"
    lost = f"lost {done.n_lost} of {done.lost}" if done.lost else "none is known to be lost"
    lines = [
        clean(done.reason),
        f"{saved}; {lost}. The damaged files, and the view that was made of them, are in {done.aside}",
    ]
    if orphans:
        lines.append(f"patches on disk of proofs that the log does not know any more: {len(orphans)}")
        lines += [f"  {clean(str(path))}" for path in orphans]
    lines.append("start the daemon: it finds the commits again and records them anew")
    document = Recovered(True, done.kept, done.behind, done.n_lost, done.reason, done.aside, orphans)
    return Answer(document, "\n".join(lines))


@verb("db backup", BackedUp)
def backup(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The copy to make; must not exist.")],
) -> Answer:
    """Copy the log, also while the daemon runs."""
    from store.log import backup as store_backup

    keep_private()
    report = store_backup.backup(call.instance.paths.events_db, file.absolute())
    text = f"{report.path}: the log up to event {report.position}, {size(report.size_bytes)}"
    document = BackedUp(report.path, report.position, report.size_bytes)
    return Answer(document, f"{text}\n{RESTORE.format(what='it')}")


@verb("db restore", BackedUp)
def restore(
    call: Call,  # noqa: ARG001 - it asks nothing of a daemon
    url: Annotated[str, typer.Argument(metavar="URL", help="The folder or URL of segments.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The log to make; must not exist.")],
    upto: Annotated[
        int | None, typer.Option(metavar="SEQ", min=1, help="The last event to take; default: all.")
    ] = None,
) -> Answer:
    """Make a log from shipped segments, whole or up to an event."""
    from store.log import segments

    keep_private()
    target = file.absolute()
    link = segments.restore(segments.SegmentStore(url), target, upto=upto)
    text = f"{target}: the log up to event {link.seq}, with the hashes that it had"
    return Answer(BackedUp(target, link.seq, target.stat().st_size), f"{text}\n{RESTORE.format(what='it')}")
