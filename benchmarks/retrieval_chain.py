"""Sixteen small tasks learned one after another: is a late task learned as well as an early one, and what is kept?

The tasks are those of `tests.support.letters`, each asked over 200 documents; an encoder of 65,856 weights has little
room for sixteen. The chain is the product's own:
`pipeline.models.retriever.learning.learn` on datasets of LeanDojo's format, 100 steps a task. No Lean is in it.

    python -m benchmarks.retrieval_chain [--losses LOSS ...] [--seeds N ...] [--ways WAY ...] [--tasks N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import string
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.store_bench import Row, machine, say, table
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.config import Loss, RetrieverConfig
from pipeline.models.retriever.learning import learn, measure
from tests.support.letters import letter_pairs
from tests.support.retrieval import small_config
from tests.support.tiny_models import make_tiny_retriever

WAYS: Mapping[str, Mapping[str, Any]] = {
    way: {"against_forgetting": way}
    for way in ("none", "replay+average", "replay", "ewc", "average", "ewc+replay", "ewc+replay+average")
}
"""The compared ways: fields of the configuration. What they do not name has the product's default."""
_LEARNS: Mapping[Loss, Mapping[str, Any]] = {
    "contrastive": {"temperature": 0.1, "lr": 2e-3},
    "mse": {"lr": 2e-3},
}


