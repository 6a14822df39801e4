from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.models.text import document_text, query_text


@pytest.mark.parametrize(
    ("state", "query"),
    [
        ("a b : ℕ\n⊢ a = b", "a b : ℕ\n⊢ a = b"),
        ("2 goals\ncase inl\n⊢ p\n\ncase inr\n⊢ q", "case inl\n⊢ p\n\ncase inr\n⊢ q"),
        ("", ""),
        ("| a + b", "| a + b"),
        ("⊢ <a>p</a>", "⊢ p"),
        ("⊢ <<a>a>p<</a>/a>", "⊢ p"),
        ("1 goal\n⊢ p", "1 goal\n⊢ p"),
        ("10 goals", ""),
    ],
)
def test_a_query_is_the_state_without_its_count_of_goals_and_without_marks(state: str, query: str) -> None:
    assert query_text(state) == query


@pytest.mark.parametrize(
    ("name", "code", "document"),
    [
        ("Nat.add_comm", "theorem Nat.add_comm (a b) : P", "theorem <a>Nat.add_comm</a> (a b) : P"),
        ("Nat.add_comm", "theorem add_comm (a b) : P", "theorem <a>Nat.add_comm</a> (a b) : P"),
        ("Nat.add", "theorem _root_.Nat.add : P", "theorem <a>Nat.add</a> : P"),
        ("A.b", "theorem «b» : b = b", "theorem <a>A.b</a> : <a>A.b</a> = <a>A.b</a>"),
        ("A.b", "def f := c", "def f := c"),
        ("A.f'", r"theorem f' : \1 ", r"theorem <a>A.f'</a> : \1 "),
    ],
)
def test_a_document_is_the_code_with_the_longest_ending_of_its_name_marked(
    name: str, code: str, document: str
) -> None:
    assert document_text(name, code) == document


pieces = st.sampled_from(
    ["a", "b.c", ".", "«", "»", " ", "\n", "\u00a0", "_root_.", "(", "\\", "x'", "NAME", "END"]
)


@settings(max_examples=60, deadline=None)
@given(
    name=st.lists(st.sampled_from(["a", "b", "x'", "«a b»", "\\g"]), min_size=1, max_size=4).map(".".join),
    code=st.lists(pieces, max_size=9).map("".join),
)
@example(name="a.a", code=" a.a.a aa «a» «a.a»» a")
def test_a_document_is_marked_as_by_a_regular_expression_for_each_ending(name: str, code: str) -> None:
    code = code.replace("NAME", name).replace("END", name.rpartition(".")[2])
    expected = code.replace(f"_root_.{name}", f"<a>{name}</a>")
    parts = name.split(".")
    for start in range(len(parts)):
        ending = re.compile(r"(?<=\s)«?" + re.escape(".".join(parts[start:])) + "»?")
        if ending.sub(lambda _: f"<a>{name}</a>", expected) != expected:
            expected = ending.sub(lambda _: f"<a>{name}</a>", expected)
            break
    assert document_text(name, code) == expected
