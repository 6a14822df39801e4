"""An event loop in a thread of its own, for code without one: scripts, notebooks, trainers."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LoopThread:
    """A runner of coroutines for other threads, until closed. A context."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._forever, name=name, daemon=True)
        self._thread.start()
        # An unclosed one ends before the interpreter does, and not in the middle of a task.
        atexit.register(self.close)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and return the result; an interrupt of the caller cancels it."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    async def of_another_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on this loop, and await the result on the caller's."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """Cancel the running tasks and end the loop."""
        atexit.unregister(self.close)
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forever(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()
