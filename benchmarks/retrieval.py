"""Measure the retriever: training batches against LeanDojo-v2's, exact search against ReProver's way.

    python benchmarks/retrieval.py [--quick] [--only NAME ...] [--peer FOLDER | --no-peer] [--json FILE]
        [--folder FOLDER]

    search      the exact top 100 of 180,000 premises for 64 queries with masks, against a sort of everything
    embedding   premises of Lean's lengths embedded by like length, against 64 at a time as they come
    lengths     the share of text in a training step's document tokens, and the activations held for the
                gradient: in groups of like length, against padded to the longest
    incremental a made-up library of Mathlib's size learned in one epoch, and then 100 new theorems: steps,
        examples, embeddings
    batches     training batches, pairs a second, against LeanDojo-v2's data module on the same 100,000
        premises

Prints a table; --json writes it with the machine and the versions. Every ratio is of two figures of the same
run: on the CPU of processor time, each on one thread. --quick takes a fraction of everything and only tests
this program. The peer is lean-dojo-v2 1.0.9, fetched by pip without its dependencies, or unpacked in --peer
FOLDER; without either, the ratio to it is not measured. Encoders are random at first: the benchmark measures
the way of learning and the code around it, not the quality of retrieval for Lean.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch

if __name__ == "__main__":
    # As a script this file's folder comes first on the path, where `store` is a file of the benchmarks.
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry).resolve() != here)]

from benchmarks.store_bench import BenchmarkError, Row, fetch_peer, machine, run, say, table
from pipeline.models.batching import by_length, goes_together
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.batches import Batches, read_examples, read_lesson
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.encoder import (
    Encoder,
    Texts,
    embed,
    load_encoder,
    load_tokens,
    pooled,
)
from pipeline.models.retriever.index import embed_texts, top_k
from pipeline.models.retriever.learning import learn, measure
from tests.support.retrieval import embedded, small_config, write_dataset
from tests.support.tiny_models import make_tiny_retriever

NEGATIVES, IN_FILE, MAX_SEQ_LEN = 3, 1, 1024
"""LeanDojo-v2's settings for training batches."""
Made = TypeVar("Made")
ROOT = Path(__file__).resolve().parents[1]
_SHARES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
_BYTES = (15, 68, 155, 609, 2_186, 6_000)
"""Lengths of Lean core's 9,476 declarations: the 10th, 50th, 90th and 99th percentile; the ends are set."""


def lengths_of_lean(count: int, *, stream: int) -> npt.NDArray[np.int64]:
    """Return lengths in bytes like those of Lean core's declarations, from a stream of random numbers."""
    rng = np.random.Generator(np.random.Philox(key=[3407, 6], counter=[0, 0, 0, stream]))
    return np.exp(np.interp(rng.random(count), _SHARES, np.log(_BYTES))).astype(np.int64)


