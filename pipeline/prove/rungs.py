"""The rungs of the ladder: the engine for each, to work on all sorries of a job.

0 the curated tactics, 1 a generator made for premises, 2 the tactic model, 3 whole proofs by a local model, 4 an
external model: whole proofs, or tactics for searches, 5 a program that edits the file. With a retriever in use, every
rung gets its premises. A rung loads its models on its first use: rung 0 without a retriever needs no torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.jobs.protocol import JobError, JobSpec
from pipeline.jobs.specs import (
    OF_AN_ENDPOINT,
    UNANSWERED,
    CuratedRung,
    EarlierAttempt,
    EndpointRung,
    GeneratorRung,
    GeneratorSpec,
    ProgramRung,
    ProveSpec,
    RetrievalRung,
    RetrieverSpec,
    WholeProofRung,
    WholeSpec,
)
from pipeline.models.errors import LearningError
from pipeline.models.tactics.service import GenerationStoppedError
from pipeline.prove.curated import CuratedTactics
from pipeline.prove.graph import ModelScoring, Proposer, Remaining, Scoring
from pipeline.prove.premises import Retrieval, ShownPremises
from pipeline.prove.whole_proof import Author, AuthorAnswers, WholeProofMethod
from store.errors import LogError
from store.events.projects import inside
from store.text import first_line

if TYPE_CHECKING:
    from pipeline.models.retriever.corpus import Corpus, Premise
    from pipeline.models.tactics.generate import Generator
    from pipeline.models.tactics.requests import Decoding, Suggestions
    from pipeline.prove.generator import Predicting, Suggest

# ---- Outages: the failure of one request against the failure of the model or endpoint
# A model that answers other requests and fails on a sorry has failed on that sorry, and its attempt records the
# failure. A model without an answer since its first failure is down, and no sorry may count as tried because of it: the
# job holds those attempts back until the next answer, and fails, to be retried, if none comes.


ENDPOINT_REMEDY = "see [prove.external] in the configuration; the job is tried again"
_PROGRAM_REMEDY = "see [[prove.programs]] in the configuration; the job is tried again"
_CAP_REMEDY = "raise usd_per_day of the endpoint or program; else its sorries are tried again tomorrow (UTC)"
_UNANSWERED_REMEDY = "see `everlean doctor` and what it answered; the job is tried again, later and later"
# Other reasons (too long, refused) concern one prompt, and so one sorry.
_OUTAGES = frozenset({"overloaded", "timeout", "hung_up", "forbidden", "not_understood", "model_failed"})


Q = TypeVar("Q")
A = TypeVar("A", "Suggestions", AuthorAnswers)


class ModelHealth:
    """The outcomes of a job's requests to its model. On one event loop.

    Attributes:
        answered: the number of answers.
        over: why no more requests are allowed today; earlier requests are paid for, and worked on to their end.
        failure: the first failure since the last answer; "" if the last request was answered.
    """

    def __init__(self, *, alone: bool) -> None:
        """Args:
        alone: whether one unanswered sorry is enough to fail the job, as for an endpoint; a local model may have
            failed on that sorry alone.
        """
        self.answered = 0
        self.failure = ""
        self.over: JobError | None = None
        self._alone = alone

    def watch(self, ask: Callable[[Q], Awaitable[A]]) -> Callable[[Q], Coroutine[Any, Any, A]]:
        """Wrap a model's function: record the outcomes, and raise JobError at an outage."""

        async def watched(asked: Q) -> A:
            if self.over is not None:
                raise self.over
            try:
                result = await ask(asked)
            except (GenerationStoppedError, JobError):
                raise
            except asyncio.CancelledError:
                # The time of the search is over. A model with earlier answers may only be slow for this one.
                if not self.answered:
                    self._failed("it gave no answer in time")
                raise
            except Exception as error:
                self._failed(f"{type(error).__name__}: {first_line(error)}")
                raise
            if (ends := _outage(result.reason, result.error)) is not None:
                self.over = ends if ends.deterministic else None
                raise ends
            if not result.error:
                self.answered += 1
                self.failure = ""
            elif result.reason in _OUTAGES:
                self._failed(result.error)
            return result

        return watched

    def _failed(self, why: str) -> None:
        self.failure = self.failure or why

    def given_up(self, sorries: int) -> JobError | None:
        """Return the job's failure after this many sorries ended in errors since the last answer; None to go on."""
        if self.over is not None:
            return self.over
        if not sorries or not self.failure:
            return None
        if sorries == 1 and (self.answered or not self._alone):
            return None
        since = "since its last answer" if self.answered else "at all"
        return JobError(
            UNANSWERED,
            f"the model answered for none of {sorries} sorries {since}: {self.failure}",
            remedy=_UNANSWERED_REMEDY,
        )


def _outage(reason: str, message: str) -> JobError | None:
    """Return the job's failure for an endpoint's failure of every request; None if it concerns one request."""
    if reason not in OF_AN_ENDPOINT:
        return None
    # Today's money does not come back: tomorrow, or with another cap, the plan has another job.
    capped = reason in ("spending_cap", "above_cap")
    return JobError(reason, message, remedy=_CAP_REMEDY if capped else ENDPOINT_REMEDY, deterministic=capped)


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file with sorries. `core_only`: it imports only Lean's own modules."""

    path: str
    imports: tuple[str, ...]
    core_only: bool


