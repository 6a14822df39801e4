"""A declaration's sorries by whole proofs: an author writes what takes a sorry's place; Lean names the errors.

As in a search, what Lean takes here is a candidate; and a sorry is filled beside its neighbours where they are solved
too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.jobs.specs import Budget
from pipeline.lean.pool.session import Session
from pipeline.lean.source.splice import Declaration
from pipeline.prove.declaration import SearchMethod, cite_lemmas, join_up, recall, states_of
from pipeline.prove.effort import DeclarationResult, Effort, SolvedSorry
from pipeline.prove.graph import Failures
from pipeline.prove.journal import JournalError, JournalFile
from pipeline.prove.lemmas import KnownProof
from pipeline.prove.whole_proof import (
    Author,
    AuthorAnswers,
    AuthorError,
    AuthorWrapper,
    Cost,
    SorryCheck,
    WholeAsk,
    WholeBudget,
    block_of,
    prove_whole,
)
from store.domain.identity import short_hash

# ---- What an author wrote for a sorry, on disk as it comes, so that after a kill nothing that was paid for is asked
#
#     with AnswerJournal(path) as journal:
#         author = JournaledAuthor(author, journal)  # a `whole.Author`: what the journal has is not asked for
# One sorry's file (`journal_file.py`). A turn is known by its seed, whatever Lean said of the turn before it: a
# message that is worded otherwise after a restart is no reason to pay twice. Proofs are judged anew, which costs
# nothing.


VERSION = 1


@dataclass(slots=True)
class _Turn:
    """What came in one turn so far: texts, how many answers that were, what it took; `ended`: no more will come."""

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
        """Args:
        path: of the file; its folder is made where it is missing.
        """
        super().__init__(path, durable=True)
        self.turns: dict[int, _Turn] = {}

    def begin(self, author: Author, ask: WholeAsk) -> None:
        """Open the journal and read what it has, if that is of this author and sorry.

        Raises:
            OSError: it cannot be written.
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
        """Keep answers of a turn; `ended` says that these are the last."""
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
    """An author with a journal. For one sorry; whoever made the journal closes it.

    Attributes:
        earlier_s: seconds that the answers took which were not asked for again.
    """

    def __init__(self, author: Author, journal: AnswerJournal) -> None:
        super().__init__(author)
        self.earlier_s = 0.0
        self._journal = journal
        self._begun = False

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        """Return a turn's answers, those that the journal has first. See `whole.Author`.

        Raises:
            OSError: the journal cannot be written.
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
            # What was missing is told once, of the whole turn.
            self._journal.heard(ask.seed, replace(written, missing=""), answers, seconds=0.0, ended=False)

        # The same seed would draw what is there already.
        rest = replace(ask, count=ask.count - had, seed=ask.seed + had, heard=heard)
        try:
            new = await super().write(rest)
        except AuthorError as error:
            if not turn.answers:
                raise
            # What came before is judged all the same.
            new = AuthorAnswers(turn.texts[len(texts) :], *_parts(error.cost), str(error))
            failed = True
        came = turn.answers - had
        # Of what was heard as it came, only what failed on the way is not paid for in the journal yet.
        left = _at_least_nothing((paid + new.cost).since(turn.cost))
        last = AuthorAnswers(() if came else new.texts, *_parts(left), new.missing)
        # What did not come is asked for again where the search is gone on with.
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


# A line at the left edge that begins so goes on with the tactic above it.
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
    way: SearchMethod | None = None,
) -> DeclarationResult:
    """Have every sorry of the declaration proved by whole proofs, one after the other.

    Args:
        session: at the declaration's place in its file.
        declaration: what to fill.
        wholly: by whom.
        budget: `seconds` is for one sorry, `tactic_timeout_s` for a known proof's tactic.
        context: the file's text before the declaration, for the author.
        known: as in `declaration.prove_declaration`.
        journal: returns where the answers for the sorry with an ordinal are kept; None for nowhere.
        way: how a search goes that cites lemmas, where no text was taken; None: there is none.

    Raises:
        CannotAttempt: the declaration does not compile, or Lean makes no goals of it.
        ReplError: no process gets as far as the declaration (see `Session`).
    """
    states = await states_of(session, declaration, budget=budget)
    goals = [(state, at) for state in states for at in range(len(state.goals))]
    worked = DeclarationResult()
    for number, sorry in enumerate(declaration.sorries):
        vain: list[Effort] | None = []
        goal, at_goal = "", None
        if len(goals) == len(declaration.sorries):
            state, at = goals[number]
            goal, at_goal = state.goals[at].render(), (state, at)
            vain = await recall(
                session,
                declaration,
                worked,
                state,
                at,
                budget=budget,
                likely=sorry.ordinal,
                known=known or {},
            )
        if vain is None or sorry.ordinal in worked.solved:
            continue
        filling = SorryCheck(session, declaration, sorry, timeout_s=max(budget.seconds, 10.0))
        calls, kept = session.calls, journal(sorry.ordinal)
        author = wholly.author if kept is None else JournaledAuthor(wholly.author, kept)
        try:
            result = await prove_whole(
                WholeAsk(
                    context,
                    declaration.text,
                    goal,
                    count=wholly.proofs,
                    seed=wholly.seed,
                    ordinal=sorry.ordinal,
                ),
                author=_Lending(author, session),
                check=filling,
                budget=WholeBudget(seconds=budget.seconds),
                repairs=wholly.repairs,
                judge=session.judge,
            )
        finally:
            if kept is not None:
                kept.close()
        if result.failure is not None:
            raise result.failure
        effort = Effort.of_whole(result, repl_calls=session.calls - calls).after(*vain)
        if isinstance(author, JournaledAuthor):
            effort = replace(effort, seconds=effort.seconds + author.earlier_s)
        if result.found is not None and filling.replacement is not None:
            worked.solved[sorry.ordinal] = SolvedSorry(tactics_of(result.found), filling.replacement, effort)
            continue
        if way is not None and at_goal is not None and result.outcome != "error":
            again = await cite_lemmas(
                session, declaration, worked, *at_goal, effort,
                way=way, budget=budget, likely=sorry.ordinal, failures=Failures(), whose="rung 0's",
            )  # fmt: skip
            if again is None:
                continue
            effort = again
        worked.unsolved.append((sorry.ordinal, effort))
    session.release(states)
    await join_up(session, declaration, worked)
    return worked


def tactics_of(proof: str) -> tuple[str, ...]:
    """Return the tactics of a proof text, each with the lines that belong to it; of a term, `exact` and the term."""
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


class _Lending(AuthorWrapper):
    """An author during whose work the session's process is anybody's: a model may write for a minute."""

    def __init__(self, author: Author, session: Session) -> None:
        super().__init__(author)
        self._session = session

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        self._session.park()
        return await super().write(ask)
