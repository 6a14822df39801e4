"""POST /retrieve: the best premises for a goal, among those accessible at its position.

A retriever ranks them, BM25, or both, by `store.promotion.finds_premises`; without a retriever, BM25.

They come from the repository's newest trace: accessible are, as of that trace, the premises of all files imported by
the file, and those above the place in its own. The answer names its trace and its checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from pipeline.freeze import corpus_of_log
from pipeline.jobs.inputs import InputStore
from pipeline.jobs.protocol import Sources
from pipeline.models.errors import LearningError
from pipeline.models.retriever.baselines import BM25, FUSED, best, fused
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.finder import Place, accessible
from pipeline.models.text import query_text
from pipeline.serve.checkouts import no_view
from pipeline.serve.schemas import WHOLE, Problem
from pipeline.serve.spec import ServeSpec
from store.errors import LogError
from store.leandojo.choosing import NothingToExportError, choose
from store.promotion import WORDS, finds_premises
from store.view import model_queries, queries
from store.view.rows import TraceRow

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.serve.engines import LoadedRetriever

T = TypeVar("T")

MOST_PREMISES = 100
NOT_TRACED = "not_traced"
UNKNOWN = "unknown_repository"
"""Answers about a repository without a trace, and about an unknown one."""
_RETRY_AFTER_S = 10
PATIENCE_S = 10.0
"""A request's wait for premises being embedded."""
_KEPT_BYTES = 8 * 2**30
_TRIES = 3

_log = logging.getLogger(__name__)


class Position(BaseModel):
    """A place in a file, in code points."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    line: Annotated[int, Field(ge=1, le=2**31 - 1), WHOLE] = Field(description="From 1.")
    column: Annotated[int, Field(ge=1, le=2**31 - 1), WHOLE] = Field(default=1, description="From 1.")


class RetrieveRequest(BaseModel):
    """A goal and its place."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    goal: Annotated[str, Field(min_length=1, max_length=100_000)] = Field(
        description="The tactic state, as Lean prints it."
    )
    repository: Annotated[str, Field(min_length=1, max_length=500)] = Field(
        description="Its key, such as github.com/owner/name."
    )
    file: Annotated[str, Field(min_length=1, max_length=1000)] = Field(
        description="Relative to the repository's root, as it was traced."
    )
    position: Position = Field(description="Where the theorem begins, or any place in it.")
    declaration: Annotated[str, Field(max_length=1000)] = Field(
        default="",
        description="The theorem's full name: where the trace has it in that file, that place counts, however lines "
        "have moved since.",
    )
    k: Annotated[int, Field(ge=1, le=MOST_PREMISES), WHOLE] = Field(
        default=10, description="How many premises."
    )
    accessible_only: bool = Field(
        default=True,
        description="Leave out what may not be used there; otherwise `accessible` says of each whether it may.",
    )


class FoundPremise(BaseModel):
    """A premise. Lines and columns from 1, in the commit of the trace."""

    model_config = ConfigDict(frozen=True)

    full_name: str
    score: float = Field(
        description="The cosine of its vector and the goal's, -1 to 1; of BM25 its score, above 0; of both together "
        "the sum of 1 / (60 + rank)."
    )
    code: str = Field(description="Its source, as the trace has it.")
    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    accessible: bool = Field(description="Whether it may be used at the position.")


class RetrieveResponse(BaseModel):
    """Premises, the best first, and their source."""

    model_config = ConfigDict(frozen=True)

    premises: list[FoundPremise]
    repository: str
    commit: str = Field(description="Of the trace. What is newer is not known.")
    trace: str
    traced_at: str
    checkpoint: str = Field(
        description="The retriever's; empty where it is none of the daemon's; bm25 where that found them, and after a "
        "plus sign where both did."
    )
    accessible: int = Field(description="How many premises may be used at the position.")
    known: int = Field(description="How many premises the trace has.")


@dataclass(frozen=True, slots=True)
class _Indexed:
    """A corpus with BM25's index, and a retriever's vectors, shape (len(corpus), d); None: without a retriever."""

    trace: TraceRow
    corpus: Corpus
    words: BM25
    vectors: Tensor | None
    retriever: Callable[[], Any]
    """Returns it, as long as it is there."""

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + (0 if self.vectors is None else self.vectors.nbytes)


