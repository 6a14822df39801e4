"""What the routes that ask Lean stand on: what a killed server left is ended, who leaves holds up no one, and a job of
the server may say no more than one of the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.checkout import to_its_end
from pipeline.jobs.child import MARK, JobProcess
from pipeline.jobs.mirror import Mirror
from pipeline.lean.backend import LeanBackend
from pipeline.serve.check import Judgement, judge
from pipeline.serve.checkouts import Checkout, Commit
from pipeline.serve.engines import LoadedRetriever
from pipeline.serve.spec import Limits, RepositorySpec
from pipeline.serve.workspace import Workspace
from store.events.base import EventBody
from tests.support.events import (
    BRANCH,
    REPOSITORY,
    declaration,
    place,
    proof_found,
    proof_verified,
    scanned,
    sha,
)
from tests.support.serve import World, spec_of

_PATIENCE_S = 20.0


class NoModels:
    """A server without a model."""

    def retriever(self) -> AbstractAsyncContextManager[LoadedRetriever]:
        raise NotImplementedError


def test_what_a_killed_server_left_running_is_ended_before_its_files_go(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    scratch = spec.lean.scratch
    (scratch / "job").mkdir(parents=True)
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    theirs, neighbour = (
        subprocess.Popen(words, env={**os.environ, MARK: mark}, start_new_session=True)
        for mark in (f"{scratch}/job", f"{scratch}-of-another/job")
    )
    try:

        async def begin() -> None:
            async with Workspace(spec, NoModels()):
                assert list(scratch.iterdir()) == []

        asyncio.run(begin())
        assert theirs.poll() is not None
        assert neighbour.poll() is None
    finally:
        for process in (theirs, neighbour):
            process.kill()
            process.wait()


def test_who_leaves_while_a_commit_is_written_out_gives_lean_s_place_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"F{number}.lean": "example : True := by\n  sorry\n" for number in range(20)}
    world = World(tmp_path, files)
    spec = world.spec(limits=Limits(lean_processes=1))
    begun, written, copy = threading.Event(), list[str](), Mirror.copy

    def slowly(mirror: Mirror, blob: str, target: Path, *, most_bytes: int) -> int:
        written.append(target.name)
        begun.set()
        time.sleep(0.5)
        return copy(mirror, blob, target, most_bytes=most_bytes)

    monkeypatch.setattr(Mirror, "copy", slowly)

    async def leave() -> None:
        async with Workspace(spec, NoModels()) as workspace:
            commit = await workspace.commit(repository=REPOSITORY, branch=None, sha=None)

            async def work() -> None:
                async with workspace.lean, workspace.checkout(commit, path="F0.lean", text=None):
                    pass

            working = asyncio.ensure_future(work())
            assert await asyncio.to_thread(begun.wait, _PATIENCE_S)
            working.cancel()
            await asyncio.sleep(0)
            working.cancel()  # the server ends too, say
            await asyncio.wait({working})
            assert working.cancelled()
            assert not workspace.lean.locked()
            assert list(spec.lean.scratch.iterdir()) == [], "nobody writes there any more"

    asyncio.run(leave())
    assert len(written) < len(files)


def test_an_end_is_waited_for_however_often_it_is_cancelled() -> None:
    async def scenario() -> None:
        go, done = asyncio.Event(), list[str]()

        async def work() -> None:
            await go.wait()
            done.append("ended")

        waiting = asyncio.ensure_future(to_its_end(work()))
        for _ in range(3):
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
        go.set()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert (done, waiting.cancelled()) == (["ended"], True)

    asyncio.run(scenario())


SCAN = scanned("A.lean", [declaration("a")], with_sorry=["a"])
FOUND = proof_found("0123456789abcdef", place(SCAN, SCAN.sorries[0], blob=sha("blob")), commit=sha(1))
VERIFIED = proof_verified(FOUND)


def judged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lines: Callable[[str], list[dict[str, Any]]]
) -> Judgement:
    """Return the server's judgement of FOUND where the check job says this; `lines` is given the job's id."""

    async def start(module: str, *, directory: Path, stderr: Path, **_: object) -> JobProcess:
        assert module == "pipeline.gate.check"
        said = "".join(json.dumps(line) + "\n" for line in lines(directory.name))
        program = [sys.executable, "-IS", "-c", f"print({said!r}, end='')"]
        return await JobProcess.start_command(program, directory=directory, stderr=stderr, environment={})

    monkeypatch.setattr(JobProcess, "start", start)
    lean = LeanBackend("pantograph", ("repl",), "a Lean", FOUND.toolchain, sandbox="none")
    commit = Commit(RepositorySpec(REPOSITORY, folder / "mirror.git"), BRANCH, FOUND.sha)

    async def work() -> Judgement:
        async with Workspace(spec_of(folder), NoModels()) as workspace:
            made = Checkout(commit, folder, FOUND.path, b"", sent=False, lean=lean)
            return await judge(workspace, made, FOUND, search=None)

    return asyncio.run(work())


def recorded(body: EventBody, **changes: object) -> dict[str, Any]:
    """Return the line with which a job records this."""
    event = {
        "stream": f"repository:{REPOSITORY}",
        "event_id": str(uuid.uuid4()),
        "type": body.type,
        "schema_version": body.schema_version,
        "data": body.model_dump(mode="json") | changes,
    }
    return {"line": "events", "events": [event]}


ANOTHER = VERIFIED.version.model_dump(mode="json") | {"byte_start": 999}
RESULT = {"line": "result", "summary": {}}


def test_a_verdict_of_the_job_that_was_asked_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgement = judged(tmp_path, monkeypatch, lambda job: [recorded(VERIFIED, job=job), RESULT])
    assert (judgement.verdict, judgement.reason) == ("accepted", "")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (lambda job: [recorded(VERIFIED, job=job, proof="another")], "not the one that the job was given"),
        (lambda job: [recorded(VERIFIED, job=job, checks=[])], "no check of"),
        (lambda job: [recorded(VERIFIED, job=job, toolchain="another")], "was given another Lean"),
        (lambda job: [recorded(VERIFIED, job=job, version=ANOTHER)], "it is about"),
        (lambda _: [recorded(VERIFIED, job="another")], "job is"),
        (lambda job: [recorded(FOUND, job=job)], "may not record 'proof_found'"),
        (lambda job: [RESULT, recorded(VERIFIED, job=job)], "comes after the last line"),
    ],
    ids=["proof", "checks", "toolchain", "version", "job", "kind", "late"],
)
def test_a_verdict_that_the_daemon_would_refuse_is_none_for_a_client(
    lines: Callable[[str], list[dict[str, Any]]], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgement = judged(tmp_path, monkeypatch, lines)
    assert judgement.verdict == "unknown"
    assert judgement.reason.startswith("protocol: ")
    assert why in judgement.reason
