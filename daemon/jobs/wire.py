"""What crosses between the daemon and a node, about one attempt: messages of JSON, and bytes beside them.

A message is two lengths (32 bits each, big-endian), its JSON, and its bytes. Both ends read the other's as hostile:
what is no message ends the attempt. The daemon's end is `daemon.jobs.remote`, the node's `daemon.jobs.node`; between
them `daemon.jobs.ray_link` carries bytes, many attempts' over one pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import struct
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import version
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from pipeline.jobs.child import LONGEST_LINE_BYTES
from pipeline.lean.backend import START_TIMEOUT_S

SCHEMA = 1
WINDOW_LINES = 16
"""So many lines may be under way before the daemon has taken the first of them."""
PART_BYTES = 4 * 2**20
"""A payload crosses in parts of so many bytes."""
SAID_BYTES = 2**16
"""Standard error crosses in parts of so many bytes."""
REPLY_BYTES = 2**16
"""So much JSON a node may say in a message, or of itself."""
BEGIN_BYTES = 256 * 2**20
"""So much JSON an order may have."""
FRAME_BYTES = 16 * 2**20
"""Bytes between the daemon and the process that speaks to the cluster go in frames of so many."""
_LENGTHS = struct.Struct(">II")
_MOST_BODY_BYTES = {"line": LONGEST_LINE_BYTES + 2**20, "payload": PART_BYTES, "said": SAID_BYTES}


def program_version() -> str:
    """Return the versions that a node and its daemon have to have in common."""
    return f"everlean {version('everlean')}, Python {platform.python_version_tuple()[0]}.{sys.version_info.minor}"


class WireError(ValueError):
    """What came is no message, or larger than one may be."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Message(_Part):
    """A message; `body` are the bytes beside it."""

    body: bytes = Field(b"", exclude=True, repr=False)


# ---- To the node


class WireCommit(_Part):
    """See `daemon.jobs.engine.Commit`."""

    repository: str
    sha: str
    built: bool
    project: str


class WireInput(_Part):
    """See `pipeline.jobs.inputs.Input`."""

    name: str
    sha256: str
    size_bytes: int


class WireTree(_Part):
    """A folder that is unpacked at a place below the node's cache, unless it is there."""

    place: str
    sha256: str


class WireLean(_Part):
    """What runs Lean, of which the node has its own: see `pipeline.lean.backend.LeanBackend`."""

    kind: str
    toolchain: str
    sandbox: Literal["bubblewrap", "none"]
    start_timeout_s: float = START_TIMEOUT_S
    as_root: bool = False


class Begin(Message):
    """Start an attempt. Nothing in it is a secret, or a path of the daemon's machine, except the store's.

    Attributes:
        lease: of this attempt alone; the node names it in each answer.
        lease_s: the node ends the attempt when it has not heard of the daemon for so long.
        journal: it keeps a journal of its search, on the node.
        parameters: of the kind's class in `pipeline.jobs.specs`, without the places that are the node's own.
        packs: the artifacts that hold the objects of the commits that it reads.
        mirror: the repository whose bare clone it reads; "" for none.
        sha256: the repository's ids are SHA-256.
        cache_bytes: what the builds on the node may take.
    """

    what: Literal["begin"] = "begin"
    schema_version: int = SCHEMA
    lease: str
    lease_s: float
    artifacts: str
    job: str
    kind: str
    attempt: int
    module: str
    memory_bytes: int
    whole_bytes: int
    cache_bytes: int
    commit: WireCommit | None = None
    mirror: str = ""
    packs: tuple[str, ...] = ()
    sha256: bool = False
    inputs: tuple[WireInput, ...] = ()
    trees: tuple[WireTree, ...] = ()
    lean: WireLean | None = None
    journal: bool = False
    parameters: dict[str, JsonValue]


class Stop(Message):
    """See `Attempt.stop`."""

    what: Literal["stop"] = "stop"
    grace_s: float
    first_alone: bool


class Taken(Message):
    """The daemon has taken so many more lines and parts of payloads; or, with `said`, one part of standard error."""

    what: Literal["taken"] = "taken"
    lines: int = 0
    said: bool = False


class Close(Message):
    """See `Attempt.close`."""

    what: Literal["close"] = "close"


# ---- To both


class Beat(Message):
    """I am there. The node answers it with another one."""

    what: Literal["beat"] = "beat"
    lease: str = ""


# ---- To the daemon


class _OfLease(Message):
    lease: str


class Started(_OfLease):
    """The process runs."""

    what: Literal["started"] = "started"
    pid: int


class Refused(_OfLease):
    """It could not be started. `of_node`: no fault of the job, and another node may do it."""

    what: Literal["refused"] = "refused"
    reason: str
    message: str
    remedy: str
    of_node: bool


class Payload(_OfLease):
    """The next part of a payload that a later line cites."""

    what: Literal["payload"] = "payload"
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    last: bool


class Plain(_OfLease):
    """A line of the job, more of its standard error, or that it was stopped (`Stop`) and is gone."""

    what: Literal["line", "said", "stopped"]


class Fault(_OfLease):
    """It holds more memory than it may, or printed more than it may without ending the line."""

    what: Literal["over", "too_long"]
    message: str


