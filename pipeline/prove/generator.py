"""Tactics from a trained model, for the searches of a job: the generator's answers as candidates, and the progress
model's estimates.

Both use one service, which batches the requests of all open searches (`pipeline.models.tactics.service`). No failure of
a model ends a search: a model without a usable answer proposes nothing, and `reason` names the failure in the attempt's
record.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from pipeline.endpoint.errors import Usage
from pipeline.jobs.protocol import JobError
from pipeline.lean.goal_text import state_of
from pipeline.lean.tactic_text import Step
from pipeline.models.tactics.requests import Decoding, Request, Suggestions
from pipeline.models.tactics.service import Batching, GenerationStoppedError
from pipeline.prove.graph import Candidate, Proposer, TacticRequest
from pipeline.prove.premises import ShownPremises
from store.text import first_line

_RATED = 64
"""The maximum of steps in a batch for the progress model."""
_log = logging.getLogger(__name__)


Suggest = Callable[[Request], Coroutine[Any, Any, Suggestions]]
"""Returns a model's tactics for a state, as does `tactics.service.Batching.ask` of a generator's."""


class GeneratorProposer(Proposer):
    """A proposer with a tactic model. Make one for each sorry: it counts the model's answers.

    Attributes:
        asked, answered: the search's requests for tactics, and the model's answers.
        empty: states without a usable tactic from the model.
        failed: states with a failure of the model.
        left_out: unusable answers, by reason (`requests.Suggestions`).
        unparsed: candidates unparsable to Lean.
        cost: the model's tokens, without those of killed runs.
    """

    def __init__(
        self, suggest: Suggest, *, decoding: Decoding | None = None, premises: ShownPremises | None = None
    ) -> None:
        """Args:
        suggest: asks the generator.
        decoding: the number of tactics, and the sampling; None for the defaults.
        premises: the model's context beside a state; None: the state alone.
        """
        self._suggest = suggest
        self._decoding = decoding or Decoding()
        self._premises = premises
        self.asked = self.answered = self.empty = self.failed = self.unparsed = self.tried = 0
        self.left_out: Counter[str] = Counter()
        self.cost = Usage()
        self._failure = ""

    async def propose(self, asked: TacticRequest) -> list[Candidate]:
        """Return the model's tactics, the likeliest first; none on a failure (see `reason`).

        Raises:
            GenerationStoppedError: the service is closed, and every search ends.
            JobError: the endpoint is down.
        """
        self.asked += 1
        state = state_of(asked.goals)
        premises = () if self._premises is None else await self._premises.texts(state)
        request = Request(state, premises, self._decoding, asked.seed)
        try:
            result = await self._suggest(request)
        except (GenerationStoppedError, JobError):
            raise
        # Any error of a model or its libraries ends only this search, with a record of it.
        except Exception as error:  # noqa: BLE001
            return self._fail(first_line(error))
        self.cost += result.usage
        if result.error:
            return self._fail(result.error)
        self.answered += 1
        self.left_out.update(result.left_out)
        self.empty += not result.tactics
        return [
            Candidate(one.tactic, one.tactic, log_probability=one.log_probability) for one in result.tactics
        ]

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:  # noqa: ARG002
        """Count the tactics unparsable to Lean; none is remembered, as each state gets its own tactics."""
        self.tried += 1
        self.unparsed += not parsed

    @property
    def reason(self) -> str:
        """Return the faults of the model's answers, for people; "" without any."""
        lines = []
        if self.failed:
            lines.append(f"the generator failed for {self.failed} of {self.asked} states: {self._failure}")
        if self.empty:
            why = ", ".join(f"{name} {count}" for name, count in self.left_out.most_common() if count)
            lines.append(
                f"the model gave no tactic for {self.empty} of {self.asked} states"
                + (f" (answers left out: {why})" if why else "")
            )
        if self.tried and self.unparsed == self.tried:
            lines.append(f"none of its {self.tried} tactics could be parsed")
        if self._premises is not None:
            lines.append(self._premises.reason)
        return "; ".join(filter(None, lines))

    def _fail(self, why: str) -> list[Candidate]:
        self.failed += 1
        if not self._failure:
            self._failure = why
            _log.warning("a search gets no tactics: %s", why)
        return []


class Predicting(Protocol):
    """The interface of a progress model: `progress.model.ProgressModel`."""

    def predict(self, steps: Sequence[Step]) -> list[float]: ...


class ProgressRemaining(Batching[Step, float]):
    """A progress model for all the searches of a job (`graph.Remaining`). A context, on one event loop."""

    def __init__(self, model: Predicting) -> None:
        """Hold a model for exclusive use while the context is open."""
        super().__init__(model.predict, at_once=_RATED)
        self._failed = False

    async def remaining(self, steps: Sequence[Step]) -> list[float]:
        """Return the number of steps, from 0, still needed for a proof after each of these.

        On a failure of the model it is infinite, so a search takes the step last.

        Raises:
            GenerationStoppedError: the service is closed.
        """
        return await asyncio.gather(*map(self._one, steps))

    async def _one(self, step: Step) -> float:
        try:
            return await self.ask(step)
        except GenerationStoppedError:
            raise
        # Any error of a model or its libraries: this step is taken last.
        except Exception as error:  # noqa: BLE001
            if not self._failed:
                self._failed = True
                _log.warning("the progress model failed: %s", first_line(error))
            return math.inf
