"""Notify people: a proof was verified, a model promoted, a repository keeps failing; and, weekly, a digest of it all.

What there is to tell is read from the log, behind the position that each channel's own events name, so a restart tells
nothing twice (after a kill between a delivery and its record: once more, under the same ids), and a channel that was
just switched on hears nothing of what was before. One message at a time and channel; what comes meanwhile is sent
together. One that is not taken is tried on, ever more seldom, and holds up nothing but its own channel.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import math
import os
import platform
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Protocol, get_args
from urllib.parse import urlsplit

import structlog

from daemon.settings import Settings
from daemon.settings.schema import Command, Notify, webhook_url
from daemon.state.clock import elapsed_s
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from pipeline.endpoint.credentials import read_key
from pipeline.endpoint.errors import CredentialError
from pipeline.front import Front, digest, front
from pipeline.http_client import Answer, HttpClient, NoAnswerError
from pipeline.redact import redact
from store.backoff import Backoff
from store.documents.document import of_row, plain
from store.documents.problems import Problem
from store.documents.proofs import Proof, describe_proofs
from store.domain.identity import event_id
from store.events.repositories import RepositoryFailing
from store.events.service import (
    NotificationFailed,
    NotificationSent,
    NotificationsSwitched,
    NotifyChannel,
    NotifyProblem,
)
from store.log.envelope import NewEvent, StoredEvent, utc_text
from store.log.reader import LogReader
from store.text import clean, printable_json
from store.view import queries, report_queries
from store.view.rows import NotifierRow

# ---- The two ways in which a message leaves the daemon
# A webhook's POST, and a program's standard input.
# A channel tries once and returns how it went; when, what and how often is decided below. The key that
# signs, and a URL that is itself a secret, are read when they are used, and are in no error.
# A signed POST is as https://www.standardwebhooks.com has it: `webhook-id`, `webhook-timestamp`, and in `webhook-
# signature` the HMAC-SHA256 of "id.timestamp.body".


URL_CREDENTIAL, URL_VARIABLE = "everlean-notify-url", "EVERLEAN_NOTIFY_URL"
KEY_CREDENTIAL, KEY_VARIABLE = "everlean-notify-secret", "EVERLEAN_NOTIFY_SECRET"  # names, no secrets

LONGEST_RETRY_AFTER_S = 3600.0
_WORDS_BYTES = 2000
_LINGER_S = 1.0
_PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    # Without these two nothing appears on a desktop.
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip


class NotTakenError(Exception):
    """A message was not taken. `retry_after_s` is how long the receiver asked to be left alone, 0 where it did not."""

    def __init__(
        self, problem: NotifyProblem, reason: str, *, remedy: str, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.problem: NotifyProblem = problem
        self.reason = reason
        self.remedy = remedy
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Message:
    """A message: `id` is the same whenever the same events are sent again; `body` is JSON in UTF-8."""

    id: str
    body: bytes


class Channel(Protocol):
    """One way to a receiver."""

    async def send(self, message: Message) -> None:
        """Try once.

        Raises:
            NotTakenError: with the reason and the remedy.
        """
        ...


def channel(name: NotifyChannel, notify: Notify, *, folder: Path) -> Channel | None:
    """Return the channel of this name as the settings have it now; None where they have none.

    Raises:
        NotTakenError: its URL or its key cannot be used.
    """
    if name == "command":
        return CommandChannel(notify.command, folder=folder) if notify.command.run else None
    try:
        url = notify.webhook.url or read_key(credential=URL_CREDENTIAL, variable=URL_VARIABLE)
        if not url:
            return None
        return WebhookChannel(
            url=webhook_url(url),
            key=read_key(credential=KEY_CREDENTIAL, variable=KEY_VARIABLE),
        )
    except CredentialError as error:
        remedy = "correct the file or the variable; the daemon reads it again"
        raise NotTakenError("misconfigured", str(error), remedy=remedy) from None
    except ValueError as error:
        # The value itself may be the secret: `webhook_url` does not quote it.
        reason, _, remedy = f"the URL in {URL_CREDENTIAL} or {URL_VARIABLE} {error}".partition("; ")
        raise NotTakenError("misconfigured", reason, remedy=remedy) from None


class WebhookChannel:
    """A POST with the message as its body."""

    def __init__(self, *, url: str, key: str | None) -> None:
        self._url = url
        self._host = urlsplit(url).netloc.rpartition("@")[2]
        self._key = None if key is None else _key_bytes(key)

    async def send(self, message: Message) -> None:
        """POST it; only a 2xx answer takes it."""
        try:
            answer = await self._post(message)
        except NoAnswerError as error:
            # `from None`: a traceback of the library's own error may hold the URL.
            if error.reason == "late":
                raise NotTakenError(
                    "timeout",
                    f"{self._host} did not answer within {WEBHOOK_S:g} s",
                    remedy="look at the receiver, which has to answer before it works on the message",
                ) from None
            raise NotTakenError(
                "unreachable",
                f"{self._host}: {self._without_url(str(error))}",
                remedy="look whether it is up, and at the network",
            ) from None
        if not 200 <= answer.status < 300:
            retry_after = answer.headers.get("retry-after", "")
            raise NotTakenError(
                "refused",
                f"{self._host} answered {answer.status}",
                remedy=_remedy(answer.status),
                retry_after_s=_seconds(retry_after) if answer.status in (429, 503) else 0.0,
            )

    def _without_url(self, said: str) -> str:
        """Return a library's message, or its beginning where it quotes a part of the URL that may be a secret."""
        parts = urlsplit(self._url)
        told = any(part and part in said for part in (parts.path.strip("/"), parts.query, parts.password))
        return said.partition(" (")[0] if told else redact(said)

    async def _post(self, message: Message) -> Answer:
        moment = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"everlean/{version('everlean')}",
            "webhook-id": message.id,
            "webhook-timestamp": moment,
        }
        if self._key is not None:
            headers["webhook-signature"] = signature(self._key, message, moment)
        async with HttpClient(seconds=WEBHOOK_S, headers=headers) as client:
            # The body of the answer is not read: it says nothing useful.
            return await client.call("POST", self._url, body=message.body, read=False)


