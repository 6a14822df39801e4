"""The effect of EWC, replay and averaging on a chain of tasks: letters, on a tiny encoder."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from pipeline.models.retriever.batches import Lesson
from pipeline.models.retriever.config import AgainstForgetting, RetrieverConfig
from pipeline.models.retriever.encoder import Encoder, byte_ids, load_encoder
from pipeline.models.retriever.ewc import parameters_of
from pipeline.models.retriever.losses import row_losses
from pipeline.models.retriever.replay import batches_of, draw
from pipeline.models.retriever.training import average
from tests.support.letters import Letters, loss_of, scores_of
from tests.support.retrieval import held, rows_of_texts
from tests.support.tiny_models import make_tiny_retriever

TEMPERATURE = 0.1
ROWS, STEPS = Letters.rows, Letters.steps_per_epoch

# 3 to 5 s of processor time a task; beside other work the whole file takes several times its 20 s.
pytestmark = pytest.mark.timeout(300)


LOSSES = row_losses("contrastive", temperature=TEMPERATURE)


def rows_of(name: str, seed: int) -> dict[str, Lesson]:
    shown = [pair for step in range(STEPS) for pair in Letters(name, seed).texts(step)]
    return rows_of_texts({name: shown})


def recall_at_1(encoder: Encoder, name: str, seed: int) -> float:
    """Over 200 pairs that no batch has shown."""
    with torch.no_grad():
        scores = scores_of(encoder, Letters(name, seed, rows=200).at(10**6))
    return float((scores.argmax(dim=1) == torch.arange(200)).float().mean())


def learn(
    encoder: Encoder,
    config: RetrieverConfig,
    *,
    name: str,
    seed: int,
    rows: Mapping[str, Lesson] | None = None,
    steps: int = STEPS,
) -> None:
    """Train on one task as the trainer does it: loss, penalty's gradient, clipping, step."""
    batches = Letters(name, seed)
    before = {name: value.clone() for name, value in parameters_of(encoder).items()}
    past = {} if rows is None else batches_of(rows, byte_ids, config)
    elastic = held(encoder, past, batches_of(rows_of(name, seed), byte_ids, config)[name], config, LOSSES)
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=2e-3, fused=True)
    for step in range(steps):
        total = loss_of(encoder, batches.at(step), LOSSES)
        if rows is not None and "replay" in config.ways:
            earlier = loss_of(encoder, draw(past, config, step), LOSSES)
            total = (1 - config.replay_share) * total + config.replay_share * earlier
        optimiser.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        elastic.on_gradients(encoder)
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimiser.step()
    if "average" in config.ways:
        average(encoder, before, config.average_weight)


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
    """A model that has learned task A."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.encoder = load_encoder(make_tiny_retriever(folder / "tiny", seed=seed))
        learn(self.encoder, config("none"), name="A", seed=seed)

    def then(self, setting: AgainstForgetting, *, steps: int = STEPS) -> tuple[float, float]:
        """Recall@1 of A and of B after B was learned with a strategy."""
        encoder, rows = copy.deepcopy(self.encoder), rows_of("A", self.seed)
        learn(encoder, config(setting), name="B", seed=self.seed, rows=rows, steps=steps)
        return recall_at_1(encoder, "A", self.seed), recall_at_1(encoder, "B", self.seed)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    return Learned(tmp_path_factory.mktemp("letters"), seed=0)


def test_the_first_task_is_learned(learned: Learned) -> None:
    assert recall_at_1(learned.encoder, "A", learned.seed) >= 0.95


def test_plain_training_forgets_the_first_task_as_it_learns_the_second(learned: Learned) -> None:
    first, second = learned.then("none", steps=90)
    assert first <= 0.1
    assert second >= 0.95


# Each is used as it is when no one sets anything, EWC's strength too. What is not kept is 0.94 of the first task.
@pytest.mark.parametrize(
    ("setting", "first_least", "second_least"),
    [
        ("ewc", 0.4, 0.8),
        pytest.param("replay", 0.9, 0.9, marks=pytest.mark.slow),
        pytest.param("average", 0.15, 0.8, marks=pytest.mark.slow),
    ],
)
def test_a_strategy_keeps_the_first_task_and_learns_the_second(
    learned: Learned, setting: AgainstForgetting, first_least: float, second_least: float
) -> None:
    first, second = learned.then(setting)
    assert first >= first_least
    assert second >= second_least
