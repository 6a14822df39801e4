"""A declaration's sorries by whole proofs: an author writes the text for a sorry's place, and Lean names its errors.

As in a search, a text that Lean accepts is a candidate, and the solved sorries of a declaration are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.jobs.specs import Budget, KnownProof
from pipeline.lean.goal_text import state_of
from pipeline.lean.pool.session import Session
from pipeline.lean.source.splice import Declaration
from pipeline.prove.declaration import DeclarationProver, SearchMethod
from pipeline.prove.effort import DeclarationResult, Effort, SolvedSorry
from pipeline.prove.premises import ShownPremises
from pipeline.prove.whole_proof import (
    Author,
    AuthorAnswers,
    AuthorWrapper,
    SorryCheck,
    WholeAsk,
    block_of,
    prove_whole,
)

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
        calls = session.calls
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
        result = await prove_whole(
            ask,
            author=_ParkingAuthor(wholly.author, session),
            check=check,
            seconds=budget.seconds,
            repairs=wholly.repairs,
        )
        if result.failure is not None:
            raise result.failure
        effort = Effort.of_whole(result, repl_calls=session.calls - calls).after(*failed)
        if premises is not None and result.found is None:
            effort = replace(effort, detail="; ".join(filter(None, (effort.detail, premises.reason))))
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
