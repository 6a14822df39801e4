"""Protection against forgetting, behind one setting: `against_forgetting` of the training configuration.

"ewc" pulls weights back by their Fisher information, "average" averages the weights before and after a task, "replay"
learns kept examples of earlier tasks again, "none" does nothing. Each lives for one task of the chain and keeps what
the next one needs in the checkpoint's folder.

Elastic weight consolidation (Kirkpatrick et al. 2017, arXiv:1612.00796). The penalty is lambda * sum F (theta -
theta*)^2, LeanDojo's form without a half. Its gradient is added to the weights' gradients once an optimiser step,
before clipping: a quarter of what it costs as a term of the loss, and right under gradient accumulation and DDP, where
each process adds the same to gradients that are averaged already. On the normalised scale one strength is meant to
serve models of different sizes, not losses of different steepness: `RetrieverConfig.penalty_strength` has a unit for
each loss, and docs/benchmarks.md says how they were measured.

Averaging, the cheap rival of a penalty. theta = (1 - share) * theta_start + share * theta_end, weight by weight, after
training: WiSE-FT (Wortsman et al. 2021, arXiv:2109.01903), which Goedel-Prover-V2 (Lin et al. 2025, arXiv:2508.03613)
uses between its base model and its trained one. Along a chain of tasks each begins at the average before it, so a task
that is k tasks old has a share of share * (1 - share)^k in the weights.

Replay. The buffer of earlier tasks' examples is a reservoir (Vitter 1985): of all pairs ever offered each is in it with
the same chance, and it never grows beyond its size. It keeps texts, not indices: a later version of a dataset, or
another repository's, numbers its premises anew.
"""

# ruff: noqa: ARG002 - all strategies take the same, whether they need it or not
from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn

from pipeline.models.chain import FISHER
from pipeline.models.errors import CheckpointError
from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import Loss, RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, RowLosses, Tokens, padded
from pipeline.models.retriever.fisher import (
    Fisher,
    RetrievalLosses,
    accumulated,
    merge_over_processes,
    parameters_of,
    squared_gradients,
    task_fisher,
)


