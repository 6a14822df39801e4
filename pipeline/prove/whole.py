"""Whole proofs: a model writes the text for a sorry's place, Lean judges it, and its errors go back to the model.

    result = await prove_whole(ask, author=author, check=check, budget=WholeBudget(seconds=120), repairs=2)

What the gate would refuse in a proof is refused before Lean is asked, and the model is told so. A text that was judged
is not judged again. In what order things are tried follows from the author's answers alone. A found text is a
candidate, as a search's is: the gate decides.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from pipeline.lean.client.errors import ReplError
from pipeline.lean.source.forbidden import complaints
from pipeline.prove.proof_text import read_proof

Outcome = Literal["found", "exhausted", "budget", "error"]
Check = Callable[[str], Awaitable[tuple[str, ...]]]
"""Returns Lean's errors with a proof (see `proof_text`) in the sorry's place; none where Lean takes it."""

_TOLD = 4
"""Failed proofs that a model is told of at once: more would cost more than they teach."""
_ERRORS = 6
_LONGEST_ERROR = 1500
_LONGEST_TEXT = 6000


@dataclass(frozen=True, slots=True)
class Failed:
    """A proof that was not taken, and why: Lean's errors, or what the gate or the reader has against it."""

    text: str
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WholeAsk:
    """What an author is asked.

    Attributes:
        context: the file's text before the declaration.
        declaration: its source, with the sorry.
        goal: the sorry's goal as Lean prints it; "" where it is not known.
        earlier: what was tried and failed, the last ones last.
        count: how many proofs are wanted.
        seed: of what is drawn.
        ordinal: which of the declaration's sorrys, from 0.
        seconds: how long the author may take; None: as long as it likes.
        heard: told of answers as they come, with how many they are, where the author gets them one by one.
    """

    context: str
    declaration: str
    goal: str = ""
    earlier: tuple[Failed, ...] = ()
    count: int = 1
    seed: int = 0
    ordinal: int = 0
    seconds: float | None = None
    heard: Callable[[Written, int], None] | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What asking a model took. `usd` is None where nobody knows the prices."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None

    def __add__(self, other: Cost) -> Cost:
        known = [usd for usd in (self.usd, other.usd) if usd is not None]
        return Cost(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            sum(known) if known else None,
        )

    def since(self, before: Cost) -> Cost:
        """Return what was added to what it was before."""
        return Cost(
            self.prompt_tokens - before.prompt_tokens,
            self.completion_tokens - before.completion_tokens,
            None if self.usd is None else self.usd - (before.usd or 0.0),
        )


@dataclass(frozen=True, slots=True)
class Written:
    """An author's answers, free-form, in the order in which they are to be tried, and what they took.

    `missing` says why there are fewer than were asked for; "" where there are as many.
    """

    texts: tuple[str, ...]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    missing: str = ""

    @property
    def cost(self) -> Cost:
        return Cost(self.prompt_tokens, self.completion_tokens, self.usd)


