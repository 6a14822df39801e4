"""The events of the service: the daemon itself, its configuration, its notifications."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from store.events.base import Digest, EventBody


class DaemonStarted(EventBody):
    """The log is open, the view is caught up, work begins."""

    type: ClassVar[str] = "daemon_started"
    version: str
    pid: int
    host: str
    lean: Literal["pantograph", "server", "simulator", "none"]
    lean_detail: str
    sqlite: str


class DaemonStopped(EventBody):
    """The daemon ended on purpose. A daemon that was killed leaves no such event."""

    type: ClassVar[str] = "daemon_stopped"
    reason: str
    pid: int


class ConfigLoaded(EventBody):
    """Settings took effect. `settings` is the whole of them, without secrets."""

    type: ClassVar[str] = "config_loaded"
    path: str
    digest: Digest
    settings: dict[str, Any]


class ConfigRejected(EventBody):
    """A changed file was not valid; the earlier settings stay in force."""

    type: ClassVar[str] = "config_rejected"
    path: str
    digest: Digest
    errors: tuple[str, ...]


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
