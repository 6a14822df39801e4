"""The rungs of the ladder: for each, what it takes to work on a job's sorrys, made once and used by all of them.

0 the curated tactics, 1 a generator that is shown retrieved premises, 2 a generator, 3 whole proofs by a local model,
4 an external model: whole proofs, or tactics for searches. Models are loaded when their rung is asked for and not
before: rung 0 needs no torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pipeline.jobs.protocol import JobError
from pipeline.models.errors import LearningError
from pipeline.prove.answering import (
    ENDPOINT_REMEDY,
    Answering,
    AnsweringAuthor,
    AnsweringSuggests,
    everybodys,
)
from pipeline.prove.curated import Ladder
from pipeline.prove.graph import ModelScoring, Proposer, Remaining, Scoring
from pipeline.prove.order import Order, bad_spec
from pipeline.prove.whole_declaration import Wholly
from pipeline.prove.whole_proof import Author
from store.errors import LogError

if TYPE_CHECKING:
    from pipeline.models.endpoint.client import ChatClient
    from pipeline.models.tactics.generate import Generator
    from pipeline.models.tactics.requests import Decoding
    from pipeline.prove.retrieval import Retrieval

_PROGRESS_WEIGHT = 0.5
_TEMPERATURE = 0.7


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file whose sorrys are worked on. `core_only`: it imports nothing but what comes with Lean."""

    path: str
    imports: tuple[str, ...]
    core_only: bool


Propose = Callable[[str, tuple[int, int]], Proposer]
"""Returns who proposes for a declaration, by its name and where it begins: line and column, from 1."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How the sorrys of a job are worked on.

    Attributes:
        propose: for a file, who proposes tactics for a declaration of it.
        scoring: ranks a search's states; None: as rung 0 does.
        remaining: the progress model, where there is one.
        wholly: who writes whole proofs; None: tactics are searched.
        again: whether what was not proved is searched again, with lemmas brought in and for its negation; not where
            each question is paid for.
        answering: hears whether the model answers; None where no model is asked.
        together: whether the declarations of one file are worked on side by side, so that a model is asked for many
            at once. Where no model is asked it costs only: each process then gets the file's beginning anew.
    """

    propose: Callable[[FilePlace], Propose]
    scoring: Scoring | None = None
    remaining: Remaining | None = None
    wholly: Wholly | None = None
    again: bool = True
    answering: Answering | None = None
    together: bool = True


def ladder() -> Engine:
    """Return rung 0."""

    def of_file(place: FilePlace) -> Propose:
        # One for the file: what one process could not parse, no other of the same imports can.
        tactics = Ladder(core_only=place.core_only)
        return lambda _name, _position: tactics

    return Engine(of_file, together=False)


@asynccontextmanager
async def engine(order: Order) -> AsyncIterator[Engine]:
    """Make the engine of the job's rung; its models are let go of at the end of the block.

    Raises:
        JobError: a model cannot be loaded, or the parameters do not say which.
    """
    if order.rung == 0:
        yield ladder()
        return
    async with AsyncExitStack() as open_:
        if order.rung in (1, 2):
            yield await _by_generator(order, open_)
        elif order.rung == 3:
            yield await _by_author(order, open_)
        else:
            yield await _by_endpoint(order, open_)


async def _by_generator(order: Order, open_: AsyncExitStack) -> Engine:
    from pipeline.models.tactics.service import GenerationService
    from pipeline.prove.generator import GeneratorProposer, ProgressRemaining

    part = order.part("generator")
    with _read("generator"):
        decoding = _decoding(part)
    retrieval = await _retrieval(order, open_) if order.rung == 1 else None
    suggesting = await asyncio.to_thread(_generator, part)
    service = await open_.enter_async_context(GenerationService(suggesting))
    answering = Answering(alone=False)
    suggests = AnsweringSuggests(service, answering)
    remaining, weight = None, _PROGRESS_WEIGHT
    if "progress" in order.rung_s:
        progress = order.part("progress")
        with _read("progress"):
            weight = float(progress.get("weight", weight))
            scoring = ModelScoring(progress_weight=weight)
        model = await asyncio.to_thread(_progress, progress, device=str(part.get("device", "auto")))
        remaining = await open_.enter_async_context(ProgressRemaining(model))
    else:
        scoring = ModelScoring()

    def of_file(place: FilePlace) -> Propose:
        def of_declaration(name: str, position: tuple[int, int]) -> Proposer:
            retrieve = None
            if retrieval is not None:
                from pipeline.prove.retrieval import Place

                retrieve = retrieval.at(Place(place.path, position, name, place.imports))
            return GeneratorProposer(suggests, decoding=decoding, retrieve=retrieve)

        return of_declaration

    return Engine(of_file, scoring=scoring, remaining=remaining, answering=answering)


async def _retrieval(order: Order, open_: AsyncExitStack) -> Retrieval:
    part = order.part("retriever")
    with _read("retriever"):
        chain, checkpoint, indices = Path(part["chain"]), str(part["checkpoint"]), Path(part["indices"])
        events_db, database_db = Path(part["events_db"]), Path(part["database_db"])
        premises = int(part.get("premises", 10))
    device = str(order.part("generator").get("device", "auto"))

    def load() -> Retrieval:
        from pipeline.models.libraries import device_of
        from pipeline.prove.retrieval import PremiseFinder, Retrieval, corpus_of_log

        with _loads("retriever", chain / checkpoint):
            corpus = corpus_of_log(
                events_db,
                database_db,
                repository=order.repository,
                simulated=order.lean.simulated,
                kept=indices / "corpora",
            )
            finder = PremiseFinder.of_checkpoint(
                chain,
                checkpoint,
                corpus,
                indices=indices,
                premises=premises,
                device=device_of(cast(Any, device)),
            )
            return Retrieval(finder)

    return await open_.enter_async_context(await asyncio.to_thread(load))


