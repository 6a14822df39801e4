"""Share one model between all the searches of a job: their requests are answered in batches.

    async with Batching(generator.suggest) as service:
        suggestions = await service.ask(Request(state))

The model works in a thread of its own, so the searches continue with Lean. While it works, requests gather; the oldest
are its next batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

from pipeline.models.errors import LearningError
from store.text import first_line

AT_ONCE = 16
"""With more requests in a batch, more searches wait for its last answer, and Lean waits for them."""
Q = TypeVar("Q")
A = TypeVar("A")


class GenerationStoppedError(LearningError):
    """The service was closed before its answer."""

    reason = "stopped"


class Batching(Generic[Q, A]):
    """Gathers requests to a model into batches. Used on one event loop, as a context."""

    def __init__(self, answer: Callable[[Sequence[Q]], Sequence[A]], *, at_once: int = AT_ONCE) -> None:
        """Args:
        answer: answers a batch, in its order; called in a thread of its own, never twice at once.
        at_once: the most requests of a batch.
        """
        self._model = answer
        self._at_once = at_once
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._changed = asyncio.Event()
        self._closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to answer; `async with` does this by itself."""
        self._task = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Stop answering: waiting callers get an error; wait for the batch in the model."""
        self._closed = True
        for _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(GenerationStoppedError("the generation service was closed"))
        self._waiting = []
        if self._task is not None:
            # A batch in the model cannot be cancelled.
            self._changed.set()
            await self._task
        self._thread.shutdown()

    async def ask(self, asked: Q) -> A:
        """Return the answer.

        Raises:
            GenerationStoppedError: the service is closed. Also any error of the model for this request alone.
        """
        if self._closed or self._task is None:
            raise GenerationStoppedError("the generation service is not open: use it within `async with`")
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        self._changed.set()
        return await answer

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _serve(self) -> None:
        while not self._closed:
            self._changed.clear()
            if not self._waiting:
                await self._changed.wait()
            batch, self._waiting = self._waiting[: self._at_once], self._waiting[self._at_once :]
            await self._answer(batch)

    async def _answer(self, batch: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        # A cancelled caller waits no more.
        batch = [(asked, answer) for asked, answer in batch if not answer.done()]
        if not batch:
            return
        asked = [one for one, _ in batch]
        answered: list[tuple[asyncio.Future[A], A]] = []
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._thread, self._model, asked)
            answered = list(zip([answer for _, answer in batch], result, strict=True))
        except asyncio.CancelledError:
            raise
        # The caller gets it; the service continues. A panic of a library in Rust, as tokenizers, is no Exception.
        except BaseException as error:  # noqa: BLE001
            if len(batch) == 1:
                if not batch[0][1].done():
                    own = error if isinstance(error, Exception) else RuntimeError(first_line(error))
                    batch[0][1].set_exception(own)
                return
        for waiting, one in answered:
            if not waiting.done():
                waiting.set_result(one)
        if not answered:
            # Halving finds the bad request; the others are answered. The error is gone by now, and its memory with it.
            half = len(batch) // 2
            await self._answer(batch[:half])
            await self._answer(batch[half:])