def texts_of_lean(count: int, *, longest: int, stream: int) -> list[str]:
    """Return random texts of `lengths_of_lean`, none above `longest` bytes."""
    rng = np.random.Generator(np.random.Philox(key=[3407, 7], counter=[0, 0, 0, stream]))
    lengths = np.minimum(lengths_of_lean(count, stream=stream), longest)
    return ["".join(map(chr, rng.integers(97, 123, length))) for length in lengths]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of everything."""

    files: int = 2_000
    premises_per_file: int = 50
    batch_size: int = 8
    pairs: int = 1_000
    documents: int = 180_000
    d_model: int = 1472
    queries: int = 64
    k: int = 100
    texts: int = 256
    steps: int = 200
    library_files: int = 3_600
    library_theorems: int = 100_000
    new_theorems: int = 100
    repeats: int = 3


QUICK = Sizes(
    files=10,
    premises_per_file=10,
    pairs=40,
    documents=500,
    d_model=32,
    queries=8,
    k=10,
    texts=16,
    steps=20,
    library_files=4,
    library_theorems=400,
    new_theorems=40,
    repeats=1,
)


@dataclass(frozen=True, slots=True)
class Bench:
    """The folder, the amounts, and the peer."""

    folder: Path
    sizes: Sizes
    peer: Path | None


# --- the measurements ---------------------------------------------------------------------------------------


def measure_batches(bench: Bench) -> Iterator[Row]:
    """Measure batches of the training split on one thread, without the preparation."""
    sizes = bench.sizes
    model = make_tiny_retriever(bench.folder / "tokens", d_model=16, layers=1)
    dataset = write_dataset(
        bench.folder / "dataset",
        files=sizes.files,
        premises_per_file=sizes.premises_per_file,
        theorems=2 * (sizes.pairs + 2 * sizes.batch_size),
        imports=1,
        code_length=200,
    )
    import_neighbours(dataset)
    _without_first_file(dataset)
    began = time.process_time()
    config = RetrieverConfig(
        loss="mse",
        num_negatives=NEGATIVES,
        num_in_file_negatives=IN_FILE,
        batch_size=sizes.batch_size,
        max_seq_len=MAX_SEQ_LEN,
        data_max_seq_len=MAX_SEQ_LEN,
    )
    corpus = Corpus(dataset / "corpus.jsonl")
    examples = read_examples(dataset / "random" / "train.json", corpus)
    batches = Batches(corpus, examples, load_tokens(model), config)
    ready = time.process_time() - began
    batches.at(0)
    steps = -(-sizes.pairs // sizes.batch_size)
    rates = []
    for turn in range(sizes.repeats):
        # New steps each time, as in training. One thread each, so that other work does not change its
        # processor time.
        began = time.process_time()
        for step in range(1 + turn * steps, 1 + (turn + 1) * steps):
            batches.at(step)
        rates.append(steps * sizes.batch_size / (time.process_time() - began))
    ours = statistics.median(rates)
    reach = statistics.fmean(
        int(corpus.accessible(example.file_path, example.start).sum()) for example in examples
    )
    size = f"{len(corpus):,} premises"
    note = (
        f"{round(reach, -2):,.0f} of them accessible to a theorem on average; batches of {sizes.batch_size} pairs, "
        f"{NEGATIVES} negatives each; a second of processor time, both"
    )
    yield Row("batches", f"ours, {size}", ours, "pairs/s", note=note, samples=tuple(rates))
    yield Row("batches", f"ours, ready, {size}", ready, "s")
    target = "at least 20"
    if bench.peer is None:
        missing = "no peer here: not measured"
        yield Row("batches", f"LeanDojo-v2, {size}", None, "pairs/s", note=missing)
        yield Row("batches", f"LeanDojo-v2, ready, {size}", None, "s", note=missing)
        yield Row("batches", f"ours to LeanDojo-v2, {size}", None, "x", target, note=missing)
        return
    say(f"batches: LeanDojo-v2, {size}")
    numbers = (sizes.batch_size, NEGATIVES, IN_FILE, MAX_SEQ_LEN, sizes.pairs)
    arguments = (str(bench.peer), str(dataset), str(model), *map(str, numbers))
    command = [sys.executable, "-m", "benchmarks.retrieval_peer", *arguments]
    theirs: dict[str, float] = json.loads(
        run(command, env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})
    )
    rate = theirs["pairs"] / theirs["seconds"]
    yield Row("batches", f"LeanDojo-v2, {size}", rate, "pairs/s")
    yield Row("batches", f"LeanDojo-v2, ready, {size}", theirs["ready"], "s")
    ratio = ours / rate
    yield Row("batches", f"ours to LeanDojo-v2, {size}", ratio, "x", target, ratio >= 20)


def import_neighbours(dataset: Path) -> None:
    """Have each file import two more of the files before it, at a log-uniform distance.

    LeanDojo-v2's work for a pair grows with the accessible premises, so the corpus needs imports like
    Mathlib's, where a typical file sees a third to a half of everything. With each file's one import from
    anywhere before it, a file here sees 36 percent of the 2,000 on average, a quarter of them over half.
    """
    rng = np.random.Generator(np.random.Philox(key=[3407, 2]))
    path = dataset / "corpus.jsonl"
    files = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for number, file in enumerate(files[1:], start=1):
        distances = np.floor(number ** rng.random(2)).astype(int)
        near = {files[number - distance]["path"] for distance in distances}
        file["imports"] = sorted(near.union(file["imports"]))
    path.write_text("".join(json.dumps(file) + "\n" for file in files), encoding="utf-8")


def _without_first_file(dataset: Path) -> None:
    """Take out the theorems of the one file without imports.

    There LeanDojo-v2's data module ends with an error, as it finds too few negatives outside the positive's
    file.
    """
    path = dataset / "random" / "train.json"
    theorems = json.loads(path.read_text(encoding="utf-8"))
    kept = [theorem for theorem in theorems if not theorem["file_path"].endswith("/F0.lean")]
    path.write_text(json.dumps(kept), encoding="utf-8")


def measure_search(bench: Bench) -> Iterator[Row]:
    """Measure both from vectors and masks in memory; each query may use half of the premises."""
    sizes = bench.sizes
    rng = np.random.Generator(np.random.Philox(key=[3407, 0]))
    documents = units(sizes.documents, sizes.d_model, seed=4)
    queries = units(sizes.queries, sizes.d_model, seed=5)
    allowed = torch.from_numpy(rng.random((sizes.queries, sizes.documents)) < 0.5)
    product, ours, theirs = [], [], []
    for _ in range(sizes.repeats):
        product.append(_processor(lambda: queries @ documents.T))
        ours.append(_processor(lambda: top_k(queries, documents, allowed, sizes.k)))
        theirs.append(_processor(lambda: sorted_whole(queries, documents, allowed, sizes.k)))
    result = top_k(queries, documents, allowed, sizes.k)
    for (_, scores), other in zip(result, sorted_whole(queries, documents, allowed, sizes.k), strict=True):
        if not np.allclose(scores, [score for _, score in other], atol=1e-5):
            raise BenchmarkError("the two ways of searching found different scores")
    what = f"top {sizes.k} of {sizes.documents:,} x {sizes.d_model:,}, {sizes.queries} queries"
    rows = (("matrix product alone", product), ("ours", ours), ("sort of everything", theirs))
    for name, took in rows:
        value = 1000 * statistics.median(took)
        yield Row("search", f"{name}, {what}", value, "ms", samples=tuple(took))
    share = statistics.median(theirs) / statistics.median(ours)
    yield Row(
        "search",
        "sort of everything to ours",
        share,
        "x",
        "above 1",
        share > 1,
        note="our own code of ReProver's way, without its set of premise objects for each query: it takes longer",
    )


def sorted_whole(
    queries: torch.Tensor, documents: torch.Tensor, allowed: torch.Tensor, k: int
) -> list[list[tuple[int, float]]]:
    """Search as ReProver does: order all documents, and go through them in Python to the k-th allowed one."""
    scores = queries @ documents.T
    orders = scores.argsort(dim=1, descending=True).tolist()
    result = []
    for row, order in enumerate(orders):
        accessible = set(torch.nonzero(allowed[row]).squeeze(1).tolist())
        best: list[tuple[int, float]] = []
        for place in order:
            if place in accessible:
                best.append((place, scores[row, place].item()))
                if len(best) >= k:
                    break
        result.append(best)
    return result


def _processor(work: Callable[[], object]) -> float:
    """Return the seconds of processor time of some work on one thread, independent of other work."""
    began = time.process_time()
    work()
    return time.process_time() - began


def units(n: int, d: int, *, seed: int) -> torch.Tensor:
    """Return random unit vectors: float32, shape (n, d)."""
    rng = np.random.Generator(np.random.Philox(key=[3407, seed]))
    drawn = torch.from_numpy(rng.standard_normal((n, d), dtype=np.float32))
    return torch.nn.functional.normalize(drawn, dim=1)


def in_order(lengths: Sequence[int], _fits: object) -> Iterator[list[int]]:
    """Yield the numbers of rows as they come, 64 at a time, in the place of `by_length`."""
    for start in range(0, len(lengths), 64):
        yield list(range(start, min(len(lengths), start + 64)))


def measure_embedding(bench: Bench) -> Iterator[Row]:
    """Measure both ways with one encoder on texts as long as Lean's declarations, cut at 1,023 bytes."""
    sizes = bench.sizes
    folder = make_tiny_retriever(bench.folder / "encoder", d_model=64, layers=2)
    encoder, tokens = load_encoder(folder), load_tokens(folder)
    texts = texts_of_lean(sizes.texts, longest=MAX_SEQ_LEN - 1, stream=1)
    took: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(sizes.repeats):
        for grouped, seconds in took.items():
            with mock.patch(
                "pipeline.models.retriever.encoder.by_length", by_length if grouped else in_order
            ):
                seconds.append(_processor(partial(embed_texts, encoder, tokens, texts, MAX_SEQ_LEN)))
    rates = {grouped: sizes.texts / statistics.median(seconds) for grouped, seconds in took.items()}
    shape = f"encoder of {sum(weights.numel() for weights in encoder.parameters()):,} weights, on the CPU"
    yield Row("embedding", "by like length", rates[True], "premises/s", note=shape, samples=tuple(took[True]))
    yield Row("embedding", "64 as they come", rates[False], "premises/s", samples=tuple(took[False]))
    ratio = rates[True] / rates[False]
    yield Row("embedding", "by like length to as they come", ratio, "x", "above 1", ratio > 1)