class AuthorError(Exception):
    """An author cannot answer. It concerns the sorry at hand; `cost` is what was spent all the same."""

    def __init__(self, message: str, *, reason: str = "author", cost: Cost | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.cost = cost or Cost()


class Author(Protocol):
    """Who writes whole proofs. May be asked for several sorrys at once."""

    @property
    def name(self) -> str:
        """What kind of author it is: "whole" or "external"."""

    @property
    def model(self) -> str:
        """Which model answers."""

    async def write(self, ask: WholeAsk) -> Written:
        """Return answers.

        Raises:
            AuthorError: there is none to be had.
        """


class Relay:
    """An author that has another one write (`Author`): it goes by that one's name."""

    def __init__(self, author: Author) -> None:
        self._author = author

    @property
    def name(self) -> str:
        return self._author.name

    @property
    def model(self) -> str:
        return self._author.model

    async def write(self, ask: WholeAsk) -> Written:
        """Return the other one's answers. See `Author`."""
        return await self._author.write(ask)


@dataclass(frozen=True, slots=True)
class WholeBudget:
    """Where the work on one sorry ends: after so many seconds, or before the turn after so much was spent.

    `usd` counts where the author knows its prices.
    """

    seconds: float
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class WholeResult:
    """How it ended.

    Attributes:
        outcome: "found"; "exhausted": all turns are used up; "budget"; "error": the author or Lean failed.
        found: the proof that Lean took, exactly where the outcome is "found".
        detail: why there is no proof, in words; "" where there is one.
        best: how far it got, one line for people.
        turns: how often the author was asked.
        tried: how many different proofs Lean judged.
        refused: how many were refused without Lean.
        cost: tokens and money, of failed requests too.
        seconds: in all.
        failed: the proofs that were not taken, in the order in which they were tried.
        failure: Lean's failure where that is what ended the work; whether others can go on is the caller's to say.
    """

    outcome: Outcome
    found: str | None
    detail: str
    best: str
    turns: int
    tried: int
    refused: int
    cost: Cost
    seconds: float
    failed: tuple[Failed, ...] = ()
    failure: ReplError | None = None

    @property
    def tokens(self) -> int:
        return self.cost.prompt_tokens + self.cost.completion_tokens

    @property
    def usd(self) -> float | None:
        return self.cost.usd


async def prove_whole(
    ask: WholeAsk,
    *,
    author: Author,
    check: Check,
    budget: WholeBudget,
    repairs: int,
    judge: str = "Lean",
    clock: Callable[[], float] = time.monotonic,
) -> WholeResult:
    """Have an author prove a sorry.

    Args:
        ask: for the first turn.
        author: who writes.
        check: Lean.
        budget: where to end.
        repairs: turns after the first, in which the author is told what Lean said of the turn before.
        judge: what `check` asks, in words.
        clock: seconds, for the budget.
    """
    work = _Work(ask, author, check, budget, judge, clock)
    outcome = await work.run(repairs + 1)
    return work.result(outcome)


@dataclass(slots=True)
class _Work:
    ask: WholeAsk
    author: Author
    check: Check
    budget: WholeBudget
    judge: str
    clock: Callable[[], float]
    started: float = 0.0
    turns: int = 0
    cost: Cost = field(default_factory=Cost)
    found: str | None = None
    detail: str = ""
    failure: ReplError | None = None
    judged: list[Failed] = field(default_factory=list)
    refused: list[Failed] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    async def run(self, turns: int) -> Outcome:
        self.started = self.clock()
        earlier = self.ask.earlier
        for turn in range(turns):
            if self._spent():
                return "budget"
            left = self.budget.seconds - (self.clock() - self.started)
            ask = replace(self.ask, earlier=earlier, seed=self.ask.seed + turn, seconds=left)
            self.turns += 1
            try:
                written = await self.author.write(ask)
            except AuthorError as error:
                self.cost += error.cost
                self.detail = str(error)
                return "error"
            self.cost += written.cost
            self.detail = written.missing
            known = len(self.failed)
            outcome = await self._try(written.texts)
            if outcome is not None:
                return outcome
            # A turn that brought nothing new leaves the model with what it was told before.
            earlier = tuple(self.failed[known:][:_TOLD]) or earlier
        self.detail = f"none of {self.turns} turns brought a proof" + (
            f"; {self.detail}" if self.detail else ""
        )
        return "exhausted"

    def _spent(self) -> bool:
        if self.clock() - self.started >= self.budget.seconds:
            self.detail = f"the budget of {self.budget.seconds:g} s ended it"
        elif self.budget.usd is not None and (self.cost.usd or 0.0) >= self.budget.usd:
            self.detail = f"the budget of ${self.budget.usd:g} ended it"
        else:
            return False
        return True

    async def _try(self, texts: Sequence[str]) -> Outcome | None:
        """Judge a turn's answers in their order; None where the next turn may come."""
        for text in texts:
            read = read_proof(text, self.ask.declaration, ordinal=self.ask.ordinal)
            if not read.proofs:
                self._refuse(Failed(text.strip(), (read.why,)))
            first: Failed | None = None
            for proof in read.proofs:
                if proof in self.seen:
                    continue
                self.seen.add(proof)
                if against := complaints(proof):
                    self.refused.append(
                        Failed(proof, tuple(f"not allowed in a proof: {one}" for one in against))
                    )
                    first = first or self.refused[-1]
                    continue
                if self.clock() - self.started >= self.budget.seconds:
                    self._spent()
                    return "budget"
                try:
                    errors = await self.check(proof)
                except ReplError as error:
                    self.failure, self.detail = error, f"{self.judge} failed: {error}"
                    return "error"
                if not errors:
                    self.judged.append(Failed(proof, ()))
                    self.found, self.detail = proof, ""
                    return "found"
                self.judged.append(Failed(proof, errors))
                first = first or self.judged[-1]
            # Of several readings of one answer the first is the likely one: its errors are what the model is told.
            if first is not None:
                self.failed.append(_short(first))
        return None

    def _refuse(self, failed: Failed) -> None:
        if failed.text in self.seen:
            return
        self.seen.add(failed.text)
        self.refused.append(failed)
        self.failed.append(_short(failed))

    def result(self, outcome: Outcome) -> WholeResult:
        return WholeResult(
            outcome,
            self.found,
            self.detail,
            self._best(),
            self.turns,
            len(self.judged),
            len(self.refused),
            self.cost,
            self.clock() - self.started,
            tuple(self.failed),
            self.failure,
        )

    def _best(self) -> str:
        if self.found is not None:
            return f"found with text {len(self.judged)} of those judged, in turn {self.turns}"
        if self.judged:
            best = min(self.judged, key=lambda one: len(one.errors))
            number = len(best.errors)
            return (
                f"the best of {len(self.judged)} texts has {number} error{'s' if number > 1 else ''}:"
                f" {_line(best.errors[0])}"
            )
        if self.refused:
            why = _line(self.refused[0].errors[0])
            return f"none of {len(self.refused)} texts could be given to {self.judge}: {why}"
        return "no text was written"


def _short(failed: Failed) -> Failed:
    errors = tuple(_cut(error, _LONGEST_ERROR) for error in failed.errors[:_ERRORS])
    return Failed(_cut(failed.text, _LONGEST_TEXT), errors)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} …"


def _line(text: str) -> str:
    return _cut(" ".join(text.split()), 200)
