"""Watch the model or endpoint of a job: tell the failure of one request from an outage.

One that answers others and fails on a sorry has failed on that sorry, and its attempt says so. One that has answered
nobody since it began to fail is down: no sorry may be taken for tried because of that. Their attempts are held back
until somebody is answered; where nobody is any more, the job fails, and is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import OF_AN_ENDPOINT, UNANSWERED
from pipeline.models.tactics.service import GenerationStoppedError
from pipeline.prove.whole_proof import Author, AuthorError, Relay, WholeAsk, Written

if TYPE_CHECKING:
    from pipeline.models.tactics.requests import Request, Suggestions

ENDPOINT_REMEDY = "see [prove.external] in the configuration; the job is tried again"
_CAP_REMEDY = "raise usd_per_day under [prove.external]; else its sorries are tried again tomorrow (UTC)"
_UNANSWERED_REMEDY = "see `unsorry doctor` and what it answered; the job is tried again, later and later"
# What is wrong with one prompt (too long, refused) is that sorry's, whoever else is answered.
_NOBODY_S_FAULT = frozenset(
    {"overloaded", "timeout", "hung_up", "forbidden", "not_understood", "model_failed"}
)


class Answering:
    """The outcomes of a job's requests to its model. On one event loop.

    Attributes:
        answered: how often it answered.
        failure: why it did not, the first time since it last did; "" where it did the last time.
    """

    def __init__(self, *, alone: bool) -> None:
        """Args:
        alone: whether one sorry that was not answered is enough to say that nobody is, as of an endpoint; of a model
            here it may be that sorry's.
        """
        self.answered = 0
        self.failure = ""
        self._alone = alone

    def heard(self) -> None:
        """Take note of an answer."""
        self.answered += 1
        self.failure = ""

    def failed(self, why: str) -> None:
        """Take note that there was none."""
        self.failure = self.failure or why

    def given_up(self, sorries: int) -> JobError | None:
        """Return why the job fails, where so many sorries ended in errors since the last answer; None: it does not."""
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


def everybodys(reason: str, message: str) -> JobError | None:
    """Return the failure of the job that an endpoint's is, where it is everybody's; None where it is one request's."""
    if reason not in OF_AN_ENDPOINT:
        return None
    # Today's money does not come back: what the plan asks tomorrow, or with another cap, is another job.
    capped = reason == "spending_cap"
    return JobError(reason, message, remedy=_CAP_REMEDY if capped else ENDPOINT_REMEDY, deterministic=capped)


class AnsweringAuthor(Relay):
    """An author that is watched; a failure that is everybody's ends the job."""

    def __init__(self, author: Author, answering: Answering) -> None:
        super().__init__(author)
        self._answering = answering

    async def write(self, ask: WholeAsk) -> Written:
        """Return the author's answers. See `whole.Author`.

        Raises:
            JobError: nobody is answered there.
        """
        try:
            written = await super().write(ask)
        except AuthorError as error:
            if (ends := everybodys(error.reason, str(error))) is not None:
                raise ends from error
            if error.reason in _NOBODY_S_FAULT:
                self._answering.failed(str(error))
            raise
        self._answering.heard()
        return written


class _Suggests(Protocol):
    async def suggest(self, request: Request) -> Suggestions: ...


class AnsweringSuggests:
    """A tactic generator with its outcomes recorded (`generator.Suggests`)."""

    def __init__(self, suggests: _Suggests, answering: Answering) -> None:
        self._suggests = suggests
        self._answering = answering

    async def suggest(self, request: Request) -> Suggestions:
        """Return its answer. See `generating.Suggests`."""
        try:
            found = await self._suggests.suggest(request)
        except (GenerationStoppedError, JobError):
            raise
        except Exception as error:
            self._answering.failed(f"{type(error).__name__}: {error}".splitlines()[0])
            raise
        if not found.error:
            self._answering.heard()
        elif found.reason in _NOBODY_S_FAULT:
            self._answering.failed(found.error)
        return found
