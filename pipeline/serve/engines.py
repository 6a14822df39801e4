"""Models that are loaded: generators, encoders, retrievers, the progress model; each answers in batches.

A generator gives tactics for a state, alone or with retrieved premises, from a model that runs here or an endpoint;
its answers begin with the given prefix, as LeanCopilot's `suggest_tactics "rw"` wants them. The model reads the prefix
after the prompt as if it had written it; it is tokenized by itself, which makes no difference to models that read
bytes. Probabilities are those of what follows.

An encoder's vector is the mean over the text's tokens, as LeanCopilot's own server has it; a retriever gives unit
vectors, as its index has them. The progress model rates a state by the steps that remain.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    PreTrainedModel,
)

from pipeline.endpoint.client import ChatClient
from pipeline.lean.tactic_text import Step, read_tactic
from pipeline.models.batching import by_length
from pipeline.models.chain import Chain
from pipeline.models.errors import DivergedError, ModelError
from pipeline.models.libraries import device_of, inference_dtype, load_tokenizer, quiet_libraries
from pipeline.models.model_files import DESCRIPTION, read_about
from pipeline.models.progress.model import LONGEST as LONGEST_RATED
from pipeline.models.progress.model import ProgressModel, batch_of, text_length
from pipeline.models.progress.model import load_model as load_rating_model
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, Tokens, load_encoder, load_tokens
from pipeline.models.retriever.index import embed_texts
from pipeline.models.tactics.generate import Completion, DecodingRows, Generator
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Decoding, Request, Suggestion, Suggestions
from pipeline.models.tactics.service import Batching, GenerationStoppedError
from pipeline.models.trainer_folder import settle
from pipeline.prove.generator import TACTIC_TOKENS, EndpointSuggests, Predicting
from pipeline.serve.measures import Measures
from pipeline.serve.schemas import Problem
from pipeline.serve.spec import Device, Limits, ModelKind, ModelSpec, Provenance, RewardSpec
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


OTHER_BEGINNING = "other_beginning"
"""Why an answer was left out: it does not begin as was asked."""


@dataclass(frozen=True, slots=True)
class BegunRequest(Request):
    """A state for which tactics are wanted that begin with `prefix`; "" for any."""

    prefix: str = ""


class BegunRows:
    """Rows that have read a beginning after their prompts (`generate.DecodingRows`)."""

    def __init__(self, rows: DecodingRows, beginning: Sequence[int]) -> None:
        self._rows = rows
        self._beginning = beginning

    def begin(self) -> Tensor:
        logits = self._rows.begin()
        for token in self._beginning:
            logits = self._rows.step(torch.full((len(logits),), token, device=logits.device))
        return logits

    def select(self, rows: Tensor) -> None:
        self._rows.select(rows)

    def step(self, tokens: Tensor) -> Tensor:
        return self._rows.step(tokens)


class PrefixedGenerator(Generator):
    """A generator that also takes `BegunRequest`s. For one thread at a time."""

    _beginning: tuple[int, ...] = ()

    def together(self, requests: Sequence[Request]) -> list[int]:
        """Return which of the requests make the batch that the first is in: those with the same beginning."""
        same = [number for number, one in enumerate(requests) if _prefix(one) == _prefix(requests[0])]
        return [same[place] for place in super().together([requests[number] for number in same])]

    def suggest(self, requests: Sequence[Request]) -> list[Suggestions]:
        """Return tactics for each request, in the requests' order.

        Raises:
            Problem: 409, a beginning leaves no room for what is to follow it.
        """
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(_prefix(request), []).append(number)
        found: dict[int, Suggestions] = {}
        for prefix, members in groups.items():
            asked = [requests[number] for number in members]
            answers = self._going_on(prefix, asked) if prefix else super().suggest(asked)
            found |= zip(members, answers, strict=True)
        return [found[number] for number in range(len(requests))]

    def text(self, completion: Completion) -> str:
        """Return what an answer says, its beginning with it."""
        return super().text(replace(completion, ids=(*self._beginning, *completion.ids)))

    def _rows(self, prompts: Sequence[Sequence[int]]) -> DecodingRows:
        rows = super()._rows(prompts)
        return BegunRows(rows, self._beginning) if self._beginning else rows

    def _going_on(self, prefix: str, requests: Sequence[Request]) -> list[Suggestions]:
        """Answer requests with one beginning, whose tokens are taken from the answers' length."""
        beginning = tuple(self.prompts.answer_ids(prefix)[:-1])
        asked = []
        for request in requests:
            most = self._most(request.decoding)
            left = most - len(beginning)
            if left < 1:
                raise Problem(
                    409,
                    "prefix_too_long",
                    f"the prefix has {len(beginning)} tokens, and an answer of this model has {most} at most",
                    "send a shorter prefix",
                )
            asked.append(replace(request, decoding=replace(request.decoding, max_tokens=left)))
        self._beginning = beginning
        try:
            answers = super().suggest(asked)
        finally:
            self._beginning = ()
        return [beginning_with(prefix, answer) for answer in answers]


