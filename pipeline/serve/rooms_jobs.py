"""The daemon's jobs, run for a client: the same modules, the same specifications, the same lines; the client gets what
they would record, and no log does.

Each has a process and a folder of its own (`pipeline.jobs.child`). It is ended, with everything that it started, at the
end of the block in which it was begun: by itself, or because the client has left. If the server dies, the kernel ends
it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.jobs.child import JobProcess, LineTooLongError, key_pipe
from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.specs import Spec
from pipeline.serve.checkouts import to_its_end

_LONGEST_LINE_BYTES = 64 * 2**20
_TOLD_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Failed:
    """A job gave no answer; `reason` is a stable code."""

    reason: str
    message: str
    remedy: str


_STDERR = "stderr.log"


class Job:
    """A running job; `events` is to be read to its end, after which `failed` says why it gave no answer."""

    def __init__(self, process: JobProcess, folder: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._folder = folder
        self.failed: Failed | None = None

    async def events(self, *, at_work: Callable[[], None] | None = None) -> AsyncIterator[Mapping[str, Any]]:
        """Yield what it wants to be recorded, as {type, data, …}, as it comes.

        Args:
            at_work: called at each line that it says; before the first one it only gets ready.
        """
        ended = False
        try:
            async for raw in self._process.lines(longest_bytes=_LONGEST_LINE_BYTES):
                if at_work is not None:
                    at_work()
                line = json.loads(raw)
                match line["line"]:
                    case "events":
                        for event in line["events"]:
                            yield event
                    case "result":
                        ended = True
                    case "failure":
                        self.failed = Failed(line["reason"], line["message"], line["remedy"])
                        ended = True
        except (ValueError, LineTooLongError) as error:
            self.failed = Failed(
                "protocol", f"the job said what cannot be read: {error}", "see `unsorry doctor`"
            )
            return
        end = await self._process.ended()
        if not ended:
            how = f"status {end.status}" if end.signal is None else f"signal {end.signal}"
            self.failed = Failed(
                "crashed", f"the job ended with {how}: {self._last_words()}", "see `unsorry doctor`"
            )

    def _last_words(self) -> str:
        data = (self._folder / _STDERR).read_bytes()[-_TOLD_BYTES:]
        return " ".join(data.decode("utf-8", errors="replace").split()) or "it said nothing"


@asynccontextmanager
async def job(
    spec: Spec,
    *,
    kind: Kind,
    worktree: Path,
    folder: Path,
    memory_bytes: int,
    key: str | None = None,
) -> AsyncIterator[Job]:
    """Begin a job, and end it with the block.

    Args:
        spec: its parameters.
        kind: the job's kind.
        worktree: where it works.
        folder: of this job alone; made, and left to the caller to remove.
        memory_bytes: that each process of it may take for itself (`pipeline.jobs.child.hold_to`).
        key: the one secret that it gets, by a pipe.

    Raises:
        OSError: it cannot be started.
    """
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    process = await JobProcess.start(
        KINDS[kind].module,
        spec=JobSpec(folder.name, kind, 1, folder, spec, worktree=worktree).write(),
        directory=folder,
        stderr=folder / _STDERR,
        memory_bytes=memory_bytes,
        secrets=key_pipe(key),
        # Whatever it would leave in /tmp when it is killed goes with its folder.
        variables={"TMPDIR": str(scratch)},
    )
    try:
        yield Job(process, folder)
    finally:
        await to_its_end(_end(process))


async def _end(process: JobProcess) -> None:
    await process.stop(grace_s=0.0)
    process.close()
