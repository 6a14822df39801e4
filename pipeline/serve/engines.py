"""Models shared by many clients: generators, encoders, retrievers, the progress model; each answers in batches.

A generator gives tactics for a state, alone or with retrieved premises, from a local model or an endpoint; its answers
begin with the given prefix, for LeanCopilot's `suggest_tactics "rw"`.

A retriever's vectors are scaled to length 1, as in its index; an encoder's are not, as on LeanCopilot's own server. The
progress model rates a state by the remaining steps.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from pipeline.endpoint.client import ChatClient
from pipeline.lean.tactic_text import Step
from pipeline.models.errors import LearningError
from pipeline.models.retriever.index import Retriever
from pipeline.models.tactics.generate import Generator, PrefixTooLongError
from pipeline.models.tactics.requests import Decoding, Request, Suggestion, Suggestions
from pipeline.models.tactics.service import Batching, GenerationStoppedError
from pipeline.prove.authors import EndpointModel
from pipeline.prove.generator import Predicting
from pipeline.serve.measures import Measures
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import Limits, ModelSpec, Provenance
from store.text import first_line

_log = logging.getLogger(__name__)

_told: set[tuple[str, type[Exception], tuple[str, int] | None]] = set()
"""Failures logged with their traceback: at most the number of models times the number of failing lines."""

Q = TypeVar("Q")
A = TypeVar("A")


def _tell(name: str, error: Exception) -> None:
    """Log a model's failure: with its traceback the first time, else in a line."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    line = None if where is None else (where.tb_frame.f_code.co_filename, where.tb_lineno)
    known = (name, type(error), line)
    if known in _told:
        _log.error("the model %s failed again: %s: %s", name, type(error).__name__, first_line(error))
        return
    _told.add(known)
    _log.error("the model %s failed", name, exc_info=error)


