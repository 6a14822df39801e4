from __future__ import annotations

from pipeline.lean.source.splice import Script, Step


def test_a_single_tactic_is_one_line() -> None:
    script = Script((Step("rfl", 1, 0),))
    assert script.block() == ("rfl",)
    assert script.inline() == "rfl"


def test_goals_that_a_tactic_leaves_become_bullets_in_order() -> None:
    script = Script(
        (Step("intro h", 1, 1), Step("constructor", 1, 2), Step("exact h.1", 2, 1), Step("exact h.2", 1, 0))
    )
    assert script.block() == ("intro h", "constructor", "· exact h.1", "· exact h.2")
    assert script.inline() == "intro h; constructor; exact h.1; exact h.2"


def test_bullets_nest() -> None:
    script = Script(
        (
            Step("constructor", 1, 2),
            Step("constructor", 2, 3),
            Step("rfl", 3, 2),
            Step("trivial", 2, 1),
            Step("intro h", 1, 1),
            Step("assumption", 1, 0),
        )
    )
    assert script.block() == (
        "constructor",
        "· constructor",
        "  · rfl",
        "  · trivial",
        "· intro h",
        "  assumption",
    )


def test_a_step_that_closes_a_sibling_falls_back_to_one_line_each() -> None:
    """`exact` may settle the unknown that another goal is."""
    script = Script((Step("apply Exists.intro", 1, 2), Step("rfl", 2, 0)))
    assert script.block() == ("apply Exists.intro", "rfl")


HAVE = "have l (p : Prop) : p → p := by\n  intro h\n  exact h"


def test_a_tactic_of_several_lines_keeps_its_layout_at_any_place() -> None:
    script = Script((Step("constructor", 1, 2), Step(HAVE, 2, 2), Step("exact l q", 2, 1), Step("rfl", 1, 0)))
    assert script.block() == (
        "constructor",
        "· have l (p : Prop) : p → p := by",
        "    intro h",
        "    exact h",
        "  exact l q",
        "· rfl",
    )
    assert script.inline() == "\n".join(script.block()), "behind a `;` its lines would belong to nothing"
