"""Random statements with random scripts and random term proofs, right and wrong: what is accepted is true.

Truth tables say what holds classically. What the simulator says to rest on no axiom but `propext` must hold
in every small Kripke model too, so its accounts of axioms are held to the truth as well. Statements have the
connectives, quantifiers over propositions, and closed arithmetic.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.lean.simulator import kernel
from pipeline.lean.simulator.declarations import CLASSICAL_FACTS, FACTS, PROPEXT_FACTS, initial_environment
from pipeline.lean.simulator.frontend import Frontend, Modules
from pipeline.lean.simulator.server import Server
from pipeline.lean.simulator.terms import PROP, Const, Pi, Term, instantiate, spine

ATOMS = ("p", "q", "r")
ARITHMETIC = {
    "1 = 1": True, "1 = 2": False, "2 + 2 = 4": True, "2 * 3 = 7": False, "3 - 5 = 0": True, "7 / 2 = 4": False,
    "2 ^ 3 = 8": True, "1 < 2": True, "2 ≤ 1": False, "1 ≠ 2": True, "7 % 4 = 3": True, "0 ≠ 0": False,
}  # fmt: skip
INTUITIONISTIC = frozenset({"propext"})
TRUE_PROOF = Const("True.intro")

# ---- formulas: an atom, a closed equation, ("¬", a), (connective, a, b), (quantifier, name, a)

SCHEMAS: tuple[Any, ...] = (
    ("→", "A", "A"), ("→", "A", ("→", "B", "A")), ("→", ("∧", "A", "B"), ("∧", "B", "A")),
    ("→", ("∨", "A", "B"), ("∨", "B", "A")), ("→", ("→", "A", "B"), ("→", ("¬", "B"), ("¬", "A"))),
    ("→", ("→", ("¬", "B"), ("¬", "A")), ("→", "A", "B")), ("→", "A", ("¬", ("¬", "A"))),
    ("→", ("¬", ("¬", "A")), "A"), ("∨", "A", ("¬", "A")), ("→", ("→", ("→", "A", "B"), "A"), "A"),
    ("→", ("↔", "A", "B"), ("↔", "B", "A")), ("→", ("∧", "A", ("→", "A", "B")), "B"),
    ("→", ("¬", ("∧", "A", "B")), ("∨", ("¬", "A"), ("¬", "B"))), ("¬", ("∧", "A", ("¬", "A"))),
    ("→", ("∨", ("¬", "A"), ("¬", "B")), ("¬", ("∧", "A", "B"))), ("¬", ("¬", ("∨", "A", ("¬", "A")))),
    ("↔", ("→", ("∨", "A", "B"), "C"), ("∧", ("→", "A", "C"), ("→", "B", "C"))),
    ("→", ("¬", ("¬", ("¬", "A"))), ("¬", "A")), ("∨", ("→", "A", "B"), ("→", "B", "A")),
    ("→", ("∧", "A", ("∨", "B", "C")), ("∨", ("∧", "A", "B"), ("∧", "A", "C"))),
    ("∀", "s", ("→", ("→", "s", "A"), ("→", "s", "A"))), ("∃", "s", ("↔", "s", "A")),
    ("→", ("∀", "s", "s"), "A"), ("→", ("∃", "s", ("∧", "s", "A")), "A"), ("∧", "A", "B"), ("→", "A", "B"),
)  # fmt: skip


def random_formula(rng: random.Random, size: int, names: tuple[str, ...] = ATOMS) -> Any:
    if size == 0:
        roll = rng.random()
        if roll < 0.75:
            return rng.choice(names)
        return rng.choice(("True", "False")) if roll < 0.9 else rng.choice(tuple(ARITHMETIC))
    kind = rng.random()
    if kind < 0.2:
        return ("¬", random_formula(rng, size - 1, names))
    if kind < 0.26 and "s" not in names:
        return (rng.choice("∀∃"), "s", random_formula(rng, size - 1, (*names, "s")))
    left = rng.randrange(size)
    parts = random_formula(rng, left, names), random_formula(rng, size - 1 - left, names)
    return (rng.choice("∧∨→↔"), *parts)


def mutated(rng: random.Random, formula: Any) -> Any:
    """Change one connective, or the order of two parts, somewhere."""
    if isinstance(formula, str):
        return rng.choice(ATOMS)
    if rng.random() < 0.4 and formula[0] in "∧∨→↔":
        if rng.random() < 0.5:
            return (formula[0], formula[2], formula[1])
        return (rng.choice("∧∨→↔"), *formula[1:])
    index = rng.randrange(2 if formula[0] in "∀∃" else 1, len(formula))
    return (*formula[:index], mutated(rng, formula[index]), *formula[index + 1 :])


def fill(schema: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(schema, str):
        return values.get(schema, schema)
    return (schema[0], *(fill(part, values) for part in schema[1:]))


def statement(rng: random.Random) -> Any:
    """Return something that is often true, sometimes nearly, sometimes nothing in particular."""
    if rng.random() < 0.2:
        return random_formula(rng, rng.randrange(1, 6))
    parts = {letter: random_formula(rng, rng.choice((0, 0, 0, 1, 2))) for letter in "ABC"}
    formula = fill(rng.choice(SCHEMAS), parts)
    return mutated(rng, formula) if rng.random() < 0.35 else formula


def text(formula: Any) -> str:
    match formula:
        case str():
            return f"({formula})" if " " in formula else formula
        case ("¬", inner):
            return f"(¬{text(inner)})"
        case ("∀" | "∃" as quantifier, name, inner):
            return f"({quantifier} {name} : Prop, {text(inner)})"
        case (op, left, right):
            return f"({text(left)} {op} {text(right)})"
    raise AssertionError(formula)


# ---- what is true: sets of worlds of a frame, one world for a truth table


class Frame:
    """A finite partial order; a proposition is an upward closed set of worlds, as a bit mask."""

    def __init__(self, *above: int) -> None:
        self.above = above
        self.full = (1 << len(above)) - 1
        self.propositions = [u for u in range(self.full + 1) if self._is_closed(u)]

    def _is_closed(self, worlds: int) -> bool:
        return all(worlds & above == above for w, above in enumerate(self.above) if worlds >> w & 1)

    def implies(self, a: int, b: int) -> int:
        return sum(1 << w for w, above in enumerate(self.above) if not above & a & ~b)

    def worlds(self, formula: Any, values: Mapping[str, int]) -> int:
        """Return the worlds in which a formula is forced."""
        match formula:
            case str():
                if formula in values:
                    return values[formula]
                return self.full if formula == "True" or ARITHMETIC.get(formula, False) else 0
            case ("¬", inner):
                return self.implies(self.worlds(inner, values), 0)
            case ("∀", name, inner):
                result = self.full
                for worlds in self.propositions:
                    result &= self.worlds(inner, {**values, name: worlds})
                return result
            case ("∃", name, inner):
                result = 0
                for worlds in self.propositions:
                    result |= self.worlds(inner, {**values, name: worlds})
                return result
            case (op, left, right):
                a, b = self.worlds(left, values), self.worlds(right, values)
                match op:
                    case "∧":
                        return a & b
                    case "∨":
                        return a | b
                    case "→":
                        return self.implies(a, b)
                return self.implies(a, b) & self.implies(b, a)
        raise AssertionError(formula)

    def valid(self, formula: Any) -> bool:
        rows = itertools.product(self.propositions, repeat=len(ATOMS))
        return all(self.worlds(formula, dict(zip(ATOMS, row, strict=True))) == self.full for row in rows)


POINT = Frame(0b1)
# Two worlds in a row; a fork; three in a row; a fork whose one side goes on.
KRIPKE = (Frame(0b11, 0b10), Frame(0b111, 0b010, 0b100), Frame(0b111, 0b110, 0b100), Frame(15, 10, 4, 8))


@cache
def is_true(formula: Any) -> bool:
    return POINT.valid(formula)


@cache
def is_intuitionistic(formula: Any) -> bool:
    return all(frame.valid(formula) for frame in KRIPKE)


def test_the_models_know_what_is_only_classical() -> None:
    excluded_middle, linearity = ("∨", "p", ("¬", "p")), ("∨", ("→", "p", "q"), ("→", "q", "p"))
    for formula in (excluded_middle, linearity, ("→", ("→", ("→", "p", "q"), "p"), "p")):
        assert is_true(formula)
        assert not is_intuitionistic(formula)
    assert is_intuitionistic(("¬", ("¬", excluded_middle)))
    assert not is_intuitionistic(("∀", "s", ("∨", "s", ("¬", "s"))))
    assert is_intuitionistic(("∃", "s", ("∨", "s", ("¬", "s"))))


_CONNECTIVES = {"And": "∧", "Or": "∨", "Iff": "↔"}


def formula_of(kind: Term, depth: int = 0) -> Any:
    """Read a statement of the kernel as a formula; None where it is about more than propositions."""
    if isinstance(kind, Pi):
        if kind.type == PROP:
            inner = formula_of(instantiate(kind.body, Const(f"x{depth}")), depth + 1)
            return None if inner is None else ("∀", f"x{depth}", inner)
        parts = [formula_of(kind.type, depth), formula_of(instantiate(kind.body, TRUE_PROOF), depth)]
        return None if None in parts else ("→", *parts)
    head, args = spine(kind)
    if not isinstance(head, Const):
        return None
    if not args:
        return head.name if head.name in ("True", "False") or head.name.startswith("x") else None
    connective = {**_CONNECTIVES, "Not": "¬", "Eq": "↔"}.get(head.name)
    if head.name == "Eq":
        if args[0] != PROP:
            return None
        args = args[1:]  # equal propositions: equivalent ones, by `propext`
    parts = [formula_of(arg, depth) for arg in args]
    return None if connective is None or None in parts else (connective, *parts)


@pytest.mark.parametrize("line", [*FACTS.strip().splitlines(), *PROPEXT_FACTS.strip().splitlines()])
def test_a_built_in_fact_without_choice_holds_intuitionistically(line: str) -> None:
    constant = initial_environment().get(line.partition(" : ")[0])
    assert constant is not None
    assert constant.axioms <= INTUITIONISTIC
    formula = formula_of(constant.type)

    if formula is not None:
        assert all(frame.worlds(formula, {}) == frame.full for frame in (POINT, *KRIPKE))


def test_the_facts_that_are_read_as_formulas_are_most_of_them() -> None:
    read = [line for line in FACTS.strip().splitlines() if "Nat" not in line and "Sort" not in line]
    kinds = [initial_environment().table[line.partition(" : ")[0]].type for line in read]
    assert len(kinds) > 60
    assert all(formula_of(kind) is not None for kind in kinds)
    classical = [line.partition(" : ")[0] for line in CLASSICAL_FACTS.strip().splitlines()]
    formulas = [formula_of(initial_environment().table[name].type) for name in classical]
    assert not any(frame.worlds(f, {}) == frame.full for f in formulas for frame in KRIPKE[1:2])


# ---- proofs


def term(rng: random.Random, goal: Any, facts: dict[str, Any], depth: int) -> str:
    """Write a proof that follows the goal's shape; where it does not know, it guesses, often wrongly."""
    if rng.random() < 0.03 or depth == 0:
        return guess(rng, facts)
    if rng.random() < 0.1:
        return f"(by {rng.choice(('assumption', 'tauto', 'trivial', 'simp_all', 'decide', 'contradiction'))})"
    match goal:
        case ("→", a, b):
            name = f"h{len(facts)}"
            return f"(fun {name} => {term(rng, b, {**facts, name: a}, depth)})"
        case ("¬", a):
            name = f"h{len(facts)}"
            return f"(fun {name} => {term(rng, 'False', {**facts, name: a}, depth)})"
        case ("∧", a, b):
            return f"⟨{term(rng, a, facts, depth)}, {term(rng, b, facts, depth)}⟩"
        case ("↔", a, b):
            return f"⟨{term(rng, ('→', a, b), facts, depth)}, {term(rng, ('→', b, a), facts, depth)}⟩"
        case ("∀", name, a):
            return f"(fun {name} => {term(rng, a, facts, depth)})"
        case ("∃", name, a):
            witness = rng.choice((*ATOMS, "True", "False"))
            return f"⟨{witness}, {term(rng, fill(a, {name: witness}), facts, depth - 1)}⟩"
        case ("∨", a, b) if rng.random() < 0.5:
            side, part = rng.choice((("inl", a), ("inr", b)))
            return f"(Or.{side} {term(rng, part, facts, depth - 1)})"
    exact = [name for name, fact in facts.items() if fact == goal]
    return rng.choice(exact) if exact else use(rng, goal, facts, depth)


