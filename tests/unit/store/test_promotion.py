"""The promotion rule: what a candidate may lose, what counts as the same test, and what is not known."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Sequence

import pytest

from store.events.models import ModelKind
from store.promotion import RULES, Decision, Measured, before_last, decide, measured_tasks
from store.view.rows import EvaluationRow

OLD, NEW, BEST = "0ld", "new", "best"


def scores_in(name: str) -> bytes:
    """The scores of a `scored` row, which carries them in place of their hash."""
    return name.encode()


def row(
    checkpoint: str,
    recall: float,
    *,
    repository: str | None = "github.com/demo/one",
    split: str = "random",
    dataset: str = "d1",
    at: int = 0,
    metrics: dict[str, float] | None = None,
) -> EvaluationRow:
    return EvaluationRow(
        evaluation=f"{checkpoint}-{repository}-{split}-{dataset}-{at}",
        model="retriever",
        checkpoint=checkpoint,
        repository=repository,
        split=split,
        dataset=dataset,
        metrics={"recall@10": recall} if metrics is None else metrics,
        n=10,
        seconds=1.0,
        job="train-1",
        recorded_at=f"2026-01-01T00:00:{at:02}.000000Z",
    )


def judged(
    new: list[EvaluationRow],
    old: list[EvaluationRow] | None,
    *,
    tolerance: float = 2,
    once_in_use: Sequence[EvaluationRow] = (),
) -> Decision:
    return decide(
        Measured(new),
        None if old is None else Measured(old, once_in_use),
        rule=RULES["retriever"],
        tolerance=tolerance,
        read_blob=scores_in,
    )


def scored(checkpoint: str, scores: Sequence[float], *, task: str = "one", each: int = 1) -> EvaluationRow:
    """A measurement whose theorems have `each` steps of equal scores, which are these."""
    mean = sum(scores) / len(scores)
    return dataclasses.replace(
        row(checkpoint, mean, repository=f"github.com/demo/{task}", dataset=task),
        n=each * len(scores),
        scores=json.dumps([(f"theorem{n}", each, each * score) for n, score in enumerate(scores)]),
    )


@pytest.mark.parametrize(
    ("model", "metric", "before", "after", "tolerance", "verdict"),
    [
        ("tactics", "tactic@8", 0.50, 0.48, 2, "promote"),
        ("tactics", "tactic@8", 0.50, 0.47, 2, "refuse"),
        ("progress", "mae", 1.00, 0.50, 0.1, "promote"),
        ("progress", "mae", 1.00, 1.10, 0.1, "promote"),
        ("progress", "mae", 1.00, 1.11, 0.1, "refuse"),
        ("progress", "mae", 0.90, 2.00, 1000, "promote"),
    ],
)
def test_each_model_is_judged_by_its_own_metric_in_its_own_unit(
    model: ModelKind, metric: str, before: float, after: float, tolerance: float, verdict: str
) -> None:
    # What counts of the other models says nothing of this one.
    new, old = (
        Measured([row(name, 0.0, metrics={"recall@10": other, metric: value})])
        for name, other, value in ((NEW, 0.0, after), (OLD, 0.9, before))
    )
    assert decide(new, old, rule=RULES[model], tolerance=tolerance, read_blob=scores_in).verdict == verdict


def test_an_error_that_grew_is_told_as_one() -> None:
    new, old = (Measured([row(name, 0.0, metrics={"mae": mae})]) for name, mae in ((NEW, 1.5), (OLD, 1.2)))
    refused = decide(new, old, rule=RULES["progress"], tolerance=0.1, read_blob=scores_in)
    assert refused.reason == (
        "mae on github.com/demo/one (random) rises by 0.30 steps, from 1.20 to 1.50, with 0.1 allowed"
    )
    assert (
        decide(old, new, rule=RULES["progress"], tolerance=0, read_blob=scores_in).reason
        == "mae rises on none of 1 earlier task"
    )


def test_the_first_of_its_model_may_be_promoted() -> None:
    assert judged([], None).verdict == "promote"


@pytest.mark.parametrize(
    ("after", "verdict"), [(0.41, "promote"), (0.40, "promote"), (0.38, "promote"), (0.3799, "refuse")]
)
def test_a_loss_up_to_the_tolerance_is_allowed_and_not_a_hair_more(after: float, verdict: str) -> None:
    decision = judged([row(NEW, after)], [row(OLD, 0.40)])
    assert decision.verdict == verdict
    assert decision.may_be_promoted is (verdict == "promote")


@pytest.mark.parametrize(("before", "after"), [(0.57, 0.55), (0.29, 0.27), (0.07, 0.05)])
def test_rounding_makes_no_loss_of_exactly_the_tolerance_too_large(before: float, after: float) -> None:
    assert judged([row(NEW, after)], [row(OLD, before)]).verdict == "promote"


def test_without_tolerance_any_loss_is_too_much() -> None:
    assert judged([row(NEW, 0.4)], [row(OLD, 0.4)], tolerance=0).verdict == "promote"
    assert judged([row(NEW, 0.3999)], [row(OLD, 0.4)], tolerance=0).verdict == "refuse"


def test_a_gain_on_one_task_does_not_make_up_for_a_loss_on_another() -> None:
    old = [row(OLD, 0.4), row(OLD, 0.5, repository="github.com/demo/two")]
    new = [row(NEW, 0.9), row(NEW, 0.469, repository="github.com/demo/two")]
    decision = judged(new, old)
    assert decision.verdict == "refuse"
    assert decision.reason == (
        "recall@10 on github.com/demo/two (random) falls by 3.10 points, from 50.00 to 46.90, with 2 allowed"
    )


def test_the_reason_names_the_worst_of_several_losses() -> None:
    old = [row(OLD, 0.4), row(OLD, 0.5, split="novel_premises")]
    decision = judged([row(NEW, 0.3), row(NEW, 0.2, split="novel_premises")], old)
    assert "(novel_premises) falls by 30.00 points" in decision.reason
    assert decision.reason.endswith("and so in 1 more comparison")


def test_a_task_that_the_candidate_was_not_measured_on_is_not_known() -> None:
    decision = judged(
        [row(NEW, 0.9)], [row(OLD, 0.4), row(OLD, 0.4, repository=None), row(OLD, 0.4, split="x")]
    )
    assert decision.verdict == "unknown"
    assert decision.reason == (
        "what it would lose on all repositories (random) is not known, nor on 1 task more: it was not measured on it"
    )


def test_without_scores_another_test_set_of_the_same_task_says_nothing() -> None:
    decision = judged([row(NEW, 0.9, dataset="d2")], [row(OLD, 0.1, dataset="d1")])
    assert decision.verdict == "unknown"
    assert decision.reason.endswith(": the test sets differ")
    assert decision.tasks[0].lost is None


def test_the_same_examples_as_another_task_are_not_that_task() -> None:
    assert judged([row(NEW, 0.9, split="novel_premises")], [row(OLD, 0.4)]).verdict == "unknown"


def test_a_loss_that_is_known_is_the_reason_before_what_is_not() -> None:
    old = [row(OLD, 0.4), row(OLD, 0.4, split="novel_premises")]
    assert judged([row(NEW, 0.1)], old).verdict == "refuse"


@pytest.mark.parametrize("metrics", [{}, {"mrr": 0.9}, {"recall@10": math.nan}, {"recall@10": math.inf}])
def test_a_measurement_without_recall_at_10_is_not_known(metrics: dict[str, float]) -> None:
    assert judged([row(NEW, 0.0, metrics=metrics)], [row(OLD, 0.4)]).verdict == "unknown"
    assert judged([row(NEW, 0.9)], [row(OLD, 0.0, metrics=metrics)]).verdict == "unknown"


def test_where_the_one_in_use_was_never_measured_nothing_is_known() -> None:
    assert judged([row(NEW, 0.9)], []).verdict == "unknown"


def test_val_and_train_splits_are_no_tests() -> None:
    old = [row(OLD, 0.4), row(OLD, 0.9, split="random/val"), row(OLD, 0.9, split="train")]
    assert judged([row(NEW, 0.4), row(NEW, 0.1, split="random/val")], old).verdict == "promote"
    assert judged([row(NEW, 0.9, split="val")], [row(OLD, 0.4, split="val")]).verdict == "unknown"


def test_of_a_task_whose_test_set_grew_the_newest_of_the_one_in_use_counts() -> None:
    old = [row(OLD, 0.9, dataset="d1", at=1), row(OLD, 0.4, dataset="d2", at=2)]
    new = [
        row(NEW, 0.1, dataset="d2", at=1),
        row(NEW, 0.4, dataset="d2", at=2),
        row(NEW, 0.1, dataset="d1", at=3),
    ]
    assert judged(new, old).verdict == "promote"


def test_a_task_that_is_new_is_shown_and_does_not_count() -> None:
    decision = judged([row(NEW, 0.4), row(NEW, 0.1, repository="github.com/demo/two")], [row(OLD, 0.4)])
    assert decision.verdict == "promote"
    assert [(task.name, task.before is None) for task in decision.tasks] == [
        ("github.com/demo/one (random)", False),
        ("github.com/demo/two (random)", True),
    ]


def test_of_each_task_the_newest_measurement_is_shown_and_no_split_that_is_no_test() -> None:
    rows = [
        row(NEW, 0.2, repository="github.com/demo/two"),
        row(NEW, 0.5, at=2, dataset="d2"),
        row(NEW, 0.4, at=1),
        row(NEW, 0.9, split="val", at=3),
    ]
    assert [item.metrics["recall@10"] for item in measured_tasks(rows)] == [0.5, 0.2]


def test_a_gain_is_a_negative_loss() -> None:
    (task,) = judged([row(NEW, 0.5)], [row(OLD, 0.25)]).tasks
    assert task.lost == -25


@pytest.mark.parametrize("tolerance", [-1, 101, math.nan])
def test_a_tolerance_that_is_none_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match="no tolerance"):
        judged([row(NEW, 0.4)], [row(OLD, 0.4)], tolerance=tolerance)


@pytest.mark.parametrize(
    ("promoted", "back_to"),
    [
        ("", None),
        ("a", None),
        ("ab", "a"),
        ("abc", "b"),
        ("abcb", "a"),
        ("abcba", None),
        ("abcbd", "b"),
        ("aab", "a"),
        ("abb", "a"),
        ("abca", None),
    ],
)
def test_each_rollback_goes_one_further_back_and_never_to_what_was_left(
    promoted: str, back_to: str | None
) -> None:
    assert before_last(list(promoted)) == back_to


def changed(scores: Sequence[float], *, lost: int, gained: int) -> list[float]:
    """Scores of 0 and 1 of which so many hits became misses, and so many misses hits."""
    hits = [number for number, score in enumerate(scores) if score]
    misses = [number for number, score in enumerate(scores) if not score]
    flipped = {*hits[:lost], *misses[:gained]}
    return [1 - score if number in flipped else score for number, score in enumerate(scores)]


HALF = [1.0, 0.0] * 100
"""200 steps, every other one right."""


def test_a_loss_that_chance_makes_often_does_not_refuse_and_is_said() -> None:
    # 12 of 200 lost and 6 won: a loss of 3 points.
    decision = judged([scored(NEW, changed(HALF, lost=12, gained=6))], [scored(OLD, HALF)])
    assert decision.verdict == "promote"
    assert decision.reason == (
        "of 1 earlier task it loses most where recall@10 on github.com/demo/one (random) falls by 3.00 points, from "
        "50.00 to 47.00, with 2 allowed (over 200 steps; by chance in 8.4 % of cases)"
    )
    (task,) = decision.tasks
    assert task.steps == 200
    assert task.chance == pytest.approx(0.0835, abs=1e-4)


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (3, 3), (1, 6), (6, 1), (12, 6), (40, 20), (100, 100)])
def test_of_one_task_chance_is_the_mid_p_of_mcnemars_test(lost: int, gained: int) -> None:
    decision = judged([scored(NEW, changed(HALF, lost=lost, gained=gained))], [scored(OLD, HALF)])
    changes = lost + gained
    ways = [math.comb(changes, more) / 2**changes for more in range(lost, changes + 1)]
    assert decision.tasks[0].chance == pytest.approx(sum(ways) - ways[0] / 2)


def test_the_same_loss_refuses_where_hardly_anything_else_changed() -> None:
    decision = judged([scored(NEW, changed(HALF, lost=6, gained=0))], [scored(OLD, HALF)])
    assert decision.verdict == "refuse"
    assert "falls by 3.00 points" in decision.reason
    assert "by chance in 0.78 % of cases" in decision.reason


def test_the_steps_of_one_theorem_are_one_witness() -> None:
    apart, together = (
        judged([scored(NEW, [0.0] * lost + HALF, each=each)], [scored(OLD, [1.0] * lost + HALF, each=each)])
        for lost, each in ((20, 1), (2, 10))
    )
    assert (apart.verdict, together.verdict) == ("refuse", "promote")


def test_a_significant_loss_within_the_tolerance_is_allowed() -> None:
    thousand = HALF * 5
    decision = judged([scored(NEW, changed(thousand, lost=20, gained=0))], [scored(OLD, thousand)])
    assert decision.verdict == "promote"
    assert decision.tasks[0].chance is not None
    assert decision.tasks[0].chance < 0.001


def test_tasks_with_few_steps_are_judged_together() -> None:
    few = [1.0] * 30
    names = [f"small{number}" for number in range(8)]
    old = [scored(OLD, few, task=name) for name in names]
    one_worse = [
        scored(NEW, changed(few, lost=3 * (name == "small0"), gained=0), task=name) for name in names
    ]
    assert judged(one_worse, old).verdict == "promote", "10 points of 30 steps are three answers"
    all_worse = [scored(NEW, changed(few, lost=3, gained=0), task=name) for name in names]
    decision = judged(all_worse, old)
    assert decision.verdict == "refuse"
    assert decision.reason.startswith(
        "recall@10 on 8 tasks with fewer than 100 steps, too few to tell alone, falls by 10.00 points, with 2 allowed"
    )


def test_small_losses_everywhere_refuse_where_none_alone_would() -> None:
    names = [f"large{number}" for number in range(10)]
    old = [scored(OLD, HALF, task=name) for name in names]
    # 1.5 points each: within the tolerance on every task, and beyond half of it on all.
    new = [scored(NEW, changed(HALF, lost=4, gained=1), task=name) for name in names]
    decision = judged(new, old)
    assert decision.verdict == "refuse"
    assert decision.reason.startswith(
        "recall@10 on all 10 tasks together falls by 1.50 points, with 1 allowed"
    )
    assert judged(new[:1], old[:1]).verdict == "promote"


def test_losses_do_not_add_up_below_the_best_that_was_ever_in_use() -> None:
    best = HALF * 2
    in_use = changed(best, lost=8, gained=0)
    candidate = changed(best, lost=18, gained=0)
    new, old = [scored(NEW, candidate)], [scored(OLD, in_use)]
    assert judged(new, [scored(OLD, changed(best, lost=12, gained=0))]).verdict == "promote"
    decision = judged(
        new, [scored(OLD, changed(best, lost=12, gained=0))], once_in_use=[scored(BEST, best), *old]
    )
    assert decision.verdict == "refuse"
    assert decision.reason.startswith(
        "against best, once in use, recall@10 on github.com/demo/one (random) falls by 4.50 points, from "
        "50.00 to 45.50, with 4 allowed"
    )


def test_without_scores_on_one_side_the_figures_alone_decide() -> None:
    worse = changed(HALF, lost=12, gained=6)
    assert judged([scored(NEW, worse)], [row(OLD, 0.5, dataset="one")]).verdict == "refuse"


def test_other_theorems_under_the_same_digest_are_no_pairs() -> None:
    decision = judged([scored(NEW, [0.0, 1.0], each=100)], [scored(OLD, HALF)])
    assert decision.tasks[0].steps is None


def beside(usual: int, *, lost: int, gained: int) -> float:
    """The chance of a task's losses where on nine other tasks so many steps are lost and as many gained."""
    changes = [(lost, gained), *[(usual, usual)] * 9]
    new = [
        scored(NEW, changed(HALF, lost=out, gained=back), task=f"task{number}")
        for number, (out, back) in enumerate(changes)
    ]
    old = [scored(OLD, HALF, task=f"task{number}") for number in range(len(changes))]
    chance = judged(new, old).tasks[0].chance
    assert chance is not None
    return chance


