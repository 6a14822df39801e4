"""A goal from its text: the theorem that states it, and the place in a file where its own theorem stood."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lean.client.messages import Goal, Variable
from pipeline.lean.pool.pool import ReplKey, Setup
from pipeline.models.tactics.goals import GoalContext, SourcePlaces, statement
from tests.support.lean.scripted import backend

FILE = """import Init
import Other

namespace Demo

variable (r : Prop)

theorem first : True := trivial

section
open Nat

theorem second (p : Prop) : p → p := by
  intro h
  exact h
end

theorem third : True := second True first
end Demo
"""


@pytest.mark.parametrize(
    ("state", "header"),
    [
        ("⊢ p", "theorem everlean_goal : p"),
        ("p q : Prop\nh : p ∧ q\n⊢ q ∧ p", "theorem everlean_goal (p q : Prop) (h : p ∧ q) : q ∧ p"),
        ("2 goals\ncase left\np : Prop\n⊢ p\n\ncase right\n⊢ q", "theorem everlean_goal (p : Prop) : p"),
        ("h :\n  a ∧\n    b\n⊢ c", "theorem everlean_goal (h : a ∧\n    b) : c"),
        ("h : a ∧\n    b\n⊢ c →\n  d", "theorem everlean_goal (h : a ∧\n    b) : c →\n  d"),
        (
            "G : Type u_1\ninst✝ : Group G\n⊢ a * b = c",
            "theorem everlean_goal (G : Type u_1) [Group G] : a * b = c",
        ),
        ("x✝¹ x✝ : p\n⊢ q", "theorem everlean_goal (_ : p) (_ : p) : q"),
        ("x : Nat := 3\n⊢ x = 3", None),
        ("x✝ : Nat\nh : x✝ = 3\n⊢ p", None),
        ("x✝ : Nat\n⊢ x✝ = 3", None),
        ("a b✝ : Nat\n⊢ p", None),
        ("h : p\n| a + b", None),
        ("no goals", None),
        ("nonsense\n⊢ p", None),
        ("", None),
    ],
)
def test_a_goal_is_stated_as_a_theorem_where_one_can(state: str, header: str | None) -> None:
    found = statement(state)
    assert (None if found is None else found.header) == header


def test_the_theorem_is_proved_by_the_tactic_with_all_its_lines() -> None:
    found = statement("h : p\n⊢ p")
    assert found is not None
    place = GoalContext(ReplKey(backend(), Path(), ("Init",)), preamble="open Nat")
    assert found.text(place) == "open Nat\ntheorem everlean_goal (h : p) : p := by\n  sorry\n"
    assert found.text(place, "have g := h\nexact g").endswith("by\n  have g := h\n  exact g\n")


def test_a_goal_is_known_again_whatever_hidden_names_and_tags_are() -> None:
    def goal(*names: str, target: str = "p") -> Goal:
        made = tuple(Variable(str(number), name, "✝" in name, "Prop") for number, name in enumerate(names))
        return Goal("g", target, made, user_name="intro")

    found = statement("case left\na b : Prop\nx✝¹ : Prop\n⊢ p")
    assert found is not None
    assert found.is_of((goal("a", "b", "x✝"),))
    assert not found.is_of((goal("a", "b", "x"),))
    broken = statement("a b :\n  Prop\nx✝ : Prop\n⊢ p ∧\n    q")
    assert broken is not None
    assert broken.is_of((goal("a", "b", "x✝", target="p ∧ q"),))
    assert not found.is_of((goal("a", "b"),))
    assert not found.is_of((goal("a", "b", "x✝", target="q"),))
    assert not found.is_of((goal("a", "b", "x✝"),) * 2)
    assert not found.is_of(())


def test_a_theorem_s_place_is_what_its_file_says_before_it_and_nothing_after(tmp_path: Path) -> None:
    (tmp_path / "Demo.lean").write_text(FILE, encoding="utf-8")
    places = SourcePlaces(backend(), tmp_path)
    line = FILE.split("\n").index("theorem second (p : Prop) : p → p := by") + 1
    place = places({"path": "Demo.lean", "start": [line, 1]})
    assert place is not None
    assert place.key.imports == ("Init", "Other")
    assert place.preamble == "namespace Demo\nvariable (r : Prop)\nsection\nopen Nat"
    assert "theorem first" in "".join(place.setup.prefix)
    assert "second" not in "".join(place.setup.prefix)
    later = places(
        {
            "path": "Demo.lean",
            "start": (FILE.split("\n").index("theorem third : True := second True first") + 1, 1),
        }
    )
    assert later is not None
    # A process that knows the file up to the one continues to the other.
    assert later.setup.begins_with(place.setup)
    assert place.setup.begins_with(Setup())


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"path": "Demo.lean", "start": None},
        {"path": "Demo.lean", "start": [4, 1]},
        {"path": "Demo.lean", "start": [99, 1]},
        {"path": "Gone.lean", "start": [1, 1]},
        {"path": "../Demo.lean", "start": [8, 1]},
    ],
)
def test_a_row_whose_theorem_is_not_there_has_no_place(tmp_path: Path, row: dict[str, object]) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for folder in (tmp_path, project):
        (folder / "Demo.lean").write_text(FILE, encoding="utf-8")
    assert SourcePlaces(backend(), project)(row) is None