def use(rng: random.Random, goal: Any, facts: dict[str, Any], depth: int) -> str:
    """Take a random fact apart, or fall back on what is classical."""
    name = rng.choice([*facts, ""]) if facts else ""
    new = f"h{len(facts)}"
    match facts.get(name):
        case ("∧", a, b):
            other = f"h{len(facts) + 1}"
            rest = term(rng, goal, {**facts, new: a, other: b}, depth - 1)
            return f"((fun ({new} : {text(a)}) ({other} : {text(b)}) => {rest}) {name}.1 {name}.2)"
        case ("∨", a, b):
            left, right = (term(rng, goal, {**facts, new: part}, depth - 1) for part in (a, b))
            return f"({name}.elim (fun {new} => {left}) (fun {new} => {right}))"
        case ("→", a, b):
            rest = term(rng, goal, {**facts, new: b}, depth - 1)
            return f"((fun ({new} : {text(b)}) => {rest}) ({name} {term(rng, a, facts, depth - 1)}))"
        case ("¬", a):
            return f"(absurd {term(rng, a, facts, depth - 1)} {name})"
        case ("↔", a, b):
            fact = ("→", a, b)
            rest = term(rng, goal, {**facts, new: fact}, depth - 1)
            return f"((fun ({new} : {text(fact)}) => {rest}) {name}.mp)"
        case ("∀", bound, a):
            at = rng.choice(ATOMS)
            fact = fill(a, {bound: at})
            rest = term(rng, goal, {**facts, new: fact}, depth - 1)
            return f"((fun ({new} : {text(fact)}) => {rest}) ({name} {at}))"
        case "False":
            return f"{name}.elim"
    atom = rng.choice(ATOMS)
    if rng.random() < 0.5:
        left, right = (term(rng, goal, {**facts, new: part}, depth - 1) for part in (atom, ("¬", atom)))
        return f"((Classical.em {atom}).elim (fun {new} => {left}) (fun {new} => {right}))"
    inner = term(rng, "False", {**facts, new: ("¬", goal)}, depth - 1)
    return f"(Classical.byContradiction (fun {new} => {inner}))"


