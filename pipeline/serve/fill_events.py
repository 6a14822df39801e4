"""What a client of POST /fill is sent: server-sent events, each a name and one JSON object, and how they are streamed.

    waiting      so many requests have Lean already; this one waits for its turn
    begun        what is worked on, with which rungs
    rung         a rung begins
    candidate    a text that ended the search of one sorry: nobody has judged it, and it is no proof
    attempt      how the search for one sorry ended on a rung
    rung_failed  a rung could not be climbed to its end, and why
    verdict      what the gate says of one candidate, by its number
    error        there is nothing to go on with, and why
    summary      the last one, always (unless the server's time limit cuts the stream off, with an error)

Between them there are comments, so that what stands between server and client keeps the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pipeline.serve.check import ADVICE, Judgement, Judging
from pipeline.serve.problems import Problem, ProblemBody
from pipeline.serve.rooms import Rooms
from pipeline.serve.rooms_sorries import SorryFound

_HEARTBEAT = b": still at work\n\n"


class Event(BaseModel):
    """One event; `name` is its field `event`."""

    model_config = ConfigDict(frozen=True)

    name: ClassVar[str]

    def encoded(self) -> bytes:
        """Return the event as it goes over the line: JSON in ASCII has no line end that could cut it."""
        return f"event: {self.name}\ndata: {self.model_dump_json(ensure_ascii=True)}\n\n".encode("ascii")


class Waiting(Event):
    """All of Lean's places are taken."""

    name = "waiting"
    places: int


class RungTold(BaseModel):
    """A rung that is climbed."""

    model_config = ConfigDict(frozen=True)

    number: int
    prover: str
    model: str


class RungLeft(BaseModel):
    """A rung that is left out."""

    model_config = ConfigDict(frozen=True)

    number: int
    reason: str


class Begun(Event, Judging):
    """What is worked on."""

    name = "begun"
    sorries: list[SorryFound]
    rungs: list[RungTold]
    left_out: list[RungLeft]
    toolchain: str
    simulated: bool = Field(description="The simulator searches and judges, and not Lean.")
    advisory: str = ADVICE


class RungBegun(Event, RungTold):
    """A rung begins, on so many sorrys."""

    name = "rung"
    sorries: int


class Candidate(Event):
    """A text that ended a search. Nobody has judged it yet: it is no proof."""

    name = "candidate"
    candidate: int = Field(description="Its number, from 1.")
    sorry: str
    declaration: str
    rung: int
    prover: str
    model: str
    replacement: str = Field(description="Takes the place of the bytes byte_start to byte_end of the file.")
    byte_start: int
    byte_end: int
    tactics: list[str]
    proof: str = Field(description="The id under which the daemon would know it.")
    simulated: bool


class Attempted(Event):
    """How the search for one sorry ended."""

    name = "attempt"
    sorry: str
    byte_start: int = Field(description="Of the sorry: two of a file may have one id.")
    rung: int
    outcome: Literal["found", "disproved", "exhausted", "budget", "unsupported", "error"]
    detail: str
    best: str
    goals_left: int | None
    nodes: int
    repl_calls: int
    seconds: float


class RungFailed(Event):
    """A rung could not be climbed to its end."""

    name = "rung_failed"
    number: int
    reason: str
    message: str
    remedy: str


class Judged(Event, Judgement):
    """What the gate says of a candidate."""

    name = "verdict"
    candidate: int
    sorry: str
    byte_start: int


class Failure(Event, ProblemBody):
    """There is nothing to go on with."""

    name = "error"


Ended = Literal["settled", "rungs", "seconds", "candidates", "timeout", "failed"]


class Filled(BaseModel):
    """A sorry of which the gate accepted a candidate."""

    model_config = ConfigDict(frozen=True)

    sorry: str
    byte_start: int


class Summary(Event):
    """The end: how it came and what there is."""

    name = "summary"
    ended: Annotated[
        Ended,
        Field(
            description="settled: every sorry is disproved or has a candidate that the gate did not reject; rungs: "
            "there are no more; seconds, candidates: the request's bound; timeout: the server's; failed: see the error."
        ),
    ]
    sorries: int
    candidates: int
    accepted: int
    rejected: int
    unknown: int
    filled: list[Filled]
    seconds: float
    simulated: bool
    advisory: str = ADVICE


EVENTS: tuple[type[Event], ...] = (
    Waiting,
    Begun,
    RungBegun,
    Candidate,
    Attempted,
    RungFailed,
    Judged,
    Failure,
    Summary,
)
Emit = Callable[[Event], None]


class EventStream(StreamingResponse):
    """The events of some work, as they come. The work ends when it is done, or when the client leaves."""

    media_type = "text/event-stream"

    def __init__(self, rooms: Rooms, work: Callable[[Emit], Awaitable[None]]) -> None:
        """Args:
        work: is given what it sends its events by.
        """
        # Proxies keep neither the answer nor parts of it back.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._events(), headers=headers)
        self._rooms = rooms
        self._work = work
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = self._rooms.begin(self._done())
        try:
            await super().__call__(scope, receive, send)
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _done(self) -> None:
        try:
            await self._work(self._queue.put_nowait)
        finally:
            self._queue.put_nowait(None)

    async def _events(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._rooms.heartbeat_s):
                    event = await self._queue.get()
            except TimeoutError:
                yield _HEARTBEAT
                continue
            if event is None:
                return
            yield event.encoded()


def failure(problem: Problem) -> Failure:
    """Return a problem as an event."""
    return Failure(**problem.body().model_dump())
