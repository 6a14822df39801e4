"""What the routes that ask Lean stand on: what a killed server left is ended, and who leaves holds up no one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from pipeline.jobs.child import MARK
from pipeline.serve import checkouts
from pipeline.serve.checkouts import to_its_end
from pipeline.serve.retrieve import Encodes
from pipeline.serve.spec import Limits
from pipeline.serve.workspace import Workspace
from tests.support.events import REPOSITORY
from tests.support.serve import World, spec_of

_PATIENCE_S = 20.0


class NoModels:
    """A server without a model."""

    def retriever(self) -> AbstractAsyncContextManager[Encodes]:
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
    begun, written, put = threading.Event(), list[str](), checkouts._put

    def slowly(folder: Path, path: str, data: bytes) -> None:
        written.append(path)
        begun.set()
        time.sleep(0.5)
        put(folder, path, data)

    monkeypatch.setattr(checkouts, "_put", slowly)

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
