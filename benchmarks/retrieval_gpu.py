"""The retriever of LeanDojo's size on a GPU, in bfloat16: training, what EWC adds to a step, embedding of premises.

Weights and texts are random, so nothing is fetched: what a step takes does not depend on what is in them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch.utils.data import DataLoader
from transformers import ByT5Tokenizer, T5Config, T5EncoderModel

from benchmarks.store_bench import Row
from pipeline.models.libraries import quiet_libraries, tensors_digest
from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import byte_ids, load_encoder, row_losses, tensors_of
from pipeline.models.retriever.fisher import Fisher, FisherTask, parameters_of
from pipeline.models.retriever.index import embed_texts
from pipeline.models.retriever.retriever import PremiseRetriever
from pipeline.models.retriever.strategies import ElasticWeights
from tests.support.letters import Letters

BYT5_SMALL: dict[str, Any] = {"d_model": 1472, "d_kv": 64, "d_ff": 3584, "num_layers": 12, "num_heads": 6}
"""The encoder's shape of google/byt5-small, as its config.json has it."""
NEGATIVES = 3


@dataclass(frozen=True, slots=True)
class GpuSizes:
    """How much of everything."""

    shape: Mapping[str, Any] = field(default_factory=lambda: BYT5_SMALL)
    max_seq_len: int = 1024
    batch_size: int = 8
    warm: int = 10
    steps: int = 50
    texts: int = 20_000
    matrix: int = 8192
    repeats: int = 20


def texts_of_many_lengths(count: int, *, longest: int, stream: int) -> list[str]:
    """Return random texts whose lengths are log-normal about a median of 200 bytes, none above `longest`."""
    rng = np.random.Generator(np.random.Philox(key=[3407, stream]))
    lengths = np.clip(rng.lognormal(np.log(200), 0.8, count), 10, longest).astype(int)
    return ["".join(map(chr, rng.integers(97, 123, length))) for length in lengths]


def measure_gpu(
    folder: Path, sizes: GpuSizes, *, device: torch.device | None, name: str = "ByT5-small"
) -> Iterator[Row]:
    """Measure on a device; report each figure as missing if it is None (no GPU)."""
    trained, embedded = f"{name} trained in bf16-mixed", f"{name} embedding in bf16"
    figures = {
        f"{trained}: steps": "steps/s",
        f"{trained}: documents": "premises/s",
        f"{trained}: peak memory with EWC": "GiB",
        f"{trained}: EWC's share of a step": "%",
        "bf16 matrix product": "TFLOP/s",
        f"{embedded}, by like length": "premises/s",
        f"{embedded}, 64 as they come": "premises/s",
        f"{embedded}, by like length to as they come": "x",
        f"{embedded}, by like length, of the matrix product's rate": "%",
    }
    if device is None:
        for what, unit in figures.items():
            yield Row("gpu", what, None, unit, note="there is no GPU here: not measured")
        return
    model = _random_encoder(folder, sizes)
    values = [*_training(model, sizes, device), *_embedding(model, sizes, device)]
    for (what, unit), value in zip(figures.items(), values, strict=True):
        yield Row("gpu", what, value, unit)


def _random_encoder(folder: Path, sizes: GpuSizes) -> Path:
    config = T5Config(
        vocab_size=384,
        feed_forward_proj="gated-gelu",
        is_encoder_decoder=False,
        use_cache=False,
        pad_token_id=0,
        eos_token_id=1,
        **sizes.shape,
    )
    with torch.random.fork_rng(devices=[]), quiet_libraries():
        torch.manual_seed(3407)
        T5EncoderModel(config).save_pretrained(folder)
        ByT5Tokenizer().save_pretrained(folder)
    return folder


# --- training -----------------------------------------------------------------------------------------------


def _training(model: Path, sizes: GpuSizes, device: torch.device) -> tuple[float, float, float | None, float]:
    """Return steps a second and documents a second without EWC, peak GiB with it, and its share of a step in percent.

    What EWC adds is timed by itself: it is less than by how much two runs differ.
    """
    batches = [_random_batch(sizes, number) for number in range(sizes.warm + sizes.steps)]
    step = statistics.median(_fit(_retriever(model), batches, sizes, device))
    retriever = _retriever(model)
    strategy = ElasticWeights(RetrieverConfig(against_forgetting="ewc"), _random_fisher(retriever))
    losses = row_losses("contrastive", temperature=0.05)
    strategy.before_task(retriever.encoder, Letters("A", 3407).task(losses, base=retriever.model_name))
    retriever.set_strategy(strategy)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    _fit(retriever, batches, sizes, device)
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    retriever.to(device)
    # The gradients of the last step, as a step has them when the penalty's is added.
    for weight in retriever.parameters():
        weight.grad = torch.zeros_like(weight)
    optimiser = torch.optim.SGD(retriever.parameters())
    penalty = _seconds(lambda: retriever.on_before_optimizer_step(optimiser), sizes, device)
    documents = sizes.batch_size * (1 + NEGATIVES)
    return 1 / step, documents / step, peak, 100 * penalty / (step + penalty)


