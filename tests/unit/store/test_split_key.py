"""What a theorem is for the splits: its statement, however it is named, marked up and laid out."""

from __future__ import annotations

import pytest

from store.identity import split_key

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
        ("Elsewhere.renamed", "private theorem renamed (n : Nat) : n = n"),
    ],
)
def test_name_attributes_modifiers_and_layout_do_not_count(full_name: str, statement: str) -> None:
    assert split_key(full_name, statement) == BARE


def test_another_statement_is_another_key() -> None:
    assert split_key("foo", "theorem foo (n : Nat) : n = n + 0") != BARE
    assert split_key("foo", "theorem foo.{u} (n : Nat) : n = n") != BARE


def test_a_name_that_only_begins_alike_is_not_cut() -> None:
    assert split_key("foo", "theorem foobar : True") == split_key("x", "theorem foobar : True")


@pytest.mark.parametrize("statement", [None, "", "  \n"])
def test_without_a_statement_the_name_counts(statement: str | None) -> None:
    assert split_key("foo", statement) == split_key("foo", None) != split_key("bar", None)
