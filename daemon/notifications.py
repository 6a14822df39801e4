"""Tell people what happened: a proof was verified, a model promoted, a repository fails for long.

What there is to tell is read from the log, behind the position that each channel's own events name, so a restart tells
nothing twice (after a kill between a delivery and its record: once more, under the same ids), and a channel that was
just switched on hears nothing of what was before. One message at a time and channel; what comes meanwhile is told
together. One that is not taken is tried on, ever more seldom, and holds up nothing but its own channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, get_args

import structlog

from daemon.clock import elapsed_s
from daemon.ledger import Ledger, StoreFailedError
from daemon.notify_channels import Channel, NotTakenError, channel
from daemon.notify_news import MOST_TOGETHER, SIMULATED, TYPES, Item, described, message, wanted
from daemon.settings import Settings
from store.domain.identity import event_id
from store.events.repositories import RepositoryFailing
from store.events.service import NotificationFailed, NotificationSent, NotificationsSwitched, NotifyChannel
from store.log.envelope import NewEvent, StoredEvent, utc_text
from store.log.reader import LogReader
from store.view.queries import basic as queries
from store.view.queries import reports as report_queries
from store.view.queries.reports import NotifierRow

CHANNELS: tuple[NotifyChannel, ...] = get_args(NotifyChannel)
LOOK_S = 60.0
"""How often a channel looks without being woken, and repositories are asked for how long they have failed."""
_FIRST_RETRY_S, _LONGEST_RETRY_S = 5.0, 3600.0

log = structlog.get_logger("daemon.notifications")


@dataclass(slots=True)
class _State:
    """What a channel's task remembers; all of it can be lost."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    looked: int = 0
    """Up to here the log has nothing to tell it."""
    attempts: int = 0
    sent: float = -math.inf
    """When the last message was taken (`daemon.clock`); the rate limit counts from there."""
    retry: float = -math.inf
    """Before this moment nothing that failed is tried again."""


