"""Reuse the repository's proofs: for the same statement again, and as lemmas for other statements.

If a statement or goal recurs (`KnownProof`), its proof is the first candidate: another file or branch may state the
same lemma, and a sorry in a changed file is new to every rung. The search replays it tactic by tactic, Lean elaborates
it in its new place, and the gate judges it like any other.

A proved lemma that is still a sorry upstream (`Lemma`) is never cited by name: the citation would rest on that sorry. A
later search may bring it in with its whole proof (`CitingProposer`). A lemma filled in the source is in Lean's
environment, and every rung may cite it.

The same statement elsewhere, in another repository or a package (`Stated`), is tried before all of these.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pipeline.jobs.specs import MOST_LEMMAS, Budget, KnownProof, Lemma, ProveKnown, Stated
from pipeline.lean.client.messages import Goal
from pipeline.lean.goal_text import as_lean_prints, hypotheses, shape, split_goals, strip_parentheses
from pipeline.lean.pool.session import Session, State
from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.lexer import tokens_of_text, words
from pipeline.lean.source.splice import Script
from pipeline.lean.tactic_text import LONGEST
from pipeline.models.tactics.goals import NAME, statement
from pipeline.prove.effort import Effort
from pipeline.prove.graph import Candidate, Failures, Proposer, TacticRequest
from pipeline.prove.search import Search, SearchMethod
from store.domain.identity import bare_statement, normalise, short_hash


def recalled(known: ProveKnown) -> dict[str, tuple[KnownProof, ...]]:
    """Map sorries to the proofs to try first: from the same statement elsewhere, then from the repository."""
    return {
        sorry: (
            *(proof for one in known.stated.get(sorry, ()) for proof in transferred(one)),
            *known.proofs.get(sorry, ()),
        )
        for sorry in (*known.stated, *(known.proofs.keys() - known.stated.keys()))
    }


def transferred(one: Stated) -> Iterator[KnownProof]:
    """Yield proofs by a theorem with the same statement: by its name, if citable, and by its proof's text.

    Its hypotheses are among the goal's, under whatever names.
    """
    message = f"{one.name} ({one.place}), which states the same"
    if one.citable:
        yield KnownProof(message, (f"exact {one.name} ..",))
        yield KnownProof(message, (f"apply {one.name} <;> assumption",))
    if one.proof:
        # Theorems of one name may have several proofs.
        name = f"{_local_name(one.name)}_{short_hash(one.proof)[:8]}"
        for text in _texts(name, one.goal, bare_statement(normalise(one.statement)), one.proof):
            yield KnownProof(f"the proof of {message}", (text, f"apply {name} <;> assumption"))


class RecallProposer(Proposer):
    """A proposer of a known proof's next tactic, as long as the search follows it."""

    def __init__(self, known: KnownProof) -> None:
        self._tactics = known.tactics

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        at = len(asked.steps)
        if asked.steps != self._tactics[:at] or at >= len(self._tactics):
            return []
        return [Candidate(self._tactics[at], self._tactics[at])]


# ---- A search that cites proved lemmas that are still a sorry upstream
# A lemma's name alone would rest on the sorry, so each is brought in with its whole proof. The first steps are
#
#     have swap_1a2b3c4d (p q : Prop) (h : p ∧ q) : q ∧ p := by
#       exact ⟨h.2, h.1⟩
# and from there on the lemma is a hypothesis like any other: the rung continues with its own steps, and `apply` and
# `rw` with the lemma are offered beside them. Statement and proof are elaborated together in their new place: a text
# with another reading there proves its new meaning, or fails and costs a tactic. A found proof is tried in its place
# and judged by the gate like any other. This search follows an unsuccessful one without lemmas, on a small budget, and
# only if lemmas have something in common with the goal. Their choice and order depend on the goal and the lemmas alone.


