"""POST /fill: searches for proofs of a file's sorries, rung by rung, and streams server-sent events to the client.

    waiting      all Lean processes are busy; the request is queued
    begun        what is worked on, with which rungs
    rung         a rung begins
    candidate    a text that ended the search of one sorry; not judged, so not a proof
    attempt      how the search for one sorry ended on a rung
    rung_failed  a rung could not be climbed to its end, and why
    verdict      what the gate says of one candidate, by its number
    error        the work cannot continue, and why
    summary      the last one, always (unless the server's time limit cuts the stream off, with an error)

Comments between the events keep proxies from closing the connection.

The rungs are the daemon's ladder with the checkpoints in use at the time of the request. They are tried in order, each
by the daemon's prove job (`python -m pipeline.prove`) on the sorries still open; each candidate is sent at once. After
the job the gate judges its candidates, by the daemon's check job (`pipeline.serve.check`): one Lean at a time for a
request. A sorry is settled as for the daemon, by a candidate not rejected by the gate. Nothing is recorded.

Two sorries of a file may have one id (`example : True := by sorry`, twice): each is also identified by its place, and
searched by a job of its own, since a job's attempt names only the id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pipeline.freeze import export, freeze
from pipeline.jobs import lines
from pipeline.jobs.checkout import to_its_end
from pipeline.jobs.inputs import Inputs, InputStore
from pipeline.jobs.ladder import WaitingRung
from pipeline.jobs.protocol import JobError, Sources
from pipeline.jobs.specs import CuratedRung, ProveSpec, Rung, SorryToProve
from pipeline.lean.pool import PoolLimits
from pipeline.serve.check import ADVICE, Judgement, Judging, LeanRequest, judge, judging, place_of
from pipeline.serve.checkouts import (
    Checkout,
    Commit,
    File,
    SorryFound,
    SorryPlace,
    challenges_on,
    no_view,
)
from pipeline.serve.schemas import WHOLE, Problem, ProblemBody
from pipeline.serve.spec import ServeSpec
from pipeline.serve.workspace import Workspace, job
from store.documents.ladder import PROVERS
from store.errors import LogError
from store.events.proofs import AttemptFinished, ProofFound
from store.promotion import ladder_models
from store.view import queries
from store.view.rows import SorryRow


class Clock:
    """A time limit that runs from `start` on; before, a job only gets ready. For the loop of its construction.

    Attributes:
        limit: a context that ends with TimeoutError at the limit.
    """

    def __init__(self, seconds: float) -> None:
        self.limit = asyncio.timeout(None)
        self._seconds = seconds
        self._began: float | None = None

    def start(self) -> None:
        """Run them inside `limit`; a second call does nothing."""
        if self._began is None:
            self._began = asyncio.get_running_loop().time()
            self.limit.reschedule(self._began + self._seconds)

    @property
    def left_s(self) -> float:
        """Seconds left, 0 or less after the limit."""
        if self.limit.expired():
            return 0.0
        if self._began is None:
            return self._seconds
        return self._seconds - (asyncio.get_running_loop().time() - self._began)


_HEARTBEAT = b": still at work\n\n"


class Event(BaseModel):
    """One event; `name` is its field `event`."""

    model_config = ConfigDict(frozen=True)

    name: ClassVar[str]

    def encoded(self) -> bytes:
        """Return the event as sent: JSON in ASCII has no line end to cut it."""
        return f"event: {self.name}\ndata: {self.model_dump_json(ensure_ascii=True)}\n\n".encode("ascii")


class Waiting(Event):
    """All of Lean's places are taken."""

    name = "waiting"
    places: int


class RungTold(BaseModel):
    """A rung in use."""

    model_config = ConfigDict(frozen=True)

    number: int
    prover: str
    model: str


class RungLeft(BaseModel):
    """A rung left out."""

    model_config = ConfigDict(frozen=True)

    number: int
    reason: str


class SorryLeft(SorryFound):
    """A sorry intended by its authors: no proof is searched."""

    by_design: str = Field(description="Why: challenge, exercise or answer.")


