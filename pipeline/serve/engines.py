"""Models that serve many clients: generators, encoders, retrievers, the progress model; each answers in batches.

A generator gives tactics for a state, alone or with retrieved premises, from a model that runs here or an endpoint;
its answers begin with the given prefix, as LeanCopilot's `suggest_tactics "rw"` wants them.

An encoder's vector is the mean over the text's tokens, as LeanCopilot's own server has it; a retriever gives unit
vectors, as its index has them. The progress model rates a state by the steps that remain.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from pipeline.endpoint.client import ChatClient
from pipeline.lean.tactic_text import Step
from pipeline.models.retriever.finder import Retriever
from pipeline.models.tactics.generate import Generator, PrefixTooLongError
from pipeline.models.tactics.requests import Decoding, Request, Suggestion, Suggestions
from pipeline.models.tactics.service import Batching, GenerationStoppedError
from pipeline.prove.generator import TACTIC_TOKENS, EndpointSuggests, Predicting
from pipeline.serve.measures import Measures
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import Limits, ModelSpec, Provenance
from store.text import first_line

_log = logging.getLogger(__name__)

_told: set[tuple[str, type[Exception], tuple[str, int] | None]] = set()
"""Failures logged with their traceback: at most as many as there are models, and lines that raise."""

Q = TypeVar("Q")
A = TypeVar("A")


def batching(
    name: str,
    answer: Callable[[Sequence[Q]], Sequence[A]],
    together: Callable[[Sequence[Q]], Sequence[int]] | None = None,
    *,
    limits: Limits,
    measures: Measures,
) -> Batching[Q, A]:
    """Return what gathers requests for the model of this name into batches as the limits have it, and counts them."""

    def counted(asked: Sequence[Q]) -> Sequence[A]:
        measures.batch(name, len(asked))
        return answer(asked)

    return Batching(counted, together, at_once=limits.batch, wait_s=limits.batch_wait_s, name=f"model:{name}")


async def ask(name: str, service: Batching[Q, A], asked: Q) -> A:
    """Return a model's answer.

    Raises:
        Problem: the model failed. Any exception of a model or its libraries fails one request and not the server.
    """
    try:
        return await service.ask(asked)
    except Problem:
        raise
    except GenerationStoppedError as error:
        raise Problem(
            503,
            "model_stopped",
            f'the model "{name}" answers no more',
            "ask again: the server may be starting anew",
        ) from error
    except PrefixTooLongError as error:
        raise Problem(409, error.reason, str(error), "send a shorter prefix") from error
    except Exception as error:
        _tell(name, error)
        raise failed(name, first_line(error)) from error


def _tell(name: str, error: Exception) -> None:
    """Log where a model failed: with its traceback the first time, a line for each that fails as one before."""
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


class Embeds(Protocol):
    """Makes vectors of texts."""

    def vectors(self, texts: Sequence[str]) -> list[list[float]]: ...


class EncodingModel:
    """An encoder for all clients."""

    def __init__(
        self, name: str, embeds: Embeds, *, provenance: Provenance, limits: Limits, measures: Measures
    ) -> None:
        """Args:
        name: of its slot.
        embeds: the encoder.
        provenance: of the model.
        limits: of its batches.
        measures: count them.
        """
        self.provenance = provenance
        self._name = name
        self._service: Batching[str, list[float]] = batching(
            name, embeds.vectors, limits=limits, measures=measures
        )

    async def start(self) -> None:
        await self._service.start()

    async def close(self) -> None:
        await self._service.close()

    async def encode(self, text: str) -> list[float]:
        """Return a text's vector.

        Raises:
            Problem: the encoder failed, or what it gives is no finite number.
        """
        return await ask(self._name, self._service, text)


T = TypeVar("T")


class LoadedRetriever(EncodingModel):
    """A retriever for all clients. Its encoder may be asked beside, from other threads too: it only reads."""

    def __init__(
        self, name: str, retriever: Retriever, *, provenance: Provenance, limits: Limits, measures: Measures
    ) -> None:
        super().__init__(name, retriever, provenance=provenance, limits=limits, measures=measures)
        self.encoder = retriever.encoder
        self.tokens = retriever.tokens
        self.document_length = retriever.document_length
        self.query_length = retriever.query_length

    @property
    def checkpoint(self) -> str:
        return self.provenance.checkpoint

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the unit vectors of texts, in batches with other clients'.

        Raises:
            Problem: the encoder failed.
        """
        return await asyncio.gather(*map(self.encode, texts))

    async def run(self, work: Callable[[], T]) -> T:
        """Return what the work returns; it has a thread, so that it may take its time."""
        return await asyncio.to_thread(work)


_STATUS = {"timeout": 504} | dict.fromkeys(
    ("overloaded", "no_credit", "spending_cap", "above_cap", "unreachable"), 503
)
_SEED = 0
"""The same request gets the same answer."""
_TEMPERATURE = 0.7
"""Of what an endpoint suggests."""
_SHOWN = 10
"""Premises that a generator is shown, as in training."""


