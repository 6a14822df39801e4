"""`--compat` is LeanDojo-v2 1.0.9 to the letter: against its own code where it is there, and against frozen answers.

`tests.support.leandojo_peer` loads its code. golden_leandojo/compat.json holds inputs of our own and what LeanDojo-v2
(with numpy 2.4) answered; `python -m tests.store.test_leandojo_compat` writes it anew.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from store.curriculum import (
    CompatBuckets,
    CompatError,
    compat_buckets,
    compat_difficulty,
    compat_order,
    compat_thresholds,
)
from store.leandojo.merging import CompatTheorem, compat_split
from tests.support.leandojo_peer import needs_peer, peer

GOLDEN = Path(__file__).parent / "golden_leandojo" / "compat.json"

Record = dict[str, Any]


def made_up(seed: int, sizes: tuple[int, ...], premises: int = 60) -> list[Record]:
    """Make repositories with theorems in common, repeated premises, sorries; short: `expand` makes theirs of it."""
    rng = random.Random(seed)
    return [
        {
            "date": f"2025-0{rng.randint(1, 9)}-01T00:00:00",
            "proven": [_theorem(rng, number, premises) for number in range(size)],
            "sorry": [[*_theorem(rng, size + number, premises), "sorry"] for number in range(size // 5)],
        }
        for size in sizes
    ]


def _theorem(rng: random.Random, number: int, known: int) -> list[Any]:
    """Name, path, line, and of each step its premises. Few paths and lines, so that repositories share some keys."""
    steps = range(rng.choice([0, 1, 1, 2, 3, 5]))
    premises = [[f"p{int(known ** rng.random())}" for _ in range(rng.randint(0, 3))] for _ in steps]
    return [f"A.t{number}", f"A/F{number % 3}.lean", number + rng.randint(0, 1), premises]


def expand(short: list[Record]) -> list[Record]:
    """Write repositories out as their JSON has them."""
    return [
        {
            "url": f"https://example.org/r{number}",
            "name": f"example/r{number}",
            "commit": f"{number:040x}",
            "lean_version": "v4.20.0",
            "lean_dojo_version": "4.20.0",
            "metadata": {"date_processed": repository["date"]},
            "proven_theorems": [_expanded(*record) for record in repository["proven"]],
            "sorry_theorems_unproved": [_expanded(*record) for record in repository["sorry"]],
        }
        for number, repository in enumerate(short)
    ]


def _expanded(name: str, path: str, line: int, premises: list[list[str]], *sorry: str) -> Record:
    steps = [("simp", names) for names in premises] + [(f"exact {word}", []) for word in sorry]
    return {
        "full_name": name,
        "file_path": path,
        "start": [line, 1],
        "end": [line + 3, 9],
        "theorem_statement": f"theorem {name}",
        "traced_tactics": [_tactic(text, names) for text, names in steps],
    }


def _tactic(text: str, names: list[str]) -> Record:
    position = {"def_path": "B.lean", "def_pos": [1, 1], "def_end_pos": [1, 5]}
    annotations = [{"full_name": name, **position} for name in names]
    return {"tactic": text, "annotated_tactic": [text, annotations], "state_before": "⊢", "state_after": ""}


def theorems_of(repositories: list[Record]) -> list[CompatTheorem[str]]:
    """Make our input of theirs; the item is the url of the theorem's repository."""
    return [
        CompatTheorem(
            full_name=record["full_name"],
            file_path=record["file_path"],
            start=tuple(record["start"]),
            end=tuple(record["end"]),
            premises=tuple(
                use["full_name"] for step in record["traced_tactics"] for use in step["annotated_tactic"][1]
            ),
            processed=repository["metadata"]["date_processed"],
            item=repository["url"],
        )
        for repository in repositories
        for record in _records(repository)
    ]


def _records(repository: Record) -> list[Record]:
    return [*repository["proven_theorems"], *repository["sorry_theorems_unproved"]]


