"""The search for proofs of one declaration's sorries, and for a proof of its negation; or an author's whole proofs.

The declaration is elaborated in its frame: the scanner's preamble (open namespaces, sections, variables, options)
precedes its text, because each REPL call starts with a fresh scope. The REPL's goals carry no positions, so a found
proof is tried at every sorry of the declaration and kept where the declaration then elaborates without error.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.gate.axioms import ALLOWED_AXIOMS, PRINTED_FOR, read_axioms
from pipeline.jobs.specs import Budget, KnownProof
from pipeline.lean.client.errors import ReplDied, ReplRefused
from pipeline.lean.client.messages import Goal, Unit, first_error
from pipeline.lean.goal_text import state_of
from pipeline.lean.pool.session import Session, State, StateLost, Stepped
from pipeline.lean.source.splice import Declaration, Replacement, Script, join, placements, splice
from pipeline.prove.effort import DeclarationResult, Effort, Joint, SolvedSorry
from pipeline.prove.graph import Failures
from pipeline.prove.lemmas import RecallProposer, cite, small_budget
from pipeline.prove.premises import ShownPremises
from pipeline.prove.search import Search, SearchMethod
from pipeline.prove.whole_proof import (
    Author,
    AuthorAnswers,
    InFile,
    SorryCheck,
    WholeAsk,
    block_of,
    errors_with,
    prove_whole,
    read_proof,
)
from store.domain.records import Sorry

# ---- The negation of a theorem
# A theorem with a sorry may be false as stated, so its negation is tried, within a small budget. The statement is read
# off the goal as Lean prints it, and Lean does not always read its own output, so Lean has to agree twice: that the
# theorem, sorry and all, is a proof of the text that was read; and in the end that the theorem and the proof of the
# negation together give False. The search for the negation cannot use the theorem itself. A proof counts only if Lean
# reports that it rests on axioms that the gate allows: another sorry, or an axiom of the project, would prove anything.


_IS_A_PROPOSITION = "show (_ : Prop)"
"""A tactic that a goal takes which is one, and none that is data."""

NODES, CALLS = 16, 200
"""The budget in states and tactics."""

_NAME = "everlean_negation"
_WRITABLE = re.compile(r"[^\W\d][\w'!?₀-₉]*")


async def disprove(
    session: Session,
    declaration: Declaration,
    goal: Goal,
    *,
    method: SearchMethod,
    budget: Budget,
) -> tuple[str, ...] | None:
    """Return the tactics of a proof of the declaration's negation; None without one.

    Args:
        session: at the declaration's place in its file.
        declaration: a theorem with one sorry for its whole proof.
        goal: the sorry's.
        method: of the search for the goal itself.
        budget: of that search.

    Raises:
        ReplError: no process can be started (see `Session`).
    """
    claim = closed(goal)
    if claim is None:
        return None
    theorem = declaration.framed_for_distil()
    if not await _taken(session, f"{theorem}\nexample : {claim} := @{declaration.name}\n"):
        return None
    few = small_budget(budget, nodes=NODES, calls=CALLS)
    try:
        states = await session.distil(declaration.beside(f"theorem {_NAME} : ¬({claim}) := by\n  sorry\n"))
    except ReplRefused:
        return None
    if len(states) != 1 or len(states[0].goals) != 1:
        session.release(states)
        return None
    result = await method.search(session, few).run(states[0])
    session.release(states)
    if result.script is None or not await _contradicts(
        session, theorem, declaration.name, claim, result.script
    ):
        return None
    return result.script.tactics


def closed(goal: Goal) -> str | None:
    """Return the goal as a proposition without hypotheses; None if it cannot be written as one."""
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
    """Return whether Lean accepts a text; `sound` names a theorem in it that must rest on allowed axioms alone."""
    try:
        units = await session.process(text)
    except (ReplDied, ReplRefused):
        return False
    if any(unit.errors for unit in units):
        return False
    return not sound or _is_sound(units, sound)


def _is_sound(units: Sequence[Unit], name: str) -> bool:
    """Return whether Lean printed a theorem's axioms once, under any namespace, and all of them are allowed."""
    said = [message.data for unit in units for message in unit.messages if not message.is_error]
    found = [
        axioms
        for text in said
        for named in PRINTED_FOR.findall(text)
        if named.rpartition(".")[2] == name and not isinstance(axioms := read_axioms(text, named), str)
    ]
    return len(found) == 1 and ALLOWED_AXIOMS.issuperset(found[0])


# A line at the left edge that begins so continues the tactic above it.
_GOES_ON = ("|", "<;>", ")", "]", "}", "⟩")


