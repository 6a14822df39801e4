"""Rung 0: a fixed list of tactics for a goal, in a fixed order.

Tactics that close a goal come first, cheapest first, for any Lean and Mathlib: `CuratedTactics` drops tactics that the
REPL cannot parse. Then follow steps suggested by the connectives of the goal and of hypotheses, and, with a retriever
in use, steps with the first few premises. The same goal and premises give the same list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pipeline.lean.client.messages import Goal, Variable
from pipeline.lean.goal_text import Shape, shape, state_of, strip_parentheses
from pipeline.prove.graph import Candidate, Proposer, TacticRequest
from pipeline.prove.premises import ShownPremises, rooted

CLOSERS: tuple[str, ...] = (
    "rfl",
    "trivial",
    "assumption",
    "contradiction",
    "decide",
    "simp",
    "omega",
    "simp_all",
    "tauto",
    "norm_num",
    "ring",
    "linarith",
    "positivity",
    "grind",
    "nlinarith",
    "field_simp",
    "norm_cast",
    "aesop",
)
"""Tried on every goal."""

# bv_decide is not here: it rests on native evaluation, refused by the axiom check.
CLOSERS_AT_START: tuple[str, ...] = ("simp_arith", "gcongr", "fun_prop", "measurability", "exact?")
"""Slow or special tactics, tried on a sorry's own goal only, after `CLOSERS`."""

OF_LIBRARIES = frozenset(
    (
        *("tauto", "norm_num", "ring", "linarith", "positivity", "nlinarith", "field_simp", "aesop"),
        *("gcongr", "fun_prop", "measurability", "aesop (add unsafe [_])"),
    )
)
"""Tactics of Mathlib and related libraries; not offered to files that import only Lean's own modules."""

NAMED_PREMISES = 4
"""Maximum of premises named in tactics: each adds up to six tactics at every state."""

_INDUCTIVE = re.compile(r"^(?:Nat|ℕ|Bool|List\b.*|Option\b.*|Fin\b.*)$")
_IDENTIFIER = re.compile(r"^[^\W\d]\w*[!?']*$")
_PARSE_FAILURES_OF_A_SHAPE = 3


@dataclass(slots=True)
class CuratedTactics(Proposer):
    """Rung 0's proposer: the candidates for a goal, without unparsable ones.

    Attributes:
        core_only: whether the file imports no library.
        closers: in the place of `CLOSERS`.
        shown: premises named in tactics. They are looked up for a search's first goal alone and used at all its states:
            a lookup at every state would take longer than the state's tactics.
    """

    core_only: bool = False
    closers: tuple[str, ...] = CLOSERS
    shown: ShownPremises | None = None
    _names: tuple[str, ...] = ()
    _parsed: set[str] = field(default_factory=set)
    _unparsed: dict[str, int] = field(default_factory=dict)

    def naming(self, shown: ShownPremises | None) -> CuratedTactics:
        """Return the proposer of a declaration with these premises; all share the memory of unparsable tactics."""
        return self if shown is None else replace(self, shown=shown)

    async def propose(self, asked: TacticRequest) -> Iterator[Candidate]:
        """Return the candidates for the first goal; the seed has no effect."""
        if asked.at_start and self.shown is not None:
            self._names = await self.shown.names(state_of(asked.goals), NAMED_PREMISES)
        return self.candidates(asked.goals[0], at_start=asked.at_start)

    def candidates(self, goal: Goal, *, at_start: bool) -> Iterator[Candidate]:
        """Yield the candidates for the goal, best first; `saw` takes effect meanwhile."""
        for candidate in _all(goal, closers=self.closers, at_start=at_start, premises=self._names):
            if self.offers(candidate):
                yield candidate

    @property
    def reason(self) -> str:
        """Return the retriever's failure, for people; "" without any."""
        return "" if self.shown is None else self.shown.reason

    def offers(self, candidate: Candidate) -> bool:
        """Return whether the process may know the tactic."""
        if self.core_only and candidate.template in OF_LIBRARIES:
            return False
        if candidate.template in self._parsed:
            return True
        limit = 1 if candidate.template == candidate.text else _PARSE_FAILURES_OF_A_SHAPE
        return self._unparsed.get(candidate.template, 0) < limit

    def saw(self, candidate: Candidate, *, parsed: bool) -> None:
        """Remember whether the process could parse the tactic at all."""
        if parsed:
            self._parsed.add(candidate.template)
        else:
            self._unparsed[candidate.template] = self._unparsed.get(candidate.template, 0) + 1


