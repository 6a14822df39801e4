"""Nothing gets in by a side door: subsumption, axioms, names, and work without end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.simulator import kernel
from pipeline.lean.simulator.declarations import initial_environment
from pipeline.lean.simulator.frontend import Frontend
from pipeline.lean.simulator.kernel import KernelError
from pipeline.lean.simulator.server import Server
from pipeline.lean.simulator.terms import NAT, Const, Decide, Lam, Lit, Pi, Sort, Term, apply

Ask = Callable[..., dict[str, Any]]
Process = Callable[[str], list[str]]
PROCESS = {"readHeader": False, "inheritEnv": True, "newConstants": False}


def axioms(ask: Ask, name: str) -> str:
    """Return what `#print axioms` says."""
    (unit,) = ask("frontend.process", file=f"#print axioms {name}", **PROCESS)["units"]
    return str(unit["messages"][0]["data"])


# ---- steps of the form `have`, whose terms prove nothing


# ---- axioms


def test_a_theorem_rests_on_the_axioms_of_what_it_uses(ask: Ask) -> None:
    text = (
        "axiom assumed : False\ntheorem laundered : False := assumed\ntheorem gap : False := sorry\n"
        "theorem washed : False := gap\ntheorem middle (p : Prop) : p ∨ ¬p := Classical.em p"
    )
    ask("frontend.process", file=text, **PROCESS)

    assert axioms(ask, "laundered") == "'laundered' depends on axioms: [assumed]"
    assert axioms(ask, "washed") == "'washed' depends on axioms: [sorryAx]"
    assert "Classical.choice" in axioms(ask, "middle")


@pytest.mark.parametrize("name", ["True.intro", "And.left", "False", "Nat.lt"])
def test_an_axiom_cannot_take_the_name_of_something_else(process: Process, name: str) -> None:
    assert process(f"axiom {name} : False") != []
    assert process("axiom a : False\naxiom a : False") != []


def test_an_axiom_with_a_gap_in_its_statement_rests_on_the_gap(ask: Ask) -> None:
    (unit,) = ask("frontend.process", file="axiom a : (sorry : Prop) → True", **PROCESS)["units"]

    assert [message["kind"] for message in unit["messages"]] == ["hasSorry"]
    assert axioms(ask, "a") == "'a' depends on axioms: [a, sorryAx]"


STRANGE: list[tuple[str, Term, Term]] = [
    ("a sort below all sorts", Lam("a", Sort(-2), Lit(0)), Pi("a", Sort(-2), NAT)),
    ("a function on all sorts", Lam("a", Sort(-1), Lit(0)), Pi("a", Sort(-1), NAT)),
    (
        "half a number",
        Decide(apply(Const("Nat.lt"), Lit(-1), Lit(0))),
        apply(Const("Nat.lt"), Lit(-1), Lit(0)),
    ),
]


@pytest.mark.parametrize(("why", "term", "kind"), STRANGE, ids=[entry[0] for entry in STRANGE])
def test_the_kernel_refuses_terms_that_no_text_can_make(why: str, term: Term, kind: Term) -> None:
    with pytest.raises(KernelError):
        kernel.check(initial_environment(), term, kind)


# ---- names


def test_the_root_namespace_can_be_named(process: Process) -> None:
    text = (
        "namespace Mine\ndef False : Prop := True\ntheorem mine : False := trivial\n"
        "theorem not : ¬_root_.False := fun h => h\nend Mine\n"
    )

    assert process(text) == []
    (error,) = process("namespace Mine\ntheorem wrong : _root_.False := mine\nend Mine")
    assert "type mismatch" in error


@pytest.mark.parametrize(
    "text",
    [
        "theorem t : False := t",
        "namespace A\ntheorem t : False := A.t\nend A",
        "namespace A\ntheorem t : False := _root_.A.t\nend A",
        "protected theorem A.t : False := by\n  open A in exact t",
        "theorem t (n : Nat) : False := t n",
        "theorem t : False := by\n  have h : False := h\n  exact h",
        "example : False := by\n  have this : False := this\n  exact this",
        "variable (h : False)\ntheorem t : 1 = 2 := h.elim",
        "theorem t (False : Prop) (h : False) : _root_.False := h",
        "theorem t (p q : Prop) (h : p ∨ q) (h : q) : p := by\n  rcases h with h | h <;> exact h",
        "theorem t (p q : Prop) (h : p ∨ q) : p := by\n  rcases h with h | h <;> first | exact h | assumption",
        "theorem t (h : ∀ n : Nat, n = 0) (m : Nat) : m = 1 := by rw [h]",
        "theorem t : (∀ n : Nat, n - 1 + 1 = n) := by intro n; omega",
        "theorem t (p q : Prop) (h : p ↔ q) : p := by simp_all",
        "theorem t (p : Prop) (h : p → p) : p := by simp [h]",
        "theorem t : ∃ y : Nat, ∀ x : Nat, x = y := by\n  constructor\n  intro x\n  rfl",
        "theorem t : ∃ x : Nat, x = 1 ∧ x = 2 := by\n  constructor\n  constructor\n  rfl\n  rfl",
        "theorem t (p : Prop) : p = True := by simp",
        "theorem t : Prop = Type := rfl",
        "theorem t (n : Nat) : n < n := by\n  induction n with\n  | zero => decide\n  | succ n ih => exact ih",
        "notation \"False\" => True\ntheorem t : False := trivial",
        "set_option debug.skipKernelTC true\ntheorem t : False := trivial",
    ],
)  # fmt: skip
def test_a_false_theorem_is_an_error(process: Process, text: str) -> None:
    assert process(text) != []


# ---- work without end

DOUBLING = "".join(
    f"def d{i} (p : Prop) : Prop := {f'd{i - 1} (d{i - 1} p)' if i else 'p ∧ p'}\n" for i in range(9)
)
ADDING = "".join(
    f"def n{i} (n : Nat) : Nat := {f'n{i - 1} (n{i - 1} n)' if i else 'n + n'}\n" for i in range(9)
)


@pytest.mark.parametrize(
    "text",
    [
        f"{DOUBLING}theorem t : d8 True := by decide",
        f"{DOUBLING}theorem t : d8 True := by first | decide | trivial",
        f"{DOUBLING}theorem t (p : Prop) : d8 p ↔ d7 (d7 p) := Iff.rfl",
        f"{ADDING}theorem t : n8 1 = 0 := by decide",
    ],
    ids=["decide", "no tactic catches it", "comparing", "arithmetic"],
)
def test_a_short_text_cannot_keep_it_busy(
    process: Process, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Unbounded, each of these takes longer than anybody waits."""
    monkeypatch.setattr(kernel, "MAX_STEPS", 2_000)

    (error,) = process(text)
    assert "steps" in error


def test_looking_at_a_state_again_and_again_does_not_wear_it_out(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("goal.start", expr="∀ (p q : Prop), (∀ (n : Nat), p) → q")
    first = ask("goal.print", stateId=0, goals=True)
    monkeypatch.setattr(kernel, "MAX_STEPS", 200)

    assert all(ask("goal.print", stateId=0, goals=True) == first for _ in range(100))


def test_a_failed_request_takes_no_id_even_when_it_had_made_states(server: Server, tmp_path: Path) -> None:
    old = Server(server.core.modules, server.core.env, dialect="old")
    request = {**PROCESS, "file": "theorem t : True := sorry", "sorrys": True, "typeErrorsAsGoals": False}
    failed = old.answer("frontend.process", {**request, "invocations": str(tmp_path / "no" / "file")})

    assert failed["error"] == "io"
    assert old.states == {}
    assert old.answer("goal.start", {"expr": "True"})["stateId"] == 0


def test_tactics_are_recorded_only_for_the_caller() -> None:
    text = "theorem t : True := by trivial"
    (silent,) = Frontend(initial_environment()).run(text)
    (counted,) = Frontend(initial_environment(), records=True).run(text)

    assert (len(silent.invocations), len(counted.invocations)) == (0, 1)
