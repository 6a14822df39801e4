"""Notify people of sorries, proofs, models and failing repositories, and weekly by a digest.

The news are read from the log, behind the position in each channel's own events, so a restart tells nothing
twice (after a kill between a delivery and its record: once more, under the same ids), and a new channel hears
nothing of the time before. One message at a time and channel; news in between are sent together. A refused
message is retried, ever more seldom, and holds up nothing but its own channel.
"""

from __future__ import annotations

import json
import math
import platform
import random
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, get_args

import structlog

from daemon.results.channels import Channel, Message, NotTakenError, channel
from daemon.settings import Settings
from daemon.state.clock import elapsed_s
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from pipeline.front import Front, digest, front
from store.backoff import Backoff
from store.documents.document import of_row, plain
from store.documents.problems import Problem
from store.documents.proofs import Proof, describe_proofs
from store.documents.sorries import Sorry, by_text, describe_sorries
from store.domain.identity import commit_url, event_id, pull_request_of
from store.events.base import EventBody
from store.events.repositories import RepositoryFailing
from store.events.service import (
    NotificationFailed,
    NotificationSent,
    NotificationsSwitched,
    NotifyChannel,
)
from store.log.envelope import NewEvent, StoredEvent, utc_text
from store.log.reader import LogReader
from store.text import and_more, clean, cut, printable_json
from store.view import queries, report_queries
from store.view.counts import counted_branches
from store.view.reading import read
from store.view.rows import NotifierRow, SorryRow

# ---- The news
# From events of the log to items for people, and to their message. Pure but for the questions to the view; a
# proof that does not count as verified any more is not told as one.


SCHEMA = 1

_KIND_OF = {
    "sorry_opened": "sorry_opened",
    "sorry_filled": "sorry_filled",
    "sorry_removed": "sorry_restated",
    "attempt_finished": "sorry_disproved",
    "proof_verified": "proof_verified",
    "proof_doubted": "proof_doubted",
    "proof_checked": "proof_doubted",
    "checkpoint_promoted": "model_promoted",
    "repository_failing": "repository_failing",
}
TYPES = tuple(_KIND_OF)
"""The types of the events for channels."""

MOST_TOGETHER = 100
"""Items in a message; the others are in the next one."""
MOST_NAMED = 20
"""Items named in the text of a message; the rest is counted."""
SHOWN_STATEMENT = 200
"""Characters of a statement."""


@dataclass(frozen=True, slots=True)
class AboutProof(Proof):
    SHOWN: ClassVar = (
        *("proof", "sorry", "repository", "branch", "sha", "path", "declaration", "prover", "rung", "axioms"),
        *("grade", "kernel", "doubts", "patch_sha256"),
    )


@dataclass(frozen=True, slots=True)
class AboutSorry(Sorry):
    SHOWN: ClassVar = ("sorry", "repository", "branch", "path", "line", "declaration", "statement", "url")


@dataclass(frozen=True, slots=True)
class Commit:
    """The commit behind a sorry's change."""

    sha: str
    author: str
    subject: str
    committed_at: str
    url: str
    """its address; empty at an unknown forge"""


@dataclass(frozen=True, slots=True)
class Item:
    """One event of a message."""

    id: str
    """the event's"""
    seq: int
    kind: str
    recorded_at: str
    text: str
    """a line for people"""
    about: AboutProof | AboutSorry | dict[str, Any]
    """the proof or the sorry; of a model or a repository the event's own data"""
    commit: Commit | None = None
    """of a sorry that was opened, filled or restated"""


@dataclass(frozen=True, slots=True)
class MessageBody:
    """The receiver's JSON."""

    schema: int
    """1; fields may be added under the same number"""
    id: str
    """the event's own if there is just one, else made of all its events' ids"""
    host: str
    """the machine"""
    text: str
    """for people, some lines; `<`, `>` and `@` in names are replaced by similar signs, since a chat would act
    on them"""
    counts: dict[str, int]
    """the number of events of each kind; of a digest `{"digest": 1}`"""
    events: list[Item]
    """one by one; none of a digest"""


def wanted(event: StoredEvent, kinds: Mapping[str, int]) -> bool:
    """Return whether an event of `TYPES` is due for a channel with these kinds, each behind its position."""
    if event.type == "attempt_finished" and event.data["outcome"] != "disproved":
        return False
    if event.type == "sorry_removed" and event.data["how"] == "deleted":
        return False
    kind = _KIND_OF[event.type]
    return kind in kinds and event.seq > kinds[kind]


