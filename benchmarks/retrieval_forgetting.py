"""Five small repositories learned one after another, with each way to forget less: what is known of all at the end.

The repositories are the simulator's (benchmarks/retrieval_repositories.py): generated, traced, exported. Each has
premises of its own and a library that all five share, and names of its own for what both speak of, so what one teaches
does not help with the next. The chain of tasks is the daemon's: `pipeline.models.retriever.learning.learn_all`, with a
tiny encoder that knows nothing beforehand.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import get_args

import torch

from benchmarks.retrieval_repositories import write_tasks
from benchmarks.store_bench import Row, say
from pipeline.models.chain import Chain
from pipeline.models.measures import lifelong_metrics
from pipeline.models.retriever.config import Loss, RetrieverConfig
from pipeline.models.retriever.learning import learn_all
from tests.support.retrieval import small_config
from tests.support.tiny_models import make_tiny_retriever

SHOWN = {
    "final_average": "final average R@10",
    "FM": "FM (less is better)",
    "BWT": "BWT",
    "learning_accuracy": "R@10 right after learning",
}
"""What is shown of `metrics.lifelong_metrics`'s textbook measures, all in points of percent."""
_T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t for a two-sided interval of 95%, by degrees of freedom."""


LOSSES: tuple[Loss, ...] = get_args(Loss)
_LEARNS: Mapping[Loss, Mapping[str, int]] = {
    "contrastive": {"batch_size": 16, "max_epochs": 1},
    "mse": {"batch_size": 8, "max_epochs": 3},
}
"""How long each loss is trained: so that both know a repository about as well when they have just learned it."""


@dataclass(frozen=True, slots=True)
class ForgettingSizes:
    """How many repositories of how many theorems, how often, and what is tried on them.

    No `lambdas`: EWC with the default strength.
    """

    tasks: int = 5
    theorems: int = 500
    seeds: tuple[int, ...] = (1, 2, 3)
    d_model: int = 64
    layers: int = 1
    fisher_samples: int = 128
    losses: tuple[Loss, ...] = LOSSES
    lambdas: tuple[float, ...] = ()
    processes: int = 1


def configurations(model: Path, seed: int, loss: Loss, sizes: ForgettingSizes) -> dict[str, RetrieverConfig]:
    """Return the ways to learn that are compared, by the names that the table has."""
    base = small_config(
        model,
        seed=seed,
        loss=loss,
        schedule="constant",
        warmup_steps=0,
        fisher_samples=sizes.fisher_samples,
        against_forgetting="none",
        **_LEARNS[loss],
    )
    ewc = replace(base, against_forgetting="ewc")
    tried = {f"ewc, lambda {weight:g}": replace(ewc, lambda_value=weight) for weight in sizes.lambdas}
    return {
        "none": base,
        **(tried or {"ewc": ewc}),
        "average": replace(base, against_forgetting="average"),
        "replay": replace(base, against_forgetting="replay"),
    }


def measure_forgetting(folder: Path, sizes: ForgettingSizes) -> Iterator[Row]:
    """Every way over the same repositories and the same first weights, once with each seed.

    Nothing here is timed, so several seeds and losses are learned at once, each on one thread.
    """
    runs = [(loss, seed) for seed in sizes.seeds for loss in sizes.losses]
    arguments = ([folder] * len(runs), *zip(*runs, strict=True), [sizes] * len(runs))
    if sizes.processes == 1:
        learned = list(map(_learn, *arguments))
    else:
        # Started anew, not forked: torch has threads, which a copy of the process would not have.
        with ProcessPoolExecutor(sizes.processes, mp_context=get_context("spawn")) as pool:
            learned = list(pool.map(_learn, *arguments))
    for loss in sizes.losses:
        found: dict[str, list[Mapping[str, float]]] = {}
        for (of, _), ways in zip(runs, learned, strict=True):
            for name, measures in ways.items() if of == loss else ():
                found.setdefault(name, []).append(measures)
        yield from rows_of(loss, found)


def _learn(folder: Path, loss: Loss, seed: int, sizes: ForgettingSizes) -> dict[str, Mapping[str, float]]:
    """Learn with one loss and seed; return the textbook measures of each way."""
    torch.set_num_threads(1)
    at = folder / f"{loss}-{seed}"
    tasks = write_tasks(at, seed, tasks=sizes.tasks, theorems=sizes.theorems)
    model = make_tiny_retriever(at / "model", seed=seed, d_model=sizes.d_model, layers=sizes.layers)
    found = {}
    for name, config in configurations(model, seed, loss, sizes).items():
        began = time.process_time()
        report = learn_all(tasks, Chain(at / name.replace(" ", "-")), config)
        found[name] = measures = lifelong_metrics(report.recall, report.validation).textbook
        say(
            f"{loss}, seed {seed}, {name}: {time.process_time() - began:.0f} s of processor time, "
            + ", ".join(f"{key} {measures[key]:.1f}" for key in SHOWN)
        )
    return found


def rows_of(loss: Loss, found: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[Row]:
    """Return the table's rows for a loss: each way's measures, and how each differs from "none" seed by seed.

    Args:
        loss: which the measures are of.
        found: by way, the textbook measures of each seed, the seeds in the same order; "none" among them.
    """
    for name, measures in found.items():
        for key, shown in SHOWN.items():
            values = tuple(one[key] for one in measures)
            mean, half = interval(values)
            note = f"95% ± {half:.2f} over {len(values)} seeds"
            yield Row("forgetting", f"{loss}, {name}: {shown}", mean, "points", note=note, samples=values)
    for name, measures in found.items():
        if name == "none":
            continue
        # EWC also learns less, so what it forgets less is no gain by itself: the final average says what is.
        for key, sign in (("FM", -1), ("final_average", 1)):
            gains = tuple(
                sign * (one[key] - before[key]) for before, one in zip(found["none"], measures, strict=True)
            )
            mean, half = interval(gains)
            beyond = mean - half > 0
            said = "better than none" if beyond else "NOT better than none"
            held = key == "FM" and name.startswith("ewc")
            yield Row(
                "forgetting",
                f"{loss}, {name}: {SHOWN[key]}, gain over none",
                mean,
                "points",
                "above 0 beyond the interval" if held else "",
                beyond if held else None,
                note=f"95% ± {half:.2f} over {len(gains)} seeds: {said} beyond the interval",
                samples=gains,
            )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of Student's 95% interval; infinity for one value, 1.96 deviations beyond ten.

    Raises:
        statistics.StatisticsError: there is no value.
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.inf
    t = _T95.get(len(values) - 1, 1.96)
    return mean, t * statistics.stdev(values) / math.sqrt(len(values))