def our_split(repositories: list[Record]) -> Record:
    found = compat_split(theorems_of(repositories))
    return {
        strategy: {
            side: [[t.item, t.file_path, t.full_name, list(t.start)] for t in theorems]
            for side, theorems in sides.items()
        }
        for strategy, sides in found.items()
    }


def ratings_of(repository: Record) -> Counter[float | None]:
    return Counter(
        compat_difficulty(
            len(record["traced_tactics"]),
            has_sorry=any("sorry" in step["tactic"] for step in record["traced_tactics"]),
        )
        for record in _records(repository)
    )


def our_order(repositories: list[Record]) -> Record:
    counted = {repository["url"]: ratings_of(repository) for repository in repositories}
    everything: Counter[float] = Counter()
    for ratings in counted.values():
        everything.update({rating: number for rating, number in ratings.items() if rating is not None})
    limits = compat_thresholds(everything)
    ordered = compat_order([(url, compat_buckets(ratings, limits)) for url, ratings in counted.items()])
    return {
        "thresholds": [_number(limit) for limit in limits],
        "repositories": [[url, b.easy, b.medium, b.hard, b.no_proof] for url, b in ordered],
    }


def their_database(module: Any, repositories: list[Record], folder: Path) -> Any:
    database = module.DynamicDatabase(str(folder / "peer.json"))
    for repository in repositories:
        database.add_repository(module.Repository.from_dict(repository))
    return database


def their_split(module: Any, repositories: list[Record], folder: Path) -> Record:
    out = folder / "merged"
    database = their_database(module, repositories, folder)
    database.export_merged_data(database.repositories, out)
    return {
        strategy: {
            side: [
                [t["url"], t["file_path"], t["full_name"], t["start"]]
                for t in json.loads((out / strategy / f"{side}.json").read_text())
            ]
            for side in ("train", "val", "test")
        }
        for strategy in ("random", "novel_premises")
    }


def their_order(module: Any, repositories: list[Record], folder: Path) -> Record:
    seen: list[Any] = []
    module.print_difficulty_summary = lambda *arguments: seen.extend(arguments)
    order = their_database(module, repositories, folder).sort_repositories_by_difficulty()
    categories, limits = seen
    buckets = ("Easy", "Medium", "Hard", "Hard (No proof)")
    return {
        "thresholds": [_number(float(limit)) for limit in limits],
        "repositories": [[r.url, *(len(categories[r][bucket]) for bucket in buckets)] for r in order],
    }


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


INPUTS = {
    "several repositories": made_up(1, (30, 25, 9)),
    "premises that are used often": made_up(5, (20,), premises=4),
    "one small repository": made_up(2, (7,)),
    "too few for val and test": made_up(3, (4,)),
    "most are sorries": [
        {**repository, "proven": repository["proven"][:6]} for repository in made_up(4, (40, 25))
    ],
}


@pytest.mark.parametrize("name", INPUTS)
def test_splits_are_those_that_leandojo_gave(name: str) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    assert compact(our_split(expand(golden["input"]))) == golden["split"]


@pytest.mark.parametrize("name", INPUTS)
def test_buckets_and_order_are_those_that_leandojo_gave(name: str) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))[name]
    assert our_order(expand(golden["input"])) == golden["order"]


def test_the_frozen_answers_have_the_faults_that_compat_must_keep() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    held_out = golden["premises that are used often"]["split"]["novel_premises"]
    rows = [row for side in ("val", "test") for row in held_out[side]]
    assert len(rows) > len(set(rows)), "a theorem that uses a premise twice is in twice"
    assert golden["most are sorries"]["order"]["thresholds"][1] == "nan"


@needs_peer
@pytest.mark.parametrize("seed", range(20))
def test_splits_equal_those_of_the_installed_leandojo(seed: int, tmp_path: Path) -> None:
    repositories = expand(made_up(seed, tuple(random.Random(seed).choices(range(40), k=seed % 4 + 1))))
    with peer() as module:
        theirs = their_split(module, repositories, tmp_path)
    assert our_split(repositories) == theirs


