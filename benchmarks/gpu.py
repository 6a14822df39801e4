"""Measure models of their real sizes on a GPU, on the product's path, beside ReProver's way.

    python -m benchmarks.gpu [--only PART ...] [--folder FOLDER] [--json FILE]
    python -m benchmarks.gpu --quick        # tiny shapes, on the CPU too: does it run?

    embedding   premises of Lean's lengths through the index on the disk; other: float32, 64 as they come; the same
                without a thread that makes the next tokens, and padded to powers of two, whose shapes repeat
    search      the best 100 of 180,000 premises for 64 queries; other: one query at a time, everything sorted
    training    a retriever's training of texts of Lean's lengths with 1, 8, 32 and 64 pairs: pairs a second and peak
                memory; other: 8 pairs, each text padded to the step's longest, all activations held; 32 pairs with
                replayed ones and saved steps, by the loader's processes and in the training's own
    ewc         the Fisher information of 512 examples; a task learned with it: lambda, peak memory
    generation  tactics of a 0.6B model for many states at once; other: float32, one state after the other
    tuning      fine-tuning every weight of a 0.6B model, and LoRA on a 7B one

Weights and texts are random, so nothing is fetched: the cost of a step does not depend on their content.
Without a GPU every figure is reported as not measured, but for --quick. The 7B model takes 15 GB of the
folder's disk.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from peft import LoraConfig
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import (
    ByT5Tokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5EncoderModel,
)

from benchmarks.prove_family import shapes, steps_of
from benchmarks.retrieval import about, in_order, lengths_of_lean, sorted_whole, texts_of_lean, units
from benchmarks.store_bench import Row, say, table
from pipeline.models.config import Device, TacticsConfig
from pipeline.models.datasets import TaskData
from pipeline.models.libraries import quiet_libraries
from pipeline.models.retriever.batches import Batches, Lesson, read_lesson
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import (
    Encoder,
    Texts,
    byte_ids,
    load_encoder,
    load_tokens,
    pooled,
)
from pipeline.models.retriever.ewc import Part, estimated
from pipeline.models.retriever.index import Retriever, embed_texts, stored_vectors, top_k
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.replay import choose
from pipeline.models.retriever.training import RetrieverTraining
from pipeline.models.running import Reports, Saves
from pipeline.models.tactics.generate import Generator, load_generator
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Decoding, Request
from pipeline.models.tactics.training import FineTuning
from tests.support.retrieval import write_dataset

BYT5_SMALL: Mapping[str, Any] = {"d_model": 1472, "d_kv": 64, "d_ff": 3584, "num_layers": 12, "num_heads": 6}
"""The encoder's shape of google/byt5-small, by its config.json."""
QWEN3_SMALL: Mapping[str, Any] = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
}
"""The shape of Qwen/Qwen3-0.6B, by its config.json."""
SEVEN_BILLION: Mapping[str, Any] = {
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 152_064,
}
"""The shape of Qwen/Qwen2.5-7B, by its config.json; the layers are Qwen3's."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amount of everything."""

    encoder: Mapping[str, Any] = field(default_factory=lambda: BYT5_SMALL)
    longest: int = 512
    texts: int = 20_000
    slow_texts: int = 2_000
    matrix: int = 8192
    documents: int = 180_000
    queries: int = 64
    k: int = 100
    batches: tuple[int, ...] = (1, 8, 32, 64)
    warm: int = 5
    steps: int = 20
    premises: int = 2_000
    fisher_samples: int = 512
    ewc_steps: int = 60
    small: Mapping[str, Any] = field(default_factory=lambda: QWEN3_SMALL)
    large: Mapping[str, Any] = field(default_factory=lambda: SEVEN_BILLION)
    requests: int = 128
    candidates: int = 8
    tokens: int = 48
    examples: int = 128
    rows: int = 8
    repeats: int = 10