class Begun(Event, Judging):
    """The file and the sorries of the request."""

    name = "begun"
    sorries: list[SorryFound]
    left: list[SorryLeft] = Field(description="Sorries that are there by design, and are not worked on.")
    rungs: list[RungTold]
    left_out: list[RungLeft]
    toolchain: str
    advisory: str = ADVICE


class RungBegun(Event, RungTold):
    """A rung begins, on so many sorries."""

    name = "rung"
    sorries: int


class Candidate(Event):
    """A text from the end of a search. It is not judged yet: it is no proof."""

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


class Attempted(Event):
    """The end of the search for one sorry."""

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
    """The gate's verdict on a candidate."""

    name = "verdict"
    candidate: int
    sorry: str
    byte_start: int


class Failure(Event, ProblemBody):
    """There is nothing to go on with."""

    name = "error"


Ended = Literal["settled", "rungs", "seconds", "candidates", "timeout", "failed"]


class Filled(BaseModel):
    """A sorry with a candidate accepted by the gate."""

    model_config = ConfigDict(frozen=True)

    sorry: str
    byte_start: int


class Summary(Event):
    """The end: the reason and the results."""

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

    def __init__(self, workspace: Workspace, work: Callable[[Emit], Awaitable[None]]) -> None:
        """Args:
        work: gets the function to send events.
        """
        # Tells proxies not to cache or buffer the answer.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._events(), headers=headers)
        self._workspace = workspace
        self._work = work
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = self._workspace.begin(self._finish())
        try:
            await super().__call__(scope, receive, send)
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _finish(self) -> None:
        try:
            await self._work(self._queue.put_nowait)
        finally:
            self._queue.put_nowait(None)

    async def _events(self) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._workspace.heartbeat_s):
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


def rungs_now(spec: ServeSpec, wanted: Sequence[int] | None) -> tuple[list[Rung], list[WaitingRung]]:
    """Return the ready and the waiting rungs, in order; only those in `wanted` if it is given.

    Raises:
        Problem: 503, the view is unreadable.
    """
    ladder = spec.lean.ladder
    numbers = ladder.rungs if wanted is None else tuple(dict.fromkeys(wanted))
    try:
        with closing(queries.connect(spec.view)) as view:
            rungs, waiting = ladder.only(numbers).climb(ladder_models(view))
    except LogError as error:
        raise no_view(error) from error
    absent = [number for number in numbers if number not in ladder.rungs]
    waiting += [WaitingRung(number, "it is none of [prove] rungs") for number in absent]
    # To load the retriever would take more of a request's seconds than the search of the curated tactics.
    bare = CuratedRung()
    return [one if one.number else one.model_copy(update={"spec": bare}) for one in rungs], waiting


MOST_SORRIES = 32
USUAL_SECONDS = 60.0
_RESERVE_S = 5.0
"""Part of the server's time for a request kept for ending it; never more than half of it."""
_log = logging.getLogger(__name__)
Key = tuple[str, int]
"""A sorry of the file: its id, and its first byte."""


class FillRequest(LeanRequest):
    """A file with sorries: the one named by `sorry`, or all that fit it; and limits."""

    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Of searching, on all rungs together, 60 where nothing is said; the time in which a search gets "
        "ready and the gate's are not in it. All together is bounded by the server's own limit, which is the most that "
        "may be asked for.",
    )
    rungs: (
        Annotated[
            list[Annotated[int, Field(ge=0, lt=len(PROVERS)), WHOLE]],
            Field(min_length=1, max_length=len(PROVERS)),
        ]
        | None
    ) = Field(default=None, description="Which rungs, in this order; without it those of the configuration.")
    candidates: Annotated[int, Field(ge=1, le=100), WHOLE] = Field(
        default=8,
        description="After so many candidates the search ends. A rung gives one for a sorry, or none.",
    )