def test_what_chance_does_on_other_tasks_tells_a_loss_from_it() -> None:
    alone = judged([scored(NEW, changed(HALF, lost=14, gained=5))], [scored(OLD, HALF)]).tasks[0].chance
    assert alone == pytest.approx(0.0207, abs=1e-4)
    assert beside(5, lost=14, gained=5) < 0.003
    assert beside(12, lost=14, gained=5) > 0.1


def test_a_task_that_changes_more_than_the_others_is_judged_by_itself() -> None:
    # The gains show that it is chance which moves so much of this one.
    assert beside(5, lost=24, gained=14) > 0.01


def test_many_that_were_in_use_before_and_were_no_better_refuse_no_more_often() -> None:
    rng = random.Random(7)

    def drawn(name: str, bases: Sequence[Sequence[float]]) -> list[EvaluationRow]:
        return [
            scored(
                name,
                [float(rng.random() < 0.6) if rng.random() < 0.1 else score for score in base],
                task=f"task{number}",
            )
            for number, base in enumerate(bases)
        ]

    refused = 0
    for _ in range(50):
        bases = [[float(rng.random() < 0.6) for _ in range(30)] for _ in range(10)]
        once = [row for number in range(8) for row in drawn(f"once{number}", bases)]
        refused += judged(drawn(NEW, bases), drawn(OLD, bases), once_in_use=once).verdict == "refuse"
    assert refused < 4