def guess(rng: random.Random, facts: Mapping[str, Any]) -> str:
    names = list(facts) or ["trivial"]
    one, other = rng.choice(names), rng.choice(names)
    return rng.choice((
        one, f"{one}.1", f"{one}.2", f"({one} {other})", "trivial", "rfl", f"{one}.symm", f"(Or.inl {one})",
        f"(Or.inr {one})", f"⟨{one}, {other}⟩", f"(absurd {one} {other})", "id", f"{one}.elim",
        f"(propext {one})", f"(Iff.intro {one} {other})", "(Classical.em _)", "_",
    ))  # fmt: skip


TACTICS = (
    "intro h", "intros", "intro a b", "rintro ⟨a, b⟩", "constructor", "left", "right", "assumption", "exact h",
    "trivial", "contradiction", "exfalso", "rfl", "decide", "simp", "simp [h]", "simp_all", "omega", "tauto", "cases h",
    "cases a", "rcases h with a | b", "obtain ⟨a, b⟩ := h", "obtain ⟨a, b⟩ := b", "rw [h]", "rw [← h]",
    "apply h", "apply a", "apply b", "apply h.1",
    "apply h.mpr", "exact h a", "exact a h", "exact h.1", "exact h.2", "exact ⟨a, b⟩", "refine ⟨?_, ?_⟩",
    "refine h.elim ?_ ?_", "apply Or.inl", "apply And.intro <;> assumption", "apply Iff.intro", "apply Or.elim h",
    "have a := h.1", "have b := h.2", "have a : p ∨ ¬p := Classical.em p", "show False",
    "apply absurd a", "apply False.elim", "revert h", "exact absurd a b",
    "first | exact h | exact a",
    "· intro h", "constructor <;> intro h", "refine ⟨p, ?_⟩", "exact fun x => x",
    "exact h _", "apply propext", "exact Iff.rfl", "apply Eq.mpr",
    "induction h", "subst h", "exact Classical.byContradiction h", "apply Classical.byContradiction", "change True",
    "cases h with\n| inl a => exact a\n| inr b => exact b",
)  # fmt: skip


