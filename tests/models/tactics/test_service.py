from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pipeline.models.tactics.requests import Request, Suggestion, Suggestions
from pipeline.models.tactics.service import GenerationService, GenerationStoppedError


class Slow:
    """Answers each state with itself as the tactic; notes its batches."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, seconds: float = 0.0) -> None:
        self.batches: list[list[str]] = []
        self.threads: set[str] = set()
        self.works = asyncio.Event()
        self.ends = threading.Event()
        """Ends the work on a batch before its seconds are over."""
        self._seconds = seconds

    def together(self, requests: Sequence[Request]) -> Sequence[int]:
        """All whose states begin alike, as a generator puts prompts of like length together."""
        if any("unreadable" in request.state for request in requests):
            raise UnicodeError("cannot be read")
        first = requests[0].state[0]
        return [number for number, request in enumerate(requests) if request.state[0] == first]

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        self.batches.append([request.state for request in requests])
        self.loop.call_soon_threadsafe(self.works.set)
        self.threads.add(threading.current_thread().name)
        self.ends.wait(self._seconds)
        if any("unreadable" in request.state for request in requests):
            raise UnicodeError("cannot be read")
        if any("bad" in request.state for request in requests):
            raise ValueError("a bad state")
        return [Suggestions((Suggestion(request.state, -1.0, 2),), {}) for request in requests]


def run(work: Callable[[], Awaitable[Any]], *, limit_s: float = 20.0) -> Any:
    async def limited() -> Any:
        Slow.loop = asyncio.get_running_loop()
        return await asyncio.wait_for(work(), limit_s)

    return asyncio.run(limited())


async def ask(service: GenerationService, states: Sequence[str]) -> list[Any]:
    answers = await asyncio.gather(
        *(service.suggest(Request(state)) for state in states), return_exceptions=True
    )
    return [answer if isinstance(answer, BaseException) else answer.tactics[0].tactic for answer in answers]


def test_what_is_asked_at_once_goes_together_and_each_gets_its_own_answer() -> None:
    generator = Slow()

    async def work() -> list[Any]:
        async with GenerationService(generator, wait_s=0.2) as service:
            return await ask(service, [f"s{number}" for number in range(20)])

    assert run(work) == [f"s{number}" for number in range(20)]
    assert [len(batch) for batch in generator.batches] == [20]
    assert all(name.startswith("generator") for name in generator.threads), "not on the loop's thread"


def test_what_is_asked_while_the_model_works_is_the_next_batch() -> None:
    generator = Slow(0.2)

    async def work() -> list[Any]:
        async with GenerationService(generator, wait_s=0.0) as service:
            first = asyncio.create_task(ask(service, ["a"]))
            await generator.works.wait()
            return [*await ask(service, ["sb", "sc", "sd"]), *await first]

    assert run(work) == ["sb", "sc", "sd", "a"]
    assert generator.batches == [["a"], ["sb", "sc", "sd"]]


def test_enough_requests_do_not_wait() -> None:
    generator = Slow()

    async def work() -> float:
        async with GenerationService(generator, at_once=3, wait_s=30.0) as service:
            started = time.monotonic()
            assert await ask(service, ["s1", "s2", "s3"]) == ["s1", "s2", "s3"]
            return time.monotonic() - started

    assert run(work) < 10
    assert generator.batches == [["s1", "s2", "s3"]]


def test_one_alone_waits_no_longer_than_it_should() -> None:
    async def work() -> list[Any]:
        async with GenerationService(Slow(), wait_s=0.01) as service:
            return await ask(service, ["a"])

    assert run(work) == ["a"]


def test_a_request_that_fails_fails_alone() -> None:
    generator = Slow()

    async def work() -> list[Any]:
        async with GenerationService(generator, wait_s=0.1) as service:
            first = await ask(service, ["s1", "s2", "s bad", "s4", "s5"])
            return [*first, *await ask(service, ["s6"])]

    *good, last = run(work)
    assert isinstance(good.pop(2), ValueError)
    assert (good, last) == (["s1", "s2", "s4", "s5"], "s6")
    assert len(generator.batches) == 6, "halved until it was alone, and the next one"


def test_a_request_that_is_not_even_read_fails_alone() -> None:
    async def work() -> list[Any]:
        async with GenerationService(Slow(), wait_s=0.1) as service:
            return await ask(service, ["s1", "unreadable", "s2"])

    first, unreadable, second = run(work)
    assert (first, second) == ("s1", "s2")
    assert isinstance(unreadable, UnicodeError)


def test_a_batch_is_answered_when_it_is_done_and_not_when_all_are() -> None:
    generator = Slow(0.1)
    answered: list[str] = []

    async def one(service: GenerationService, state: str) -> None:
        await service.suggest(Request(state))
        answered.append(f"{state} after {len(generator.batches)}")

    async def work() -> None:
        async with GenerationService(generator, wait_s=0.05) as service:
            await asyncio.gather(*(one(service, state) for state in ("a1", "b1", "a2", "c1")))

    run(work)
    assert generator.batches == [["a1", "a2"], ["b1"], ["c1"]]
    assert answered == ["a1 after 1", "a2 after 1", "b1 after 2", "c1 after 3"]


def test_what_comes_while_others_wait_joins_their_next_batch() -> None:
    generator = Slow(20.0)

    async def work() -> None:
        async with GenerationService(generator, wait_s=0.05) as service:
            first = asyncio.gather(*(service.suggest(Request(state)) for state in ("a1", "b1")))
            await generator.works.wait()
            late = asyncio.create_task(service.suggest(Request("b2")))
            await asyncio.sleep(0)  # it has asked
            generator.ends.set()
            await asyncio.gather(first, late)

    run(work)
    assert generator.batches == [["a1"], ["b1", "b2"]]


def test_who_is_cancelled_while_others_are_answered_costs_the_model_nothing() -> None:
    generator = Slow(20.0)

    async def work() -> None:
        async with GenerationService(generator, wait_s=0.05) as service:
            kept = asyncio.gather(*(service.suggest(Request(state)) for state in ("a1", "b1")))
            given_up = asyncio.create_task(service.suggest(Request("b2")))
            await generator.works.wait()
            given_up.cancel()
            await asyncio.sleep(0)
            generator.ends.set()
            await kept

    run(work)
    assert generator.batches == [["a1"], ["b1"]]


def test_a_cancelled_search_is_not_answered_and_disturbs_no_other() -> None:
    generator = Slow()

    async def work() -> list[Any]:
        async with GenerationService(generator, wait_s=0.2) as service:
            given_up = asyncio.create_task(service.suggest(Request("given up")))
            await asyncio.sleep(0)
            other = asyncio.create_task(ask(service, ["other"]))
            await asyncio.sleep(0)
            given_up.cancel()
            return await other

    assert run(work) == ["other"]
    assert generator.batches == [["other"]]


def test_closing_fails_waiting_requests_and_a_closed_service_refuses_new_ones() -> None:
    generator = Slow(20.0)

    async def work() -> tuple[Any, Any]:
        async with GenerationService(generator, wait_s=0.0) as service:
            working = asyncio.create_task(ask(service, ["working"]))
            await generator.works.wait()
            waiting = asyncio.create_task(ask(service, ["waiting"]))
            await asyncio.sleep(0.01)
            generator.loop.call_soon(generator.ends.set)  # runs once closing waits for the batch
        with pytest.raises(GenerationStoppedError, match="is not open"):
            await service.suggest(Request("late"))
        return (await working)[0], (await waiting)[0]

    working, waiting = run(work)
    assert working == "working", "what the model works on is waited for"
    assert isinstance(waiting, GenerationStoppedError)
    assert generator.batches == [["working"]]


def test_an_idle_service_closes_at_once() -> None:
    async def work() -> None:
        async with GenerationService(Slow(), wait_s=60.0):
            await asyncio.sleep(0)

    run(work)


def test_a_service_closes_while_it_waits_for_more() -> None:
    async def work() -> Any:
        async with GenerationService(Slow(), wait_s=60.0) as service:
            asked = asyncio.create_task(ask(service, ["a"]))
            await asyncio.sleep(0.05)
        return (await asked)[0]

    assert isinstance(run(work), GenerationStoppedError)