def described(database: sqlite3.Connection, events: Sequence[StoredEvent]) -> list[Item]:
    """Return the items for these events, without those no longer true and those at the beginning of a
    branch."""
    rows = queries.proofs(database, ids=[one.data["proof"] for one in events if "proof_" in one.type])
    proofs = {one.proof: one for one in describe_proofs(database, rows)}
    sorries = _sorries(database, events)
    items = []
    for event in events:
        kind, data = _KIND_OF[event.type], event.data
        about: AboutProof | AboutSorry | dict[str, Any] | None = data
        commit: Commit | None = None
        if kind.startswith("sorry_"):
            result = sorries.get(event.seq)
            about, commit = result or (None, None)
            text = "" if result is None else _text_of_sorry(data, result[0])
        elif kind.startswith("proof_"):
            proof = proofs.get(data["proof"])
            about = None if proof is None else of_row(AboutProof, proof)
            text = _text_of_proof(event.type, data, proof)
        else:
            text = _text(event.type, data)
        if text and about is not None:
            line = _harmless(text)
            items.append(Item(event.event_id, event.seq, kind, event.recorded_at, line, about, commit))
    return items


def _sorries(
    database: sqlite3.Connection, events: Sequence[StoredEvent]
) -> dict[int, tuple[AboutSorry, Commit | None]]:
    """Map the number of each event about a sorry to the sorry and the commit that changed it.

    For a sorry on several branches, only the counted one has it. A branch's first sorries are no news.
    """
    lines = [event for event in events if _KIND_OF[event.type].startswith("sorry_")]
    if not lines:
        return {}
    branches = counted_branches(database)
    ids = json.dumps(sorted({event.data["sorry"] for event in lines}))
    condition = "sorry IN (SELECT value FROM json_each(?))"
    rows = read(database, SorryRow, "sorries", conditions=[condition], parameters=[ids])
    documents = {(one.repository, one.branch, one.sorry): one for one in describe_sorries(database, rows)}
    commits = queries.commits_named(
        database, ((event.data["repository"], event.data["branch"], event.data["sha"]) for event in lines)
    )
    result: dict[int, tuple[AboutSorry, Commit | None]] = {}
    for event in lines:
        repository, branch, sha = (event.data[name] for name in ("repository", "branch", "sha"))
        document = documents.get((repository, branch, event.data["sorry"]))
        row = commits.get((repository, branch, sha))
        begins = event.type == "sorry_opened" and row is not None and row.baseline
        if document is None or row is None or begins or (repository, branch) not in branches:
            continue
        commit = Commit(sha, row.author, row.subject, row.committed_at, commit_url(repository, sha))
        # A false statement was so before the commit of Lean's look.
        of_commit = None if event.type == "attempt_finished" else commit
        result[event.seq] = of_row(AboutSorry, document), of_commit
    return result


def _text_of_sorry(data: Mapping[str, Any], about: AboutSorry) -> str:
    """Return a line about a sorry."""
    place = f"{about.declaration or 'outside declarations'}, {about.path}:{about.line}"
    if "outcome" in data:
        return f"false as it stands: {place} in {about.repository}; Lean accepted a proof of the negation"
    if "how" in data:
        went = f"{data['how']}, with no sorry any more: {place}"
        if data["how"] != "restated":
            return f"{went}; {data['detail']}" if data["detail"] else went
        before, after = (cut(data[f"statement_{one}"] or "", SHOWN_STATEMENT) for one in ("before", "after"))
        return f"{went}; it said {before}, and says {after}"
    if "rests_on" in data:
        by = " by everlean's proof" if data["by"] == "us" else ""
        rests = f"; its proof cites {', '.join(data['rests_on'])} with a sorry" if data["rests_on"] else ""
        return f"filled{by}: {place}{rests}"
    return f"{'open again' if data['reopened'] else 'new'}: {place}; {cut(about.statement, SHOWN_STATEMENT)}"


