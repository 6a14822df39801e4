"""The simulator accepts nothing false: truth tables against everything that it closes, and against its axioms."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.lean.simulator import kernel
from pipeline.lean.simulator.declarations import CLASSICAL_FACTS, FACTS, PROPEXT_FACTS, initial_environment
from pipeline.lean.simulator.frontend import Modules
from pipeline.lean.simulator.kernel import KernelError, Meta
from pipeline.lean.simulator.parser import parse_term
from pipeline.lean.simulator.server import Server
from pipeline.lean.simulator.tactics import Elaborator
from pipeline.lean.simulator.terms import (
    NAT,
    PROP,
    App,
    BVar,
    Const,
    Decide,
    FVar,
    Lam,
    Lit,
    MVar,
    Pi,
    Sorry,
    Term,
    apply,
    instantiate,
    nodes,
    spine,
)

Formula = tuple[str, ...] | str
ATOMS = ("p", "q", "r")


def formulas() -> st.SearchStrategy[object]:
    """Formulas as nested tuples: an atom, or a connective with its parts."""
    leaves = st.sampled_from([*ATOMS, "True", "False"])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(st.just("¬"), inner),
            st.tuples(st.sampled_from(["∧", "∨", "→", "↔"]), inner, inner),
        ),
        max_leaves=7,
    )


def text(formula: object) -> str:
    match formula:
        case str():
            return formula
        case ("¬", inner):
            return f"(¬{text(inner)})"
        case (op, left, right):
            return f"({text(left)} {op} {text(right)})"
    raise AssertionError(formula)


def truth(formula: object, values: Mapping[str, bool]) -> bool:
    match formula:
        case "True":
            return True
        case "False":
            return False
        case str():
            return values[formula]
        case ("¬", inner):
            return not truth(inner, values)
        case (op, left, right):
            a, b = truth(left, values), truth(right, values)
            return {"∧": a and b, "∨": a or b, "→": not a or b, "↔": a == b}[str(op)]
    raise AssertionError(formula)


def is_tautology(formula: object) -> bool:
    rows = itertools.product((True, False), repeat=len(ATOMS))
    return all(truth(formula, dict(zip(ATOMS, row, strict=True))) for row in rows)


SCRIPTS = (
    "tauto",
    "simp",
    "intros\nsimp_all",
    "intro p q r\nsimp",
    "intro p q r h\nsimp [h]",
    "intro p q r h\nsimp at h\nsimp_all",
    "intro p q r h\ncases h <;> simp_all",
    "intro p q r\nconstructor <;> intro h <;> first | exact h | trivial | contradiction | tauto",
    "intro p q r\nby_cases hp : p <;> by_cases hq : q <;> simp [hp, hq]",
    "intro p q r h\nrw [h]",
    "intro p q r h\nexact h.2",
    "intro p q r\nrintro ⟨a, b⟩\nassumption",
    "intro p q r\nexact fun ⟨a, b⟩ => ⟨b, a⟩",
    "intros\ntrivial",
    "intros\nby_contra h\napply h\ntrivial",
)


def fresh_server() -> Server:
    return Server(Modules.__new__(Modules), initial_environment())


@settings(max_examples=70, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(formula=formulas(), script=st.sampled_from(SCRIPTS))
def test_whatever_is_closed_is_a_tautology(formula: object, script: str) -> None:
    server = fresh_server()
    started = server.answer("goal.start", {"expr": f"∀ (p q r : Prop), {text(formula)}"})
    reply = server.answer("goal.tactic", {"stateId": started["stateId"], "tactic": script})

    if reply.get("goals") == []:
        assert is_tautology(formula), (text(formula), script)
        assert reply["hasSorry"] is False


@settings(max_examples=50, deadline=None)
@given(formula=formulas())
def test_tauto_closes_exactly_the_tautologies(formula: object) -> None:
    server = fresh_server()
    server.answer("goal.start", {"expr": f"∀ (p q r : Prop), {text(formula)}"})
    reply = server.answer("goal.tactic", {"stateId": 0, "tactic": "tauto"})

    assert (reply.get("goals") == []) == is_tautology(formula), reply


def statement(formula: object) -> Term:
    elaborator = Elaborator(Meta(initial_environment()))
    return elaborator.finished(elaborator.type(parse_term(f"∀ (p q r : Prop), {text(formula)}")))


@settings(max_examples=30, deadline=None)
@given(proved=formulas(), claimed=formulas())
def test_the_kernel_lets_no_proof_of_one_thing_prove_something_false(proved: object, claimed: object) -> None:
    server = fresh_server()
    server.answer("goal.start", {"expr": f"∀ (p q r : Prop), {text(proved)}"})
    server.answer("goal.tactic", {"stateId": 0, "tactic": "tauto"})
    state = server.states.get(1)
    if state is None:
        return
    term = state.meta.instantiate(state.root)
    env = initial_environment()

    kernel.check(env, term, statement(proved))
    if not is_tautology(claimed):
        with pytest.raises(KernelError):
            kernel.check(env, term, statement(claimed))


@settings(max_examples=30, deadline=None)
@given(formula=formulas(), data=st.data())
def test_the_kernel_survives_mutated_proofs_without_accepting_falsehood(
    formula: object, data: st.DataObject
) -> None:
    """Swap constants inside a good proof: either it is still well typed, or it is refused."""
    server = fresh_server()
    server.answer("goal.start", {"expr": f"∀ (p q r : Prop), {text(formula)}"})
    server.answer("goal.tactic", {"stateId": 0, "tactic": "tauto"})
    state = server.states.get(1)
    if state is None:
        return
    term = state.meta.instantiate(state.root)
    names = sorted({node.name for node in nodes(term) if isinstance(node, Const)})
    if not names:
        return
    from pipeline.lean.simulator.terms import replace_subterms

    victim = data.draw(st.sampled_from(names))
    other = data.draw(
        st.sampled_from(["And.left", "And.right", "Or.inl", "Or.inr", "True.intro", "p", "False.elim"])
    )
    mutated = replace_subterms(term, lambda node: Const(other) if node == Const(victim) else None)
    target = data.draw(formulas())
    if not is_tautology(target):
        with pytest.raises(KernelError):
            kernel.check(initial_environment(), mutated, statement(target))


WRONG_TERMS: list[tuple[str, Term, Term]] = [
    ("a proof of True for False", Const("True.intro"), Const("False")),
    ("an unknown constant", Const("magic"), Const("False")),
    ("a loose bound variable", BVar(0), Const("False")),
    ("a false evaluation", Decide(apply(Const("Eq"), NAT, Lit(1), Lit(2))), apply(Const("Eq"), NAT, Lit(1), Lit(2))),
    ("an evaluation of a variable", Lam("p", PROP, Decide(BVar(0))), Pi("p", PROP, BVar(0))),
    ("an identity of the wrong type", Lam("h", Const("True"), BVar(0)), Pi("h", Const("True"), Const("False"))),
    ("an application of no function", App(Const("True.intro"), Const("True.intro")), Const("False")),
    ("refl between different numbers", apply(Const("Eq.refl"), NAT, Lit(3)), apply(Const("Eq"), NAT, Lit(3), Lit(4))),
    ("an elimination of nothing", apply(Const("False.elim"), Const("False"), Const("True.intro")), Const("False")),
    ("half of nothing", apply(Const("And.left"), Const("True"), Const("False"), Const("True.intro")), Const("True")),
    ("a type as a proof", Const("Nat"), Const("False")),
    ("a number as a proof", Lit(3), Const("True")),
    ("a hypothesis of another place", FVar(10**9), Const("False")),
    ("a hypothesis that is used after its scope", App(Lam("h", Const("False"), FVar(-2)), FVar(-2)), Const("False")),
    ("a hole", MVar(10**9), Const("False")),
    ("a proof for a number", Const("True.intro"), Lit(3)),
]  # fmt: skip


@pytest.mark.parametrize(("why", "term", "kind"), WRONG_TERMS, ids=[entry[0] for entry in WRONG_TERMS])
def test_the_kernel_refuses(why: str, term: Term, kind: Term) -> None:
    with pytest.raises(KernelError):
        kernel.check(initial_environment(), term, kind)


def test_a_sorry_is_counted_through_the_theorems_that_use_it() -> None:
    env = initial_environment().define("bad", Const("False"), Sorry(Const("False")), is_theorem=True)
    env = env.define("worse", Const("False"), Const("bad"), is_theorem=True)

    worse = env.get("worse")
    assert worse is not None
    assert worse.axioms == {"sorryAx"}


def test_a_theorem_is_not_unfolded() -> None:
    env = initial_environment().define("t", Const("True"), Const("True.intro"), is_theorem=True)

    assert kernel.Reducer(env).unfold_head(Const("t")) is None


# ---- the built-in facts are true

# Facts about all sorts or about predicates, which no finite table covers; each is Lean's own, read by eye.
BY_EYE = {
    "False.elim", "absurd", "Not.elim", "Exists.intro", "Exists.elim", "Eq.refl", "rfl", "Eq.symm", "Eq.trans",
    "Eq.subst", "congrArg", "Ne.symm", "Nat.rec", "eq_self",
}  # fmt: skip
LINES = [line for part in (FACTS, PROPEXT_FACTS, CLASSICAL_FACTS) for line in part.strip().splitlines()]


@pytest.mark.parametrize("line", [line for line in LINES if line.partition(" : ")[0] not in BY_EYE])
def test_every_built_in_fact_holds(line: str) -> None:
    constant = initial_environment().get(line.partition(" : ")[0])
    assert constant is not None

    assert holds(constant.type)


def test_the_facts_checked_by_eye_are_all_there_are() -> None:
    assert {line.partition(" : ")[0] for line in LINES} >= BY_EYE


_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "Nat.add": lambda a, b: a + b,
    "Nat.sub": lambda a, b: max(0, a - b),
    "Nat.mul": lambda a, b: a * b,
}


def value(term: Term) -> bool | int:
    """Evaluate a closed term of the facts; `True`/`False` stand for the values of propositional variables."""
    head, args = spine(term)
    match head, args:
        case Lit(number), []:
            return number
        case Const("True"), []:
            return True
        case Const("False"), []:
            return False
        case Pi(), []:
            return holds(term)
        case Const("Nat.succ"), [inner]:
            return int(value(inner)) + 1
        case Const("Not"), [inner]:
            return not value(inner)
        case Const(name), [left, right] if name in _NUMBERS:
            return _NUMBERS[name](int(value(left)), int(value(right)))
        case Const(name), [*_, left, right]:
            a, b = value(left), value(right)
            return {
                "And": a and b, "Or": a or b, "Iff": a == b, "Eq": a == b, "Ne": a != b,
                "Nat.lt": a < b, "Nat.le": a <= b,
            }[name]  # fmt: skip
    raise AssertionError(term)


def holds(kind: Term) -> bool:
    """Return whether a statement is true: propositions by truth table, numbers from 0 to 3."""
    if not isinstance(kind, Pi):
        return bool(value(kind))
    if kind.type == PROP:
        return all(holds(instantiate(kind.body, Const(name))) for name in ("True", "False"))
    if kind.type == NAT:
        return all(holds(instantiate(kind.body, Lit(number))) for number in range(4))
    return not holds(kind.type) or holds(instantiate(kind.body, Const("True.intro")))