def _identity(retriever: LoadedRetriever | None) -> Any:
    """Return the retriever that identifies an index; BM25's name without one."""
    return WORDS if retriever is None else retriever.retriever


_Key = tuple[int, str]
"""The retriever's id, valid while it lives (`_Indexed.retriever`), and the repository."""


class Premises:
    """The premises of the watched repositories' newest traces, searched with whichever retriever is in use."""

    def __init__(
        self, spec: ServeSpec, *, patience_s: float = PATIENCE_S, most_bytes: int = _KEPT_BYTES
    ) -> None:
        """Args:
        spec: with the places of the log, the view and the indices.
        patience_s: a request's wait for premises being embedded.
        most_bytes: maximum of the kept indices; the last requested ones always stay.
        """
        self._spec = spec
        self._patience_s = patience_s
        self._most_bytes = most_bytes
        self._kept: OrderedDict[_Key, _Indexed] = OrderedDict()
        self._making: dict[_Key, asyncio.Task[_Indexed]] = {}
        # One at a time, in a thread of its own: it may take long, and cannot be interrupted.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="premises")
        self._passed_over: set[tuple[str, str]] = set()

    def close(self) -> None:
        """Stop embedding. No request waits for the running thread."""
        for making in self._making.values():
            making.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def warm(self, before: LoadedRetriever, after: LoadedRetriever) -> None:
        """Return once the second retriever has the premises of every repository of the first.

        Raises:
            Problem: the model or the disk failed.
        """
        if before.retriever is after.retriever or await self._finds(after) == WORDS:
            return
        kept = [(repository, one) for (_, repository), one in self._kept.items()]
        # The second may serve repositories served by BM25 in place of the first.
        had = {
            repository: None
            for repository, one in kept
            if one.retriever() in ((await before.of(repository)).retriever, WORDS)
        }
        for repository in had:
            try:
                await self._indexed(await after.of(repository), repository, patience_s=None)
            except Problem as problem:
                # It is watched no more.
                if problem.status != 404:
                    raise

    async def retrieve(self, retriever: LoadedRetriever | None, asked: RetrieveRequest) -> RetrieveResponse:
        """Answer a request; without a retriever by BM25.

        Raises:
            Problem: the repository has no trace, or not this file; its premises are being embedded; or the model or
                the disk failed.
        """
        finds = await self._finds(retriever)
        own = None if retriever is None or finds == WORDS else await retriever.of(asked.repository)
        indexed = await self._indexed(own, asked.repository, patience_s=self._patience_s)
        if indexed.corpus.file(asked.file) is None:
            raise Problem(
                404,
                "unknown_file",
                f"the trace of {asked.repository} at {indexed.trace.sha[:10]} has no file {asked.file!r}",
                "name one that it has, relative to the repository's root; a file that is newer has to be traced first",
            )
        place = Place(
            asked.file.removeprefix("./"), (asked.position.line, asked.position.column), asked.declaration
        )
        allowed = accessible(indexed.corpus, place)
        ranked = allowed if asked.accessible_only else np.ones(len(indexed.corpus), dtype=np.bool_)
        result = await self._search(own, finds, indexed, asked.goal, ranked, asked.k)
        return RetrieveResponse(
            premises=[
                _premise(indexed.corpus, number, score, accessible=bool(allowed[number]))
                for number, score in result.items()
            ],
            repository=asked.repository,
            commit=indexed.trace.sha,
            trace=indexed.trace.trace,
            traced_at=indexed.trace.traced_at,
            checkpoint=finds,
            accessible=int(allowed.sum()),
            known=len(indexed.corpus),
        )

    async def nearest(self, retriever: LoadedRetriever, state: str, k: int) -> tuple[str, ...]:
        """Return the marked code of the premises nearest to a state without a position: of all watched and traced
        repositories, the nearest first, without duplicates. A repository that cannot be searched now does not spoil the
        others.

        Raises:
            Problem: no repository could be searched, and for one the model or the disk failed, or it is being embedded.
        """
        keys = [repository.key for repository in self._spec.lean.repositories]
        finds = await self._finds(retriever)
        every = await asyncio.gather(
            *(self._nearest_of(retriever, finds, key, state, k) for key in keys), return_exceptions=True
        )
        result: dict[str, float] = {}
        searched, failed = False, None
        for key, one in zip(keys, every, strict=True):
            if isinstance(one, Problem):
                if one.error not in (NOT_TRACED, UNKNOWN):
                    failed = failed or one
                    self._pass_over(key, one)
                continue
            if isinstance(one, BaseException):
                raise one
            searched = True
            self._passed_over = {one for one in self._passed_over if one[0] != key}
            for text, score in one:
                result[text] = max(score, result.get(text, -np.inf))
        if failed is not None and not searched:
            raise failed
        return tuple(sorted(result, key=lambda text: -result[text])[:k])

    async def _nearest_of(
        self, retriever: LoadedRetriever, finds: str, repository: str, state: str, k: int
    ) -> list[tuple[str, float]]:
        own = None if finds == WORDS else await retriever.of(repository)
        indexed = await self._indexed(own, repository, patience_s=self._patience_s)
        every = np.ones(len(indexed.corpus), dtype=np.bool_)
        result = await self._search(own, finds, indexed, state, every, k)
        return [(indexed.corpus[number].serialize(), score) for number, score in result.items()]

    def _pass_over(self, repository: str, problem: Problem) -> None:
        # Not with every request.
        if (repository, problem.error) not in self._passed_over:
            self._passed_over.add((repository, problem.error))
            _log.warning("no premises of %s are shown: %s", repository, problem.reason)

    async def _search(
        self,
        retriever: LoadedRetriever | None,
        finds: str,
        indexed: _Indexed,
        goal: str,
        allowed: npt.NDArray[np.bool_],
        k: int,
    ) -> dict[int, float]:
        """Return the numbers and scores of the k best premises, the best first, by the method `finds`."""
        if not len(indexed.corpus):
            return {}
        query, vectors = query_text(goal), indexed.vectors
        asked = None if retriever is None or vectors is None else await retriever.vectors([query])

        def by_words(k: int) -> dict[int, float]:
            scores = indexed.words.scores(query)
            return {number: float(scores[number]) for number in best(scores, allowed, k)}

        def search() -> dict[int, float]:
            if asked is None or vectors is None:
                return by_words(k)
            import torch

            from pipeline.models.retriever.index import top_k

            both = finds.endswith(f"+{WORDS}")
            mask = torch.from_numpy(allowed).to(vectors.device).unsqueeze(0)
            at_most = FUSED if both else k
            ((numbers, scores),) = top_k(torch.tensor(asked, device=vectors.device), vectors, mask, at_most)
            nearest = dict(zip(numbers.tolist(), scores.tolist(), strict=True))
            return fused((list(by_words(FUSED)), list(nearest)), k) if both else nearest

        with _told_as_problems():
            return await asyncio.to_thread(search)

    async def _indexed(
        self, retriever: LoadedRetriever | None, repository: str, *, patience_s: float | None
    ) -> _Indexed:
        """Return the newest trace's premises with their vectors; embedded if they are not cached.

        Concurrent requests share one embedding, which continues if they disconnect.

        Raises:
            Problem: no trace exists; 503, it takes longer than the patience; or the model or the disk failed.
        """
        identity = _identity(retriever)
        key = (id(identity), repository)
        end = None if patience_s is None else time.monotonic() + patience_s
        while True:
            newest = await asyncio.to_thread(self._newest, repository)
            kept = self._kept.get(key)
            if kept is not None and kept.trace.seq == newest.seq and kept.retriever() is identity:
                self._kept.move_to_end(key)
                return kept
            making = self._making.get(key) or self._begin(key, retriever)
            left = None if end is None else max(0.0, end - time.monotonic())
            done, _ = await asyncio.wait({making}, timeout=left)
            if not done or making.cancelled():
                raise Problem(
                    503,
                    "indexing",
                    f"the premises of {repository} are being embedded",
                    "try again later: the work continues meanwhile",
                    headers={"Retry-After": str(_RETRY_AFTER_S)},
                )
            result = making.result()
            # Another trace may have come while it was made.
            if result.trace.seq == newest.seq:
                return result

    def _begin(self, key: _Key, retriever: LoadedRetriever | None) -> asyncio.Task[_Indexed]:
        making = asyncio.create_task(self._make(key, retriever), name=f"premises:{key[1]}")
        self._making[key] = making

        def ended(_making: asyncio.Task[_Indexed]) -> None:
            del self._making[key]
            # Perhaps no request waits for it any more; the next one starts it again.
            if not making.cancelled() and (error := making.exception()) is not None:
                _log.warning("the premises of %s were not embedded: %s", key[1], error)

        making.add_done_callback(ended)
        return making

    async def _make(self, key: _Key, retriever: LoadedRetriever | None) -> _Indexed:
        with _told_as_problems():
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._thread, self._index_of, retriever, key[1])
        self._kept[key] = result
        self._kept.move_to_end(key)
        for other in [other for other, one in self._kept.items() if one.retriever() is None]:
            del self._kept[other]
        while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > self._most_bytes:
            self._kept.popitem(last=False)
        return result

    async def _finds(self, retriever: LoadedRetriever | None) -> str:
        """Return the method of premise finding with a loaded retriever, as named by `finds_premises`; "" for a
        retriever from elsewhere.

        Raises:
            Problem: the view is unreadable.
        """
        if retriever is None:
            return WORDS
        checkpoint = retriever.checkpoint
        if not checkpoint:
            return ""

        def read() -> str:
            with closing(queries.connect(self._spec.view)) as view:
                return finds_premises(checkpoint, model_queries.evaluations(view, checkpoint))

        try:
            return await asyncio.to_thread(read)
        except LogError as error:
            raise no_view(error) from error

    def _newest(self, repository: str) -> TraceRow:
        spec = self._spec
        try:
            with closing(queries.connect(spec.view)) as view:
                if queries.repository(view, repository) is None:
                    raise Problem(
                        404,
                        UNKNOWN,
                        f"{repository!r} is no repository that is known",
                        "see `everlean repos` for the keys",
                    )
                chosen = choose(view, (repository,), every_commit=False)
        except NothingToExportError as error:
            raise Problem(
                404,
                NOT_TRACED,
                f"{repository} has no trace yet: {error}",
                "let the daemon trace it (see `everlean jobs`), or import one with `everlean import leandojo`",
            ) from error
        except LogError as error:
            raise no_view(error) from error
        return next(one.row for one in chosen if one.in_dataset)

    def _index_of(self, retriever: LoadedRetriever | None, repository: str) -> _Indexed:
        spec = self._spec
        sources = Sources(spec.events, spec.view, spec.indices / "corpora")
        InputStore(sources.contents).sweep()
        for _ in range(_TRIES):
            before = self._newest(repository)
            result = corpus_of_log(sources, repository=repository)
            corpus = Corpus(InputStore(sources.contents).file(result))
            # The corpus may be of a trace that came meanwhile, and the answer would name another.
            if self._newest(repository).seq == before.seq:
                break
        else:
            raise Problem(503, "busy", f"{repository} is traced faster than it is read", "ask again")
        if retriever is None:
            return _Indexed(before, corpus, BM25(corpus), None, lambda: WORDS)
        vectors = retriever.retriever.premises(corpus, spec.indices)
        return _Indexed(before, corpus, BM25(corpus), vectors, weakref.ref(retriever.retriever))


@contextmanager
def _told_as_problems() -> Iterator[None]:
    try:
        yield
    except LearningError as error:
        raise Problem(500, error.reason, str(error), "see GET /models and `everlean doctor`") from error
    except LogError as error:
        raise no_view(error) from error


def _premise(corpus: Corpus, number: int, score: float, *, accessible: bool) -> FoundPremise:
    premise = corpus[number]
    return FoundPremise(
        full_name=premise.full_name,
        score=score,
        code=premise.code,
        file=premise.path,
        line=premise.start[0],
        column=premise.start[1],
        end_line=premise.end[0],
        end_column=premise.end[1],
        accessible=accessible,
    )