def failed(name: str, why: str) -> Problem:
    """Return the problem of a model that failed."""
    return Problem(
        500,
        "model_failed",
        f'the model "{name}" failed: {why}',
        "ask otherwise; GET /models and the log say more",
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of serving a model: its origin, the limits of its batches, and their measures."""

    provenance: Provenance
    limits: Limits
    measures: Measures


class _Batched(Generic[Q, A]):
    """A model for all clients: their requests are gathered into batches as the limits have it, and counted."""

    def __init__(
        self,
        name: str,
        answer: Callable[[Sequence[Q]], Sequence[A]],
        terms: Terms,
    ) -> None:
        """Args:
        name: of its slot.
        answer: answers a batch.
        terms: see there.
        """
        limits = terms.limits

        def counted(asked: Sequence[Q]) -> Sequence[A]:
            terms.measures.batch(name, len(asked))
            return answer(asked)

        self.provenance = terms.provenance
        self._name = name
        self._service: Batching[Q, A] = Batching(counted, at_once=limits.batch)

    async def start(self) -> None:
        await self._service.start()

    async def close(self) -> None:
        await self._service.close()

    async def _ask(self, asked: Q) -> A:
        """Return the model's answer.

        Raises:
            Problem: it failed. Any exception of a model or its libraries fails one request and not the server.
        """
        try:
            return await self._service.ask(asked)
        except Problem:
            raise
        except GenerationStoppedError as error:
            raise Problem(
                503,
                "model_stopped",
                f'the model "{self._name}" answers no more',
                "ask again: the server may be starting anew",
            ) from error
        except PrefixTooLongError as error:
            raise Problem(409, error.reason, str(error), "send a shorter prefix") from error
        except Exception as error:
            _tell(self._name, error)
            raise failed(self._name, first_line(error)) from error


class EncodingModel(_Batched[str, list[float]]):
    """An encoder for all clients."""

    def __init__(self, name: str, encoder: Retriever, terms: Terms) -> None:
        """Args:
        name: of its slot.
        encoder: makes the vectors.
        terms: see there.
        """
        super().__init__(name, lambda texts: encoder.embed(texts).tolist(), terms)

    async def encode(self, text: str) -> list[float]:
        """Return a text's vector.

        Raises:
            Problem: the encoder failed, or its vector is not finite.
        """
        return await self._ask(text)


class LoadedRetriever(EncodingModel):
    """A retriever for all clients. Its `retriever` may be asked beside, from other threads too: it only reads."""

    def __init__(self, name: str, base: Retriever, terms: Terms, *, repository: str = "") -> None:
        """Args:
        name: of its slot.
        base: of its checkpoint.
        terms: see there.
        repository: the key of its repository; "": for all, or all without an adapter.
        """
        retriever = base.of(repository)
        super().__init__(name, retriever, terms)
        self.retriever = retriever
        self._base = base
        self._terms = terms
        self._repository = repository
        self._own: dict[str, LoadedRetriever] = {}
        self._lock = asyncio.Lock()

    @property
    def checkpoint(self) -> str:
        return self.provenance.checkpoint

    async def of(self, repository: str) -> LoadedRetriever:
        """Return the retriever for a repository's goals and premises, closed with this one.

        Raises:
            Problem: its adapter cannot be loaded.
        """
        async with self._lock:
            try:
                retriever = await asyncio.to_thread(self._base.of, repository)
            except LearningError as error:
                raise failed(self._name, str(error)) from error
            if retriever is self.retriever:
                return self
            if repository not in self._own:
                own = LoadedRetriever(self._name, self._base, self._terms, repository=repository)
                await own.start()
                self._own[repository] = own
            return self._own[repository]

    async def close(self) -> None:
        for own in self._own.values():
            await own.close()
        await super().close()

    async def encode(self, text: str) -> list[float]:
        if self._base.adapters and not self._repository:
            raise Problem(
                409,
                "by_repository",
                f'the checkpoint of the model "{self._name}" has an adapter for each repository, and this is for none',
                "set `repository` in its [[serve.models]], or POST to /retrieve, which names one",
            )
        return await super().encode(text)

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the unit vectors of texts, in batches with other clients'.

        Raises:
            Problem: the encoder failed.
        """
        return await asyncio.gather(*map(self._ask, texts))


_STATUS = {"timeout": 504} | dict.fromkeys(
    ("overloaded", "no_credit", "spending_cap", "above_cap", "unreachable"), 503
)
_SEED = 0
"""The same request gets the same answer."""
_TEMPERATURE = 0.7
"""For an endpoint's suggestions."""
_SHOWN = 10
"""Maximum of premises for a generator, as in training."""


class GeneratingModel(Protocol):
    """A model for `/generate`."""

    provenance: Provenance

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def tactics(self, state: str, prefix: str) -> Sequence[Suggestion]:
        """Return different tactics for a state, each beginning with the prefix, the likeliest first.

        Raises:
            Problem: no answer came.
        """


class LocalGenerator(_Batched[Request, Suggestions]):
    """A local model."""

    def __init__(self, name: str, generator: Generator, decoding: Decoding, terms: Terms) -> None:
        """Args:
        name: of its slot.
        generator: used by this model alone.
        decoding: how many tactics, and how they are found.
        terms: see there.
        """
        super().__init__(name, generator.suggest, terms)
        self._decoding = decoding

    async def tactics(self, state: str, prefix: str) -> Sequence[Suggestion]:
        premises = await self.premises(state)
        request = Request(state, premises, replace(self._decoding, prefix=prefix), _SEED)
        result = await self._ask(request)
        if result.error:
            raise failed(self._name, result.error)
        return result.tactics

    async def premises(self, state: str) -> tuple[str, ...]:  # noqa: ARG002 - some are shown what they are found for
        """Return the model's premises for a state: marked code, the nearest first."""
        return ()


class RetrievalGenerator(LocalGenerator):
    """A local model with a retriever's premises for the state."""

    def __init__(
        self,
        name: str,
        generator: Generator,
        decoding: Decoding,
        terms: Terms,
        *,
        retriever: LoadedRetriever,
        nearest: Callable[[LoadedRetriever, str, int], Awaitable[tuple[str, ...]]],
    ) -> None:
        """Args:
        name, generator, decoding, terms: as for a model without premises; its provenance is the retriever's.
        retriever: closed with this.
        nearest: returns the given number of premises for a state, from any file of the watched repositories.
        """
        super().__init__(name, generator, decoding, terms)
        self.retriever = retriever
        self._nearest = nearest

    async def start(self) -> None:
        await self.retriever.start()
        await super().start()

    async def close(self) -> None:
        await super().close()
        await self.retriever.close()

    async def premises(self, state: str) -> tuple[str, ...]:
        return await self._nearest(self.retriever, state, _SHOWN)


class EndpointGenerator:
    """A model behind an endpoint. Requests are independent: a slow answer delays no other."""

    def __init__(self, name: str, client: ChatClient, decoding: Decoding) -> None:
        """Args:
        name: of its slot.
        client: closed with this.
        decoding: how many tactics, and how they are drawn.
        """
        self.provenance = Provenance()
        self._name = name
        self._client = client
        self._decoding = decoding
        self._model = EndpointModel(client)

    async def start(self) -> None:
        """Do nothing: the client connects at the first request."""

    async def close(self) -> None:
        await self._client.close()

    async def tactics(self, state: str, prefix: str) -> Sequence[Suggestion]:
        result = await self._model.suggest(Request(state, (), replace(self._decoding, prefix=prefix), _SEED))
        if result.error:
            raise Problem(
                _STATUS.get(result.reason, 502),
                f"endpoint_{result.reason}",
                f'the endpoint of "{self._name}" gave no answer: {result.error}',
                "GET /models lists others",
            )
        return result.tactics


def decoding_of(spec: ModelSpec) -> Decoding:
    """Return how a model's answers are found, as its specification has it. An endpoint has no beam search."""
    if spec.kind == "endpoint":
        return Decoding(spec.candidates, "sampling", _TEMPERATURE, max_tokens=spec.max_tokens)
    return Decoding(spec.candidates, max_tokens=spec.max_tokens)


NAME = "progress"


class RatingModel(_Batched[tuple[Step, ...], list[float]]):
    """A progress model for all clients."""

    def __init__(self, model: Predicting, terms: Terms) -> None:
        """Args:
        model: used by this one alone.
        terms: see there.
        """

        def predicted(asked: Sequence[tuple[Step, ...]]) -> list[list[float]]:
            every = iter(model.predict([step for steps in asked for step in steps]))
            return [[next(every) for _ in steps] for steps in asked]

        super().__init__(NAME, predicted, terms)

    async def remaining(self, state: str, tactics: Sequence[str], prefix: str) -> list[float]:
        """Return the number of steps remaining after each tactic, from 0.

        Raises:
            Problem: the model failed, or gave no number.
        """
        result = await self._ask(tuple(Step(state, tactic, prefix) for tactic in tactics))
        if not all(map(math.isfinite, result)):
            raise failed(NAME, "its output is not a finite number; its weights may be damaged")
        return result