async def _by_author(order: Order, open_: AsyncExitStack) -> Engine:
    from pipeline.prove.authors import HFAuthor

    part = order.part("generator")
    proofs, repairs, max_tokens = _whole(order)
    with _read("generator"):
        temperature = float(part.get("temperature", _TEMPERATURE))
    generator = await asyncio.to_thread(_generator, part)
    author = HFAuthor(generator, order.model, max_tokens=max_tokens, temperature=temperature)
    author = await open_.enter_async_context(author)
    return _written(author, Answering(alone=False), proofs, repairs, order.seed)


async def _by_endpoint(order: Order, open_: AsyncExitStack) -> Engine:
    from pipeline.models.endpoint.client import open_client
    from pipeline.models.endpoint.errors import ExternalError
    from pipeline.prove.authors import ExternalAuthor

    part = order.part("external")
    with _read("external"):
        mode = str(part.get("mode", "whole"))
        if mode not in ("whole", "tactics"):
            raise ValueError(f"mode is {mode!r}: it takes whole or tactics")
    try:
        with _read("external"):
            client = open_client(part, concurrency=order.parallel)
    except ExternalError as error:
        raise JobError(error.reason, str(error), remedy=ENDPOINT_REMEDY) from error
    await open_.enter_async_context(client)
    answering = Answering(alone=True)
    if mode == "tactics":
        with _loads("endpoint's tactics", str(part["base_url"])):
            return _endpoint_searches(client, part, answering)
    proofs, repairs, max_tokens = _whole(order)
    return _written(ExternalAuthor(client, max_tokens=max_tokens), answering, proofs, repairs, order.seed)


def _endpoint_searches(client: ChatClient, part: dict[str, Any], answering: Answering) -> Engine:
    """Return the engine of searches whose tactics an endpoint suggests."""
    from pipeline.models.tactics.requests import Decoding
    from pipeline.prove.generator import TACTIC_TOKENS, EndpointSuggests, GeneratorProposer

    with _read("external"):
        decoding = Decoding(
            int(part.get("candidates", 4)),
            "sampling",
            float(part.get("temperature", _TEMPERATURE)),
            max_tokens=int(part.get("max_tokens", TACTIC_TOKENS)),
        )
    suggests = AnsweringSuggests(EndpointSuggests(client, ends=everybodys), answering)

    def of_file(_place: FilePlace) -> Propose:
        return lambda _name, _position: GeneratorProposer(suggests, decoding=decoding)

    return Engine(of_file, scoring=ModelScoring(), again=False, answering=answering)


def _written(author: Author, answering: Answering, proofs: int, repairs: int, seed: int) -> Engine:
    watched = AnsweringAuthor(author, answering)
    return Engine(ladder().propose, wholly=Wholly(watched, proofs, repairs, seed), answering=answering)


def _generator(part: dict[str, Any]) -> Generator:
    """Load the model of rungs 1 to 3."""
    with _read("generator"):
        path, device = str(part["path"]), str(part.get("device", "auto"))
    with _loads("generator", path):
        import torch

        from pipeline.models.libraries import computes_in_bfloat16, device_of
        from pipeline.models.tactics.generate import Generator

        where = device_of(cast(Any, device))
        dtype = torch.bfloat16 if computes_in_bfloat16(where) else torch.float32
        return Generator.load(path, device=where, dtype=dtype)


def _progress(part: dict[str, Any], *, device: str) -> Any:
    with _read("progress"):
        path = str(part["path"])
    with _loads("progress model", path):
        from pipeline.models.progress.model import ProgressModel

        return ProgressModel(path, device=device)


def _decoding(part: dict[str, Any]) -> Decoding:
    from pipeline.models.tactics.requests import Decoding

    modes = {"beam": "beams", "sample": "sampling"}
    said = str(part.get("decoding", "beam"))
    if said not in modes:
        raise ValueError(f"decoding is {said!r}: it takes {' or '.join(modes)}")
    return Decoding(
        candidates=int(part.get("candidates", 8)),
        mode=cast(Any, modes[said]),
        temperature=float(part.get("temperature", _TEMPERATURE)) if said == "sample" else 1.0,
    )


def _whole(order: Order) -> tuple[int, int, int]:
    """Return how many proofs a turn, how many turns after the first, and how many tokens a proof."""
    part = order.rung_s.get("whole", {})
    with _read("whole"):
        return int(part.get("proofs", 4)), int(part.get("repairs", 2)), int(part.get("max_tokens", 2048))


@contextmanager
def _read(name: str) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise bad_spec(f"{name}: {type(error).__name__}: {error}") from error


@contextmanager
def _loads(what: str, where: str | Path) -> Iterator[None]:
    """Turn what a model's loading raises into the job's failure. A name of the hub may be there the next time."""
    try:
        yield
    except LearningError as error:
        lasting = error.for_good or Path(where).is_dir()
        raise JobError(error.reason, f"the {what} {where}: {error}", deterministic=lasting) from error
    except LogError as error:
        raise JobError("database", f"the {what} {where}: {error}", remedy="see `unsorry doctor`") from error
    except (OSError, RuntimeError, ImportError, MemoryError) as error:
        raise JobError(
            "model_not_loaded",
            f"the {what} {where} cannot be loaded: {type(error).__name__}: {error}",
            remedy="see `unsorry doctor`; is there room for it, and is the device free?",
        ) from error
