"""Nothing gets in by a side door: saved files, subsumption, axioms, names, and work without end."""

from __future__ import annotations

import json
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


def test_a_goal_that_a_structured_have_filled_subsumes_nothing(ask: Ask) -> None:
    """Its term is a function that nothing was applied to; taken for a proof it would prove `∀ p, p`."""
    ask("goal.start", expr="∀ (p : Prop), p")
    (goal,) = ask("goal.tactic", stateId=0, tactic="intro p")["goals"]
    branch, _ = ask("goal.tactic", stateId=1, have="p", binderName="h")["goals"]
    ask("goal.tactic", stateId=2, have="p", binderName="again")
    ask("goal.tactic", stateId=3, tactic="exact again", goalId=1)

    asked = {"stateId": 1, "goal": goal["name"], "candidates": [branch["name"]], "srcStateId": 4}
    assert ask("goal.subsume", **asked) == {"result": "none"}


# ---- saved goal states


def forged(ask: Ask, tmp_path: Path, state: int, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Save a state, change the file, and load it."""
    path = tmp_path / "state"
    ask("goal.save", id=state, path=str(path))
    table = json.loads(path.read_text("utf-8"))
    change(table)
    path.write_text(json.dumps(table), "utf-8")
    return ask("goal.load", path=str(path))


def root_hole(table: dict[str, Any]) -> list[Any]:
    return next(hole for hole in table["holes"] if hole[0] == table["root"])


def _another_statement(table: dict[str, Any]) -> None:
    root_hole(table)[1] = ["Const", "False"]


def _a_hypothesis_of_the_root(table: dict[str, Any]) -> None:
    number = 10**6
    root_hole(table)[1] = ["Const", "False"]
    root_hole(table)[2] = [[number, "h"]]
    table["locals"].append([number, ["Const", "False"]])
    table["values"] = [[table["root"], ["FVar", number]]]


def _an_open_root_with_a_hypothesis(table: dict[str, Any]) -> None:
    _a_hypothesis_of_the_root(table)
    table["values"], table["goals"] = [], [table["root"]]


def _a_statement_that_is_no_type(table: dict[str, Any]) -> None:
    root_hole(table)[1] = ["Lit", 3]


def _a_goal_that_is_nowhere(table: dict[str, Any]) -> None:
    table["goals"] = [10**6]


def _an_id_of_the_kernels_own(table: dict[str, Any]) -> None:
    table["locals"].append([-2, ["Const", "False"]])


@pytest.mark.parametrize(
    "change",
    [
        _another_statement,
        _a_hypothesis_of_the_root,
        _an_open_root_with_a_hypothesis,
        _a_statement_that_is_no_type,
        _a_goal_that_is_nowhere,
        _an_id_of_the_kernels_own,
    ],
)
def test_a_finished_state_that_was_changed_in_its_file_is_not_loaded(
    ask: Ask, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    ask("goal.start", expr="True ∧ True")
    ask("goal.tactic", stateId=0, tactic="exact ⟨trivial, trivial⟩")
    assert forged(ask, tmp_path, 1, lambda _table: None) == {"id": 2}

    assert forged(ask, tmp_path, 1, change)["error"] == "io"
    assert ask("stat")["nGoals"] == 3


def test_a_state_belongs_to_the_values_of_its_environment_not_only_to_the_names(
    ask: Ask, server: Server, tmp_path: Path
) -> None:
    before = server.core.env
    ask("env.add", name="claim", type="Prop", value="True", isTheorem=False)
    ask("goal.start", expr="claim")
    path = str(tmp_path / "state")
    ask("goal.save", id=0, path=path)
    server.core.env = before
    ask("env.add", name="claim", type="Prop", value="False", isTheorem=False)

    assert "another environment" in ask("goal.load", path=path)["desc"]


# ---- saved environments and axioms


def load(ask: Ask, tmp_path: Path, *constants: list[object]) -> dict[str, Any]:
    path = tmp_path / "env"
    table = {"simulator": "environment", "imports": ["Init"], "constants": list(constants)}
    path.write_text(json.dumps(table), "utf-8")
    return ask("env.load", path=str(path))


FALSE = ["Const", "False"]


def test_what_axioms_a_loaded_theorem_rests_on_is_found_anew(ask: Ask, tmp_path: Path) -> None:
    constants: list[list[object]] = [
        ["assumed", FALSE, None, True],
        ["laundered", FALSE, ["Const", "assumed"], True],
        ["gap", FALSE, ["Sorry", FALSE], True],
        ["washed", FALSE, ["Const", "gap"], True],
        ["middle", ["Pi", "p", ["Sort", 0], ["App", ["App", ["Const", "Or"], ["BVar", 0]],
         ["App", ["Const", "Not"], ["BVar", 0]]], "explicit"], ["Const", "Classical.em"], True],
    ]  # fmt: skip
    assert load(ask, tmp_path, *constants) == {}

    assert axioms(ask, "laundered") == "'laundered' depends on axioms: [assumed]"
    assert axioms(ask, "washed") == "'washed' depends on axioms: [sorryAx]"
    assert "Classical.choice" in axioms(ask, "middle")


def test_a_saved_environment_does_not_say_what_its_theorems_rest_on(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "env"
    ask("frontend.process", file="axiom a : False\ntheorem t : 1 = 2 := a.elim", **PROCESS)
    ask("env.save", path=str(path))
    written = json.loads(path.read_text("utf-8"))["constants"]

    assert [len(constant) for constant in written] == [4, 4]
    assert ask("env.load", path=str(path)) == {}
    assert axioms(ask, "t") == "'t' depends on axioms: [a]"


@pytest.mark.parametrize("name", ["True.intro", "And.left", "False", "Nat.lt"])
def test_a_loaded_axiom_cannot_take_the_name_of_something_else(ask: Ask, tmp_path: Path, name: str) -> None:
    assert load(ask, tmp_path, [name, FALSE, None, True])["error"] == "exception"
    assert load(ask, tmp_path, ["a", FALSE, None, True], ["a", FALSE, None, True])["error"] == "exception"
    assert ask("env.inspect", name="a")["error"] == "index"


@pytest.mark.parametrize(
    "term",
    [
        ["Lit", 0.5],
        ["Lit", True],
        ["Sort", "0"],
        ["Const", 3],
        ["App", FALSE],
        ["BVar"],
        "False",
        ["Magic", 1],
    ],
)
def test_a_file_holds_only_terms_that_there_are(ask: Ask, tmp_path: Path, term: object) -> None:
    assert load(ask, tmp_path, ["t", term, None, True])["error"] == "io"


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
def test_the_kernel_refuses_what_only_a_forged_file_can_hold(why: str, term: Term, kind: Term) -> None:
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


def test_tactics_are_recorded_only_for_whoever_asks() -> None:
    text = "theorem t : True := by trivial"
    (silent,) = Frontend(initial_environment()).run(text)
    (counted,) = Frontend(initial_environment(), records=True).run(text)

    assert (len(silent.invocations), len(counted.invocations)) == (0, 1)
