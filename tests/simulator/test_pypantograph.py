"""PyPantograph's own client drives the simulator: what it sends is understood, what it gets it can read.

Runs where the package `pantograph` with its `Server` can be imported, or where EVERLEAN_PYPANTOGRAPH names a folder
that holds it; skipped elsewhere (the package of that name on PyPI is another one).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SIMULATOR = [sys.executable, "-I", "-m", "pipeline.lean.simulator"]
FILE = """import Init

/-- swaps -/
theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by
  -- a comment
  constructor
  · exact h.2
  · exact h.1

theorem term (p : Prop) (h : p) : p := h
"""


@pytest.fixture(scope="module")
def package() -> ModuleType:
    folder = os.environ.get("EVERLEAN_PYPANTOGRAPH", "")
    if folder:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module("pantograph.server")
    except ImportError:
        pytest.skip("PyPantograph cannot be imported; EVERLEAN_PYPANTOGRAPH may name the folder it is in")
    finally:
        if folder:
            sys.path.remove(folder)
    if not hasattr(module, "Server"):
        pytest.skip("the package `pantograph` is not PyPantograph: it has no server.Server")
    return module


@pytest.fixture
def start(
    package: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """Start its Server with a wrapper of the simulator for the REPL; the servers end with the test."""
    wrapper = tmp_path / "pantograph-repl"
    wrapper.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in SIMULATOR) + ' "$@"\n', "utf-8")
    wrapper.chmod(0o755)
    monkeypatch.setattr(package, "_get_proc_path", lambda: wrapper)
    monkeypatch.setattr(package, "_get_proc_cwd", lambda: tmp_path)
    servers: list[Any] = []

    def make(**options: object) -> Any:
        server = package.Server(**({"imports": ["Init"]} | options))
        servers.append(server)
        return server

    yield make
    for server in servers:
        process = server.proc
        server._close()
        if process is not None:
            importlib.import_module("pantograph.utils").get_event_loop().run_until_complete(process.wait())


def test_it_proves_a_statement_step_by_step(start: Callable[..., Any]) -> None:
    server = start()
    state0 = server.goal_start("forall (p q : Prop), Or p q -> Or q p")
    state1 = server.goal_tactic(state0, "intro a b h")
    state2 = server.goal_tactic(state1, "cases h")

    assert str(state1.goals[0]) == "a : Prop\nb : Prop\nh : a ∨ b\n⊢ b ∨ a"
    assert [goal.name for goal in state2.goals] == ["inl", "inr"]
    state3 = server.goal_tactic(state2, "apply Or.inr\nassumption")
    state4 = server.goal_tactic(state3, "apply Or.inl; assumption")
    assert state4.is_solved
    assert server.goal_root(state0) is None
    assert "fun a b h" in str(server.goal_root(state4))


def test_a_failed_and_a_sorried_tactic_are_its_exceptions(
    package: ModuleType, start: Callable[..., Any]
) -> None:
    server = start()
    state = server.goal_start("False")

    for tactic in ("exact nonexistent", "exact (", "sorry"):
        with pytest.raises(package.TacticFailure):
            server.goal_tactic(state, tactic)
    with pytest.raises(package.ServerError):
        server.goal_start("1 +")


def test_sorries_are_loaded_and_proved(start: Callable[..., Any]) -> None:
    server = start()
    (target,) = server.load_sorry("theorem mystery (p : Prop) : p → p := sorry")
    assert str(target.goal_state.goals[0]) == "p : Prop\n⊢ p → p"
    assert server.goal_tactic(target.goal_state, "exact fun h => h").is_solved


def test_tactic_invocations_are_read_from_a_file(start: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "Example.lean"
    path.write_text(FILE, "utf-8")
    first, second = start().tactic_invocations(path)

    assert FILE.encode()[first.i_begin : first.i_end].decode().startswith("/-- swaps -/\ntheorem swap")
    assert [one.tactic for one in first.invocations] == ["constructor", "exact h.2", "exact h.1"]
    assert first.invocations[0].used_constants == ["And.intro"]
    assert first.invocations[1].after == ""
    assert second.invocations is None


def test_the_environment_is_inspected(start: Callable[..., Any]) -> None:
    server = start()
    server.load_definitions("theorem mine (p : Prop) (h : p) : p := h\ndef other : Nat := 2 + 2")

    assert server.env_inspect("mine")["type"] == {"pp": "∀ (p : Prop), p → p"}
    assert server.env_inspect("other", print_value=True)["value"] == {"pp": "2 + 2"}


def test_code_is_compiled_and_tracked(start: Callable[..., Any]) -> None:
    server = start()
    good, bad = (server.check_compile(f"example (p : Prop) : p -> p := {v}")[0] for v in ("id", "1"))
    assert (good.messages, len(bad.messages)) == ([], 1)
    src = "def x : Nat := sorry\ntheorem y : x = x := sorry"
    assert server.check_track(src, "def x : Nat := 123\ntheorem y : x = x := rfl").succeeded
    assert server.check_track(src, "def x : Nat := 123").failure == "[y] not accounted for"


def test_the_header_and_the_scope_are_loaded(start: Callable[..., Any]) -> None:
    server = start(imports=[])
    server.load_header("import Init\nopen Classical")
    assert server.goal_tactic(server.goal_start("∀ (p : Prop), p ∨ ¬p"), "exact em").is_solved


def test_goals_that_share_a_hole_say_so(start: Callable[..., Any]) -> None:
    server = start(options={"printDependentMVars": True})
    state = server.goal_tactic(server.goal_start("∃ (x : Nat), x + 1 = 0"), "apply Exists.intro")
    assert [goal.sibling_dep for goal in state.goals] == [{1}, set()]


def test_the_version_is_the_simulators(package: ModuleType, start: Callable[..., Any]) -> None:
    start()
    assert "not Lean" in package.get_version()
