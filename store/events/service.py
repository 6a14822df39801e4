"""The events of the service: the daemon itself, its configuration, its notifications."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from store.events.base import Digest, EventBody, Part

LeanKind = Literal["pantograph", "server", "none"]


class DaemonStarted(EventBody):
    """The log is open, the view is caught up, work begins. `lean` is what is in use then; see `LeanChosen`."""

    type: ClassVar[str] = "daemon_started"
    version: str
    pid: int
    host: str
    lean: LeanKind
    lean_detail: str
    sqlite: str


class LeanBuild(Part):
    """What runs one Lean version. `toolchain` is "" where that is not known."""

    toolchain: str
    lean: LeanKind
    detail: str


class LeanChosen(EventBody):
    """From here on this runs Lean on this machine: other settings, or a toolchain that was installed or removed.

    `lean` and `lean_detail` represent all of it, as in `DaemonStarted`. `builds` are those that projects are given by
    their toolchain, in the order of preference; none where one program (or nothing) serves every project.
    """

    type: ClassVar[str] = "lean_chosen"
    lean: LeanKind
    lean_detail: str
    builds: tuple[LeanBuild, ...]


class DaemonStopped(EventBody):
    """The daemon ended on purpose. A daemon that was killed leaves no such event."""

    type: ClassVar[str] = "daemon_stopped"
    reason: str
    pid: int


class LogRecovered(EventBody):
    """The log is a new branch of history behind event `kept`: what came then was lost, but for `behind` events.

    `hash` is that of the last event before this one. `lost` is the last event that is known to have been there (by the
    anchor, the view or the damaged log itself), 0 where none is known to be lost. The damaged files are in `aside`.
    """

    type: ClassVar[str] = "log_recovered"
    kept: int
    behind: int = 0
    hash: Digest
    lost: int
    reason: str
    aside: str


class EventLost(EventBody):
    """The event of this number was lost in a damage, or came behind one of its stream that was; `LogRecovered` tells.

    It was recorded between the two beside it; the time is that of the one before. The damaged files are in `aside`.
    """

    type: ClassVar[str] = "event_lost"
    aside: str


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


NotifyChannel = Literal["webhook", "command", "apprise"]
NotifyProblem = Literal["unreachable", "timeout", "refused", "failed", "misconfigured"]


class NotificationsSwitched(EventBody):
    """The settings in force have a channel tell of other kinds of news than before; of none: it is off.

    Of a kind that is new here, nothing is told that lies up to `position`; of the others all that was not told yet.
    """

    type: ClassVar[str] = "notifications_switched"
    channel: NotifyChannel
    kinds: tuple[str, ...]
    position: int


class NotificationSent(EventBody):
    """A channel took a message. `events` are the ids of the events that it told, `position` the seq of the last.

    A digest tells of no event, and its `position` is that of the message before.

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