def grown(one: EvaluationRow) -> EvaluationRow:
    return dataclasses.replace(one, dataset=f"{one.dataset} and more")


def test_where_a_test_set_grew_the_theorems_of_both_are_compared() -> None:
    new = [grown(scored(NEW, [*changed(HALF, lost=20, gained=0), *[1.0] * 100]))]
    decision = judged(new, [scored(OLD, HALF)])
    assert decision.reason.startswith(
        "recall@10 on github.com/demo/one (random) falls by 10.00 points, from 50.00 to 40.00, with 2 allowed (over 200"
    )
    assert decision.verdict == "refuse"


def test_a_growing_test_set_hides_no_small_losses_that_add_up() -> None:
    best = HALF * 2
    in_use, candidate = changed(best, lost=12, gained=0), changed(best, lost=18, gained=0)
    new, old = ([grown(scored(name, scores))] for name, scores in ((NEW, candidate), (OLD, in_use)))
    assert judged(new, old).verdict == "promote"
    decision = judged(new, old, once_in_use=[scored(BEST, best), *old])
    assert decision.verdict == "refuse"
    assert "against best, once in use" in decision.reason


@pytest.mark.parametrize(
    ("own", "elsewhere", "verdict"),
    [
        ({"lost": 0, "gained": 0}, {"lost": 0, "gained": 0}, "refuse"),
        ({"lost": 0, "gained": 0}, {"lost": 3, "gained": 3}, "refuse"),
        ({"lost": 0, "gained": 1}, {"lost": 3, "gained": 3}, "promote"),
        ({"lost": 0, "gained": 0}, {"lost": 0, "gained": 1}, "promote"),
    ],
)
def test_a_candidate_that_learned_nothing_of_its_own_repository_is_refused(
    own: dict[str, int], elsewhere: dict[str, int], verdict: str
) -> None:
    new = [scored(NEW, changed(HALF, **own)), scored(NEW, changed(HALF, **elsewhere), task="two")]
    # The candidate's job measured the one in use on its own repository; the other one was measured before.
    old = [dataclasses.replace(scored(OLD, HALF), job="train-2"), scored(OLD, HALF, task="two")]
    sides = Measured(new, job="train-2"), Measured(old)
    decision = decide(*sides, rule=RULES["retriever"], tolerance=2, read_blob=scores_in)
    assert decision.verdict == verdict
    assert (
        decision.reason.startswith("it learned nothing: on github.com/demo/one (random), of 200 steps,")
    ) is (verdict == "refuse")


