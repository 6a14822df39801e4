"""The search for proofs of one declaration's sorries, and for a proof of its negation; or an author's whole proofs.

The declaration is elaborated in its frame: the scanner's preamble (open namespaces, sections, variables, options)
precedes its text, because each REPL call starts with a fresh scope. The REPL's goals carry no positions, so a found
proof is tried at every sorry of the declaration and kept where the declaration then elaborates without error.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipeline.endpoint.errors import Usage
from pipeline.gate.axioms import ALLOWED_AXIOMS, PRINTED_FOR, read_axioms
from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import Budget, KnownProof
from pipeline.lean.client.errors import ReplDied, ReplRefused, short
from pipeline.lean.client.messages import Goal, Unit
from pipeline.lean.goal_text import as_lean_prints, state_of
from pipeline.lean.pool.session import Session, SetupFailed, State, StateLost, Stepped
from pipeline.lean.source.splice import Declaration, Replacement, Script, join, placements
from pipeline.prove.effort import DeclarationResult, Effort, SolvedSorry
from pipeline.prove.graph import Failures
from pipeline.prove.lemmas import RecallProposer, cite, small_budget
from pipeline.prove.premises import ShownPremises
from pipeline.prove.search import Search, SearchMethod
from pipeline.prove.whole_proof import (
    AuthorAnswers,
    WholeAsk,
    WholeProofMethod,
    block_of,
    check_in,
    fitting,
    prove_whole,
    read_proof,
)
from store.domain.records import Sorry

# ---- The negation of a theorem
# A theorem with a sorry may be false as stated, so its negation is tried, within a small budget. The statement is read
# off Lean's printed goal, and Lean does not always read its own output, so Lean must agree twice: the theorem, sorry
# and all, must prove the text; and in the end the theorem and the proof of the negation together must give False. The
# search for the negation cannot use the theorem itself. A proof counts only if Lean reports axioms all
# allowed by the gate: another sorry, or an axiom of the project, would prove anything.


_IS_A_PROPOSITION = "show (_ : Prop)"
"""A tactic accepted by propositions, and by no goal of data."""

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
    if not await _accepts(session, f"{theorem}\nexample : {claim} := @{declaration.name}\n"):
        return None
    few = small_budget(budget, nodes=NODES, calls=CALLS)
    try:
        states = await session.distil(declaration.beside(f"theorem {_NAME} : ¬({claim}) := by\n  sorry\n"))
    except ReplRefused:
        return None
    if len(states) != 1 or len(states[0].goals) != 1:
        session.release(states)
        return None
    result = await Search(session, method, few).run(states[0])
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
        kind = variable.type
        if variable.inaccessible and variable.user_name.startswith("inst"):
            binders.append(f"[{kind}]")
        elif variable.inaccessible or not _WRITABLE.fullmatch(variable.user_name):
            return None
        else:
            binders.append(f"({variable.user_name} : {kind})")
    claim = goal.target
    text = f"∀ {' '.join(binders)}, {claim}" if binders else claim
    return None if "✝" in text or "?" in text else text


async def _contradicts(session: Session, theorem: str, name: str, claim: str, script: Script) -> bool:
    bracketed = f"({script.inline()})".replace("\n", "\n ").split("\n")
    for lines in (script.block(), bracketed):
        proof = "\n".join(f"  {line}" for line in lines)
        refuted = f"theorem {_NAME} : ¬({claim}) := by\n{proof}\n\n#print axioms {_NAME}\n"
        text = f"{refuted}\nexample : False := {_NAME} @{name}\n"
        if await _accepts(session, f"{theorem}\n{text}", sound=_NAME):
            return True
    return False


async def _accepts(session: Session, text: str, *, sound: str = "") -> bool:
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
    lines = [message.data for unit in units for message in unit.messages if not message.is_error]
    result = [
        axioms
        for text in lines
        for named in PRINTED_FOR.findall(text)
        if named.rpartition(".")[2] == name and not isinstance(axioms := read_axioms(text, named), str)
    ]
    return len(result) == 1 and ALLOWED_AXIOMS.issuperset(result[0])


# A line at the left edge that begins so continues the tactic above it.
_GOES_ON = ("|", "<;>", ")", "]", "}", "⟩")


class CannotAttempt(Exception):  # noqa: N818 - named by what it means for the caller
    """The declaration cannot be worked on; the message is recorded with the attempt."""


_OpenGoal = tuple[State, int]
"""A state, and the index of one of its goals."""
_LOST = (StateLost, SetupFailed, ReplDied)
"""Errors that end the work on one goal; a failure to start a process ends everything."""


def _goal(one: _OpenGoal) -> Goal:
    state, at = one
    return state.goals[at]


@dataclass(slots=True)
class DeclarationProver:
    """Proves the sorries of one declaration.

    Attributes:
        session: at the declaration's place in its file.
        declaration: with its sorries.
        budget: of one search, or of an author's work on one sorry.
        method: of searching.
        known: by ordinal, proofs of the same statement from elsewhere, to try first.
        wholly: the author of whole proofs, instead of a search; None: a search.
        path: of the file in the project, for the author.
        premises: premises for the author beside a goal; None: none.
        stated: the ordinals of sorries in the statement, which no proof may change.
    """

    session: Session
    declaration: Declaration
    budget: Budget
    method: SearchMethod
    known: Mapping[int, Sequence[KnownProof]] = field(default_factory=dict)
    wholly: WholeProofMethod | None = None
    path: str = ""
    premises: ShownPremises | None = None
    stated: frozenset[int] = frozenset()
    _result: DeclarationResult = field(default_factory=DeclarationResult, init=False)
    _goals: list[_OpenGoal] = field(default_factory=list, init=False)
    """Lean's goals of the declaration."""
    _texts: set[str] = field(default_factory=set, init=False)
    """Of the goals already tried."""
    _failures: Failures = field(default_factory=dict, init=False)
    _written: Usage = field(default_factory=Usage, init=False)
    """The cost of the author's answers."""

    async def prove(self) -> DeclarationResult:
        """Prove every sorry, one after the other, until a failure of the model's `stopped` it.

        Raises:
            CannotAttempt: the declaration does not compile, or Lean makes no goals of it.
            ReplError: no process gets as far as a search (see `Session`).
        """
        states = await self._start()
        sorries = self._provable
        # Lean makes a goal of a sorry in a statement, but of none in the tactics of a default value.
        both = (self.declaration.sorries, sorries)
        matching = next((some for some in both if len(some) == len(self._goals)), None)
        work: list[tuple[Sorry | None, _OpenGoal | None]]
        if matching is not None:
            # They mostly come in the order of their sorries.
            pairs = zip(matching, self._goals, strict=True)
            work = [(sorry, goal) for sorry, goal in pairs if sorry in sorries]
        elif self.wholly is None:
            work = [(None, goal) for goal in self._goals]
        else:
            work = [(sorry, None) for sorry in sorries]
        for sorry, goal in work:
            if len(self._result.solved) == len(sorries):
                break
            likely = None if sorry is None else sorry.ordinal
            spent = self._meter(Effort("error"))
            try:
                await self._prove(sorry, goal, likely)
            except _LOST as error:
                # Proofs of the other sorries stay.
                self._fail(replace(spent(), detail=short(str(error))), likely)
            except JobError as error:
                # Earlier proofs were paid for.
                self._result.stopped = error
                break
        self.session.release(states)
        await self._join()
        return self._result

    @property
    def _provable(self) -> tuple[Sorry, ...]:
        return tuple(one for one in self.declaration.sorries if one.ordinal not in self.stated)

    async def _prove(self, sorry: Sorry | None, goal: _OpenGoal | None, likely: int | None) -> None:
        """Prove a sorry: by known proofs, then by a search or an author, then with lemmas; or its negation.

        Args:
            sorry: the goal's, probably; None where Lean's goals cannot be matched to sorries, before a search.
            goal: the sorry's; None where they cannot be matched, before an author.
            likely: the sorry's ordinal.
        """
        text = "" if goal is None else as_lean_prints(_goal(goal))
        if likely in self._result.solved and (self.wholly is not None or text in self._texts):
            return  # the other goal's proof fits here
        self._texts.add(text)
        failed: list[Effort] | None = [] if goal is None else await self._recall(goal, likely)
        if failed is None:
            return
        if self.wholly is None:
            assert goal is not None
            effort = (await self._search(goal)).after(*failed)
        else:
            assert sorry is not None
            effort = (await self._write(self.wholly, sorry, goal)).after(*failed)
            if (written := effort.written) is not None:
                text = (
                    _laid_out(written.text, self.declaration, sorry) if self.wholly.verbatim else written.text
                )
                solved = SolvedSorry(tactics_of(text), written.replacement, effort)
                self._result.solved[sorry.ordinal] = solved
                return
        if effort.script is not None:
            if complaint := await self._place(effort, effort.script, likely):
                self._fail(effort, likely, complaint)
            return
        if goal is not None and effort.outcome != "error":
            again = await self._cite(goal, effort, likely)
            if again is None:
                return
            effort = again
            alone = len(self._goals) == len(self.declaration.sorries) == 1
            if self.wholly is None and self.method.negate and alone:
                effort = await self._negate(_goal(goal), effort)
        self._fail(effort, likely)

    async def _start(self) -> tuple[State, ...]:
        """Let Lean make a goal of each sorry."""
        text = self.declaration.framed_for_distil()
        try:
            states = await self.session.distil(text, timeout_s=max(self.budget.seconds, 10.0))
        except ReplRefused as error:
            raise CannotAttempt(
                f"Lean makes no goal of the declaration: {_first_line(error.desc)}"
            ) from error
        self._goals = [(state, at) for state in states for at in range(len(state.goals))]
        if not self._goals:
            raise CannotAttempt("Lean makes no goal of the declaration")
        if self.declaration.may_be_data:
            for state, at in self._goals:
                said = await self.session.tactic(state, _IS_A_PROPOSITION, goal=at)
                if not isinstance(said, Stepped):
                    raise CannotAttempt("a goal of it is data, which may not be invented")
                self.session.release([said.state])
        return states

    async def _join(self) -> None:
        """If all of a declaration's sorries are solved, and Lean accepts them together, make them one text."""
        solved = self._result.solved
        for ordinals in self.declaration.ordinals:
            if len(ordinals) == 1 or not solved.keys() >= set(ordinals):
                continue
            parts = [solved[one] for one in ordinals]
            joint = join(self.declaration.data, [part.replacement for part in parts])
            if not isinstance(await fitting(self.session, self.declaration, [joint]), Replacement):
                continue
            tactics = tuple(tactic for part in parts for tactic in part.tactics)
            for one, part in zip(ordinals, parts, strict=True):
                lines = [f"together with the declaration's other {len(parts) - 1}", part.effort.detail]
                effort = replace(part.effort, detail="; ".join(filter(None, lines)))
                solved[one] = SolvedSorry(tactics, joint, effort)

    async def _search(self, goal: _OpenGoal) -> Effort:
        state, at = goal
        proposer = self.method.proposer
        search = Search(self.session, self.method, self.budget, failures=self._failures)
        before, asked, answered = proposer.cost, proposer.asked, proposer.answered
        result = await search.run(state, goal=at)
        result = replace(result, cost=proposer.cost.since(before))
        if result.script is not None:
            return result
        if proposer.asked > asked and proposer.answered == answered:
            # Nothing was tried.
            text = proposer.reason or "the model gave no answer in time"
            return replace(result, outcome="error", detail=text)
        return replace(result, detail=proposer.reason)

    async def _write(self, wholly: WholeProofMethod, sorry: Sorry, goal: _OpenGoal | None) -> Effort:
        """Have an author write the text for a sorry's place, and mend it by Lean's errors; the session's process is
        parked for other searches meanwhile.
        """
        ask = WholeAsk(self.declaration, sorry, self.path, seed=self.method.seed)
        if goal is not None:
            shown = _goal(goal)
            ask = replace(
                ask, goal=as_lean_prints(shown), hypotheses=tuple(one.render() for one in shown.vars)
            )
            if self.premises is not None:
                ask = replace(ask, premises=await self.premises.texts(state_of([shown])))
        calls = self.session.calls

        async def author(asked: WholeAsk) -> AuthorAnswers:
            self.session.park()
            answers = await wholly.author(asked)
            self._written += answers.usage
            return answers

        check = check_in(self.session, self.declaration, sorry, verbatim=wholly.verbatim)
        parking = replace(wholly, author=author)
        effort = await prove_whole(ask, parking, check, seconds=self.budget.seconds)
        effort = replace(effort, repl_calls=self.session.calls - calls)
        if effort.written is not None or self.premises is None:
            return effort
        return replace(effort, detail="; ".join(filter(None, (effort.detail, self.premises.reason))))

    async def _recall(self, goal: _OpenGoal, likely: int | None) -> list[Effort] | None:
        """Try the known proofs on a goal; return the failed efforts, None if a proof was placed."""
        state, at = goal
        known = self.known.values() if likely is None else [self.known.get(likely, ())]
        failed: list[Effort] = []
        for one in itertools.chain.from_iterable(known):
            left = self.budget.seconds - sum(effort.seconds for effort in failed)
            budget = replace(self.budget, nodes=len(one.tactics), seconds=left, calls=None)
            result = await Search(self.session, SearchMethod(RecallProposer(one)), budget).run(state, goal=at)
            effort = replace(result, detail=f"by {one.said}").after(*failed)
            if result.script and not await self._place(effort, result.script, likely):
                return None
            failed = [effort]
        return failed

    async def _cite(self, goal: _OpenGoal, effort: Effort, likely: int | None) -> Effort | None:
        """Search again with the method's lemmas; return the whole effort, None if a proof was found and placed.

        With an author as the rung, the steps are rung 0's: then only a proof with a lemma counts.
        """
        spent_since, method = self._meter(effort), self.method
        before = method.proposer.cost
        try:
            cited = await cite(
                self.session, *goal, method=method, budget=self.budget, failures=self._failures
            )
        except _LOST:
            # The result of the search without lemmas remains.
            return spent_since()
        if cited is None:
            return effort
        spent = replace(cited.result, cost=method.proposer.cost.since(before))
        complaint = ""
        for script in cited.scripts():
            detail = cited.citation(script)
            if self.wholly is not None and not detail:
                own = [one for one in self.declaration.sorries if one.ordinal == likely]
                if any([isinstance(await self._fitting(script, one), Replacement) for one in own]):
                    break
                continue
            if self.wholly is not None:
                detail = f"{detail}; the steps are rung 0's"
            complaint = await self._place(replace(spent.after(effort), detail=detail), script, likely)
            if not complaint:
                return None
        self._result.unplaced = self._result.unplaced or complaint
        return effort.after(spent)

    async def _negate(self, goal: Goal, effort: Effort) -> Effort:
        """Search for a proof of the negation; return the whole effort, with the outcome "disproved" if there is one."""
        spent_since, method = self._meter(effort), replace(self.method, remaining=None)
        try:
            tactics = await disprove(self.session, self.declaration, goal, method=method, budget=self.budget)
        except _LOST:
            # The result of the theorem's own search remains.
            tactics = None
        spent = spent_since()
        if tactics is None:
            return spent
        return replace(spent, outcome="disproved", detail=f"false as it stands, by {'; '.join(tactics)}")

    def _meter(self, effort: Effort) -> Callable[[], Effort]:
        """Return a function that adds the calls, time and cost since now to an effort."""
        session, method = self.session, self.method
        calls, began, before = session.calls, time.monotonic(), method.proposer.cost + self._written
        return lambda: replace(
            effort,
            repl_calls=effort.repl_calls + session.calls - calls,
            seconds=effort.seconds + time.monotonic() - began,
            cost=effort.cost + (method.proposer.cost + self._written).since(before),
        )

    def _fail(self, effort: Effort, likely: int | None, complaint: str = "") -> None:
        self._result.unplaced = self._result.unplaced or complaint
        self._result.unsolved.append((likely, effort))

    async def _place(self, effort: Effort, script: Script, likely: int | None) -> str:
        """Try the script at every unsolved sorry, the likely one first, and keep it where Lean accepts it.

        Returns:
            the first complaint if no sorry takes it, else "".
        """
        solved = self._result.solved
        first, taken = "", False
        for sorry in sorted(self._provable, key=lambda sorry: (sorry.ordinal != likely, sorry.ordinal)):
            if sorry.ordinal in solved:
                continue
            fits = await self._fitting(script, sorry)
            if isinstance(fits, Replacement):
                solved[sorry.ordinal] = SolvedSorry(script.tactics, fits, effort)
                # It was paid for once.
                effort, taken = replace(effort, cost=Usage()), True
            else:
                first = first or _first_line(fits[0])
        return "" if taken else first or "(no place is left for it)"

    async def _fitting(self, script: Script, sorry: Sorry) -> Replacement | tuple[str, ...]:
        layouts = placements(self.declaration, sorry, script)
        return await fitting(self.session, self.declaration, layouts)


def _laid_out(text: str, declaration: Declaration, sorry: Sorry) -> str:
    """Return the text of a sorry's place in `read_proof`'s layout; unchanged if it cannot be read."""
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


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:300] if lines else "(no message)"
