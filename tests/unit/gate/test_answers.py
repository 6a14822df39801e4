"""Reading Lean's answers: exactly what was asked for, in exactly its shape, with the question's mark; or none."""

from __future__ import annotations

import json

import pytest

from pipeline.gate.answers import Answer, differences, not_of_the_proof, read_answer
from pipeline.gate.axioms import read_axioms
from pipeline.gate.lake_checks import one_message, sorry_warnings
from tests.support.lean.exported import Exported

FACTS = """everlean-questions 1 abc
lean 4.28.0
module\tN\t/w/N.olean
import\tN\tInit
import\tN\tInit.Core
module\tInit.Core\t/lean/a\\tb.olean
sorried\tN.gap
rests\tN\tN.t
rests\tInit.Core\tpropext
rests\tN\tN.gap
axiom\tpropext\tInit.Core\t3
statement\tthm\tN.t\t4\t[5]\t3
declared\tthm\tN.other\t6\t[]\t0
lines\t13
end abc
"""


def export(*, propext: str = "an axiom", value: str = "2", name: str = "N.d") -> Exported:
    """`N.d`, an axiom, and the terms of the facts."""
    out = Exported("4.28.0")
    number = out.name(name)
    type_, body = out.text("Nat"), out.text(value)
    out.record(
        "def", name=number, levelParams=[], type=type_, value=body, hints="abbrev",
        safety="safe", all=[number],
    )  # fmt: skip
    out.record("axiom", name=out.name("propext"), levelParams=[], type=out.text(propext), isUnsafe=False)
    for one in ("N", "N.t", "u", "N.other"):
        out.name(one)
    out.text("the statement")
    return out


WHOLE = export().lines


def read(lines: list[str] = WHOLE, facts: str = FACTS) -> Answer | str:
    return read_answer(facts, lines, nonce="abc", constant="N.t")


def answer(lines: list[str] = WHOLE, facts: str = FACTS) -> Answer:
    result = read(lines, facts)
    assert isinstance(result, Answer), result
    return result


def test_a_whole_answer_is_read() -> None:
    result = answer()
    assert (result.axioms, result.sorried, result.unsafe) == (("propext",), ("N.gap",), ())
    assert result.homes == {"propext": "Init.Core"}
    assert [(one.name, str(one.path), one.imports, one.is_bare) for one in result.modules] == [
        ("N", "/w/N.olean", ("Init", "Init.Core"), False),
        ("Init.Core", "/lean/a\tb.olean", (), True),
    ]
    assert result.rests == {"Init.Core": ("propext",), "N": ("N.gap", "N.t")}
    assert (result.statement.kind, result.target) == ("theorem", ("N", "t"))
    assert list(result.premises) == [("N", "d")]
    assert list(result.declared) == ["N.other"]
    assert result.export.axioms == {("propext",)}


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ("questions 1 abc", "questions 1 abd"),
        ("questions 1", "questions 2"),
        ("lean 4.28.0\n", ""),
        ("lean 4.28.0", "lean"),
        ("lean 4.28.0", "lean 4.28.1"),
        ("lean 4.28.0", "version 4.28.0"),
        ("end abc\n", ""),
        ("end abc\n", "end abc"),
        ("end abc\n", "end abc\nend abc\n"),
        ("thm\tN.t", "thm\tN.s"),
        ("statement\tthm", "declared\tthm"),
        ("statement\tthm", "statement\tlemma"),
        ("axiom\tpropext", "hello\naxiom\tpropext"),
        ("axiom\tpropext", "axioms\tpropext"),
        ("axiom\tpropext\tInit.Core\t3\n", ""),
        ("axiom\tpropext\tInit.Core\t3", "axiom\tpropext\tInit.Core\t2"),
        ("axiom\tpropext\tInit.Core", "axiom\tpropext"),
        ("axiom\tpropext\tInit.Core", "axiom\tpropext\tInit\tCore"),
        ("module\tN\t/w/N.olean\n", "module\tN\n"),
        ("import\tN\tInit\n", "import\tN\n"),
        ("\t4\t[5]\t3", "\t4\t[5]\t4"),
        ("\t4\t[5]\t3", "\t5\t[8]\t3"),
        ("\t4\t[5]\t3", "\t5\t[0]\t3"),
        ("\t4\t[5]\t3", "\t4\t[5]\t-1"),
        ("\t4\t[5]\t3", "\t4\t5\t3"),
        ("\t4\t[5]\t3", "\t9\t[5]\t3"),
        ("declared\tthm", "statement\tthm"),
        ("lines\t13", "lines\t12"),
        ("lines\t13\n", ""),
    ],
)
def test_an_answer_of_any_other_shape_is_none(found: str, instead: str) -> None:
    assert found in FACTS
    assert isinstance(read(facts=FACTS.replace(found, instead)), str)


