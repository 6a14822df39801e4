"""Measure the share of a proof's premises found by BM25 and MePo in real repositories, without Lean.

    python -m benchmarks.premises FOLDER [--theorems 100] [--seed 0]

FOLDER has a `NAME.json.xz` for each repository, made from its declarations: "docs", the premises, the name of
each in `<a>` and `</a>`; and "queries", [statement without its name, the places of the premises in its proof,
path]. From each repository this number of theorems is drawn by the seed; candidates are all of its premises
but the theorem itself, also inaccessible ones: there is no trace.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.models.measures import metrics_of, rate
from pipeline.models.retriever.baselines import SELECTORS
from pipeline.models.retriever.corpus import Corpus

_MARKED = re.compile(r"<a>(.*?)</a>")
_SHOWN = ("recall@1", "recall@10", "mrr")
_RETRIEVED = 100


def corpus_of(docs: Sequence[str]) -> Corpus:
    """Return the premises as one file's, in their order."""
    premises = [
        {
            "full_name": _MARKED.findall(doc)[0],
            "code": _MARKED.sub(r"\1", doc),
            "start": [number + 1, 1],
            "end": [number + 1, 2],
        }
        for number, doc in enumerate(docs)
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write(json.dumps({"path": "All.lean", "imports": [], "premises": premises}) + "\n")
        file.flush()
        return Corpus(file.name)


def measure(data: dict[str, Any], *, theorems: int, rng: random.Random) -> dict[str, Any]:
    """Return the means in percent of one repository, by selector and metric."""
    corpus = corpus_of(data["docs"])
    nameless: dict[str, list[int]] = {}
    for number, doc in enumerate(data["docs"]):
        nameless.setdefault(_statement(doc, "</a>"), []).append(number)
    queries = rng.sample(data["queries"], min(theorems, len(data["queries"])))
    result: dict[str, Any] = {"premises": len(corpus), "theorems": len(queries)}
    names = metrics_of(_RETRIEVED)
    for who, make in SELECTORS.items():
        selector = make(corpus)
        begun = time.process_time()
        rated = []
        for statement, used, _path in queries:
            allowed = np.ones(len(corpus), dtype=np.bool_)
            allowed[nameless.get(_statement(statement, ":"), [])] = False
            allowed[used] = True
            ranking = selector.rank(statement, allowed, _RETRIEVED)
            rated.append(rate(tuple(sorted(used)), ranking, retrieved=_RETRIEVED))
        took = time.process_time() - begun
        means = dict(zip(names, 100 * np.mean(rated, axis=0), strict=True))
        result[who] = {name: float(means[name]) for name in _SHOWN} | {"ms": 1000 * took / len(queries)}
    return result


def _statement(text: str, after: str) -> str:
    """Return a declaration's text without its keyword and name: the part shared with its premise."""
    return " ".join(text.partition(after)[2].split())


def main() -> None:
    """Print a table, a line for each repository."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--theorems", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    print(f"| repository | premises | theorems | BM25 {', '.join(_SHOWN)} | MePo | BM25 ms a goal |")
    print("|---" * 6 + "|")
    for path in sorted(arguments.folder.glob("*.json.xz")):
        with lzma.open(path) as file:
            data = json.load(file)
        result = measure(data, theorems=arguments.theorems, rng=random.Random(arguments.seed))
        rows.append(result)
        figures = [" / ".join(f"{result[who][name]:.1f}" for name in _SHOWN) for who in SELECTORS]
        name = path.name.removesuffix(".json.xz")
        print(
            f"| {name} | {result['premises']:,} | {result['theorems']} | {figures[0]} | {figures[1]} | "
            f"{result['bm25']['ms']:.1f} |",
            flush=True,
        )
    each = [[sum(row[who][name] for row in rows) / len(rows) for name in _SHOWN] for who in SELECTORS]
    means = [" / ".join(f"{value:.1f}" for value in one) for one in each]
    total = sum(row["premises"] for row in rows), sum(row["theorems"] for row in rows)
    print(f"| mean | {total[0]:,} in all | {total[1]:,} | {means[0]} | {means[1]} | |")


if __name__ == "__main__":
    main()
