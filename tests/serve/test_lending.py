"""A generator that the server has loaded, lent to a search: over a real socket pair, as long as the search lives."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from pipeline.prove.lent import LentGenerator
from pipeline.serve.lending import Loan, lent
from pipeline.serve.measures import Measures
from pipeline.serve.order import Limits, ModelOrder
from pipeline.serve.problems import Problem
from pipeline.serve.registry import Registry
from pipeline.serve.swapping import About
from pipeline.serve.testing import order_of
from pipeline.tactics.errors import ModelError
from pipeline.tactics.requests import Decoding, Request, Suggestion, Suggestions

SOURCE = "/models/tactics/one"
PART = {"generator": {"path": SOURCE, "candidates": 4}}
ASKED = [
    Request("p q : Prop\n⊢ p", ("theorem <a>h</a> : p", "\ud800"), Decoding(3, "sampling", 0.5), 7),
    Request("⊢ bad"),
]
SAID = Suggestions(
    (Suggestion("simp", -0.25, 4), Suggestion("rfl", -math.inf, 1)), {"repeated": 1}, "", 11, 5, 0.5
)


class Says:
    """A model that was loaded from `SOURCE`."""

    def __init__(self) -> None:
        self.about, self.source = About(), SOURCE
        self.asked: list[Request] = []
        self.said: list[str] = []

    async def start(self) -> None:
        self.said.append("started")

    async def close(self) -> None:
        self.said.append("closed")

    async def suggest(self, request: Request) -> Suggestions:
        self.asked.append(request)
        if "bad" in request.state:
            raise Problem(500, "model_failed", "the model failed: so", "ask otherwise")
        return SAID


class Has:
    """Who has one model loaded, or none."""

    def __init__(self, model: Says | None) -> None:
        self._model = model
        self.wanted: list[str] = []

    @asynccontextmanager
    async def lent(self, source: str) -> AsyncIterator[Says | None]:
        self.wanted.append(source)
        yield self._model


async def with_loan(
    loan: Loan, work: Callable[[LentGenerator], Sequence[Suggestions]]
) -> Sequence[Suggestions]:
    """Have a job's side of the line at work in a thread, with a descriptor of its own as a process has."""
    descriptor = os.dup(loan.parameters["generator"]["lent"])

    def at_work() -> Sequence[Suggestions]:
        with closing(LentGenerator(descriptor)) as generator:
            return work(generator)

    return await asyncio.to_thread(at_work)


def test_each_request_is_answered_in_its_order_and_a_failure_is_that_one_s() -> None:
    async def main() -> None:
        model = Says()
        async with lent(Has(model), 2, PART) as loan:
            assert loan.descriptors == (loan.parameters["generator"]["lent"],)
            assert {**loan.parameters["generator"], "lent": None} == {**PART["generator"], "lent": None}
            for _ in range(2):
                good, bad = await with_loan(loan, lambda generator: generator.suggest(ASKED))
                assert good == SAID
                assert (bad.tactics, bad.error, bad.reason) == ((), "the model failed: so", "model_failed")
        assert model.asked == 2 * ASKED

    asyncio.run(main())


def test_a_search_whose_model_fails_by_a_defect_hears_that_the_line_is_closed() -> None:
    class Broken(Says):
        async def suggest(self, request: Request) -> Suggestions:
            raise RuntimeError(f"nobody thought of {request.state}")

    async def main() -> None:
        async with lent(Has(Broken()), 1, PART) as loan:
            with pytest.raises(ModelError, match="is gone"):
                await with_loan(loan, lambda generator: generator.suggest(ASKED))

    asyncio.run(main())


def test_what_leaves_in_the_middle_of_a_question_is_worked_for_no_more_and_leaves_nothing_open() -> None:
    begun, ended = asyncio.Event(), list[str]()

    class Slow(Says):
        async def suggest(self, request: Request) -> Suggestions:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            raise AssertionError

    async def main() -> int:
        async with lent(Has(Slow()), 2, PART) as loan:
            waiting = asyncio.create_task(with_loan(loan, lambda generator: generator.suggest(ASKED[:1])))
            await begun.wait()
        with pytest.raises(ModelError, match="is gone"):
            await waiting
        assert ended == ["cancelled"]
        return loan.descriptors[0]

    theirs = asyncio.run(main())
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(theirs)


def test_a_generator_whose_lender_is_gone_says_so_and_is_given_back_without_a_word() -> None:
    here, there = socket.socketpair()
    generator = LentGenerator(here.detach())
    there.close()
    asked = [Request("⊢ p", (), Decoding(1), 0)]
    with pytest.raises(ModelError, match=r"cannot be asked|is gone"):
        generator.suggest(asked)
    descriptor = generator._socket.fileno()
    generator.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize(
    ("number", "parameters", "wanted"),
    [
        (0, {}, []),
        (3, PART, []),
        (4, {"external": {}}, []),
        (2, {"generator": {"path": SOURCE, "engine": "vllm"}}, []),
        (2, PART, [SOURCE]),
    ],
    ids=["the list", "whole proofs", "an endpoint", "vLLM", "not loaded"],
)
def test_what_cannot_be_lent_is_left_to_the_search(
    number: int, parameters: Mapping[str, Any], wanted: list[str]
) -> None:
    async def main() -> None:
        has = Has(None)
        async with lent(has, number, parameters) as loan:
            assert (loan.parameters, loan.descriptors) == (parameters, ())
        assert has.wanted == wanted

    asyncio.run(main())


def test_a_model_that_another_takes_the_place_of_stays_as_long_as_it_is_lent(tmp_path: Path) -> None:
    async def unused(*_: Any) -> Any:
        raise AssertionError

    async def main() -> None:
        order = order_of(tmp_path, ModelOrder("m", "tactics", SOURCE), limits=Limits(queue=2))
        registry = Registry(order, measures=Measures(), nearest=unused, warm=unused)
        place = registry.generator("m")
        first: Any = Says()
        second: Any = Says()
        second.source, said = "/models/tactics/two", first.said
        async with registry.lent(SOURCE) as none:
            assert none is None, "nothing is loaded yet"
        await place.put(first)
        async with registry.lent(SOURCE) as one:
            assert one is first
            async with registry.lent(SOURCE) as more:
                assert more is None, "as many have it as may, and a search can load its own"
            await place.put(second)
            async with registry.lent(SOURCE) as gone:
                assert gone is None
            await asyncio.sleep(0.01)
            assert said == ["started"]
        await asyncio.sleep(0.01)
        assert said == ["started", "closed"]
        await place.close()

    asyncio.run(main())


def test_a_search_that_is_lent_its_model_and_one_by_an_endpoint_load_no_library_of_models() -> None:
    heavy = ("torch", "transformers", "peft", "numpy")
    program = (
        "import sys, pipeline.prove.__main__, pipeline.prove.lent, pipeline.prove.generating, "
        f"pipeline.prove.endpoint_tactics; print([one for one in {heavy!r} if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
