"""One model's place under its name: loaded, waited for, or failed; and another checkpoint in its stead, while requests
go on.

Whoever asks has the model for as long as the answer takes (`use`). One that is put in its place takes the next request;
the one before is closed when the last of those that have it is answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from pipeline.serve.limits import full
from pipeline.serve.problems import Problem
from pipeline.serve.wire import State

RETRY_AFTER_S = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class About:
    """What a model is. `checkpoint` is its id, "" where it is none of the daemon's; `simulated`: it learned from the
    simulator."""

    checkpoint: str = ""
    simulated: bool = False


class Model(Protocol):
    """A model that was loaded. Started and closed on the server's loop."""

    about: About

    async def start(self) -> None: ...

    async def close(self) -> None: ...


M = TypeVar("M", bound=Model)


@dataclass(eq=False, slots=True)
class _Held(Generic[M]):
    model: M
    users: int = 0
    retired: bool = False


class Place(Generic[M]):
    """A name and the model that it stands for now. Used on one event loop.

    Attributes:
        state: see `wire.ModelInfo`.
        reason: why it cannot be asked, or why the newer checkpoint is not the one in use; "" where neither.
    """

    def __init__(
        self,
        name: str,
        *,
        waiting: Callable[[int], None] = lambda _count: None,
        most: int | None = None,
    ) -> None:
        """Args:
        name: what requests call it.
        waiting: told how many requests have it, whenever that changes.
        most: how many requests may have it at once; None: any number.
        """
        self.name = name
        self.state: State = "loading"
        self.reason = "it has not been loaded yet"
        self._waiting = waiting
        self._most = most
        self._users = 0
        self._held: _Held[M] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def loaded(self) -> bool:
        return self._held is not None

    @property
    def model(self) -> M | None:
        """The model that is here now; whoever asks it something has it by `use`."""
        return None if self._held is None else self._held.model

    @property
    def about(self) -> About:
        return About() if self._held is None else self._held.model.about

    @asynccontextmanager
    async def use(self) -> AsyncIterator[M]:
        """Have the model for a request: it is not closed meanwhile, whatever takes its place.

        Raises:
            Problem: 503, there is none now; 429, it has as many requests as it may have.
        """
        held = self._held
        if held is None:
            raise Problem(
                503,
                f"model_{self.state}",
                f'the model "{self.name}" cannot be asked: {self.reason}',
                "GET /ready says when it is there"
                if self.state == "loading"
                else "GET /models says how it stands",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )
        if self._most is not None and self._users >= self._most:
            raise full(
                f'{self._users} requests ask the model "{self.name}" or wait for it, and it takes no more'
            )
        held.users += 1
        self._moved(1)
        try:
            yield held.model
        finally:
            held.users -= 1
            self._moved(-1)
            self._close_unused(held)

    async def put(self, model: M) -> None:
        """Have requests from now on answered by this model."""
        await model.start()
        before, self._held = self._held, _Held(model)
        self.state, self.reason = "loaded", ""
        if before is not None:
            before.retired = True
            self._close_unused(before)

    def cannot(self, state: State, reason: str) -> None:
        """Say why there is no model, or no newer one: the one that is there goes on."""
        self.reason = reason
        if self._held is None:
            self.state = state

    def stands(self) -> None:
        """Say that the model that is here is the one that belongs here."""
        if self._held is not None:
            self.reason = ""

    async def close(self) -> None:
        """Close the model that is here and those before it. Who still waits for an answer hears that there is none."""
        held, self._held = self._held, None
        self.state, self.reason = "failed", "the server ends"
        if held is not None:
            await self._closed(held.model)
        while self._closing:
            await asyncio.wait(self._closing)

    def _moved(self, by: int) -> None:
        self._users += by
        self._waiting(self._users)

    def _close_unused(self, held: _Held[M]) -> None:
        if not held.retired or held.users:
            return
        closing = asyncio.create_task(self._closed(held.model), name=f"close:{self.name}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _closed(self, model: M) -> None:
        try:
            await model.close()
        # It is nobody's any more; what else it did cannot be asked of it.
        except Exception:  # noqa: BLE001
            _log.exception("the model that %s stood for was not closed as it should", self.name)
