from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pipeline.models.tactics.requests import Request, Suggestion, Suggestions
from pipeline.models.tactics.service import Batching, GenerationStoppedError

Service = Batching[Request, Suggestions]


class Slow:
    """Answers each state with itself as the tactic; notes its batches."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, seconds: float = 0.0, error: type[BaseException] = ValueError) -> None:
        self._error = error
        self.batches: list[list[str]] = []
        self.threads: set[str] = set()
        self.works = asyncio.Event()
        self.ends = threading.Event()
        """Ends the work on a batch before its seconds are over."""
        self._seconds = seconds

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        self.batches.append([request.state for request in requests])
        self.loop.call_soon_threadsafe(self.works.set)
        self.threads.add(threading.current_thread().name)
        self.ends.wait(self._seconds)
        if any("bad" in request.state for request in requests):
            raise self._error("a bad state")
        return [Suggestions((Suggestion(request.state, -1.0),), {}) for request in requests]


def run(work: Callable[[], Awaitable[Any]], *, limit_s: float = 20.0) -> Any:
    async def limited() -> Any:
        Slow.loop = asyncio.get_running_loop()
        return await asyncio.wait_for(work(), limit_s)

    return asyncio.run(limited())


async def ask(service: Service, states: Sequence[str]) -> list[Any]:
    answers = await asyncio.gather(*(service.ask(Request(state)) for state in states), return_exceptions=True)
    return [answer if isinstance(answer, BaseException) else answer.tactics[0].tactic for answer in answers]


def test_what_is_asked_at_once_goes_together_and_each_gets_its_own_answer() -> None:
    generator = Slow()

    async def work() -> list[Any]:
        async with Batching(generator.suggest) as service:
            return await ask(service, [f"s{number}" for number in range(12)])

    assert run(work) == [f"s{number}" for number in range(12)]
    assert [len(batch) for batch in generator.batches] == [12]
    assert all(name.startswith("model") for name in generator.threads), "not on the loop's thread"


def test_what_is_asked_while_the_model_works_is_the_next_batch() -> None:
    generator = Slow(0.2)

    async def work() -> list[Any]:
        async with Batching(generator.suggest) as service:
            first = asyncio.create_task(ask(service, ["a"]))
            await generator.works.wait()
            return [*await ask(service, ["sb", "sc", "sd"]), *await first]

    assert run(work) == ["sb", "sc", "sd", "a"]
    assert generator.batches == [["a"], ["sb", "sc", "sd"]]


class Panic(BaseException):
    """As a library in Rust raises it."""


@pytest.mark.parametrize(("error", "told"), [(ValueError, ValueError), (Panic, RuntimeError)])
def test_a_request_that_fails_fails_alone(error: type[BaseException], told: type[Exception]) -> None:
    generator = Slow(error=error)

    async def work() -> list[Any]:
        async with Batching(generator.suggest) as service:
            first = await ask(service, ["s1", "s2", "s bad", "s4", "s5"])
            return [*first, *await ask(service, ["s6"])]

    *good, last = run(work)
    failed = good.pop(2)
    assert (type(failed), str(failed)) == (told, "a bad state")
    assert (good, last) == (["s1", "s2", "s4", "s5"], "s6")
    assert len(generator.batches) == 6, "halved until it was alone, and the next one"


def test_more_requests_than_go_together_are_several_batches_each_answered_when_it_is_done() -> None:
    generator = Slow(0.5)

    async def work() -> bool:
        async with Batching(generator.suggest, at_once=2) as service:
            first, second, last = (asyncio.create_task(service.ask(Request(state))) for state in "abc")
            await asyncio.gather(first, second)
            early = not last.done()
            await last
            return early

    assert run(work)
    assert generator.batches == [["a", "b"], ["c"]]


def test_who_is_cancelled_while_others_are_answered_costs_the_model_nothing() -> None:
    generator = Slow(20.0)

    async def work() -> None:
        async with Batching(generator.suggest, at_once=1) as service:
            kept = asyncio.gather(*(service.ask(Request(state)) for state in ("a", "b")))
            given_up = asyncio.create_task(service.ask(Request("c")))
            await generator.works.wait()
            given_up.cancel()
            await asyncio.sleep(0)
            generator.ends.set()
            await kept

    run(work)
    assert generator.batches == [["a"], ["b"]]


def test_a_search_that_is_cancelled_while_the_model_works_for_it_disturbs_no_other() -> None:
    generator = Slow(20.0)

    async def work() -> list[Any]:
        async with Batching(generator.suggest) as service:
            given_up = asyncio.create_task(service.ask(Request("given up")))
            await generator.works.wait()
            other = asyncio.create_task(ask(service, ["other"]))
            given_up.cancel()
            await asyncio.sleep(0)
            generator.ends.set()
            return await other

    assert run(work) == ["other"]
    assert generator.batches == [["given up"], ["other"]]


def test_closing_fails_waiting_requests_and_a_closed_service_refuses_new_ones() -> None:
    generator = Slow(20.0)

    async def work() -> tuple[Any, Any]:
        async with Batching(generator.suggest) as service:
            working = asyncio.create_task(ask(service, ["working"]))
            await generator.works.wait()
            waiting = asyncio.create_task(ask(service, ["waiting"]))
            await asyncio.sleep(0.01)
            generator.loop.call_soon(generator.ends.set)  # runs once closing waits for the batch
        with pytest.raises(GenerationStoppedError, match="is not open"):
            await service.ask(Request("late"))
        return (await working)[0], (await waiting)[0]

    working, waiting = run(work)
    assert working == "working", "what the model works on is waited for"
    assert isinstance(waiting, GenerationStoppedError)
    assert generator.batches == [["working"]]


def test_an_idle_service_closes_at_once() -> None:
    async def work() -> None:
        async with Batching(Slow().suggest):
            await asyncio.sleep(0)

    run(work)
