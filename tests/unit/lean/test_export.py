"""Reading exports: equal meanings have equal digests, other meanings have others, and all else is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.lean.export import Declared, Export, ExportError, read_export, shown
from tests.support.lean.exported import Exported

Edit = Callable[[str], str]


def nat(out: Exported) -> int:
    """Declare natural numbers, with their recursor, as Lean has them; return the term `Nat`."""
    n, zero, succ, rec, u = (out.name(one) for one in ("Nat", "Nat.zero", "Nat.succ", "Nat.rec", "u"))
    one = out.node("il", "succ", 0)
    out.node("il", "param", u)
    type_ = out.node("ie", "sort", one)
    this = out.node("ie", "const", {"name": n, "us": []})
    arrow = binder(out, "forallE", this, this)
    fact = {"levelParams": [], "numParams": 0, "isUnsafe": False}
    out.record(
        "inductive",
        types=[{
            **fact, "name": n, "type": type_, "numIndices": 0, "all": [n], "ctors": [zero, succ], "numNested": 0,
            "isRec": True, "isReflexive": False,
        }],
        ctors=[
            {**fact, "name": zero, "type": this, "induct": n, "cidx": 0, "numFields": 0},
            {**fact, "name": succ, "type": arrow, "induct": n, "cidx": 1, "numFields": 1},
        ],
        recs=[{
            **fact, "name": rec, "levelParams": [u], "type": arrow, "all": [n], "numIndices": 0, "numMotives": 1,
            "numMinors": 2, "k": False,
            "rules": [{"ctor": zero, "nfields": 0, "rhs": this}, {"ctor": succ, "nfields": 1, "rhs": arrow}],
        }],
    )  # fmt: skip
    return this


def binder(out: Exported, kind: str, type_: int, body: int, name: int = 0, info: str = "default") -> int:
    return out.node("ie", kind, {"name": name, "type": type_, "body": body, "binderInfo": info})


def whole() -> Exported:
    """One of each kind of record."""
    out = Exported("4.35.0")
    this = nat(out)
    v, w = out.node("il", "param", out.name("v")), out.node("il", "param", out.name("w"))
    out.node("ie", "sort", out.node("il", "max", [v, w]))
    sort = out.node("ie", "sort", out.node("il", "imax", [v, w]))
    b = out.node("ie", "bvar", 0)
    lam = binder(out, "lam", this, b)
    app = out.node("ie", "app", {"fn": lam, "arg": b})
    let = out.node("ie", "letE", {"name": 0, "type": this, "value": b, "body": app, "nondep": False})
    projection = out.node("ie", "proj", {"typeName": out.name("S"), "idx": 1, "struct": let})
    big, text = out.node("ie", "natVal", "9" * 80), out.text('a"b\\c∀')
    mine = out.node("in", "num", {"pre": out.name("_private.A"), "i": 0})
    heading = {"levelParams": [out.name("v")], "type": sort}
    out.record("axiom", name=out.name("ax"), **heading, isUnsafe=False)
    d = out.name("d")
    regular = {"regular": 3}
    out.record("def", name=d, **heading, value=projection, hints=regular, safety="safe", all=[d])
    out.record("opaque", name=mine, **heading, value=big, isUnsafe=False, all=[mine])
    out.record("thm", name=out.name("t"), **heading, value=text, all=[out.name("t")])
    out.record("quot", name=out.name("Quot"), **heading, kind="type")
    return out


LINES = whole().lines


def at(text: str) -> int:
    """The one line that begins with this."""
    (number,) = [number for number, line in enumerate(LINES) if line.startswith(text)]
    return number


def edited(text: str, old: str, new: str) -> list[str]:
    lines = list(LINES)
    number = at(text)
    assert old in lines[number], lines[number]
    lines[number] = lines[number].replace(old, new)
    return lines


def test_every_kind_of_record_is_read() -> None:
    export = read_export(LINES)
    assert {shown(name): one.kind for name, one in export.declared.items()} == {
        "Nat": "inductive",
        "Nat.zero": "constructor",
        "Nat.succ": "constructor",
        "Nat.rec": "recursor",
        "ax": "axiom",
        "d": "definition",
        "_private.A.#0": "opaque",
        "t": "theorem",
        "Quot": "quotient",
    }
    assert export.lean == "4.35.0"
    assert export.axioms == {("ax",)}
    assert export.undeclared == {("S",)}


def declared(lines: list[str]) -> dict[tuple[str, ...], Declared]:
    return read_export(lines).declared


# --- what counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "old", "new", "name"),
    [
        ('{"ie":9', '"idx":1', '"idx":0', "d"),
        ('{"ie":9', '"typeName":8', '"typeName":1', "d"),
        ('{"ie":10', "999", "998", "_private.A.#0"),
        ('{"def"', '"safe"', '"partial"', "d"),
        ('{"def"', '"levelParams":[6]', '"levelParams":[7]', "d"),
        ('{"def"', '"levelParams":[6]', '"levelParams":[]', "d"),
        ('{"def"', '"type":4', '"type":3', "d"),
        ('{"def"', '"value":9', '"value":8', "d"),
        ('{"axiom"', '"type":4', '"type":3', "ax"),
        ('{"axiom"', "false", "true", "ax"),
        ('{"opaque"', '"isUnsafe":false', '"isUnsafe":true', "_private.A.#0"),
        ('{"thm"', '"type":4', '"type":3', "t"),
        ('{"quot"', '"kind":"type"', '"kind":"lift"', "Quot"),
        ('{"inductive"', '"numIndices":0', '"numIndices":1', "Nat"),
        ('{"inductive"', '"isReflexive":false', '"isReflexive":true', "Nat"),
        ('{"inductive"', '"k":false', '"k":true', "Nat"),
        ('{"inductive"', '"nfields":1', '"nfields":0', "Nat"),
        ('{"inductive"', '"rhs":2', '"rhs":1', "Nat"),
        ('{"inductive"', '"ctors":[2,3]', '"ctors":[3,2]', "Nat"),
        ('{"inductive"', '"cidx":1', '"cidx":2', "Nat"),
    ],
)
def test_what_counts_for_a_constant_s_meaning_changes_its_digest(
    line: str, old: str, new: str, name: str
) -> None:
    before = {shown(one): what for one, what in declared(LINES).items()}
    after = {shown(one): what for one, what in declared(edited(line, old, new)).items()}
    assert before[name].digest != after[name].digest
    assert {one for one in before if before[one].digest != after[one].digest} <= {
        name,
        *(n for n in before if "Nat" in n),
    }


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        ('{"ie":6', '"name":0', '"name":6'),
        ('{"ie":6', '"default"', '"instImplicit"'),
        ('{"def"', '{"regular":3}', '"abbrev"'),
        ('{"thm"', '"value":11', '"value":10'),
        ('{"ie":8', "false", "true"),
    ],
)
def test_what_is_no_matter_to_the_kernel_does_not(line: str, old: str, new: str) -> None:
    assert declared(edited(line, old, new)) == declared(LINES)


def test_another_order_and_other_numbers_are_the_same_export() -> None:
    out = Exported("4.35.0")
    out.text("something before it")
    out.name("x.y")
    nat(out)
    other = declared(out.lines)
    assert other == {name: one for name, one in declared(LINES).items() if name[0] == "Nat"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("a.b",)),
        (("a", "#1"), ("a", "##1")),
        (("ab",), ("a", "b")),
    ],
)
def test_names_of_other_parts_are_other_names(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert one != other
    assert shown(one) != shown(other) or one == other


def test_a_number_in_a_name_is_not_the_text_of_that_number() -> None:
    lines = Exported("4.35.0").lines
    lines += [
        '{"in":1,"num":{"pre":0,"i":1}}',
        '{"in":2,"str":{"pre":0,"str":"#1"}}',
        '{"in":3,"str":{"pre":0,"str":"1"}}',
    ]
    assert len(set(read_export(lines).names)) == 4


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\tb", "«a»", "a\u2028b", "a.b", '"}\n{"axiom":'])
def test_odd_names_are_read_as_they_are_and_forge_nothing(name: str) -> None:
    text = "".join(f"\\u{ord(c):04x}" if ord(c) < 32 else f"\\{c}" if c in '"\\' else c for c in name)
    lines = [*Exported("4.35.0").lines, f'{{"in":1,"str":{{"pre":0,"str":"{text}"}}}}', '{"ie":0,"bvar":0}']
    lines.append('{"axiom":{"name":1,"levelParams":[],"type":0,"isUnsafe":false}}')
    assert set(read_export(lines).declared) == {(name,)}


# --- what other programs write --------------------------------------------------------------------------------

EXPORTS = Path(__file__).parents[4] / "shared" / "data" / "exports"


@pytest.mark.skipif(not EXPORTS.is_dir(), reason=f"no exports of other programs in {EXPORTS}")
@pytest.mark.parametrize(
    ("name", "n_constants"),
    [
        ("NestedUnusedParam", 63), ("Constlevels", 20), ("NatRecRules", 15), ("NatRecKLie", 12),
        ("LevelImaxNormalization", 12), ("LevelImaxLeq", 11), ("LargeElimParam", 8), ("LevelIndexOutOfOrder", 1),
        ("SparseNameIndex", 1), ("Nat.add_succ", None),
    ],
)  # fmt: skip
def test_public_exports_are_read_and_those_of_another_version_refused(
    name: str, n_constants: int | None
) -> None:
    lines = (EXPORTS / f"{name}.ndjson").read_text("utf-8").splitlines()
    if n_constants is None:
        with pytest.raises(ExportError, match=r"line 1 .* not in format 3\.1\.0"):
            read_export(lines)
    else:
        assert len(read_export(lines).declared) == n_constants


def sorted_keys(line: str) -> str:
    return json.dumps(json.loads(line), sort_keys=True)


def sparse(line: str) -> str:
    """Give each number of a node another one: with gaps, and the later ones the smaller."""
    return re.sub(
        r'"(ie|fn|arg|type|body|value|struct|rhs)":(\d+)',
        lambda one: f'"{one[1]}":{9000 - 7 * int(one[2])}',
        line,
    )


def noted(line: str) -> list[str]:
    """Put a note around the term."""
    if not line.startswith('{"ie":6,'):
        return [line]
    return [line.replace('"ie":6', '"ie":600'), '{"ie":6,"mdata":{"expr":600,"data":{}}}']


@pytest.mark.parametrize(
    "lines",
    [
        [sorted_keys(line) for line in LINES],
        [sparse(line) for line in LINES],
        [part for line in LINES for part in noted(line)],
        [*LINES[:2], LINES[1].replace('"in":1', '"in":1000'), *LINES[2:]],
        ['{"meta":{"format":{"version":"3.1.0"}}}', *LINES[1:]],
    ],
    ids=["keys in another order", "sparse numbers", "a note", "a node twice", "a header of the format alone"],
)
def test_what_means_the_same_has_the_same_digests_however_it_is_written(lines: list[str]) -> None:
    assert lines != LINES
    assert declared(lines) == declared(LINES)


# --- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "old", "new"),
    [
        ('{"meta"', "3.1.0", "3.0.0"),
        ('{"meta"', '"githash":""', '"githash":1'),
        ('{"ie":6', '"body":5', '"body":6'),
        ('{"ie":6', '"body":5', '"body":500'),
        ('{"ie":6', '"body":5', '"body":-1'),
        ('{"ie":6', '"body":5', '"body":5.0'),
        ('{"ie":6', '"body":5', '"body":05'),
        ('{"ie":6', '"name":0', '"name":90'),
        ('{"ie":6', '"lam"', '"lambda"'),
        ('{"ie":6', '"lam"', '"hole"'),
        ('{"ie":6', '"default"', '"any"'),
        ('{"ie":6', ',"binderInfo":"default"', ""),
        ('{"ie":6', '"name":0', '"name":0,"name":0'),
        ('{"ie":6', '"ie":6', '"ie":7'),
        ('{"ie":6', '"ie":6', '"ie":5'),
        ('{"ie":6', '"ie":6', '"in":6'),
        ('{"ie":6', '"binderInfo":"default"', '"binderInfo":"default","binderInfo":"default"'),
        ('{"ie":6', "}}", "}} {}"),
        ('{"ie":6', '"ie":6', '"ie":6,"more":1'),
        ('{"ie":10', '"999', '"0999'),
        ('{"ie":10', '"999', '"-999'),
        ('{"in":1,', '"Nat"', '"N\\mat"'),
        ('{"in":1,', '"Nat"', '"N\nat"'),
        ('{"in":1,', '"Nat"', '"N\\ud800at"'),
        ('{"def"', '"value":9', '"value":90'),
        ('{"def"', '"value":9', '"value":true'),
        ('{"def"', '"safe"', '"sound"'),
        ('{"def"', '{"regular":3}', '{"regular":-3}'),
        ('{"def"', '"all"', '"every"'),
        ('{"def"', '"name":13', '"name":0'),
        ('{"def"', '"name":13', '"name":130'),
        ('{"def"', '"def"', '"definition"'),
        ('{"def"', '{"def"', '{"more":1,"def"'),
        ('{"def"', '"safety":"safe"', '"safety":"unsafe","safety":"safe"'),
        ('{"thm"', '"thm"', '"meta"'),
        ('{"quot"', '"kind":"type"', '"kind":"set"'),
        ('{"axiom"', '"isUnsafe":false', '"isUnsafe":0'),
        ('{"inductive"', '"rhs":2', '"rhs":200'),
        ('{"inductive"', '"numIndices":0', '"numIndices":-1'),
    ],
)
def test_a_line_of_another_shape_is_refused(line: str, old: str, new: str) -> None:
    with pytest.raises(ExportError, match="line"):
        read_export(edited(line, old, new))


@pytest.mark.parametrize("line", ['{"def"', '{"ie":6', '{"in":3', '{"il":2', '{"meta"', '{"inductive"'])
def test_a_line_twice_is_refused(line: str) -> None:
    with pytest.raises(ExportError):
        read_export([*LINES, LINES[at(line)]])


def test_another_declaration_of_the_same_name_is_refused() -> None:
    again = json.loads(LINES[at('{"axiom"')])
    again["axiom"]["name"] = json.loads(LINES[at('{"def"')])["def"]["name"]
    with pytest.raises(ExportError, match="declared twice"):
        read_export([*LINES, json.dumps(again, separators=(",", ":"))])


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["{}"],
        [""],
        LINES[1:],
        [LINES[0], ""],
        [LINES[0], "[]"],
        [LINES[0], "{"],
        [LINES[0], "[" * 100_000],
    ],
)
def test_what_is_no_export_is_refused(lines: list[str]) -> None:
    with pytest.raises(ExportError):
        read_export(lines)


def test_a_type_is_found_by_the_numbers_of_an_answer() -> None:
    export = read_export(LINES)
    assert export.type_of([6], 4) == export.declared["ax",].type_digest
    for levels, term in (([60], 4), ([0], 4), ([6], 40)):
        with pytest.raises(ExportError):
            export.type_of(levels, term)


def test_an_empty_export_declares_nothing() -> None:
    export = read_export(Exported("4.35.0").lines)
    assert (export.declared, export.undeclared) == (Export().declared, frozenset())