CITING_MOST = 3
"""The maximum of lemmas for a goal, the nearest first."""
NODES, CALLS = 32, 400
"""The budget in states and tactics."""
SHARE_OF_SECONDS, MOST_SECONDS = 0.2, 10.0
"""The share of a sorry's own seconds for a small search after the main one, and its maximum."""

_USE_LOG_PROBABILITY = -1.0
"""The log-probability of a step with a lemma in a model's search: the model does not rate it."""
_GRAMMAR = words("( ) { } [ ] ⟨ ⟩ ⦃ ⦄ ✝ , . : := => ↦ ⊢ @ _ ∀ → fun λ Prop Type Sort")
_VARIABLE = re.compile(r"[A-Za-zα-ωΑ-Ω][\d'₀-₉]*")
_BINDER = re.compile(r"[({\[⦃]([^:(){}\[\]⦃⦄]+):")
_LEVEL = re.compile(r"\b(Type|Sort)(?:\*| +(?:\((?:max|imax|[uvw])\b[^()]*\)|[uvw][\w']*))")
_LEVELS = re.compile(r"\.\{[^{}]*\}")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]")
_OPENING, _CLOSING = "([{⟨⦃", ")]}⟩⦄"


# ---- a lemma as a step


def name_of(lemma: Lemma) -> str:
    """Return a lemma's local name: the end of its full name, and its proof's id."""
    return f"{_local_name(lemma.declaration)}_{lemma.proof[:8]}"


def _local_name(declaration: str) -> str:
    last = _NOT_IN_A_NAME.sub("_", declaration.rpartition(".")[2]).strip("_0123456789")
    return last or "known"


@lru_cache(maxsize=1024)
def texts_of(lemma: Lemma) -> tuple[str, ...]:
    """Return alternative steps to bring a lemma in, the best first; none if it cannot be written.

    The first is Lean's goal: with the declaration's `variable` binders, or the context of a sorry in mid-proof. The
    second is the source's statement, for goals that Lean cannot read back.
    """
    lines = "".join(f"\n  {line}" for tactic in lemma.tactics for line in tactic.split("\n"))
    return _texts(name_of(lemma), lemma.goal, lemma.statement, f"by{lines}")


def _texts(name: str, goal: str, statement: str, proof: str) -> tuple[str, ...]:
    texts = (f"have {name} {one} := {proof}" for one in _stated(goal, statement))
    return tuple(text for text in texts if len(text) <= LONGEST and not complaints(text))


def _stated(goal: str, statement: str) -> tuple[str, ...]:
    result = (_as_printed(goal), _as_written(statement))
    return tuple(dict.fromkeys(_any_level(one) for one in result if one))


def _as_printed(goal: str) -> str:
    """Return binders and type of the one goal; "" if it cannot be written so."""
    stated = statement(goal) if len(split_goals(goal)) == 1 else None
    return "" if stated is None else " ".join(stated.header.removeprefix(f"theorem {NAME}").split())


def _as_written(text: str) -> str:
    """Return binders and type of a declaration's statement; "" without a type."""
    return "" if text.startswith(".") or _outside(text, ":") is None else text


def _any_level(text: str) -> str:
    """Replace universe names, which are unknown elsewhere: a hypothesis has one level only, and Lean infers it."""
    return _LEVEL.sub(r"\1 _", _LEVELS.sub("", text))


# ---- the choice of lemmas


@dataclass(frozen=True, slots=True)
class Contents:
    """The constants and symbols of a proposition: all of them, and those of its conclusion.

    They are read off its text, without hypotheses and names of one letter, which count as variables.
    """

    all: frozenset[str]
    conclusion: frozenset[str]

    @classmethod
    def of_goal(cls, goal: str) -> Contents:
        """Read a goal as Lean prints it."""
        lines = [line for line in goal.split("\n") if not line.startswith("case ")]
        before, _, target = "\n".join(lines).rpartition("⊢")
        return cls._of(before, target, hypotheses(goal))

    @classmethod
    def of_statement(cls, text: str) -> Contents:
        """Read binders and type of a declaration."""
        at = _outside(text, ":")
        before, target = ("", text) if at is None else (text[:at], text[at + 1 :])
        return cls._of(before, target, set(" ".join(_BINDER.findall(before)).split()))

    @classmethod
    def _of(cls, before: str, target: str, names: set[str]) -> Contents:
        return cls(_words(f"{before} {target}", names), _words(_conclusion(target), names))

    def likeness(self, other: Contents) -> float:
        """Return the share of words in common, 0 to 1: half of it by the conclusions, half by all."""
        return (_share(self.conclusion, other.conclusion) + _share(self.all, other.all)) / 2


