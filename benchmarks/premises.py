"""Measure the share of a proof's premises found by BM25, MePo and a trained retriever, without Lean.

    python -m benchmarks.premises FOLDER... [--theorems 100] [--seed 0] [--train SEEDS]

A folder has a `NAME.json.xz` for each repository, made from its declarations: "docs", the premises, the name of each in
`<a>` and `</a>`; and "queries", [statement without its name, the places of the premises in its proof, path]. Or
`everlean benchmark make` made it: then the theorems are the sorries filled by people on its day or later, the premises
are the declarations known before the day, and proofs from before the day can be learned.

From each repository this number of theorems is drawn by the seed. Candidates are all of its premises but the theorem
itself, also inaccessible ones: without Lean there is no trace. `--train` trains a small retriever of words with this
number of seeds on each benchmark's proofs from before its day, and fuses its ranking with BM25's.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.tasks import premise_row, theorem_row, write_dataset
from pipeline.fills import rows_of
from pipeline.models.measures import METRICS, RETRIEVED, rate, summarise
from pipeline.models.retriever.baselines import BM25, FUSED, MePo, fused
from pipeline.models.retriever.corpus import Corpus

_MARKED = re.compile(r"<a>(.*?)</a>")
_SHOWN = ("recall@1", "recall@10", "mrr")
_LETTERS = 300
"""Of a statement, for the retriever of words."""

Query = tuple[str, list[int]]
"""A statement without its name, and the places of its proof's premises."""
Rank = Callable[[Query, npt.NDArray[np.bool_]], list[int]]


@dataclass(frozen=True, slots=True)
class Repository:
    """Premises, their names in `<a>` and `</a>`; the questions; and the statements to learn from."""

    name: str
    docs: Sequence[str]
    queries: Sequence[Query]
    learned: Sequence[Query] = ()


def repositories(folder: Path) -> Iterator[Repository]:
    """Yield a folder's repositories."""
    if (folder / "benchmark.json").exists():
        yield _of_benchmark(folder)
    for path in sorted(folder.glob("*.json.xz")):
        with lzma.open(path) as file:
            content = json.load(file)
        queries = [(statement, used) for statement, used, _ in content["queries"]]
        yield Repository(path.name.removesuffix(".json.xz"), content["docs"], queries)


def _of_benchmark(folder: Path) -> Repository:
    known = rows_of(folder, "known")
    place = {row["name"]: number for number, row in enumerate(known)}
    docs = [f"<a>{row['name']}</a> {row['statement']}" for row in known]

    def queries(part: str) -> list[Query]:
        rows = known if part == "known" else rows_of(folder, part)
        return [
            (f": {row['statement']}", [place[name] for name in row["premises"]])
            for row in rows
            if row["premises"]
        ]

    return Repository(folder.name, docs, queries("test"), [*queries("train"), *queries("known")])


def corpus_of(docs: Sequence[str]) -> Corpus:
    """Return premises as one file's, in their order."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(one) + "\n" for one in _corpus(docs))
        file.flush()
        return Corpus(file.name)


@dataclass(frozen=True, slots=True)
class Found:
    """A ranking's measures of each theorem (the mean of the seeds), and the processor's seconds for all of them."""

    rated: Sequence[tuple[float, ...]]
    seconds: float


def measure(
    repository: Repository, *, theorems: int, seed: int, train: int, folder: Path
) -> tuple[int, dict[str, Found]]:
    """Return a repository's number of premises, and each way's measures of the drawn theorems."""
    corpus = corpus_of(repository.docs)
    asked = random.Random(seed).sample(repository.queries, min(theorems, len(repository.queries)))
    nameless: dict[str, list[int]] = {}
    for number, doc in enumerate(repository.docs):
        nameless.setdefault(_statement(doc, "</a>"), []).append(number)

    def allowed(query: Query) -> npt.NDArray[np.bool_]:
        statement, used = query
        result = np.ones(len(corpus), dtype=np.bool_)
        result[nameless.get(_statement(statement, ":"), [])] = False
        result[used] = True
        return result

    def rated(rank: Rank, query: Query) -> tuple[float, ...]:
        return rate(tuple(sorted(query[1])), rank(query, allowed(query)))

    ways: dict[str, list[Rank]] = {}
    for name, selector in (("bm25", BM25(corpus)), ("mepo", MePo(corpus))):
        ways[name] = [lambda query, may, by=selector: by.rank(query[0], may, RETRIEVED)]  # type: ignore[misc]
    if train and not repository.learned:
        raise SystemExit(
            f"{repository.name} has no proofs to train on: --train takes folders of `benchmark make`"
        )
    if train:
        ways["trained"] = [_trained(repository, corpus, one, folder) for one in range(train)]
        ways["fused"] = [_fused(ways["bm25"][0], rank) for rank in ways["trained"]]
    result = {}
    for way, each in ways.items():
        begun = time.process_time()
        of_theorems = [np.mean([rated(rank, query) for rank in each], axis=0) for query in asked]
        took = (time.process_time() - begun) / len(each)
        result[way] = Found([tuple(one.tolist()) for one in of_theorems], took)
    return len(corpus), result


def _statement(text: str, after: str) -> str:
    """Return a declaration's text without its keyword and name: the common part of a theorem and its premise."""
    return " ".join(text.partition(after)[2].split())


