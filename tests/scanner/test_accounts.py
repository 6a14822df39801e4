"""All code of a file is in some declaration or command, and what the scanner does not know is listed."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lean.source.lexer import KEYWORDS, LAKE, LEAVE_NOTHING, NOTATIONS, Positions, lex
from pipeline.lean.source.scanner import parse, scan_source
from store.domain.records import ScannedFile

ROOT = Path(__file__).resolve().parents[2]

BEFORE_THE_FIRST = """\
import Quest.Base

Planet "Addition"
Stage 1

Goal (a : Nat) : a = a := by
  sorry
"""
INDENTED_BEFORE_THE_FIRST = "  (x) sorry\ntheorem a : p := q\n"
BEHIND_A_COMMAND = """\
#clock theorem up (n : Nat) : n ≤ n + 1 := by sorry
#clock
theorem down : True := trivial
#clock example : p := sorry
"""
DEEPER_LEMMA = """\
theorem first : True := by
  trivial

 @[simp]
 lemma second (h : 0 < 1) : 1 = 1 := by
   sorry
"""
AFTER_A_COMMENT = """\
theorem edge (x : Nat) :
x + 0 =
-- the other side
x := by
simp
sorry
"""
SECOND_WORD = """\
namespace Harbour

scratch begin

lemma Inner.step : True := by sorry

scratch end
theorem arrives : True := by
  sorry
scratch end

theorem leaves : True := trivial
end Harbour
"""
NOT_VERSO = "import Notes\n\n#doc\ntheorem flows : True := by sorry\n\naxiom source : False\n"
VERSO = """\
import Manual
#doc (Manual) "A \\"title\\"" =>

A comment begins with `/-`, an inch is 1". The theorem sorry.
```lean +error
theorem shown : p := by sorry
/- open
```
:::
  ```lean (name := x)
  open Nat in
  Goal 1 sorry
  ```
````text
```lean
sorry
```
````
```ioLean
def main : IO Unit := sorry
```
```leanOutput x
sorry
```
"""
LIBRARY_COMMANDS = """\
set_option maxHeartbeats 0 in
disable_linters in
benchmark run : T := fun x => sorry

def_denote for Comb where
  | x => sorry

elab "a" : term => do
  sorry

