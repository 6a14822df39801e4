"""Measure proving: throughput against LeanDojo-v2's search loop, scaling, batches, and whether models learn.

    python benchmarks/prove.py [--quick] [--only NAME ...] [--json FILE] [--folder FOLDER] [--seeds N ...]

    throughput  200 theorems, one model: theorems a minute and success, against LeanDojo-v2's loop stated again
                (benchmarks/prove_peer.py), which tries the same theorems with the same model
    scaling     the same theorems on 1, 2 and 4 REPL processes, as fast as the simulator answers and once more with
                20 ms before each answer, as a Lean at work takes; and how full the generator's batches are
    learning    fine-tuning on easy theorems and Lean's reward, judged on harder ones (benchmarks/prove_learning.py)

All else that is Lean is the simulator, whose processes start in a fraction of a second and answer in milliseconds: what
is compared is the searches and how they ask the model. Prints a table; --json writes it with what it was measured on.
Every ratio is of two figures of the same run. --quick takes a fraction of everything and only tests this program.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Generator as Iteration
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

if __name__ == "__main__":
    # As a script this file's folder comes first on the path, where `store` is a file of the benchmarks.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry).resolve() != here)]

from benchmarks import prove_peer
from benchmarks.prove_family import Theorem, make_model, shapes, steps_of
from benchmarks.prove_learning import LearningSizes, measure_learning
from benchmarks.prove_search import Proved, prove
from benchmarks.store_bench import BenchmarkError, Row, machine, say, table
from pipeline.jobs.specs import Budget
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import TacticModel
from pipeline.models.tactics.training import SFTTrainer

SEED = 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything. The theorems are of 3 to 5 atoms; the model has learned from others of 2 to 4."""

    learning: LearningSizes = field(default_factory=LearningSizes)
    theorems: int = 200
    learned_from: int = 80
    hidden: int = 96
    layers: int = 2
    epochs: int = 6
    candidates: int = 4
    nodes: int = 64
    together: int = 32
    processes: tuple[int, ...] = (1, 2, 4)
    answers_after_ms: int = 20


QUICK = Sizes(
    learning=LearningSizes(
        seeds=(1,),
        per_size=4,
        held_out=2,
        practised=4,
        hidden=16,
        layers=1,
        epochs=1,
        weak_epochs=1,
        batch_size=8,
        grpo_steps=1,
        grpo_batch_size=8,
        generations=4,
        candidates=2,
        nodes=2,
    ),
    theorems=4,
    learned_from=4,
    hidden=16,
    layers=1,
    epochs=1,
    candidates=2,
    nodes=2,
    together=4,
    processes=(1, 2),
)


