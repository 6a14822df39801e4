"""benchmarks/retrieval_chain.py: tasks learned one after another by the product's own training."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from benchmarks.retrieval_chain import ChainFigures, ChainSizes, learn_chain, rows_of
from pipeline.models.retriever.config import Loss, RetrieverConfig

# 3 to 5 s of processor time a task.
pytestmark = pytest.mark.timeout(300)


def test_plain_training_learns_each_task_and_forgets_the_one_before(tmp_path: Path) -> None:
    found = learn_chain(tmp_path, 1, "contrastive", {"against_forgetting": "none"}, ChainSizes(tasks=2))
    assert min(found.learned) >= 0.9
    assert found.final[0] <= 0.3
    assert found.final[1] == found.learned[1]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("loss", get_args(Loss))
def test_sixteen_tasks_do_not_stiffen_the_default_which_keeps_more_than_each_way_alone(
    tmp_path: Path, loss: Loss
) -> None:
    default = RetrieverConfig().against_forgetting
    found = {
        way: learn_chain(tmp_path / way, 1, loss, {"against_forgetting": way})
        for way in (default, "none", "replay", "ewc", "average")
    }
    assert found[default].second_half >= found[default].first_half - 0.05
    assert found[default].final_average >= 4 * found["none"].final_average
    for way in found.keys() - {default}:
        assert found[default].final_average > found[way].final_average, way


def test_a_table_has_the_halves_and_the_end_in_points_with_each_seed_s() -> None:
    one = ChainFigures(learned=(1.0, 0.5), final=(0.0, 0.5), seconds=1.0)
    other = ChainFigures(learned=(0.5, 0.25), final=(0.5, 0.5), seconds=1.0)
    rows = list(rows_of({("mse", "none"): [one, other]}))
    assert [row.samples for row in rows] == [(100.0, 50.0), (50.0, 25.0), (25.0, 50.0)]
    assert [row.value for row in rows] == [75.0, 37.5, 37.5]
