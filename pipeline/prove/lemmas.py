"""Proofs that the repository already has: for the same statement again, and as lemmas for other statements.

If a statement or goal recurs (`KnownProof`), its proof is the first candidate: another file or branch may state the
same lemma, and a sorry whose file changed is new to every rung. The search replays it tactic by tactic, Lean elaborates
it in its new place, and the gate judges it like any other.

A lemma that is proved and still a sorry upstream (`Lemma`) is never cited by name: the citation would rest on that
sorry. A later search may bring it in with its whole proof (`CitingProposer`). A lemma that is filled in the source is
in Lean's environment, and every rung may cite it.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from pipeline.jobs.specs import Budget
from pipeline.lean.client.messages import Goal
from pipeline.lean.goal_text import as_lean_prints, hypotheses, shape, split_goals, strip_parentheses
from pipeline.lean.pool.session import Session, State
from pipeline.lean.source.forbidden import complaints
from pipeline.lean.source.lexer import tokens_of_text, words
from pipeline.lean.source.splice import Script
from pipeline.models.tactics.goals import NAME, statement
from pipeline.models.tactics.requests import LONGEST
from pipeline.prove.graph import Candidate, Failures, Proposer, Remaining, Scoring, TacticRequest
from pipeline.prove.search import Search, SearchResult
from store.view import queries
from store.view.queries import citable_proofs, known_proofs

MOST = 3
"""Known proofs that are tried for a sorry, the newest first."""
MOST_LEMMAS = 1000
"""Lemmas of a branch from which a search takes the few that are nearest to its goal: the newest that are proved."""


@dataclass(frozen=True, slots=True)
class KnownProof:
    """A proof that is known: its id and its tactics, in order."""

    proof: str
    tactics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lemma:
    """What a sorry that still stands in the source says, and a proof of it that stood the gate.

    Attributes:
        sorry: its id.
        proof: the proof's.
        declaration: the full name.
        statement: the declaration's binders and type, as its source has them.
        goal: what the tactics prove, as Lean prints a goal; "" where Lean has not said it.
        tactics: the proof's, in order.
    """

    sorry: str
    proof: str
    declaration: str
    statement: str
    goal: str
    tactics: tuple[str, ...]


class RecallProposer:
    """Proposes a known proof's next tactic, as long as the search goes its way (`proposing.Proposer`)."""

    def __init__(self, known: KnownProof) -> None:
        self._tactics = known.tactics

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        at = len(asked.steps)
        if asked.steps != self._tactics[:at] or at >= len(self._tactics):
            return []
        return [Candidate(self._tactics[at], self._tactics[at])]

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:
        """Learn nothing: there is one way to go."""


def known_to(
    database_db: Path, *, repository: str, sorries: Iterable[str], simulated: bool
) -> Mapping[str, tuple[KnownProof, ...]]:
    """Return, by sorry, what the repository's proofs offer; one text once.

    Args:
        database_db: the view, read only; the daemon may be running.
        repository: its key.
        sorries: ids.
        simulated: whether the simulator's proofs are meant, and not Lean's; never both.

    Raises:
        LogError: the view cannot be read.
    """
    with closing(queries.connect(database_db)) as view:
        rows = known_proofs(view, repository=repository, sorries=sorries, simulated=simulated)
    found: dict[str, dict[tuple[str, ...], KnownProof]] = {}
    for row in rows:
        offered = found.setdefault(row.sorry, {})
        if row.tactics and len(offered) < MOST:
            offered.setdefault(row.tactics, KnownProof(row.proof, row.tactics))
    return {sorry: tuple(offered.values()) for sorry, offered in found.items()}


def lemmas_of(database_db: Path, *, repository: str, branch: str, simulated: bool) -> tuple[Lemma, ...]:
    """Return what a branch's searches may cite, one proof a sorry; the newest first.

    Args:
        database_db: the view, read only; the daemon may be running.
        repository: its key.
        branch: of it.
        simulated: as in `known_to`.

    Raises:
        LogError: the view cannot be read.
    """
    with closing(queries.connect(database_db)) as view:
        rows = citable_proofs(
            view, repository=repository, branch=branch, simulated=simulated, most=MOST_LEMMAS
        )
    found: dict[str, Lemma] = {}
    for row in rows:
        if row.tactics:
            lemma = Lemma(row.sorry, row.proof, row.declaration, row.statement, row.goal, row.tactics)
            found.setdefault(row.sorry, lemma)
    return tuple(found.values())


