"""Reading Lean's answers: exactly what was asked for, in exactly its shape, with the question's mark; or none."""

from __future__ import annotations

import dataclasses
import json

import pytest

from pipeline.gate.lake_checks import (
    Answer,
    Section,
    differences,
    one_message,
    read_answer,
    read_axioms,
    sorry_warnings,
)

WHOLE = """unsorry-questions 3 abc
lean 4.28.0
module\tinit\tN\t/w/N.olean
module\tbare\tInit.Core\t/lean/a\\tb.olean
axiom\tpropext\tInit.Core
sorried\tN.gap
statement theorem N.t
\tN
\tS 0 "p"
\t= [] 1 -
premise definition N.d
\tB 0
\t= [] 0 0
declared theorem N.other
\tB 0
\t= [] 0 -
end abc
"""


def test_a_whole_answer_is_read() -> None:
    answer = read_answer(WHOLE, nonce="abc", constant="N.t")
    assert isinstance(answer, Answer)
    assert (answer.axioms, answer.sorried, answer.unsafe) == (("propext",), ("N.gap",), ())
    assert answer.homes == {"propext": "Init.Core"}
    assert [(one.name, str(one.path), one.bare) for one in answer.modules] == [
        ("N", "/w/N.olean", False),
        ("Init.Core", "/lean/a\tb.olean", True),
    ]
    assert answer.statement.kind == "theorem"
    assert list(answer.premises) == ["N.d"]
    assert list(answer.declared) == ["N.other"]


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ("questions 3 abc", "questions 3 abd"),
        ("questions 3", "questions 2"),
        ("lean 4.28.0\n", ""),
        ("lean 4.28.0", "lean"),
        ("lean 4.28.0", "version 4.28.0"),
        ("end abc\n", ""),
        ("end abc\n", "end abc"),
        ("end abc\n", "end abc\nend abc\n"),
        ("theorem N.t", "theorem N.s"),
        ("statement theorem N.t", "declared theorem N.t"),
        ("axiom\tpropext", "axiom\tpropext\nhello"),
        ("axiom\tpropext", "axioms\tpropext"),
        ("axiom\tpropext\tInit.Core", "axiom\tpropext"),
        ("axiom\tpropext\tInit.Core", "axiom\tpropext\tInit\tCore"),
        ("module\tinit\tN\t/w/N.olean\nmodule\tbare\tInit.Core\t/lean/a\\tb.olean\n", ""),
        ("\tB 0\n\t= [] 0 0\n", ""),
        ("\t= [] 0 0\n", ""),
        ("declared theorem N.other", "premise definition N.d"),
        ("declared theorem", "declared lemma"),
        ("\tB 0\n\t= [] 0 -\nend", "axiom x\nend"),
    ],
)
def test_an_answer_of_any_other_shape_is_none(found: str, instead: str) -> None:
    assert found in WHOLE
    assert isinstance(read_answer(WHOLE.replace(found, instead), nonce="abc", constant="N.t"), str)


@pytest.mark.parametrize("cut", range(0, len(WHOLE) - 1, 7))
def test_a_part_of_an_answer_is_none(cut: int) -> None:
    assert isinstance(read_answer(WHOLE[:cut], nonce="abc", constant="N.t"), str)


def read() -> Answer:
    answer = read_answer(WHOLE, nonce="abc", constant="N.t")
    assert isinstance(answer, Answer)
    return answer


def test_two_equal_builds_do_not_differ() -> None:
    assert differences(read(), read(), declared={"N.other"}) == []


@pytest.mark.parametrize(
    "change",
    [
        {"statement": Section("theorem", "\t= [] 0 -")},
        {"statement": Section("definition", read().statement.nodes)},
        {"premises": {}},
        {"premises": {"N.d": Section("definition", "\tB 1\n\t= [] 0 0")}},
        {"premises": {**read().premises, "N.e": read().premises["N.d"]}},
        {"declared": {}},
        {"declared": {"N.other": Section("axiom", read().declared["N.other"].nodes)}},
    ],
)
def test_whatever_differs_is_named(change: dict[str, object]) -> None:
    assert differences(read(), dataclasses.replace(read(), **change), declared={"N.other"})  # type: ignore[arg-type]


def test_what_lean_makes_on_the_way_may_come_and_go() -> None:
    more = dataclasses.replace(read(), declared={**read().declared, "N.other.eq_1": read().statement})
    assert differences(read(), more, declared={"N.other"}) == []
    assert differences(more, read(), declared={"N.other"}) == []


def message(**changes: object) -> str:
    raw = {
        "severity": "information",
        "pos": {"line": 2, "column": 0},
        "fileName": "/w/Qab.lean",
        "data": "yes",
    }
    return json.dumps({**raw, **changes})


def asked(output: str) -> str | None:
    return one_message(output, file_name="Qab.lean", lines=range(2, 3))


def test_the_one_message_of_the_asking_file_is_the_answer() -> None:
    assert asked(message()) == "yes"
    assert asked(f"warning: lake said something\n{message()}\n") == "yes"


@pytest.mark.parametrize(
    "output",
    [
        "",
        "'t' does not depend on any axioms",
        message(fileName="/w/A.lean"),
        message(severity="error"),
        message(severity="warning"),
        message(pos={"line": 1, "column": 0}),
        message(pos=None),
        message(data=None),
        f"{message()}\n{message()}",
        f"{message()}\n{message(severity='error')}",
        message()[:-1],
        f"x{message()}",
    ],
)
def test_any_other_output_is_no_answer(output: str) -> None:
    assert asked(output) is None


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("'N.t' does not depend on any axioms", ()),
        ("'N.t' depends on axioms: [propext, sorryAx]", ("propext", "sorryAx")),
        (
            "'N.t' depends on axioms: [propext,\n Classical.choice,\n Quot.sound]",
            ("propext", "Classical.choice", "Quot.sound"),
        ),
        ("'N.t'' does not depend on any axioms", None),
        ("'M.t' does not depend on any axioms", None),
        ("'N.t' depends on axioms: []", None),
        ("'N.t' depends on axioms: [propext,]", None),
        ("'N.t' does not depend on any axioms\n'N.t' depends on axioms: [sorryAx]", None),
        ("error: unknown constant 'N.t'", None),
        ("", None),
    ],
)
def test_the_axioms_are_read_or_not_at_all(output: str, expected: tuple[str, ...] | None) -> None:
    found = read_axioms(output, "N.t")
    assert isinstance(found, str) if expected is None else found == expected


@pytest.mark.parametrize("text", ["declaration uses 'sorry'", "declaration uses `sorry`"])
@pytest.mark.parametrize("prefix", ["", "./././"])
def test_the_warning_of_a_sorry_is_seen_in_both_its_texts(text: str, prefix: str) -> None:
    output = f"⚠ [2/3] Built D.A\nwarning: {prefix}D/A.lean:7:8: {text}\nwarning: D/B.lean:9:8: {text}\n"
    assert sorry_warnings(output, path="D/A.lean") == (7,)
