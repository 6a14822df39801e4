"""Tactics from a trained model, for the searches of a job: the generator's answers as candidates, and the progress
model's estimates.

Both ask their model through one service, which batches the requests of all open searches
(`pipeline.models.tactics.service`). No failure of a model ends a search: a model without a usable answer proposes
nothing, and `reason` names the failure in the attempt's record.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from pipeline.endpoint.client import ChatClient
from pipeline.endpoint.dialect import Ask
from pipeline.endpoint.errors import ExternalError, Usage
from pipeline.jobs.protocol import JobError
from pipeline.lean.goal_text import state_of
from pipeline.lean.tactic_text import Step, read_tactic
from pipeline.models.tactics.prompt import messages
from pipeline.models.tactics.requests import Decoding, Request, Suggestion, Suggestions, beginning_with
from pipeline.models.tactics.service import Batching, GenerationStoppedError
from pipeline.prove.graph import Candidate, TacticRequest
from pipeline.prove.premises import ShownPremises
from pipeline.prove.whole_proof import Cost
from store.text import first_line

_RATED = 64
"""The maximum of steps in a batch for the progress model."""
_log = logging.getLogger(__name__)


class Suggests(Protocol):
    """The interface of a tactic generator, such as `tactics.service.GenerationService`."""

    async def suggest(self, request: Request) -> Suggestions: ...


class GeneratorProposer:
    """A proposer with a tactic model (`graph.Proposer`). Make one for each sorry: it counts the model's answers.

    Attributes:
        asked: states for which the search requested tactics.
        empty: states for which the model returned no usable tactic.
        failed: states without an answer.
        left_out: unusable answers, by reason (`requests.Suggestions`).
        unparsed: candidates that Lean could not parse.
        cost: the model's tokens, without those of a run that was killed.
    """

    def __init__(
        self, service: Suggests, *, decoding: Decoding | None = None, premises: ShownPremises | None = None
    ) -> None:
        """Args:
        service: the generator.
        decoding: the number of tactics, and the sampling; None for the defaults.
        premises: what the model is shown beside a state; None: the state alone.
        """
        self._service = service
        self._decoding = decoding or Decoding()
        self._premises = premises
        self.asked = self.empty = self.failed = self.unparsed = self.tried = 0
        self.left_out: Counter[str] = Counter()
        self.cost = Cost()
        self._failure = ""

    async def propose(self, asked: TacticRequest) -> list[Candidate]:
        """Return the model's tactics, the likeliest first; none on a failure (see `reason`).

        Raises:
            GenerationStoppedError: the service is closed, which ends every search.
            JobError: the endpoint is down.
        """
        self.asked += 1
        state = state_of(asked.goals)
        premises = () if self._premises is None else await self._premises.texts(state)
        request = Request(state, premises, self._decoding, asked.seed)
        try:
            found = await self._service.suggest(request)
        except (GenerationStoppedError, JobError):
            raise
        # Any error of a model or its libraries ends this search alone, which records it.
        except Exception as error:  # noqa: BLE001
            return self._fail(first_line(error))
        self.cost += Cost(found.prompt_tokens, found.written_tokens, found.usd)
        if found.error:
            return self._fail(found.error)
        self.left_out.update(found.left_out)
        self.empty += not found.tactics
        return [
            Candidate(one.tactic, one.tactic, log_probability=one.log_probability, tokens=one.tokens)
            for one in found.tactics
        ]

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:  # noqa: ARG002
        """Count the tactics that Lean cannot parse; none is remembered, as each state gets its own tactics."""
        self.tried += 1
        self.unparsed += not parsed

    @property
    def reason(self) -> str:
        """Return the faults of the model's answers, for people; "" without any."""
        said = []
        if self.failed:
            said.append(f"the generator failed for {self.failed} of {self.asked} states: {self._failure}")
        if self.empty:
            why = ", ".join(f"{name} {count}" for name, count in self.left_out.most_common() if count)
            said.append(
                f"the model gave no tactic for {self.empty} of {self.asked} states"
                + (f" (answers left out: {why})" if why else "")
            )
        if self.tried and self.unparsed == self.tried:
            said.append(f"none of its {self.tried} tactics could be parsed")
        if self._premises is not None:
            said.append(self._premises.reason)
        return "; ".join(filter(None, said))

    def _fail(self, why: str) -> list[Candidate]:
        self.failed += 1
        if not self._failure:
            self._failure = why
            _log.warning("a search gets no tactics: %s", why)
        return []