async def fill(workspace: Workspace, asked: FillRequest) -> EventStream:
    """Answer a request with a stream of events.

    Raises:
        Problem: the request names something missing, or asks for more time than allowed. Later failures are events.
    """
    most_s = workspace.spec.limits.lean_seconds
    began = asyncio.get_running_loop().time()
    if asked.seconds is not None and asked.seconds > most_s:
        raise Problem(
            409,
            "too_many_seconds",
            f"the request wants {asked.seconds:g} s of searching, and a request may take {most_s:g} s here",
            "ask for less",
        )
    filling = _Filling(workspace, asked, until=began + most_s)
    commit, path, known = await place_of(workspace, asked)
    return EventStream(workspace, partial(filling.run, commit, path, known))


class _Filling:
    """The work on one request."""

    _emit: Emit
    _began: float

    def __init__(self, workspace: Workspace, asked: FillRequest, *, until: float) -> None:
        """Args:
        until: when the stream is cut off, on the loop's clock.
        """
        most_s = workspace.spec.limits.lean_seconds
        self._workspace = workspace
        self._asked = asked
        self._until = until - min(_RESERVE_S, most_s / 2)
        self._left_s = min(USUAL_SECONDS, most_s) if asked.seconds is None else asked.seconds
        self._sorries: list[SorryToProve] = []
        self._settled: set[Key] = set()
        self._filled: list[Key] = []
        self._seen: set[tuple[Key, str]] = set()
        self._verdicts: dict[str, int] = {"accepted": 0, "rejected": 0, "unknown": 0}
        self._candidates = 0

    async def run(self, commit: Commit, path: str, known: SorryRow | None, emit: Emit) -> None:
        """Work, and say how it went: whatever happens, a summary is the last event."""
        self._emit, self._began = emit, time.monotonic()
        ended: Ended = "failed"
        limit = asyncio.timeout_at(self._until)
        try:
            async with limit:
                ended = await self._in_turn(commit, path, known)
        except Problem as problem:
            self._emit(failure(problem))
        except Exception as error:  # noqa: BLE001 - the stream has begun: there is no status left to say it with
            if isinstance(error, TimeoutError) and limit.expired():
                ended = "timeout"
                self._emit(failure(self._late()))
            else:
                _log.exception("/fill failed")
                defect = Problem(
                    500,
                    "defect",
                    "the server failed, by a defect of its own",
                    "send it again; report it, with the request, if it fails again",
                )
                self._emit(failure(defect))
        self._emit(
            Summary(
                ended=ended,
                sorries=len(self._sorries),
                candidates=self._candidates,
                **self._verdicts,
                filled=[Filled(sorry=sorry, byte_start=byte_start) for sorry, byte_start in self._filled],
                seconds=round(time.monotonic() - self._began, 3),
            )
        )

    def _late(self) -> Problem:
        unjudged = self._candidates - sum(self._verdicts.values())
        return Problem(
            504,
            "timeout",
            f"the {self._workspace.spec.limits.lean_seconds:g} s that a request may take are over"
            + (f"; {unjudged} of the candidates were not judged" if unjudged else ""),
            "ask for fewer sorries or fewer seconds",
        )

    async def _in_turn(self, commit: Commit, path: str, known: SorryRow | None) -> Ended:
        workspace, asked = self._workspace, self._asked
        if workspace.lean.locked():
            self._emit(Waiting(places=workspace.spec.limits.lean_processes))
        async with workspace.lean, workspace.checkout(commit, path=path, text=asked.text) as result:
            file = await asyncio.to_thread(File.read, asked.repository, path, result.data, known=known)
            if result.lean.kind == "none":
                raise Problem(
                    409,
                    "no_lean",
                    f"there is no Lean to search with: {result.lean.detail}",
                    "see `everlean doctor`",
                )
            rungs, waiting = await asyncio.to_thread(rungs_now, workspace.spec, asked.rungs)
            challenges = await asyncio.to_thread(challenges_on, workspace.spec.view, commit)
            self._begin(result, file, rungs, waiting, challenges)
            for rung in rungs:
                if (ended := self._ended()) is not None:
                    return ended
                await self._climb(rung, result)
            return self._ended() or "rungs"

    def _begin(
        self,
        made: Checkout,
        file: File,
        rungs: Sequence[Rung],
        waiting: Sequence[WaitingRung],
        challenges: Collection[str],
    ) -> None:
        place: SorryPlace | None = self._asked.sorry
        named = file.fitting(place)
        if not named:
            file.one(place)  # raises, naming the sorries there
        designs = [(one, file.by_design(one, challenges=challenges)) for one in named]
        fitting = [one for one, why in designs if not why]
        if not fitting:
            one, why = designs[0]
            raise Problem(
                409,
                "by_design",
                f"{made.path}: the sorry of {one.declaration} (line {one.line}) is there by design ({why}), to stay",
                "name another sorry",
            )
        if len(fitting) > MOST_SORRIES:
            raise Problem(
                422,
                "too_many_sorrys",
                f"{made.path} has {len(fitting)} sorries, and at most {MOST_SORRIES} are worked on at once",
                "say which: sorry.declaration, or sorry.line",
            )
        blob = file.blob(like=made.commit.sha)
        self._sorries = [file.wanted(one, blob=blob) for one in fitting]
        self._emit(
            Begun(
                **judging(made, file).model_dump(),
                sorries=[file.described(one) for one in fitting],
                left=[
                    SorryLeft(**file.described(one).model_dump(), by_design=why)
                    for one, why in designs
                    if why
                ],
                rungs=[RungTold(number=one.number, prover=one.prover, model=one.model) for one in rungs],
                left_out=[RungLeft(number=one.number, reason=one.reason) for one in waiting],
                toolchain=made.lean.toolchain,
            )
        )

    def _ended(self) -> Ended | None:
        """Return the limit reached, if any."""
        if all(_key(one) in self._settled for one in self._sorries):
            return "settled"
        if self._candidates >= self._asked.candidates:
            return "candidates"
        return "seconds" if self._left_s <= 0 else None

    # ---- one rung

    async def _climb(self, rung: Rung, made: Checkout) -> None:
        """Search for proofs of the open sorries on one rung, then have the gate judge the candidates."""
        targets = [one for one in self._sorries if _key(one) not in self._settled]
        self._emit(RungBegun(number=rung.number, prover=rung.prover, model=rung.model, sorries=len(targets)))
        result: list[tuple[int, ProofFound]] = []
        for different in _by_id(targets):
            try:
                failed = await self._search(rung, made, different, result)
            except JobError as error:
                failed = lines.Failure(error.reason, str(error), error.remedy)
            if failed is not None:
                self._emit(
                    RungFailed(
                        number=rung.number,
                        reason=failed.reason,
                        message=failed.message,
                        remedy=failed.remedy,
                    )
                )
                break
            if self._ended() is not None:
                break
        for number, proof in result:
            self._take(number, proof, await judge(self._workspace, made, proof, search=None))

    async def _search(
        self, rung: Rung, made: Checkout, wanted: Sequence[SorryToProve], found: list[tuple[int, ProofFound]]
    ) -> lines.Failure | None:
        """Run the prove job, until it ends or the request's seconds are over; its candidates are sent and added to
        `found`, as they come.

        Args:
            wanted: no two of one id.
        """
        places = {one.sorry: _key(one) for one in wanted}
        clock, order = Clock(self._left_s), self._spec(rung, made, wanted)
        async with (
            self._workspace.folder() as folder,
            self._frozen(order, folder) as inputs,
            job(
                order,
                kind="prove",
                commit=made.commit,
                worktree=made.worktree,
                folder=folder,
                memory_bytes=rung.memory_bytes,
                key=rung.key,
                inputs=inputs,
            ) as running,
        ):
            try:
                async with clock.limit:
                    async for body in running.events(at_work=clock.start):
                        if isinstance(body, ProofFound):
                            self._record(rung, body, found)
                        elif isinstance(body, AttemptFinished):
                            key_of = places[body.sorry]
                            self._emit(_attempted(body, byte_start=key_of[1]))
                            if body.outcome == "disproved":
                                self._settled.add(key_of)
                        if self._candidates >= self._asked.candidates:
                            return None
                    return running.failed
            except TimeoutError:
                if not clock.limit.expired():
                    raise
                return None
            finally:
                self._left_s = clock.left_s

    @asynccontextmanager
    async def _frozen(self, order: ProveSpec, folder: Path) -> AsyncIterator[Inputs]:
        """Yield the job's inputs; remove them at the end.

        Raises:
            Problem: 503, the view cannot be read.
            JobError: the premises cannot be read.
        """
        spec, place = self._workspace.spec, folder / "inputs"
        sources = Sources(spec.events, spec.view, spec.indices / "corpora")

        def make() -> Inputs:
            result = freeze(order, folder.name, place, sources)
            return export(order, place, sources) if result is None else result

        try:
            inputs = await asyncio.to_thread(make)
        except LogError as error:
            raise no_view(error) from error
        try:
            yield inputs
        finally:
            await to_its_end(asyncio.to_thread(InputStore(sources.contents).forget, place))

    def _spec(self, rung: Rung, made: Checkout, wanted: Sequence[SorryToProve]) -> ProveSpec:
        """Return the prove job's specification, as the planner makes it."""
        spec = self._workspace.spec
        pool = spec.lean.pool
        return ProveSpec(
            repository=made.commit.repository.key,
            branch=made.commit.branch,
            sha=made.commit.sha,
            lean=made.lean,
            limits=PoolLimits(processes=1, memory_bytes=pool.memory_bytes, calls=pool.calls),
            rung=rung.spec,
            model=rung.model,
            seed=spec.lean.seed,
            budget=replace(rung.budget, seconds=min(rung.budget.seconds, self._left_s)),
            budget_key="asked for",
            parallel=1,
            sorries=tuple(wanted),
        )

    def _record(self, rung: Rung, proof: ProofFound, found: list[tuple[int, ProofFound]]) -> None:
        if (_key(proof), proof.replacement) in self._seen:
            return  # another rung's candidate, already rejected by the gate
        self._seen.add((_key(proof), proof.replacement))
        self._candidates += 1
        found.append((self._candidates, proof))
        self._emit(
            Candidate(
                candidate=self._candidates,
                sorry=proof.sorry,
                declaration=proof.declaration,
                rung=proof.rung,
                prover=proof.prover,
                model=rung.model,
                replacement=proof.replacement,
                byte_start=proof.byte_start,
                byte_end=proof.byte_end,
                tactics=list(proof.tactics),
                proof=proof.proof,
            )
        )

    def _take(self, number: int, proof: ProofFound, judgement: Judgement) -> None:
        self._verdicts[judgement.verdict] += 1
        if judgement.verdict != "rejected":
            self._settled.add(_key(proof))
        if judgement.verdict == "accepted" and _key(proof) not in self._filled:
            self._filled.append(_key(proof))
        self._emit(
            Judged(candidate=number, sorry=proof.sorry, byte_start=proof.byte_start, **judgement.model_dump())
        )


def _key(one: SorryToProve | ProofFound) -> Key:
    return one.sorry, one.byte_start


def _by_id(wanted: Sequence[SorryToProve]) -> Iterator[list[SorryToProve]]:
    """Yield the sorries in as few groups as possible without two of one id."""
    left = list(wanted)
    while left:
        first = {one.sorry: one for one in reversed(left)}
        group = [one for one in left if first[one.sorry] is one]
        left = [one for one in left if first[one.sorry] is not one]
        yield group


def _attempted(body: AttemptFinished, *, byte_start: int) -> Attempted:
    return Attempted(
        sorry=body.sorry,
        byte_start=byte_start,
        rung=body.rung,
        outcome=body.outcome,
        detail=body.detail,
        best=body.best,
        goals_left=body.goals_left,
        nodes=body.nodes,
        repl_calls=body.repl_calls,
        seconds=body.seconds,
    )
