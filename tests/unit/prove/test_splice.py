"""The text of a proof at a sorry: it depends on the text around it, and changes nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lean.source.splice import (
    JoinError,
    Replacement,
    Script,
    Step,
    join,
    join_submitted,
    placements,
    splice,
    text_placements,
)
from store.domain.records import SorryMode
from tests.support.prove import sorry_at

ONE = Script((Step("rfl", 1, 0),))
TWO = Script((Step("intro h", 1, 1), Step("exact h", 1, 0)))
HAVE = "have l : q := by\n  intro h\n  exact h"
LINES = Script((Step(HAVE, 1, 1), Step("exact l", 1, 0)))
TREE = Script((Step("constructor", 1, 2), Step("rfl", 2, 1), Step("trivial", 1, 0)))


def filled(text: str, script: Script, *, mode: SorryMode, which: int = 0) -> list[str]:
    """Return every version of the text with its first (or a later) `sorry` replaced."""
    data = text.encode()
    start = -1
    for _ in range(which + 1):
        start = data.index(b"sorry", start + 1)
    result = placements(*sorry_at(data, start, mode), script)
    return [splice(data, replacement).decode() for replacement in result]


@pytest.mark.parametrize(
    ("text", "script", "mode", "expected"),
    [
        ("theorem t : p → p := sorry", TWO, "term", "theorem t : p → p := by\n  intro h\n  exact h"),
        ("theorem t : p = p := sorry", ONE, "term", "theorem t : p = p := by rfl"),
        (
            "theorem t :\n    p → p := sorry\n",
            TWO,
            "term",
            "theorem t :\n    p → p := by\n  intro h\n  exact h\n",
        ),
        ("theorem t : p :=\n  sorry", ONE, "term", "theorem t : p :=\n  by rfl"),
        ("theorem t : p := by sorry", ONE, "tactic", "theorem t : p := by rfl"),
        ("theorem t : p := by sorry", TWO, "tactic", "theorem t : p := by intro h; exact h"),
        (
            "theorem t : p := by sorry",
            TREE,
            "tactic",
            "theorem t : p := by constructor\n" + " " * 20 + "· rfl\n" + " " * 20 + "· trivial",
        ),
        ("theorem t : p := by\n  sorry\n", TWO, "tactic", "theorem t : p := by\n  intro h\n  exact h\n"),
        (
            "theorem t : p := by\n  · sorry\n  · rfl",
            TREE,
            "tactic",
            "theorem t : p := by\n  · constructor\n    · rfl\n    · trivial\n  · rfl",
        ),
        (
            "theorem t : p := by\n  · sorry\n  · rfl\n",
            TWO,
            "tactic",
            "theorem t : p := by\n  · intro h\n    exact h\n  · rfl\n",
        ),
        ("theorem t : p := by\n  sorry", ONE, "tactic", "theorem t : p := by\n  rfl"),
        (
            "theorem t : p := by\n  exact sorry",
            TWO,
            "term",
            "theorem t : p := by\n  exact (by intro h; exact h)",
        ),
        ("theorem t : p := fun x => sorry", ONE, "term", "theorem t : p := fun x => (by rfl)"),
        ("theorem t : p := ⟨sorry, rfl⟩", ONE, "term", "theorem t : p := ⟨(by rfl), rfl⟩"),
        (
            "theorem t : p := by\n  have h : q := sorry\n  exact h",
            TWO,
            "term",
            "theorem t : p := by\n  have h : q := by\n    intro h\n    exact h\n  exact h",
        ),
        (
            "theorem t : p := by\n  · have h : q := sorry\n    exact h",
            TWO,
            "term",
            "theorem t : p := by\n  · have h : q := by\n      intro h\n      exact h\n    exact h",
        ),
        (
            "theorem t : p := by\n  constructor <;> sorry",
            TWO,
            "tactic",
            "theorem t : p := by\n  constructor <;> (intro h; exact h)",
        ),
        (
            "theorem t : p := by intro x; sorry",
            TWO,
            "tactic",
            "theorem t : p := by intro x; (intro h; exact h)",
        ),
        (
            "theorem t : p := by\n  sorry <;> rfl",
            TWO,
            "tactic",
            "theorem t : p := by\n  (intro h; exact h) <;> rfl",
        ),
        (
            "theorem t : p := by\n  constructor <;>\n    sorry",
            TWO,
            "tactic",
            "theorem t : p := by\n  constructor <;>\n    (intro h; exact h)",
        ),
        (
            "theorem t : p := by\n  cases h with\n  | inl h => sorry\n  | inr h => rfl",
            TWO,
            "tactic",
            "theorem t : p := by\n  cases h with\n  | inl h => intro h; exact h\n  | inr h => rfl",
        ),
        (
            "theorem t : p := by\n  · sorry\n  · rfl",
            LINES,
            "tactic",
            "theorem t : p := by\n  · have l : q := by\n      intro h\n      exact h\n    exact l\n  · rfl",
        ),
        (
            "theorem t : p := sorry",
            LINES,
            "term",
            "theorem t : p := by\n  have l : q := by\n    intro h\n    exact h\n  exact l",
        ),
        (
            "theorem t : p := by\n  sorry -- a note stays",
            TWO,
            "tactic",
            "theorem t : p := by\n  intro h\n  exact h -- a note stays",
        ),
    ],
)
def test_the_first_text_offered_fits_the_place(
    text: str, script: Script, mode: SorryMode, expected: str
) -> None:
    assert filled(text, script, mode=mode)[0] == expected


@pytest.mark.parametrize("end", ["\r\n", ""])
def test_a_crlf_file_keeps_its_line_ends(end: str) -> None:
    text = f"theorem t : p := by\r\n  sorry{end}"
    assert filled(text, TWO, mode="tactic")[0] == f"theorem t : p := by\r\n  intro h\r\n  exact h{end}"


def test_columns_count_code_points_not_bytes() -> None:
    text = "example (α : ℕ) : p := by sorry"
    lines = filled(text, TREE, mode="tactic")[0].splitlines()
    assert lines[1].index("· rfl") == lines[0].index("constructor")


def test_the_most_robust_text_comes_last_and_is_one_line() -> None:
    for text in filled("theorem t : p := by\n  sorry", TREE, mode="tactic")[-1:]:
        assert text.endswith("(constructor; rfl; trivial)")


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        (
            "theorem t : p := by\n  sorry",
            "tactic",
            "theorem t : p := by\n  (have l : q := by\n     intro h\n     exact h\n   exact l)",
        ),
        (
            "theorem t : p := f sorry",
            "term",
            "theorem t : p := f (by have l : q := by\n"
            + " " * 25 + "intro h\n" + " " * 25 + "exact h\n" + " " * 23 + "exact l)",
        ),
    ],
)  # fmt: skip
def test_lines_of_one_tactic_stay_below_its_first_one_in_brackets_too(
    text: str, mode: SorryMode, expected: str
) -> None:
    assert filled(text, LINES, mode=mode)[-1] == expected


@pytest.mark.parametrize(
    ("text", "lines", "tactics", "mode", "expected"),
    [
        (
            "theorem t : p := by\n  sorry\n",
            ["intro h", "exact h"],
            True,
            "tactic",
            [
                "theorem t : p := by\n  intro h\n  exact h\n",
                "theorem t : p := by\n  (intro h\n   exact h)\n",
            ],
        ),
        (
            "theorem t : p := by\n  sorry\n",
            ["fun h =>", "  h"],
            False,
            "tactic",
            [
                "theorem t : p := by\n  exact fun h =>\n    h\n",
                "theorem t : p := by\n  (exact fun h =>\n     h)\n",
            ],
        ),
        (
            "theorem t : p := sorry\n",
            ["intro h", "exact h"],
            True,
            "term",
            [
                "theorem t : p := by\n  intro h\n  exact h\n",
                f"theorem t : p := (by\n{' ' * 19}intro h\n{' ' * 19}exact h)\n",
            ],
        ),
        (
            "theorem t : p := sorry\n",
            ["rfl"],
            True,
            "term",
            [
                "theorem t : p := by rfl\n",
                "theorem t : p := by\n  rfl\n",
                f"theorem t : p := (by\n{' ' * 19}rfl)\n",
            ],
        ),
        (
            "theorem t : p := sorry\n",
            ["fun h =>", "  h"],
            False,
            "term",
            ["theorem t : p := fun h =>\n  h\n", f"theorem t : p := (fun h =>\n{' ' * 20}h)\n"],
        ),
        (
            "theorem t : p :=\n  f sorry\n",
            ["fun h =>", "  h"],
            False,
            "term",
            ["theorem t : p :=\n  f (fun h =>\n       h)\n"],
        ),
    ],
)
def test_a_written_proof_keeps_its_layout_at_every_place(
    text: str, lines: list[str], tactics: bool, mode: SorryMode, expected: list[str]
) -> None:
    data = text.encode()
    start = data.index(b"sorry")
    result = text_placements(*sorry_at(data, start, mode), lines, tactics=tactics)
    assert [splice(data, replacement).decode() for replacement in result] == expected


def test_several_replacements_join_into_one_with_the_text_between_kept() -> None:
    data = "⟨sorry, h, sorry⟩".encode()
    first = Replacement(3, 8, "(by rfl)")
    second = Replacement(13, 18, "(by trivial)")
    joint = join(data, [second, first])
    assert splice(data, joint).decode() == "⟨(by rfl), h, (by trivial)⟩"
    assert joint.parts == (8, 12)
    assert join(data, [first]) == first


def test_overlapping_replacements_are_refused() -> None:
    with pytest.raises(ValueError, match="overlap"):
        join(b"sorry", [Replacement(0, 5, "a"), Replacement(3, 5, "b")])


def together(number: int, size: int) -> Replacement:
    parts = [Replacement(6 * at, 6 * at + 5, "a" * (1 if at else size)) for at in range(number)]
    return join_submitted(b"sorry " * number, parts)


@pytest.mark.parametrize(
    ("number", "size", "reason"), [(101, 1, "too_many_sorries"), (100, 2**17, "too_large_together")]
)
def test_what_is_submitted_together_is_bounded_by_sorries_times_text(
    number: int, size: int, reason: str
) -> None:
    assert together(100, 2**16).byte_end == 599
    assert together(1, 2**24).byte_end == 5, "it has one record"
    with pytest.raises(JoinError, match="; prove parts of the declaration as lemmas") as caught:
        together(number, size)
    assert caught.value.reason == reason


@settings(max_examples=30, deadline=None)
@given(
    before=st.text(st.characters(codec="utf-8"), max_size=60),
    after=st.text(st.characters(codec="utf-8"), max_size=60),
    mode=st.sampled_from(["term", "tactic"]),
    script=st.sampled_from([ONE, TWO, TREE, LINES]),
)
def test_every_byte_outside_the_sorry_stays_as_it_was(
    before: str, after: str, mode: SorryMode, script: Script
) -> None:
    head, tail = before.encode(), after.encode()
    data = head + b"sorry" + tail
    for replacement in placements(*sorry_at(data, len(head), mode), script):
        patched = splice(data, replacement)
        assert patched.startswith(head)
        assert patched.endswith(tail)
        assert patched[len(head) : len(patched) - len(tail)] == replacement.text.encode()
