"""A library of defined relations between propositions, with the lemmas that lead from one to the other.

Each relation is a formula in two propositions that no other one equals by definition, even with its arguments
swapped, so a lemma about one says nothing about another unless it names it. The lemmas are found by truth table.
An exercise gives some relations as hypotheses and asks for one that follows by lemmas only: the tactics that search
do not unfold definitions.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.lean.simulator.terms import words
from tests.support.exercises.formulas import Formula, counterexample, implies, substituted, text, truth

WORDS = words(
    "Amber Basil Cedar Delta Ember Fjord Grove Heath Inlet Jade Knoll Larch Maple Nacre Ochre Pearl Quartz Ridge"
    " Slate Topaz Umber Vale Willow Yarrow"
)
VARIABLES = "pqr"


@dataclass(frozen=True, slots=True)
class Lemma:
    """`premises` lead to `result`; each is (relation, index of its first variable, index of its second)."""

    name: str
    premises: tuple[tuple[str, int, int], ...]
    result: tuple[str, int, int]

    @property
    def variables(self) -> int:
        return 1 + max(max(first, second) for _, first, second in (*self.premises, self.result))

    @property
    def relations(self) -> frozenset[str]:
        return frozenset(relation for relation, _, _ in (*self.premises, self.result))

    def formula(self, names: tuple[str, ...]) -> Formula:
        """Return what it says about these propositions."""
        shown = [(relation, names[a], names[b]) for relation, a, b in (*self.premises, self.result)]
        return implies(shown[:-1], shown[-1])


@dataclass(frozen=True, slots=True)
class Library:
    """Relations with their meanings, formulas over the atoms "0" and "1", and the lemmas about them.

    One that stands on a `base` has that one's relations too, and none of its lemmas; each of its own lemmas is about
    one of its own relations at least.
    """

    meanings: dict[str, Formula]
    lemmas: tuple[Lemma, ...]
    base: Library | None = None

    @classmethod
    def generate(
        cls,
        seed: int,
        *,
        relations: int = 12,
        lemmas: int = 48,
        words: Sequence[str] = WORDS,
        base: Library | None = None,
    ) -> Library:
        """Make a library from a seed; it may have fewer lemmas when the relations do not allow as many.

        Args:
            seed: decides all.
            relations: how many of its own.
            lemmas: how many at most.
            words: what its relations are called; none of them is the name of a relation of `base`.
            base: what it stands on.

        Raises:
            ValueError: there are fewer words than relations, or fewer than four relations.
        """
        if not 4 <= relations <= len(words):
            raise ValueError(f"relations is {relations}; a library has 4 to {len(words)}")
        rng = random.Random(f"library/{seed}")
        names = rng.sample(words, relations)
        meanings: dict[str, Formula] = {} if base is None else dict(base.meanings)
        taken = {formula for own in meanings.values() for formula in (own, _swapped(own))}
        for name in names:
            meanings[name] = _meaning(rng, taken)
        tables = {name: _table(meaning) for name, meaning in meanings.items()}
        own = frozenset(names)
        # The base's relations come last: without one, the candidates stand in the order of the names alone.
        every = [*names, *(() if base is None else base.meanings)]
        found = [lemma for lemma in _candidates(every) if own & lemma.relations and _holds(lemma, tables)]
        rng.shuffle(found)
        return cls(meanings, tuple(sorted(found[:lemmas], key=lambda lemma: lemma.name)), base)

    def source(self) -> str:
        """Return the library's Lean text, which needs that of its base before it."""
        lines = []
        for name, meaning in self.meanings.items():
            if self.base is not None and name in self.base.meanings:
                continue
            shown = text(substituted(meaning, {"0": "p", "1": "q"}))
            lines.append(f"def {name} (p q : Prop) : Prop :=\n  {shown}\n")
        for lemma in self.lemmas:
            names = tuple(VARIABLES[: lemma.variables])
            unfolded = implies(
                [
                    substituted(self.meanings[relation], {"0": names[a], "1": names[b]})
                    for relation, a, b in lemma.premises
                ],
                substituted(
                    self.meanings[lemma.result[0]],
                    {"0": names[lemma.result[1]], "1": names[lemma.result[2]]},
                ),
            )
            lines.append(
                f"theorem {lemma.name} : ∀ ({' '.join(names)} : Prop), {text(lemma.formula(names))} := by\n"
                f"  intro {' '.join(names)}\n  show {text(unfolded)}\n  tauto\n"
            )
        return "\n".join(lines)