class Predicting(Protocol):
    """The interface of a progress model: `progress.model.ProgressModel`."""

    def predict(self, steps: Sequence[Step]) -> list[float]: ...


class ProgressRemaining:
    """A progress model for all the searches of a job (`graph.Remaining`). A context, on one event loop.

    Attributes:
        asked: rated steps.
        failed: steps that the model failed on.
        reason: the first failure, for people; "" for none.
    """

    def __init__(self, model: Predicting) -> None:
        """Hold a model for exclusive use while the context is open."""
        self._service: Batching[Step, float] = Batching(model.predict, at_once=_RATED, name="progress")
        self.asked = self.failed = 0
        self.reason = ""

    async def remaining(self, steps: Sequence[Step]) -> list[float]:
        """Return the number of steps, from 0, that a proof still needs after each of these.

        It is infinite, which a search takes last, for a step that the model fails on.

        Raises:
            GenerationStoppedError: the service is closed.
        """
        self.asked += len(steps)
        answers = await asyncio.gather(*map(self._service.ask, steps), return_exceptions=True)
        found = []
        for answer in answers:
            if isinstance(answer, GenerationStoppedError) or not isinstance(answer, float | int | Exception):
                raise answer
            if isinstance(answer, Exception):
                self.failed += 1
                if not self.reason:
                    self.reason = f"the progress model failed: {first_line(answer)}"
                    _log.warning("%s", self.reason)
                answer = math.inf
            found.append(float(answer))
        return found

    async def __aenter__(self) -> ProgressRemaining:
        await self._service.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._service.close()


# ---- Tactics from an endpoint
# An endpoint returns no probabilities: a tactic that it suggests more often for a state counts as likelier.


TACTIC_TOKENS = 1024
"""The default maximum of an answer: a tactic, and the model's thinking before it."""


class EndpointSuggests:
    """A generator behind an endpoint (`Suggests`). A failure concerns the state of the request.

    Attributes:
        usage: the sum over its requests.
    """

    def __init__(
        self,
        client: ChatClient,
        *,
        max_tokens: int = TACTIC_TOKENS,
        ends: Callable[[str, str], Exception | None] = lambda _reason, _message: None,
    ) -> None:
        """Args:
        client: sends the requests; the caller closes it.
        max_tokens: of one answer, with the model's thinking.
        ends: returns the exception for a failure, by its reason and message, that concerns all states; else None.
        """
        self.usage = Usage()
        self._client = client
        self._max_tokens = max_tokens
        self._ends = ends

    async def suggest(self, request: Request) -> Suggestions:
        """Return tactics, the most frequent first; `error` gives the reason for none.

        Raises:
            Exception: from `ends`.
        """
        decoding = request.decoding
        state = request.state
        if decoding.prefix:
            state += f"\n\nThe tactic has to begin with: {decoding.prefix}"
        ask = Ask(
            messages(state, request.premises),
            self._max_tokens if decoding.max_tokens is None else decoding.max_tokens,
            decoding.temperature if decoding.mode == "sampling" else None,
            request.seed,
        )
        try:
            chat = await self._client.complete(ask, count=decoding.candidates)
        except ExternalError as error:
            self.usage += error.usage
            if (ends := self._ends(error.reason, str(error))) is not None:
                raise ends from error
            spent = error.usage
            return Suggestions(
                (), {}, str(error), spent.prompt_tokens, spent.completion_tokens, spent.usd, error.reason
            )
        self.usage += chat.usage
        left_out = Counter(chat.left_out)
        found: Counter[str] = Counter()
        for text in chat.texts:
            said = read_tactic(text)
            if said.flaw is None:
                found[said.tactic] += 1
            else:
                left_out[said.flaw] += 1
        left_out["repeated"] = found.total() - len(found)
        # Equally frequent ones keep the order of their first mention.
        tactics = tuple(
            Suggestion(tactic, math.log(times / found.total()), 1) for tactic, times in found.most_common()
        )
        suggestions = Suggestions(
            tactics,
            +left_out,
            prompt_tokens=chat.usage.prompt_tokens,
            written_tokens=chat.usage.completion_tokens,
            usd=chat.usage.usd,
        )
        return beginning_with(decoding.prefix, suggestions) if decoding.prefix else suggestions
