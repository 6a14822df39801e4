"""What the routes beyond LeanCopilot's stand on: commits on the disk, Lean for so many requests at once, premises.

Nothing here writes the log or the view. Whoever wants Lean waits in a line (`lean`), the first come first; what is
begun for a client ends when the client leaves, and all of it with the server.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from pipeline.lean.backend import Leans, find_leans
from pipeline.lean.build.build_cache import remove_tree
from pipeline.serve.checkouts import Checkout, Commit, Scratch, checked_out, find_commit, own, to_its_end
from pipeline.serve.order import ServeOrder
from pipeline.serve.retrieve import Encodes, Premises
from pipeline.serve.schemas import Problem


class Serving(Protocol):
    """The models of the server that requests beyond LeanCopilot's use. None is unloaded while a request holds it."""

    def retriever(self) -> AbstractAsyncContextManager[Encodes]: ...


class Rooms:
    """A context, on the server's loop.

    Attributes:
        order: what the server was told.
        serving: its models.
        premises: those that `/retrieve` looks in.
        lean: so many requests may have Lean at work; the others wait, in their order.
        heartbeat_s: how long a stream of events may be silent.
    """

    heartbeat_s = 10.0

    def __init__(self, order: ServeOrder, serving: Serving, *, guarded: bool = False) -> None:
        """Args:
        order, serving: see the attributes.
        guarded: whether whoever asks has shown a token.
        """
        self.order = order
        self._guarded = guarded
        self.serving = serving
        self.premises = Premises(order)
        self.lean = asyncio.Semaphore(order.limits.lean_processes)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._scratch: Scratch | None = None

    async def __aenter__(self) -> Rooms:
        self._scratch = await asyncio.to_thread(own, self.order.lean.scratch)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.give_back)

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have work done beside the request that wants it; it is ended with the server at the latest."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def commit(self, *, repository: str, branch: str | None, sha: str | None) -> Commit:
        """Return the commit that is meant (`rooms_checkouts.find_commit`)."""
        order = self.order
        return await asyncio.to_thread(
            find_commit, order.view, order.lean, repository=repository, branch=branch, sha=sha
        )

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[Path]:
        """Yield a path below the scratch folder that is nobody else's; what is there afterwards is removed."""
        path = self._unused()
        try:
            yield path
        finally:
            await to_its_end(asyncio.to_thread(remove_tree, path))

    @asynccontextmanager
    async def checkout(
        self, commit: Commit, *, path: str, text: str | None, proof: bool = False
    ) -> AsyncIterator[Checkout]:
        """Yield the commit on the disk (`rooms_checkouts.checked_out`).

        Args:
            proof: whether a client's proof is to stand in the file.

        Raises:
            Problem: it cannot be read; or what a client chose would be run by a Lean without a sandbox, for everybody
                who reaches the port.
        """
        order = self.order
        leans = await asyncio.to_thread(self._leans)
        chosen = {"text": text is not None, "proof": proof, "commit": commit.chosen}
        self._hold_that_it_may_run(leans, [name for name, theirs in chosen.items() if theirs])
        held, left = ExitStack(), threading.Event()
        made = asyncio.ensure_future(
            asyncio.to_thread(
                held.enter_context,
                checked_out(
                    commit,
                    order=order.lean,
                    leans=leans,
                    folder=self._unused(),
                    path=path,
                    text=None if text is None else text.encode(),
                    left=left,
                ),
            )
        )
        try:
            yield await asyncio.shield(made)
        finally:
            left.set()
            await to_its_end(_closed(made, held))

    def _unused(self) -> Path:
        return self.order.lean.scratch / uuid.uuid4().hex

    def _leans(self) -> Leans:
        lean = self.order.lean
        return find_leans(
            backend=lean.backend, repl=lean.repl, sandbox=lean.sandbox, toolchains=lean.toolchains
        )

    def _hold_that_it_may_run(self, leans: Leans, chosen: Sequence[str]) -> None:
        # To elaborate a text is to run its code, as this user, on this machine. A mirror has commits of anybody's.
        lean = leans.summary
        if chosen and lean.kind == "pantograph" and lean.sandbox == "none" and not self._guarded:
            raise Problem(
                403,
                "no_sandbox",
                "Lean runs without a sandbox here, and every client of this port could make it run any code: "
                f"the {' and the '.join(chosen)} of a request are not taken",
                'set a token; or install bubblewrap and drop sandbox = "none"; or have the newest commit of a branch '
                "worked on as it is (/fill without text and commit)",
            )


async def _closed(made: asyncio.Future[Checkout], held: ExitStack) -> None:
    """Give back what was checked out, or what there is of it where nobody waits for it any more."""
    await asyncio.wait({made})  # a thread is not interrupted: it looks whether somebody waits
    if not made.cancelled():
        made.exception()
    await asyncio.to_thread(held.close)