Propose = Callable[[FilePlace, ShownPremises | None], Proposer]
"""Returns the proposer of a declaration, by its file and its goals' premises."""
Show = Callable[[FilePlace, str, tuple[int, int]], ShownPremises | None]
"""Returns the premises for a declaration's goals, by its file, name and position: line and column, from 1."""


def show_none(_place: FilePlace, _name: str, _position: tuple[int, int]) -> None:
    """Show no premises (`Show`)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A rung with its models loaded.

    Attributes:
        propose: returns the proposer of a declaration.
        show: returns the premises of a declaration.
        scoring: ranks a search's states; None: rung 0's.
        remaining: the progress model, if any.
        wholly: the author of whole proofs; None: a search for tactics.
        again: whether an unproved sorry is searched again, with lemmas and for its negation; not on paid endpoints.
        answering: records the model's answers and failures; None without a model.
        together: whether the declarations of one file run side by side, to batch their requests to the model. Without a
            model it only costs: each process then reads the file's beginning anew.
    """

    propose: Propose
    show: Show = show_none
    scoring: Scoring | None = None
    remaining: Remaining | None = None
    wholly: WholeProofMethod | None = None
    again: bool = True
    answering: ModelHealth | None = None
    together: bool = True


def ladder(show: Show = show_none) -> Engine:
    """Return rung 0."""
    # One for each file: a tactic unparsable to one process is so to all with the same imports.
    of_files: dict[FilePlace, CuratedTactics] = {}

    def propose(place: FilePlace, shown: ShownPremises | None) -> Proposer:
        return of_files.setdefault(place, CuratedTactics(core_only=place.core_only)).naming(shown)

    return Engine(propose, show, together=False)


@asynccontextmanager
async def engine(
    spec: JobSpec[ProveSpec], premises: Callable[[], Corpus], attempts: Mapping[str, Sequence[EarlierAttempt]]
) -> AsyncIterator[Engine]:
    """Load the engine of the job's rung; close its models at the end of the block.

    Args:
        spec: the job's.
        premises: returns the premises for a retriever.
        attempts: the earlier ones, by sorry.

    Raises:
        JobError: a model cannot be loaded.
    """
    parameters = spec.parameters
    async with AsyncExitStack() as open_:
        show = await _premise_source(parameters, premises, open_)
        match parameters.rung:
            case CuratedRung():
                yield ladder(show)
            case RetrievalRung() | GeneratorRung() as rung:
                yield replace(await _by_generator(rung, parameters.repository, open_), show=show)
            case WholeProofRung() as rung:
                yield replace(await _by_author(parameters, rung, open_), show=show)
            case EndpointRung() as rung:
                yield replace(await _by_endpoint(parameters, rung, open_), show=show)
            case ProgramRung() as rung:
                yield replace(_by_program(spec, rung, attempts), show=show)


async def _by_generator(
    rung: RetrievalRung | GeneratorRung, repository: str, open_: AsyncExitStack
) -> Engine:
    from pipeline.models.tactics.requests import Decoding
    from pipeline.models.tactics.service import Batching
    from pipeline.prove.generator import ProgressRemaining

    generator = rung.generator
    decoding = Decoding(candidates=generator.candidates)
    model = await asyncio.to_thread(_generator, generator, repository)
    service = await open_.enter_async_context(Batching(model.suggest))
    answering = ModelHealth(alone=False)
    remaining = None
    scoring = ModelScoring()
    if rung.progress is not None:
        scoring = ModelScoring(progress_weight=rung.progress.weight)
        progress = await asyncio.to_thread(_progress, rung.progress.path, device=generator.device)
        remaining = await open_.enter_async_context(ProgressRemaining(progress))

    return Engine(
        proposing(answering.watch(service.ask), decoding),
        scoring=scoring,
        remaining=remaining,
        answering=answering,
    )


def proposing(suggest: Suggest, decoding: Decoding) -> Propose:
    """Return the proposers of a model's tactics."""
    from pipeline.prove.generator import GeneratorProposer

    return lambda _place, shown: GeneratorProposer(suggest, decoding=decoding, premises=shown)


async def _premise_source(given: ProveSpec, premises: Callable[[], Corpus], open_: AsyncExitStack) -> Show:
    """Load the retriever; return its source of premises.

    Except at rung 1, a permanent failure to load it (damaged weights, no trace of the repository) means no premises,
    and each attempt records why.
    """
    part = given.rung.retriever
    if part is None:
        return show_none
    try:
        find = await _retrieval(part, premises, given.repository, open_)
    except JobError as error:
        if isinstance(given.rung, RetrievalRung) or not error.deterministic:
            raise
        failure = error

        async def fails(_state: str) -> tuple[Premise, ...]:
            raise failure

        return lambda place, _name, _position: ShownPremises(fails, place.path)
    from pipeline.models.retriever.finder import Place

    def show(place: FilePlace, name: str, position: tuple[int, int]) -> ShownPremises:
        return ShownPremises(find.at(Place(place.path, position, name, place.imports)), place.path)

    return show


