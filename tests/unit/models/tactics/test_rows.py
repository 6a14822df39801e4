"""Rows from a dataset's split file and from a view: what is kept whole, what is left out, and the count of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.errors import DatasetError
from pipeline.models.tactics.rows import EMPTY, SORRY, UNREADABLE, digest_of, read_rows
from tests.support.retrieval import step, theorem


def split_file(folder: Path, *proofs: list[dict[str, Any]]) -> Path:
    theorems = [theorem(f"t{number}", number + 1, *steps) for number, steps in enumerate(proofs)]
    path = folder / "train.json"
    path.write_text(json.dumps(theorems), encoding="utf-8")
    return path


def test_a_row_is_a_state_and_the_whole_tactic_that_was_run_on_it(tmp_path: Path) -> None:
    tactic = "have h : p := by\n  simp\n  exact <a>foo</a>"
    result = read_rows(split_file(tmp_path, [step("intro h", "⊢ p"), step(tactic, " h : <a>q</a>\n⊢ p\n")]))
    first, second = result.rows
    assert (first.state, first.tactic, first.step) == ("⊢ p", "intro h", 0)
    assert (second.state, second.tactic) == ("h : q\n⊢ p", "have h : p := by\n  simp\n  exact foo")
    assert (second.theorem, second.path, second.step, second.start) == ("t0", "A.lean", 1, (1, 1))
    assert (second.url, second.commit) == ("https://example.org/r", "a" * 40)
    assert (result.proofs, result.skipped, str(result)) == (1, {}, "2 steps of 1 theorems")


@pytest.mark.parametrize(
    ("tactic", "state", "why"),
    [
        ("sorry", "⊢ p", SORRY),
        ("admit", "⊢ p", SORRY),
        ("exact sorry", "⊢ p", SORRY),
        ("have h : p := by\n  sorry", "⊢ p", SORRY),
        ("", "⊢ p", EMPTY),
        ("-- only words", "⊢ p", EMPTY),
        ("simp", "", EMPTY),
        ("simp", "no goals", EMPTY),
        ("simp /- never closed", "⊢ p", UNREADABLE),
        ("exact " + "f " * 4000, "⊢ p", UNREADABLE),
    ],
)
def test_a_step_that_teaches_nothing_good_is_left_out_and_counted(
    tmp_path: Path, tactic: str, state: str, why: str
) -> None:
    result = read_rows(
        split_file(tmp_path, [step("intro h", "⊢ p"), step(tactic, state), step("exact h", "⊢ p")])
    )
    assert [(row.tactic, row.step) for row in result.rows] == [("intro h", 0), ("exact h", 2)]
    assert result.skipped == {why: 1}
    assert str(result) == f"2 steps of 1 theorems (1 {why} left out)"


@pytest.mark.parametrize(
    "tactic", ["exact sorry_lemma", 'trace "sorry"', "simp -- no sorry here", "exact h.sorry"]
)
def test_the_letters_of_sorry_in_something_else_are_no_sorry(tmp_path: Path, tactic: str) -> None:
    assert read_rows(split_file(tmp_path, [step(tactic, "⊢ p")])).skipped == {}


def test_the_digest_is_of_the_rows_and_their_order(tmp_path: Path) -> None:
    a, b = [step("simp", "⊢ p")], [step("rfl", "⊢ p")]
    digests = [
        digest_of(read_rows(split_file(tmp_path, *proofs)).rows) for proofs in ((a, b), (b, a), (a, b))
    ]
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("", "Export the dataset again"),
        ("{}", "Export the dataset again"),
        ("[1]", r"theorem 0: input should be a dictionary .*\. Export the dataset again"),
        ('[{"full_name": "t"}]', r"theorem 0\.\w+: field required"),
        ("[]", "no step to learn from: 0 steps of 0 theorems"),
        ("[", "Export the dataset again"),
    ],
)
def test_a_file_that_is_no_split_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "train.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(DatasetError, match=message) as caught:
        read_rows(path)
    assert str(path) in str(caught.value)


def test_a_split_file_of_sorries_alone_says_what_was_left_out(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"0 steps of 2 theorems \(2 sorry left out\)"):
        read_rows(split_file(tmp_path, [step("sorry", "⊢ p")], [step("sorry", "⊢ p")]))
