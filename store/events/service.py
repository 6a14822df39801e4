"""The events of the service: the daemon itself, its configuration, its notifications."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from store.events.base import Digest, EventBody, Part

LeanKind = Literal["pantograph", "server", "none"]


class DaemonStarted(EventBody):
    """The log is open, the view is caught up, work begins. `lean` is the one in use; see `LeanChosen`."""

    type: ClassVar[str] = "daemon_started"
    version: str
    pid: int
    host: str
    lean: LeanKind
    lean_detail: str
    sqlite: str


class LeanBuild(Part):
    """The program for one Lean version. `toolchain` is "" if unknown."""

    toolchain: str
    lean: LeanKind
    detail: str


class LeanChosen(EventBody):
    """From here on this runs Lean on this machine: after new settings, or an installed or removed toolchain.

    `lean` and `lean_detail` represent all of it, as in `DaemonStarted`. `builds` are the projects' choices by
    toolchain, in the order of preference; empty if one program (or nothing) serves every project.
    """

    type: ClassVar[str] = "lean_chosen"
    lean: LeanKind
    lean_detail: str
    builds: tuple[LeanBuild, ...]


class DaemonStopped(EventBody):
    """The daemon ended on purpose. A killed daemon leaves no such event."""

    type: ClassVar[str] = "daemon_stopped"
    reason: str
    pid: int


class LogRecovered(EventBody):
    """The log is a new branch of history behind event `kept`; of later events `behind` remain.

    `hash` is that of the last event before this one. `lost` is the last event known to be lost (by the
    anchor, the view or the damaged log itself), 0 without one. The damaged files are in `aside`.
    """

    type: ClassVar[str] = "log_recovered"
    kept: int
    behind: int = 0
    hash: Digest
    lost: int
    reason: str
    aside: str


class EventLost(EventBody):
    """The event of this number was lost, or came behind a lost one of its stream; see `LogRecovered`.

    It was recorded between the two beside it; the time is that of the one before. The damaged files are in
    `aside`.
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
    """A changed file was invalid; the earlier settings stay in force."""

    type: ClassVar[str] = "config_rejected"
    path: str
    digest: Digest
    errors: tuple[str, ...]


NotifyChannel = Literal["webhook", "command", "apprise"]
NotifyProblem = Literal["unreachable", "timeout", "refused", "failed", "misconfigured"]


class NotificationsSwitched(EventBody):
    """The settings in force choose other kinds of news for a channel than before; none: it is off.

    News of a new kind begin behind `position`; the others continue.
    """

    type: ClassVar[str] = "notifications_switched"
    channel: NotifyChannel
    kinds: tuple[str, ...]
    position: int


class NotificationSent(EventBody):
    """A channel took a message. `events` are the ids of its events, `position` the seq of the last.

    A digest has no event, and the previous message's `position`. `message` is the id sent to the receiver; if
    a delivery was not recorded, the message is sent again under the same ids. `attempts` counts those of this
    daemon.
    """

    type: ClassVar[str] = "notification_sent"
    channel: NotifyChannel
    message: str
    events: tuple[str, ...]
    position: int
    attempts: int


class NotificationFailed(EventBody):
    """Messages to a channel began to fail, or fail for another reason than before; attempts continue."""

    type: ClassVar[str] = "notification_failed"
    channel: NotifyChannel
    problem: NotifyProblem
    reason: str
    remedy: str