macro "b" : tactic => do sorry
macro "c" : tactic => `(tactic| sorry)
notation "d" => sorry
run_cmd sorry
#eval sorry
#check (sorry : p)
"""
GOES_ON = "theorem a : p ∧\n\nQ x := sorry\ntheorem b : p :=\n\nFoo x sorry\n"
SCOPES = "theorem a : p := by\nsimp\nend Foo\n"
EXIT = "theorem a : p := q\n#exit\ntheorem b : p := sorry\n"


@pytest.mark.parametrize(
    ("source", "declared", "sorries", "words"),
    [
        (BEFORE_THE_FIRST, ["Goal _Goal"], [("_Goal", 7)], ["Planet", "Goal"]),
        (INDENTED_BEFORE_THE_FIRST, ["( _(", "theorem a"], [("_(", 1)], ["("]),
        (
            BEHIND_A_COMMAND,
            ["theorem up", "theorem down", "example _example"],
            [("up", 1), ("_example", 4)],
            [],
        ),
        (DEEPER_LEMMA, ["theorem first", "lemma second"], [("second", 6)], []),
        (AFTER_A_COMMENT, ["theorem edge"], [("edge", 6)], []),
        (
            SECOND_WORD,
            ["lemma Harbour.Inner.step", "theorem Harbour.arrives", "theorem Harbour.leaves"],
            [("Harbour.Inner.step", 5), ("Harbour.arrives", 9)],
            ["scratch", "scratch", "scratch"],
        ),
        (NOT_VERSO, ["theorem flows", "axiom source"], [("flows", 4)], []),
        (
            VERSO,
            ["theorem shown", "Goal _Goal", "def main"],
            [("shown", 6), ("_Goal", 12), ("main", 20)],
            ["Goal"],
        ),
        (
            LIBRARY_COMMANDS,
            [
                *(
                    "benchmark run",
                    "def_denote _def_denote",
                    "elab _elab",
                    "macro _macro",
                    "run_cmd _run_cmd",
                ),
                "#eval _#eval",
            ],
            [("run", 3), ("_def_denote", 6), ("_elab", 9), ("_macro", 11), ("_run_cmd", 14), ("_#eval", 15)],
            ["def_denote"],
        ),
        (GOES_ON, ["theorem a", "theorem b"], [("a", 3), ("b", 6)], []),
        (SCOPES, ["theorem a"], [], []),
        (EXIT, ["theorem a"], [], []),
        (
            "theorem a : p := sorry theorem b : p := sorry",
            ["theorem a", "theorem b"],
            [("a", 1), ("b", 1)],
            [],
        ),
        ("structure A where\n  lemma : p\n  x : q := sorry", ["structure A"], [("A", 3)], []),
        ("theorem a : p := by\n  exact\n  lemma (x) sorry", ["theorem a"], [("a", 3)], []),
        ("#help command def\n#print theorem\nblue abbrev a := 1", ["abbrev a"], [], []),
        (
            "variable (h : p := sorry) in\ntheorem a : p := q",
            ["variable _variable", "theorem a"],
            [("_variable", 1)],
            [],
        ),
        ("exercise a : p := by\n  open Nat in\n  sorry", ["exercise a"], [("a", 3)], []),
        (
            "block a where\n  x :=\n    open A in\n    open B in sorry",
            ["block _block"],
            [("_block", 4)],
            ["block"],
        ),
        (
            "variable (h : ∀ᶠ x in l, p) (i : ∀ x in\ns, q)\ntheorem a : p := sorry",
            ["theorem a"],
            [("a", 3)],
            [],
        ),
        ("theorem a : p := f (x /-- d -/\naxiom b : q", ["theorem a", "axiom b"], [], []),
        ("@[simp theorem a : p := by\naxiom b : q\n)", ["axiom b"], [], ["@"]),
        (
            "theorem a : p := q @[simp] lemma b.{u} (h : p) [f (x)] : q := sorry",
            ["theorem a", "lemma b"],
            [("b", 1)],
            [],
        ),
        ("#time lemma a : p := sorry", ["lemma a"], [("a", 1)], []),
        ("theorem a (lemma : p) : q := f lemma x (y) sorry", ["theorem a"], [("a", 1)], []),
        ("structure A where\n  lemma x : Nat\n  y lemma z : Nat := sorry", ["structure A"], [("A", 3)], []),
        ("Goal : p := sorry theorem a : p := q", ["Goal _Goal", "theorem a"], [("_Goal", 1)], ["Goal"]),
    ],
)
def test_code_that_no_known_command_begins_is_listed_under_its_own(
    source: str, declared: list[str], sorries: list[tuple[str, int]], words: list[str]
) -> None:
    scan = scan_source(source.encode(), path="A.lean")
    assert [f"{one.kind} {one.name}" for one in scan.declarations] == declared
    assert [(one.declaration, one.line) for one in scan.sorries] == sorries
    assert [one.word for one in scan.not_understood] == words
    assert scan.error is None or source is VERSO


def test_what_is_not_understood_has_its_place_and_survives_json() -> None:
    scan = scan_source(BEFORE_THE_FIRST.encode(), path="A.lean")
    planet, goal = scan.not_understood
    assert (planet.line, planet.column, goal.line) == (3, 0, 6)
    text = BEFORE_THE_FIRST.encode()[planet.byte_start : planet.byte_end].decode()
    assert text == 'Planet "Addition"\nStage 1'
    assert ScannedFile.from_json(scan.as_json()) == scan


def test_what_a_command_holds_names_its_holder() -> None:
    held = [(one.keyword, one.holder) for one in parse(f"{BEHIND_A_COMMAND}\n{VERSO}".encode()).commands]
    assert ("theorem", "#clock") in held
    assert ("example", "#clock") in held
    assert ("theorem", "#doc") in held
    assert ("theorem", "") in held


def test_what_a_block_of_a_document_does_not_close_is_named_with_its_line() -> None:
    assert scan_source(VERSO.encode(), path="A.lean").error == "a comment that begins in line 7 is not closed"


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ('local notation "=--" => id\ntheorem a : p := (=-- sorry)', "sorry"),
        ('local notation "⁻\'\\"" => id\ntheorem a : p := ⁻\'" (sorry) -- "', "sorry"),
        ('notation "=\\"" => id\ntheorem a : p := =" q\naxiom b : r\n-- "', "axiom"),
        ('def r := leading_parser "=--" >> termParser\ntheorem a : p := (=-- sorry)', "sorry"),
        ('syntax "q/-" term : term\ntheorem a : p := q/- sorry', "sorry"),
        ('macro "k" n:num s:str t:term : term => `($t)\ntheorem a : p := k 0r"\\" sorry -- "', "sorry"),
        ('macro "q<-" t:term : term => `($t)\ntheorem a : p := q<--sorry', "sorry"),
    ],
)
def test_tokens_that_hold_what_opens_a_comment_hide_nothing(source: str, seen: str) -> None:
    scan = scan_source(source.encode(), path="A.lean")
    assert {"sorry": bool(scan.sorries), "axiom": scan.declarations[-1].kind == "axiom"}[seen]
    eats = any(token in source for token in ("=--", "⁻'", '=\\"', "q/-"))
    assert (scan.error is not None) == eats
    assert scan.error is None or scan.error.startswith(
        "a token that holds what opens a comment or a string: "
    )


