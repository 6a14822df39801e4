"""A generator that the server has loaded, lent to a search that it runs: a prove job asks it over a socket that it
inherits (`pipeline.prove.lent`), in batches with what all clients ask, and loads no second copy of its weights.

It is lent as long as the job lives. A checkpoint that takes the model's place meanwhile takes the next search: what one
search asks is one model, and that is closed when the search has ended.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.prove.lent import answers_line, read_requests
from pipeline.serve.problems import Problem
from pipeline.tactics.requests import Request, Suggestions

_LONGEST_LINE_BYTES = 64 * 2**20
_ASKING = (1, 2)
"""The rungs that ask a generator for tactics; whole proofs are asked for otherwise."""

_log = logging.getLogger(__name__)


class Lends(Protocol):
    """A generator that is loaded."""

    async def suggest(self, request: Request) -> Suggestions:
        """Return its answer.

        Raises:
            Problem: it has none.
        """


class Lending(Protocol):
    """Who has generators loaded: `registry.Registry`."""

    def lent(self, source: str) -> AbstractAsyncContextManager[Lends | None]: ...


@dataclass(frozen=True, slots=True)
class Loan:
    """What a prove job is told of its rung, and the descriptors that it inherits for it."""

    parameters: Mapping[str, Any]
    descriptors: tuple[int, ...] = ()


@asynccontextmanager
async def lent(models: Lending, number: int, parameters: Mapping[str, Any]) -> AsyncIterator[Loan]:
    """Yield a rung's parameters, with the generator that it names lent to it where the server has that one loaded.

    Args:
        models: who may lend.
        number: the rung's.
        parameters: the rung's own, as the prove job takes them.
    """
    part = parameters.get("generator")
    if number not in _ASKING or part is None or part.get("engine", "transformers") != "transformers":
        yield Loan(parameters)
        return
    async with models.lent(str(part["path"])) as model:
        if model is None:
            yield Loan(parameters)
            return
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours, limit=_LONGEST_LINE_BYTES)
            answering = asyncio.create_task(_answer(model, reader, writer), name="lending")
            try:
                descriptor = theirs.fileno()
                yield Loan({**parameters, "generator": {**part, "lent": descriptor}}, (descriptor,))
            finally:
                answering.cancel()
                await asyncio.wait({answering})
                if not answering.cancelled() and (error := answering.exception()) is not None:
                    _log.error("a search could not be lent a generator any longer", exc_info=error)


async def _answer(model: Lends, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while line := await reader.readline():
            asked = read_requests(line)
            answers = await asyncio.gather(*(_asked(model, one) for one in asked))
            writer.write(answers_line(answers))
            await writer.drain()
    finally:
        # Whoever waits for an answer then hears that there is none.
        writer.close()


async def _asked(model: Lends, request: Request) -> Suggestions:
    try:
        return await model.suggest(request)
    except Problem as problem:
        return Suggestions((), {}, error=problem.reason, reason="model_failed")
