"""Fine-tuning puts rows of like length into a batch, and has a learning rate for adapters of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.retrieval import lengths_of_lean
from pipeline.models.config import TacticsConfig
from pipeline.models.errors import ConfigError
from pipeline.models.running import Saves
from pipeline.models.tactics.training import FineTuning
from tests.support.tiny_models import make_tiny_causal, make_tiny_seq2seq


@pytest.fixture(params=["causal", "seq2seq"])
def loader(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The batches of eight of 400 rows as long as Lean's declarations, cut at 700 tokens."""
    folder = (
        make_tiny_causal(tmp_path / "model", hidden=16, layers=1)
        if request.param == "causal"
        else make_tiny_seq2seq(tmp_path / "model", d_model=16, layers=1)
    )
    config = TacticsConfig(str(folder), batch_size=8, epochs=2, device="cpu")
    made = FineTuning(config, str(folder))
    lengths = [min(int(length), 700) for length in lengths_of_lean(400, stream=1)]
    rows = [
        {"input_ids": [3 + number % 90] * length, "labels": [5] * length}
        for number, length in enumerate(lengths)
    ]
    return made.trainer(rows, Saves(tmp_path / "saves")).get_train_dataloader()


def test_most_of_a_batch_is_text_and_each_row_comes_once(loader: Any) -> None:
    text = whole = rows = 0
    for batch in loader:
        text += int(batch["attention_mask"].sum())
        whole += batch["attention_mask"].numel()
        rows += len(batch["attention_mask"])
    assert rows == 400
    assert text / whole > 0.8


def test_each_epoch_has_an_order_of_its_own_and_always_the_same(loader: Any) -> None:
    def lengths(epoch: int) -> list[int]:
        loader.set_epoch(epoch)
        return [batch["input_ids"].shape[1] for batch in loader]

    first, second, again = lengths(0), lengths(1), lengths(0)
    assert first != second
    assert first == again


def test_a_learning_rate_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="lr is -1"):
        TacticsConfig(lr=-1.0)