@dataclass(slots=True)
class Bench:
    """Where, how much, and the theorems with the model that several measurements share."""

    folder: Path
    sizes: Sizes
    _made: tuple[list[Theorem], TacticModel] | None = None

    def made(self) -> tuple[list[Theorem], TacticModel]:
        """Return the theorems and a model that has learned from others of their kind."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> tuple[list[Theorem], TacticModel]:
        sizes = self.sizes
        say("a model is fine-tuned")
        learned = [one for size in (2, 3, 4) for one in shapes(SEED, size, sizes.learned_from)]
        known = {one.header.partition("(")[2] for one in learned}
        wanted = -(-sizes.theorems // 3)
        fresh: list[Theorem] = []
        for size in (3, 4, 5):
            others = shapes(SEED + 1, size, 2 * wanted)
            fresh += [one for one in others if one.header.partition("(")[2] not in known][:wanted]
        rows = asyncio.run(steps_of(learned, self.folder))
        base = make_model(self.folder / "base", rows, seed=SEED, hidden=sizes.hidden, layers=sizes.layers)
        trainer = SFTTrainer(
            base,
            output_dir=self.folder / "tuned",
            epochs_per_repo=sizes.epochs,
            batch_size=32,
            lr=2e-3,
            warmup_steps=20,
            max_seq_len=384,
            device="cpu",
            say=lambda _line: None,
        )
        trainer.fit(rows)
        return fresh[: sizes.theorems], trainer.loaded()

    def proved(self, processes: int, *, answers_after_ms: int = 0) -> Proved:
        """Prove the theorems as a prove job does."""
        given, model = self.made()
        sizes = self.sizes
        return asyncio.run(
            prove(
                given,
                Generator(model),
                self.folder,
                processes=processes,
                together=sizes.together,
                budget=Budget(nodes=sizes.nodes, seconds=600, tactic_timeout_s=10),
                candidates=sizes.candidates,
                seed=SEED,
                answers_after_ms=answers_after_ms,
            )
        )


def measure_throughput(bench: Bench) -> Iterator[Row]:
    """The same theorems and model, each way with one REPL process at a time."""
    given, model = bench.made()
    ours = bench.proved(1)
    say(f"LeanDojo-v2's loop, {len(given)} theorems")
    began = time.monotonic()
    found = 0
    for theorem in given:
        found += asyncio.run(prove_peer.search(theorem, model, bench.folder, seed=SEED)) is not None
    seconds = time.monotonic() - began
    peer, share = 60 * len(given) / seconds, found / len(given)
    of = f"{len(given)} theorems"
    yield Row("throughput", f"{of} by best-first search in batches", ours.per_minute, "theorems/min")
    yield Row("throughput", f"{of} by LeanDojo-v2's loop", peer, "theorems/min")
    ratio = ours.per_minute / peer
    yield Row("throughput", "ratio", ratio, "x", "at least 10", ratio >= 10)
    yield Row(
        "throughput",
        "proved by best-first search, the whole theorem accepted",
        100 * ours.share,
        "%",
        "at least the other's",
        ours.share >= share,
        f"{ours.unchecked} more were found and refused in their theorem's text",
    )
    yield Row("throughput", "ended without goals in LeanDojo-v2's loop", 100 * share, "%")


def measure_scaling(bench: Bench) -> Iterator[Row]:
    """The same work on more processes; the model has one core in each case."""
    fastest = yield from _scaled(bench, answers_after_ms=0)
    yield from _scaled(bench, answers_after_ms=bench.sizes.answers_after_ms)
    counts = fastest.counts
    yield Row("scaling", "generator's batches: rows in use", 100 * counts.fill, "%")
    yield Row("scaling", "requests in a batch", counts.requests / max(counts.batches, 1), "on average")
    padding = 1 - counts.prompt_tokens / max(counts.padded_tokens, 1)
    yield Row("scaling", "padding among the prompts' tokens", 100 * padding, "%")
    share = counts.seconds / fastest.seconds
    yield Row("scaling", "time in the model, with one REPL process", 100 * share, "% of the run")


def _scaled(bench: Bench, *, answers_after_ms: int) -> Iteration[Row, None, Proved]:
    """Measure each number of processes; return what one process did."""
    first: Proved | None = None
    waits = f", {answers_after_ms} ms before each answer" if answers_after_ms else ""
    for processes in bench.sizes.processes:
        found = bench.proved(processes, answers_after_ms=answers_after_ms)
        first = first or found
        note = f"{found.nodes} states, {found.repl_calls} calls of the REPL, {100 * found.share:.1f} % proved"
        what = f"{processes} REPL process{'es' if processes > 1 else ''}{waits}"
        yield Row("scaling", what, found.per_minute, "theorems/min", note=note)
        if found is not first:
            yield Row("scaling", f"{what}, ratio to one", found.per_minute / first.per_minute, "x")
    assert first is not None
    return first


MEASUREMENTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "throughput": measure_throughput,
    "scaling": measure_scaling,
    "learning": lambda bench: measure_learning(bench.folder / "learning", bench.sizes.learning),
}


def about() -> dict[str, Any]:
    """Say what it is measured on."""
    names = ("torch", "transformers", "trl", "peft")
    return machine() | {"packages": {name: metadata.version(name) for name in names}, "threads": 1}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=sorted(MEASUREMENTS), metavar="NAME", help="some of them"
    )
    parser.add_argument("--quick", action="store_true", help="a fraction of the size: does it run?")
    parser.add_argument("--seeds", nargs="+", type=int, help="of theorems and weights, for learning")
    parser.add_argument("--folder", type=Path, help="make the temporary folder in here (a local disk)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args(given)
    names = [name for name in MEASUREMENTS if not options.only or name in options.only]
    sizes = QUICK if options.quick else Sizes()
    if options.seeds:
        seeds = tuple(options.seeds)
        sizes = replace(sizes, learning=replace(sizes.learning, seeds=seeds))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(1)
    measured_on = about()
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(prefix="everlean-benchmark-", dir=options.folder) as temporary:
            bench = Bench(Path(temporary), sizes)
            for name in names:
                say(f"{name} …")
                rows += MEASUREMENTS[name](bench)
    except BenchmarkError as error:
        print(f"prove: {error}", file=sys.stderr)
        return 1
    print(table(rows))
    for row in rows:
        if row.note:
            print(f"- {row.of}, {row.what}: {row.note}")
    if options.json:
        document = {"machine": measured_on, "quick": options.quick, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
