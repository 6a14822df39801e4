"""One declaration with sorries: its frame (what makes it compile alone) and the proofs found for it.

The frame is the scanner's preamble (open namespaces, sections, variables, options) before the declaration's own
text, because each REPL call starts with a fresh scope. The REPL's goals carry no positions, so a proof found for
a goal is tried at every sorry of the declaration and kept where the declaration then elaborates without error.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from pipeline.gate.lake_checks import ALLOWED_AXIOMS, read_axioms
from pipeline.jobs.specs import Budget
from pipeline.lean.client.messages import Goal, Unit, first_error
from pipeline.lean.client.repl import ReplDied, ReplRefused
from pipeline.lean.pool.session import Session, State, StateLost
from pipeline.lean.source.splice import Declaration, Replacement, Script, join, placements, splice
from pipeline.prove.effort import DeclarationResult, Effort, SolvedSorry
from pipeline.prove.graph import Failures, Proposer, Remaining, Scoring
from pipeline.prove.journal import Journal
from pipeline.prove.lemmas import KnownProof, Lemma, RecallProposer, cite
from pipeline.prove.search import Search
from pipeline.prove.whole_proof import Cost

# ---- Whether a theorem with a sorry is false as stated: its negation is tried, within a small budget
# The statement is read off the goal, as Lean prints it, and what Lean prints is not always what it reads. So Lean has
# to agree twice: that the theorem, sorry and all, is a proof of what was read; and in the end that the theorem and
# the proof of the negation together give False. The theorem itself is not there while its negation is searched for. A
# proof counts only where Lean says what it rests on, and that is nothing but what the gate lets a proof rest on: from
# another sorry, or from an axiom of the project, anything follows.


NODES, CALLS, SHARE_OF_SECONDS, MOST_SECONDS = 16, 200, 0.2, 10.0
"""The budget: so many states and tactics, and this share of the sorry's own seconds."""

_NAME = "unsorry_negation"
_PRINTED = re.compile(r"\A'(.+)' d(?:epends on|oes not depend on any) axioms")
_WRITABLE = re.compile(r"[^\W\d][\w'!?₀-₉]*")


class Stated(Protocol):
    """The interface of a declaration: `declaration.Declaration`."""

    @property
    def name(self) -> str: ...

    def framed_for_distil(self) -> str: ...

    def beside(self, text: str) -> str: ...


async def disprove(
    session: Session,
    declaration: Stated,
    goal: Goal,
    *,
    proposer: Proposer,
    scoring: Scoring | None,
    budget: Budget,
    seed: int = 0,
) -> tuple[str, ...] | None:
    """Return the tactics of a proof that the declaration cannot be proved as it stands; None where none is found.

    Args:
        session: at the declaration's place in its file.
        declaration: a theorem, all of whose proof is one sorry.
        goal: the sorry's.
        proposer, scoring, seed: as for a search of the goal itself.
        budget: what that search had.

    Raises:
        ReplError: there is no process to be had (see `Session`).
    """
    claim = closed(goal)
    if claim is None:
        return None
    theorem = declaration.framed_for_distil()
    if not await _taken(session, f"{theorem}\nexample : {claim} := @{declaration.name}\n"):
        return None
    few = replace(
        budget,
        nodes=min(budget.nodes, NODES),
        seconds=min(SHARE_OF_SECONDS * budget.seconds, MOST_SECONDS),
        calls=CALLS,
    )
    try:
        states = await session.distil(declaration.beside(f"theorem {_NAME} : ¬({claim}) := by\n  sorry\n"))
    except ReplRefused:
        return None
    if len(states) != 1 or len(states[0].goals) != 1:
        session.release(states)
        return None
    search = Search(session, proposer, budget=few, scoring=scoring, seed=seed)
    result = await search.run(states[0])
    session.release(states)
    if result.script is None or not await _contradicts(
        session, theorem, declaration.name, claim, result.script
    ):
        return None
    return result.script.tactics