@lru_cache(maxsize=2 * MOST_LEMMAS)
def contents_of(lemma: Lemma) -> Contents:
    """Return a lemma's constants and symbols: those of Lean's goal, if there is one."""
    if len(split_goals(lemma.goal)) == 1:
        return Contents.of_goal(lemma.goal)
    return Contents.of_statement(lemma.statement)


def nearest(lemmas: Iterable[Lemma], goal: Goal) -> tuple[Lemma, ...]:
    """Return the few lemmas with the most in common with a goal.

    The order of equals stays, and of lemmas with the same statement only the first counts.
    """
    wanted = Contents.of_goal(as_lean_prints(goal))
    near = ((contents_of(one).likeness(wanted), one) for one in lemmas)
    ranked = sorted((one for one in near if one[0]), key=lambda one: -one[0])
    result: dict[str, Lemma] = {}
    for _, lemma in ranked:
        stated = _stated(lemma.goal, lemma.statement)
        if texts_of(lemma) and not any(text in result for text in stated):
            result |= dict.fromkeys(stated, lemma)
    return tuple(itertools.islice(dict.fromkeys(result.values()), CITING_MOST))


def _words(text: str, names: set[str]) -> frozenset[str]:
    return frozenset(
        word
        for word in (token.text for token in tokens_of_text(text)[0])
        if word not in _GRAMMAR and word.split(".")[0] not in names and not _VARIABLE.fullmatch(word)
    )


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0


def _conclusion(text: str) -> str:
    """Return a proposition without its outermost quantifiers and premises."""
    while True:
        text = strip_parentheses(" ".join(text.split()))
        result = shape(text)
        at = _outside(text, ",") if result.connective == "forall" else None
        if result.connective == "arrow":
            text = result.right
        elif at is not None:
            text = text[at + 1 :]
        else:
            return text