async def _retrieval(
    part: RetrieverSpec, premises: Callable[[], Corpus], repository: str, open_: AsyncExitStack
) -> Retrieval:
    def load() -> Retrieval:
        from pipeline.models.finding import load_finder

        with _loads("retriever", part.chain / part.trained):
            return Retrieval(load_finder(part, premises(), repository=repository))

    return await open_.enter_async_context(await asyncio.to_thread(load))


async def _by_author(given: ProveSpec, rung: WholeProofRung, open_: AsyncExitStack) -> Engine:
    from pipeline.prove.authors import HFAuthor

    generator = await asyncio.to_thread(_generator, rung.generator, given.repository)
    author = HFAuthor(
        generator,
        max_tokens=rung.whole.max_tokens,
        temperature=rung.generator.temperature,
        enable_thinking=rung.whole.enable_thinking,
    )
    author = await open_.enter_async_context(author)
    return _written(author.write, ModelHealth(alone=False), rung.whole)


async def _by_endpoint(given: ProveSpec, rung: EndpointRung, open_: AsyncExitStack) -> Engine:
    from pipeline.endpoint.client import ChatClient
    from pipeline.endpoint.errors import ExternalError
    from pipeline.models.tactics.requests import Decoding
    from pipeline.prove.authors import EndpointModel

    try:
        client = ChatClient(rung.endpoint, concurrency=given.parallel)
    except ExternalError as error:
        raise JobError(error.reason, str(error), remedy=ENDPOINT_REMEDY) from error
    await open_.enter_async_context(client)
    answering = ModelHealth(alone=True)
    if (tactics := rung.tactics) is not None:
        decoding = Decoding(tactics.candidates, "sampling", tactics.temperature, tactics.max_tokens)
        suggest = answering.watch(EndpointModel(client).suggest)
        scoring = ModelScoring()
        return Engine(proposing(suggest, decoding), scoring=scoring, again=False, answering=answering)
    assert rung.whole is not None  # the specification has one of both
    author = EndpointModel(client, whole_tokens=rung.whole.max_tokens)
    return _written(author.write, answering, rung.whole)


def _by_program(
    spec: JobSpec[ProveSpec], rung: ProgramRung, attempts: Mapping[str, Sequence[EarlierAttempt]]
) -> Engine:
    from pipeline.endpoint.credentials import read_key
    from pipeline.endpoint.errors import ExternalError
    from pipeline.prove.programs import ProgramAuthor

    given, program = spec.parameters, rung.program
    try:
        key = read_key() if program.key_variable else None
    except ExternalError as error:
        raise JobError(error.reason, str(error), remedy=_PROGRAM_REMEDY) from error
    if program.key_variable and key is None:
        text = f"{program.name}: there is no key for its variable {program.key_variable}"
        raise JobError("bad_credential", text, remedy=_PROGRAM_REMEDY)
    author = ProgramAuthor(
        program,
        backend=given.lean,
        worktree=spec.place,
        project=spec.project(given.folder),
        scratch=spec.directory,
        key=key,
        earlier={
            (inside(one.path, given.folder), one.byte_start): attempts.get(one.sorry, ())
            for one in given.sorries
        },
    )
    answering = ModelHealth(alone=False)
    wholly = WholeProofMethod(answering.watch(author.write), 1, program.repairs, verbatim=True)
    return Engine(ladder().propose, wholly=wholly, again=False, answering=answering)


def _written(author: Author, answering: ModelHealth, asked: WholeSpec) -> Engine:
    wholly = WholeProofMethod(answering.watch(author), asked.proofs, asked.repairs)
    return Engine(ladder().propose, wholly=wholly, answering=answering)


def _generator(part: GeneratorSpec, repository: str) -> Generator:
    """Load the model of rungs 1 to 3, for a repository's goals."""
    with _loads("generator", part.path):
        from pipeline.models.tactics.generate import load_generator

        return load_generator(part.path, device=part.device, repository=repository)


def _progress(path: str, *, device: str) -> Predicting:
    with _loads("progress model", path):
        from pipeline.models.progress.model import ProgressModel

        return ProgressModel(path, device=device)


@contextmanager
def _loads(what: str, where: str | Path) -> Iterator[None]:
    """Turn a model's loading error into the job's failure. A hub name may be reachable the next time."""
    try:
        yield
    except LearningError as error:
        lasting = error.for_good or Path(where).is_dir()
        raise JobError(error.reason, f"the {what} {where}: {error}", deterministic=lasting) from error
    except LogError as error:
        raise JobError("database", f"the {what} {where}: {error}", remedy="see `everlean doctor`") from error
    except (OSError, RuntimeError, ImportError, MemoryError) as error:
        raise JobError(
            "model_not_loaded",
            f"the {what} {where} cannot be loaded: {type(error).__name__}: {error}",
            remedy="see `everlean doctor`; is there room for it, and is the device free?",
        ) from error
