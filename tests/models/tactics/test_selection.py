"""What a training of a tactic model is given: its task's steps, our own proofs, and replayed steps of earlier tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.models.config import TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.replay import Selection
from pipeline.models.tactics.accepted import AcceptedProofs, write_accepted
from pipeline.models.tactics.job import select_rows, show_premises
from pipeline.models.tactics.rows import Row, RowPremises
from tests.support.retrieval import step, theorem

CONFIG = TacticsConfig(batch_size=2, replay_share=0.5)


def task(folder: Path, name: str, steps: int, *, proofs: AcceptedProofs | None = None) -> TaskData:
    """Write the dataset of a task whose training split has so many theorems of one step."""
    dataset = folder / f"{name}-{steps}"
    (dataset / "random").mkdir(parents=True)
    theorems = [
        theorem(
            f"{name}.t{number}",
            number + 1,
            step(f"exact {name.lower()} {number}", f"⊢ {name} {number}"),
            file_path=f"{name}.lean",
        )
        for number in range(steps)
    ]
    (dataset / "random" / "train.json").write_text(json.dumps(theorems))
    if proofs is not None:
        write_accepted(dataset, proofs)
    return TaskData(name, dataset)


def ours(*of: tuple[str, int]) -> AcceptedProofs:
    """Return accepted proofs of repositories, so many of each."""
    return AcceptedProofs(
        {
            name: tuple(
                Row(
                    *(f"⊢ our {name} {number}", "ours", f"{name}.s{number}", f"{name}.lean", 0),
                    proof=f"{name}-{number}",
                )
                for number in range(most)
            )
            for name, most in of
        },
        {"held_out": 1},
    )


def rows_for(
    task: TaskData, earlier: Sequence[TaskData] = (), config: TacticsConfig = CONFIG
) -> Selection[Row]:
    given, _ = select_rows(task, config, earlier)
    return given


def of_proofs(rows: Sequence[Row]) -> list[str]:
    return [row.proof for row in rows if row.proof]


def test_our_own_accepted_proofs_are_rows_of_the_task_and_say_so(tmp_path: Path) -> None:
    given, about = select_rows(task(tmp_path, "A", 5, proofs=ours(("A", 2), ("B", 1))), CONFIG)
    assert of_proofs(given.own) == ["A-0", "A-1"]
    assert about["accepted"] == {"proofs": 3, "left_out": {"held_out": 1}}
    assert (about["steps"], about["replayed"]) == (7, {"B": 1})


def test_a_step_that_people_wrote_too_is_learned_once(tmp_path: Path) -> None:
    (row,) = ours(("A", 1)).rows["A"]
    same = AcceptedProofs({"A": (replace(row, state="⊢ A 3", tactic="exact a 3"),)})
    given = rows_for(task(tmp_path, "A", 5, proofs=same))
    assert len(given.own) == 5
    assert of_proofs(given.own) == []


def test_a_proof_that_was_refuted_since_is_not_replayed(tmp_path: Path) -> None:
    earlier = [task(tmp_path, "Old", 5, proofs=ours(("Old", 4)))]
    given = rows_for(task(tmp_path, "New", 20, proofs=ours()), earlier)
    assert of_proofs([row for _, row in given.replayed]) == []


def test_a_repository_that_grew_is_trained_on_what_is_new_and_the_rest_is_replayed(tmp_path: Path) -> None:
    before = task(tmp_path, "A", 20, proofs=ours(("A", 1)))
    given = rows_for(task(tmp_path, "A", 23, proofs=ours(("A", 2))), [before])
    assert [row.state for row in given.own] == ["⊢ A 20", "⊢ A 21", "⊢ A 22", "⊢ our A 1"]
    assert len(given.replayed) == 4
    assert not {row.state for _, row in given.replayed} & {row.state for row in given.own}


def test_in_the_split_by_premises_none_of_our_own_proofs_is_learned(tmp_path: Path) -> None:
    result = task(tmp_path, "A", 5, proofs=ours(("A", 2), ("B", 1)))
    (result.dataset / "random").rename(result.dataset / "novel_premises")
    given = rows_for(result, config=replace(CONFIG, split="novel_premises"))
    assert (len(given.own), given.replayed) == (5, ())


def test_rows_have_the_premises_of_their_own_repositories(tmp_path: Path) -> None:
    new = task(tmp_path, "New", 6, proofs=ours(("Elsewhere", 1)))
    earlier = [task(tmp_path, "Old", 6)]
    given = rows_for(new, earlier)
    premises = RowPremises("r", lambda task: lambda rows: [(task.dataset.name,)] * len(rows))
    rows = show_premises(given, premises, new, replace(CONFIG, premise_dropout=0.0), earlier)
    assert {(row.path, row.premises) for row in rows} == {
        ("New.lean", ("New-6",)),
        ("Old.lean", ("Old-6",)),
        ("Elsewhere.lean", ()),
    }