class GeneratingModel(Protocol):
    """A model that `/generate` asks."""

    provenance: Provenance

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def tactics(self, state: str, prefix: str) -> Sequence[Suggestion]:
        """Return different tactics for a state that begin with the prefix, the likeliest first.

        Raises:
            Problem: there is no answer.
        """


class LocalGenerator:
    """A model that runs here."""

    def __init__(
        self,
        name: str,
        generator: Generator,
        decoding: Decoding,
        *,
        provenance: Provenance,
        limits: Limits,
        measures: Measures,
    ) -> None:
        """Args:
        name: of its slot.
        generator: used by this model alone.
        decoding: how many tactics, and how they are found.
        provenance: of the model.
        limits: of its batches.
        measures: count them.
        """
        self.provenance = provenance
        self._name = name
        self._decoding = decoding
        self._service: Batching[Request, Suggestions] = batching(
            name, generator.suggest, generator.together, limits=limits, measures=measures
        )

    async def start(self) -> None:
        await self._service.start()

    async def close(self) -> None:
        await self._service.close()

    async def tactics(self, state: str, prefix: str) -> Sequence[Suggestion]:
        premises = await self.premises(state)
        request = Request(state, premises, replace(self._decoding, prefix=prefix), _SEED)
        found = await ask(self._name, self._service, request)
        if found.error:
            raise failed(self._name, found.error)
        return found.tactics

    async def premises(self, state: str) -> tuple[str, ...]:  # noqa: ARG002 - some are shown what they are found for
        """Return what the model is shown beside a state: marked code, the nearest first."""
        return ()


class RetrievalGenerator(LocalGenerator):
    """A model that runs here and is shown the premises that a retriever finds for the state."""

    def __init__(
        self,
        name: str,
        generator: Generator,
        decoding: Decoding,
        *,
        provenance: Provenance,
        retriever: LoadedRetriever,
        nearest: Callable[[LoadedRetriever, str, int], Awaitable[tuple[str, ...]]],
        limits: Limits,
        measures: Measures,
    ) -> None:
        """Args:
        name, generator, decoding, limits, measures: as of a model that is shown none.
        provenance: the retriever's checkpoint.
        retriever: closed with this.
        nearest: finds so many premises of the watched repositories for a state, from any file.
        """
        super().__init__(name, generator, decoding, provenance=provenance, limits=limits, measures=measures)
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
        self._suggests = EndpointSuggests(client)

    async def start(self) -> None:
        """Do nothing: the client connects at the first request."""

    async def close(self) -> None:
        await self._client.close()

    async def tactics(self, state: str, prefix: str) -> Sequence[Suggestion]:
        found = await self._suggests.suggest(
            Request(state, (), replace(self._decoding, prefix=prefix), _SEED)
        )
        if found.error:
            raise Problem(
                _STATUS.get(found.reason, 502),
                f"endpoint_{found.reason}",
                f'the endpoint of "{self._name}" gave no answer: {found.error}',
                "GET /models lists others",
            )
        return found.tactics


def decoding_of(spec: ModelSpec) -> Decoding:
    """Return how a model's answers are found, as its specification has it. An endpoint has no beam search."""
    if spec.kind == "endpoint":
        most = TACTIC_TOKENS if spec.max_tokens is None else spec.max_tokens
        return Decoding(spec.candidates, "sampling", _TEMPERATURE, max_tokens=most)
    return Decoding(spec.candidates, max_tokens=spec.max_tokens)


NAME = "progress"


class RatingModel:
    """A progress model for all clients."""

    def __init__(
        self, model: Predicting, *, provenance: Provenance, limits: Limits, measures: Measures
    ) -> None:
        """Args:
        model: used by this one alone.
        provenance: of the model.
        limits: of its batches.
        measures: count them.
        """
        self.provenance = provenance

        def predicted(asked: Sequence[tuple[Step, ...]]) -> list[list[float]]:
            every = iter(model.predict([step for steps in asked for step in steps]))
            return [[next(every) for _ in steps] for steps in asked]

        self._service: Batching[tuple[Step, ...], list[float]] = batching(
            NAME, predicted, limits=limits, measures=measures
        )

    async def start(self) -> None:
        await self._service.start()

    async def close(self) -> None:
        await self._service.close()

    async def remaining(self, state: str, tactics: Sequence[str], prefix: str) -> list[float]:
        """Return how many steps remain after each tactic, from 0.

        Raises:
            Problem: the model failed, or what it says is no number.
        """
        found = await ask(NAME, self._service, tuple(Step(state, tactic, prefix) for tactic in tactics))
        if not all(map(math.isfinite, found)):
            raise failed(NAME, "its output is not a finite number; its weights may be damaged")
        return found
