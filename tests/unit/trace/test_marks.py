"""Which words of a tactic are premises: those that Lean's name resolution takes for a constant that the step used."""

from __future__ import annotations

import pytest

from pipeline.trace.source import annotate, open_namespaces
from store.domain.records import ConstantUse

SITE = ("A.lean", (1, 9), (1, 12))


def marked(text: str, *constants: str, hidden: set[str] | None = None, spaces: tuple[str, ...] = ()) -> str:
    uses = [ConstantUse(name, SITE) for name in constants]
    annotated, premises = annotate(text, uses=uses, hidden=hidden or set(), namespaces=spaces)
    assert annotated.count("<a>") == annotated.count("</a>") == len(premises)
    assert annotated.replace("<a>", "").replace("</a>", "") == text
    return annotated


def test_a_full_name_is_marked_and_so_is_one_under_an_open_namespace() -> None:
    assert marked("exact Or.inl h", "Or.inl") == "exact <a>Or.inl</a> h"
    assert marked("rw [add_comm, ← zero_add]", "Nat.add_comm", "Nat.zero_add", spaces=("Nat", "")) == (
        "rw [<a>add_comm</a>, ← <a>zero_add</a>]"
    )
    assert marked("exact _root_.foo", "foo") == "exact <a>_root_.foo</a>"


def test_a_name_that_resolution_would_not_take_is_left_alone() -> None:
    assert marked("exact add_comm", "Nat.add_comm") == "exact add_comm"
    assert marked("exact foo.bar", "bar") == "exact foo.bar"
    assert marked("exact foobar", "foo") == "exact foobar"
    assert marked('exact "foo" -- foo', "foo") == 'exact "foo" -- foo'


def test_a_hypothesis_hides_a_constant_of_its_name_and_its_fields_may_be_constants() -> None:
    assert marked("exact h", "h", hidden={"h"}) == "exact h"
    assert marked("exact h.symm", "Eq.symm", hidden={"h"}) == "exact h.<a>symm</a>"
    assert marked("exact foo.trans h", "foo", "Eq.trans") == "exact <a>foo</a>.<a>trans</a> h"


def test_a_short_dotted_name_is_marked_where_only_one_constant_can_be_meant() -> None:
    assert marked("exact .inl h", "Or.inl") == "exact <a>.inl</a> h"
    assert marked("exact .inl h", "Or.inl", "Sum.inl") == "exact .inl h"


def test_quoted_and_primed_names_are_names() -> None:
    assert marked("exact «odd name» h'", "«odd name»", "h") == "exact <a>«odd name»</a> h'"


def test_premises_stand_in_the_order_of_their_marks_and_only_with_a_known_site() -> None:
    uses = [ConstantUse("b", SITE), ConstantUse("a", SITE), ConstantUse("c")]
    text, premises = annotate("simp [a, b, c, a]", uses=uses, hidden=(), namespaces=())
    assert text == "simp [<a>a</a>, <a>b</a>, c, <a>a</a>]"
    assert [use.full_name for use in premises] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("preamble", "declaration", "wanted"),
    [
        ("", "A.B.c", {"A.B", "A", ""}),
        ("namespace A\nnamespace B", "A.B.c", {"A.B", "A", ""}),
        ("open Nat Finset", "c", {"", "Nat", "Finset"}),
        ("namespace A\nopen B hiding d", "A.c", {"A", "", "B", "A.B"}),
        ("open Nat (succ)", "c", {"", "Nat"}),
    ],
)
def test_what_is_open_is_read_off_the_scopes_and_the_name(
    preamble: str, declaration: str, wanted: set[str]
) -> None:
    assert set(open_namespaces(preamble, declaration)) == wanted