def _meaning(rng: random.Random, taken: set[Formula]) -> Formula:
    """Return a formula that no relation has yet, and add it to `taken`."""
    while True:
        formula = _formula(rng, rng.randrange(2, 4))
        trivial = counterexample(formula) is None or counterexample(("¬", formula)) is None
        if formula not in taken and not trivial and _needs_both(formula):
            taken |= {formula, _swapped(formula)}
            return formula


def _swapped(formula: Formula) -> Formula:
    return substituted(formula, {"0": "1", "1": "0"})


def _formula(rng: random.Random, size: int) -> Formula:
    """Return a random formula over "0" and "1", with `size` connectives between two parts."""
    if size == 0:
        atom = rng.choice("01")
        return ("¬", atom) if rng.random() < 0.3 else atom
    left = rng.randrange(size)
    return (rng.choice("∧∨→↔"), _formula(rng, left), _formula(rng, size - 1 - left))


def _needs_both(formula: Formula) -> bool:
    """Return whether the formula's truth depends on both propositions."""
    return all(
        counterexample(("↔", formula, substituted(formula, {own: constant}))) is not None
        for own in "01"
        for constant in ("True", "False")
    )


def _candidates(names: list[str]) -> list[Lemma]:
    found: list[Lemma] = []
    for first, second in itertools.permutations(names, 2):
        for swap in (False, True):
            end = (1, 0) if swap else (0, 1)
            name = f"{second.lower()}_of_{first.lower()}{'_swap' if swap else ''}"
            found.append(Lemma(name, ((first, 0, 1),), (second, *end)))
    for first, second, third in itertools.product(names, repeat=3):
        name = f"{third.lower()}_of_{first.lower()}_{second.lower()}"
        found.append(Lemma(name, ((first, 0, 1), (second, 1, 2)), (third, 0, 2)))
    return found


def _holds(lemma: Lemma, tables: Mapping[str, Mapping[tuple[bool, bool], bool]]) -> bool:
    """Return whether a lemma is true, and would not be with one of its premises less."""
    wrong = []  # for each way to make the result false: which premises are false there
    for row in itertools.product((True, False), repeat=lemma.variables):
        relation, a, b = lemma.result
        if not tables[relation][row[a], row[b]]:
            wrong.append([i for i, (r, x, y) in enumerate(lemma.premises) if not tables[r][row[x], row[y]]])
    each_needed = all([index] in wrong for index in range(len(lemma.premises)))
    return all(wrong) and each_needed


def _table(formula: Formula) -> dict[tuple[bool, bool], bool]:
    rows = itertools.product((True, False), repeat=2)
    return {(a, b): truth(formula, {"0": a, "1": b}) for a, b in rows}


