"""What rests on a sorry is told from the source: by name, through other lemmas, imports and simp sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.gate.source_checks import cites_itself, cites_later, rests_on
from pipeline.lean.source.scanner import scan_source

LOGIC = """namespace Demo
theorem gap (p : Prop) : p → p := sorry
theorem bridge (p : Prop) : p → p := gap p
theorem solid (p : Prop) : p → p := fun h => h
@[simp] theorem lucky : 1 = 2 := sorry
end Demo
"""


def resting(project: Path, text: str, name: str) -> tuple[str, ...]:
    data = text.encode()
    (project / "Demo").mkdir(exist_ok=True)
    (project / "Demo" / "Logic.lean").write_text(LOGIC, encoding="utf-8")
    start = next(one.byte_start for one in scan_source(data, path="X.lean").declarations if one.name == name)
    return rests_on(project, path="X.lean", patched=data, declaration_start=start)


@pytest.mark.parametrize(
    ("proof", "expected"),
    [
        ("fun h => h", ()),
        ("Demo.solid p", ()),
        ("Demo.gap p", ("Demo.gap",)),
        ("«Demo».«gap» p", ("Demo.gap",)),
        ("_root_.Demo.gap p", ("Demo.gap",)),
        ("Demo.bridge p", ("Demo.gap",)),
        ("(Demo.gap p).symm", ("Demo.gap",)),
        ("by simp", ("Demo.lucky",)),
        ("fun h => h -- Demo.gap", ()),
        ("here p", ("here",)),
        ("by exact sorry", ("mine",)),
    ],
)
def test_what_a_proof_cites_decides(tmp_path: Path, proof: str, expected: tuple[str, ...]) -> None:
    text = f"import Demo.Logic\ntheorem here (p : Prop) : p → p := sorry\ntheorem mine (p : Prop) : p → p := {proof}\n"
    assert resting(tmp_path, text, "mine") == expected


def test_what_an_import_brings_counts_whichever_it_is(tmp_path: Path) -> None:
    (tmp_path / "Demo").mkdir()
    for name in ("First", "Second"):
        macro = f'macro "{name.lower()}" : tactic => `(tactic| sorry)\n'
        (tmp_path / "Demo" / f"{name}.lean").write_text(macro, encoding="utf-8")
    text = "import Demo.First\nimport Demo.Second\ntheorem mine : 1 = 1 := by {}\n"
    for name in ("first", "second"):
        (found,) = resting(tmp_path, text.format(name), "mine")
        assert f'macro "{name}"' in found


def test_a_later_declaration_is_not_looked_at(tmp_path: Path) -> None:
    text = "theorem mine (p : Prop) : p → p := fun later => later\ntheorem later : 1 = 2 := sorry\n"
    assert resting(tmp_path, text, "mine") == ()


def test_a_sorry_in_the_statement_counts(tmp_path: Path) -> None:
    text = "def mystery : Nat := sorry\ntheorem mine : mystery = mystery := rfl\n"
    assert resting(tmp_path, text, "mine") == ("mystery",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exact mine", True),
        ("exact N.mine", True),
        ("exact «N».mine h", True),
        ("exact mine.symm", True),
        ("exact _root_.N.mine", True),
        ("exact mine'", False),
        ("exact h -- mine", False),
        ("exact M.mine", False),
        ("exact h.mine", False),
        ("exact (f h).mine", False),
        ("exact (f h) .mine", True),
        ("exact _root_.mine", False),
        ("exact _root_.N.mine.symm", True),
        ("exact .mine h", True),
        ("exact (N.mine h).1", True),
        ("open N in exact mine", True),
    ],
)
def test_a_proof_that_names_its_own_declaration_is_seen(text: str, expected: bool) -> None:
    assert cites_itself(text, "N.mine") is expected


def test_an_example_has_no_name_to_cite() -> None:
    assert not cites_itself("exact _example", "N._example")


LATER = b"""theorem early (p : Prop) : p := h
theorem mine (p x : Prop) : p := sorry
theorem early' (p : Prop) : p := h
theorem N.late (p : Prop) : p := h
theorem x (p : Prop) : p := h
"""


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("exact early p", []),
        ("exact late p", [("late", "N.late")]),
        ("exact N.late p", [("N.late", "N.late")]),
        ("exact _root_.N.late p", [("N.late", "N.late")]),
        ("exact _root_.late p", []),
        ("exact (N.late p).symm", [("N.late", "N.late")]),
        ("exact late.symm", [("late", "N.late")]),
        ("exact fun late => late", []),
        ("intro late\n  exact late", []),
        ("exact x", []),
        ("exact Nat.early' p", []),
    ],
)
def test_what_comes_later_in_the_file_is_named(text: str, cited: list[tuple[str, str]]) -> None:
    found = cites_later(text, file=LATER, declaration_start=LATER.index(b"theorem mine"))
    assert [(one.word, one.name) for one in found] == cited


@pytest.mark.parametrize(
    ("line", "proof", "expected"),
    [
        ("attribute [simp] gap", "by simp", ("gap",)),
        ("attribute [local simp] gap in theorem z : 1 = 1 := rfl", "by simp", ("gap",)),
        ("attribute [instance] gap", "fun h => h", ("gap",)),
        ("instance : Inhabited Nat := sorry", "fun h => h", ("_instance",)),
        ("@[to_additive (attr := simp)] theorem t : 1 = 1 := sorry", "by omega", ("t",)),
        ("@[inline, deprecated] def d : Nat := sorry", "by omega", ()),
        (
            'macro "magic" : tactic => `(tactic| sorry)',
            "by magic",
            ('macro "magic" : tactic => `(tactic| sorry)',),
        ),
        ('macro "magic" : tactic => `(tactic| sorry)', "by omega", ()),
        (
            "macro_rules | `(tactic| rfl) => `(tactic| sorry)",
            "by rfl",
            ("macro_rules | `(tactic| rfl) => `(tactic| sorry)",),
        ),
        ("def trap := sorryAx Nat", "fun h => trap", ("trap",)),
    ],
)
def test_what_reaches_a_proof_unasked_counts(
    tmp_path: Path, line: str, proof: str, expected: tuple[str, ...]
) -> None:
    text = f"theorem gap (p : Prop) : p → p := sorry\n{line}\ntheorem mine (p : Prop) : p → p := {proof}\n"
    assert resting(tmp_path, text, "mine") == expected