class Ended(_OfLease):
    """Its process ended, after the last line (`pipeline.jobs.child.Exit`); or nothing of it is left (`End`)."""

    what: Literal["ended", "closed"]
    status: int
    signal: int | None
    peak_rss_bytes: int
    seen_bytes: int = 0


FromDaemon = Begin | Stop | Taken | Close | Beat
FromNode = Started | Refused | Payload | Plain | Fault | Ended | Beat
FROM_DAEMON: TypeAdapter[FromDaemon] = TypeAdapter(Annotated[FromDaemon, Field(discriminator="what")])
FROM_NODE: TypeAdapter[FromNode] = TypeAdapter(Annotated[FromNode, Field(discriminator="what")])
_Any = TypeVar("_Any", FromDaemon, FromNode)


def encode(message: FromDaemon | FromNode) -> bytes:
    """Return a message as it crosses."""
    head = message.model_dump_json().encode()
    return _LENGTHS.pack(len(head), len(message.body)) + head + message.body


class Decoder:
    """Puts messages together from bytes in pieces of any size.

    Args:
        most_json_bytes: in a message; what a node sends is read on the daemon's event loop.
    """

    def __init__(self, most_json_bytes: int = REPLY_BYTES) -> None:
        self._bytes = bytearray()
        self._most_json_bytes = most_json_bytes

    def feed(self, piece: bytes, kinds: TypeAdapter[_Any]) -> Iterator[_Any]:
        """Yield the messages that are whole with this piece.

        Raises:
            WireError: what came is none of these kinds, or larger than one may be.
        """
        self._bytes += piece
        read = 0
        try:
            while len(self._bytes) - read >= _LENGTHS.size:
                head, body = _LENGTHS.unpack_from(self._bytes, read)
                if head > self._most_json_bytes or body > _MOST_BODY_BYTES["line"]:
                    raise WireError(f"a message of {head + body} bytes")
                begin = read + _LENGTHS.size
                end = begin + head + body
                if len(self._bytes) < end:
                    return
                text = bytes(self._bytes[begin : begin + head])
                beside = bytes(self._bytes[begin + head : end])
                read = end
                try:
                    message = kinds.validate_json(text)
                except ValidationError as error:
                    raise WireError(f"no message: {error.errors()[0]['msg']}: {text[:200]!r}") from error
                if body > _MOST_BODY_BYTES.get(message.what, 0):
                    raise WireError(f"{body} bytes beside a message {message.what!r}")
                yield message.model_copy(update={"body": beside}) if beside else message
        finally:
            del self._bytes[:read]


# ---- What a node is


class Look(_Part):
    """What the daemon asks of each node from now on: to have what its own machine has, and to read the artifacts."""

    what: Literal["look"] = "look"
    lean: WireLean
    artifacts: str


class NodeReport(_Part):
    """What a machine is, for attempts.

    Attributes:
        version: of the program and of Python: a node has to have the daemon's.
        schema_version: of these messages.
        clock: seconds since 1970.
        folder: where it works.
        cores: so many attempts may start there at the same time.
        leans: kind and toolchain of each Lean that it has.
        problems: what keeps it from working, with the remedy.
    """

    host: str
    version: str
    schema_version: int
    clock: Annotated[float, Field(allow_inf_nan=False)]
    folder: str
    free_bytes: int
    cores: Annotated[int, Field(ge=1)]
    leans: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]


# ---- Between the daemon and the process that speaks to the cluster


class Open(_Part):
    """Make room for an attempt on a node; what comes on this channel from now on is for it."""

    what: Literal["open"] = "open"
    channel: int
    node: str


class Kill(_Part):
    """End what is on a channel, at once."""

    what: Literal["kill"] = "kill"
    channel: int


ToLink = Look | Open | Kill


class NodeSeen(_Part):
    """A node of the cluster with slots: its report, or why there is none."""

    node: str
    name: str
    slots: int
    report: NodeReport | None
    problem: str = ""


class Nodes(_Part):
    """The nodes that the cluster has now."""

    what: Literal["nodes"] = "nodes"
    nodes: tuple[NodeSeen, ...]


class Gone(_Part):
    """What was on a channel is gone. `suspect`: see `daemon.jobs.engine.AttemptLostError`."""

    what: Literal["gone"] = "gone"
    channel: int
    reason: str
    suspect: bool


FromLink = Nodes | Gone
TO_LINK: TypeAdapter[ToLink] = TypeAdapter(Annotated[ToLink, Field(discriminator="what")])
FROM_LINK: TypeAdapter[FromLink] = TypeAdapter(Annotated[FromLink, Field(discriminator="what")])
CONTROL = 0
"""The channel of those."""


def framed(channel: int, content: bytes) -> bytes:
    """Return bytes of a channel as they go over the one pipe."""
    parts = [content[at : at + FRAME_BYTES] for at in range(0, len(content), FRAME_BYTES)]
    return b"".join(piece for part in parts for piece in (_LENGTHS.pack(channel, len(part)), part))


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    """Yield channels and their bytes until the pipe ends.

    Raises:
        WireError: what came is no frame.
    """
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            channel, length = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
            if length > FRAME_BYTES:
                raise WireError(f"a frame of {length} bytes")
            yield channel, await reader.readexactly(length)
