"""A log with proofs of a few steps each, and jobs of training run on it."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import preemption
from pipeline.models.chain import Chain
from pipeline.models.tactics.prompt import SYSTEM
from store.events.models import ModelKind
from store.leandojo.reading import import_leandojo
from tests.support.job_processes import JobProcesses, Kill, Outcome, record
from tests.support.retrieval import small_config, step, theorem, use
from tests.support.tiny_models import make_tiny_causal, make_tiny_classifier, make_tiny_retriever

MODULES: dict[ModelKind, str] = {
    "retriever": "train",
    "tactics": "train_tactics",
    "progress": "train_progress",
}
OFTEN = {"save_minutes": 0.0}
"""What has a training save each step. Otherwise it saves none before it ends, but for the wish to make way."""


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
        commit: str = "a",
        corpus: Callable[[list[dict[str, Any]]], None] = lambda files: None,
    ) -> None:
        """Import a repository `example.org/<name>` whose theorems have one step to three, to be read off the goal; or
        each this goal alone, with these tactics in turn. Each proof uses a premise of its own. `corpus` changes the
        files that premises are in."""
        folder = self.root / f"imported-{name}-{commit}"
        (folder / "random").mkdir(parents=True)
        theorems = []
        for number in range(proofs):
            length = 1 + number % 3
            goals = (
                [goal]
                if goal
                else [f"⊢ {' ∧ '.join(['p'] * left)} {name}{number}" for left in range(length, 0, -1)]
            )
            used = use(f"{name}.p{number}", "B.lean", number + 1)
            theorems.append(
                theorem(
                    f"{name}.t{number}",
                    number + 1,
                    *(
                        step(tactics[number % len(tactics)] if left == 1 else "and", goal, used, annotated="")
                        for goal, left in zip(goals, range(len(goals), 0, -1), strict=True)
                    ),
                    url=f"https://example.org/{name}",
                    commit=commit * 40,
                )
            )
        premises = [
            {
                "full_name": f"{name}.p{at}",
                "code": f"theorem p{at} : p",
                "start": [at + 1, 1],
                "end": [at + 1, 18],
                "kind": "",
            }
            for at in range(proofs)
        ]
        for split, content in (("train", theorems), ("val", []), ("test", [])):
            (folder / "random" / f"{split}.json").write_text(json.dumps(content))
        files: list[dict[str, Any]] = [
            {"path": "B.lean", "imports": [], "premises": premises},
            {"path": "A.lean", "imports": ["B.lean"], "premises": []},
        ]
        corpus(files)
        (folder / "corpus.jsonl").write_text("".join(f"{json.dumps(file)}\n" for file in files))
        (folder / "metadata.json").write_text(
            json.dumps({"from_repo": {"url": f"https://example.org/{name}", "commit": commit * 40}})
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
        fills: Path | None = None,
        gpus: Sequence[str] = (),
        **changes: Any,
    ) -> Outcome:
        lr, longest = (1e-2, 160) if model == "tactics" else (5e-3, 400)
        config = {"model_name": str(self.models[model]), "device": "cpu", "lr": lr, "max_seq_len": longest}
        if model == "retriever":
            config = small_config(self.models[model]).to_dict()
            changes = {"indices": str(self.root / "indices"), **changes}
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
        return self.jobs.run(
            MODULES[model],
            parameters,
            self.root,
            name=name,
            kill=kill,
            number=number,
            fills=fills,
            gpus=gpus,
        )

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
        "retriever": make_tiny_retriever(folder / "retriever", d_model=32, layers=1),
        "tactics": make_tiny_causal(
            folder / "causal", hidden=32, layers=1, texts=[SYSTEM, "Proof state: ⊢ p ∧ p"]
        ),
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


def check_resumed(
    train: Callable[..., Outcome],
    whole: Outcome,
    *,
    chain: Chain,
    measured: str,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[Outcome, Outcome]:
    """Cut a training off at each place that differs, and check that it ends as `whole`, which nothing has disturbed.

    Args:
        train: runs one attempt more of the job, in a chain that does not have its checkpoint.
        whole: what the same training said in one attempt.
        chain: where `train` writes.
        measured: the repository whose val split is measured last.
        meanwhile: done between two attempts.

    Returns:
        The attempt that was killed between two measurements, and the last one.
    """
    (expected,) = whole.of("checkpoint_saved")
    steps = expected["steps"]
    cut = train(config=OFTEN, kill=("training", steps - 1))
    assert (cut.returncode, cut.events) == (-signal.SIGKILL, [])
    assert not chain.has(expected["checkpoint"])
    # What a kill in the middle of a save leaves: files, and no word yet that they are whole.
    for saved in list(chain.folder.glob(".runs/**/checkpoint-*")):
        shutil.copytree(saved, saved.with_name(f"{saved.name}0"), ignore=shutil.ignore_patterns("whole"))
    meanwhile()
    # Asked to make way, it saves the step that it is at.
    asked = train(kill=("training", steps - 1), number=signal.SIGTERM)
    assert (asked.returncode, asked.events) == (preemption.STATUS, [])
    # The step that was killed was not saved. The one before was, or a thread was writing it.
    assert asked.steps() in ([steps - 1], [steps - 2, steps - 1])
    assert f"preempted: step {steps - 1} is saved" in asked.stderr
    unmeasured = train(config=OFTEN, kill=(f"measuring {measured}, val", 1))
    assert unmeasured.returncode == -signal.SIGKILL
    assert [event["type"] for event in unmeasured.events] == ["checkpoint_saved", "evaluation_finished"]
    assert unmeasured.steps() == [steps]
    ended = train(config=OFTEN)
    assert ended.events[:2] == unmeasured.events
    assert ended.steps() == []
    (made,) = ended.of("checkpoint_saved")
    assert [made[name] for name in ("checkpoint", "weights", "curve")] == [
        expected[name] for name in ("checkpoint", "weights", "curve")
    ]
    numbers = [[item["metrics"] for item in outcome.of("evaluation_finished")] for outcome in (ended, whole)]
    assert numbers[0] == numbers[1]
    assert not list((chain.folder / ".runs").iterdir())
    return unmeasured, ended