class CannotAttempt(Exception):  # noqa: N818 - named by what it means for the caller
    """The declaration cannot be worked on; the message is recorded with the attempt."""


@dataclass(frozen=True, slots=True)
class WholeProofMethod:
    """The author of whole proofs: `proofs` of them a turn, with `repairs` turns after the first.

    `verbatim`: its answers are what stands in the sorry's place.
    """

    author: Author
    proofs: int = 4
    repairs: int = 2
    seed: int = 0
    verbatim: bool = False


class DeclarationProver:
    """Works on the sorries of one declaration. `result` has the proofs and the failed efforts so far."""

    def __init__(
        self,
        session: Session,
        declaration: Declaration,
        *,
        budget: Budget,
        method: SearchMethod,
        known: Mapping[int, Sequence[KnownProof]] | None = None,
    ) -> None:
        """Args:
        session: at the declaration's place in its file.
        declaration: with its sorries.
        budget: of one search.
        method: of searching.
        known: by ordinal, proofs of the same statement from elsewhere, which are tried first.
        """
        self.result = DeclarationResult()
        self.goals: list[tuple[State, int]] = []
        """A state for each of Lean's goals of the declaration, and the goal's index in it."""
        self._session = session
        self._declaration = declaration
        self._budget = budget
        self._method = method
        self._known = known or {}
        self._failures = Failures()
        self._states: tuple[State, ...] = ()

    async def start(self) -> None:
        """Let Lean make a goal of each sorry.

        Raises:
            CannotAttempt: the declaration does not compile, or Lean makes no goals of it.
            ReplError: no process gets as far (see `Session`).
        """
        text = self._declaration.framed_for_distil()
        try:
            self._states = await self._session.distil(text, timeout_s=max(self._budget.seconds, 10.0))
        except ReplRefused as error:
            raise CannotAttempt(
                f"Lean makes no goal of the declaration: {_first_line(error.desc)}"
            ) from error
        self.goals = [(state, at) for state in self._states for at in range(len(state.goals))]
        if not self.goals:
            raise CannotAttempt("Lean makes no goal of the declaration")
        if self._declaration.may_be_data:
            for state, at in self.goals:
                said = await self._session.tactic(state, _IS_A_PROPOSITION, goal=at)
                if not isinstance(said, Stepped):
                    raise CannotAttempt("a goal of it is data, which may not be invented")
                self._session.release([said.state])

    async def finish(self) -> DeclarationResult:
        """Free the states. If every one of a declaration's sorries is solved, join their proofs and check the text."""
        self._session.release(self._states)
        data, solved = self._declaration.data, self.result.solved
        for ordinals in self._declaration.ordinals:
            if len(ordinals) == 1 or not solved.keys() >= set(ordinals):
                continue
            joint = join(data, [solved[one].replacement for one in ordinals])
            units = await self._session.process(self._declaration.framed(splice(data, joint)))
            # Of a block's other declarations the sorries are still there.
            sorry = any(unit.uses_sorry for unit in units) and not self._declaration.block
            if first_error(units) is None and not sorry:
                self.result.joint.append(Joint(joint, ordinals))
        return self.result

    async def search(self, number: int, *, likely: int | None) -> None:
        """Search for a proof of a goal, by known proofs, tactics, lemmas and its negation in turn.

        Args:
            number: of the goal.
            likely: ordinal of its sorry; None if unknown.

        Raises:
            ReplError: no process gets as far as a search (see `Session`), or a search is incomplete (`StateLost`).
        """
        method, (state, at) = self._method, self.goals[number]
        failed = await self.recall(state, at, likely=likely)
        if failed is None:
            return
        search = method.search(self._session, self._budget, failures=self._failures)
        before, (requests, unanswered) = method.cost, method.failures
        result = await search.run(state, goal=at)
        effort = Effort.of_search(result, detail="" if result.script else method.reason).after(*failed)
        effort = replace(effort, cost=effort.cost + method.cost.since(before))
        if result.script is not None:
            if complaint := await self._place(effort, result.script, likely):
                self._fail(effort, likely, complaint)
            return
        if (
            result.outcome == "exhausted"
            and method.failures[0] - requests == method.failures[1] - unanswered > 0
        ):
            # The proposer answered no request, so nothing was tried.
            effort = replace(effort, outcome="error")
        else:
            again = await self.cite(state, at, effort, likely=likely)
            if again is None:
                return
            effort = again
            if method.negate and len(self.goals) == len(self._declaration.sorries) == 1:
                effort = await self._negate(state.goals[at], effort)
        self._fail(effort, likely)

    async def write(
        self,
        number: int,
        sorry: Sorry,
        *,
        wholly: WholeProofMethod,
        path: str,
        context: str,
        premises: ShownPremises | None,
    ) -> None:
        """Prove a sorry with an author, which writes the text for its place, and by Lean's errors mends it; before that
        by known proofs, after it by a search with lemmas.

        Args:
            number: of the sorry, and of its goal where Lean has as many.
            sorry: the declaration's.
            wholly: the author, whose session's process is parked for other searches meanwhile.
            path: of the file in the project, for the author.
            context: the file's text before the declaration, for the author.
            premises: what the author is shown beside a goal; None: nothing.

        Raises:
            ReplError: no process gets as far as the declaration (see `Session`).
        """
        matched = len(self.goals) == len(self._declaration.sorries)
        failed: list[Effort] | None = []
        goal = ""
        shown: tuple[str, ...] = ()
        hypotheses: tuple[str, ...] = ()
        if matched:
            state, at = self.goals[number]
            goal = state.goals[at].render()
            hypotheses = tuple(one.render() for one in state.goals[at].vars)
            failed = await self.recall(state, at, likely=sorry.ordinal)
        if failed is None or sorry.ordinal in self.result.solved:
            return
        if premises is not None and matched:
            shown = await premises.texts(state_of([state.goals[at]]))
        timeout_s, calls = max(self._budget.seconds, 10.0), self._session.calls
        check = SorryCheck(
            self._session, self._declaration, sorry, timeout_s=timeout_s, verbatim=wholly.verbatim
        )
        result = await prove_whole(
            WholeAsk(
                context,
                self._declaration.text,
                goal,
                count=wholly.proofs,
                seed=wholly.seed,
                ordinal=sorry.ordinal,
                premises=shown,
                place=InFile(path, self._declaration, sorry, hypotheses),
            ),
            author=_Parking(wholly.author, self._session),
            check=check,
            seconds=self._budget.seconds,
            repairs=wholly.repairs,
            verbatim=wholly.verbatim,
        )
        if result.failure is not None:
            raise result.failure
        effort = Effort.of_whole(result, repl_calls=self._session.calls - calls).after(*failed)
        if premises is not None and result.found is None:
            effort = replace(effort, detail="; ".join(filter(None, (effort.detail, premises.reason))))
        if result.found is not None and check.replacement is not None:
            proof = _laid_out(result.found, self._declaration, sorry) if wholly.verbatim else result.found
            self.result.solved[sorry.ordinal] = SolvedSorry(tactics_of(proof), check.replacement, effort)
            return
        if matched and result.outcome != "error":
            again = await self.cite(state, at, effort, likely=sorry.ordinal, author="rung 0's")
            if again is None:
                return
            effort = again
        self._fail(effort, sorry.ordinal)

    async def recall(self, state: State, at: int, *, likely: int | None) -> list[Effort] | None:
        """Try the known proofs on a goal; return the failed efforts, None if a proof was placed."""
        failed: list[Effort] = []
        known = self._known
        candidates = (
            [one for some in known.values() for one in some] if likely is None else known.get(likely, ())
        )
        for one in candidates:
            budget = replace(self._budget, nodes=len(one.tactics), calls=None)
            result = await Search(self._session, RecallProposer(one), budget=budget).run(state, goal=at)
            effort = Effort.of_search(result, detail=f"by the tactics of proof {one.proof}").after(*failed)
            if result.script and not await self._place(effort, result.script, likely):
                return None
            failed = [effort]
        return failed

    async def cite(
        self, state: State, at: int, effort: Effort, *, likely: int | None, author: str = ""
    ) -> Effort | None:
        """Search again with the method's lemmas; return the whole effort, None if a proof was found and placed.

        Args:
            author: of the method's tactics, if it is not the rung itself: then only a proof that cites a lemma counts.
        """
        spent_since, method = self._meter(effort), self._method
        before = method.cost
        try:
            cited = await cite(
                self._session, state, at, method=method, budget=self._budget, failures=self._failures
            )
        except StateLost:
            # The result of the search without lemmas remains.
            return spent_since()
        if cited is None:
            return effort
        spent = replace(Effort.of_search(cited.result), cost=method.cost.since(before))
        complaint = ""
        for script in cited.scripts():
            detail = cited.citation(script)
            if author and not detail:
                if await self._holds(script, likely):
                    break
                continue
            if author:
                detail = f"{detail}; the steps are {author}"
            complaint = await self._place(replace(spent.after(effort), detail=detail), script, likely)
            if not complaint:
                return None
        self.result.unplaced = self.result.unplaced or complaint
        return effort.after(spent)

    async def _negate(self, goal: Goal, effort: Effort) -> Effort:
        """Search for a proof of the negation; return the whole effort, with the outcome "disproved" if there is one."""
        spent_since, method = self._meter(effort), self._method
        try:
            tactics = await disprove(
                self._session,
                self._declaration,
                goal,
                method=replace(method, remaining=None),
                budget=self._budget,
            )
        except StateLost:
            # The result of the theorem's own search remains.
            tactics = None
        spent = spent_since()
        if tactics is None:
            return spent
        return replace(spent, outcome="disproved", detail=f"false as it stands, by {'; '.join(tactics)}")

    def _meter(self, effort: Effort) -> Callable[[], Effort]:
        """Return a function that adds the calls, time and cost since now to an effort."""
        session, method = self._session, self._method
        calls, began, before = session.calls, time.monotonic(), method.cost
        return lambda: replace(
            effort,
            repl_calls=effort.repl_calls + session.calls - calls,
            seconds=effort.seconds + time.monotonic() - began,
            cost=effort.cost + method.cost.since(before),
        )

    def _fail(self, effort: Effort, likely: int | None, complaint: str = "") -> None:
        self.result.unplaced = self.result.unplaced or complaint
        self.result.unsolved.append((likely, effort))

    async def _place(self, effort: Effort, script: Script, likely: int | None) -> str:
        """Try the script at every unsolved sorry, the likely one first, and keep it where Lean accepts it.

        Returns:
            the first complaint if no sorry takes it, else "".
        """
        solved = self.result.solved
        first, taken = "", False
        for sorry in sorted(
            self._declaration.sorries, key=lambda sorry: (sorry.ordinal != likely, sorry.ordinal)
        ):
            if sorry.ordinal in solved:
                continue
            fitting = await self._fitting(script, sorry)
            if isinstance(fitting, Replacement):
                solved[sorry.ordinal] = SolvedSorry(script.tactics, fitting, effort)
                taken = True
            else:
                first = first or fitting
        return "" if taken else first or "(no place is left for it)"

    async def _holds(self, script: Script, ordinal: int | None) -> bool:
        """Return whether Lean accepts the script at a sorry; nothing is kept."""
        sorries = [sorry for sorry in self._declaration.sorries if sorry.ordinal == ordinal]
        return any([isinstance(await self._fitting(script, sorry), Replacement) for sorry in sorries])

    async def _fitting(self, script: Script, sorry: Sorry) -> Replacement | str:
        """Return the script in the sorry's place as Lean accepts it, or its first complaint."""
        declaration, first = self._declaration, ""
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
            errors = await errors_with(self._session, declaration, replacement)
            if not errors:
                return replacement
            first = first or _first_line(errors[0])
        return first


