"""The daemon's jobs, run for a client: the same modules, the same specs, the same lines; what they record goes to the
client and into no log.

Each is a process of its own, in a session of its own, with a folder of its own that holds all that it writes. It is
ended, with everything that it started, at the end of the block in which it was begun: by itself, or because the client
has left. If the server dies, the kernel ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.jobs.child import hold_to, job_environment, kill_marked
from pipeline.jobs.protocol import JobSpec
from pipeline.models.endpoint.credentials import KEY_PIPE
from pipeline.serve.checkouts import to_its_end

_LONGEST_LINE_BYTES = 64 * 2**20
_TOLD_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a job gave no answer: `reason` is a stable word."""

    reason: str
    message: str
    remedy: str


_STDERR = "stderr.log"


class Job:
    """A running job; `lines` is to be read to its end, after which `failed` says whether it came to one."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._folder = folder
        self.failed: Failed | None = None

    async def events(self, *, at_work: Callable[[], None] | None = None) -> AsyncIterator[Mapping[str, Any]]:
        """Yield what it wants to be recorded, as {type, data, …}, as it comes.

        Args:
            at_work: called at each line that it says; before the first one it only gets ready.
        """
        assert self._process.stdout is not None
        ended = False
        try:
            while raw := await self._process.stdout.readline():
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
        except ValueError as error:  # no JSON, or a line that does not end
            self.failed = Failed(
                "protocol", f"the job said what cannot be read: {error}", "see `unsorry doctor`"
            )
            return
        status = await self._process.wait()
        if not ended:
            self.failed = Failed(
                "crashed", f"the job ended with status {status}: {self._last_words()}", "see `unsorry doctor`"
            )

    def _last_words(self) -> str:
        data = (self._folder / _STDERR).read_bytes()[-_TOLD_BYTES:]
        return " ".join(data.decode("utf-8", errors="replace").split()) or "it said nothing"


@asynccontextmanager
async def job(
    module: str,
    parameters: Mapping[str, Any],
    *,
    kind: str,
    folder: Path,
    memory_bytes: int,
    key: str | None = None,
) -> AsyncIterator[Job]:
    """Begin `python -m module` with these parameters, and end it with the block.

    Args:
        module: such as "pipeline.check".
        parameters: its own, as JSON.
        kind: the job's kind.
        folder: of this job alone; made, and left to the caller to remove.
        memory_bytes: that each process of it may take for itself (`pipeline.jobs.child.hold_to`).
        key: the one secret that it is handed, by a pipe.

    Raises:
        OSError: it cannot be started.
    """
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    spec = JobSpec(folder.name, kind, 1, folder, dict(parameters))
    (folder / "spec.json").write_text(json.dumps(spec.as_json()), encoding="utf-8")
    # Whatever it would leave in /tmp when it is killed goes with its folder.
    environment = {**job_environment(folder), "TMPDIR": str(scratch)}
    with _handed(key, environment) as handed, (folder / _STDERR).open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # -P: the working directory is no place to import from.
            *("-P", "-m", "pipeline.jobs.launch", module, "--spec", str(folder / "spec.json")),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=folder,
            env=environment,
            pass_fds=handed,
            start_new_session=True,
            limit=_LONGEST_LINE_BYTES,
        )
    try:
        hold_to(process.pid, memory_bytes=memory_bytes)
        yield Job(process, folder)
    finally:
        await to_its_end(_end(process, folder))


async def _end(process: asyncio.subprocess.Process, folder: Path) -> None:
    # Its group is still its own where it has not been waited for, or has left somebody in it.
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    await asyncio.to_thread(kill_marked, folder)


@contextmanager
def _handed(key: str | None, environment: dict[str, str]) -> Iterator[tuple[int, ...]]:
    """Yield the descriptors that the job inherits: the end of a pipe with the key, which its environment names."""
    if key is None:
        yield ()
        return
    read, write = os.pipe()
    try:
        os.write(write, key.encode("ascii"))  # shorter than any pipe's buffer (`credentials.read_key`)
        os.close(write)
        environment[KEY_PIPE] = str(read)
        yield (read,)
    finally:
        os.close(read)