_TINY: Mapping[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 300,
}
QUICK = Sizes(
    encoder={"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2},
    longest=64,
    texts=80,
    slow_texts=80,
    matrix=16,
    documents=500,
    queries=4,
    k=10,
    batches=(1, 4),
    warm=1,
    steps=3,
    premises=40,
    fisher_samples=8,
    ewc_steps=6,
    small=_TINY,
    large=_TINY,
    requests=4,
    candidates=2,
    tokens=4,
    examples=8,
    rows=4,
    repeats=1,
)


@dataclass(frozen=True, slots=True)
class Bench:
    """The folder, the amounts, and the device: "cuda" or "cpu"."""

    folder: Path
    sizes: Sizes
    device: str

    def seconds(self, work: Callable[[], object], *, times: int | None = None) -> float:
        """Return the median seconds of some work, waiting for the end of each run, after an uncounted one."""
        took = []
        for turn in range(1 + (times or self.sizes.repeats)):
            self.wait()
            began = time.perf_counter()
            work()
            self.wait()
            if turn:
                took.append(time.perf_counter() - began)
        return statistics.median(took)

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def forget_peak(self) -> None:
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> float | None:
        """Return the peak of memory in GiB since `forget_peak`; None on a CPU, without a record."""
        return torch.cuda.max_memory_allocated() / 2**30 if self.device == "cuda" else None

    def encoder_folder(self) -> Path:
        """Write a random encoder with its tokenizer, once."""
        folder = self.folder / "encoder"
        if not folder.exists():
            config = T5Config(
                vocab_size=384,
                feed_forward_proj="gated-gelu",
                is_encoder_decoder=False,
                use_cache=False,
                pad_token_id=0,
                eos_token_id=1,
                **self.sizes.encoder,
            )
            with torch.random.fork_rng(devices=[]), quiet_libraries():
                torch.manual_seed(3407)
                T5EncoderModel(config).save_pretrained(folder)
                ByT5Tokenizer().save_pretrained(folder)
        return folder

    def encoder(self) -> Encoder:
        loaded = load_encoder(self.encoder_folder())
        torch.nn.Module.to(loaded, self.device)
        return loaded


def measure_embedding(bench: Bench) -> Iterator[Row]:
    sizes, encoder = bench.sizes, bench.encoder()
    texts = texts_of_lean(sizes.texts, longest=sizes.longest - 1, stream=1)
    retriever = Retriever(encoder, byte_ids, sizes.longest)
    rates = []
    # Once beforehand: the first call of each shape chooses and loads its kernels.
    for name, batch in (("warm", texts[: sizes.slow_texts]), ("index", texts)):
        began = time.perf_counter()
        stored_vectors(retriever, batch, bench.folder / name)
        rates.append(len(batch) / (time.perf_counter() - began))
    few = texts[: sizes.slow_texts]

    def to_powers_of_two(encoder: Encoder, ids: Tensor, mask: Tensor) -> Tensor:
        width = 1 << max(6, (ids.shape[1] - 1).bit_length())
        ids, mask = (torch.nn.functional.pad(one, (0, width - one.shape[1])) for one in (ids, mask))
        return pooled(encoder, ids, mask)

    took = {}
    others: dict[str, tuple[str, Any]] = {
        "as shipped": ("index.top_k", top_k),
        "no thread makes the next tokens": ("index.ThreadPoolExecutor", lambda *_: mock.Mock(map=map)),
        "texts are padded to powers of two": ("encoder.pooled", to_powers_of_two),
    }
    block = mock.patch("pipeline.models.retriever.index._BLOCK", len(few) // 4)
    for name, (what, instead) in others.items():
        with block, mock.patch(f"pipeline.models.retriever.{what}", instead):
            took[name] = bench.seconds(lambda: embed_texts(encoder, byte_ids, few, sizes.longest), times=3)
    torch.set_float32_matmul_precision("highest")

    def as_they_come() -> Tensor:
        slower = mock.patch("pipeline.models.retriever.index.computes_in_bfloat16", return_value=False)
        with slower, mock.patch("pipeline.models.retriever.encoder.by_length", in_order):
            return embed_texts(encoder, byte_ids, few, sizes.longest)

    slow = len(few) / bench.seconds(as_they_come, times=1)
    n = sizes.matrix
    dtype = torch.bfloat16 if bench.device == "cuda" else torch.float32
    one, other = (torch.randn(n, n, device=bench.device, dtype=dtype) for _ in range(2))
    rate = 2 * n**3 / bench.seconds(lambda: one @ other)
    work = sum(operations(len(text) + 1, sizes.encoder) for text in texts) * rates[1] / len(texts)
    yield Row("embedding", "through the index", rates[1], "premises/s")
    yield Row("embedding", "float32, 64 as they come", slow, "premises/s")
    for name in tuple(took)[1:]:
        yield Row("embedding", f"as shipped to the same where {name}", took[name] / took["as shipped"], "x")
    yield Row(
        "embedding", "through the index to ReProver's way", rates[1] / slow, "x", "above 1", rates[1] > slow
    )
    yield Row("embedding", f"matrix product of {n:,}, {str(dtype).partition('.')[2]}", rate / 1e12, "TFLOP/s")
    yield Row("embedding", "through the index, of the matrix product's rate", 100 * work / rate, "%")


def operations(length: int, shape: Mapping[str, int]) -> int:
    """Return the floating-point operations for embedding a text of `length` tokens, without padding.

    Of the matrix products alone: the four projections of attention, its scores and sums, and the gated
    layer's three.
    """
    inner = shape["d_kv"] * shape["num_heads"]
    weights = 4 * shape["d_model"] * inner + 3 * shape["d_model"] * shape["d_ff"]
    return shape["num_layers"] * (2 * length * weights + 4 * length**2 * inner)


def measure_search(bench: Bench) -> Iterator[Row]:
    sizes, width = bench.sizes, int(bench.sizes.encoder["d_model"])
    documents, queries = (units(n, width, seed=n).to(bench.device) for n in (sizes.documents, sizes.queries))
    allowed = torch.rand(sizes.queries, sizes.documents, device=bench.device) < 0.5

    def one_at_a_time() -> list[list[tuple[int, float]]]:
        return [
            best
            for row in range(sizes.queries)
            for best in sorted_whole(queries[row : row + 1], documents, allowed[row : row + 1], sizes.k)
        ]

    ours = bench.seconds(lambda: top_k(queries, documents, allowed, sizes.k))
    theirs = bench.seconds(one_at_a_time, times=1)
    what = f"top {sizes.k} of {sizes.documents:,} x {width:,}, {sizes.queries} queries"
    yield Row("search", f"ours, {what}", 1000 * ours, "ms")
    yield Row("search", f"one at a time, everything sorted, {what}", 1000 * theirs, "ms")
    yield Row("search", "ReProver's way to ours", theirs / ours, "x", "above 1", theirs > ours)


# --- training -----------------------------------------------------------------------------------------------


def _config(bench: Bench, **changes: Any) -> RetrieverConfig:
    """Return the product's defaults, with some fields changed."""
    usual: dict[str, Any] = {
        "model_name": str(bench.encoder_folder()),
        "device": bench.device,
        "max_seq_len": bench.sizes.longest,
        "data_max_seq_len": bench.sizes.longest,
        "against_forgetting": "none",
        "num_workers": 4 if bench.device == "cuda" else 0,
        "fisher_samples": bench.sizes.fisher_samples,
    }
    return RetrieverConfig(**{**usual, **changes})


def _dataset(bench: Bench, pairs: int, *, seed: int = 0) -> Path:
    """Return a dataset of at least `pairs` pairs, with texts as long as Lean's declarations."""
    folder = bench.folder / f"data-{pairs}-{seed}"
    if not folder.exists():
        files = max(2, bench.sizes.premises // 20)
        write_dataset(
            folder, files=files, premises_per_file=20, theorems=pairs, held_out=0.0, alphabet=seed, seed=seed
        )
        lengths = iter(lengths_of_lean(20 * files + pairs, stream=seed).tolist())
        corpus, train = folder / "corpus.jsonl", folder / "random" / "train.json"
        lines = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
        for premise in (premise for line in lines for premise in line["premises"]):
            premise["code"] = premise["code"].ljust(next(lengths), "x")
        corpus.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        theorems = json.loads(train.read_text(encoding="utf-8"))
        for step in (step for theorem in theorems for step in theorem["traced_tactics"]):
            step["state_before"] = step["state_before"].ljust(next(lengths), "x")
        train.write_text(json.dumps(theorems), encoding="utf-8")
    return folder


@dataclass(frozen=True, slots=True)
class Trained:
    """A run: its median seconds of a step, peak of memory in GiB, weights, and EWC's lambda."""

    step: float
    peak: float | None
    weights: int
    strength: float | None


def _train(
    bench: Bench,
    config: RetrieverConfig,
    name: str,
    *,
    steps: int,
    seed: int = 0,
    rows: Mapping[str, Lesson] | None = None,
) -> Trained:
    lesson = read_lesson(_dataset(bench, config.batch_size * steps, seed=seed), config)
    times: list[float] = []

    def on_step(_done: int, _total: int) -> None:
        bench.wait()
        if len(times) < steps:
            times.append(time.perf_counter())

    bench.forget_peak()
    run = bench.folder / "runs" / name
    training = RetrieverTraining(config, config.model_name, Reports(on_step), rows=rows)
    training.fit(lesson, Saves(run))
    later = times[bench.sizes.warm :]
    took = [after - before for before, after in itertools.pairwise(later)]
    weights = sum(weights.numel() for weights in training.encoder.parameters())
    strengths = training.curve.measured.get("ewc/lambda")
    return Trained(statistics.median(took), bench.peak(), weights, strengths[-1][1] if strengths else None)


def measure_training(bench: Bench) -> Iterator[Row]:
    steps = bench.sizes.warm + bench.sizes.steps
    rates: dict[int, float] = {}
    for size in bench.sizes.batches:
        result = _train(
            bench, _config(bench, batch_size=size, gradient_checkpointing="on"), f"{size}", steps=steps
        )
        rates[size] = size / result.step
        yield Row("training", f"{size} pairs", rates[size], "pairs/s")
        yield Row("training", f"{size} pairs: peak memory", result.peak, "GiB")
    size = bench.sizes.batches[1]
    held = _train(bench, _config(bench, batch_size=size, gradient_checkpointing="off"), "held", steps=steps)
    yield Row("training", f"{size} pairs, all activations held", size / held.step, "pairs/s")
    yield Row("training", f"{size} pairs, all activations held: peak memory", held.peak, "GiB")

    def as_they_come(encoder: Encoder, texts: Texts, **_: object) -> Tensor:
        return torch.nn.functional.normalize(pooled(encoder, texts.ids, texts.mask), dim=1)

    with mock.patch("pipeline.models.retriever.batches.embed", as_they_come):
        config = _config(bench, batch_size=size, gradient_checkpointing="off", loss="mse")
        theirs = _train(bench, config, "padded", steps=steps)
    yield Row("training", f"{size} pairs, padded to the longest", size / theirs.step, "pairs/s")
    yield Row("training", f"{size} pairs, padded to the longest: peak memory", theirs.peak, "GiB")
    pairs = bench.sizes.batches[min(2, len(bench.sizes.batches) - 1)]
    usual = _config(bench, batch_size=pairs, against_forgetting="replay")
    earlier = TaskData("earlier", _dataset(bench, pairs * steps, seed=2))
    for name, changes in (
        ("drawn by the loader's processes", {"num_workers": 2}),
        ("drawn by the training's own", {"num_workers": 0}),
        ("drawn by the loader's processes, each step saved", {"num_workers": 2, "save_minutes": 0.0}),
    ):
        config = replace(usual, **changes)
        rows = choose([earlier], config)
        made = _train(bench, config, name, steps=steps, rows=rows)
        yield Row("training", f"{pairs} pairs and replayed ones, {name}", pairs / made.step, "pairs/s")
    best = max(rates.values())
    yield Row(
        "training",
        "the fastest to ReProver's way",
        best * theirs.step / size,
        "x",
        "above 1",
        best > size / theirs.step,
    )


def measure_ewc(bench: Bench) -> Iterator[Row]:
    sizes = bench.sizes
    size = sizes.batches[min(2, len(sizes.batches) - 1)]
    config = _config(bench, against_forgetting="ewc", batch_size=size, lr=1e-4, gradient_checkpointing="on")
    lesson = read_lesson(_dataset(bench, max(sizes.fisher_samples, size * sizes.ewc_steps)), config)
    encoder, losses = bench.encoder(), row_losses(config.loss, temperature=config.temperature)
    tokens = load_tokens(config.model_name)
    part = Part("first", Batches(lesson.corpus, lesson.train, tokens, config))
    bench.forget_peak()
    began = time.perf_counter()
    estimated(encoder, [part], config, losses)
    bench.wait()
    took, peak = time.perf_counter() - began, bench.peak()
    del encoder
    result = _train(bench, config, "second", steps=sizes.ewc_steps, seed=1)
    what = f"Fisher information of {sizes.fisher_samples} examples, {result.weights:,} weights"
    yield Row("ewc", what, took, "s")
    yield Row("ewc", "Fisher information: peak memory", peak, "GiB")
    yield Row("ewc", f"lambda for a share of {config.lambda_value:g}", result.strength, "")
    yield Row("ewc", f"{size} pairs with the penalty", size / result.step, "pairs/s")
    yield Row("ewc", f"{size} pairs with the penalty: peak memory", result.peak, "GiB")


# --- language models ----------------------------------------------------------------------------------------


def measure_generation(bench: Bench) -> Iterator[Row]:
    sizes = bench.sizes
    model = _random_model(bench, "small", sizes.small)
    rows = asyncio.run(steps_of(shapes(1, 4, 16), bench.folder))
    states = [rows[at % len(rows)].state for at in range(sizes.requests)]
    decoding = Decoding(candidates=sizes.candidates, max_tokens=sizes.tokens)
    requests = [Request(state, decoding=decoding, seed=at) for at, state in enumerate(states)]
    rates = []
    for at_once, dtype in ((len(requests), None), (1, torch.float32)):
        generator = (
            load_generator(model, device=bench.device)
            if dtype is None
            else Generator(load_model(model, device=bench.device, dtype=dtype))
        )
        # One after the other is slow: a part of them is enough.
        chosen = requests if at_once > 1 else requests[: max(4, len(requests) // 8)]
        generator.suggest(requests[:2])
        began, tokens = time.perf_counter(), 0
        for start in range(0, len(chosen), at_once):
            answers = generator.suggest(chosen[start : start + at_once])
            tokens += sum(one.usage.completion_tokens for one in answers)
        rates.append(tokens / (time.perf_counter() - began))
        del generator
    yield Row("generation", f"{len(requests)} states at once", rates[0], "tokens/s")
    yield Row("generation", "float32, one state after the other", rates[1], "tokens/s")
    yield Row(
        "generation", "at once to ReProver's way", rates[0] / rates[1], "x", "above 1", rates[0] > rates[1]
    )


def measure_tuning(bench: Bench) -> Iterator[Row]:
    sizes = bench.sizes
    rows = asyncio.run(steps_of(shapes(1, 4, 16), bench.folder))
    few = [rows[at % len(rows)] for at in range(sizes.examples)]
    adapter = LoraConfig(task_type="CAUSAL_LM", r=16, target_modules="all-linear")
    for name, shape, lora in (("small", sizes.small, None), ("large", sizes.large, adapter)):
        base = str(_random_model(bench, name, shape))
        device: Device = "cuda" if bench.device == "cuda" else "cpu"
        config = TacticsConfig(base, batch_size=sizes.rows, lora=lora is not None, device=device)
        times: list[float] = []
        training = FineTuning(config, base, Reports(partial(_note, times)), adapter=lora)
        prompts = training.found.prompts
        weights = sum(weights.numel() for weights in training.found.model.parameters())
        tokens = sum(len(prompts.ids(row.state)) + len(prompts.answer_ids(row.tactic)) for row in few)
        bench.forget_peak()
        began = time.perf_counter()
        training.fit(few, Saves(bench.folder / f"tuned-{name}"))
        # The last save is not learning.
        took = times[-1] - began
        what = f"{weights:,} weights, {'LoRA' if lora else 'every weight'}, {sizes.rows} rows a step"
        steps = [after - before for before, after in itertools.pairwise(times)]
        yield Row("tuning", f"{what}: a step", statistics.median(steps), "s")
        yield Row("tuning", f"{what}: learned from", tokens / took, "tokens/s")
        yield Row("tuning", f"{what}: peak memory", bench.peak(), "GiB")
        del training


def _note(times: list[float], _done: int, _total: int) -> None:
    times.append(time.perf_counter())


def _random_model(bench: Bench, name: str, shape: Mapping[str, Any]) -> Path:
    """Write a model of a shape, once; its tokenizer reads bytes and has as many tokens as the model."""
    folder = bench.folder / name
    if folder.exists():
        return folder
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    marks = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|pad|>"}
    others = [f"word{number}" for number in range(shape["vocab_size"] - len(alphabet) - len(marks))]
    vocabulary = {token: number for number, token in enumerate([*alphabet, *others])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, padding_side="left", clean_up_tokenization_spaces=False, **marks
    )
    config = Qwen3Config(
        **shape,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        pad_token_id=fast.pad_token_id,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    )
    with torch.random.fork_rng(), torch.device(bench.device):
        torch.manual_seed(1)
        written = Qwen3ForCausalLM(config)
    if bench.device == "cuda":
        torch.nn.Module.to(written, torch.bfloat16)
    with quiet_libraries():
        written.save_pretrained(folder)
        fast.save_pretrained(folder)
    return folder


PARTS: Mapping[str, Callable[[Bench], Iterator[Row]]] = {
    "embedding": measure_embedding,
    "search": measure_search,
    "training": measure_training,
    "ewc": measure_ewc,
    "generation": measure_generation,
    "tuning": measure_tuning,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*PARTS], metavar="PART", help="some of them")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, on the CPU too: does it run?")
    parser.add_argument("--folder", type=Path, help="make the temporary folder in here (a local disk)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args(arguments)
    cuda = torch.cuda.is_available()
    rows: list[Row] = []
    if not cuda and not options.quick:
        rows = [Row(part, "all of it", None, "", note="there is no GPU here: not measured") for part in PARTS]
    else:
        with tempfile.TemporaryDirectory(prefix="everlean-benchmark-", dir=options.folder) as temporary:
            bench = Bench(Path(temporary), QUICK if options.quick else Sizes(), "cuda" if cuda else "cpu")
            for part in options.only or PARTS:
                say(f"{part} …")
                rows += PARTS[part](bench)
    print(table(rows))
    if options.json:
        device = torch.cuda.get_device_name() if cuda else "none"
        document = {
            "machine": {**about(), "gpu": device},
            "quick": options.quick,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