def test_arrows_of_dashes_and_strings_of_programs_are_no_such_tokens() -> None:
    source = 'infixr:25 " --> " => f\nmacro "a" : term => `(f "x--" "\\"")\ndef b := "q--"\n'
    assert scan_source(source.encode(), path="A.lean").error is None


def test_the_statement_of_a_command_is_what_stands_before_what_it_does() -> None:
    scan = scan_source(f"{BEFORE_THE_FIRST}\n{LIBRARY_COMMANDS}".encode(), path="A.lean")
    stated = {one.kind: one.statement for one in scan.declarations}
    assert stated["Goal"] == "(a : Nat) : a = a"
    assert stated["elab"] == '"a" : term'
    assert stated["def_denote"] == "for Comb"


# ---- each word that matters is in one list

WORDS = ("sorry", "sorryAx", "admit", "axiom", "native_decide")
_WORD = rf"(?<![\w.!?«`])(?<!(?<!\])')(?:{'|'.join(WORDS)})(?![\w'!?»])"
_EITHER = re.compile(rf"({_WORD})|--[^\n]*|/-|r?\"(?:\\.|[^\"\\])*\"|«[^»\n]*»|'\\?.'")
_EDGE = re.compile(r"/-|-/")
_QUOTED = re.compile(r"`[(\[]")


def words_of(text: str) -> list[int]:
    """Return where the words stand outside comments and strings, read by other means than the scanner's."""
    found, at = [], 0
    while match := _EITHER.search(text, at):
        at = match.end()
        if match.group(1):
            found.append(match.start())
        elif match.group() == "/-":
            depth = 1
            while depth and (edge := _EDGE.search(text, at)):
                depth += 1 if edge.group() == "/-" else -1
                at = edge.end()
            at = len(text) if depth else at
    return found


