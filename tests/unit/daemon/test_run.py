"""How the daemon's process ends: with the threads that end in time, and without those that hang."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.process import run


class _Ended(BaseException):
    def __init__(self, status: int) -> None:
        self.status = status


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A thread that waits for the event, as one does in a resolver that answers no one."""

    def ends(status: int) -> None:
        raise _Ended(status)

    monkeypatch.setattr(run, "_THREADS_S", 0.05)
    monkeypatch.setattr("os._exit", ends)
    let_go = threading.Event()
    thread = threading.Thread(target=let_go.wait, name="hangs")
    thread.start()
    yield let_go
    let_go.set()
    thread.join()


def test_a_thread_that_hangs_is_named_and_does_not_keep_the_process(hangs: threading.Event) -> None:
    began = time.monotonic()
    with capture_logs() as lines, pytest.raises(_Ended) as caught:
        run._leave_no_threads(1)
    assert caught.value.status == 1, "what is recorded stays what it was"
    assert time.monotonic() - began < 2.0
    assert [(line["event"], line["threads"]) for line in lines] == [("threads_left", ["hangs"])]


def test_a_thread_that_still_does_something_is_waited_for(
    hangs: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_THREADS_S", 10.0)
    threading.Timer(0.05, hangs.set).start()
    run._leave_no_threads(0)
    assert hangs.is_set()


def test_threads_that_no_one_waits_for_are_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_THREADS_S", 10.0)
    let_go = threading.Event()
    threading.Thread(target=let_go.wait, daemon=True).start()
    began = time.monotonic()
    run._leave_no_threads(0)
    assert time.monotonic() - began < 2.0
    let_go.set()


def test_names_that_no_one_resolves_keep_no_work_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    def waits(*_arguments: Any) -> list[Any]:
        let_go.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")

    async def go() -> list[type]:
        loop = asyncio.get_running_loop()
        requests = [
            asyncio.create_task(loop.getaddrinfo(f"host{number}.example", 443)) for number in range(20)
        ]
        try:
            async with asyncio.timeout(20):
                await asyncio.to_thread(lambda: None)
        finally:
            let_go.set()
        return [type(one) for one in await asyncio.gather(*requests, return_exceptions=True)]

    monkeypatch.setattr(socket, "getaddrinfo", waits)
    with (
        ThreadPoolExecutor(2) as work,
        ThreadPoolExecutor(2) as names,
        asyncio.Runner(loop_factory=partial(run.Loop, work, names)) as runner,
    ):
        assert runner.run(go()) == [socket.gaierror] * 20