def closed(goal: Goal) -> str | None:
    """Return the goal as a proposition without hypotheses; None where it cannot be written as one."""
    binders = []
    for variable in goal.vars:
        if variable.value is not None or variable.type is None:
            return None
        kind = variable.type.render()
        if variable.inaccessible and variable.user_name.startswith("inst"):
            binders.append(f"[{kind}]")
        elif variable.inaccessible or not _WRITABLE.fullmatch(variable.user_name):
            return None
        else:
            binders.append(f"({variable.user_name} : {kind})")
    claim = goal.target.render()
    text = f"∀ {' '.join(binders)}, {claim}" if binders else claim
    return None if "✝" in text or "?" in text else text


async def _contradicts(session: Session, theorem: str, name: str, claim: str, script: Script) -> bool:
    bracketed = f"({script.inline()})".replace("\n", "\n ").split("\n")
    for lines in (script.block(), bracketed):
        proof = "\n".join(f"  {line}" for line in lines)
        refuted = f"theorem {_NAME} : ¬({claim}) := by\n{proof}\n\n#print axioms {_NAME}\n"
        text = f"{refuted}\nexample : False := {_NAME} @{name}\n"
        if await _taken(session, f"{theorem}\n{text}", sound=_NAME):
            return True
    return False


async def _taken(session: Session, text: str, *, sound: str = "") -> bool:
    """Say whether Lean takes a text; `sound` names what of it must rest on allowed axioms alone."""
    try:
        units = await session.process(text)
    except (ReplDied, ReplRefused):
        return False
    if any(unit.errors for unit in units):
        return False
    return not sound or _is_sound(units, sound)


def _is_sound(units: Sequence[Unit], name: str) -> bool:
    """Say whether Lean said once what a theorem rests on, and all of it is allowed; namespaces may stand before it."""
    said = [message.data for unit in units for message in unit.messages if not message.is_error]
    found = [
        axioms
        for text in said
        for named in _PRINTED.findall(text)
        if named.rpartition(".")[2] == name and not isinstance(axioms := read_axioms(text, named), str)
    ]
    return len(found) == 1 and ALLOWED_AXIOMS.issuperset(found[0])


class CannotAttempt(Exception):  # noqa: N818 - named by what it means for the caller
    """The declaration cannot be worked on; the message is what the attempt records."""


@dataclass(frozen=True, slots=True)
class SearchMethod:
    """The parts of a search: the proposer, the ranking of states, and the journal.

    `scoring` None is rung 0's. `journal` returns the journal of the search for the goal with a number, None for no
    journal. `seed` is of what is drawn. Where no proof was found: `lemmas` are those that a second search may cite
    (`citing`), and `negate` says whether the negation is tried too.
    """

    proposer: Proposer
    scoring: Scoring | None = None
    remaining: Remaining | None = None
    seed: int = 0
    journal: Callable[[int], Journal | None] = lambda _: None
    negate: bool = False
    lemmas: Sequence[Lemma] = ()

    def said(self) -> str:
        """Return what the proposer has to say of its own trouble; "" where it has none."""
        return str(getattr(self.proposer, "reason", ""))

    def cost(self) -> Cost:
        """Return what the proposer's model took so far; nothing where it has none, or counts nothing."""
        return cast(Cost, getattr(self.proposer, "cost", Cost()))

    def failures(self) -> tuple[int, int]:
        """Return for how many states tactics were wanted so far, and for how many there was no answer at all."""
        return int(getattr(self.proposer, "asked", 0)), int(getattr(self.proposer, "failed", 0))


async def states_of(session: Session, declaration: Declaration, *, budget: Budget) -> tuple[State, ...]:
    """Have Lean make a goal of each sorry; the goals of these states are theirs.

    Raises:
        CannotAttempt: the declaration does not compile, or Lean makes no goals of it.
        ReplError: no process gets as far (see `Session`).
    """
    try:
        states = await session.distil(declaration.framed_for_distil(), timeout_s=max(budget.seconds, 10.0))
    except ReplRefused as error:
        raise CannotAttempt(
            f"{session.judge} makes no goal of the declaration: {_first_line(error.desc)}"
        ) from error
    if not any(state.goals for state in states):
        raise CannotAttempt(f"{session.judge} makes no goal of the declaration")
    return states