def measure_lengths(bench: Bench) -> Iterator[Row]:
    """Measure documents of steps with the daemon's defaults: pairs, negatives of each, longest text."""
    config = RetrieverConfig()
    documents = config.batch_size * (1 + config.num_negatives)
    text = padded = grouped = 0
    for step in range(bench.sizes.steps):
        lengths = np.minimum(lengths_of_lean(documents, stream=step), config.document_length)
        text += int(lengths.sum())
        padded += documents * int(lengths.max())
        groups = by_length(lengths.tolist(), goes_together)
        grouped += sum(len(rows) * int(lengths[rows].max()) for rows in groups)
    encoder = load_encoder(make_tiny_retriever(bench.folder / "lengths", d_model=64, layers=2))
    lengths = np.minimum(lengths_of_lean(documents, stream=1), config.document_length)
    texts = Texts.of([np.full(length, 40, dtype=np.int32) for length in lengths])
    held = {
        "padded to the longest": partial(pooled, encoder, texts.ids, texts.mask),
        "in groups of like length": partial(embed, encoder, texts),
        "in groups, computed again": partial(embed, encoder, texts, recompute=True),
    }
    for name, work in held.items():
        size = held_for_the_gradient(encoder, work) / 2**20
        yield Row("lengths", f"{documents} documents' activations held for the gradient, {name}", size, "MiB")
    what = f"{documents} documents a step, text of the tokens"
    yield Row(
        "lengths",
        f"{what}, in groups of like length",
        100 * text / grouped,
        "%",
        "at least 81",
        text / grouped >= 0.81,
    )
    yield Row("lengths", f"{what}, padded to the longest", 100 * text / padded, "%")