@pytest.mark.parametrize(("steps", "anew"), [(60, 0.1), (200, 0.1), (200, 0.3)])
def test_equally_good_models_are_refused_in_less_than_one_case_of_twenty(steps: int, anew: float) -> None:
    """`anew`: the share of the first task's steps that come out anew; of the others' a tenth."""
    rng = random.Random(7)

    def drawn() -> float:
        return float(rng.random() < 0.6)

    refused = 0
    for _ in range(100):
        old = [[drawn() for _ in range(steps)] for _ in range(10)]
        new = [
            [drawn() if rng.random() < share else score for score in scores]
            for scores, share in zip(old, (anew, *[0.1] * 9), strict=True)
        ]
        sides = (
            [scored(name, scores, task=f"task{number}") for number, scores in enumerate(side)]
            for name, side in ((NEW, new), (OLD, old))
        )
        refused += judged(*sides).verdict == "refuse"
    assert refused < 5


def test_a_loss_of_4_points_on_one_of_ten_tasks_is_refused_in_nine_cases_of_ten() -> None:
    rng = random.Random(7)

    def drawn() -> int:
        return sum(rng.random() < 0.6 for _ in range(3))

    refused = 0
    for _ in range(100):
        old = [[drawn() for _ in range(200)] for _ in range(10)]
        new = [[drawn() if rng.random() < 0.1 else found for found in task] for task in old]
        new[0] = [sum(rng.random() >= 0.04 / 0.6 for _ in range(found)) for found in new[0]]
        sides = (
            [
                scored(name, [found / 3 for found in task], task=f"task{number}")
                for number, task in enumerate(side)
            ]
            for name, side in ((NEW, new), (OLD, old))
        )
        refused += judged(*sides).verdict == "refuse"
    assert refused >= 90
