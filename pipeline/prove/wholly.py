"""A declaration's sorrys by whole proofs: an author writes what takes a sorry's place, Lean says what is wrong with it.

As in a search, what Lean takes here is a candidate; and a sorry is filled beside its neighbours where they are solved
too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.lean.pool.session import Session
from pipeline.lean.source.splice import Declaration
from pipeline.prove.declaration import Way, cite_lemmas, join_up, recall, states_of
from pipeline.prove.effort import Effort, Solved, Worked
from pipeline.prove.filling import Filling
from pipeline.prove.kept import AnswerJournal, KeptAuthor
from pipeline.prove.lemmas import Known
from pipeline.prove.proof_text import block_of
from pipeline.prove.search import Budget
from pipeline.prove.trying import Failures
from pipeline.prove.whole import Author, Relay, WholeAsk, WholeBudget, Written, prove_whole

# A line at the left edge that begins so goes on with the tactic above it.
_GOES_ON = ("|", "<;>", ")", "]", "}", "⟩")


@dataclass(frozen=True, slots=True)
class Wholly:
    """Who writes the proofs: `proofs` of them a turn, with `repairs` turns after the first."""

    author: Author
    proofs: int = 4
    repairs: int = 2
    seed: int = 0


async def prove_declaration_wholly(
    session: Session,
    declaration: Declaration,
    *,
    wholly: Wholly,
    budget: Budget,
    context: str = "",
    known: Mapping[int, Sequence[Known]] | None = None,
    journal: Callable[[int], AnswerJournal | None] = lambda _: None,
    way: Way | None = None,
) -> Worked:
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
    worked = Worked()
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
        filling = Filling(session, declaration, sorry, timeout_s=max(budget.seconds, 10.0))
        calls, kept = session.calls, journal(sorry.ordinal)
        author = wholly.author if kept is None else KeptAuthor(wholly.author, kept)
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
        if isinstance(author, KeptAuthor):
            effort = replace(effort, seconds=effort.seconds + author.earlier_s)
        if result.found is not None and filling.replacement is not None:
            worked.solved[sorry.ordinal] = Solved(tactics_of(result.found), filling.replacement, effort)
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


class _Lending(Relay):
    """An author during whose work the session's process is anybody's: a model may write for a minute."""

    def __init__(self, author: Author, session: Session) -> None:
        super().__init__(author)
        self._session = session

    async def write(self, ask: WholeAsk) -> Written:
        self._session.park()
        return await super().write(ask)
