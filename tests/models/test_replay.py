"""The rows of a training: which are new, and which of earlier tasks are learned again beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from pipeline.models.config import ProgressConfig, RowsConfig, TacticsConfig
from pipeline.models.errors import ConfigError
from pipeline.models.replay import Selection, select

CONFIG = TacticsConfig(batch_size=2, replay_share=0.5)


def rows(name: str, count: int) -> dict[str, str]:
    """Return so many rows of a repository, by content."""
    return {f"{name}{number}": f"{name} {number}" for number in range(count)}


def learn(
    name: str, count: int, config: RowsConfig = CONFIG, *, but: tuple[str, ...] = (), **earlier: int
) -> Selection[str]:
    """Choose the rows of a repository that has so many, after repositories that had so many."""
    read: Mapping[str, partial[dict[str, str]]] = {
        one: partial(rows, one, had) for one, had in earlier.items()
    }
    known = rows(name, earlier[name]) if name in earlier else None
    return select(name, rows(name, count), known, read, config, but=but)


def test_a_first_task_is_learned_whole() -> None:
    assert learn("A", 5).rows == tuple(rows("A", 5).values())


def test_every_earlier_repository_is_replayed_alike_whatever_its_size() -> None:
    given = learn("New", 40, Small=40, Large=400)
    assert given.counts() == {"Small": 20, "Large": 20}, "as many as are new, by replay_share"
    assert len(set(given.rows)) == 80
    assert learn("New", 40, Small=40, Large=400) == given, "drawn by the seed alone"
    assert learn("New", 40, replace(CONFIG, seed=1), Small=40, Large=400) != given


def test_one_row_that_is_replayed_is_of_any_repository() -> None:
    drawn = [learn("New", 1, replace(CONFIG, seed=seed), A=9, B=9, C=9).counts() for seed in range(20)]
    assert {name for one in drawn for name in one} == {"A", "B", "C"}
    assert all(sum(one.values()) == 1 for one in drawn)


def test_replay_can_be_switched_off() -> None:
    assert learn("New", 9, replace(CONFIG, replay_share=0.0), Old=9).replayed == ()


@pytest.mark.parametrize("config", [TacticsConfig, ProgressConfig])
def test_a_share_that_leaves_nothing_new_is_refused(config: type[RowsConfig]) -> None:
    with pytest.raises(ConfigError, match="replay_share"):
        config(model_name="m", replay_share=1.0)


def test_a_repository_that_grew_is_trained_on_what_is_new_and_the_rest_is_replayed() -> None:
    given = learn("A", 23, A=20)
    assert given.own == ("A 20", "A 21", "A 22")
    assert len(set(given.rows)) == 6
    whole = learn("A", 23, replace(CONFIG, only_new=False), A=20)
    assert (len(whole.own), whole.replayed) == (23, ())


def test_less_than_a_batch_that_is_new_is_learned_with_all_the_rest() -> None:
    given = learn("A", 21, A=20)
    assert (len(given.own), given.replayed) == (21, ())


def test_rows_to_leave_out_are_not_replayed() -> None:
    given = learn("New", 9, but=tuple(rows("Old", 8)), Old=9)
    assert given.replayed == (("Old", "Old 8"),)
