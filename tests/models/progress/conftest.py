"""A tiny model and proofs of which the steps that remain can be read off the goal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.models.running import FitResult
from pipeline.models.trainers import ProgressTrainer
from tests.support.tiny_models import make_tiny_classifier


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_classifier(tmp_path_factory.mktemp("model"), hidden=32, layers=1)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 proofs of 1 to 4 steps; a goal has a conjunct for each step that it needs."""
    path = tmp_path_factory.mktemp("data") / "progress.jsonl"
    with path.open("w", encoding="utf-8") as out:
        for proof in range(40):
            length = 1 + proof % 4
            for number in range(length):
                left = length - number
                row = {
                    "goal": "⊢ " + " ∧ ".join([f"p{proof}"] * left),
                    "prefix": "\n".join(["constructor"] * number),
                    "tactic": "constructor" if left > 1 else "rfl",
                    "steps_remaining": left - 1,
                    "proof": f"P{proof}",
                }
                out.write(json.dumps(row) + "\n")
    return path


@dataclass(frozen=True)
class Trained:
    """A model that has learned the steps of `data`; not to be changed."""

    folder: Path
    made: FitResult


@pytest.fixture(scope="session")
def trained(data: Path, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained") / "model"
    trainer = ProgressTrainer(data, str(model), folder, epochs=3, learning_rate=3e-3, device="cpu")
    return Trained(folder, trainer.train())
