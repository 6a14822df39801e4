"""Families of theorems with known answers: solvable ones with their proofs, unsolvable ones with a counterexample.

Every family grows with `difficulty` (a whole number from 1): the number of links, parts, cases or lemmas. An
exercise that is not solvable looks like one that is, but a truth table refutes it, so no sound prover ever closes
it. The family "library" needs lemmas of a library of defined relations between propositions; which ones depends
on the names in the goal, so choosing premises can be learned, and not choosing them fails. Everything follows from
the seed. `python -m tests.support.exercises.families --out FOLDER` writes a repository (see `families_writer.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.support.exercises.formulas import Formula, atoms, counterexample, implies, joined, text
from tests.support.exercises.relations import Library, library_exercise

LETTERS = "pqrstuvw"


@dataclass(frozen=True, slots=True)
class Exercise:
    """One theorem. `statement` is closed; `proof` is a tactic block and `term` a term that prove it.

    Both are None when it is not solvable. `premises`: the lemmas of the library that `proof` cites.
    """

    statement: str
    name: str
    family: str
    difficulty: int
    solvable: bool
    proof: str | None
    term: str | None
    premises: tuple[str, ...] = ()

    def source(self, *, proof: str | None = None) -> str:
        """Return its Lean text, by the given tactic block, its own one, or a sorry."""
        block = proof or self.proof or "sorry"
        return f"theorem {self.name} : {self.statement} := by\n" + "".join(
            f"  {line}\n" for line in block.splitlines()
        )


@dataclass(frozen=True, slots=True)
class Draft:
    """What a family makes: a formula, which is a tautology, or the text of a statement that is outside formulas."""

    formula: Formula
    proof: str
    term: str
    broken: Formula


Family = Callable[[random.Random, int], Draft]


def _names(rng: random.Random, count: int) -> list[str]:
    names = list(LETTERS) if count <= len(LETTERS) else [f"{x}{i}" for x in LETTERS for i in range(1, 9)]
    rng.shuffle(names)
    return names[:count]


def chain(rng: random.Random, difficulty: int) -> Draft:
    """a₀ → a₁, …, a₀ ⊢ aₙ, with the links in any order; broken: one link turned round."""
    names = _names(rng, difficulty + 1)
    links = list(range(difficulty))
    rng.shuffle(links)
    hypotheses: list[Formula] = [("→", names[i], names[i + 1]) for i in links]
    turned = rng.randrange(difficulty)
    broken: list[Formula] = [
        ("→", names[i + 1], names[i]) if i == turned else ("→", names[i], names[i + 1]) for i in links
    ]
    labels = {link: f"h{at}" for at, link in enumerate(links)}
    steps = [f"apply {labels[i]}" for i in reversed(range(difficulty))]
    intro = f"intro {' '.join(f'h{i}' for i in range(difficulty))} start"
    term = "start"
    for i in range(difficulty):
        term = f"{labels[i]} {term if ' ' not in term else f'({term})'}"
    return Draft(
        implies([*hypotheses, names[0]], names[-1]),
        "\n".join([intro, *steps, "exact start"]),
        f"fun {' '.join(f'h{i}' for i in range(difficulty))} start => {term}",
        implies([*broken, names[0]], names[-1]),
    )


def contrapositive(rng: random.Random, difficulty: int) -> Draft:
    """A chain read backwards: ¬aₙ ⊢ ¬a₀; broken: ¬a₀ ⊢ ¬aₙ."""
    names = _names(rng, difficulty + 1)
    hypotheses: list[Formula] = [("→", names[i], names[i + 1]) for i in range(difficulty)]
    labels = [f"h{i}" for i in range(difficulty)]
    term = "start"
    for label in labels:
        term = f"{label} {term if ' ' not in term else f'({term})'}"
    proof = [
        f"intro {' '.join(labels)} no start",
        "apply no",
        *(f"apply {h}" for h in reversed(labels)),
        "exact start",
    ]
    return Draft(
        implies([*hypotheses, ("¬", names[-1])], ("¬", names[0])),
        "\n".join(proof),
        f"fun {' '.join(labels)} no start => no ({term})",
        implies([*hypotheses, ("¬", names[0])], ("¬", names[-1])),
    )


def shuffle(rng: random.Random, difficulty: int) -> Draft:
    """A conjunction in another order; broken: one part replaced by one that is not there."""
    names = _names(rng, difficulty + 2)
    stranger, parts = names[-1], names[:-1]
    order = parts.copy()
    rng.shuffle(order)
    pattern = ", ".join(f"h{name}" for name in parts)
    result = ", ".join(f"h{name}" for name in order)
    broken = order.copy()
    broken[rng.randrange(len(broken))] = stranger
    return Draft(
        ("→", joined("∧", list(parts)), joined("∧", list(order))),
        f"intro h\nobtain ⟨{pattern}⟩ := h\nexact ⟨{result}⟩",
        f"fun ⟨{pattern}⟩ => ⟨{result}⟩",
        ("→", joined("∧", list(parts)), joined("∧", list(broken))),
    )


def _side(index: int, count: int, inner: str) -> str:
    """Return the term that puts a proof at its place in a ∨ b ∨ …."""
    last = index == count - 1
    term = inner if last else f"Or.inl {inner}"
    for _ in range(index):
        term = f"Or.inr {term if ' ' not in term else f'({term})'}"
    return term


def cases(rng: random.Random, difficulty: int) -> Draft:
    """A disjunction in another order; broken: one case is not among the results."""
    names = _names(rng, difficulty + 1)
    order = names.copy()
    rng.shuffle(order)
    lines = ["intro h", f"rcases h with {' | '.join('h' for _ in names)}"]
    arms = []
    for name in names:
        place = order.index(name)
        steps = ["right"] * place + (["left"] if place < len(order) - 1 else []) + ["exact h"]
        lines += [f"· {steps[0]}", *(f"  {step}" for step in steps[1:])]
        arms.append(f"fun h => {_side(place, len(order), 'h')}")
    term = arms[-1]
    for at, arm in reversed(list(enumerate(arms[:-1]))):
        name = f"rest{at}"
        term = f"fun {name} => {name}.elim ({arm}) ({term})"
    return Draft(
        ("→", joined("∨", list(names)), joined("∨", list(order))),
        "\n".join(lines),
        term,
        ("→", joined("∨", list(names)), joined("∨", list(order[:-1]))),
    )


def equivalence(rng: random.Random, difficulty: int) -> Draft:
    """a₀ ↔ a₁, … ⊢ a₀ ↔ aₙ, some links turned round; broken: one link is only an implication."""
    names = _names(rng, difficulty + 1)
    hypotheses: list[Formula] = []
    steps = []
    for i in range(difficulty):
        turned = rng.random() < 0.5
        pair = (names[i + 1], names[i]) if turned else (names[i], names[i + 1])
        hypotheses.append(("↔", *pair))
        steps.append(f"h{i}.symm" if turned else f"h{i}")
    term = steps[-1]
    for step in reversed(steps[:-1]):
        term = f"Iff.trans {step} {term if ' ' not in term else f'({term})'}"
    labels = " ".join(f"h{i}" for i in range(difficulty))
    proof = [f"intro {labels}", *(f"refine Iff.trans {step} ?_" for step in steps[:-1]), f"exact {steps[-1]}"]
    weak = rng.randrange(difficulty)
    broken: list[Formula] = [
        ("→", names[i], names[i + 1]) if i == weak else h for i, h in enumerate(hypotheses)
    ]
    goal: Formula = ("↔", names[0], names[-1])
    return Draft(
        implies(hypotheses, goal), "\n".join(proof), f"fun {labels} => {term}", implies(broken, goal)
    )


def curry(rng: random.Random, difficulty: int) -> Draft:
    """(a₁ ∧ … ∧ aₙ → c) ↔ (a₁ → … → aₙ → c); broken: ∨ for ∧."""
    *names, result = _names(rng, difficulty + 2)
    labels = " ".join(f"h{name}" for name in names)
    parts = ", ".join(f"h{name}" for name in names)
    goal: Formula = ("↔", ("→", joined("∧", list(names)), result), implies(list(names), result))
    broken: Formula = ("↔", ("→", joined("∨", list(names)), result), implies(list(names), result))
    return Draft(
        goal,
        f"constructor\n· intro f {labels}\n  exact f ⟨{parts}⟩\n· intro f h\n  obtain ⟨{parts}⟩ := h\n"
        f"  exact f {labels}",
        f"⟨fun f {labels} => f ⟨{parts}⟩, fun f ⟨{parts}⟩ => f {labels}⟩",
        broken,
    )


def classical(rng: random.Random, difficulty: int) -> Draft:
    """What only holds classically: c follows however a₁, …, aₙ turn out; broken: one way is missing."""
    *names, result = _names(rng, difficulty + 1)
    # One hypothesis for a₁ ∧ … ∧ aₙ, and one for each aᵢ that is false.
    hypotheses: list[Formula] = [implies(list(names), result)]
    hypotheses += [("→", ("¬", name), result) for name in names]
    labels = " ".join(["all", *(f"no_{name}" for name in names)])
    lines = [f"intro {labels}"]
    lines += [f"refine (Classical.em {name}).elim (fun h{name} => ?_) no_{name}" for name in names]
    lines.append(f"exact all {' '.join(f'h{name}' for name in names)}")
    term = f"all {' '.join(f'h{name}' for name in names)}"
    for name in reversed(names):
        term = f"(Classical.em {name}).elim (fun h{name} => {term}) no_{name}"
    missing = rng.randrange(1, len(hypotheses))
    broken = [h for index, h in enumerate(hypotheses) if index != missing]
    return Draft(
        implies(hypotheses, result), "\n".join(lines), f"fun {labels} => {term}", implies(broken, result)
    )


FAMILIES: Mapping[str, Family] = {
    "chain": chain,
    "contrapositive": contrapositive,
    "shuffle": shuffle,
    "cases": cases,
    "equivalence": equivalence,
    "curry": curry,
    "classical": classical,
}
NAMES: tuple[str, ...] = (*FAMILIES, "arithmetic", "library")


def generate(
    seed: int,
    difficulty: int,
    n: int,
    *,
    solvable: bool = True,
    families: tuple[str, ...] = NAMES,
    library: Library | None = None,
) -> list[Exercise]:
    """Return `n` exercises with different statements, taking the families in turn.

    `library` is what the family "library" cites, by default `Library.generate(seed)`: the exercises need its
    source (`Library.source`) before them.

    Raises:
        ValueError: `difficulty` is below 1, a family is unknown, or the families have no `n` different ones.
    """
    if difficulty < 1:
        raise ValueError(f"difficulty is {difficulty}; it is a whole number from 1")
    if unknown := [name for name in families if name not in NAMES] or (not families and ["(none given)"]):
        raise ValueError(f"unknown family: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    rng = random.Random(f"families/{seed}/{difficulty}/{solvable}")
    library = library or Library.generate(seed)
    made: list[Exercise] = []
    seen: set[str] = set()
    for attempt in range(n * 50):
        if len(made) == n:
            break
        family = families[(len(made) + attempt // (5 * n)) % len(families)]
        exercise = _exercise(family, rng, difficulty, library, solvable=solvable, number=len(made))
        if exercise is not None and exercise.statement not in seen:
            seen.add(exercise.statement)
            made.append(exercise)
    if len(made) < n:
        raise ValueError(
            f"there are only {len(made)} different exercises of difficulty {difficulty} here, not {n}: ask for"
            " fewer, for more difficult ones or for more families"
        )
    return made


def _exercise(
    family: str, rng: random.Random, difficulty: int, library: Library, *, solvable: bool, number: int
) -> Exercise | None:
    name = f"{family}_{difficulty}_{number}{'' if solvable else '_open'}"
    if family == "arithmetic":
        statement = _equation(rng, difficulty, true=solvable)
        return Exercise(
            statement,
            name,
            family,
            difficulty,
            solvable,
            *(("decide", "by decide") if solvable else (None, None)),
        )
    if family == "library":
        found = library_exercise(library, rng, difficulty, solvable=solvable)
        if found is None:
            return None
        return Exercise(
            found.statement,
            name,
            family,
            difficulty,
            solvable,
            found.proof,
            found.term,
            found.premises if solvable else (),
        )
    draft = FAMILIES[family](rng, difficulty)
    formula = draft.formula if solvable else draft.broken
    if (counterexample(formula) is None) != solvable:
        return None  # breaking it at this place did not make it false
    shown = f"∀ ({' '.join(sorted(atoms(formula)))} : Prop), {text(formula)}"
    if not solvable:
        return Exercise(shown, name, family, difficulty, solvable, None, None)
    intro = f"intro {' '.join(sorted(atoms(formula)))}\n"
    term = f"fun {' '.join(sorted(atoms(formula)))} => {draft.term}"
    return Exercise(shown, name, family, difficulty, solvable, intro + draft.proof, term)


def _equation(rng: random.Random, difficulty: int, *, true: bool) -> str:
    """Return a closed equation or comparison between an expression and a number."""
    shown, value = str(start := rng.randrange(1, 10)), start
    for _ in range(difficulty):
        operator, other = rng.choice("+-*"), rng.randrange(1, 10)
        value = {"+": value + other, "-": max(0, value - other), "*": value * other}[operator]
        shown = f"({shown}) {operator} {other}" if " " in shown else f"{shown} {operator} {other}"
    match rng.choice("=≠<≤"):
        case "=":
            return f"{shown} = {value if true else value + rng.randrange(1, 5)}"
        case "≠":
            return f"{shown} ≠ {value + rng.randrange(1, 5) if true else value}"
        case "<":
            return f"{shown} < {value + rng.randrange(1, 5) if true else rng.randrange(value + 1)}"
        case _:
            return f"{rng.randrange(value + 1) if true else value + rng.randrange(1, 5)} ≤ {shown}"


if __name__ == "__main__":
    from tests.support.exercises.families_writer import main

    raise SystemExit(main())