def _text_of_proof(kind: str, data: Mapping[str, Any], proof: Proof | None) -> str:
    """Return a line about a proof; "" if the event is true of it no more."""
    if proof is None:
        return ""
    more = f"{proof.text}; everlean proofs show {proof.proof}"
    if kind == "proof_verified" and proof.state == "verified":
        return f"proof verified ({proof.graded}): {more}"
    if kind == "proof_checked" and data["disagreement"] and proof.reason == data["disagreement"]:
        return f"proof in doubt ({proof.reason}): {more}"
    if kind == "proof_doubted" and proof.doubts and proof.doubts == data["advisories"]:
        return f"verified proof in doubt ({', '.join(proof.doubts)}): {more}"
    return ""


def _text(kind: str, data: Mapping[str, Any]) -> str:
    """Return a line about a model or a repository."""
    if kind == "repository_failing":
        return f"{data['repository']} has failed since {data['since']}: {data['reason']} -> {data['remedy']}"
    return f"{data['model']} {data['checkpoint']} is in use: {data['reason']}"


def message(items: Sequence[Item]) -> Message:
    """Return the message with these items; the same items have the same id."""
    ids = [item.id for item in items]
    kinds = Counter(item.kind for item in items)
    lines = [line for (_, commit), its in groupby(items, _place) for line in _lines(commit, list(its))]
    return _message(
        ids[0] if len(ids) == 1 else event_id("notification", *ids),
        "\n".join(lines),
        title=_title(items),
        counts=kinds,
        items=items,
    )


def _title(items: Sequence[Item]) -> str:
    """Return the same title for all messages about a repository: Zulip makes it the topic."""
    named = {
        one.about.get("repository", "") if isinstance(one.about, dict) else one.about.repository
        for one in items
    }
    only = named.pop() if len(named) == 1 else ""
    return f"Sorries of {only.rpartition('/')[2]}" if only else "everlean"


def _place(item: Item) -> tuple[str, Commit | None]:
    """Return the key that groups items: the repository and the commit."""
    return item.about.repository if isinstance(item.about, AboutSorry) else "", item.commit


def _lines(commit: Commit | None, items: Sequence[Item]) -> Iterator[str]:
    """Yield the lines about items of one commit, or of none."""
    mark = ""
    if commit is not None:
        mark = "- "
        repository, _ = _place(items[0])
        by = by_text(commit.author, pull_request_of(commit.subject))
        yield _harmless(f"{repository} {commit.sha[:10]} by {by}: {commit.subject}")
    for item in items[:MOST_NAMED]:
        yield f"{mark}{item.text}"
    if more := and_more(len(items) - MOST_NAMED):
        yield f"{mark}{more.strip()}"
    if commit is not None and commit.url:
        yield commit.url


def digest_message(screen: Front, *, identity: str) -> Message:
    """Return the message with the report's first screen as a letter."""
    text = "\n".join(_harmless(line) for line in digest(screen))
    return _message(identity, text, title="Sorries: the digest", counts={"digest": 1}, items=())


def _message(
    identity: str, text: str, *, title: str, counts: Mapping[str, int], items: Sequence[Item]
) -> Message:
    body = MessageBody(SCHEMA, identity, platform.node(), text, dict(counts), list(items))
    return Message(identity, printable_json(body, default=plain).encode(), title, text)


_ORDERS = str.maketrans({"<": "\u2039", ">": "\u203a", "@": "\uff20"})


def _harmless(text: str) -> str:
    """Return one printable line, without mentions or links for a chat program.

    Names of declarations are a watched repository's choice; the exact ones are in `about`.
    """
    return clean(text.translate(_ORDERS))


CHANNELS: tuple[NotifyChannel, ...] = get_args(NotifyChannel)
LOOK_S = 60.0
"""Seconds between two looks of a channel without a wake-up, and between two looks for failing
repositories."""
EVERY_S = 60.0
"""Shortest time between two messages to a channel: a flood of proofs is one message, and is told within a
minute."""
FAILING_FOR_S = 86400.0
"""The duration of a failure before people hear of it: forges are back from an outage within a day."""
_RETRY = Backoff(5.0, 3600.0, jitter=0.2)

log = structlog.get_logger("daemon.results.notifications")


@dataclass(slots=True)
class _State:
    """State of a channel; all of it can be lost."""

    pause_s: float = 0.0
    """The seconds until something can be due again."""
    looked: int = 0
    """Up to here the log has no news for it."""
    attempts: int = 0
    sent: float = -math.inf
    """The time of the last accepted message (`daemon.state.clock`), the base of the rate limit."""
    retry: float = -math.inf
    """Before this moment nothing is retried."""


