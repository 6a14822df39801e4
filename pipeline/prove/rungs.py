"""The rungs of the ladder: for each, what it takes to work on a job's sorries, made once and used by all of them.

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
from pipeline.jobs.specs import (
    CuratedRung,
    EndpointRung,
    EndpointTactics,
    GeneratorRung,
    GeneratorSpec,
    ProveSpec,
    RetrievalRung,
    WholeProofRung,
    WholeSpec,
)
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
from pipeline.prove.whole_declaration import Wholly
from pipeline.prove.whole_proof import Author
from store.errors import LogError

if TYPE_CHECKING:
    from pipeline.models.endpoint.client import ChatClient
    from pipeline.models.tactics.generate import Generator
    from pipeline.prove.retrieval import Retrieval


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file whose sorries are worked on. `core_only`: it imports nothing but what comes with Lean."""

    path: str
    imports: tuple[str, ...]
    core_only: bool


Propose = Callable[[str, tuple[int, int]], Proposer]
"""Returns who proposes for a declaration, by its name and where it begins: line and column, from 1."""


@dataclass(frozen=True, slots=True)
class Engine:
    """The method by which a job works on its sorries.

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
async def engine(given: ProveSpec) -> AsyncIterator[Engine]:
    """Make the engine of the job's rung; its models are closed at the end of the block.

    Raises:
        JobError: a model cannot be loaded.
    """
    async with AsyncExitStack() as open_:
        match given.rung:
            case CuratedRung():
                yield ladder()
            case RetrievalRung() | GeneratorRung() as rung:
                yield await _by_generator(given, rung, open_)
            case WholeProofRung() as rung:
                yield await _by_author(given, rung, open_)
            case EndpointRung() as rung:
                yield await _by_endpoint(given, rung, open_)


async def _by_generator(
    given: ProveSpec, rung: RetrievalRung | GeneratorRung, open_: AsyncExitStack
) -> Engine:
    from pipeline.models.tactics.requests import Decoding
    from pipeline.models.tactics.service import GenerationService
    from pipeline.prove.generator import GeneratorProposer, ProgressRemaining

    generator = rung.generator
    sampled = generator.decoding == "sample"
    decoding = Decoding(
        candidates=generator.candidates,
        mode="sampling" if sampled else "beams",
        temperature=generator.temperature if sampled else 1.0,
    )
    retrieval = await _retrieval(given, rung, open_) if isinstance(rung, RetrievalRung) else None
    suggesting = await asyncio.to_thread(_generator, generator)
    service = await open_.enter_async_context(GenerationService(suggesting))
    answering = Answering(alone=False)
    suggests = AnsweringSuggests(service, answering)
    remaining = None
    scoring = ModelScoring()
    if rung.progress is not None:
        scoring = ModelScoring(progress_weight=rung.progress.weight)
        model = await asyncio.to_thread(_progress, rung.progress.path, device=generator.device)
        remaining = await open_.enter_async_context(ProgressRemaining(model))

    def of_file(place: FilePlace) -> Propose:
        def of_declaration(name: str, position: tuple[int, int]) -> Proposer:
            retrieve = None
            if retrieval is not None:
                from pipeline.prove.retrieval import Place

                retrieve = retrieval.at(Place(place.path, position, name, place.imports))
            return GeneratorProposer(suggests, decoding=decoding, retrieve=retrieve)

        return of_declaration

    return Engine(of_file, scoring=scoring, remaining=remaining, answering=answering)


async def _retrieval(given: ProveSpec, rung: RetrievalRung, open_: AsyncExitStack) -> Retrieval:
    part, device = rung.retriever, rung.generator.device

    def load() -> Retrieval:
        from pipeline.models.libraries import device_of
        from pipeline.prove.retrieval import PremiseFinder, Retrieval, corpus_of_log

        with _loads("retriever", part.chain / part.checkpoint):
            corpus = corpus_of_log(
                part.events_db,
                part.database_db,
                repository=given.repository,
                simulated=given.lean.simulated,
                kept=part.indices / "corpora",
            )
            finder = PremiseFinder.of_checkpoint(
                part.chain,
                part.checkpoint,
                corpus,
                indices=part.indices,
                premises=part.premises,
                device=device_of(cast(Any, device)),
            )
            return Retrieval(finder)

    return await open_.enter_async_context(await asyncio.to_thread(load))


async def _by_author(given: ProveSpec, rung: WholeProofRung, open_: AsyncExitStack) -> Engine:
    from pipeline.prove.authors import HFAuthor

    generator = await asyncio.to_thread(_generator, rung.generator)
    author = HFAuthor(
        generator, given.model, max_tokens=rung.whole.max_tokens, temperature=rung.generator.temperature
    )
    author = await open_.enter_async_context(author)
    return _written(author, Answering(alone=False), rung.whole, given.seed)


async def _by_endpoint(given: ProveSpec, rung: EndpointRung, open_: AsyncExitStack) -> Engine:
    from pipeline.models.endpoint.client import open_client
    from pipeline.models.endpoint.errors import ExternalError
    from pipeline.prove.authors import ExternalAuthor

    try:
        client = open_client(rung.endpoint, concurrency=given.parallel)
    except ExternalError as error:
        raise JobError(error.reason, str(error), remedy=ENDPOINT_REMEDY) from error
    await open_.enter_async_context(client)
    answering = Answering(alone=True)
    if rung.tactics is not None:
        with _loads("endpoint's tactics", rung.endpoint.base_url):
            return _endpoint_searches(client, rung.tactics, answering)
    assert rung.whole is not None  # one of both is given
    author = ExternalAuthor(client, max_tokens=rung.whole.max_tokens)
    return _written(author, answering, rung.whole, given.seed)


def _endpoint_searches(client: ChatClient, asked: EndpointTactics, answering: Answering) -> Engine:
    """Return the engine of searches whose tactics an endpoint suggests."""
    from pipeline.models.tactics.requests import Decoding
    from pipeline.prove.generator import EndpointSuggests, GeneratorProposer

    decoding = Decoding(asked.candidates, "sampling", asked.temperature, max_tokens=asked.max_tokens)
    suggests = AnsweringSuggests(EndpointSuggests(client, ends=everybodys), answering)

    def of_file(_place: FilePlace) -> Propose:
        return lambda _name, _position: GeneratorProposer(suggests, decoding=decoding)

    return Engine(of_file, scoring=ModelScoring(), again=False, answering=answering)


def _written(author: Author, answering: Answering, asked: WholeSpec, seed: int) -> Engine:
    wholly = Wholly(AnsweringAuthor(author, answering), asked.proofs, asked.repairs, seed)
    return Engine(ladder().propose, wholly=wholly, answering=answering)


def _generator(part: GeneratorSpec) -> Generator:
    """Load the model of rungs 1 to 3."""
    with _loads("generator", part.path):
        import torch

        from pipeline.models.libraries import computes_in_bfloat16, device_of
        from pipeline.models.tactics.generate import Generator

        where = device_of(cast(Any, part.device))
        dtype = torch.bfloat16 if computes_in_bfloat16(where) else torch.float32
        return Generator.load(part.path, device=where, dtype=dtype)


def _progress(path: str, *, device: str) -> Any:
    with _loads("progress model", path):
        from pipeline.models.progress.model import ProgressModel

        return ProgressModel(path, device=device)


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
