"""`--compat` is LeanDojo-v2 1.0.9 to the letter: its splits, its buckets and its order, against its own code."""

from __future__ import annotations

import math
import random
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from store.curriculum import CompatError, compat_difficulty, curriculum
from store.leandojo.exporting import Mode
from store.leandojo.merging import CompatTheorem, compat_split
from store.view import queries
from tests.support.leandojo import LISTS, LeanDojoFolder, identity, read_json
from tests.support.leandojo_peer import needs_peer, peer

Record = dict[str, Any]


def made_up(seed: int) -> list[Record]:
    """Make repositories with theorems in common, repeated premises, sorries."""
    rng = random.Random(seed)
    sizes = rng.choices(range(2, 40), k=seed % 4 + 1)
    return [
        {
            **identity(f"https://example.org/me/r{number}", f"{number:040x}"),
            "metadata": {"date_processed": f"2025-0{rng.randint(1, 9)}-01T00:00:00"},
            "proven_theorems": [_theorem(rng, one) for one in range(size)],
            "sorry_theorems_unproved": [_theorem(rng, size + one, "exact sorry") for one in range(size // 5)],
        }
        for number, size in enumerate(sizes)
    ]


def _theorem(rng: random.Random, number: int, *more: str) -> Record:
    """Few paths and lines, so that repositories share some keys."""
    line = number + rng.randint(0, 1)
    used = [
        [f"p{int(60 ** rng.random())}" for _ in range(rng.randint(0, 3))]
        for _ in range(rng.choice([0, 1, 1, 2, 3, 5]))
    ]
    place = {"def_path": "B.lean", "def_pos": [1, 1], "def_end_pos": [1, 5]}
    steps = [("simp", [{"full_name": name, **place} for name in names]) for names in used]
    return {
        "full_name": f"A.t{number}",
        "file_path": f"A/F{number % 3}.lean",
        "start": [line, 1],
        "end": [line + 3, 9],
        "theorem_statement": f"theorem A.t{number}",
        "traced_tactics": [
            {"tactic": text, "annotated_tactic": [text, uses], "state_before": "⊢", "state_after": ""}
            for text, uses in [*steps, *((text, []) for text in more)]
        ],
    }


@pytest.fixture(scope="module", params=range(20))
def given(request: pytest.FixtureRequest) -> list[Record]:
    return made_up(request.param)


@pytest.fixture(scope="module")
def ours(given: list[Record], tmp_path_factory: pytest.TempPathFactory) -> LeanDojoFolder:
    store = LeanDojoFolder(tmp_path_factory.mktemp("ours"))
    store.take_data({"repositories": given})
    return store


def theirs(module: Any, repositories: list[Record], folder: Path) -> Any:
    database = module.DynamicDatabase(str(folder / "peer.json"))
    for repository in repositories:
        database.add_repository(module.Repository.from_dict(repository))
    return database


@needs_peer
def test_splits_equal_those_of_the_installed_leandojo(
    given: list[Record], ours: LeanDojoFolder, tmp_path: Path
) -> None:
    with peer() as module:
        database = theirs(module, given, tmp_path)
        database.export_merged_data(database.repositories, tmp_path / "merged")
    ours.export(mode=Mode.COMPAT)
    assert ours.lists() == {name: read_json(tmp_path / "merged" / f"{name}.json") for name in LISTS}


@needs_peer
def test_buckets_and_order_equal_those_of_the_installed_leandojo(
    given: list[Record], ours: LeanDojoFolder, tmp_path: Path
) -> None:
    with peer() as module:
        seen: list[Any] = []
        module.print_difficulty_summary = lambda *arguments: seen.extend(arguments)
        order = theirs(module, given, tmp_path).sort_repositories_by_difficulty()
    categories, limits = seen
    with closing(queries.connect(ours.database_db)) as view:
        found = curriculum(view, compat=True)
    assert found.thresholds is not None
    own = [math.exp(found.thresholds.easy), math.exp(found.thresholds.medium)]
    assert own == pytest.approx([float(limit) for limit in limits], nan_ok=True)
    buckets = ("Easy", "Medium", "Hard", "Hard (No proof)")
    assert [
        [f"https://{row.repository}", row.easy, row.medium, row.hard, row.no_proof]
        for row in found.repositories
    ] == [[repo.url, *(len(categories[repo][bucket]) for bucket in buckets)] for repo in order]


def theorem(
    name: str, date: str = "2025-01-01", item: Any = None, *premises: str, line: int = 1
) -> CompatTheorem:
    return CompatTheorem(name, "A.lean", (line, 1), (line + 1, 1), premises, date, item)


def test_of_two_equal_theorems_the_later_processed_stays_in_the_place_of_the_first() -> None:
    old, only = theorem("a", item="old"), theorem("b", item="only")
    new, second = theorem("a", "2025-02-01T00:00:00", "new"), theorem("b", item="second")
    found = compat_split([old, only, new, second])["random"]["train"]
    assert sorted((one.full_name, one.item) for one in found) == [("a", "new"), ("b", "only")]
    undisturbed = compat_split([new, only])["random"]["train"]
    assert [one.full_name for one in found] == [one.full_name for one in undisturbed]


def test_a_theorem_that_uses_a_premise_twice_is_held_out_twice() -> None:
    theorems = [theorem(f"t{n}", "2025-01-01", n, "p", "p", line=n) for n in range(10)]
    found = compat_split(theorems)["novel_premises"]
    held = [one.item for side in ("val", "test") for one in found[side]]
    assert len(held) > len({*held})


def test_where_leandojo_stops_compat_says_so(store: LeanDojoFolder) -> None:
    with pytest.raises(CompatError, match="without --compat"):
        compat_split([theorem("a"), theorem("a", "2025-01-01T00:00:00+00:00")])
    with pytest.raises(CompatError, match="710 steps"):
        compat_difficulty(710, has_sorry=False)
    (repository,) = made_up(0)
    for one in repository["proven_theorems"]:
        one["traced_tactics"] = []
    store.take_data({"repositories": [{**repository, "sorry_theorems_unproved": []}]})
    with (
        closing(queries.connect(store.database_db)) as view,
        pytest.raises(CompatError, match="no theorem has a proof step"),
    ):
        curriculum(view, compat=True)


@pytest.mark.parametrize(
    ("steps", "sorry", "rating"),
    [(0, False, None), (3, False, math.exp(3)), (3, True, math.inf), (709, False, math.exp(709))],
)
def test_a_rating_is_e_to_the_steps(steps: int, sorry: bool, rating: float | None) -> None:
    assert compat_difficulty(steps, has_sorry=sorry) == rating


def test_sixteen_thousand_theorems_are_split_in_less_time_than_a_quadratic_search_takes() -> None:
    theorems = [theorem(f"t{i}", "2025-01-01", i, f"p{i}", "common", line=i) for i in range(16_000)]
    started = time.process_time()
    found = compat_split(theorems)["novel_premises"]
    assert time.process_time() - started < 5
    assert [len(found[side]) for side in ("train", "val", "test")] == [9600, 3200, 3200]