def beginning_with(prefix: str, found: Suggestions) -> Suggestions:
    """Return the suggestions that begin with a prefix, as tactics are read: without white space or `by` before it."""
    wanted = read_tactic(prefix).tactic or prefix.strip()
    kept = tuple(one for one in found.tactics if one.tactic.startswith(wanted))
    if len(kept) == len(found.tactics):
        return found
    left_out = {**found.left_out, OTHER_BEGINNING: len(found.tactics) - len(kept)}
    return replace(found, tactics=kept, left_out=left_out)


def _prefix(request: Request) -> str:
    return request.prefix if isinstance(request, BegunRequest) else ""


LONGEST = 2048
"""Tokens of the longest text for an encoder that would take any: what attention takes grows with the square."""
_AT_ONCE = 16


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


class HubEncoder:
    """Any encoder that transformers loads, or the encoder of an encoder-decoder; a causal model's states do too."""

    def __init__(self, model: str, *, device: torch.device) -> None:
        """Args:
        model: a folder or a name of the hub.
        device: where to compute.

        Raises:
            ModelError: it cannot be loaded.
        """
        self._tokenizer = load_tokenizer(model)
        self._model = _encoder(model).to(device).eval()
        self._device = device
        self._longest = text_length(self._tokenizer, self._model, LONGEST)
        if self._tokenizer.pad_token_id is None:
            raise ModelError(
                f"the tokenizer of {model} has no token to pad with. Set pad_token in its configuration"
            )

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the means over the tokens of texts.

        Raises:
            DivergedError: one is no finite number.
        """
        rows = self._tokenizer([*texts], truncation=True, max_length=self._longest, verbose=False)[
            "input_ids"
        ]
        found: list[list[float]] = [[]] * len(rows)
        lengths = [len(row) for row in rows]
        for chosen in by_length(lengths, lambda together, _shortest, _longest: together <= _AT_ONCE):
            batch = batch_of([rows[number] for number in chosen], self._tokenizer.pad_token_id)
            means = self._means({name: value.to(self._device) for name, value in batch.items()})
            for number, mean in zip(chosen, means, strict=True):
                found[number] = mean
        return found

    def _means(self, batch: dict[str, torch.Tensor]) -> list[list[float]]:
        with torch.inference_mode():
            hidden = self._model(**batch).last_hidden_state.float()
        mask = batch["attention_mask"].unsqueeze(2)
        # Values at padding are arbitrary, and NaN times zero is NaN.
        means = hidden.masked_fill(mask == 0, 0.0).sum(dim=1) / mask.sum(dim=1)
        if not bool(torch.isfinite(means).all()):
            raise DivergedError("a vector has numbers that are none: the encoder's weights may be damaged")
        rows: list[list[float]] = means.cpu().tolist()
        return rows


def _encoder(model: str) -> PreTrainedModel:
    try:
        with quiet_libraries():
            config: Any = AutoConfig.from_pretrained(model)
            family: Any = (
                AutoModelForTextEncoding if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING else AutoModel
            )
            loaded: Any = family.from_pretrained(model, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError) as error:
        raise ModelError(
            f"{model} cannot be loaded as an encoder ({first_line(error)}). Name a folder with config.json, "
            "model.safetensors and a tokenizer, or a model of the hub that was fetched before"
        ) from error
    encoder: PreTrainedModel
    encoder, report = loaded
    # BERT's pooler is no part of the mean.
    missing = sorted(
        name for name in report["missing_keys"] if "pooler" not in name and "embed_tokens" not in name
    )
    if missing:
        raise ModelError(
            f"{model} lacks {len(missing)} of the encoder's weights ({missing[0]}, …), which would be random. Name a "
            "whole checkpoint"
        )
    if config.is_encoder_decoder and family is AutoModel:
        whole: Any = encoder
        encoder = whole.get_encoder()
    return encoder


T = TypeVar("T")


class Retriever:
    """A retriever's encoder; `document_length` and `query_length` are the tokens that it was trained with."""

    def __init__(self, encoder: Encoder, tokens: Tokens, *, document_length: int, query_length: int) -> None:
        self.encoder = encoder
        self.tokens = tokens
        self.document_length = document_length
        self.query_length = query_length

    @classmethod
    def load(cls, model: str | Path, *, device: torch.device) -> Retriever:
        """Load a checkpoint of the chain, another folder, or a model of the hub.

        Raises:
            LearningError: it is missing or damaged, or no encoder.
        """
        folder, trained = Path(model), RetrieverConfig()
        config: dict[str, Any] = {}
        if (folder / DESCRIPTION).is_file():
            config = Chain(folder.parent).read(folder.name, verify=True).config
        encoder = load_encoder(model)
        torch.nn.Module.to(encoder, device)
        encoder.train(False)
        return cls(
            encoder,
            load_tokens(model),
            document_length=int(config.get("max_seq_len", trained.max_seq_len)),
            query_length=int(config.get("data_max_seq_len", trained.data_max_seq_len)),
        )

    def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the unit vectors of texts, as of queries.

        Raises:
            DivergedError: one is no finite number.
        """
        made: list[list[float]] = (
            embed_texts(self.encoder, self.tokens, texts, self.query_length).cpu().tolist()
        )
        return made


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
        generator: PrefixedGenerator,
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
        provenance: Provenance,
        retriever: LoadedRetriever,
        nearest: Callable[[LoadedRetriever, str, int], Awaitable[tuple[str, ...]]],
        premises: int,
        limits: Limits,
        measures: Measures,
    ) -> None:
        """Args:
        name, generator, decoding, limits, measures: as of a model that is shown none.
        provenance: the retriever's checkpoint.
        retriever: closed with this.
        nearest: finds so many premises of the watched repositories for a state, from any file.
        premises: how many are shown.
        """
        super().__init__(name, generator, decoding, provenance=provenance, limits=limits, measures=measures)
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
        prompt = f"{state}\n\nThe tactic has to begin with: {prefix}" if prefix else state
        found = await self._suggests.suggest(Request(prompt, (), self._decoding, _SEED))
        if found.error:
            raise Problem(
                _STATUS.get(found.reason, 502),
                f"endpoint_{found.reason}",
                f'the endpoint of "{self._name}" gave no answer: {found.error}',
                "GET /models lists others",
            )
        return beginning_with(prefix, found).tactics if prefix else found.tactics


def load_generator(
    source: str, *, device: Device, kind: ModelKind, repository: str = ""
) -> PrefixedGenerator:
    """Load a model that generates; of what our trainers wrote each file is compared with what was saved.

    Args:
        source: a folder, a LoRA adapter's folder, or a name of the hub.
        device: where to compute.
        kind: "causal" and "seq2seq" take nothing else; the others take either.
        repository: whose goals it is asked, for a checkpoint with an adapter for each; "": unknown.

    Raises:
        LearningError: it cannot be loaded, or is of another kind.
    """
    folder = Path(source)
    if folder.is_dir():
        settle(folder)
        read_about(folder, verify=True)
    where = device_of(device)
    loaded = load_model(source, device=where, dtype=inference_dtype(where), repository=repository or None)
    found = "seq2seq" if loaded.prompts.kind == "seq2seq" else "causal"
    if kind in ("causal", "seq2seq") and kind != found:
        raise ModelError(f'{source} is a {found} model, and kind is "{kind}". Write kind = "{found}"')
    return PrefixedGenerator(loaded)


def decoding_of(spec: ModelSpec) -> Decoding:
    """Return how a model's answers are found, as its specification has it. An endpoint has no beam search."""
    if spec.kind == "endpoint":
        most = TACTIC_TOKENS if spec.max_tokens is None else spec.max_tokens
        return Decoding(spec.candidates, "sampling", spec.temperature, max_tokens=most)
    if spec.decoding == "sample":
        return Decoding(spec.candidates, "sampling", spec.temperature, max_tokens=spec.max_tokens)
    return Decoding(spec.candidates, max_tokens=spec.max_tokens)