def _all(
    goal: Goal, *, closers: tuple[str, ...], at_start: bool, premises: Sequence[str]
) -> Iterator[Candidate]:
    target = shape(goal.target)
    names = _Names(goal)
    for text in closers:
        yield Candidate(text, text)
    cited = [rooted(name, names.taken) for name in premises]
    yield from _by_premises(cited)
    usable = [variable for variable in goal.vars if _accessible(variable)]
    shapes = [(variable, shape(_type(variable))) for variable in usable]
    yield from _of_target(target, names)
    yield from _of_hypotheses(shapes, names)
    yield from _choices(target, shapes)
    yield from _rewrites(shapes)
    yield from _from_premises(cited)
    yield from _inductions(usable)
    if at_start:
        for text in CLOSERS_AT_START:
            yield Candidate(text, text)


def _by_premises(names: Sequence[str]) -> Iterator[Candidate]:
    """Yield tactics to close a goal with premises: each alone, then all together."""
    for name in names:
        yield Candidate(f"exact {name} ..", "exact _ ..")
        yield Candidate(f"simp [{name}]", "simp [_]")
        yield Candidate(f"grind [{name}]", "grind [_]")
    if not names:
        return
    every = ", ".join(names)
    if len(names) > 1:
        yield Candidate(f"simp [{every}]", "simp [_, _]")
        yield Candidate(f"grind [{every}]", "grind [_, _]")
    yield Candidate(f"simp_all [{every}]", "simp_all [_]")
    yield Candidate(f"aesop (add unsafe [{every}])", "aesop (add unsafe [_])")


def _from_premises(names: Sequence[str]) -> Iterator[Candidate]:
    """Yield steps with a premise that may leave goals."""
    for name in names:
        yield Candidate(f"apply {name}", "apply _ (a premise)", cost=1)
        yield Candidate(f"rw [{name}]", "rw [_] (a premise)", cost=2)
        yield Candidate(f"rw [← {name}]", "rw [← _] (a premise)", cost=3)


def _of_target(target: Shape, names: _Names) -> Iterator[Candidate]:
    """Yield the target's steps that lose nothing."""
    if target.connective == "forall":
        for name in target.names or ("x",):
            yield Candidate(f"intro {names.fresh(name)}", "intro _", commits=True)
            return
    if target.connective in ("arrow", "not"):
        yield Candidate(f"intro {names.fresh('h')}", "intro _", commits=True)
    if target.connective in ("and", "iff"):
        yield Candidate("constructor", "constructor", commits=True)
    if target.connective in ("other", "equation"):
        # A definition may hide a function type; `≠` does.
        yield Candidate(f"intro {names.fresh('h')}", "intro _", cost=1)


