"""A declaration's sorries by whole proofs: an author writes the text for a sorry's place, and Lean names its errors.

As in a search, a text that Lean accepts is a candidate, and the solved sorries of a declaration are joined.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.jobs.specs import Budget, KnownProof
from pipeline.lean.pool.session import Session
from pipeline.lean.source.splice import Declaration
from pipeline.models.text import state_of
from pipeline.prove.declaration import DeclarationProver, SearchMethod
from pipeline.prove.effort import DeclarationResult, Effort, SolvedSorry
from pipeline.prove.journal import JournalError, JournalFile
from pipeline.prove.premises import ShownPremises
from pipeline.prove.whole_proof import (
    Author,
    AuthorAnswers,
    AuthorError,
    AuthorWrapper,
    Cost,
    SorryCheck,
    WholeAsk,
    block_of,
    prove_whole,
)
from store.domain.identity import short_hash

# ---- The journal of an author's answers for one sorry, so that a killed job pays for no answer twice
# A turn is identified by its seed alone: a message of Lean's that reads differently after a restart is no reason to
# pay again. Proofs are judged anew, which costs nothing.


VERSION = 1


@dataclass(slots=True)
class _Turn:
    """One turn's answers so far: texts, their number, their cost; `ended`: the turn is complete."""

    texts: tuple[str, ...] = ()
    answers: int = 0
    cost: Cost = Cost()  # noqa: RUF009 - frozen
    missing: str = ""
    seconds: float = 0.0
    ended: bool = False

    def take(self, line: Mapping[str, Any]) -> None:
        self.texts += tuple(str(text) for text in line["texts"])
        self.answers += int(line["answers"])
        usd = line["usd"]
        self.cost += Cost(
            int(line["prompt_tokens"]), int(line["completion_tokens"]), None if usd is None else float(usd)
        )
        self.seconds += float(line["seconds"])
        self.ended = self.ended or bool(line["ended"])
        self.missing = "; ".join(dict.fromkeys(filter(None, (self.missing, str(line["missing"])))))

    def written(self) -> AuthorAnswers:
        return AuthorAnswers(
            self.texts, self.cost.prompt_tokens, self.cost.completion_tokens, self.cost.usd, self.missing
        )


