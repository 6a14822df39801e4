"""Tactics for a state: from a model that runs here, alone or with retrieved premises, or from an endpoint.

What a model answers is read as everywhere (`pipeline.tactics.answer`): what is no tactic is left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from pipeline.external.client import ChatClient
from pipeline.prove.endpoint_tactics import TACTIC_TOKENS, EndpointSuggests
from pipeline.serve.asking import ask, batching, failed
from pipeline.serve.measures import Measures
from pipeline.serve.order import Device, Limits, ModelKind, ModelOrder
from pipeline.serve.prefixed import BegunRequest, PrefixedGenerator, beginning_with
from pipeline.serve.problems import Problem
from pipeline.serve.retrievers import LoadedRetriever
from pipeline.serve.swapping import About
from pipeline.tactics.errors import ModelError
from pipeline.tactics.models import load_model
from pipeline.tactics.requests import Decoding, Request, Suggestion, Suggestions
from pipeline.tactics.saving import read_about, settle
from pipeline.tactics.service import Batching
from pipeline.tactics.settings import computes_in_bfloat16, device_of

_STATUS = {"timeout": 504, "overloaded": 503, "no_credit": 503, "spending_cap": 503, "unreachable": 503}
_SEED = 0
"""The same request gets the same answer."""


class GeneratingModel(Protocol):
    """A model that `/generate` asks."""

    about: About

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
        generator: PrefixedGenerator,
        decoding: Decoding,
        *,
        about: About,
        limits: Limits,
        measures: Measures,
    ) -> None:
        """Args:
        name: of its place.
        generator: nobody else may use it.
        decoding: how many tactics, and how they are found.
        about: what it is.
        limits: of its batches.
        measures: count them.
        """
        self.about = about
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
        request = BegunRequest(state, premises, self._decoding, _SEED, prefix=prefix)
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
        generator: PrefixedGenerator,
        decoding: Decoding,
        *,
        about: About,
        retriever: LoadedRetriever,
        nearest: Callable[[LoadedRetriever, str, int], Awaitable[tuple[str, ...]]],
        premises: int,
        limits: Limits,
        measures: Measures,
    ) -> None:
        """Args:
        name, generator, decoding, limits, measures: as of a model that is shown none.
        about: the retriever's checkpoint; simulated where the retriever or the generator is.
        retriever: closed with this.
        nearest: finds so many premises of the watched repositories for a state, wherever they stand.
        premises: how many are shown.
        """
        super().__init__(name, generator, decoding, about=about, limits=limits, measures=measures)
        self.retriever = retriever
        self._nearest = nearest
        self._premises = premises

    async def start(self) -> None:
        await self.retriever.start()
        await super().start()

    async def close(self) -> None:
        await super().close()
        await self.retriever.close()

    async def premises(self, state: str) -> tuple[str, ...]:
        return await self._nearest(self.retriever, state, self._premises) if self._premises else ()


class EndpointGenerator:
    """A model behind an endpoint. Requests do not wait for each other: a slow answer holds up nobody else's."""

    def __init__(self, name: str, client: ChatClient, decoding: Decoding) -> None:
        """Args:
        name: of its place.
        client: closed with this.
        decoding: how many tactics, and how they are drawn.
        """
        self.about = About()
        self._name = name
        self._client = client
        self._decoding = decoding
        self._suggests = EndpointSuggests(client)

    async def start(self) -> None:
        """Nothing is to be started: the client connects when it is asked."""

    async def close(self) -> None:
        await self._client.close()

    async def tactics(self, state: str, prefix: str) -> Sequence[Suggestion]:
        told = f"{state}\n\nThe tactic has to begin with: {prefix}" if prefix else state
        found = await self._suggests.suggest(Request(told, (), self._decoding, _SEED))
        if found.error:
            raise Problem(
                _STATUS.get(found.reason, 502),
                f"endpoint_{found.reason}",
                f'the endpoint of "{self._name}" gave no answer: {found.error}',
                "GET /models lists others",
            )
        return beginning_with(prefix, found).tactics if prefix else found.tactics


def load_generator(source: str, *, device: Device, kind: ModelKind) -> PrefixedGenerator:
    """Load a model that generates; of what our trainers wrote each file is compared with what was saved.

    Args:
        source: a folder, a LoRA adapter's folder, or a name of the hub.
        device: where to compute.
        kind: "causal" and "seq2seq" take nothing else; the others take either.

    Raises:
        LearningError: it cannot be loaded, or is of another kind.
    """
    folder = Path(source)
    if folder.is_dir():
        settle(folder)
        read_about(folder, verify=True)
    where = device_of(device)
    dtype = torch.bfloat16 if computes_in_bfloat16(where) else torch.float32
    loaded = load_model(source, device=where, dtype=dtype)
    found = "seq2seq" if loaded.prompts.kind == "seq2seq" else "causal"
    if kind in ("causal", "seq2seq") and kind != found:
        raise ModelError(f'{source} is a {found} model, and kind is "{kind}". Write kind = "{found}"')
    return PrefixedGenerator(loaded)


def decoding_of(order: ModelOrder) -> Decoding:
    """Return how a model's answers are found, as its order has it. An endpoint knows no beams."""
    if order.kind == "endpoint":
        most = TACTIC_TOKENS if order.max_tokens is None else order.max_tokens
        return Decoding(order.candidates, "sampling", order.temperature, max_tokens=most)
    if order.decoding == "sample":
        return Decoding(order.candidates, "sampling", order.temperature, max_tokens=order.max_tokens)
    return Decoding(order.candidates, max_tokens=order.max_tokens)
