"""Whether tactic models learn: fine-tuning on the proofs of easy theorems, then Lean's reward, judged on harder ones.

The theorems are `prove_family.shapes`. The easy ones, whose proofs are learned from, have up to four atoms; the others
have more, so that no held-out theorem, nor one of its size, was ever seen. What is counted is theorems whose proof
the search finds within its budget and whose whole text is then accepted. The budget is narrow, two tactics at each of
at most 24 goals, or a search would make up for what a model does not know. Reinforcement learning practises on the
goals that come up in further theorems of the held-out ones' size, none of which is held out, and is shown no tactic.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.prove_family import Theorem, lean, make_model, shapes, steps_of
from benchmarks.prove_search import prove
from benchmarks.store_bench import Row, say
from pipeline.jobs.specs import Budget
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.goals import GoalContext
from pipeline.models.tactics.grpo import GRPOTrainer
from pipeline.models.tactics.models import TacticModel
from pipeline.models.tactics.rows import Rows
from pipeline.models.tactics.training import SFTTrainer


@dataclass(frozen=True, slots=True)
class LearningSizes:
    """How much of everything.

    `weak_epochs`: of the fine-tuning that reinforcement learning starts from; it practises on the goals of `practised`
    hard theorems for `grpo_steps` steps of the optimiser, with `generations` answers to each goal.
    """

    seeds: tuple[int, ...] = (1, 2, 3)
    easy: tuple[int, ...] = (2, 3, 4)
    hard: int = 5
    per_size: int = 80
    held_out: int = 100
    practised: int = 120
    hidden: int = 96
    layers: int = 2
    epochs: int = 6
    weak_epochs: int = 1
    batch_size: int = 32
    lr: float = 2e-3
    grpo_steps: int = 200
    grpo_batch_size: int = 128
    grpo_lr: float = 3e-4
    generations: int = 8
    candidates: int = 2
    nodes: int = 24
    processes: int = 1
    at_once: int = 2


@dataclass(frozen=True, slots=True)
class Learned:
    """Shares of the held-out theorems proved, in percent: before, after fine-tuning, after a weak one, after GRPO."""

    before: float
    tuned: float
    weak: float
    rewarded: float


def measure_learning(folder: Path, sizes: LearningSizes) -> Iterator[Row]:
    """Learn anew with each seed, which decides theorems and weights; `at_once` seeds side by side."""
    with ProcessPoolExecutor(sizes.at_once, mp_context=get_context("spawn")) as others:
        started = [others.submit(_learn, folder / f"seed-{seed}", sizes, seed) for seed in sizes.seeds]
        found = [one.result() for one in started]
    atoms = f"{min(sizes.easy)} to {max(sizes.easy)} atoms"
    of = f"{sizes.held_out} theorems of {sizes.hard} atoms, {len(found)} seeds"
    tuned = [one.tuned - one.before for one in found]
    rewarded = [one.rewarded - one.weak for one in found]
    yield _row(f"random weights: {of}", [one.before for one in found])
    yield _row(f"fine-tuned on proofs of {atoms}", [one.tuned for one in found])
    yield _row("gain of fine-tuning, every seed", tuned, unit="points", target="above 0")
    yield _row("a weak start: fine-tuned for less", [one.weak for one in found])
    yield _row("the weak start with Lean's reward", [one.rewarded for one in found])
    yield _row("gain of Lean's reward, every seed", rewarded, unit="points", target="above 0")


def _row(what: str, values: Sequence[float], *, unit: str = "%", target: str = "") -> Row:
    each = ", ".join(f"{value:.1f}" for value in values)
    reached = all(value > 0 for value in values) if target else None
    mean = statistics.mean(values)
    return Row("learning", what, mean, unit, target, reached, f"each seed: {each}", tuple(values))


def _learn(folder: Path, sizes: LearningSizes, seed: int) -> Learned:
    torch.set_num_threads(1)  # so small a model waits more for its threads than it computes
    easy = [one for size in sizes.easy for one in shapes(seed, size, sizes.per_size)]
    held_out = shapes(seed + 1000, sizes.hard, sizes.held_out)
    folder.mkdir(parents=True)
    rows = asyncio.run(steps_of(easy, folder))
    base = make_model(folder / "base", rows, seed=seed, hidden=sizes.hidden, layers=sizes.layers)

    def solved(model: TacticModel) -> float:
        return 100 * share_proved(model, held_out, folder, sizes, seed)

    before = solved(_tuned(base, rows, folder / "none", sizes, epochs=0, seed=seed))
    tuned = solved(_tuned(base, rows, folder / "tuned", sizes, epochs=sizes.epochs, seed=seed))
    start = _tuned(base, rows, folder / "weak", sizes, epochs=sizes.weak_epochs, seed=seed)
    weak = solved(start)
    start.model.save_pretrained(str(folder / "start"))
    start.tokenizer.save_pretrained(folder / "start")
    start.lengths.save(folder / "start")
    trainer = GRPOTrainer(
        folder / "start",
        "lean",
        output_dir=folder / "rewarded",
        batch_size=sizes.grpo_batch_size,
        lr=sizes.grpo_lr,
        num_generations=sizes.generations,
        max_steps=sizes.grpo_steps,
        places=lambda _row: GoalContext(lean(folder)),
        seed=seed,
        device="cpu",
        say=_silent,
    )
    trainer.fit(asyncio.run(steps_of(_practised(held_out, sizes, seed), folder)))
    rewarded = solved(trainer.loaded())
    say(f"seed {seed}: {before:.1f} -> {tuned:.1f} %; weak {weak:.1f} -> {rewarded:.1f} %")
    return Learned(before, tuned, weak, rewarded)


def _practised(held_out: Sequence[Theorem], sizes: LearningSizes, seed: int) -> list[Theorem]:
    kept_away = {one.stated for one in held_out}
    drawn = shapes(seed + 2000, sizes.hard, sizes.practised + len(held_out))
    return [one for one in drawn if one.stated not in kept_away][: sizes.practised]


def share_proved(
    model: TacticModel, given: Sequence[Theorem], project: Path, sizes: LearningSizes, seed: int
) -> float:
    """Return the share of theorems, 0..1, that the model's search proves within the budget."""
    found = asyncio.run(
        prove(
            given,
            Generator(model),
            project,
            processes=sizes.processes,
            together=16,
            budget=Budget(nodes=sizes.nodes, seconds=600, tactic_timeout_s=10),
            candidates=sizes.candidates,
            seed=seed,
        )
    )
    return found.share


def _tuned(
    base: Path, rows: Rows, folder: Path, sizes: LearningSizes, *, epochs: int, seed: int
) -> TacticModel:
    trainer = SFTTrainer(
        base,
        output_dir=folder,
        epochs_per_repo=max(1, epochs),
        batch_size=sizes.batch_size,
        lr=sizes.lr,
        warmup_steps=5,
        max_seq_len=384,
        seed=seed,
        device="cpu",
        say=_silent,
    )
    if epochs:
        trainer.fit(rows)
    return trainer.loaded()


def _silent(_line: str) -> None:
    return None
