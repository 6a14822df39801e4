"""The workspace of the Lean routes: checkouts, the queue for Lean, premises, and the daemon's jobs run for a client.

Nothing here writes the log or the view. Requests for Lean queue in order of arrival (`Workspace.lean`). A client's work
ends when the client disconnects, and all work with the server.

Jobs are the daemon's modules with the daemon's specifications; the client receives the job's events, validated as the
daemon does: a forbidden line ends the job (`pipeline.jobs.lines`). Each has a process and a folder of its own
(`pipeline.jobs.child`). It is ended, with all its children, at the end of its block; if the server dies, the kernel
ends it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.endpoint.credentials import job_key
from pipeline.jobs.checkout import in_a_thread, to_its_end
from pipeline.jobs.child import JobProcess, LineTooLongError
from pipeline.jobs.inputs import Inputs
from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.lines import Assignment, BadLineError, Batch, Failure, Result, parse_line
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.spec import KeyPlace, Spec
from pipeline.lean.backend import Leans, find_leans
from pipeline.lean.build.trees import remove_tree
from pipeline.serve.checkouts import Checkout, Commit, Scratch, checked_out, find_commit, own
from pipeline.serve.retrieve import Premises
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import ServeSpec
from store.events.base import EventBody

if TYPE_CHECKING:
    from pipeline.serve.engines import LoadedRetriever


class Serving(Protocol):
    """The models of the Lean routes. None is unloaded during a request."""

    def retriever(self) -> AbstractAsyncContextManager[LoadedRetriever | None]: ...


class Workspace:
    """Resources of the Lean routes. An async context on the server's loop.

    Attributes:
        spec: of the server.
        serving: its models.
        premises: searched by `/retrieve`.
        lean: bounds the requests that use Lean at once; the others queue.
        heartbeat_s: maximum silence of a stream of events.
    """

    heartbeat_s = 10.0

    def __init__(self, spec: ServeSpec, serving: Serving, *, guarded: bool = False) -> None:
        """Args:
        spec, serving: see the attributes.
        guarded: clients have to send a token.
        """
        self.spec = spec
        self._guarded = guarded
        self.serving = serving
        self.premises = Premises(spec)
        self.lean = asyncio.Semaphore(spec.limits.lean_processes)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._scratch: Scratch | None = None

    async def __aenter__(self) -> Workspace:
        self._scratch = await asyncio.to_thread(own, self.spec.lean.scratch)
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
        """Start work beside its request; it is cancelled with the server at the latest."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def commit(self, *, repository: str, branch: str | None, sha: str | None) -> Commit:
        """Find a commit (`checkouts.find_commit`)."""
        spec = self.spec
        return await asyncio.to_thread(
            find_commit, spec.view, spec.lean, repository=repository, branch=branch, sha=sha
        )

    @asynccontextmanager
    async def folder(self) -> AsyncIterator[Path]:
        """Yield an unused path below the scratch folder; remove it afterwards."""
        path = self._unused()
        try:
            yield path
        finally:
            await to_its_end(asyncio.to_thread(remove_tree, path))

    @asynccontextmanager
    async def checkout(
        self, commit: Commit, *, path: str, text: str | None, proof: bool = False
    ) -> AsyncIterator[Checkout]:
        """Yield the commit on the disk (`checkouts.checked_out`).

        Args:
            proof: a client's proof will be put into the file.

        Raises:
            Problem: it cannot be read; or Lean has no sandbox, the server has no token, and the client chose the code.
        """
        spec = self.spec
        leans = await asyncio.to_thread(self._leans)
        chosen = {"text": text is not None, "proof": proof, "commit": commit.chosen}
        self._require_sandbox(leans, [name for name, theirs in chosen.items() if theirs])
        make = partial(
            checked_out,
            commit,
            spec=spec.lean,
            leans=leans,
            folder=self._unused(),
            path=path,
            text=None if text is None else text.encode(),
        )
        async with in_a_thread(lambda left: make(left=left)) as result:
            yield result

    def _unused(self) -> Path:
        return self.spec.lean.scratch / uuid.uuid4().hex

    def _leans(self) -> Leans:
        lean = self.spec.lean
        return find_leans(
            backend=lean.backend,
            repl=lean.repl,
            sandbox=lean.sandbox,
            start_timeout_s=lean.start_timeout_s,
            as_root=lean.as_root,
        )

    def _require_sandbox(self, leans: Leans, chosen: Sequence[str]) -> None:
        # Elaborating a text runs its code as this user on this machine. A mirror may hold commits of strangers.
        lean = leans.summary
        if chosen and lean.is_lean and lean.sandbox == "none" and not self._guarded:
            raise Problem(
                403,
                "no_sandbox",
                "Lean runs without a sandbox here, and every client of this port could make it run any code: "
                f"the {' and the '.join(chosen)} of a request are not taken",
                'set a token; or install bubblewrap and drop sandbox = "none"; or have the newest commit of a branch '
                "worked on as it is (/fill without text and commit)",
            )