NAME = "progress"
_FIELDS = ("goal", "prefix", "tactic")
_RATED_AT_ONCE = 64


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


class TemplatedProgress:
    """A progress model that reads steps in a template of its own (`generating.Predicting`)."""

    def __init__(self, model: str, template: str, *, device: str) -> None:
        """Args:
        model: a folder or hub name.
        template: with {goal}, {prefix} and {tactic}.
        device: as `ProgressModel`'s.

        Raises:
            ModelError: the model cannot be loaded, or the template has other fields.
        """
        self._template = template
        self._text(Step("", ""))
        self._tokenizer, loaded = load_rating_model(model, new_head=False)
        self._longest = text_length(self._tokenizer, loaded, LONGEST_RATED)
        self._device = device_of(device)
        self._model: PreTrainedModel = loaded.to(self._device).eval()

    def predict(self, steps: Sequence[Step]) -> list[float]:
        """Return the steps that remain after each, from 0; infinite where the model's number is none."""
        found: list[float] = []
        for start in range(0, len(steps), _RATED_AT_ONCE):
            texts = [self._text(step) for step in steps[start : start + _RATED_AT_ONCE]]
            encoded = self._tokenizer(texts, truncation=True, max_length=self._longest, verbose=False)
            batch = batch_of(encoded["input_ids"], self._model.config.pad_token_id)
            with torch.inference_mode():
                logits = self._model(**{name: value.to(self._device) for name, value in batch.items()}).logits
            values = logits.float().reshape(-1)
            found += torch.where(values.isfinite(), values, torch.inf).clamp(min=0.0).tolist()
        return found

    def _text(self, step: Step) -> str:
        try:
            return self._template.format(goal=step.goal, prefix=step.prefix, tactic=step.tactic).strip()
        except (LookupError, ValueError, AttributeError) as error:
            raise ModelError(
                f"the template {self._template!r} cannot be filled in ({type(error).__name__}: {error}). It takes "
                f"{', '.join(f'{{{name}}}' for name in _FIELDS)}; a brace of its own is written twice"
            ) from error


def load_progress(spec: RewardSpec, source: str) -> Predicting:
    """Load the model that `source` names.

    Raises:
        LearningError: it cannot be loaded, or the template cannot be filled in.
    """
    if spec.template:
        return TemplatedProgress(source, spec.template, device=spec.device or "auto")
    return ProgressModel(source, device=spec.device or "auto")