def averaged(start: Mapping[str, Tensor], end: Mapping[str, Tensor], *, share: float) -> dict[str, Tensor]:
    """Return (1 - share) * start + share * end, in the dtype and on the device of `end`.

    Exactly `start` for a share of 0 and exactly `end` for 1. Computed in float32.

    Raises:
        CheckpointError: names or shapes differ.
        ValueError: the share is not in 0..1.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"the share of the trained weights has to be in 0..1, not {share}")
    if start.keys() != end.keys():
        odd = sorted(start.keys() ^ end.keys())
        raise CheckpointError(
            f"checkpoints of different models cannot be averaged: only one of the two has {odd[0]} (and "
            f"{len(odd) - 1} more differ)"
        )
    result = {}
    for name, last in end.items():
        first = start[name]
        if first.shape != last.shape:
            raise CheckpointError(
                f"checkpoints of different models cannot be averaged: {name} is {tuple(first.shape)} in the first "
                f"and {tuple(last.shape)} in the second"
            )
        result[name] = torch.lerp(first.to(last.device).float(), last.float(), share).to(last.dtype)
    return result


class Penalty:
    """A Fisher information with its anchor, ready for the steps of a run.

    Holds both in float32 beside the weights: 8 bytes a weight (1.74 GB for ByT5-small's encoder), and while a
    gradient is added one more copy of the largest weight. Plain tensors, not buffers, so that no checkpoint holds them.
    """

    def __init__(self, fisher: Fisher, anchor: Mapping[str, Tensor], *, strength: float, base: str) -> None:
        """Copy the anchor.

        Args:
            fisher: of the checkpoint that the run starts from.
            anchor: that checkpoint's weights (`pipeline.models.retriever.fisher.parameters_of`).
            strength: lambda.
            base: what the chain of checkpoints began with.

        Raises:
            CheckpointError: the Fisher information is not of these weights.
        """
        fisher.check(anchor, base=base)
        self.strength = strength
        self._terms = {
            name: (value.to(anchor[name].device), anchor[name].float().clone())
            for name, value in fisher.values.items()
        }

    @torch.no_grad()
    def add_gradients(self, model: nn.Module) -> None:
        """Add 2 * lambda * F * (theta - theta*) to the gradients of the model's weights.

        For `on_before_optimizer_step`. A weight without a gradient in this step gets one.
        """
        for name, weight in model.named_parameters():
            term = self._on_device_of(name, weight)
            if term is None:
                continue
            fisher, anchor = term
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            if weight.grad.dtype == torch.float32:
                weight.grad.addcmul_(fisher, weight - anchor, value=2 * self.strength)
            else:
                # The difference is small: it is computed in float32 and rounded once.
                weight.grad.add_(
                    (fisher * (weight.float() - anchor)).to(weight.grad.dtype), alpha=2 * self.strength
                )

    @torch.no_grad()
    def value(self, model: nn.Module) -> Tensor:
        """Return lambda * sum F (theta - theta*)^2 for the log: float32, no dimension, on the weights' device."""
        total: Tensor | None = None
        for name, weight in model.named_parameters():
            term = self._on_device_of(name, weight)
            if term is not None:
                fisher, anchor = term
                part = (weight.float() - anchor).square_().mul_(fisher).sum()
                total = part if total is None else total + part
        return torch.zeros(()) if total is None else self.strength * total

    def _on_device_of(self, name: str, weight: Tensor) -> tuple[Tensor, Tensor] | None:
        term = self._terms.get(name)
        if term is not None and term[0].device != weight.device:
            term = self._terms[name] = (term[0].to(weight.device), term[1].to(weight.device))
        return term


REPLAY = "replay.jsonl"
_FORMAT = "unsorry-replay-1"
_REMEDY = "Take it from a backup, or remove it: the next task then starts with an empty one"
_RESERVOIR, _DRAWS = 3, 4  # separate the streams of random numbers, also from those of the batches


@dataclass(frozen=True, slots=True)
class ReplayPair:
    """A query and a document that it needs, as the encoder reads them, and the task that they are of."""

    task: str
    query: str
    document: str


@dataclass(frozen=True, slots=True)
class _BufferHeader:
    """A file's first line."""

    format: str
    size: int
    seed: int
    seen: int
    pairs: int


class ReplayBuffer:
    """At most `size` pairs of all that were offered, and how many those were."""

    def __init__(self, size: int, *, seed: int, seen: int = 0, pairs: Sequence[ReplayPair] = ()) -> None:
        """Args:
        size: the most pairs that it holds, above 0.
        seed: decides which are kept and drawn.
        seen: how many were offered before.
        pairs: what was kept of them.
        """
        self.size = size
        self.seed = seed
        self.seen = seen
        self.pairs = list(pairs)
        # Which documents each query is known to need; None until a batch asks.
        self._needed: Mapping[str, set[str]] | None = None

    def __len__(self) -> int:
        return len(self.pairs)

    def offer(self, pairs: Iterable[ReplayPair]) -> None:
        """Offer a task's pairs. The same offers in the same order leave the same buffer."""
        self._needed = None
        rng = np.random.Generator(np.random.Philox(key=[self.seed, _RESERVOIR], counter=[0, 0, 0, self.seen]))
        for pair in pairs:
            self.seen += 1
            if len(self.pairs) < self.size:
                self.pairs.append(pair)
            elif (place := int(rng.integers(self.seen))) < self.size:
                self.pairs[place] = pair

    def resized(self, size: int) -> ReplayBuffer:
        """Return the buffer with room for `size`; where that is less than it holds, a fair choice of its pairs stays.

        A buffer that grew holds fewer of the earlier pairs than a reservoir of the new size would, until it has
        filled up again.
        """
        if len(self.pairs) <= size:
            return ReplayBuffer(size, seed=self.seed, seen=self.seen, pairs=self.pairs)
        rng = np.random.Generator(np.random.Philox(key=[self.seed, _RESERVOIR], counter=[0, 0, 1, self.seen]))
        kept = np.sort(rng.choice(len(self.pairs), size, replace=False))
        return ReplayBuffer(size, seed=self.seed, seen=self.seen, pairs=[self.pairs[place] for place in kept])

    def batch(
        self,
        step: int,
        rows: int,
        *,
        negatives: int,
        tokens: Tokens,
        max_seq_len: int,
        document_length: int,
        loss: Loss,
        rank: int = 0,
    ) -> Batch | None:
        """Return a step's replayed batch in LeanDojo's layout; None where nothing is kept yet.

        Rows are drawn without repetition, from (seed, step, rank) alone. Negatives are documents of other pairs; one
        that a row's query is known to need is a positive. Its columns are of no corpus: `premises` are all -1. `pairs`
        are places in the buffer.

        Args:
            step: of the training run.
            rows: how many pairs; all of them where there are fewer.
            negatives: columns a row beside its positive.
            tokens: makes ids of texts.
            max_seq_len: the longest query, in tokens.
            document_length: the longest document.
            loss: which labels: with "contrastive" a document in two columns counts once.
            rank: of the process.
        """
        if not self.pairs:
            return None
        rng = np.random.Generator(np.random.Philox(key=[self.seed, _DRAWS], counter=[0, 0, rank, step]))
        own = rng.choice(len(self.pairs), min(rows, len(self.pairs)), replace=False)
        places = [*own, *rng.integers(len(self.pairs), size=negatives * len(own))]
        documents = [self.pairs[place].document for place in places]
        if self._needed is None:
            self._needed = _documents_of(self.pairs)
        label = np.zeros((len(own), len(documents)), dtype=np.float32)
        for row, place in enumerate(own):
            label[row] = [document in self._needed[self.pairs[place].query] for document in documents]
        first = {document: place for place, document in reversed(list(enumerate(documents)))}
        repeated = [loss == "contrastive" and first[document] != at for at, document in enumerate(documents)]
        context_ids, context_mask = padded([tokens(self.pairs[place].query, max_seq_len) for place in own])
        premise_ids, premise_mask = padded([tokens(document, document_length) for document in documents])
        return Batch(
            context_ids=torch.from_numpy(context_ids),
            context_mask=torch.from_numpy(context_mask),
            premise_ids=torch.from_numpy(premise_ids),
            premise_mask=torch.from_numpy(premise_mask),
            label=torch.from_numpy(label),
            ignore=torch.tensor(repeated).expand(len(own), -1).contiguous(),
            premises=(-1,) * len(documents),
            pairs=tuple(map(int, own)),
        )

    def save(self, path: Path) -> None:
        """Write JSON lines: a header, then a pair a line."""
        head = _BufferHeader(_FORMAT, self.size, self.seed, self.seen, len(self.pairs))
        with path.open("w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(head)) + "\n")
            file.writelines(json.dumps(asdict(pair)) + "\n" for pair in self.pairs)

    @classmethod
    def load(cls, path: Path) -> ReplayBuffer:
        """Read what `save` wrote.

        Raises:
            CheckpointError: it cannot be read; truncated, or of another version; the message names the line.
        """
        try:
            head, *lines = path.read_text("utf-8").splitlines()
            about = _BufferHeader(**json.loads(head))
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path}: no replay buffer can be read ({error}). {_REMEDY}") from error
        if about.format != _FORMAT or about.pairs != len(lines):
            raise CheckpointError(
                f"{path} is of the format {about.format} with {len(lines)} of {about.pairs} pairs: it is truncated, or "
                f"not {_FORMAT}. {_REMEDY}"
            )
        pairs = []
        for number, line in enumerate(lines, start=2):
            try:
                pairs.append(ReplayPair(**json.loads(line)))
            except (ValueError, TypeError) as error:
                raise CheckpointError(f"{path}: line {number} is no pair ({error}). {_REMEDY}") from error
        return cls(about.size, seed=about.seed, seen=about.seen, pairs=pairs)


def _documents_of(pairs: Iterable[ReplayPair]) -> Mapping[str, set[str]]:
    needed: dict[str, set[str]] = {}
    for pair in pairs:
        needed.setdefault(pair.query, set()).add(pair.document)
    return needed


T = TypeVar("T")
CANDIDATES = 8
"""Each example that a Fisher information is estimated on (normalised scale) has at least so many documents to choose
from. Part of what is estimated, so no setting, and apart from the batch size. Time and memory grow with it; 32 kept an
earlier task no better, 2 worse (the letters of tests/models/retriever/test_forgetting.py, one seed)."""


class Steps(Protocol):
    """Training batches by number, as `pipeline.models.retriever.batches.Batches` makes them."""

    @property
    def steps_per_epoch(self) -> int: ...

    def at(self, step: int) -> Batch: ...


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the chain, as far as a strategy needs it.

    Attributes:
        name: the repository's, or what the chain calls it.
        data: the digest of its training data.
        base: what the chain of checkpoints began with.
        batches: makes its training batches for a batch size, as if by one process; fewer rows where it has fewer pairs.
        losses: the training's loss, row by row.
        pairs: its training pairs as texts.
        tokens: makes ids of texts.
        world: processes of the training run.
    """

    name: str
    data: str
    base: str
    batches: Callable[[int], Steps]
    losses: RowLosses
    pairs: Callable[[], Iterable[ReplayPair]]
    tokens: Tokens
    world: int = 1


@dataclass(frozen=True, slots=True)
class TaskState:
    """The state for the next task besides the weights, and warnings for the job's events."""

    fisher: Fisher | None = None
    replay: ReplayBuffer | None = None
    warnings: tuple[str, ...] = ()

    def save(self, folder: Path) -> None:
        """Write it into a checkpoint's folder.

        Raises:
            CheckpointError: the Fisher information cannot be written.
            OSError: the replay buffer cannot be written.
        """
        if self.fisher is not None:
            self.fisher.save(folder / FISHER)
        if self.replay is not None:
            self.replay.save(folder / REPLAY)


class Strategy(Protocol):
    """Protection against forgetting, for one task. Every process of a run has its own and makes the same calls."""

    def before_task(self, encoder: Encoder, task: Task) -> None:
        """Begin, with the weights that the task starts from in the encoder: also when an interrupted run continues,
        before the weights of its last step are loaded.

        Raises:
            CheckpointError: what was kept belongs to other weights.
        """

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        """Return the batch replayed in a step, with `replay_share` of the step's loss; None for none."""

    def on_gradients(self, encoder: Encoder) -> None:
        """Change the gradients of a step: in `on_before_optimizer_step`, before they are clipped."""

    def penalty(self, encoder: Encoder) -> Tensor | None:
        """Return the penalty's value for the log, a float32 on the encoder's device; None without one."""

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        """End: may change the encoder's weights, and returns what the checkpoint keeps."""


def make_strategy(config: RetrieverConfig, state_folder: Path | None) -> Strategy:
    """Return the strategy that a configuration names.

    Args:
        config: `against_forgetting`, and the settings of each.
        state_folder: the folder of the checkpoint that the task starts from; None at the beginning of a chain. What
            it does not have (because it was trained with another setting) counts as empty.

    Raises:
        CheckpointError: what the folder has cannot be read.
    """
    match config.against_forgetting:
        case "ewc":
            return ElasticWeights(config, _read_state(state_folder, FISHER, Fisher.load))
        case "average":
            return Average(config.average_weight)
        case "replay":
            return Replay(config, _read_state(state_folder, REPLAY, ReplayBuffer.load))
        case "none":
            return NoStrategy()


def _read_state(folder: Path | None, name: str, load: Callable[[Path], T]) -> T | None:
    if folder is None or not (folder / name).exists():
        return None
    return load(folder / name)


class NoStrategy:
    """Plain training: the one that the others are compared with, and what they share."""

    def before_task(self, encoder: Encoder, task: Task) -> None:
        pass

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        return None

    def on_gradients(self, encoder: Encoder) -> None:
        pass

    def penalty(self, encoder: Encoder) -> Tensor | None:
        return None

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        return TaskState()


class ElasticWeights(NoStrategy):
    """EWC: a penalty while a task is learned, and after it the task's Fisher information beside the earlier ones'."""

    def __init__(self, config: RetrieverConfig, fisher: Fisher | None) -> None:
        self._config = config
        self._fisher = fisher
        self._penalty: Penalty | None = None

    def before_task(self, encoder: Encoder, task: Task) -> None:
        if self._fisher is None:
            return
        # Before hours of training, not after them, when the task's own is added.
        self._fisher.check_scale(self._config.fisher_scale)
        strength = self._config.penalty_strength
        if strength > 0:
            self._penalty = Penalty(self._fisher, parameters_of(encoder), strength=strength, base=task.base)
        else:
            # The task's Fisher information is added to its parent's, whatever the penalty.
            self._fisher.check(parameters_of(encoder), base=task.base)

    def on_gradients(self, encoder: Encoder) -> None:
        if self._penalty is not None:
            self._penalty.add_gradients(encoder)

    def penalty(self, encoder: Encoder) -> Tensor | None:
        return None if self._penalty is None else self._penalty.value(encoder)

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        config = self._config
        # Frees memory: two more copies of the weights follow.
        self._penalty = None
        compat = config.fisher_scale == "compat"
        group = math.ceil(CANDIDATES / (1 + config.num_negatives))
        rank, world = (
            (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
        )
        part = squared_gradients(
            encoder,
            sample_groups(
                task.batches(config.batch_size if compat else group),
                config.fisher_samples,
                rank=rank,
                world=world,
            ),
            RetrievalLosses(
                task.losses,
                kind=config.loss,
                labels=config.fisher_labels,
                seed=config.seed,
                temperature=config.temperature,
            ),
            per="group" if compat else "example",
        )
        new = task_fisher(
            merge_over_processes(part),
            encoder,
            name=task.name,
            data=task.data,
            base=task.base,
            labels=config.fisher_labels,
            scale=config.fisher_scale,
            # Those here may be fewer: a run that was interrupted after its last step is ended by one process.
            world=task.world,
        )
        self._fisher = accumulated(self._fisher, new, decay=config.fisher_decay)
        return TaskState(fisher=self._fisher, warnings=self._fisher.warnings)


class Average(NoStrategy):
    """Averages the weights before and after a task (`pipeline.models.retriever.strategies`)."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._start: dict[str, Tensor] = {}

    def before_task(self, encoder: Encoder, task: Task) -> None:
        self._start = {name: value.cpu().clone() for name, value in parameters_of(encoder).items()}

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        mixed = averaged(self._start, parameters_of(encoder), share=self._share)
        with torch.no_grad():
            for name, weight in encoder.named_parameters():
                if name in mixed:
                    weight.copy_(mixed[name])
        return TaskState()


class Replay(NoStrategy):
    """Learns kept pairs of earlier tasks beside the new ones (`pipeline.models.retriever.strategies`)."""

    def __init__(self, config: RetrieverConfig, buffer: ReplayBuffer | None) -> None:
        self._config = config
        self._buffer = (
            ReplayBuffer(config.replay_size, seed=config.seed)
            if buffer is None
            else buffer.resized(config.replay_size)
        )
        self._tokens: Tokens | None = None

    def before_task(self, encoder: Encoder, task: Task) -> None:
        self._tokens = task.tokens

    def replayed(self, step: int, rank: int = 0) -> Batch | None:
        config = self._config
        if self._tokens is None or config.replay_share == 0.0:
            return None
        return self._buffer.batch(
            step,
            # As many as make the share of the step's pairs, and where batches are small at least one.
            max(1, round(config.batch_size * config.replay_share)),
            negatives=config.num_negatives,
            tokens=self._tokens,
            max_seq_len=config.data_max_seq_len,
            document_length=config.document_length,
            loss=config.loss,
            rank=rank,
        )

    def after_task(self, encoder: Encoder, task: Task) -> TaskState:
        self._buffer.offer(task.pairs())
        return TaskState(replay=self._buffer)


def sample_groups(batches: Steps, examples: int, *, rank: int, world: int) -> Iterator[Batch]:
    """Return one process's groups of a sample of at least `examples` examples, or of all where there are fewer.

    The sample is the first steps of the first epoch: drawn from the seed alone, no pair twice, whole groups. Processes
    take turns.
    """
    groups = min(batches.steps_per_epoch, math.ceil(examples / len(batches.at(0))))
    return (batches.at(number) for number in range(rank, groups, world))
