"""What the strategies do to a model that learns one task after another: on a tiny encoder, for real.

A task hides a substitution of letters: the query "A?abcd" asks for the one among many documents whose letters are those
of "abcd", substituted and shuffled. Each task has a substitution of its own, so what one teaches does not help with
the next; its name in the texts distinguishes them.
"""

from __future__ import annotations

import copy
import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import T5EncoderModel

from pipeline.models.retriever.batches import Batch
from pipeline.models.retriever.config import AgainstForgetting, RetrieverConfig
from pipeline.models.retriever.encoder import byte_ids, embed, load_encoder, row_losses, tensors_of
from pipeline.models.retriever.replay import ReplayPair, ReplayRows
from pipeline.models.retriever.strategies import Task, make_strategy
from tests.support.tiny_models import make_tiny_retriever

ROWS, STEPS, TEMPERATURE = 32, 150, 0.1
CPU = torch.device("cpu")

# 3 to 5 s of processor time a task; beside other work the whole file takes several times its 20 s.
pytestmark = pytest.mark.timeout(300)


LOSSES = row_losses("contrastive", temperature=TEMPERATURE)


@dataclass(frozen=True)
class Letters:
    """Batches of one task; those of a number are always the same."""

    name: str
    seed: int
    rows: int = ROWS
    steps_per_epoch: int = STEPS

    def texts(self, step: int) -> list[tuple[str, str]]:
        hidden = np.random.Generator(np.random.Philox(key=[self.seed, ord(self.name)])).permutation(26)
        rng = np.random.Generator(np.random.Philox(key=[self.seed, 99], counter=[0, 0, ord(self.name), step]))
        letters = string.ascii_lowercase
        pairs = []
        for _ in range(self.rows):
            word = rng.choice(26, 4, replace=False)
            query = "".join(letters[letter] for letter in word)
            document = "".join(letters[hidden[letter]] for letter in rng.permutation(word))
            pairs.append((f"{self.name}?{query}", f"{self.name}:{document}"))
        return pairs

    def at(self, step: int) -> Batch:
        pairs = self.texts(step)
        queries = tensors_of([byte_ids(query, 64) for query, _ in pairs], CPU)
        documents = tensors_of([byte_ids(document, 64) for _, document in pairs], CPU)
        return Batch(
            *queries,
            *documents,
            label=torch.eye(self.rows),
            ignore=torch.zeros(self.rows, self.rows, dtype=torch.bool),
            premises=tuple(range(self.rows)),
            pairs=tuple(range(step * self.rows, (step + 1) * self.rows)),
        )


def rows_of(name: str, seed: int) -> ReplayRows:
    shown = [pair for step in range(STEPS) for pair in Letters(name, seed).texts(step)]
    return ReplayRows({name: [ReplayPair(query, document) for query, document in shown]}, seed=0)


def task(name: str, seed: int) -> Task:
    return Task(
        name=name,
        data=f"letters {name} {seed}",
        base="tiny",
        batches=lambda size: Letters(name, seed, rows=size, steps_per_epoch=STEPS),
        losses=LOSSES,
        tokens=byte_ids,
    )


def recall_at_1(encoder: T5EncoderModel, name: str, seed: int) -> float:
    """Over 200 pairs that no batch has shown."""
    held_out = Letters(name, seed, rows=200).at(10**6)
    with torch.no_grad():
        scores = (
            embed(encoder, held_out.context_ids, held_out.context_mask)
            @ embed(encoder, held_out.premise_ids, held_out.premise_mask).T
        )
    return float((scores.argmax(dim=1) == torch.arange(200)).float().mean())


def learn(
    encoder: T5EncoderModel,
    config: RetrieverConfig,
    folder: Path,
    *,
    name: str,
    seed: int,
    rows: ReplayRows | None = None,
    steps: int = STEPS,
) -> None:
    """Train on one task as the trainer does it: loss, penalty's gradient, clipping, step; keep what the next needs."""
    learned_task = task(name, seed)
    strategy = make_strategy(config, folder, rows)
    strategy.before_task(encoder, learned_task)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=2e-3, fused=True)
    batches = Letters(name, seed)

    def loss(batch: Batch) -> Tensor:
        scores = (
            embed(encoder, batch.context_ids, batch.context_mask)
            @ embed(encoder, batch.premise_ids, batch.premise_mask).T
        )
        return LOSSES(scores, batch.label, batch.ignore).mean()

    for step in range(steps):
        total = loss(batches.at(step))
        if (earlier := strategy.replayed(step)) is not None:
            total = (1 - config.replay_share) * total + config.replay_share * loss(earlier)
        optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        strategy.on_gradients(encoder)
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimiser.step()
    strategy.after_task(encoder, learned_task).save(folder)


def config(setting: AgainstForgetting) -> RetrieverConfig:
    return RetrieverConfig(
        against_forgetting=setting,
        loss="contrastive",
        temperature=TEMPERATURE,
        batch_size=ROWS,
        num_negatives=0,
        num_in_file_negatives=0,
        data_max_seq_len=64,
        fisher_samples=128,
    )


class Learned:
    """A model that has learned task A, and what each strategy keeps of that for task B."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.encoder = load_encoder(make_tiny_retriever(folder / "tiny", seed=seed))
        learn(self.encoder, config("none"), folder, name="A", seed=seed)

    def then(self, setting: AgainstForgetting) -> tuple[float, float]:
        """Recall@1 of A and of B after B was learned with a strategy."""
        encoder, learned_task = copy.deepcopy(self.encoder), task("A", self.seed)
        folder = self.folder / setting
        folder.mkdir()
        first = make_strategy(config(setting), None)
        first.before_task(encoder, learned_task)
        if setting != "average":  # It would average A with the random weights before it.
            first.after_task(encoder, learned_task).save(folder)
        learn(encoder, config(setting), folder, name="B", seed=self.seed, rows=rows_of("A", self.seed))
        return recall_at_1(encoder, "A", self.seed), recall_at_1(encoder, "B", self.seed)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    return Learned(tmp_path_factory.mktemp("letters"), seed=0)


def test_the_first_task_is_learned(learned: Learned) -> None:
    assert recall_at_1(learned.encoder, "A", learned.seed) >= 0.95


def test_plain_training_forgets_the_first_task_as_it_learns_the_second(learned: Learned) -> None:
    first, second = learned.then("none")
    assert first <= 0.1
    assert second >= 0.95


# Each is used as it is when no one sets anything, EWC's strength too. What is not kept is 0.94 of the first task.
@pytest.mark.parametrize(
    ("setting", "first_least", "second_least"),
    [
        ("ewc", 0.7, 0.7),
        pytest.param("replay", 0.9, 0.9, marks=pytest.mark.slow),
        pytest.param("average", 0.6, 0.8, marks=pytest.mark.slow),
    ],
)
def test_a_strategy_keeps_the_first_task_and_learns_the_second(
    learned: Learned, setting: AgainstForgetting, first_least: float, second_least: float
) -> None:
    first, second = learned.then(setting)
    assert first >= first_least
    assert second >= second_least