# ---- A search that may cite lemmas that are proved and still a sorry upstream
# Each is brought in with its whole proof.
# Its name alone would rest on the sorry. So the first steps of the search are
#
#     have swap_1a2b3c4d (p q : Prop) (h : p ∧ q) : q ∧ p := by
#       exact ⟨h.2, h.1⟩
# and from there on the lemma is a hypothesis like any other: the rung goes on with its own steps, and `apply` and
# `rw` with the lemma are offered beside them. Statement and proof are elaborated together where they are put, so a
# text that Lean reads differently there proves what it says there, or fails and costs a tactic. What is found is a
# text like any other: it is tried in its place, and the gate judges it.
# The search comes after one without lemmas has found nothing, on a small budget, and only where lemmas have something
# in common with the goal. Which, and in which order, follows from the goal and the lemmas alone.


CITING_MOST = 3
"""Lemmas that are brought in for a goal, the nearest first."""
NODES, CALLS, SHARE_OF_SECONDS, MOST_SECONDS = 32, 400, 0.2, 10.0
"""The budget: so many states and tactics, and this share of the sorry's own seconds."""

_USE_LOG_PROBABILITY = -1.0
"""What a model's search takes for the probability of a step that uses a lemma: the model is not asked for it."""
_GRAMMAR = words("( ) { } [ ] ⟨ ⟩ ⦃ ⦄ ✝ , . : := => ↦ ⊢ @ _ ∀ → fun λ Prop Type Sort")
_VARIABLE = re.compile(r"[A-Za-zα-ωΑ-Ω][\d'₀-₉]*")
_BINDER = re.compile(r"[({\[⦃]([^:(){}\[\]⦃⦄]+):")
_LEVEL = re.compile(r"\b(Type|Sort)(?:\*| +(?:\((?:max|imax|[uvw])\b[^()]*\)|[uvw][\w']*))")
_LEVELS = re.compile(r"\.\{[^{}]*\}")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]")
_OPENING, _CLOSING = "([{⟨⦃", ")]}⟩⦄"


# ---- a lemma as a step


def name_of(lemma: Lemma) -> str:
    """Return what a lemma is called where it is brought in: the end of its name, and of which proof it is."""
    last = _NOT_IN_A_NAME.sub("_", lemma.declaration.rpartition(".")[2]).strip("_0123456789")
    return f"{last or 'known'}_{lemma.proof[:8]}"


@lru_cache(maxsize=1024)
def texts_of(lemma: Lemma) -> tuple[str, ...]:
    """Return the steps that bring a lemma in, the one to try first first; none where it cannot be written.

    First as Lean said what is to be proved: with all that `variable` gave the declaration, or that stood before a sorry
    in mid-proof. Then as the source states it, which Lean may read where it does not read its own printing.
    """
    lines = "".join(f"\n  {line}" for tactic in lemma.tactics for line in tactic.split("\n"))
    texts = (f"have {name_of(lemma)} {one} := by{lines}" for one in _stated(lemma))
    return tuple(text for text in texts if len(text) <= LONGEST and not complaints(text))


def _stated(lemma: Lemma) -> tuple[str, ...]:
    found = (_as_printed(lemma.goal), _as_written(lemma.statement))
    return tuple(dict.fromkeys(_any_level(one) for one in found if one))


def _as_printed(goal: str) -> str:
    """Return binders and type of the one goal; "" where it cannot be written so."""
    stated = statement(goal) if len(split_goals(goal)) == 1 else None
    return "" if stated is None else " ".join(stated.header.removeprefix(f"theorem {NAME}").split())


def _as_written(text: str) -> str:
    """Return binders and type of a declaration's statement; "" where it names no type."""
    return "" if text.startswith(".") or _outside(text, ":") is None else text


def _any_level(text: str) -> str:
    """Leave universes to Lean: a name of one is unknown elsewhere, and a hypothesis is of one level only."""
    return _LEVEL.sub(r"\1 _", _LEVELS.sub("", text))


# ---- which lemmas


@dataclass(frozen=True, slots=True)
class Contents:
    """The constants and symbols that a proposition is about: all of them, and those of its conclusion.

    Read off text: hypotheses and names of one letter are variables, and so are not there.
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
    """Return what a lemma is about: by Lean's word on its goal, where there is one."""
    if len(split_goals(lemma.goal)) == 1:
        return Contents.of_goal(lemma.goal)
    return Contents.of_statement(lemma.statement)


def nearest(lemmas: Iterable[Lemma], goal: Goal) -> tuple[Lemma, ...]:
    """Return the few lemmas that have the most in common with a goal, those that have nothing left out.

    Of equals the one that comes first does, and of those that are stated alike no other.
    """
    wanted = Contents.of_goal(as_lean_prints(goal))
    near = ((contents_of(one).likeness(wanted), one) for one in lemmas)
    ranked = sorted((one for one in near if one[0]), key=lambda one: -one[0])
    found: dict[str, Lemma] = {}
    for _, lemma in ranked:
        if texts_of(lemma) and not any(text in found for text in _stated(lemma)):
            found |= dict.fromkeys(_stated(lemma), lemma)
    return tuple(itertools.islice(dict.fromkeys(found.values()), CITING_MOST))