@pytest.mark.parametrize("cut", range(0, len(FACTS) - 1, 7))
def test_a_part_of_an_answer_is_none(cut: int) -> None:
    assert isinstance(read(facts=FACTS[:cut]), str)


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_a_part_of_an_export_is_none(cut: int) -> None:
    assert isinstance(read(WHOLE[:cut]), str)


@pytest.mark.parametrize(
    ("line", "other"),
    [('{"in":6,', '{"in":60,'), ('{"ie":3,', '{"ie":30,')],
)
def test_numbers_that_do_not_follow_one_another_are_none_of_ours(line: str, other: str) -> None:
    lines = [text.replace(line, other) for text in WHOLE]
    assert lines != WHOLE
    facts = FACTS.replace("\t6\t[]\t0", "\t60\t[]\t0") if "in" in line else FACTS.replace("[5]\t3", "[5]\t30")
    assert read(lines, facts) == "the numbers in the export do not follow one another"


def test_two_equal_builds_do_not_differ() -> None:
    assert differences(answer(), answer(), declared={"N.other"}) == []
    assert answer().digest == answer().digest


@pytest.mark.parametrize(
    ("lines", "facts", "told"),
    [
        (export(value="3").lines, FACTS, "N.d, on which its statement rests, is another"),
        (export(propext="False").lines, FACTS, "the axiom propext is another"),
        (export(name="N.e").lines, FACTS, "rests on other constants than without the proof: N.d, N.e"),
        (WHOLE, FACTS.replace("4\t[5]\t3", "4\t[]\t3"), "its type or its universe parameters"),
        (WHOLE, FACTS.replace("4\t[5]\t3", "4\t[5]\t1"), "its type or its universe parameters"),
        (WHOLE, FACTS.replace("4\t[5]\t3", "6\t[5]\t3"), "its type or its universe parameters"),
        (
            WHOLE,
            FACTS.replace("statement\tthm", "statement\tdef"),
            "a theorem without the proof and a definition",
        ),
        (WHOLE, FACTS.replace("declared\tthm", "declared\taxiom"), "N.other is another"),
        (WHOLE, FACTS.replace("6\t[]\t0", "6\t[]\t1"), "N.other is another"),
        (WHOLE, FACTS.replace("declared\tthm\tN.other\t6\t[]\t0\n", ""), "N.other is another"),
    ],
)
def test_whatever_differs_is_named(lines: list[str], facts: str, told: str) -> None:
    (result,) = differences(answer(), answer(lines, facts), declared={"N.other"})
    assert told in result


def test_what_lean_makes_on_the_way_may_come_and_go() -> None:
    more = answer(facts=FACTS.replace("lines", "declared\tthm\tN.other.eq_1\t6\t[]\t1\nlines"))
    assert differences(answer(), more, declared={"N.other"}) == []
    assert differences(more, answer(), declared={"N.other"}) == []


def closure(statement: str = "the statement", *, cited: bool = False, **other: str) -> Answer:
    """The same build's answer about all that the constant rests on."""
    out = export(**other)
    proof = out.node("ie", "const", {"name": 2, "us": []}) if cited else out.text("a proof")
    type_ = out.text(statement)
    out.record("thm", name=4, levelParams=[5], type=type_, value=proof, all=[4])
    facts = FACTS.replace("4\t[5]\t3", f"4\t[5]\t{type_}").replace("lines\t13", f"lines\t{len(out.lines)}")
    return answer(out.lines, facts)


def test_the_export_of_a_closure_is_that_of_the_proof_or_says_why_not() -> None:
    assert not_of_the_proof(closure(), answer()) is None
    assert "does not hold the theorem" in str(not_of_the_proof(answer(), answer()))
    assert "another statement" in str(not_of_the_proof(closure("True"), answer()))
    assert "another N.d" in str(not_of_the_proof(closure(value="3"), answer()))
    assert "another propext" in str(not_of_the_proof(closure(propext="False"), answer()))


def test_the_export_of_a_closure_declares_all_that_it_mentions() -> None:
    assert not_of_the_proof(closure(cited=True), answer()) is None
    out = export()
    hidden = out.node("ie", "const", {"name": 1, "us": []})
    out.record("thm", name=4, levelParams=[5], type=3, value=hidden, all=[4])
    facts = FACTS.replace("lines\t13", f"lines\t{len(out.lines)}")
    assert "mentions what it does not declare: N" in str(not_of_the_proof(answer(out.lines, facts), answer()))


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
    result = read_axioms(output, "N.t")
    assert isinstance(result, str) if expected is None else result == expected


@pytest.mark.parametrize("text", ["declaration uses 'sorry'", "declaration uses `sorry`"])
@pytest.mark.parametrize("prefix", ["", "./././"])
def test_the_warning_of_a_sorry_is_seen_in_both_its_texts(text: str, prefix: str) -> None:
    output = f"⚠ [2/3] Built D.A\nwarning: {prefix}D/A.lean:7:8: {text}\nwarning: D/B.lean:9:8: {text}\n"
    assert sorry_warnings(output, path="D/A.lean") == ((7, 8),)