@dataclass(frozen=True, slots=True)
class Derivation:
    """An exercise over a library: what to prove, and how its lemmas prove it (None: they do not)."""

    statement: str
    proof: str | None
    term: str | None
    premises: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LemmaUse:
    """A step of a derivation: a lemma for these propositions, from these labels (h1, …, s1, …), and what it gives."""

    lemma: Lemma
    variables: tuple[str, ...]
    arguments: tuple[str, ...]
    result: tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Chain:
    """Lemmas applied one to the other's result: hypotheses h1, h2, …, and steps s1, s2, …, the last one the goal."""

    hypotheses: tuple[tuple[str, str, str], ...]
    steps: tuple[LemmaUse, ...]

    @property
    def goal(self) -> tuple[str, str, str]:
        return self.steps[-1].result

    def used(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that it speaks of, in their order."""
        return [name for name in names if any(name in said[1:] for said in (*self.hypotheses, self.goal))]


def lemma_chain(
    lemmas: Sequence[Lemma], rng: random.Random, length: int, names: Sequence[str]
) -> Chain | None:
    """Draw a chain of lemmas about propositions of these names; None where the draw leads nowhere."""
    hypotheses: list[tuple[str, str, str]] = []
    steps: list[LemmaUse] = []
    have: tuple[str, int, int] | None = None
    fresh = 0
    for _ in range(length):
        fitting = [lemma for lemma in lemmas if have is None or any(p[0] == have[0] for p in lemma.premises)]
        if not fitting:
            return None
        lemma = rng.choice(fitting)
        slot = -1 if have is None else [p[0] for p in lemma.premises].index(have[0])
        places: dict[int, int] = {}
        if have is not None:
            _, a, b = lemma.premises[slot]
            places = {a: have[1], b: have[2]}
        for variable in range(lemma.variables):
            if variable not in places:
                places[variable] = fresh
            fresh = max(fresh, *places.values()) + 1
        if fresh > len(names):
            return None
        arguments = []
        for at, (relation, a, b) in enumerate(lemma.premises):
            if at == slot:
                arguments.append(f"s{len(steps)}")
                continue
            hypotheses.append((relation, names[places[a]], names[places[b]]))
            arguments.append(f"h{len(hypotheses)}")
        relation, a, b = lemma.result
        have = (relation, places[a], places[b])
        steps.append(
            LemmaUse(
                lemma,
                tuple(names[places[v]] for v in range(lemma.variables)),
                tuple(arguments),
                (relation, names[have[1]], names[have[2]]),
            )
        )
    return Chain(tuple(hypotheses), tuple(steps))


def library_exercise(
    library: Library, rng: random.Random, difficulty: int, *, solvable: bool
) -> Derivation | None:
    """Derive something by `difficulty` lemmas, one from the other; None where the draw leads nowhere.

    Unsolvable: the same hypotheses, with a goal that a truth table refutes.
    """
    names = [*"pqrstuvw", *(f"p{i}" for i in range(1, 40))]
    chain = lemma_chain(library.lemmas, rng, difficulty, names)
    if chain is None:
        return None
    goal: Formula = chain.goal
    if not solvable:
        others = [(other, *goal[1:]) for other in library.meanings if other != goal[0]]
        false = [
            other
            for other in others
            if counterexample(implies(chain.hypotheses, other), library.meanings) is not None
        ]
        if not false:
            return None
        goal = rng.choice(false)
    if goal in chain.hypotheses:
        return None
    used = chain.used(names)
    if len(used) > 10:
        return None  # a truth table over more is no longer quick
    statement = f"∀ ({' '.join(used)} : Prop), {text(implies(chain.hypotheses, goal))}"
    if not solvable:
        return Derivation(statement, None, None, ())
    lines, terms = [], dict[str, str]()
    for number, step in enumerate(chain.steps, start=1):
        said = f"{step.lemma.name} {' '.join(step.variables)}"
        lines.append(f"have s{number} := {said} {' '.join(step.arguments)}")
        shown = [f"({terms[label]})" if label in terms else label for label in step.arguments]
        terms[f"s{number}"] = f"{said} {' '.join(shown)}"
    last = f"s{len(chain.steps)}"
    labels = " ".join(f"h{index}" for index in range(1, len(chain.hypotheses) + 1))
    proof = "\n".join([f"intro {' '.join(used)} {labels}", *lines, f"exact {last}"])
    cited = tuple(dict.fromkeys(step.lemma.name for step in chain.steps))
    return Derivation(statement, proof, f"fun {' '.join(used)} {labels} => {terms[last]}", cited)