class Notifications:
    """The channels of one daemon: `start` once the store is open, then `look` for each channel repeatedly.

    `problems` returns those of the status, for the digest.
    """

    def __init__(
        self,
        store: StoreService,
        context: Context,
        problems: Callable[[], Awaitable[Sequence[Problem]]],
        *,
        dice: random.Random | None = None,
    ) -> None:
        self.failures: dict[str, int] = dict.fromkeys(CHANNELS, 0)
        """Failed attempts since the daemon started."""
        self._store = store
        self._context = context
        self._problems = problems
        self._dice = dice or random.Random()  # noqa: S311 - jitter, not cryptography
        self._states: dict[NotifyChannel, _State] = {name: _State() for name in CHANNELS}

    async def start(self, news: Callable[[], None]) -> None:
        """Resume; `news` is called from then on when there is news for the channels."""

        def appended(events: Sequence[NewEvent]) -> None:
            if any(event.body.type in TYPES for event in events):
                news()

        self._store.subscribe(appended)
        for row in await self._store.ask(report_queries.notifiers):
            # A restart is no reason to send two messages in one breath.
            if row.sent_at is not None:
                # If the clock was set back meanwhile, as if it were now.
                self._states[_name(row.channel)].sent = elapsed_s() - max(_age_s(row.sent_at), 0.0)

    def reload(self) -> None:
        """Let a channel that waits to try again do so at its next look."""
        for state in self._states.values():
            state.retry = -math.inf

    async def look(self, name: NotifyChannel) -> None:
        """Send a channel's due messages."""
        state = self._states[name]
        state.pause_s = LOOK_S  # for a turn that ends in a defect
        state.pause_s = await self._turn(name, state)

    def pause_s(self, name: NotifyChannel) -> float:
        """Return the seconds until a channel's next look, without news before."""
        return self._states[name].pause_s

    async def _turn(self, name: NotifyChannel, state: _State) -> float:
        """Send a due message; return the seconds until something can be due again."""
        rows = {row.channel: row for row in await self._store.ask(report_queries.notifiers)}
        row = rows.get(name)
        settings = self._context.settings
        try:
            receiver = channel(name, settings.notify, folder=settings.paths.state)
        except NotTakenError as error:
            # There is one, and it cannot be used: news meanwhile are sent when it can be.
            await self._switch(name, row, _kinds(settings, name))
            await self._failed(name, state, error, before="" if row is None else row.problem)
            return LOOK_S
        if receiver is None:
            await self._switch(name, row, ())
            return LOOK_S
        if await self._switch(name, row, _kinds(settings, name)) or row is None:
            return 0.0
        wait_s = max(state.retry, state.sent + EVERY_S) - elapsed_s()
        if wait_s > 0:
            return min(wait_s, LOOK_S)
        if (result := await self._digest(name, row)) is not None:
            return await self._tell(name, receiver, state, result, position=row.position, before=row.problem)
        # Without events missing in the view (the disk was full), as it is asked for the details.
        view_position = await self._store.ask(queries.position)
        events, reached = await self._store.look_up(
            partial(_news, after=max(row.position, state.looked), upto=view_position, kinds=row.kinds)
        )
        items = await self._store.ask(partial(described, events=events))
        if not items:
            state.looked = reached
            return 0.0 if events else LOOK_S
        last = events[-1].seq
        ids = tuple(item.id for item in items)
        pause_s = await self._tell(
            name, receiver, state, message(items), ids, position=last, before=row.problem
        )
        if pause_s == 0.0:
            state.looked = last  # after a full disk, the view may not have it yet
        return pause_s

    async def _digest(self, name: NotifyChannel, row: NotifierRow) -> Message | None:
        """Return the channel's digest if it is due and there is a repository to tell of."""
        notify, since = self._context.settings.notify, row.digest_at
        if not notify.digest_s or since is None or 0 <= _age_s(since) < notify.digest_s:
            return None
        now = datetime.now(UTC)
        until = utc_text(now)
        if since > until:  # the clock was ahead when the last one was sent
            since = utc_text(now - timedelta(seconds=notify.digest_s))
        problems = await self._problems()
        result = await self._store.ask(partial(front, since=since, until=until, problems=problems))
        return digest_message(result, identity=event_id("digest", name, since)) if result.watched else None

    async def _tell(
        self,
        name: NotifyChannel,
        receiver: Channel,
        state: _State,
        message: Message,
        ids: tuple[str, ...] = (),
        *,
        position: int,
        before: str,
    ) -> float:
        """Send a message; return 0 when it was taken, else the seconds to wait."""
        state.attempts += 1
        partly: NotTakenError | None = None
        try:
            await receiver.send(message)
        except NotTakenError as error:
            if not error.partly:
                return await self._failed(name, state, error, before=before)
            partly = error  # a retry would reach the successful receivers again
        sent = NotificationSent(
            channel=name,
            message=message.id,
            events=ids,
            position=position,
            attempts=state.attempts,
        )
        bodies: list[EventBody] = [sent]
        if partly is not None:
            bodies.append(self._failure(name, state, partly))
        await self._store.append([NewEvent(f"notify:{name}", body) for body in bodies], wait=True)
        log.info(
            "notification_sent", channel=name, message=message.id, events=len(ids), attempts=state.attempts
        )
        state.attempts = 0
        state.sent = elapsed_s()
        return 0.0

    async def _failed(
        self, name: NotifyChannel, state: _State, error: NotTakenError, *, before: str
    ) -> float:
        """Record a new failure, and return the wait in seconds."""
        state.attempts = max(state.attempts, 1)
        pause_s = max(_RETRY.wait_s(state.attempts, self._dice), error.retry_after_s)
        state.retry = elapsed_s() + pause_s
        failed = self._failure(name, state, error, again_in_s=round(pause_s, 1))
        if before != error.problem:
            await self._store.append([NewEvent(f"notify:{name}", failed)], wait=True)
        return pause_s

    def _failure(
        self, name: NotifyChannel, state: _State, error: NotTakenError, **more: float
    ) -> NotificationFailed:
        self.failures[name] += 1
        log.warning(
            "notification_not_taken", channel=name, reason=error.reason, attempts=state.attempts, **more
        )
        return NotificationFailed(
            channel=name, problem=error.problem, reason=error.reason, remedy=error.remedy
        )

    async def _switch(self, name: NotifyChannel, row: NotifierRow | None, kinds: tuple[str, ...]) -> bool:
        """Record a change of the channel's kinds; return whether there was one."""
        if set(kinds) == (set() if row is None else set(row.kinds)):
            return False
        position = await self._store.look_up(LogReader.position)
        switched = NotificationsSwitched(channel=name, kinds=kinds, position=position)
        await self._store.append([NewEvent(f"notify:{name}", switched)], wait=True)
        log.info("notifications_switched", channel=name, kinds=kinds, position=position)
        return True

    def failing_every_s(self) -> float:
        """Return the seconds between two looks for failing repositories."""
        return LOOK_S

    async def record_failing(self) -> None:
        """Record the repositories failing for FAILING_FOR_S.

        An empty one is reachable, and does not count.
        """
        before = datetime.now(UTC) - timedelta(seconds=FAILING_FOR_S)
        for row in await self._store.ask(partial(queries.repositories, watched_only=True)):
            since = row.failing_since
            if since is None or since > utc_text(before):
                continue
            if row.failing_told or row.state == "empty" or not row.enabled:
                continue
            failing = RepositoryFailing(
                repository=row.repository,
                since=datetime.fromisoformat(since),
                problem=row.state,
                reason=row.reason,
                remedy=row.remedy,
            )
            name = event_id("repository_failing", row.repository, since)
            await self._store.append(
                [NewEvent(f"repository:{row.repository}", failing, event_id=name)], wait=True
            )
            log.warning("repository_failing", repository=row.repository, since=since, reason=row.reason)


def _kinds(settings: Settings, name: NotifyChannel) -> tuple[str, ...]:
    """Return the kinds of a channel, as its events name them."""
    kinds: tuple[str, ...] = getattr(settings.notify, name).kinds
    return kinds


def _news(
    reader: LogReader, *, after: int, upto: int, kinds: Mapping[str, int]
) -> tuple[list[StoredEvent], int]:
    """Return the first events for a channel between two positions, and the last position read."""
    result = []
    for event in reader.read(after=after, upto=upto, types=TYPES):
        if wanted(event, kinds):
            result.append(event)
            if len(result) == MOST_TOGETHER:
                return result, event.seq
    return result, upto


def _age_s(recorded_at: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(recorded_at)).total_seconds()


def _name(channel_name: str) -> NotifyChannel:
    return next(name for name in CHANNELS if name == channel_name)