def fresh() -> Server:
    return Server(Modules(Path()), initial_environment())


def walk(rng: random.Random, formula: Any) -> tuple[bool, frozenset[str]]:
    """Apply random tactics; return whether they closed the statement, and the axioms that the proof rests on."""
    server = fresh()
    started: Any = server.answer("goal.start", {"expr": f"∀ (p q r : Prop), {text(formula)}"})
    begun: Any = server.answer("goal.tactic", {"stateId": started["stateId"], "tactic": "intro p q r"})
    number: int = begun["nextStateId"]
    for _ in range(7):
        for tactic in rng.sample(TACTICS, 14):
            reply: Any = server.answer("goal.tactic", {"stateId": number, "tactic": tactic})
            assert "internal" not in str(reply.get("desc", "")), (tactic, reply)
            if "nextStateId" in reply:
                number = reply["nextStateId"]
                break
        else:
            return False, frozenset()
        state = server.states[number]
        if not state.goals:
            root = state.meta.instantiate(state.root)
            kernel.check(initial_environment(), root, state.meta.holes[state.root.id].type)
            return True, kernel.axioms_of(initial_environment(), root)
    return False, frozenset()


def elaborate(source: str) -> tuple[bool, frozenset[str]]:
    """Process a file with the theorem `t`; return whether it was accepted, and its axioms."""
    frontend = Frontend(initial_environment())
    notes = [note.text for command in frontend.run(source) for note in command.notes]
    constant = frontend.env.get("t")
    assert (constant is None) == bool(notes), (source, notes)
    return constant is not None, constant.axioms if constant is not None else frozenset()