async def prove_declaration(
    session: Session,
    declaration: Declaration,
    *,
    method: SearchMethod,
    budget: Budget,
    known: Mapping[int, Sequence[KnownProof]] | None = None,
    wholly: WholeProofMethod | None = None,
    path: str = "",
    context: str = "",
    premises: ShownPremises | None = None,
) -> DeclarationResult:
    """Prove every sorry of the declaration, one after the other: by a search or, if there is one, by an author.

    See `DeclarationProver` and its `write` for the arguments.

    Raises:
        CannotAttempt, ReplError: see `DeclarationProver.start` and `DeclarationProver.search`.
    """
    prover = DeclarationProver(session, declaration, budget=budget, method=method, known=known)
    await prover.start()
    if wholly is not None:
        for number, sorry in enumerate(declaration.sorries):
            await prover.write(number, sorry, wholly=wholly, path=path, context=context, premises=premises)
        return await prover.finish()
    ordinals = [sorry.ordinal for sorry in declaration.sorries]
    for number in range(len(prover.goals)):
        if len(prover.result.solved) == len(ordinals):
            break
        # Goals mostly come in the order of their sorries.
        await prover.search(number, likely=ordinals[number] if len(prover.goals) == len(ordinals) else None)
    return await prover.finish()


def _laid_out(text: str, declaration: Declaration, sorry: Sorry) -> str:
    """Return what stands in a sorry's place as `read_proof` lays proofs out; as it is where that cannot be read."""
    read = read_proof(" " * sorry.column + text, declaration.text, ordinal=sorry.ordinal)
    return read.proofs[0] if read.proofs else text


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


@dataclass(frozen=True, slots=True)
class _Parking:
    """An author that parks the session's process for other searches meanwhile: a model may write for a minute."""

    author: Author
    session: Session

    async def write(self, ask: WholeAsk) -> AuthorAnswers:
        self.session.park()
        return await self.author.write(ask)


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:300] if lines else "(no message)"
