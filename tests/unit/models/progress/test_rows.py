from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.errors import DatasetError
from pipeline.models.progress.steps import Dataset, Row, read_dataset, read_split
from tests.support.retrieval import step, theorem

SAMPLE: list[dict[str, Any]] = [  # as LeanDojo-v2's create_sample_dataset writes it
    {"goal": "n : ℕ ⊢ gcd n n = n", "prefix": "have : n.gcd n ∣ n := by\n  exact gcd_dvd_right n n",
     "tactic": "simpa [Nat.gcd_comm] using Nat.gcd_self n", "steps_remaining": 1},
    {"goal": "a b : ℝ, ha : a = b ⊢ b = a", "prefix": "", "tactic": "exact ha.symm", "steps_remaining": 0},
    {"goal": "G : Group, g h : G ⊢ g * h = h * g", "prefix": "", "tactic": "sorry", "steps_remaining": 12},
]  # fmt: skip


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def proof(name: str, length: int, **fields: Any) -> list[dict[str, Any]]:
    steps = [f"step_{name}_{number}" for number in range(length)]
    return [
        {
            "goal": f"⊢ {name} {number}",
            "prefix": "\n".join(steps[:number]),
            "tactic": step,
            "steps_remaining": length - 1 - number,
            **fields,
        }
        for number, step in enumerate(steps)
    ]


def read(tmp_path: Path, rows: list[Any], *, eval_ratio: float = 0.2, seed: int = 42) -> Dataset:
    return read_dataset(write(tmp_path / "rows.jsonl", rows), eval_ratio=eval_ratio, seed=seed)


def rows_of(data: Dataset) -> dict[str, Row]:
    return {row.step.goal: row for row in (*data.train, *data.held_out)}


def test_leanprogress_s_own_sample_is_read(tmp_path: Path) -> None:
    rows = rows_of(read(tmp_path, SAMPLE))
    assert [rows[one["goal"]].steps_remaining for one in SAMPLE] == [1, 0, 12]
    assert rows[SAMPLE[0]["goal"]].step.prefix.startswith("have : n.gcd n ∣ n := by\n")
    assert len({row.proof for row in rows.values()}) == 3


def test_rows_with_fewer_and_fewer_steps_left_are_of_one_proof(tmp_path: Path) -> None:
    rows = rows_of(read(tmp_path, [*proof("a", 3), *proof("b", 1), *proof("c", 4)])).values()
    together = {(row.step.goal.split()[1], row.proof) for row in rows}
    assert len(together) == 3
    assert len({row.proof for row in rows}) == 3


def test_two_proofs_of_one_statement_are_never_on_both_sides(tmp_path: Path) -> None:
    again = [{**row, "tactic": "other"} for row in proof("a", 1)]
    data = read(tmp_path, [*proof("a", 1), *proof("b", 1), *again], eval_ratio=0.5)
    assert {len(data.train), len(data.held_out)} == {1, 2}


def test_a_named_proof_holds_its_rows_together_wherever_they_stand(tmp_path: Path) -> None:
    rows = [
        row for pair in zip(proof("a", 4, proof="A"), proof("b", 4, proof="B"), strict=True) for row in pair
    ]
    data = read(tmp_path, rows, eval_ratio=0.5)
    assert {row.proof for row in data.train}.isdisjoint({row.proof for row in data.held_out})
    assert (len(data.train), len(data.held_out)) == (4, 4)


def test_the_split_is_by_proof_of_the_asked_share_and_follows_from_the_seed(tmp_path: Path) -> None:
    rows = [row for number in range(50) for row in proof(f"p{number}", 1 + number % 4)]
    data = read(tmp_path, rows)
    assert len({row.proof for row in data.held_out}) == 10
    assert not {row.proof for row in data.train} & {row.proof for row in data.held_out}
    assert len(data.train) + len(data.held_out) == len(rows)
    assert read(tmp_path, rows) == data
    assert read(tmp_path, rows, seed=43) != data


def test_both_halves_have_a_proof_whatever_the_share(tmp_path: Path) -> None:
    for ratio in (0.0, 0.001, 0.999):
        data = read(tmp_path, [*proof("a", 2), *proof("b", 2)], eval_ratio=ratio)
        assert (len(data.train), len(data.held_out)) == (2, 2)
    with pytest.raises(DatasetError, match="the 2 rows are of fewer than two proofs"):
        read(tmp_path, proof("a", 2))


def test_steps_of_a_split_know_those_before_them_and_proofs_with_a_sorry_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    whole = theorem("t", 1, step("intro <a>h</a>", "⊢ p → p"), step("exact h", "h : p\n⊢ p"))
    path.write_text(json.dumps([whole, theorem("u", 2, step("simp", "⊢ q"), step("sorry", "⊢ r"))]))
    assert [(row.step.tactic, row.step.prefix, row.steps_remaining) for row in read_split(path).values()] == [
        ("intro h", "", 1.0),
        ("exact h", "intro h", 0.0),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: invalid JSON"),
        ("[1]", "line 2: input should be an object"),
        ('{"goal": "g", "tactic": "x"}', "line 2.steps_remaining: field required"),
        ('{"goal": 3, "tactic": "x", "steps_remaining": 1}', "line 2.goal: input should be a valid string"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": -1}', "greater than or equal to 0"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": "4"}', "line 2.steps_remaining: input should be"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": true}', "line 2.steps_remaining: input should be"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": Infinity}', "a finite number"),
        ('{"goal": "g", "tactic": "x", "steps_remaining": 1, "proof": []}', "line 2.proof"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(SAMPLE[1])}\n{line}\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=said):
        read_dataset(path, eval_ratio=0.2, seed=1)


def test_a_file_that_is_missing_empty_or_no_text_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(DatasetError, match=r"rows.jsonl cannot be read .*everlean export progress"):
        read_dataset(path, eval_ratio=0.2, seed=1)
    path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="the 0 rows"):
        read_dataset(path, eval_ratio=0.2, seed=1)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(DatasetError, match="is no UTF-8 text"):
        read_dataset(path, eval_ratio=0.2, seed=1)
