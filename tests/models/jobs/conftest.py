"""A log with proofs of a few steps each, and jobs of training run on it."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from store.events.models import ModelKind
from store.leandojo.reading import import_leandojo
from tests.support.job_processes import JobProcesses, Kill, Outcome, record
from tests.support.tiny_models import make_tiny_causal, make_tiny_classifier

MODULES: dict[ModelKind, str] = {"tactics": "train_tactics", "progress": "train_progress"}


def _use(name: str, premise: int) -> dict[str, Any]:
    return {
        "full_name": f"{name}.p{premise}",
        "def_path": "B.lean",
        "def_pos": [premise + 1, 9],
        "def_end_pos": [premise + 1, 11],
    }


class Bench:
    """A log with traces, a folder of chains, and jobs run on them."""

    def __init__(self, root: Path, jobs: JobProcesses, models: dict[ModelKind, Path]) -> None:
        self.root = root
        self.jobs = jobs
        self.models = models

    def chain(self, model: ModelKind) -> Path:
        return self.root / model

    def trace(
        self,
        name: str,
        proofs: int = 40,
        *,
        goal: str = "",
        tactics: Sequence[str] = ("rfl",),
        uses: bool = False,
    ) -> None:
        """Import a repository `example.org/<name>` whose theorems have one step to three, to be read off the goal; or
        each this goal alone, with these tactics in turn. `uses`: each proof uses a premise of its own."""
        folder = self.root / f"imported-{name}"
        (folder / "random").mkdir(parents=True)
        theorems = []
        for number in range(proofs):
            length = 1 + number % 3
            goals = (
                [goal]
                if goal
                else [f"⊢ {' ∧ '.join(['p'] * left)} {name}{number}" for left in range(length, 0, -1)]
            )
            theorems.append(
                {
                    "url": f"https://example.org/{name}",
                    "commit": "a" * 40,
                    "file_path": "A.lean",
                    "full_name": f"{name}.t{number}",
                    "theorem_statement": None,
                    "start": [number + 1, 1],
                    "end": [number + 1, 9],
                    "traced_tactics": [
                        {
                            "tactic": tactics[number % len(tactics)] if left == 1 else "and",
                            "annotated_tactic": ["", [_use(name, number)] if uses else []],
                            "state_before": goal,
                            "state_after": "no goals",
                        }
                        for goal, left in zip(goals, range(len(goals), 0, -1), strict=True)
                    ],
                }
            )
        premises = [
            {
                "full_name": f"{name}.p{at}",
                "code": f"theorem p{at} : p",
                "start": [at + 1, 1],
                "end": [at + 1, 18],
                "kind": "",
            }
            for at in range(proofs if uses else 3)
        ]
        for split, content in (("train", theorems), ("val", []), ("test", [])):
            (folder / "random" / f"{split}.json").write_text(json.dumps(content))
        (folder / "corpus.jsonl").write_text(
            json.dumps({"path": "B.lean", "imports": [], "premises": premises})
            + "\n"
            + json.dumps({"path": "A.lean", "imports": ["B.lean"], "premises": []})
            + "\n"
        )
        (folder / "metadata.json").write_text(
            json.dumps({"from_repo": {"url": f"https://example.org/{name}", "commit": "a" * 40}})
        )
        import_leandojo(
            folder,
            events_db=self.root / "events.db",
            database_db=self.root / "database.db",
            stage=self.root / "stage",
        )

    def train(
        self,
        model: ModelKind,
        repository: str,
        *,
        job: str = "",
        kill: Kill | None = None,
        number: signal.Signals = signal.SIGKILL,
        **changes: Any,
    ) -> Outcome:
        config = {"model_name": str(self.models[model]), "device": "cpu", "lr": 5e-3, "max_seq_len": 400}
        parameters = {
            "events_db": str(self.root / "events.db"),
            "database_db": str(self.root / "database.db"),
            "repository": f"example.org/{repository}",
            "chain": str(self.chain(model)),
            "parent": None,
            "tasks": [],
            **changes,
            "config": {**config, **changes.get("config", {})},
        }
        name = job or f"{model}-{repository}"
        return self.jobs.run(MODULES[model], parameters, self.root, name=name, kill=kill, number=number)

    def record(self, outcome: Outcome, model: ModelKind) -> bool:
        return record(
            outcome, model, events_db=self.root / "events.db", database_db=self.root / "database.db"
        )

    def checkpoints(self, model: ModelKind) -> list[str]:
        return sorted(path.name for path in self.chain(model).glob("[0-9a-f]*"))


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[ModelKind, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "tactics": make_tiny_causal(folder / "causal", hidden=32, layers=1),
        "progress": make_tiny_classifier(folder / "classifier", hidden=32, layers=1),
    }


@pytest.fixture
def bench(tmp_path: Path, jobs: JobProcesses, models: dict[ModelKind, Path]) -> Bench:
    return Bench(tmp_path, jobs, models)


@pytest.fixture(scope="session")
def traced(
    tmp_path_factory: pytest.TempPathFactory, jobs: JobProcesses, models: dict[ModelKind, Path]
) -> Bench:
    """A bench with two traced repositories, "First" and "Second"."""
    made = Bench(tmp_path_factory.mktemp("traced"), jobs, models)
    made.trace("First")
    made.trace("Second")
    return made
