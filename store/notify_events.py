"""Event types of telling people what happened: what a channel took and what it refused. Stream: `notify:<channel>`.

What there is to tell follows from the log itself. A channel's stream says how far it was told, so that nothing is told
anew after a restart, and nothing that was recorded before the channel was switched on.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from store.event_body import EventBody

NotifyChannel = Literal["webhook", "command"]
NotifyProblem = Literal["unreachable", "timeout", "refused", "failed", "misconfigured"]


class NotificationsSwitched(EventBody):
    """The settings in force have a channel tell of other kinds of news than before; of none: it is off.

    Of a kind that is new here, nothing is told that lies up to `position`; of the others all that was not told yet.
    "simulated" among the kinds: also what the simulator is the source of.
    """

    type: ClassVar[str] = "notifications_switched"
    channel: NotifyChannel
    kinds: tuple[str, ...]
    position: int


class NotificationSent(EventBody):
    """A channel took a message. `events` are the ids of the events that it told, `position` the seq of the last.

    `message` is the id that the receiver was given; a message whose delivery was not recorded any more is sent again
    under the same ids. `attempts` counts those of this daemon.
    """

    type: ClassVar[str] = "notification_sent"
    channel: NotifyChannel
    message: str
    events: tuple[str, ...]
    position: int
    attempts: int


class NotificationFailed(EventBody):
    """Messages to a channel began to fail, or fail for another reason than before; they are tried on."""

    type: ClassVar[str] = "notification_failed"
    channel: NotifyChannel
    problem: NotifyProblem
    reason: str
    remedy: str