def held_for_the_gradient(encoder: Encoder, work: Callable[[], torch.Tensor]) -> int:
    """Return the bytes of activations kept by some work for its gradient."""
    held: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        vectors = work()
    weights = {weight.untyped_storage().data_ptr() for weight in encoder.parameters()}
    assert vectors.requires_grad
    return sum(size for place, size in held.items() if place not in weights)


def measure_incremental(bench: Bench) -> Iterator[Row]:
    """Learn the library, put it in use, trace a later commit with more files, learn it, as the daemon does.

    Batches, replay and Fisher information are of the default sizes, and EWC is switched on beside the default
    ways. Premises are counted in the index, if there is one.
    """
    sizes, of = bench.sizes, "incremental"
    model = make_tiny_retriever(bench.folder / "tiny", d_model=16, layers=1)
    config = small_config(
        model,
        batch_size=RetrieverConfig().batch_size,
        fisher_samples=RetrieverConfig().fisher_samples,
        against_forgetting="ewc+replay+average",
    )
    before = TaskData("library", bench.folder / "library")
    write_dataset(
        before.dataset,
        files=sizes.library_files,
        premises_per_file=sizes.premises_per_file,
        theorems=sizes.library_theorems,
        imports=1,
        held_out=0.02,
    )
    after = TaskData("library", _grow(before.dataset, bench.folder / "grown", sizes.new_theorems))
    chain, indices = Chain(bench.folder / "library-chain"), bench.folder / "library-indices"
    whole, whole_seconds = _time(lambda: learn(before, chain, config, parent=None))
    at = chain.path(whole.checkpoint)
    measure(at, before, config, indices=indices)
    in_use = embedded(indices)
    _, appeared_seconds = _time(lambda: measure(at, after, config, indices=indices))
    appeared = embedded(indices)
    small, small_seconds = _time(
        lambda: learn(after, chain, config, parent=whole.checkpoint, earlier=[before])
    )
    _, promoted_seconds = _time(lambda: measure(chain.path(small.checkpoint), after, config, indices=indices))
    promoted = embedded(indices)
    pairs, new = (
        sum(len(example.positives) for example in read_lesson(task.dataset, config, learned=learned).train)
        for task, learned in ((before, None), (after, before.dataset))
    )
    replayed = small.steps * round(config.batch_size * config.replay_share)
    library, grown = f"{pairs:,} pairs", f"{sizes.new_theorems} new theorems"
    size = f"{sizes.library_files * sizes.premises_per_file:,} premises, {sizes.library_theorems:,} theorems"
    weights = sum(each.numel() for each in load_encoder(model).parameters())
    seconds = f"of an encoder of {weights:,} weights: they tell nothing of a real one"
    yield Row(of, f"optimiser steps, a whole epoch of {library}", whole.steps, "", note=size)
    yield Row(of, f"optimiser steps, {grown}", small.steps, "")
    yield Row(of, f"pairs to learn, {grown}", new, "")
    yield Row(of, f"pairs replayed, {grown}", replayed, "")
    yield Row(of, "premises embedded, a whole epoch's weights", in_use, "")
    yield Row(of, f"premises embedded, {grown} appeared", appeared - in_use, "")
    yield Row(of, f"premises embedded, weights that learned {grown}", promoted - appeared, "")
    yield Row(of, "processor time of learning, a whole epoch", whole_seconds, "s", note=seconds)
    yield Row(of, f"processor time of learning, {grown}", small_seconds, "s")
    yield Row(of, f"processor time of measuring, {grown} appeared", appeared_seconds, "s")
    yield Row(of, f"processor time of measuring, weights that learned {grown}", promoted_seconds, "s")