def signature(key: bytes, message: Message, timestamp: str) -> str:
    """Return the value of `webhook-signature`."""
    signed = b".".join((message.id.encode(), timestamp.encode(), message.body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode("ascii")


class CommandChannel:
    """A program that gets the message on standard input."""

    def __init__(self, settings: Command, *, folder: Path) -> None:
        self._run = settings.run
        self._folder = folder

    async def send(self, message: Message) -> None:
        """Run it once; exit status 0 takes the message."""
        # Not asyncio's own pipe, whose end `wait` would wait for: what the program leaves running may hold it for ever.
        reading, writing = os.pipe()
        words = asyncio.create_task(_last_words(reading))
        try:
            process = await asyncio.create_subprocess_exec(
                *self._run,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=writing,
                cwd=self._folder,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                start_new_session=True,
            )
        except OSError as error:
            raise NotTakenError(
                "misconfigured",
                f"{self._run[0]} cannot be run: {error.strerror or error}",
                remedy="check [notify.command] run: the program's path, and that the daemon's user may run it",
            ) from error
        finally:
            os.close(writing)
        try:
            async with asyncio.timeout(COMMAND_S):
                await _feed(process.stdin, message.body)
                status = await process.wait()
            await asyncio.wait({words}, timeout=_LINGER_S)
        except TimeoutError:
            raise NotTakenError(
                "timeout",
                f"{self._run[0]} did not end within {COMMAND_S:g} s and was killed",
                remedy="run it by hand; what takes longer belongs into a process that it starts and leaves",
            ) from None
        finally:
            # Also where the daemon ends meanwhile.
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            words.cancel()
        if status != 0:
            said = words.result() if words.done() and not words.cancelled() else ""
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            raise NotTakenError(
                "failed",
                f"{self._run[0]} {how}{f': {said}' if said else ''}",
                remedy="run it by hand with a message on its standard input",
            )


async def _feed(stdin: asyncio.StreamWriter | None, body: bytes) -> None:
    if stdin is None:
        return
    # A program need not read what it does not care for; its exit status is what counts.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(body)
        await stdin.drain()
    stdin.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stdin.wait_closed()


async def _last_words(descriptor: int) -> str:
    """The last line that a pipe brings, ours to close; all of it is read, so that the writer never blocks."""
    stderr, kept = asyncio.StreamReader(), b""
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stderr), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        while chunk := await stderr.read(65536):
            kept = (kept + chunk)[-_WORDS_BYTES:]
    finally:
        transport.close()
    lines = kept.decode(errors="replace").strip().splitlines()
    return redact(lines[-1].strip()) if lines else ""


def _key_bytes(key: str) -> bytes:
    """`whsec_` marks base64, as Standard Webhooks writes its keys; any other text is the key itself."""
    if key.startswith("whsec_"):
        try:
            return base64.b64decode(key.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            raise CredentialError(
                f"the key in {KEY_CREDENTIAL} or {KEY_VARIABLE} begins with whsec_, and what follows is no base64"
            ) from None
    return key.encode("ascii")


def _remedy(status: int) -> str:
    if 300 <= status < 400:
        return "it points elsewhere: write the address that it points to in [notify.webhook] url"
    if status in (401, 403):
        return "check the URL, and whether both sides have the same key to sign with"
    if status in (404, 405, 410):
        return "check the URL of the webhook"
    if status == 413:
        return "the receiver takes no message of this size: raise its limit"
    return "the daemon tries again; look at the receiver"


def _seconds(retry_after: str) -> float:
    return min(float(retry_after), LONGEST_RETRY_AFTER_S) if retry_after.isdecimal() else 0.0


# ---- What there is to tell
# From events of the log to items that people can read, and to the message that holds them.
# Pure but for the view that it asks; a proof that does not count as verified any more is not told as one.


SCHEMA = 1

_KIND_OF = {
    "proof_verified": "proof_verified",
    "proof_doubted": "proof_doubted",
    "checkpoint_promoted": "model_promoted",
    "repository_failing": "repository_failing",
}
TYPES = tuple(_KIND_OF)
"""The types of the events that may be told."""

MOST_TOGETHER = 100
"""Items in a message; the others are in the next one."""


@dataclass(frozen=True, slots=True)
class AboutProof(Proof):
    SHOWN: ClassVar = (
        *("proof", "sorry", "repository", "branch", "sha", "path", "declaration", "prover", "rung", "axioms"),
        *("grade", "kernel", "doubts", "patch_sha256"),
    )


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
    about: AboutProof | dict[str, Any]
    """the proof; of a model or a repository the event's own data"""


@dataclass(frozen=True, slots=True)
class MessageBody:
    """What a receiver reads, as JSON."""

    schema: int
    """1; fields may be added under the same number"""
    id: str
    """the event's own where there is one, else made of those of its events"""
    host: str
    """the machine"""
    text: str
    """for people, in the form that Slack and Mattermost show; `<`, `>` and `@` in names are replaced by signs that
    look like them"""
    counts: dict[str, int]
    """how many events of each kind; of a digest `{"digest": 1}`"""
    events: list[Item]
    """one by one; none of a digest"""


def wanted(event: StoredEvent, kinds: Mapping[str, int]) -> bool:
    """Return whether an event of `TYPES` is due for a channel with these kinds, each behind its position."""
    kind = _KIND_OF[event.type]
    return kind in kinds and event.seq > kinds[kind]


def described(database: sqlite3.Connection, events: Sequence[StoredEvent]) -> list[Item]:
    """Return the items for these events, without those that are true no more."""
    named = {event.seq: event.data for event in events}
    rows = queries.proofs(database, ids=[data["proof"] for data in named.values() if "proof" in data])
    proofs = {one.proof: one for one in describe_proofs(database, rows)}
    items = []
    for event in events:
        data = named[event.seq]
        proof = proofs.get(data.get("proof", ""))
        text = _text(event.type, data) if "proof" not in data else _text_of_proof(event.type, data, proof)
        if text:
            items.append(
                Item(
                    id=event.event_id,
                    seq=event.seq,
                    kind=_KIND_OF[event.type],
                    recorded_at=event.recorded_at,
                    text=_harmless(text),
                    about=data if proof is None else of_row(AboutProof, proof),
                )
            )
    return items


def _text_of_proof(kind: str, data: Mapping[str, Any], proof: Proof | None) -> str:
    """Return a line about a proof; "" where the event is true of it no more."""
    if proof is None:
        return ""
    more = f"{proof.text}; everlean proofs show {proof.proof}"
    if kind == "proof_verified" and proof.state == "verified":
        return f"proof verified ({proof.graded}): {more}"
    if kind == "proof_doubted" and proof.doubts and proof.doubts == data["advisories"]:
        return f"verified proof in doubt ({', '.join(proof.doubts)}): {more}"
    return ""


def _text(kind: str, data: Mapping[str, Any]) -> str:
    """Return a line about a model or a repository."""
    if kind == "repository_failing":
        return f"{data['repository']} has failed since {data['since']}: {data['reason']} -> {data['remedy']}"
    return f"{data['model']} {data['checkpoint']} is in use: {data['reason']}"


def message(items: Sequence[Item]) -> Message:
    """Return the message that tells these items; the same items have the same id."""
    ids = [item.id for item in items]
    kinds = Counter(item.kind for item in items)
    return _message(
        ids[0] if len(ids) == 1 else event_id("notification", *ids),
        items[0].text if len(items) == 1 else _summary(items, kinds),
        counts=kinds,
        items=items,
    )


def digest_message(found: Front, *, identity: str) -> Message:
    """Return the message that has the report's first screen as its text, a line below the other."""
    text = "\n".join(_harmless(line) for line in digest(found))
    return _message(identity, text, counts={"digest": 1}, items=())


def _message(identity: str, text: str, *, counts: Mapping[str, int], items: Sequence[Item]) -> Message:
    body = MessageBody(SCHEMA, identity, platform.node(), text, dict(counts), list(items))
    return Message(id=identity, body=printable_json(body, default=plain).encode())


_WORDS = {
    "proof_verified": "proof verified",
    "proof_doubted": "verified proof in doubt",
    "model_promoted": "model promoted",
    "repository_failing": "repository failing",
}


def _summary(items: Sequence[Item], kinds: Counter[str]) -> str:
    counted = ", ".join(f"{number} x {_WORDS[kind]}" for kind, number in kinds.items())
    return f"{counted}. The first: {items[0].text}"


_ORDERS = str.maketrans({"<": "\u2039", ">": "\u203a", "@": "\uff20"})


def _harmless(text: str) -> str:
    """One printable line, without mentions or links for a chat program.

    Names of declarations are whatever a watched repository likes; the exact ones are in `about`.
    """
    return clean(text.translate(_ORDERS))


CHANNELS: tuple[NotifyChannel, ...] = get_args(NotifyChannel)
LOOK_S = 60.0
"""Seconds between two looks of a channel without a wake-up, and between two looks for failing repositories."""
EVERY_S = 60.0
"""Shortest time between two messages to a channel: a flood of proofs is one message, and is told within a minute."""
FAILING_FOR_S = 86400.0
"""So long a repository fails before people are told: forges are back from an outage within a day."""
WEBHOOK_S = 10.0
COMMAND_S = 30.0
"""Time limits of one attempt; a command may have to start an interpreter and send mail."""
_RETRY = Backoff(5.0, 3600.0, jitter=0.2)

log = structlog.get_logger("daemon.results.notifications")


@dataclass(slots=True)
class _State:
    """State of a channel; all of it can be lost."""

    pause_s: float = 0.0
    """The seconds until something can be due again."""
    looked: int = 0
    """Up to here the log has nothing to tell it."""
    attempts: int = 0
    sent: float = -math.inf
    """When the last message was taken (`daemon.state.clock`); the rate limit counts from there."""
    retry: float = -math.inf
    """Before this moment nothing that failed is tried again."""


class Notifications:
    """The channels of one daemon. `start` it once the store is open, then have each channel `look` again and again.

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
        """Attempts that failed since the daemon started."""
        self._store = store
        self._context = context
        self._problems = problems
        self._dice = dice or random.Random()  # noqa: S311 - jitter, not cryptography
        self._states: dict[NotifyChannel, _State] = {name: _State() for name in CHANNELS}

    async def start(self, news: Callable[[], None]) -> None:
        """Resume; `news` is called from then on when the channels have something to look at."""

        def appended(events: Sequence[NewEvent]) -> None:
            if any(event.body.type in TYPES for event in events):
                news()

        self._store.subscribe(appended)
        for row in await self._store.ask(report_queries.notifiers):
            # A restart is no reason to send two messages in one breath.
            if row.sent_at is not None:
                # Where the clock was set back meanwhile, as if it were now.
                self._states[_name(row.channel)].sent = elapsed_s() - max(_age_s(row.sent_at), 0.0)

    def reload(self) -> None:
        """Let a channel that waits to try again do so at its next look."""
        for state in self._states.values():
            state.retry = -math.inf

    async def look(self, name: NotifyChannel) -> None:
        """Send what a channel is due to send."""
        state = self._states[name]
        state.pause_s = LOOK_S  # where the turn ends in a defect
        state.pause_s = await self._turn(name, state)

    def pause_s(self, name: NotifyChannel) -> float:
        """Return the seconds until a channel is to look again, if nothing is news before."""
        return self._states[name].pause_s

    async def _turn(self, name: NotifyChannel, state: _State) -> float:
        """Send what is due; return the seconds until something can be due again."""
        rows = {row.channel: row for row in await self._store.ask(report_queries.notifiers)}
        row = rows.get(name)
        settings = self._context.settings
        try:
            found = channel(name, settings.notify, folder=settings.paths.state)
        except NotTakenError as error:
            # There is one, and it cannot be used: what comes meanwhile is sent when it can be.
            await self._switch(name, row, _kinds(settings, name))
            await self._failed(name, state, error, before="" if row is None else row.problem)
            return LOOK_S
        if found is None:
            await self._switch(name, row, ())
            return LOOK_S
        if await self._switch(name, row, _kinds(settings, name)) or row is None:
            return 0.0
        wait_s = max(state.retry, state.sent + EVERY_S) - elapsed_s()
        if wait_s > 0:
            return min(wait_s, LOOK_S)
        if (made := await self._digest(name, row)) is not None:
            return await self._tell(name, found, state, made, position=row.position, before=row.problem)
        # Not what the view does not know yet (the disk was full): it is asked for the details.
        known = await self._store.ask(queries.position)
        events, reached = await self._store.look_up(
            partial(_news, after=max(row.position, state.looked), upto=known, kinds=row.kinds)
        )
        items = await self._store.ask(partial(described, events=events))
        if not items:
            state.looked = reached
            return 0.0 if events else LOOK_S
        last = events[-1].seq
        told = tuple(item.id for item in items)
        pause_s = await self._tell(
            name, found, state, message(items), told, position=last, before=row.problem
        )
        if pause_s == 0.0:
            state.looked = last  # where the disk was full, the view may not know it yet
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
        found = await self._store.ask(partial(front, since=since, until=until, problems=problems))
        return digest_message(found, identity=event_id("digest", name, since)) if found.watched else None

    async def _tell(
        self,
        name: NotifyChannel,
        found: Channel,
        state: _State,
        made: Message,
        told: tuple[str, ...] = (),
        *,
        position: int,
        before: str,
    ) -> float:
        """Send a message; return 0 when it was taken, else the seconds to wait."""
        state.attempts += 1
        try:
            await found.send(made)
        except NotTakenError as error:
            return await self._failed(name, state, error, before=before)
        sent = NotificationSent(
            channel=name,
            message=made.id,
            events=told,
            position=position,
            attempts=state.attempts,
        )
        await self._store.append([NewEvent(f"notify:{name}", sent)], wait=True)
        log.info(
            "notification_sent", channel=name, message=made.id, events=len(told), attempts=state.attempts
        )
        state.attempts = 0
        state.sent = elapsed_s()
        return 0.0

    async def _failed(
        self, name: NotifyChannel, state: _State, error: NotTakenError, *, before: str
    ) -> float:
        """Record what is new of a failure, and return how long to wait."""
        self.failures[name] += 1
        state.attempts = max(state.attempts, 1)
        pause_s = max(_RETRY.wait_s(state.attempts, self._dice), error.retry_after_s)
        state.retry = elapsed_s() + pause_s
        log.warning(
            "notification_not_taken",
            channel=name,
            reason=error.reason,
            attempts=state.attempts,
            again_in_s=round(pause_s, 1),
        )
        if before != error.problem:
            failed = NotificationFailed(
                channel=name, problem=error.problem, reason=error.reason, remedy=error.remedy
            )
            await self._store.append([NewEvent(f"notify:{name}", failed)], wait=True)
        return pause_s

    async def _switch(self, name: NotifyChannel, row: NotifierRow | None, kinds: tuple[str, ...]) -> bool:
        """Record what the channel tells of from now on, where that is not what it did; return whether it was not."""
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
        """Record which repositories have failed for as long as FAILING_FOR_S.

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
    return settings.notify.webhook.kinds if name == "webhook" else settings.notify.command.kinds


def _news(
    reader: LogReader, *, after: int, upto: int, kinds: Mapping[str, int]
) -> tuple[list[StoredEvent], int]:
    """Return the first events between two positions that are to be told, and how far was looked."""
    found = []
    for event in reader.read(after=after, upto=upto, types=TYPES):
        if wanted(event, kinds):
            found.append(event)
            if len(found) == MOST_TOGETHER:
                return found, event.seq
    return found, upto


def _age_s(recorded_at: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(recorded_at)).total_seconds()


def _name(channel_name: str) -> NotifyChannel:
    return next(name for name in CHANNELS if name == channel_name)