class Notifications:
    """The channels of one daemon. `start` it once the store is open; it ends with its tasks.

    Args:
        problems: what is wrong, by a name of its own: a defect met here is put there, and taken out again.
        begin: runs a task in the background, by its name, until the daemon ends.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        settings: Callable[[], Settings],
        problems: dict[str, str],
        begin: Callable[[Coroutine[Any, Any, None], str], None],
        dice: random.Random | None = None,
    ) -> None:
        self.failures: dict[str, int] = dict.fromkeys(CHANNELS, 0)
        """Attempts that failed since the daemon started."""
        self._ledger = ledger
        self._settings = settings
        self._problems = problems
        self._begin = begin
        self._dice = dice or random.Random()  # noqa: S311 - jitter, not cryptography
        self._states: dict[NotifyChannel, _State] = {name: _State() for name in CHANNELS}

    async def start(self) -> None:
        """Begin to look for news, and for repositories that fail."""
        self._ledger.subscribe(self._on_append)
        for row in await self._ledger.ask(report_queries.notifiers):
            # A restart is no reason to send two messages in one breath.
            if row.sent_at is not None:
                # Where the clock was set back meanwhile, as if it were now.
                self._states[_name(row.channel)].sent = elapsed_s() - max(_age_s(row.sent_at), 0.0)
        for name in CHANNELS:
            self._begin(self._serve(name), f"notify:{name}")
        self._begin(self._watch_repositories(), "notify:repositories")

    def reload(self) -> None:
        """Take new settings up: also a channel that was waiting to try again tries now."""
        for state in self._states.values():
            state.retry = -math.inf
            state.wake.set()

    def _on_append(self, events: Sequence[NewEvent]) -> None:
        if any(event.body.type in TYPES for event in events):
            for state in self._states.values():
                state.wake.set()

    async def _serve(self, name: NotifyChannel) -> None:
        """One channel's life: look, tell, wait."""
        state = self._states[name]
        while True:
            state.wake.clear()
            try:
                pause_s = await self._turn(name, state)
                self._problems.pop(f"notify:{name}", None)
            except StoreFailedError:
                return  # the main loop ends the daemon with the reason
            except Exception as error:
                # The border of a channel: a defect met there must stop neither the other one nor the daemon.
                self._problems[f"notify:{name}"] = f"notifications by {name}: {type(error).__name__}: {error}"
                log.exception("notification_defect", channel=name)
                pause_s = LOOK_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await state.wake.wait()

    async def _turn(self, name: NotifyChannel, state: _State) -> float:
        """Tell what there is to tell, if it may be told now; return how long there is nothing to do."""
        rows = {row.channel: row for row in await self._ledger.ask(report_queries.notifiers)}
        row = rows.get(name)
        settings = self._settings()
        try:
            found = channel(name, settings.notify, folder=settings.paths.state)
        except NotTakenError as error:
            # There is one, and it cannot be used: what comes meanwhile is told when it can.
            await self._switch(name, row, _kinds(settings, name))
            await self._failed(name, state, error, before="" if row is None else row.problem)
            return LOOK_S
        if found is None:
            await self._switch(name, row, ())
            return LOOK_S
        if await self._switch(name, row, _kinds(settings, name)) or row is None:
            return 0.0
        wait_s = max(state.retry, state.sent + settings.notify.every_s) - elapsed_s()
        if wait_s > 0:
            return min(wait_s, LOOK_S)
        # Not what the view does not know yet (the disk was full): it is asked for the details.
        known = await self._ledger.ask(queries.position)
        events, reached = await self._ledger.look_up(
            partial(_news, after=max(row.position, state.looked), upto=known, kinds=row.kinds)
        )
        items = await self._ledger.ask(partial(described, events=events))
        if not items:
            state.looked = reached
            return 0.0 if events else LOOK_S
        return await self._tell(name, found, state, items, last=events[-1].seq, before=row.problem)

    async def _tell(
        self,
        name: NotifyChannel,
        found: Channel,
        state: _State,
        items: Sequence[Item],
        *,
        last: int,
        before: str,
    ) -> float:
        made = message(items)
        state.attempts += 1
        try:
            await found.send(made)
        except NotTakenError as error:
            return await self._failed(name, state, error, before=before)
        sent = NotificationSent(
            channel=name,
            message=made.id,
            events=tuple(item.id for item in items),
            position=last,
            attempts=state.attempts,
        )
        await self._ledger.append([NewEvent(f"notify:{name}", sent)], wait=True)
        state.looked = last  # where the disk was full, the view may not know it yet
        log.info(
            "notification_sent", channel=name, message=made.id, events=len(items), attempts=state.attempts
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
        pause_s = min(_FIRST_RETRY_S * 2.0 ** min(state.attempts - 1, 20), _LONGEST_RETRY_S)
        pause_s = max(pause_s * self._dice.uniform(0.8, 1.2), error.retry_after_s)
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
            await self._ledger.append([NewEvent(f"notify:{name}", failed)], wait=True)
        return pause_s

    async def _switch(self, name: NotifyChannel, row: NotifierRow | None, kinds: tuple[str, ...]) -> bool:
        """Record what the channel tells of from now on, where that is not what it did; return whether it was not."""
        if set(kinds) == (set() if row is None else set(row.kinds)):
            return False
        position = await self._ledger.look_up(LogReader.position)
        switched = NotificationsSwitched(channel=name, kinds=kinds, position=position)
        await self._ledger.append([NewEvent(f"notify:{name}", switched)], wait=True)
        log.info("notifications_switched", channel=name, kinds=kinds, position=position)
        return True

    async def _watch_repositories(self) -> None:
        """Record which repositories have failed for as long as [notify] failing_for."""
        while True:
            try:
                await self._record_failing()
                self._problems.pop("notify:repositories", None)
            except StoreFailedError:
                return
            except Exception as error:
                # As in `_serve`.
                self._problems["notify:repositories"] = (
                    f"which repositories fail for long: {type(error).__name__}: {error}"
                )
                log.exception("notification_defect", channel="repositories")
            await asyncio.sleep(min(LOOK_S, self._settings().notify.failing_for_s))

    async def _record_failing(self) -> None:
        before = datetime.now(UTC) - timedelta(seconds=self._settings().notify.failing_for_s)
        rows = await self._ledger.ask(partial(report_queries.failing_untold, before=utc_text(before)))
        for row in rows:
            failing = RepositoryFailing(
                repository=row.repository,
                since=datetime.fromisoformat(row.since),
                problem=row.problem,
                reason=row.reason,
                remedy=row.remedy,
            )
            name = event_id("repository_failing", row.repository, row.since)
            await self._ledger.append(
                [NewEvent(f"repository:{row.repository}", failing, event_id=name)], wait=True
            )
            log.warning("repository_failing", repository=row.repository, since=row.since, reason=row.reason)


def _kinds(settings: Settings, name: NotifyChannel) -> tuple[str, ...]:
    """What a channel is to tell of, as its events name it."""
    kinds = settings.notify.webhook.kinds if name == "webhook" else settings.notify.command.kinds
    return (*kinds, SIMULATED) if settings.notify.simulated else kinds


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