def _words(text: str, names: set[str]) -> frozenset[str]:
    return frozenset(
        word
        for word in (token.text for token in tokens_of_text(text)[0])
        if word not in _GRAMMAR and word.split(".")[0] not in names and not _VARIABLE.fullmatch(word)
    )


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one | other else 0.0


def _conclusion(text: str) -> str:
    """Return what a proposition says below its outermost quantifiers and premises."""
    while True:
        text = strip_parentheses(" ".join(text.split()))
        found = shape(text)
        at = _outside(text, ",") if found.connective == "forall" else None
        if found.connective == "arrow":
            text = found.right
        elif at is not None:
            text = text[at + 1 :]
        else:
            return text


def _outside(text: str, symbol: str) -> int | None:
    """Return where a symbol first stands outside of brackets."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character in _OPENING) - (character in _CLOSING)
        if not depth and character == symbol:
            return at
    return None


# ---- the search


class CitingProposer:
    """Proposes to bring lemmas in, one after the other, then what a rung does and the lemmas' use (`Proposer`)."""

    def __init__(self, proposer: Proposer, lemmas: Sequence[Lemma], *, model: bool = False) -> None:
        """Args:
        proposer: the rung.
        lemmas: to bring in, in this order.
        model: whether the rung's steps have probabilities.
        """
        self._proposer = proposer
        self._log_probability = _USE_LOG_PROBABILITY if model else 0.0
        self._lemmas = tuple(lemmas)
        self._number = {text: at for at, lemma in enumerate(lemmas) for text in texts_of(lemma)}

    async def propose(self, asked: TacticRequest) -> Iterable[Candidate]:
        """Return the lemmas that are not brought in yet, as long as nothing else was done, and the rung's word.

        At first the lemmas alone: what the rung does without them was tried before.
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
        """Pass on what was the rung's own."""
        if candidate.template not in _TEMPLATES:
            self._proposer.saw(candidate, parsed=parsed)

    def _to_bring(self, *, after: int) -> Iterator[Candidate]:
        for text, at in self._number.items():
            if at > after:
                # It adds a hypothesis and takes nothing away.
                yield Candidate(text, _BRING, commits=True)

    def _uses(self, lemma: Lemma, goal: Goal) -> tuple[list[Candidate], bool]:
        """Return the steps that use a lemma, and whether the target is about all that its conclusion is."""
        name, conclusion = name_of(lemma), contents_of(lemma).conclusion
        steps = [(f"apply {name}", _APPLY, 1.0)]
        if {"=", "↔"} & conclusion:
            steps += [(f"rw [{name}]", _REWRITE, 2.0), (f"rw [← {name}]", _REWRITE, 3.0)]
        target = _words(goal.target.render(), {variable.user_name for variable in goal.vars})
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

    result: SearchResult
    lemmas: tuple[Lemma, ...]

    def scripts(self) -> tuple[Script, ...]:
        """Return the proof without the lemmas that no later step names, and the proof as it was found.

        A tactic may use a hypothesis without naming it: whether the first is one, Lean says.
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

    def said(self, script: Script) -> str:
        """Return which proofs a script cites, for people; "" for none."""
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
    lemmas: Sequence[Lemma],
    proposer: Proposer,
    scoring: Scoring | None,
    remaining: Remaining | None,
    budget: Budget,
    seed: int,
    failures: Failures,
) -> CitingResult | None:
    """Search for a proof of a goal that cites lemmas; None where none of them has anything in common with the goal.

    Args:
        session: at the goal's place in its file.
        state: with the goal.
        at: its index there.
        lemmas: that may be cited, of equals the first one first.
        proposer, scoring, remaining, seed, failures: as for the search without lemmas.
        budget: what that search had.

    Raises:
        StateLost, ReplError: as `Search.run`.
    """
    # Many lemmas take seconds the first time: other searches go on meanwhile.
    near = await asyncio.to_thread(nearest, lemmas, state.goals[at])
    if not near:
        return None
    few = replace(
        budget,
        nodes=min(budget.nodes, NODES),
        seconds=min(SHARE_OF_SECONDS * budget.seconds, MOST_SECONDS),
        calls=CALLS if budget.calls is None else min(budget.calls, CALLS),
    )
    search = Search(
        session,
        CitingProposer(proposer, near, model=scoring is not None),
        budget=few,
        scoring=scoring,
        remaining=remaining,
        seed=seed,
        failures=failures,
    )
    return CitingResult(await search.run(state, goal=at), near)
