"""What a theorem is for the splits: its statement, however it is named, marked up and laid out."""

from __future__ import annotations

import pytest

from store.domain.identity import split_key

BARE = split_key("foo", "(n : Nat) : n = n")


@pytest.mark.parametrize(
    ("full_name", "statement"),
    [
        ("foo", "theorem foo (n : Nat) : n = n :="),
        ("foo", "theorem foo (n : Nat) : n = n := by"),
        ("foo", "theorem foo\n    (n : Nat) :\n  n = n"),
        ("Bar.foo", "lemma foo (n : Nat) : n = n"),
        ("Bar.Baz.foo", "theorem Baz.foo (n : Nat) : n = n"),
        ("foo", "theorem _root_.foo (n : Nat) : n = n"),
        ("foo'", "@[simp] @[ext 1000] protected theorem foo' (n : Nat) : n = n"),
        ("foo", "@[simps! (config := [x, y]), simp] theorem foo (n : Nat) : n = n"),
        ("Elsewhere.renamed", "private theorem renamed (n : Nat) : n = n"),
    ],
)
def test_name_attributes_modifiers_and_layout_do_not_count(full_name: str, statement: str) -> None:
    assert split_key(full_name, statement) == BARE


def test_another_statement_is_another_key() -> None:
    assert split_key("foo", "theorem foo (n : Nat) : n = n + 0") != BARE
    assert split_key("foo", "theorem foo.{u} (n : Nat) : n = n") != BARE


def test_a_name_that_only_begins_alike_is_another_name_and_cut_whole() -> None:
    assert split_key("foo", "theorem foobar : True") == split_key("foo", "theorem foo : True")


@pytest.mark.parametrize(
    "name", ["foo_mul", "Baz.foo_mul", "«odd name».foo", "foo.«odd : name»", "_root_.foo'"]
)
def test_a_text_that_declares_it_by_another_name_states_the_same(name: str) -> None:
    statement = f"@[to_additive foo_add] theorem {name} (n : Nat) : n = n :="
    assert split_key("Bar.foo_add", statement) == BARE


def test_universes_are_part_of_the_statement_whatever_the_name() -> None:
    statement = "theorem {}.{{u}} (n : Nat) : n = n"
    assert split_key("foo", statement.format("foo")) == split_key("foo_add", statement.format("foo_mul"))
    assert split_key("foo_add", statement.format("foo_mul")) != BARE


@pytest.mark.parametrize("statement", [None, "", "  \n"])
def test_without_a_statement_the_name_counts(statement: str | None) -> None:
    assert split_key("foo", statement) == split_key("foo", None) != split_key("bar", None)
