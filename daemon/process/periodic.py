"""Periodic work: one table of the daemon's repeated work, and its scheduler.

A loop that waits for an event or a queue, or tries one call until it succeeds, is not periodic work and stays
in its place; so does the main loop's work in each turn (`daemon.process.main_loop`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import partial

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.date import DateTrigger

from daemon.http.metrics import AGAIN_S, MetricsListener
from daemon.polling.past import Past
from daemon.polling.schedule import PollScheduler
from daemon.results.notifications import CHANNELS, Notifications
from daemon.scheduling.scheduler import PLAN_EVERY_S
from daemon.settings.reload import RESCAN_S, ConfigWatcher
from daemon.state.context import Context
from daemon.state.shipping import Shipping
from daemon.state.store_service import StoreFailedError, StoreService
from store.events.service import NotifyChannel

log = structlog.get_logger("daemon.process.periodic")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table.

    Attributes:
        name: for people; a failed run is a problem `periodic:<name>` until one succeeds.
        run: the work.
        every_s: the pause between the end of a run and the next one, computed at the end of a run.
        first_s: the pause before the first run.
    """

    name: str
    run: Callable[[], Awaitable[None]]
    every_s: Callable[[], float]
    first_s: float = 0.0


def table(
    *,
    polls: PollScheduler,
    poll: Callable[[], Awaitable[None]],
    past: Past,
    ask_past: Callable[[], Awaitable[None]],
    plan: Callable[[], Awaitable[None]],
    watcher: ConfigWatcher,
    notifications: Notifications,
    metrics: MetricsListener,
    store: StoreService,
    shipping: Shipping,
) -> tuple[Row, ...]:
    """Return the periodic work of a daemon."""
    return (
        Row("polls", poll, polls.tick_s),
        Row("past", ask_past, lambda: past.pause_s, first_s=past.pause_s),
        Row("plan", plan, lambda: PLAN_EVERY_S, first_s=PLAN_EVERY_S),
        Row("configuration", watcher.look_again, lambda: RESCAN_S, first_s=RESCAN_S),
        *notification_rows(notifications),
        Row("metrics listener", metrics.take_up, lambda: AGAIN_S),
        Row("log shipping", shipping.ship, lambda: shipping.pause_s),
        Row("log check", store.check_next_part, lambda: store.check_pause_s, first_s=store.check_pause_s),
    )


def notification_rows(notifications: Notifications) -> list[Row]:
    """Return the rows of the channels, and that of their failing repositories."""
    return [
        *(
            Row(channel_row(name), partial(notifications.look, name), partial(notifications.pause_s, name))
            for name in CHANNELS
        ),
        Row("failing repositories", notifications.record_failing, notifications.failing_every_s),
    ]


def channel_row(channel: NotifyChannel) -> str:
    """Return the name of a channel's row."""
    return f"notifications by {channel}"


class _AwakeTime(tzinfo):
    """The scheduler's time zone, whose present is the monotonic clock.

    APScheduler takes `datetime.now` of its zone for the present. On the wall clock, a step back of an hour
    would silence each row for an hour. Nobody sets this one; like the event loop's timers, it leaves out the
    time asleep.
    """

    def fromutc(self, _utc: datetime, /) -> datetime:
        return _BOOT + timedelta(seconds=time.monotonic())

    def utcoffset(self, _: datetime | None, /) -> timedelta:
        return timedelta(0)

    def dst(self, _: datetime | None, /) -> None:
        return None

    def tzname(self, _: datetime | None, /) -> str:
        return "awake"


_AWAKE = _AwakeTime()
_BOOT = datetime(1970, 1, 1, tzinfo=_AWAKE)


class Periodic:
    """Runs a table. Each run is dated from the end of the last, so none overlap or are caught up.

    A failed run is a problem in `status` until one succeeds, and ends neither its row nor another. If the
    store has failed, the main loop ends the daemon with the reason. Runs are tasks of the context, which ends
    them.
    """

    def __init__(self, context: Context, rows: Iterable[Row]) -> None:
        self._context = context
        self._rows = {row.name: row for row in rows}
        self._running: set[str] = set()
        self._again: set[str] = set()
        """The running rows to run once more at once."""
        self._ended = False
        self._scheduler = AsyncIOScheduler(timezone=_AWAKE, job_defaults={"misfire_grace_time": None})

    def start(self) -> None:
        """Begin."""
        for row in self._rows.values():
            self._date(row, row.first_s)
        self._scheduler.start()

    def run_soon(self, *names: str) -> None:
        """Run these rows now, or all; a running row runs once more."""
        for name in names or self._rows:
            if name in self._running:
                self._again.add(name)
            else:
                self._date(self._rows[name], 0.0)

    def stop(self) -> None:
        """End: no run begins after this."""
        self._ended = True
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def _date(self, row: Row, in_s: float) -> None:
        if not self._ended:
            at = DateTrigger(datetime.now(_AWAKE) + timedelta(seconds=in_s), _AWAKE)
            self._scheduler.add_job(self._begin, at, (row,), id=row.name, replace_existing=True)

    async def _begin(self, row: Row) -> None:
        if self._ended:
            return
        if row.name in self._running:  # requested again after the scheduler had taken it up
            self._again.add(row.name)
            return
        self._running.add(row.name)
        self._context.spawn(self._run(row), name=f"periodic:{row.name}")

    async def _run(self, row: Row) -> None:
        try:
            await row.run()
            self._context.problems.clear(f"periodic:{row.name}")
        except StoreFailedError:
            pass  # the main loop ends the daemon with the reason
        except Exception as error:
            # The border of a row: a defect met there must stop neither the other rows nor the daemon.
            text = f"{row.name}: {type(error).__name__}: {error}"
            self._context.problems.set(f"periodic:{row.name}", text)
            log.exception("periodic_defect", row=row.name)
        finally:
            self._running.discard(row.name)
        again = row.name in self._again
        self._again.discard(row.name)
        self._date(row, 0.0 if again else row.every_s())