async def prove_declaration(
    session: Session,
    declaration: Declaration,
    *,
    way: SearchMethod,
    budget: Budget,
    known: Mapping[int, Sequence[KnownProof]] | None = None,
) -> DeclarationResult:
    """Search for a proof of every sorry of the declaration.

    Args:
        session: at the declaration's place in its file.
        declaration: what to fill.
        way: how to search.
        budget: of one search.
        known: by ordinal, proofs of the same statement from elsewhere, which are tried first.

    Raises:
        CannotAttempt: the declaration does not compile, or Lean makes no goals of it.
        ReplError: no process gets as far as a search (see `Session`), or a search is incomplete (`StateLost`).
    """
    states = await states_of(session, declaration, budget=budget)
    goals = [(state, at) for state in states for at in range(len(state.goals))]
    worked, failures = DeclarationResult(), Failures()
    ordinals = [sorry.ordinal for sorry in declaration.sorries]
    for number, (state, at) in enumerate(goals):
        if len(worked.solved) == len(ordinals):
            break
        # Goals mostly come in the order of their sorries.
        likely = ordinals[number] if len(goals) == len(ordinals) else None
        vain = await recall(
            session, declaration, worked, state, at, budget=budget, likely=likely, known=known or {}
        )
        if vain is None:
            continue
        search = Search(
            session,
            way.proposer,
            budget=budget,
            scoring=way.scoring,
            remaining=way.remaining,
            journal=way.journal(number),
            seed=way.seed,
            failures=failures,
        )
        before, (asked, failed) = way.cost(), way.failures()
        result = await search.run(state, goal=at)
        effort = Effort.of_search(result, detail="" if result.script else way.said()).after(*vain)
        effort = replace(effort, cost=effort.cost + way.cost().since(before))
        now_asked, now_failed = way.failures()
        if result.outcome == "exhausted" and now_asked - asked == now_failed - failed > 0:
            # Nothing was left to try because nobody said what to try.
            effort = replace(effort, outcome="error")
        elif result.script is None:
            again = await cite_lemmas(
                session, declaration, worked, state, at, effort,
                way=way, budget=budget, likely=likely, failures=failures,
            )  # fmt: skip
            if again is None:
                continue
            effort = again
            if way.negate and len(goals) == len(ordinals) == 1:
                effort = await _disproved(
                    session, declaration, state.goals[at], effort, way=way, budget=budget
                )
        if result.script is None:
            worked.unsolved.append((likely, effort))
        elif complaint := await _place(session, declaration, worked, effort, result.script, likely):
            worked.unplaced = worked.unplaced or complaint
            worked.unsolved.append((likely, effort))
    session.release(states)
    await join_up(session, declaration, worked)
    return worked


async def cite_lemmas(
    session: Session,
    declaration: Declaration,
    worked: DeclarationResult,
    state: State,
    at: int,
    effort: Effort,
    *,
    way: SearchMethod,
    budget: Budget,
    likely: int | None,
    failures: Failures,
    whose: str = "",
) -> Effort | None:
    """Search again with the way's lemmas; return what all of it took, None where a proof was found and placed.

    `whose` says whose tactics the way's are where they are not the rung's own: a proof that cites nothing is then none
    of the rung's, and is not taken.
    """
    calls, began, before = session.calls, time.monotonic(), way.cost()
    try:
        cited = await cite(
            session,
            state,
            at,
            lemmas=way.lemmas,
            proposer=way.proposer,
            scoring=way.scoring,
            remaining=way.remaining,
            budget=budget,
            seed=way.seed,
            failures=failures,
        )
    except StateLost:
        # What came of the search without lemmas stands.
        return _and_spent(effort, session, way, calls=calls, began=began, cost=before)
    if cited is None:
        return effort
    spent = replace(Effort.of_search(cited.result), cost=way.cost().since(before))
    complaint = ""
    for script in cited.scripts():
        said = cited.said(script)
        if whose and not said:
            break
        told = replace(spent.after(effort), detail=f"{said}; the steps are {whose}" if whose else said)
        complaint = await _place(session, declaration, worked, told, script, likely)
        if not complaint:
            return None
    worked.unplaced = worked.unplaced or complaint
    return effort.after(spent)