def _of_hypotheses(shapes: list[tuple[Variable, Shape]], names: _Names) -> Iterator[Candidate]:
    types = {strip_parentheses(" ".join(_type(variable).split())): variable for variable, _ in shapes}
    for variable, result in shapes:
        name = variable.user_name
        if result.connective in ("and", "exists", "iff"):
            left, right = names.fresh(name), names.fresh(name, but_not=names.fresh(name))
            yield Candidate(f"obtain ⟨{left}, {right}⟩ := {name}", "obtain ⟨_, _⟩ := _", commits=True)
            yield Candidate(
                f"cases {name} with | intro {left} {right} => ?_", "cases _ with | intro", commits=True
            )
            yield Candidate(f"cases {name}", "cases _", cost=3)
        elif result.connective == "or":
            fresh = names.fresh(name)
            yield Candidate(f"rcases {name} with {fresh} | {fresh}", "rcases _ with _ | _", commits=True)
            yield Candidate(
                f"cases {name} with | inl {fresh} => ?_ | inr {fresh} => ?_",
                "cases _ with | inl",
                commits=True,
            )
            yield Candidate(f"cases {name}", "cases _", cost=3)
        elif result.connective == "false":
            yield Candidate(f"exact {name}.elim", "exact _.elim", commits=True)
    for variable, result in shapes:
        argument = types.get(strip_parentheses(result.left)) if result.connective == "arrow" else None
        if argument is None or strip_parentheses(result.right) in types:
            continue
        if shape(result.right).connective in ("and", "or", "exists", "iff", "arrow", "false", "not"):
            text = f"have {names.fresh('h')} := {variable.user_name} {argument.user_name}"
            # It only adds a hypothesis.
            yield Candidate(text, "have _ := _ _", cost=1, commits=True)


def _choices(target: Shape, shapes: list[tuple[Variable, Shape]]) -> Iterator[Candidate]:
    """Yield steps that may fail later: each is a branch of the search."""
    for variable, result in shapes:
        if result.connective in ("arrow", "forall", "not", "iff") and not _is_type(variable):
            yield Candidate(f"apply {variable.user_name}", "apply _", cost=1)
    if target.connective == "or":
        yield Candidate("left", "left", cost=1)
        yield Candidate("right", "right", cost=1)
    if target.connective == "exists":
        yield Candidate("exact ⟨_, ‹_›⟩", "exact ⟨_, ‹_›⟩")
        yield Candidate("refine ⟨_, rfl⟩", "refine ⟨_, rfl⟩", cost=1)
        yield Candidate("constructor", "constructor", cost=3)
    if target.connective not in ("false", "arrow", "forall", "not") and any(
        found.connective == "not" or found.right == "False" for _, found in shapes
    ):
        yield Candidate("exfalso", "exfalso", cost=2)
    if target.connective == "equation":
        yield Candidate("ext", "ext", cost=2)
        yield Candidate("funext x", "funext _", cost=2)


def _rewrites(shapes: list[tuple[Variable, Shape]]) -> Iterator[Candidate]:
    for variable, result in shapes:
        if result.connective == "equation" and "=" in _type(variable):
            name = variable.user_name
            yield Candidate(f"subst {name}", "subst _", cost=1)
            yield Candidate(f"rw [{name}]", "rw [_]", cost=2)
            yield Candidate(f"rw [← {name}]", "rw [← _]", cost=3)


def _inductions(variables: list[Variable]) -> Iterator[Candidate]:
    for variable in variables:
        if _INDUCTIVE.match(_type(variable)):
            name = variable.user_name
            yield Candidate(f"cases {name} <;> simp_all", "cases _ <;> simp_all", cost=2)
            yield Candidate(f"induction {name} <;> simp_all", "induction _ <;> simp_all", cost=2)
            yield Candidate(f"induction {name} <;> omega", "induction _ <;> omega", cost=2)


class _Names:
    """Fresh names for one goal."""

    def __init__(self, goal: Goal) -> None:
        self.taken = {variable.user_name.rstrip("✝") for variable in goal.vars}

    def fresh(self, base: str, *, but_not: str = "") -> str:
        """Return an unused name for a hypothesis:"""
        base = base.rstrip("✝")
        if not _IDENTIFIER.match(base):
            base = "h"
        name, count = base, 0
        while name in self.taken or name == but_not:
            count += 1
            name = f"{base}{count}" if not base[-1].isdigit() else f"{base}_{count}"
        return name


def _accessible(variable: Variable) -> bool:
    return not variable.inaccessible and _IDENTIFIER.match(variable.user_name) is not None


def _type(variable: Variable) -> str:
    return "" if variable.type is None else variable.type


def _is_type(variable: Variable) -> bool:
    """Return whether the hypothesis is a type or a predicate (`p : Prop`, `P : Nat → Prop`): never applied."""
    return _type(variable).rstrip().endswith(("Prop", "Type", "Sort"))