def verdict(formula: Any, *, accepted: bool, axioms: frozenset[str], how: object) -> str:
    """Check one outcome, and name it."""
    if not accepted:
        return "refused"
    assert "sorryAx" not in axioms
    assert is_true(formula), (text(formula), how)
    if axioms <= INTUITIONISTIC:
        assert is_intuitionistic(formula), (text(formula), how, axioms)
        return "intuitionistic"
    return "classical"


def try_script(seed: int) -> str:
    rng = random.Random(seed)
    formula = statement(rng)
    accepted, axioms = walk(rng, formula)
    return verdict(formula, accepted=accepted, axioms=axioms, how=seed)


def try_term(seed: int) -> str:
    rng = random.Random(seed)
    formula = statement(rng)
    proof = term(rng, formula, {}, 4)
    accepted, axioms = elaborate(f"theorem t (p q r : Prop) : {text(formula)} :=\n  {proof}\n")
    return verdict(formula, accepted=accepted, axioms=axioms, how=proof)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_what_a_random_script_proves_is_true(seed: int) -> None:
    try_script(seed)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_what_a_random_term_proves_is_true(seed: int) -> None:
    try_term(seed)


def test_the_random_proofs_are_of_every_kind() -> None:
    """Hold the two tests above to something: they see proofs of both kinds, and refusals."""
    scripts = Counter(try_script(seed) for seed in range(45))
    terms = Counter(try_term(seed) for seed in range(100))

    assert min(scripts["classical"], scripts["intuitionistic"], scripts["refused"]) >= 2, scripts
    assert min(terms["classical"], terms["intuitionistic"], terms["refused"]) >= 4, terms
