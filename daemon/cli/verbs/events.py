"""`everlean events`: the log itself, for people or as NDJSON."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer

from daemon.cli.context import Call, moment_option, verb
from daemon.cli.options import Repo, count
from daemon.cli.render import emit_json_line, note, say, styled
from daemon.place.instance import open_view
from store.documents.document import of_row
from store.documents.events import Event, summary
from store.documents.lookup import resolve
from store.log.envelope import StoredEvent, utc_text
from store.log.reader import LogReader
from store.log.selection import Selection
from store.text import clean


@verb("events", Event, past=True)
def events(
    call: Call,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="T", help="Only this type; may be repeated.")
    ] = None,
    stream: Annotated[
        str | None, typer.Option("--stream", metavar="S", help="Only this stream, such as job:scan-1a2b.")
    ] = None,
    repo: Repo = None,
    since: Annotated[
        str, typer.Option("--since", metavar="SEQ|TIME", help="Only events after this one, or this time.")
    ] = "0",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="SEQ|TIME", help="Only events up to this one, or this time."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", parser=count, help="Only the oldest N of them.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", parser=count, help="Only the newest N of them.")
    ] = None,
) -> None:
    """Show the event log, oldest first; NDJSON with --json."""
    moment = call.instance.moment
    if follow and (until is not None or moment is not None):
        raise typer.BadParameter(
            "waits for news, and --until and --as-of end before it", param_hint="--follow"
        )
    if limit is not None and last is not None:
        raise typer.BadParameter("the oldest N or the newest N, not both", param_hint="--limit, --last")
    after, upto = moment_option(since, "--since"), None if until is None else moment_option(until, "--until")
    if moment is not None:
        note(f"everlean: this is the log as of event {moment.seq} ({moment.recorded_at})")
    elif not call.instance.running:
        note(
            f"everlean: the daemon is not running; this is the log as it left it ({call.instance.paths.state})"
        )
    with call.log() as log:
        selection = Selection(
            after=after if isinstance(after, int) else log.position_before(utc_text(after)),
            # Taken before the first read: with --follow, events appended meanwhile are read after it.
            upto=_end(log, call, upto),
            types=tuple(types or ()),
            stream=stream,
            repository=None if repo is None else _key(call, repo),
        )
        _note_unknown(log, selection)
        result = selection.newest(log, last) if last is not None else selection.read(log)
        if follow:
            result = itertools.chain(result, selection.follow(log))
        try:
            for event in itertools.islice(result, limit):
                emit_json_line(of_row(Event, event)) if call.as_json else say(_line(event))
                if follow:
                    sys.stdout.flush()  # a pipe's other end waits for each line too
        except KeyboardInterrupt:
            if not follow:
                raise


def _end(log: LogReader, call: Call, upto: int | datetime | None) -> int:
    ends = [log.position()]
    if call.instance.moment is not None:
        ends.append(call.instance.moment.seq)
    if upto is not None:
        ends.append(upto if isinstance(upto, int) else log.position_at(utc_text(upto)))
    return min(ends)


def _key(call: Call, name: str) -> str | None:
    with open_view(replace(call.instance, moment=None)) as database:
        return resolve(database, name)


def _note_unknown(log: LogReader, selection: Selection) -> None:
    """Note a type or stream missing in the log, as a misspelt one would silently give an empty answer."""
    if selection.stream is not None and log.stream_version(selection.stream) == 0:
        note(
            f'everlean: the log has no stream "{clean(selection.stream)}" yet;'
            " `everlean events --json` shows those in use"
        )
    if not selection.types:
        return
    import difflib

    from store.events.registry import EVENT_TYPES

    for name in selection.types:
        if name not in EVENT_TYPES:
            near = difflib.get_close_matches(name, EVENT_TYPES, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else "; `everlean events` shows those in use"
            note(f'everlean: "{name}" is no event type of this version{hint}')


def _line(event: StoredEvent) -> str:
    # In UTC, as for --since and --as-of.
    moment = f"{event.recorded_at[:10]} {event.recorded_at[11:19]}Z"
    return (
        f"{event.seq:>7}  {styled(moment, 'dim')}  {styled(event.type, 'bold')}  {clean(summary(event.data))}"
    )