def check_each_word_is_in_one_list(text: str) -> None:
    """Each word is in one command, which the scanner knows, reads as a declaration or lists as not understood.

    Of the sorries all are listed but what Lean does not elaborate, and nothing else is. What stands like an axiom is
    a declaration of its own.
    """
    data = text.encode()
    source = parse(data)
    scan = source.scanned
    listed = [one.byte_start for one in scan.sorries]
    unknown = {(one.byte_start, one.byte_end) for one in scan.not_understood}
    axioms = [(one.byte_start, one.byte_end) for one in scan.declarations if one.kind == "axiom"]
    words = {len(text[:at].encode()): at for at in words_of(text)}
    assert len(listed) == len(set(listed))
    assert {one.byte_start for one in scan.sorries if one.token != "stop"} <= words.keys()
    for byte, at in words.items():
        (command,) = [one for one in source.commands if one.byte_start <= byte < one.byte_end]
        place, word = (command.byte_start, command.byte_end), text[at:].split()[0]
        assert (place in unknown) != (command.kind == "declaration" or known(command.keyword))
        before = data[command.byte_start : byte].decode()
        silent = [one for one in (*LEAVE_NOTHING, *NOTATIONS) if one in before]
        if word == "sorry" and not _QUOTED.search(before) and (not silent or command.keyword in silent):
            assert (byte in listed) == (not silent)
        elif word == "axiom" and text[at - 1 : at] in ("", "\n") and command.keyword != "#exit":
            assert any(start <= byte < end for start, end in axioms)


def known(keyword: str) -> bool:
    return keyword.startswith(("#", "/")) or keyword in KEYWORDS or keyword in LAKE or " " in keyword


def code_outside(text: str) -> str:
    """Return the code of a text that is in no command, nor in its header."""
    source, bare = parse(text.encode()), lex(text).bare
    at, left = source.header_end, ""
    places = Positions(text, bare)
    for one in source.commands:
        left += bare[places.offset(at) : places.offset(one.byte_start)]
        at = one.byte_end
    return re.sub(r"[\x01\x02\s]", "", left + bare[places.offset(at) :])


PIECES = (
    *(
        "theorem a : p := by\n",
        "lemma b : p := ",
        "@[simp] lemma b (h : p) : q := ",
        "(lemma x) ",
        "def c := ",
        "structure D where\n  x : Nat := ",
        "Goal : p := ",
    ),
    *(
        "#time ",
        "#check ",
        "open Nat in\n",
        "set_option x true in ",
        "namespace A\n",
        "end\n",
        "end A\n",
        "/-- d -/\n",
    ),
    *(
        "snip end\n",
        "elab x => ",
        "macro x => ",
        "notation x => ",
        "scoped ",
        "@[simp]\n",
        "@[",
        "import A\n",
    ),
    *(
        "mutual\n",
        "where\n",
        "| x => ",
        "sorry ",
        "sorryAx p ",
        "admit\n",
        "axiom e : p\n",
        "native_decide\n",
    ),
    *(
        "sorry\n\n",
        "\n",
        "\n\n",
        "  ",
        "(",
        ")",
        "{",
        "}",
        ":= ",
        ": ",
        "by\n  ",
        "/-! m -/\n",
        "-- sorry\n",
        "x y\n",
    ),
    *(
        '"sorry" ',
        "/- sorry -/",
        "«sorry»",
        "⟨",
        "Foo ",
        "foo.bar\n",
        "#exit\n",
        "α ",
        "variable (x : p)\n",
        "| ",
    ),
)


def test_each_word_behind_any_two_pieces_is_in_one_list() -> None:
    for pieces in itertools.product(PIECES, repeat=2):
        text = "".join([*pieces, "sorry\naxiom f : p := native_decide"])
        check_each_word_is_in_one_list(text)
        assert code_outside(text) == ""


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_each_word_of_any_text_is_in_one_list(text: str) -> None:
    check_each_word_is_in_one_list(text)
    assert code_outside(text) == ""


LEAN_FILES = [
    path for folder in ("examples", "pipeline", "tests") for path in sorted((ROOT / folder).rglob("*.lean"))
]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_each_word_that_is_put_into_a_real_file_is_in_one_list(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(LEAN_FILES))
    lines = path.read_text().splitlines(keepends=True)
    start = data.draw(st.integers(0, max(0, len(lines) - 40)))
    lines = lines[start : start + 40]
    for _ in range(data.draw(st.integers(1, 3))):
        line = data.draw(st.integers(0, len(lines)))
        lines.insert(line, data.draw(st.sampled_from(PIECES)) + data.draw(st.sampled_from(WORDS)) + "\n")
    text = "".join(lines)
    check_each_word_is_in_one_list(text)
    assert code_outside(text) == ""
