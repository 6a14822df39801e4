"""`everlean events`: the log itself, for people or as NDJSON."""

from __future__ import annotations

import itertools
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from daemon.cli.context import AsOf, CliError, Config, Json, Repo, count, locate, moment_option, view
from daemon.cli.render import emit_json_line, note, say, styled
from daemon.instance import Instance
from store.documents.document import of_row
from store.documents.events import Event, summary
from store.documents.lookup import resolve
from store.log.envelope import StoredEvent, utc_text
from store.log.reader import LogReader
from store.text import clean

FOLLOW_INTERVAL_S = 0.3


def register(app: typer.Typer) -> None:
    app.command("events", help="Show the event log, oldest first; NDJSON with --json.")(events)


def events(
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
    as_of: AsOf = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    if follow and (until is not None or as_of is not None):
        raise typer.BadParameter(
            "waits for what comes, and --until and --as-of end before it", param_hint="--follow"
        )
    if limit is not None and last is not None:
        raise typer.BadParameter("the oldest N or the newest N, not both", param_hint="--limit, --last")
    after, upto = moment_option(since, "--since"), None if until is None else moment_option(until, "--until")
    instance = locate(config, as_of)
    if not instance.paths.events_db.exists():
        raise CliError(
            f"{instance.paths.events_db}: no log there yet; start the daemon with"
            f" `everlean run --config {instance.config}`"
        )
    if instance.moment is not None:
        note(f"everlean: this is the log as of event {instance.moment.seq} ({instance.moment.recorded_at})")
    elif not instance.running:
        note(f"everlean: the daemon is not running; this is the log as it left it ({instance.paths.state})")
    repository = _repository(instance, repo)
    with LogReader.open(instance.paths.events_db) as log:
        wanted = _Wanted(
            after=after if isinstance(after, int) else log.position_before(utc_text(after)),
            # Taken before the first read: with --follow, what is appended meanwhile is read after it.
            upto=_end(log, instance, upto),
            types=tuple(types or ()),
            stream=stream,
            repository=repository,
        )
        _note_unknown(log, wanted)
        found = wanted.newest(log, last) if last is not None else wanted.read(log)
        if follow:
            found = itertools.chain(found, _follow(log, wanted))
        try:
            for event in itertools.islice(found, limit):
                emit_json_line(of_row(Event, event)) if as_json else say(_line(event))
                if follow:
                    sys.stdout.flush()  # a pipe's other end waits for each line too
        except KeyboardInterrupt:
            if not follow:
                raise


@dataclass(slots=True)
class _Wanted:
    """A selection of events: those with `after` < seq <= `upto`, of these types, this stream, this repository.

    An event belongs to a repository if it names it, or names none and its stream (a job's, a proof's) began with one
    that does; so with a repository the log is read from its beginning.
    """

    after: int
    upto: int
    types: tuple[str, ...]
    stream: str | None
    repository: str | None
    _streams: set[str] = field(default_factory=set)

    def read(self, log: LogReader) -> Iterator[StoredEvent]:
        """Yield them, oldest first."""
        if self.repository is None:
            yield from log.read(after=self.after, upto=self.upto, types=self.types, stream=self.stream)
            return
        for event in log.read(upto=self.upto):
            if self._belongs(event) and event.seq > self.after and self._fits(event):
                yield event

    def newest(self, log: LogReader, number: int) -> Iterator[StoredEvent]:
        """Yield the newest of them, the oldest of these first."""
        if self.repository is not None:
            yield from deque(self.read(log), maxlen=number)
            return
        for event in log.last(number, upto=self.upto, types=self.types, stream=self.stream):
            if event.seq > self.after:
                yield event

    def following(self, log: LogReader) -> Iterator[StoredEvent]:
        """Yield those that lie behind `upto` now, and move it behind them."""
        end = log.position()
        for event in log.read(after=max(self.upto, self.after), upto=end):
            if (self.repository is None or self._belongs(event)) and self._fits(event):
                yield event
        self.upto = max(self.upto, end)

    def _fits(self, event: StoredEvent) -> bool:
        return (not self.types or event.type in self.types) and self.stream in (None, event.stream)

    def _belongs(self, event: StoredEvent) -> bool:
        named = event.data.get("repository")
        if named == self.repository:
            self._streams.add(event.stream)
        return named == self.repository or (named is None and event.stream in self._streams)


def _end(log: LogReader, instance: Instance, upto: int | datetime | None) -> int:
    ends = [log.position()]
    if instance.moment is not None:
        ends.append(instance.moment.seq)
    if upto is not None:
        ends.append(upto if isinstance(upto, int) else log.position_at(utc_text(upto)))
    return min(ends)


def _follow(log: LogReader, wanted: _Wanted) -> Iterator[StoredEvent]:
    opened = _file(log.path)
    while True:
        yield from wanted.following(log)
        if _file(log.path) != opened:
            # SQLite reads on in the old file, to which nothing is added any more.
            raise CliError(
                f"{log.path}: moved or replaced meanwhile; call `everlean events` again to follow the new one"
            )
        time.sleep(FOLLOW_INTERVAL_S)


def _file(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _repository(instance: Instance, name: str | None) -> str | None:
    if name is None:
        return None
    with view(replace(instance, moment=None), quiet=True) as database:
        return resolve(database, name)


def _note_unknown(log: LogReader, wanted: _Wanted) -> None:
    """A misspelt type or stream would silently give an empty answer; one that comes later is allowed."""
    if wanted.stream is not None and log.stream_version(wanted.stream) == 0:
        note(
            f'everlean: the log has no stream "{clean(wanted.stream)}" yet; `everlean events --json` shows those in use'
        )
    if not wanted.types:
        return
    import difflib

    from store.events.registry import EVENT_TYPES

    for name in wanted.types:
        if name not in EVENT_TYPES:
            near = difflib.get_close_matches(name, EVENT_TYPES, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else "; `everlean events` shows those in use"
            note(f'everlean: "{name}" is no event type of this version{hint}')


def _line(event: StoredEvent) -> str:
    # In UTC, as --since and --as-of take it.
    moment = f"{event.recorded_at[:10]} {event.recorded_at[11:19]}Z"
    mark = f" {styled('SIMULATED', 'yellow')}" if event.data.get("simulated") else ""
    return f"{event.seq:>7}  {styled(moment, 'dim')}  {styled(event.type, 'bold')}{mark}  {clean(summary(event.data))}"
