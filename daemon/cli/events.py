"""`unsorry events`: the log itself, for people or as NDJSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from daemon.cli.context import Config, Json, locate
from daemon.cli.exits import CliError
from daemon.cli.render import clean, emit_json_line, note, parse_time, say, styled
from store.envelope import StoredEvent
from store.reader import LogReader

FOLLOW_INTERVAL_S = 0.3
_TOLD = (
    "repository", "branch", "path", "declaration", "sorry", "proof", "job", "kind", "state", "outcome",
    "problem", "reason", "subject", "describes", "version", "tip", "new", "sha",
)  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command("events", help="Show the event log, oldest first; NDJSON with --json.")(events)


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")] = False,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="T", help="Only this type; may be repeated.")
    ] = None,
    since: Annotated[int, typer.Option("--since", metavar="SEQ", min=0, help="Only events after SEQ.")] = 0,
    last: Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="Only the newest N.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    place = locate(config)
    if not place.paths.events_db.exists():
        raise CliError(
            f"{place.paths.events_db}: no log there yet; start the daemon with"
            f" `unsorry run --config {place.config}`"
        )
    if not place.running:
        note(f"unsorry: the daemon is not running; this is the log as it left it ({place.paths.state})")
    with LogReader.open(place.paths.events_db) as log:
        wanted = tuple(types or ())
        if wanted:
            _note_unknown(wanted)
        found = _read(log, wanted, since=since, last=last, follow=follow)
        try:
            for event in found:
                emit_json_line(event.as_json()) if as_json else say(_line(event))
        except KeyboardInterrupt:
            if not follow:
                raise


def _read(
    log: LogReader, types: tuple[str, ...], *, since: int, last: int | None, follow: bool
) -> Iterator[StoredEvent]:
    # Taken before the first read: what is appended meanwhile is read after it, never left out.
    position = log.position()
    first: Iterable[StoredEvent]
    if last is None:
        first = log.read(after=since, upto=position, types=types)
    else:
        first = (event for event in log.last(last, types=types) if event.seq > since)
        position = max(position, since)
    seen = since
    for event in first:
        seen = event.seq
        yield event
    seen = max(seen, position)
    while follow:
        for event in log.read(after=seen, types=types):
            seen = event.seq
            yield event
        time.sleep(FOLLOW_INTERVAL_S)


def _note_unknown(types: tuple[str, ...]) -> None:
    """A misspelt type would silently give an empty answer; a type of a newer version is allowed."""
    import difflib

    from store.events import EVENT_TYPES

    for name in types:
        if name not in EVENT_TYPES:
            near = difflib.get_close_matches(name, EVENT_TYPES, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else "; `unsorry events` shows those in use"
            note(f'unsorry: "{name}" is no event type of this version{hint}')


def _line(event: StoredEvent) -> str:
    moment = parse_time(event.recorded_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    mark = f" {styled('SIMULATED', 'yellow')}" if event.data.get("simulated") else ""
    return f"{event.seq:>7}  {styled(moment, 'dim')}  {styled(event.type, 'bold')}{mark}  {clean(summary(event.data))}"


def summary(data: dict[str, Any]) -> str:
    """The few fields of an event that a person looks for, in one line."""
    place = data.get("place")
    shown = []
    for name in _TOLD:
        value = data.get(name, place.get(name) if isinstance(place, dict) else None)
        if value in (None, "", []):
            continue
        text = str(value)
        is_commit = name in ("sha", "tip", "new") and len(text) >= 40
        shown.append(f"{name}={text[:10] if is_commit else text}")
    return " ".join(shown)
