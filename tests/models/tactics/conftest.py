"""Tiny models and a small database of proofs, for tests that train tactic models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from store.leandojo import DynamicDatabase, Repository
from tests.support.retrieval import step, theorem
from tests.support.tiny_models import make_tiny_causal

Proof = Sequence[tuple[str, str]]
"""The steps of a proof: the state before, and the tactic."""
MakeRepository = Callable[[str, Sequence[Proof]], Repository]


@pytest.fixture(scope="session")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_causal(tmp_path_factory.mktemp("causal"), hidden=32, layers=1, max_length=400)


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
