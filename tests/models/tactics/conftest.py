"""Tiny models and a small database of proofs, for tests that train tactic models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.config import TacticsConfig
from pipeline.models.running import Reports, Saves
from pipeline.models.tactics.training import FineTuning
from store.leandojo import DynamicDatabase, Repository
from tests.support.retrieval import step, theorem
from tests.support.tiny_models import make_tiny_causal

Proof = Sequence[tuple[str, str]]
"""The steps of a proof: the state before, and the tactic."""
MakeRepository = Callable[[str, Sequence[Proof]], Repository]


@pytest.fixture(scope="session")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_causal(tmp_path_factory.mktemp("causal"), hidden=32, layers=1, max_length=400)


Training = Callable[..., FineTuning]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def training(causal: Path, said: list[str]) -> Training:
    """Begin a fine-tuning with these settings."""

    def begin(
        *, start: Path = causal, adapter: Any = None, dtype: Any = "auto", **changes: Any
    ) -> FineTuning:
        settings = {"batch_size": 8, "lr": 1e-3, "max_seq_len": 400, "device": "cpu", **changes}
        config = TacticsConfig(str(start), lora=adapter is not None, **settings)
        return FineTuning(config, str(start), Reports(say=said.append), adapter=adapter, dtype=dtype)

    return begin


@pytest.fixture
def saves(tmp_path: Path) -> Saves:
    return Saves(tmp_path / "saves")


@pytest.fixture
def make_repository() -> MakeRepository:
    """Make a repository of these proofs, as LeanDojo traced it."""

    def make(name: str, proofs: Sequence[Proof]) -> Repository:
        url, commit = f"https://example.org/demo/{name}", f"{len(name):x}" * 40
        theorems = [
            theorem(
                f"{name}.t{number}",
                number + 1,
                *(step(tactic, state) for state, tactic in steps),
                url=url,
                commit=commit,
                file_path=f"{name}.lean",
                theorem_statement=f"theorem t{number} : {name} = {number}",
            )
            for number, steps in enumerate(proofs)
        ]
        return Repository.from_dict(
            {
                "url": url,
                "name": f"demo/{name}",
                "commit": commit,
                "lean_version": "v4.20.0",
                "lean_dojo_version": "4.20.0",
                "metadata": {"date_processed": "2025-01-02T03:04:05"},
                "proven_theorems": theorems,
                "premise_files": [],
                "files_traced": [],
            }
        )

    return make


@pytest.fixture
def database(tmp_path: Path, make_repository: MakeRepository) -> DynamicDatabase:
    """Two repositories, "one" and "three", of 12 proofs of two steps each; a fifth of them is held out."""
    made = DynamicDatabase(tmp_path / "dynamic_database.json")
    for name, goal in (("one", "p"), ("three", "q ∧ r")):
        proofs = [
            [(f"⊢ {goal} → {goal} {n}", "intro h"), (f"h : {goal} {n}\n⊢ {goal} {n}", f"exact h {n}")]
            for n in range(12)
        ]
        made.add_repository(make_repository(name, proofs))
    return made