# ---- a retriever


def _trained(repository: Repository, corpus: Corpus, seed: int, folder: Path) -> Rank:
    """Train a retriever of words on the statements to learn, and return its ranking."""
    from pipeline.models.chain import Chain
    from pipeline.models.datasets import TaskData
    from pipeline.models.retriever.index import load_retriever
    from pipeline.models.retriever.learning import learn
    from tests.support.retrieval import words_config
    from tests.support.tiny_models import make_tiny_retriever

    place = folder / repository.name
    texts = [premise.serialize()[:_LETTERS] for premise in corpus]
    if not place.exists():
        _write(place, repository)
    base = make_tiny_retriever(
        folder / f"{repository.name}-{seed}", d_model=48, layers=1, seed=seed, texts=texts
    )
    config = words_config(base, seed=seed, batch_size=32, max_epochs=4, against_forgetting="none")
    chain = Chain(folder / f"chain-{repository.name}-{seed}")
    done = learn(TaskData(repository.name, place), chain, config, parent=None)
    retriever = load_retriever(chain.path(done.checkpoint), device="cpu")
    vectors = retriever.premises(corpus)

    def rank(query: Query, allowed: npt.NDArray[np.bool_]) -> list[int]:
        return retriever.rank(vectors, [(_goal(query[0]), allowed)], RETRIEVED)[0]

    return rank


def _fused(words: Rank, trained: Rank) -> Rank:
    def rank(query: Query, allowed: npt.NDArray[np.bool_]) -> list[int]:
        return [*fused((words(query, allowed)[:FUSED], trained(query, allowed)[:FUSED]), RETRIEVED)]

    return rank


def _goal(statement: str) -> str:
    return f"⊢ {statement.removeprefix('theorem : ').removeprefix(': ')[-_LETTERS:]}"


def _corpus(docs: Sequence[str]) -> list[dict[str, Any]]:
    names = [_MARKED.findall(doc)[0] for doc in docs]
    premises = [
        premise_row("All", number, _MARKED.sub(r"\1", doc), name)
        for number, (doc, name) in enumerate(zip(docs, names, strict=True))
    ]
    return [{"path": "All.lean", "imports": [], "premises": premises}]


def _write(place: Path, repository: Repository) -> None:
    """Write the statements to learn as a dataset in LeanDojo's format: one file's, behind all its premises."""
    learned = [
        theorem_row("All.lean", "All", number, len(repository.docs), _goal(statement), used)
        for number, (statement, used) in enumerate(repository.learned)
    ]
    write_dataset(place, _corpus(repository.docs), {"train": learned, "val": [], "test": []})


def main() -> None:
    """Print a table, a line for each repository."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--theorems", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", type=int, default=0, metavar="SEEDS")
    arguments = parser.parse_args()
    ways = ["bm25", "mepo", *(("trained", "fused") if arguments.train else ())]
    print(f"| {', '.join(_SHOWN)} | premises | theorems | {' | '.join(ways)} | BM25 ms a goal |")
    print("|---" * (4 + len(ways)) + "|")
    premises, together = 0, {way: Found([], 0.0) for way in ways}
    with tempfile.TemporaryDirectory() as scratch:
        for folder in arguments.folders:
            for repository in repositories(folder):
                known, found = measure(
                    repository,
                    theorems=arguments.theorems,
                    seed=arguments.seed,
                    train=arguments.train,
                    folder=Path(scratch),
                )
                _print(repository.name, known, found, ways)
                premises += known
                for way, before in together.items():
                    here = found[way]
                    together[way] = Found([*before.rated, *here.rated], before.seconds + here.seconds)
    _print("all", premises, together, ways)


def _print(name: str, premises: int, found: Mapping[str, Found], ways: Sequence[str]) -> None:
    words = found["bm25"]
    n = len(words.rated)
    cells = []
    for way in ways:
        means = summarise(found[way].rated, range(n), seed=0, names=METRICS)
        half = 50 * (means["recall@10_high"] - means["recall@10_low"])
        cells.append(f"{' / '.join(f'{100 * means[one]:.1f}' for one in _SHOWN)} (± {half:.1f})")
    shown = f"{premises:,} | {n:,} | {' | '.join(cells)} | {1000 * words.seconds / n:.1f}"
    print(f"| {name} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