def _retriever(model: Path) -> PremiseRetriever:
    retriever = PremiseRetriever(
        model, 1e-4, 0, 1024, losses=row_losses("contrastive", temperature=0.05), total_steps=1000
    )
    return retriever.train()


def _random_fisher(retriever: PremiseRetriever) -> Fisher:
    weights = parameters_of(retriever.encoder)
    return Fisher(
        values={name: torch.rand_like(value, dtype=torch.float32) for name, value in weights.items()},
        weights=tensors_digest(weights),
        base=retriever.model_name,
        scale="normalised",
        tasks=(FisherTask("random", "", 1, "empirical", 1.0),),
    )


def _random_batch(sizes: GpuSizes, number: int) -> Batch:
    rows, columns = sizes.batch_size, sizes.batch_size * (1 + NEGATIVES)
    texts = texts_of_many_lengths(rows + columns, longest=sizes.max_seq_len - 1, stream=100 + number)
    ids = [byte_ids(text, sizes.max_seq_len) for text in texts]
    cpu = torch.device("cpu")
    return Batch(
        *tensors_of(ids[:rows], cpu),
        *tensors_of(ids[rows:], cpu),
        label=torch.eye(rows, columns),
        ignore=torch.zeros(rows, columns, dtype=torch.bool),
        premises=tuple(range(columns)),
        pairs=tuple(range(rows)),
    )


class _Clock(Callback):
    """Notes what every step takes, each waited for to its end."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = 0.0
        self.took: list[float] = []

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        _wait(self._device)
        self._began = time.perf_counter()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        _wait(self._device)
        self.took.append(time.perf_counter() - self._began)


def _fit(
    retriever: PremiseRetriever, batches: Sequence[Batch], sizes: GpuSizes, device: torch.device
) -> list[float]:
    """Train as a task is trained, and return the seconds of each step after the first ones."""
    clock = _Clock(device)
    with quiet_libraries():
        trainer = pl.Trainer(
            accelerator=device.type,
            devices=1,
            precision="bf16-mixed",
            max_epochs=1,
            limit_val_batches=0,
            gradient_clip_val=1.0,
            callbacks=[clock],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        loader: Any = DataLoader(list(batches), batch_size=None)  # type: ignore[arg-type] # a list is a dataset
        trainer.fit(retriever, loader, val_dataloaders=[])
    return clock.took[sizes.warm :]


# --- embedding ----------------------------------------------------------------------------------------------


def _embedding(
    model: Path, sizes: GpuSizes, device: torch.device
) -> tuple[float, float, float, float, float]:
    """Return the matrix product's TFLOP/s, premises a second both ways, their ratio, and the share in percent."""
    n = sizes.matrix
    one, other = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    rate = 2 * n**3 / _seconds(lambda: one @ other, sizes, device)
    encoder = load_encoder(model, dtype=torch.bfloat16)
    torch.nn.Module.to(encoder, device)
    texts = texts_of_many_lengths(sizes.texts, longest=sizes.max_seq_len - 1, stream=1)
    took = []
    for bucketed in (True, False):
        # Once beforehand: the first call of each shape chooses and loads its kernels.
        for given in (texts[: max(64, sizes.texts // 10)], texts):
            _wait(device)
            began = time.perf_counter()
            embed_texts(encoder, byte_ids, given, sizes.max_seq_len, bucketed=bucketed)
            _wait(device)
        took.append(time.perf_counter() - began)
    work = sum(operations(len(text) + 1, sizes.shape) for text in texts)
    return (
        rate / 1e12,
        sizes.texts / took[0],
        sizes.texts / took[1],
        took[1] / took[0],
        100 * work / took[0] / rate,
    )


def operations(length: int, shape: Mapping[str, int]) -> int:
    """Return the floating-point operations that embedding a text of `length` tokens takes, padding not counted.

    Of the matrix products alone: the four projections of attention, its scores and sums, and the gated layer's three.
    """
    inner = shape["d_kv"] * shape["num_heads"]
    weights = 4 * shape["d_model"] * inner + 3 * shape["d_model"] * shape["d_ff"]
    return shape["num_layers"] * (2 * length * weights + 4 * length**2 * inner)


def _seconds(work: Callable[[], object], sizes: GpuSizes, device: torch.device) -> float:
    """Return the median seconds of some work on a device, after three times that do not count."""
    took = []
    for turn in range(3 + sizes.repeats):
        _wait(device)
        began = time.perf_counter()
        work()
        _wait(device)
        if turn >= 3:
            took.append(time.perf_counter() - began)
    return statistics.median(took)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
