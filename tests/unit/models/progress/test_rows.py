from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.errors import DatasetError
from pipeline.models.progress.steps import Dataset, read_dataset, split

SAMPLE = [  # as LeanDojo-v2's create_sample_dataset writes it
    {"goal": "n : ℕ ⊢ gcd n n = n", "prefix": "have : n.gcd n ∣ n := by\n  exact gcd_dvd_right n n",
     "tactic": "simpa [Nat.gcd_comm] using Nat.gcd_self n", "steps_remaining": 1},
    {"goal": "a b : ℝ, ha : a = b ⊢ b = a", "prefix": "", "tactic": "exact ha.symm", "steps_remaining": 0},
    {"goal": "G : Group, g h : G ⊢ g * h = h * g", "prefix": "", "tactic": "sorry", "steps_remaining": 12},
]  # fmt: skip


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def proof(name: str, length: int, *, prefixes: bool = True, **fields: Any) -> list[dict[str, Any]]:
    steps = [f"step_{name}_{number}" for number in range(length)]
    return [
        {
            "goal": f"⊢ {name} {number}",
            "prefix": "\n".join(steps[:number]) if prefixes else "",
            "tactic": step,
            "steps_remaining": length - 1 - number,
            **fields,
        }
        for number, step in enumerate(steps)
    ]


def read(tmp_path: Path, rows: list[Any]) -> Dataset:
    return read_dataset(write(tmp_path / "rows.jsonl", rows))


def test_leanprogress_s_own_sample_is_read_as_three_proofs(tmp_path: Path) -> None:
    result = read(tmp_path, SAMPLE)
    assert [row.steps_remaining for row in result.rows] == [1, 0, 12]
    assert result.rows[0].step.prefix.startswith("have : n.gcd n ∣ n := by\n")
    assert len({row.proof for row in result.rows}) == 3


@pytest.mark.parametrize("prefixes", [True, False])
def test_rows_that_follow_on_one_another_are_of_one_proof(tmp_path: Path, prefixes: bool) -> None:
    rows = [*proof("a", 3, prefixes=prefixes), *proof("b", 1), *proof("c", 4, prefixes=prefixes)]
    result = read(tmp_path, rows)
    names = [row.step.goal.split()[1] for row in result.rows]
    together = {(name, row.proof) for name, row in zip(names, result.rows, strict=True)}
    assert len(together) == 3
    assert len({row.proof for row in result.rows}) == 3


def test_a_row_whose_prefix_does_not_go_on_from_the_one_before_begins_a_proof(tmp_path: Path) -> None:
    long, short = proof("long", 5), proof("short", 2)
    result = read(tmp_path, [*long[:2], *short])
    assert [row.proof == result.rows[0].proof for row in result.rows] == [True, True, False, False]


def test_two_proofs_of_one_statement_are_never_on_both_sides(tmp_path: Path) -> None:
    again = [{**row, "tactic": "other"} for row in proof("a", 1)]
    result = read(tmp_path, [*proof("a", 1), *proof("b", 1), *again])
    assert result.rows[0].proof == result.rows[2].proof != result.rows[1].proof


def test_a_named_proof_holds_its_rows_together_wherever_they_stand(tmp_path: Path) -> None:
    rows = [
        row for pair in zip(proof("a", 4, proof="A"), proof("b", 4, proof="B"), strict=True) for row in pair
    ]
    halves = split(read(tmp_path, rows).rows, eval_ratio=0.5, seed=0)
    assert {row.proof for row in halves.train}.isdisjoint({row.proof for row in halves.held_out})
    assert (len(halves.train), len(halves.held_out)) == (4, 4)


def test_the_split_is_by_proof_of_the_asked_share_and_follows_from_the_seed(tmp_path: Path) -> None:
    rows = read(tmp_path, [row for number in range(50) for row in proof(f"p{number}", 1 + number % 4)]).rows
    halves = split(rows, eval_ratio=0.2, seed=42)
    assert len({row.proof for row in halves.held_out}) == 10
    assert not {row.proof for row in halves.train} & {row.proof for row in halves.held_out}
    assert len(halves.train) + len(halves.held_out) == len(rows)
    assert split(rows, eval_ratio=0.2, seed=42) == halves
    assert split(rows, eval_ratio=0.2, seed=43) != halves


def test_both_halves_have_a_proof_whatever_the_share(tmp_path: Path) -> None:
    rows = read(tmp_path, [*proof("a", 2), *proof("b", 2)]).rows
    for ratio in (0.0, 0.001, 0.999):
        halves = split(rows, eval_ratio=ratio, seed=1)
        assert (len(halves.train), len(halves.held_out)) == (2, 2)
    with pytest.raises(DatasetError, match="all 2 rows are of one proof"):
        split(rows[:2], eval_ratio=0.2, seed=1)


def test_sides_that_the_rows_say_are_kept(tmp_path: Path) -> None:
    rows = [*proof("a", 3, proof="A", side="train"), *proof("b", 2, proof="B", side="val")]
    halves = split(read(tmp_path, rows).rows, eval_ratio=0.9, seed=1)
    assert halves.by_side
    assert ({row.proof for row in halves.train}, {row.proof for row in halves.held_out}) == (
        {("named", "A")},
        {("named", "B")},
    )


def test_without_a_row_on_the_side_val_proofs_are_drawn(tmp_path: Path) -> None:
    rows = [*proof("a", 3, proof="A", side="train"), *proof("b", 2, proof="B", side="train")]
    halves = split(read(tmp_path, rows).rows, eval_ratio=0.5, seed=1)
    assert not halves.by_side
    assert halves.train
    assert halves.held_out


def test_a_proof_on_both_sides_is_refused(tmp_path: Path) -> None:
    rows = [*proof("a", 1, proof="A", side="train"), *proof("a", 1, proof="A", side="val")]
    with pytest.raises(DatasetError, match="1 proofs have rows on the side train and on the side val"):
        split(read(tmp_path, rows).rows, eval_ratio=0.5, seed=1)


def test_a_row_of_the_test_side_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="line 1: side is 'test', and takes train or val"):
        read(tmp_path, proof("a", 1, proof="A", side="test"))


def test_rows_that_lack_a_field_are_left_out_and_counted(tmp_path: Path) -> None:
    result = read(tmp_path, [*SAMPLE, {"goal": "⊢ p", "tactic": "simp"}, {**SAMPLE[0], "goal": None}])
    assert (len(result.rows), result.incomplete) == (3, 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: is no JSON"),
        ("[1]", "line 2: is a list"),
        ('{"goal": 3, "tactic": "x", "steps_remaining": 1}', "line 2: goal is 3, and takes a text"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": -1}', "line 2: steps_remaining is -1"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": "4"}', "line 2: steps_remaining is '4'"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": true}', "line 2: steps_remaining is True"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": Infinity}', "line 2: steps_remaining is inf"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": 1, "proof": []}', "line 2: proof is \\[\\]"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(SAMPLE[1])}\n{line}\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=said):
        read_dataset(path)


def test_a_file_that_is_missing_empty_or_no_text_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(DatasetError, match=r"rows.jsonl cannot be read .*everlean export progress"):
        read_dataset(path)
    path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="has no row"):
        read_dataset(path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(DatasetError, match="is no UTF-8 text"):
        read_dataset(path)