def _grow(before: Path, folder: Path, theorems: int) -> Path:
    """Write a dataset with two more files of 100 premises, and theorems; they import the last file."""
    added = write_dataset(
        folder, files=2, premises_per_file=50, theorems=theorems, prefix="New", held_out=0.0
    )
    library = (before / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    files = [json.loads(line) for line in (added / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    for file in files:
        file["imports"].append(json.loads(library[-1])["path"])
    lines = [*library, *map(json.dumps, files)]
    (folder / "corpus.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for path in sorted((before / "random").iterdir()):
        own = folder / "random" / path.name
        both = json.loads(path.read_text(encoding="utf-8")) + json.loads(own.read_text(encoding="utf-8"))
        own.write_text(json.dumps(both), encoding="utf-8")
    return folder


def _time(work: Callable[[], Made]) -> tuple[Made, float]:
    began = time.process_time()
    return work(), time.process_time() - began


MEASUREMENTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "search": measure_search,
    "embedding": measure_embedding,
    "batches": measure_batches,
    "lengths": measure_lengths,
    "incremental": measure_incremental,
}


def about() -> dict[str, Any]:
    """Return the machine and the versions of the run."""
    facts = machine()
    names = ("torch", "transformers")
    return facts | {"packages": {name: metadata.version(name) for name in names}, "threads": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=sorted(MEASUREMENTS), metavar="NAME", help="some of them"
    )
    parser.add_argument("--quick", action="store_true", help="a fraction of the size: does it run?")
    parser.add_argument("--peer", type=Path, metavar="FOLDER", help="where LeanDojo-v2 is unpacked")
    parser.add_argument("--no-peer", action="store_true", help="measure nothing against LeanDojo-v2")
    parser.add_argument("--folder", type=Path, help="make the temporary folder in here (a local disk)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args(arguments)
    names = [name for name in MEASUREMENTS if not options.only or name in options.only]
    sizes = QUICK if options.quick else Sizes()
    torch.set_num_threads(1)
    measured_on = about()
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(prefix="everlean-benchmark-", dir=options.folder) as temporary:
            folder = Path(temporary)
            with_peer = "batches" in names and not options.no_peer
            peer = (options.peer or fetch_peer(folder)) if with_peer else None
            bench = Bench(folder, sizes, peer.resolve() if peer else None)
            for name in names:
                say(f"{name} …")
                rows += MEASUREMENTS[name](bench)
    except BenchmarkError as error:
        print(f"retrieval: {error}", file=sys.stderr)
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