_STDERR_TAIL_BYTES = 2000
_STDERR = "stderr.log"


class RunningJob:
    """A running job. After `events` has been read to its end, `failed` is its failure, if any."""

    def __init__(self, process: JobProcess, assignment: Assignment, folder: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._assignment = assignment
        self._folder = folder
        self.failed: Failure | None = None

    async def events(self, *, at_work: Callable[[], None] | None = None) -> AsyncIterator[EventBody]:
        """Yield the job's events; nothing of a line after a forbidden one.

        Args:
            at_work: called at each line; before the first one the job only prepares.
        """
        last: Result | Failure | None = None
        try:
            async for raw in self._process.lines():
                if at_work is not None:
                    at_work()
                match parse_line(raw, job=self._assignment, last=last):
                    case Batch() as batch:
                        for event in batch.events:
                            yield event.body
                    case Result() | Failure() as line:
                        last = line
        except (BadLineError, LineTooLongError) as error:
            self.failed = Failure(
                "protocol", f"the job said what it must not: {error}", "see `everlean doctor`"
            )
            return
        end = await self._process.ended()
        if isinstance(last, Failure):
            self.failed = last
        elif last is None:
            how = f"status {end.status}" if end.signal is None else f"signal {end.signal}"
            self.failed = Failure(
                "crashed", f"the job ended with {how}: {self._last_words()}", "see `everlean doctor`"
            )

    def _last_words(self) -> str:
        data = (self._folder / _STDERR).read_bytes()[-_STDERR_TAIL_BYTES:]
        return " ".join(data.decode("utf-8", errors="replace").split()) or "it said nothing"


@asynccontextmanager
async def job(
    spec: Spec,
    *,
    kind: Kind,
    commit: Commit,
    worktree: Path,
    folder: Path,
    memory_bytes: int,
    key: KeyPlace | None = None,
    inputs: Inputs | None = None,
) -> AsyncIterator[RunningJob]:
    """Run a job during the block.

    Args:
        spec: its parameters.
        kind: the job's kind.
        commit: its commit.
        worktree: its working folder.
        folder: of this job alone; created here, removed by the caller.
        memory_bytes: maximum for each of its processes (`pipeline.jobs.child.hold_to`).
        key: the place of its one secret.
        inputs: its frozen inputs.

    Raises:
        OSError: the job cannot be started.
    """
    assignment = Assignment(
        job=folder.name,
        kind=kind,
        attempt=1,
        repository=commit.repository.key,
        branch=commit.branch,
        sha=commit.sha,
        spec=spec,
    )
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    process = await JobProcess.start(
        KINDS[kind].module,
        spec=JobSpec(
            folder.name, kind, 1, folder, spec, worktree=worktree, inputs=inputs or Inputs(folder)
        ).write(),
        directory=folder,
        stderr=folder / _STDERR,
        memory_bytes=memory_bytes,
        key=await asyncio.to_thread(job_key, key),
        # Its temporary files are removed with its folder, even if it is killed.
        variables={"TMPDIR": str(scratch)},
    )
    try:
        yield RunningJob(process, assignment, folder)
    finally:
        await to_its_end(_end(process))


async def _end(process: JobProcess) -> None:
    await process.stop(grace_s=0.0)
    process.close()
