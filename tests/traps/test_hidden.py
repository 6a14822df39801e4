"""Traps: a forbidden word where a reader, or a checker, does not look.

Comments and strings are told from code as Lean tells them; where the two could disagree, nothing is read and the text
is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.gate import source_checks
from tests.support.gate import FILE, Case, GateProject, Refused
from tests.support.lean.real_gate import RealGate

COMMENTS = {
    "a comment before it": "/- all fine -/ sorry",
    "a comment that seems to go on": "exact /- /- -/ -/ sorry",
    "a line comment above it": "-- done\n  sorry",
    "a comment that is never closed": "exact ⟨h.2, h.1⟩ /- and now",
    "a comment that is closed twice": "exact ⟨h.2, h.1⟩ /- -/ -/",
    "the end of a comment that begins before": "exact ⟨h.2, h.1⟩ -/",
    "a slash that opens a comment twice": "exact h /-/ sorry /-/",
    "a doc comment for what follows": "exact ⟨h.2, h.1⟩\n  /-- of the next -/",
    "a module comment": "exact ⟨h.2, h.1⟩\n  /-! -/",
}
STRINGS = {
    "a string that is never closed": 'exact foo "h',
    "an escaped quote": 'exact foo "\\" sorry "',
    "a raw string": 'exact foo r#"\\"# sorry',
    "an interpolated string": 'exact (s!"{sorry}").elim',
    "a quote as a character": "exact foo '\"' sorry '\"'",
    "a number before a character": "exact foo 0'\"' sorry '\"'",
    "a quoted name with a quote in it": 'exact «"» sorry «"»',
    "a quoted name with a comment in it": "exact «/-» sorry «-/»",
    "a string with a comment in it": 'exact foo "/-" sorry "-/"',
}
LETTERS = {
    "Cyrillic letters": "exact ѕorry",
    "Greek letters": "exact sοrry",
    "full-width letters": "exact ｓｏｒｒｙ",
    "mathematical letters": "exact 𝗌𝗈𝗋𝗋𝗒",
    "small capitals": "exact ꜱorry",
    "a zero-width space": "exact so\u200brry",
    "a zero-width joiner": "exact sorry\u200d",
    "a soft hyphen": "exact sor\u00adry",
    "an accent on a letter": "exact so\u0301rry",
    "a variation selector": "exact h\ufe0f",
    "an empty pattern of Braille": "exact h\u2800",
    "a text that runs backwards": "exact \u202eyrros",
    "a byte order mark": "\ufeffexact h",
    "a no-break space": "exact\u00a0h",
    "a line separator": "exact h\u2028axiom cheat : False",
    "a form feed": "exact h\x0caxiom cheat : False",
    "a vertical tab": "exact h\x0b",
    "a NUL": "exact h\x00",
    "a lone carriage return": "exact h\raxiom cheat : False",
    "a private-use letter": "exact \ue000",
    "quoted look-alikes": "exact «ѕorry»",
    "half of a character": "exact h\ud800",
    "look-alikes of native_decide": "native_dеcide",
}


@pytest.mark.parametrize("proof", COMMENTS.values(), ids=COMMENTS.keys())
def test_a_comment_hides_nothing(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")


def test_a_line_comment_over_what_follows_is_refused_and_one_over_nothing_is_none(
    refused: Refused, left_to_lean: Callable[[Case], None]
) -> None:
    refused(Case("exact ⟨h.2, h.1⟩ --", file=FILE.replace("HOLE", "(HOLE)")), step="text")
    left_to_lean(Case("exact ⟨h.2, h.1⟩ --"))


@pytest.mark.parametrize("proof", STRINGS.values(), ids=STRINGS.keys())
def test_a_string_hides_nothing(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")


@pytest.mark.parametrize("proof", LETTERS.values(), ids=LETTERS.keys())
def test_letters_that_look_like_others_or_like_nothing_hide_nothing(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")


TWO = FILE.replace("HOLE", "constructor\n  · exact (HOLE)")


@pytest.mark.parametrize(
    "trick",
    ["h.2 /- · exact (sorry) -/ /-, /- sorry", "h.2)\n  · exact (/-", "(h.2"],
    ids=["a comment over the rest", "a comment from one sorry to the next", "an open bracket"],
)
def test_what_stands_between_two_sorries_stays_in_force(refused: Refused, trick: str) -> None:
    refused(Case(trick, file=TWO), step="text")


THREE = FILE.replace("HOLE", "refine ⟨?_, HOLE⟩\n  · exact (sorry)")


@pytest.mark.parametrize(
    ("first", "second", "named", "step"),
    [
        ("h.2", "by admit", 2, "text"),
        ("native_decide", "h.1", 1, "text"),
        ("h.2", "h.1\n\naxiom cheat : False", 2, "text"),
        ("h.2) /-", "-/ (h.1", 1, "text"),
        ("h.2", "id\nh.1", 2, "shape"),
    ],
    ids=["a sorry", "compiled code", "an axiom", "a comment from one to the other", "a command's column"],
)
def test_of_several_texts_the_one_that_hides_something_is_named_and_all_are_refused(
    court: GateProject, first: str, second: str, named: int, step: str
) -> None:
    hole, text = (f"{one}⟩\n  · exact ({other}" for one, other in (("sorry", "sorry"), (first, second)))
    file = THREE.replace("HOLE⟩\n  · exact (sorry", "HOLE")
    parts = (len(first), len(second))
    verdict = court.rejected(Case(text, file=file, hole=hole, parts=parts), step=step, lean="none")
    line, column = ((6, 15), (7, 12))[named - 1]
    assert f"the text for the sorry in line {line}, column {column}: " in verdict.reason
    line, column = ((6, 15), (7, 12))[2 - named]
    assert f"line {line}, column {column}: " not in verdict.reason or "comment" in verdict.reason


@pytest.mark.parametrize(
    ("text", "parts", "why"),
    [
        ("h.2, h.1", (), "1 text for 2 sorries"),
        ("h.2, h.1", (3, 1, 2), "3 texts for 2 sorries"),
        ("h.2, h.1", (2, 4), "does not begin and end where the text's parts say"),
        ("h.2, h.1", (3, 4), "does not begin and end where the text's parts say"),
        ("h.2, h.1", (3, 2), "does not begin and end where the text's parts say"),
        ("h.2, h.1", (8, 0), "does not begin and end where the text's parts say"),
        ("h.2; h.1", (3, 3), "the text between the declaration's sorries was changed"),
    ],
    ids=[
        "no parts",
        "one too many",
        "moved",
        "beyond the end",
        "too short",
        "all in one",
        "the source's comma",
    ],
)
def test_parts_that_do_not_lie_where_the_sorries_were_are_refused(
    refused: Refused, text: str, parts: tuple[int, ...], why: str
) -> None:
    file = FILE.replace("HOLE", "exact ⟨HOLE⟩")
    assert why in refused(Case(text, file=file, hole="sorry, sorry", parts=parts), step="shape").reason


def test_a_text_for_one_sorry_has_no_parts(refused: Refused) -> None:
    refused(Case("exact ⟨h.2, h.1⟩", parts=(16,)), step="shape")
    refused(Case("exact ⟨h.2, h.1⟩", parts=(5, 11)), step="shape")


def test_a_command_s_column_in_a_declaration_with_many_sorries_is_found_without_a_scan_for_each(
    court: GateProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[str] = []

    def counted(name: str) -> Callable[..., object]:
        true = getattr(source_checks, name)

        def scan(*arguments: object, **named: object) -> object:
            scans.append(name)
            return true(*arguments, **named)

        return scan

    for name in ("parse", "scan_source"):
        monkeypatch.setattr(source_checks, name, counted(name))
    whole = "\n".join("  · exact (sorry)" for _ in range(40))
    hole, text = (whole[len("  · exact (") : -1].replace("sorry", one) for one in ("sorry", "id\nh"))
    file = FILE.replace("HOLE", "skip\n  · exact (HOLE)")
    parts = (len("id\nh"),) * 40
    verdict = court.rejected(Case(text, file=file, hole=hole, parts=parts), step="shape", lean="none")
    assert verdict.reason.startswith(
        "the text for the sorry in line 7, column 12: a line of the replacement begins"
    )
    assert len(scans) < 10


def test_the_second_sorry_of_a_declaration_is_still_there(lean: RealGate) -> None:
    """One of two is filled, and the theorem rests on the other."""
    case = Case("h.2", file=FILE.replace("HOLE", "exact ⟨HOLE, sorry⟩"))
    event = lean.rejected(case, step="compile")
    assert "Demo.mine uses sorry" in event.reason
    assert event.conditional_on == ("Demo.mine",)