@dataclass(frozen=True, slots=True)
class ChainSizes:
    """How long a chain is, of what."""

    tasks: int = 16
    steps: int = 100
    rows: int = 32
    held_out: int = 200
    d_model: int = 64
    layers: int = 1
    fisher_samples: int = 128


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """Recall@1 on each task's held-out pairs, 0 to 1: when it had just been learned, and after the last task."""

    learned: tuple[float, ...]
    final: tuple[float, ...]
    seconds: float

    @property
    def first_half(self) -> float:
        return statistics.fmean(self.learned[: len(self.learned) // 2])

    @property
    def second_half(self) -> float:
        return statistics.fmean(self.learned[len(self.learned) // 2 :])

    @property
    def final_average(self) -> float:
        return statistics.fmean(self.final)


def write_letters(folder: Path, name: str, seed: int, sizes: ChainSizes) -> TaskData:
    """Write a task's dataset. A held-out query is asked over the held-out documents alone: they are a file's own."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 99], counter=[0, 0, 0, ord(name)]))
    counts = {"Held": sizes.held_out, "Shown": sizes.steps * sizes.rows}
    corpus: list[dict[str, Any]] = []
    theorems: dict[str, list[dict[str, Any]]] = {}
    for module, count in counts.items():
        path = f"{module}.lean"
        premises: list[dict[str, Any]] = []
        theorems[module] = []
        for number, (query, document) in enumerate(letter_pairs(name, seed, rng, count)):
            premises.append(_premise(module, number, document))
            theorems[module].append(_theorem(path, module, number, count, query))
        corpus.append({"path": path, "imports": [], "premises": premises})
    splits = {"train": theorems["Shown"], "val": [], "test": theorems["Held"]}
    (folder / "random").mkdir(parents=True)
    lines = "".join(json.dumps(file) + "\n" for file in corpus)
    (folder / "corpus.jsonl").write_text(lines, encoding="utf-8")
    for split, content in splits.items():
        (folder / "random" / f"{split}.json").write_text(json.dumps(content), encoding="utf-8")
    return TaskData(name, folder)


def _premise(module: str, number: int, code: str) -> dict[str, Any]:
    return {
        "full_name": f"{module}.p{number}",
        "code": code,
        "start": [number + 1, 1],
        "end": [number + 1, 20],
        "kind": "commanddeclaration",
    }


def _theorem(path: str, module: str, number: int, premises: int, state: str) -> dict[str, Any]:
    row = premises + number + 1  # behind all premises of its file
    use = {
        "full_name": f"{module}.p{number}",
        "def_path": path,
        "def_pos": [number + 1, 9],
        "def_end_pos": [number + 1, 11],
    }
    step = {
        "tactic": "exact p",
        "annotated_tactic": ["exact <a>p</a>", [use]],
        "state_before": state,
        "state_after": "no goals",
    }
    return {
        "url": "https://example.org/letters",
        "commit": "a" * 40,
        "file_path": path,
        "full_name": f"{module}.t{number}",
        "theorem_statement": None,
        "start": [row, 1],
        "end": [row, 30],
        "traced_tactics": [step],
    }


def configuration(model: Path, seed: int, loss: Loss, sizes: ChainSizes, **way: Any) -> RetrieverConfig:
    """Return how a chain is learned; `way` has the fields of a way against forgetting."""
    return small_config(
        model,
        **{
            "seed": seed,
            "loss": loss,
            "schedule": "constant",
            "warmup_steps": 0,
            "batch_size": sizes.rows,
            "num_negatives": 0,
            "num_in_file_negatives": 0,
            "fisher_samples": sizes.fisher_samples,
            "checkpoint_every_n_steps": 10 * sizes.steps,
            "log_every_n_steps": 10 * sizes.steps,
            **_LEARNS[loss],
            **way,
        },
    )


def learn_chain(
    folder: Path, seed: int, loss: Loss, way: Mapping[str, Any], sizes: ChainSizes = ChainSizes()
) -> ChainFigures:
    """Learn one chain in `folder`, which holds nothing yet."""
    torch.set_num_threads(1)
    began = time.process_time()
    model = make_tiny_retriever(folder / "model", seed=seed, d_model=sizes.d_model, layers=sizes.layers)
    config = configuration(model, seed, loss, sizes, **way)
    names = string.ascii_uppercase[: sizes.tasks]
    tasks = [write_letters(folder / "data" / name, name, seed, sizes) for name in names]
    chain = Chain(folder / "chain")

    def recall(checkpoint: str, task: TaskData) -> float:
        return measure(chain.path(checkpoint), task, config).metrics["recall@1"].mean

    learned: list[float] = []
    parent: str | None = None
    for number, task in enumerate(tasks):
        parent = learn(task, chain, config, parent=parent, earlier=tasks[:number]).checkpoint
        learned.append(recall(parent, task))
    assert parent is not None
    final = [recall(parent, task) for task in tasks]
    return ChainFigures(tuple(learned), tuple(final), time.process_time() - began)


def _run(given: tuple[Loss, int, str, Mapping[str, Any], ChainSizes, Path | None]) -> ChainFigures:
    loss, seed, name, way, sizes, at = given
    with tempfile.TemporaryDirectory(prefix="unsorry-chain-", dir=at) as folder:
        found = learn_chain(Path(folder), seed, loss, way, sizes)
    say(
        f"{loss}, seed {seed}, {name}: learned {found.first_half:.3f} then {found.second_half:.3f}, final "
        f"{found.final_average:.3f}, {found.seconds:.0f} s of processor time"
    )
    return found


def measure_chains(
    losses: Sequence[Loss],
    seeds: Sequence[int],
    ways: Mapping[str, Mapping[str, Any]],
    sizes: ChainSizes = ChainSizes(),
    *,
    processes: int = 1,
    folder: Path | None = None,
) -> dict[tuple[Loss, str], list[ChainFigures]]:
    """Learn every way's chain with every loss and seed; by loss and way, the figures of each seed."""
    runs = [
        (loss, seed, name, way, sizes, folder)
        for loss in losses
        for seed in seeds
        for name, way in ways.items()
    ]
    if processes == 1:
        learned = list(map(_run, runs))
    else:
        # Started anew, not forked: torch has threads, which a copy of the process would not have.
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            learned = list(pool.map(_run, runs))
    found: dict[tuple[Loss, str], list[ChainFigures]] = {}
    for run, figures in zip(runs, learned, strict=True):
        found.setdefault((run[0], run[2]), []).append(figures)
    return found


def rows_of(found: Mapping[tuple[Loss, str], Sequence[ChainFigures]]) -> Iterator[Row]:
    """Return the table's rows: means over the seeds, each seed's figure as a sample."""
    for (loss, way), each in found.items():
        for what in ("first_half", "second_half", "final_average"):
            values = tuple(100 * float(getattr(one, what)) for one in each)
            shown = {
                "first_half": "R@1 right after learning, first half",
                "second_half": "R@1 right after learning, second half",
                "final_average": "final average R@1",
            }[what]
            yield Row("chain", f"{loss}, {way}: {shown}", statistics.fmean(values), "points", samples=values)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--losses", nargs="+", choices=sorted(_LEARNS), default=sorted(_LEARNS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--ways", nargs="+", choices=sorted(WAYS), default=list(WAYS), metavar="WAY")
    parser.add_argument("--tasks", type=int, default=ChainSizes().tasks)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="make the temporary folders in here (a local disk)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args(given)
    found = measure_chains(
        options.losses,
        options.seeds,
        {name: WAYS[name] for name in options.ways},
        ChainSizes(tasks=options.tasks),
        processes=options.processes,
        folder=options.folder,
    )
    rows = list(rows_of(found))
    print(table(rows))
    if options.json:
        document = {"machine": machine(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