@needs_peer
@pytest.mark.parametrize("seed", range(20))
def test_buckets_and_order_equal_those_of_the_installed_leandojo(seed: int, tmp_path: Path) -> None:
    repositories = expand(made_up(seed, tuple(random.Random(seed).choices(range(2, 40), k=seed % 4 + 1))))
    with peer() as module:
        theirs = their_order(module, repositories, tmp_path)
    assert our_order(repositories) == theirs


def test_of_two_equal_theorems_the_later_processed_stays_in_the_place_of_the_first() -> None:
    def theorem(name: str, date: str, item: str) -> CompatTheorem[str]:
        return CompatTheorem(name, "A.lean", (1, 1), (2, 1), (), date, item)

    theorems = [theorem("a", "2025-01-01", "old"), theorem("b", "2025-01-01", "only")]
    later = theorem("a", "2025-02-01T00:00:00", "new")
    same_day = theorem("b", "2025-01-01", "second")
    expected = [("a", "new"), ("b", "only")]
    found = compat_split([*theorems, later, same_day])["random"]["train"]
    assert sorted((t.full_name, t.item) for t in found) == expected
    undisturbed = compat_split([later, theorems[1]])["random"]["train"]
    assert [t.full_name for t in found] == [t.full_name for t in undisturbed]


def test_dates_of_which_one_has_a_time_zone_are_an_error_with_a_remedy() -> None:
    one = CompatTheorem("a", "A.lean", (1, 1), (2, 1), (), "2025-01-01", None)
    other = CompatTheorem("a", "A.lean", (1, 1), (2, 1), (), "2025-01-01T00:00:00+00:00", None)
    with pytest.raises(CompatError, match="without --compat"):
        compat_split([one, other])


@pytest.mark.parametrize(
    ("steps", "sorry", "rating"),
    [(0, False, None), (3, False, math.exp(3)), (3, True, math.inf), (709, False, math.exp(709))],
)
def test_a_rating_is_e_to_the_steps(steps: int, sorry: bool, rating: float | None) -> None:
    assert compat_difficulty(steps, has_sorry=sorry) == rating


def test_where_leandojo_stops_compat_says_so() -> None:
    with pytest.raises(OverflowError):
        math.exp(710)
    with pytest.raises(CompatError, match="710 steps"):
        compat_difficulty(710, has_sorry=False)
    with pytest.raises(CompatError, match="no theorem has a proof step"):
        compat_thresholds({})


def test_theorems_without_steps_are_dealt_out_in_three_parts_the_rest_to_hard() -> None:
    found = compat_buckets({None: 8, math.e: 1, math.inf: 2}, (math.e, math.e))
    assert found == CompatBuckets(easy=3, medium=2, hard=4, no_proof=2)


def test_sixteen_thousand_theorems_are_split_in_less_time_than_a_quadratic_search_takes() -> None:
    theorems = [
        CompatTheorem(f"t{i}", "A.lean", (i, 1), (i, 9), (f"p{i}", "common"), "2025-01-01", i)
        for i in range(16_000)
    ]
    started = time.process_time()
    found = compat_split(theorems)["novel_premises"]
    assert time.process_time() - started < 5
    assert [len(found[side]) for side in ("train", "val", "test")] == [9600, 3200, 3200]


def compact(split: Record) -> Record:
    return {
        strategy: {side: [" ".join(map(str, row)) for row in rows] for side, rows in sides.items()}
        for strategy, sides in split.items()
    }


def write_golden(folder: Path) -> None:
    """Freeze what LeanDojo-v2 answers."""
    answers = {}
    with peer() as module:
        for name, short in INPUTS.items():
            answers[name] = {
                "input": short,
                "split": compact(their_split(module, expand(short), folder)),
                "order": their_order(module, expand(short), folder),
            }
    GOLDEN.write_text(json.dumps(answers, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        write_golden(Path(temporary))