def _outside(text: str, symbol: str) -> int | None:
    """Return the first position of a symbol outside of brackets; None without one."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if not depth and character == symbol:
            return at
    return None


# ---- the search


def small_budget(budget: Budget, *, nodes: int, calls: int) -> Budget:
    """Return the budget of a small search after the main one."""
    return replace(
        budget,
        nodes=min(budget.nodes, nodes),
        seconds=min(SHARE_OF_SECONDS * budget.seconds, MOST_SECONDS),
        calls=calls if budget.calls is None else min(budget.calls, calls),
    )


class CitingProposer(Proposer):
    """A proposer that brings in lemmas one by one, and then mixes their uses with a rung's tactics."""

    def __init__(self, proposer: Proposer, lemmas: Sequence[Lemma], *, model: bool = False) -> None:
        """Args:
        proposer: the rung.
        lemmas: in the order of their use.
        model: whether the rung's steps have probabilities.
        """
        self._proposer = proposer
        self._log_probability = _USE_LOG_PROBABILITY if model else 0.0
        self._lemmas = tuple(lemmas)
        self._number = {text: at for at, lemma in enumerate(lemmas) for text in texts_of(lemma)}

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        """Return the steps to bring further lemmas in, until another step was done, and the rung's tactics.

        The first steps are lemmas alone: the rung's tactics without them were tried before.
        """
        if not asked.steps:
            return self._to_bring(after=-1)
        brought = [self._number[step] for step in asked.steps if step in self._number]
        said = await self._proposer.propose(asked)
        uses = [self._uses(self._lemmas[at], asked.goals[0]) for at in brought]
        fitting = [one for of_lemma, fits in uses for one in of_lemma if fits]
        others = [one for of_lemma, fits in uses for one in of_lemma if not fits]
        to_bring = self._to_bring(after=max(brought, default=-1)) if len(brought) == len(asked.steps) else ()
        return itertools.chain(to_bring, fitting, said, others)

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:
        """Forward the rung's own candidates."""
        if candidate.template not in _TEMPLATES:
            self._proposer.saw(candidate, parsed=parsed)

    def _to_bring(self, *, after: int) -> Iterator[Candidate]:
        for text, at in self._number.items():
            if at > after:
                # It only adds a hypothesis.
                yield Candidate(text, _BRING, commits=True)

    def _uses(self, lemma: Lemma, goal: Goal) -> tuple[list[Candidate], bool]:
        """Return the steps with a lemma, and whether the target has all constants of its conclusion."""
        name, conclusion = name_of(lemma), contents_of(lemma).conclusion
        steps = [(f"apply {name}", _APPLY, 1.0)]
        if {"=", "↔"} & conclusion:
            steps += [(f"rw [{name}]", _REWRITE, 2.0), (f"rw [← {name}]", _REWRITE, 3.0)]
        target = _words(goal.target, {variable.user_name for variable in goal.vars})
        uses = [
            Candidate(text, template, cost=cost, log_probability=self._log_probability)
            for text, template, cost in steps
        ]
        return uses, conclusion <= target


_BRING, _APPLY, _REWRITE = "have _ _ : _ := by _", "apply _ (a lemma)", "rw [_] (a lemma)"
_TEMPLATES = frozenset({_BRING, _APPLY, _REWRITE})


@dataclass(frozen=True, slots=True)
class CitingResult:
    """The result of a search with these lemmas."""

    result: Effort
    lemmas: tuple[Lemma, ...]

    def scripts(self) -> tuple[Script, ...]:
        """Return the proof without the lemmas unnamed in later steps, and the proof as found.

        A tactic may use a hypothesis without naming it: Lean decides whether the first is a proof.
        """
        script = self.result.script
        if script is None:
            return ()
        kept = [
            step
            for at, step in enumerate(script.steps)
            if (lemma := self._brought_by(step.tactic)) is None
            or any(name_of(lemma) in later.tactic for later in script.steps[at + 1 :])
        ]
        return tuple(dict.fromkeys((Script(tuple(kept)), script)))

    def citation(self, script: Script) -> str:
        """Return the proofs cited in a script, for people; "" for none."""
        cited = [lemma for tactic in script.tactics if (lemma := self._brought_by(tactic)) is not None]
        names = " and ".join(f"{one.declaration} (proof {one.proof})" for one in cited)
        return f"brings in {names}" if names else ""

    def _brought_by(self, tactic: str) -> Lemma | None:
        return next((lemma for lemma in self.lemmas if tactic in texts_of(lemma)), None)


async def cite(
    session: Session,
    state: State,
    at: int,
    *,
    method: SearchMethod,
    budget: Budget,
    failures: Failures,
) -> CitingResult | None:
    """Search for a proof of a goal with lemmas; None if none has anything in common with the goal.

    Args:
        session: at the goal's place in its file.
        state: with the goal.
        at: its index there.
        method, budget, failures: of the search without lemmas. Of equally near ones of its lemmas the order counts.

    Raises:
        StateLost, ReplError: as `Search.run`.
    """
    # Many lemmas take seconds the first time, so a thread ranks them.
    near = await asyncio.to_thread(nearest, method.lemmas, state.goals[at])
    if not near:
        return None
    citing = replace(method, proposer=CitingProposer(method.proposer, near, model=method.scoring is not None))
    few = small_budget(budget, nodes=NODES, calls=CALLS)
    return CitingResult(await Search(session, citing, few, failures=failures).run(state, goal=at), near)
