"""Traps: a forbidden word where a reader, or a checker, does not look.

Comments and strings are told from code as Lean tells them; where the two could disagree, nothing is read and the text
is refused.
"""

from __future__ import annotations

import pytest

from tests.support.gate import FILE, Case, GateProject, Refused

COMMENTS = {
    "a comment before it": "/- all fine -/ sorry",
    "a comment that seems to go on": "exact /- /- -/ -/ sorry",
    "a line comment above it": "-- done\n  sorry",
    "a comment that is never closed": "exact ⟨h.2, h.1⟩ /- and now",
    "a comment that is closed twice": "exact ⟨h.2, h.1⟩ /- -/ -/",
    "the end of a comment that begins before": "exact ⟨h.2, h.1⟩ -/",
    "a line comment over what follows": "exact ⟨h.2, h.1⟩ --",
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


def test_the_second_sorry_of_a_declaration_is_still_there(court: GateProject) -> None:
    """One of two is filled, and the theorem rests on the other."""
    case = Case("h.2", file=FILE.replace("HOLE", "exact ⟨HOLE, sorry⟩"))
    assert court.rejected(case, step="compile", lean="simulator").conditional_on == ("Demo.mine",)