class AnswerJournal(JournalFile):
    """The journal of one sorry's whole proofs. Lines are on the disk before the next request."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, durable=True)
        self.turns: dict[int, _Turn] = {}

    def begin(self, author: Author, ask: WholeAsk) -> None:
        """Open the journal and read it, if it is of this author and sorry.

        Raises:
            JobError: it cannot be written.
        """
        header = {
            "whole": VERSION,
            "author": author.name,
            "model": author.model,
            "text": short_hash("whole", ask.context, ask.declaration, ask.goal),
            "ordinal": ask.ordinal,
            "count": ask.count,
            "seed": ask.seed,
        }
        self._begin(header, self._replay)

    def turn(self, seed: int) -> _Turn:
        return self.turns.setdefault(seed, _Turn())

    def heard(self, seed: int, written: AuthorAnswers, answers: int, *, seconds: float, ended: bool) -> None:
        """Write answers of a turn; `ended` says that these are the last."""
        line: dict[str, Any] = {
            "turn": seed,
            "answers": answers,
            "seconds": round(seconds, 3),
            "ended": ended,
            **asdict(written),
        }
        self._write(line)
        self.turn(seed).take(line)

    def _replay(self, lines: list[Mapping[str, Any]]) -> None:
        turns: dict[int, _Turn] = {}
        for number, line in enumerate(lines, start=2):
            try:
                turns.setdefault(int(line["turn"]), _Turn()).take(line)
            except (KeyError, TypeError, ValueError) as error:
                raise JournalError(f"line {number} does not fit: {type(error).__name__}: {error}") from error
        self.turns = turns


class JournaledAuthor(AuthorWrapper):
    """An author with a journal, for one sorry; the caller closes the journal.

    Attributes:
        earlier_s: seconds of the answers that the journal had.
    """

    def __init__(self, author: Author, journal: AnswerJournal) -> None:
        super().__init__(author)
        self.earlier_s = 0.0
        self._journal = journal
        self._begun = False

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        """Return a turn's answers, the journal's first. See `Author`.

        Raises:
            JobError: the journal cannot be written.
        """
        if not self._begun:
            self._journal.begin(self._author, ask)
            self._begun = True
        turn = self._journal.turn(ask.seed)
        self.earlier_s += turn.seconds
        if turn.ended or turn.answers >= ask.count:
            return turn.written()
        began, had, texts, paid = time.monotonic(), turn.answers, turn.texts, turn.cost
        failed = False

        def heard(written: AuthorAnswers, answers: int) -> None:
            # The reason for missing answers is written once, for the whole turn.
            self._journal.heard(ask.seed, replace(written, missing=""), answers, seconds=0.0, ended=False)

        # The same seed would repeat the answers that the journal has.
        rest = replace(ask, count=ask.count - had, seed=ask.seed + had, heard=heard)
        try:
            new = await super().write(rest)
        except AuthorError as error:
            if not turn.answers:
                raise
            # The earlier answers are judged all the same.
            new = AuthorAnswers(turn.texts[len(texts) :], *_parts(error.cost), str(error))
            failed = True
        came = turn.answers - had
        # The journal has the cost of each answer as it came; only the cost of failed requests is missing.
        left = _at_least_nothing((paid + new.cost).since(turn.cost))
        last = AuthorAnswers(() if came else new.texts, *_parts(left), new.missing)
        # A resumed job requests the missing answers again.
        self._journal.heard(
            ask.seed,
            last,
            0 if came or failed else rest.count,
            seconds=time.monotonic() - began,
            ended=not failed,
        )
        return replace(turn.written(), texts=(*texts, *new.texts))


def _at_least_nothing(cost: Cost) -> Cost:
    usd = None if cost.usd is None else max(cost.usd, 0.0)
    return Cost(max(cost.prompt_tokens, 0), max(cost.completion_tokens, 0), usd)


def _parts(cost: Cost) -> tuple[int, int, float | None]:
    return cost.prompt_tokens, cost.completion_tokens, cost.usd


# A line at the left edge that begins so continues the tactic above it.
_GOES_ON = ("|", "<;>", ")", "]", "}", "⟩")


@dataclass(frozen=True, slots=True)
class WholeProofMethod:
    """The author of the proofs: `proofs` of them a turn, with `repairs` turns after the first."""

    author: Author
    proofs: int = 4
    repairs: int = 2
    seed: int = 0


async def prove_declaration_wholly(
    session: Session,
    declaration: Declaration,
    *,
    wholly: WholeProofMethod,
    budget: Budget,
    context: str = "",
    known: Mapping[int, Sequence[KnownProof]] | None = None,
    journal: Callable[[int], AnswerJournal | None] = lambda _: None,
    method: SearchMethod | None = None,
    premises: ShownPremises | None = None,
) -> DeclarationResult:
    """Prove every sorry of the declaration with an author, one after the other.

    Args:
        session: at the declaration's place in its file.
        declaration: with its sorries.
        wholly: the author.
        budget: `seconds` is for one sorry, `tactic_timeout_s` for a known proof's tactic.
        context: the file's text before the declaration, for the author.
        known: see `DeclarationProver`.
        journal: returns the journal of the answers for the sorry with an ordinal; None for no journal.
        method: of the search with lemmas that follows if Lean accepts no text; None: no such search.
        premises: what the author is shown beside a goal; None: nothing.

    Raises:
        CannotAttempt: the declaration does not compile, or Lean makes no goals of it.
        ReplError: no process gets as far as the declaration (see `Session`).
    """
    prover = DeclarationProver(session, declaration, budget=budget, method=method, known=known)
    await prover.start()
    matched = len(prover.goals) == len(declaration.sorries)
    for number, sorry in enumerate(declaration.sorries):
        failed: list[Effort] | None = []
        goal = ""
        if matched:
            state, at = prover.goals[number]
            goal = state.goals[at].render()
            failed = await prover.recall(state, at, likely=sorry.ordinal)
        if failed is None or sorry.ordinal in prover.result.solved:
            continue
        check = SorryCheck(session, declaration, sorry, timeout_s=max(budget.seconds, 10.0))
        calls, kept = session.calls, journal(sorry.ordinal)
        author = wholly.author if kept is None else JournaledAuthor(wholly.author, kept)
        shown: tuple[str, ...] = ()
        if premises is not None and matched:
            shown = await premises.texts(state_of([state.goals[at]]))
        ask = WholeAsk(
            context,
            declaration.text,
            goal,
            count=wholly.proofs,
            seed=wholly.seed,
            ordinal=sorry.ordinal,
            premises=shown,
        )
        try:
            result = await prove_whole(
                ask,
                author=_ParkingAuthor(author, session),
                check=check,
                seconds=budget.seconds,
                repairs=wholly.repairs,
            )
        finally:
            if kept is not None:
                kept.close()
        if result.failure is not None:
            raise result.failure
        effort = Effort.of_whole(result, repl_calls=session.calls - calls).after(*failed)
        if premises is not None and result.found is None:
            effort = replace(effort, detail="; ".join(filter(None, (effort.detail, premises.reason))))
        if isinstance(author, JournaledAuthor):
            effort = replace(effort, seconds=effort.seconds + author.earlier_s)
        if result.found is not None and check.replacement is not None:
            solved = SolvedSorry(tactics_of(result.found), check.replacement, effort)
            prover.result.solved[sorry.ordinal] = solved
            continue
        if method is not None and matched and result.outcome != "error":
            again = await prover.cite(state, at, effort, likely=sorry.ordinal, author="rung 0's")
            if again is None:
                continue
            effort = again
        prover.result.unsolved.append((sorry.ordinal, effort))
    return await prover.finish()


def tactics_of(proof: str) -> tuple[str, ...]:
    """Return the tactics of a proof text, each with its continuation lines; for a term, `exact` and the term."""
    lines = block_of(proof)
    if lines is None:
        return (f"exact {proof}",)
    tactics: list[str] = []
    for line in lines:
        if tactics and (line[:1].isspace() or line.startswith(_GOES_ON)):
            tactics[-1] += f"\n{line}"
        else:
            tactics.append(line)
    return tuple(tactics)


class _ParkingAuthor(AuthorWrapper):
    """An author that parks the session's process for other searches meanwhile: a model may write for a minute."""

    def __init__(self, author: Author, session: Session) -> None:
        super().__init__(author)
        self._session = session

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        self._session.park()
        return await super().write(ask)
