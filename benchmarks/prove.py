"""Measure a search's throughput against LeanDojo-v2's loop, with Lean 4.35.0 itself.

    python benchmarks/prove.py [--quick] [--json FILE] [--folder FOLDER]

The same theorems, the same small model and the same Lean, side by side in one run: by best-first search in
batches, as in a prove job, and by LeanDojo-v2's loop stated again (benchmarks/prove_peer.py), each with one
process of Lean at a time. Prints a table; --json writes it with the machine and the versions. --quick takes a
fraction of everything and only tests this program. Without Lean (`tests.support.lean.wheel`) it says so and
ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
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
from benchmarks.prove_search import Proved, prove
from benchmarks.store_bench import BenchmarkError, Row, machine, say, table
from pipeline.jobs.specs import Budget
from pipeline.models.config import TacticsConfig
from pipeline.models.running import Saves
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import TacticModel
from pipeline.models.tactics.training import FineTuning

SEED = 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amounts. The theorems are of 3 to 5 atoms; the model has learned from others of 2 to 4."""

    theorems: int = 60
    learned_from: int = 80
    hidden: int = 96
    layers: int = 2
    epochs: int = 6
    candidates: int = 4
    nodes: int = 64
    together: int = 32


QUICK = Sizes(theorems=4, learned_from=4, hidden=16, layers=1, epochs=1, candidates=2, nodes=2, together=4)


@dataclass(slots=True)
class Bench:
    """The folder, the amounts, and the theorems with the model shared by several measurements."""

    folder: Path
    sizes: Sizes
    _made: tuple[list[Theorem], TacticModel] | None = None

    def made(self) -> tuple[list[Theorem], TacticModel]:
        """Return the theorems and a model trained on others of their kind."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> tuple[list[Theorem], TacticModel]:
        sizes = self.sizes
        say("a model is fine-tuned")
        learned = [shape for size in (2, 3, 4) for shape in shapes(SEED, size, sizes.learned_from)]
        texts = {one.header.partition("(")[2] for one in learned}
        of_each = -(-sizes.theorems // 3)
        fresh: list[Theorem] = []
        for size in (3, 4, 5):
            others = shapes(SEED + 1, size, 2 * of_each)
            fresh += [one for one in others if one.header.partition("(")[2] not in texts][:of_each]
        rows = asyncio.run(steps_of(learned, self.folder))
        base = make_model(self.folder / "base", rows, seed=SEED, hidden=sizes.hidden, layers=sizes.layers)
        config = TacticsConfig(
            str(base), epochs=sizes.epochs, batch_size=32, lr=2e-3, max_seq_len=384, device="cpu"
        )
        training = FineTuning(config, str(base))
        training.fit(rows, Saves(self.folder / "tuned"))
        return fresh[: sizes.theorems], training.found

    def proved(self) -> Proved:
        """Prove the theorems as a prove job does."""
        theorems, model = self.made()
        sizes = self.sizes
        return asyncio.run(
            prove(
                theorems,
                Generator(model),
                self.folder,
                processes=1,
                together=sizes.together,
                budget=Budget(nodes=sizes.nodes, seconds=600, tactic_timeout_s=10),
                candidates=sizes.candidates,
                seed=SEED,
            )
        )


def measure_throughput(bench: Bench) -> Iterator[Row]:
    """Measure the same theorems and model, each way with one process of Lean at a time."""
    theorems, model = bench.made()
    ours = bench.proved()
    say(f"LeanDojo-v2's loop, {len(theorems)} theorems")
    began = time.monotonic()
    result = 0
    for theorem in theorems:
        result += asyncio.run(prove_peer.search(theorem, model, bench.folder, seed=SEED)) is not None
    seconds = time.monotonic() - began
    peer, share = 60 * len(theorems) / seconds, result / len(theorems)
    of = f"{len(theorems)} theorems"
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


def about() -> dict[str, Any]:
    """Return the machine and the versions of the run."""
    names = ("torch", "transformers", "trl", "peft")
    return machine() | {"packages": {name: metadata.version(name) for name in names}, "threads": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fraction of the size: does it run?")
    parser.add_argument("--folder", type=Path, help="make the temporary folder in here (a local disk)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else Sizes()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    torch.set_num_threads(1)
    measured_on = about()
    try:
        with tempfile.TemporaryDirectory(prefix="everlean-benchmark-", dir=options.folder) as temporary:
            rows = [*measure_throughput(Bench(Path(temporary), sizes))]
    except BenchmarkError as error:
        print(f"prove: {error}", file=sys.stderr)
        return 3
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