async def _disproved(
    session: Session,
    declaration: Declaration,
    goal: Goal,
    effort: Effort,
    *,
    way: SearchMethod,
    budget: Budget,
) -> Effort:
    """Return what the search took and found, and that the theorem is false where its negation is proved."""
    calls, began, before = session.calls, time.monotonic(), way.cost()
    try:
        tactics = await disprove(
            session,
            declaration,
            goal,
            proposer=way.proposer,
            scoring=way.scoring,
            budget=budget,
            seed=way.seed,
        )
    except StateLost:
        # Of the negation's search: what came of the theorem's own stands.
        tactics = None
    spent = _and_spent(effort, session, way, calls=calls, began=began, cost=before)
    if tactics is None:
        return spent
    return replace(spent, outcome="disproved", detail=f"false as it stands, by {'; '.join(tactics)}")


def _and_spent(
    effort: Effort, session: Session, way: SearchMethod, *, calls: int, began: float, cost: Cost
) -> Effort:
    """Return an effort with what was spent since the session's calls, the time and the cost were these."""
    return replace(
        effort,
        repl_calls=effort.repl_calls + session.calls - calls,
        seconds=effort.seconds + time.monotonic() - began,
        cost=effort.cost + way.cost().since(cost),
    )


async def recall(
    session: Session,
    declaration: Declaration,
    worked: DeclarationResult,
    state: State,
    at: int,
    *,
    budget: Budget,
    likely: int | None,
    known: Mapping[int, Sequence[KnownProof]],
) -> list[Effort] | None:
    """Try the known proofs on a goal; return what was in vain, None where one was placed."""
    vain: list[Effort] = []
    candidates = (
        known.get(likely, ()) if likely is not None else [one for some in known.values() for one in some]
    )
    for one in candidates:
        few = Budget(nodes=len(one.tactics), seconds=budget.seconds, tactic_timeout_s=budget.tactic_timeout_s)
        result = await Search(session, RecallProposer(one), budget=few).run(state, goal=at)
        effort = Effort.of_search(result, detail=f"by the tactics of proof {one.proof}").after(*vain)
        if result.script and not await _place(session, declaration, worked, effort, result.script, likely):
            return None
        vain = [effort]
    return vain


async def join_up(session: Session, declaration: Declaration, worked: DeclarationResult) -> None:
    """If all of several sorries are solved, join their proofs into one text and check it with Lean."""
    if len(worked.solved) == len(declaration.sorries) > 1:
        worked.joint = await _joined(session, declaration, worked)


async def _place(
    session: Session,
    declaration: Declaration,
    worked: DeclarationResult,
    effort: Effort,
    script: Script,
    likely: int | None,
) -> str:
    """Try the script at every unsolved sorry, the likely one first, and keep it where Lean takes it.

    Returns the first complaint where no place takes it, else "".
    """
    first, taken = "", False
    for sorry in sorted(declaration.sorries, key=lambda sorry: (sorry.ordinal != likely, sorry.ordinal)):
        if sorry.ordinal in worked.solved:
            continue
        for replacement in placements(
            declaration.data,
            declaration.tokens,
            script,
            byte_start=sorry.byte_start,
            byte_end=sorry.byte_end,
            mode=sorry.mode,
            declaration_start=declaration.byte_start,
            declaration_end=declaration.byte_end,
        ):
            complaint = await _complaint(session, declaration, replacement)
            if complaint is None:
                worked.solved[sorry.ordinal] = SolvedSorry(script.tactics, replacement, effort)
                taken = True
                break
            first = first or complaint
    return "" if taken else first or "(no place is left for it)"


async def _joined(
    session: Session, declaration: Declaration, worked: DeclarationResult
) -> Replacement | None:
    joint = join(declaration.data, [solved.replacement for solved in worked.solved.values()])
    patched = splice(declaration.data, joint)
    units = await session.process(declaration.framed(patched))
    if first_error(units) is not None or any(unit.uses_sorry for unit in units):
        return None
    return joint


async def _complaint(session: Session, declaration: Declaration, replacement: Replacement) -> str | None:
    """Return Lean's first error about the declaration with the replacement in place, None if it has none."""
    try:
        units = await session.process(declaration.framed(splice(declaration.data, replacement)))
    except ReplDied as death:
        return f"{session.judge} ends on the text: {_first_line(str(death))}"
    error = first_error(units)
    if error is not None:
        return _first_line(error.data)
    # Of several sorries the others are still there.
    if len(declaration.sorries) == 1 and any(unit.uses_sorry for unit in units):
        return f"{session.judge} says that the proof uses sorry"
    return None


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:300] if lines else "(no message)"
