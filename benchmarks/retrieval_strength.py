"""EWC's strength from 20 thousand to 200 million weights: is its gradient the configured share of the loss's?

Each encoder, random at first, learns a task of `tests.support.letters`, has its Fisher information estimated,
and learns another with the penalty. The last size is that of ByT5-small's encoder: 5.9 GiB of memory.

    python -m benchmarks.retrieval_strength [--losses LOSS ...] [--most WEIGHTS] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn
from transformers import T5Config, T5EncoderModel

from benchmarks.gpu import BYT5_SMALL
from benchmarks.store_bench import Row, machine, say, table
from pipeline.models.retriever.config import Loss, RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, byte_ids
from pipeline.models.retriever.ewc import FIRST_STEPS, ElasticWeights, Part, estimated, parameters_of
from pipeline.models.retriever.losses import RowLosses, row_losses
from pipeline.models.retriever.replay import batches_of
from tests.support.letters import Letters, loss_of
from tests.support.retrieval import rows_of_texts


def shape(d_model: int, layers: int) -> Mapping[str, Any]:
    """Return an encoder's shape, in ByT5's proportions."""
    return {
        "d_model": d_model,
        "d_kv": d_model // 4,
        "d_ff": 2 * d_model,
        "num_layers": layers,
        "num_heads": 4,
    }


SHAPES = (shape(32, 1), shape(64, 2), shape(128, 4), shape(256, 8), shape(512, 12), BYT5_SMALL)


@dataclass(frozen=True, slots=True)
class StrengthSizes:
    """The length and content of each task."""

    learned: int = 20
    after: int = 25
    rows: int = 8
    fisher_samples: int = 16


@dataclass(frozen=True, slots=True)
class Strength:
    """A measurement of EWC's strength.

    Attributes:
        weights: of the encoder.
        strength: the lambda of the run.
        first: the penalty's gradient as a share of the loss's, in the steps before lambda is fixed: norms,
            averaged.
        after: the same in the later steps.
    """

    weights: int
    strength: float
    first: float
    after: float


class _Watched(ElasticWeights):
    """EWC with a record of each step's norms: of the loss's gradient, and of the added penalty's."""

    def __init__(self, encoder: Encoder, part: Part, config: RetrieverConfig, losses: RowLosses) -> None:
        fisher, _ = estimated(encoder, [part], config, losses)
        super().__init__(fisher, parameters_of(encoder), share=config.lambda_value)
        self.seen: list[tuple[float, float]] = []

    def on_gradients(self, model: nn.Module, step_size: float = 1.0, *, measured: bool = False) -> None:
        loss, unit = self.norms(model)
        super().on_gradients(model, step_size, measured=measured)
        self.seen.append((loss, self.strength * unit))

    def share(self, steps: slice) -> float:
        losses, penalties = zip(*self.seen[steps], strict=True)
        return float(sum(penalties) / sum(losses))


def measure_strength(
    encoder_shape: Mapping[str, Any], loss: Loss, sizes: StrengthSizes = StrengthSizes(), *, seed: int = 1
) -> Strength:
    """Learn two tasks with an encoder of this shape."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = T5EncoderModel(
            T5Config(vocab_size=384, feed_forward_proj="gated-gelu", dropout_rate=0.0, **encoder_shape)
        )
    config = RetrieverConfig(
        against_forgetting="ewc",
        loss=loss,
        temperature=0.1,
        num_negatives=0,
        num_in_file_negatives=0,
        fisher_samples=sizes.fisher_samples,
    )
    losses = row_losses(loss, temperature=config.temperature)
    # A larger model is moved further by the same step.
    lr = min(2e-3, 0.25 / int(encoder_shape["d_model"]))
    first, second = (Letters(name, seed, sizes.rows) for name in "AB")

    def learn(task: Letters, steps: int, watched: _Watched | None = None) -> None:
        optimiser = torch.optim.AdamW(encoder.parameters(), lr=lr)
        for step in range(steps):
            optimiser.zero_grad()
            loss_of(encoder, task.at(step), losses).backward()  # type: ignore[no-untyped-call]
            if watched is not None:
                watched.on_gradients(encoder)
            torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
            optimiser.step()
        optimiser.zero_grad()

    learn(first, sizes.learned)
    shown = rows_of_texts({first.name: [pair for step in range(sizes.learned) for pair in first.texts(step)]})
    part = Part(first.name, batches_of(shown, byte_ids, config)[first.name])
    watched = _Watched(encoder, part, config, losses)
    setting = int(FIRST_STEPS)
    learn(second, setting + sizes.after, watched)
    return Strength(
        weights=sum(weights.numel() for weights in encoder.parameters()),
        strength=watched.strength,
        first=watched.share(slice(setting)),
        after=watched.share(slice(setting, None)),
    )


def rows_of(loss: Loss, result: Strength) -> Iterator[Row]:
    name = f"{loss}, {result.weights:,} weights"
    yield Row("strength", f"{name}: lambda that was set", result.strength, "")
    yield Row(
        "strength", f"{name}: share of the loss's gradient, steps 1 to {FIRST_STEPS:g}", result.first, ""
    )
    yield Row("strength", f"{name}: the same, after them", result.after, "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--losses", nargs="+", choices=get_args(Loss), default=get_args(Loss))
    parser.add_argument("--most", type=int, default=10**9, metavar="WEIGHTS", help="leave larger ones out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: list[Row] = []
    for each in SHAPES:
        with torch.device("meta"):
            size = sum(
                weights.numel() for weights in T5EncoderModel(T5Config(vocab_size=384, **each)).parameters()
            )
        for loss in options.losses if size <= options.most else ():
            began = time.process_time()
            rows += rows_of(loss, result := measure_strength(each, loss))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            say(
                f"{loss}, {result}: {time.process_time() - began:.0f} s of processor time, peak {peak:.1f} GiB"
            )
    print(table(rows))
    if options.json:
        document = {"machine": machine(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
