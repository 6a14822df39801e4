"""`everlean models add`: the folders of the trainers are measured, promoted by the rule, and used by a prove job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig

from daemon.leandojo import BaseAgent
from daemon.results.models import Models
from pipeline.jobs.kinds import TRAININGS
from pipeline.models.added import kind_of
from pipeline.models.model_files import begun
from pipeline.models.retriever.config import TrainingConfig
from pipeline.models.trainers import ProgressTrainer, RetrievalTrainer, SFTTrainer
from store.events.models import ModelOffered
from tests.support.daemon.traced_project import KEY, TracedProject
from tests.support.tiny_models import make_tiny_classifier, make_tiny_retriever

pytestmark = pytest.mark.timeout(300)
# What was never compared with BM25 counts as better than it.
SETTINGS = """
[train.retriever]
baselines = false
"""


def quiet(_line: str) -> None:
    """Say nothing."""


def trained(agent: BaseAgent, model: str, root: Path) -> list[Path]:
    """Return the folders of an adapter, a retriever and a progress model, each made by its trainer."""
    database, repos = agent._ordered()
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    sft = SFTTrainer(model, output_dir=root / "sft", lora_config=lora, device="cpu")
    sft.train(repos, database, agent.data_path)
    base = make_tiny_retriever(root / "retriever", d_model=16, layers=1)
    config = TrainingConfig(
        max_epochs=1,
        model_name=str(base),
        max_seq_len=64,
        num_workers=0,
        precision="32-true",
        data_max_seq_len=64,
    )
    retrieval = RetrievalTrainer(config, root / "chain")
    (learned,) = retrieval.train(repos, database, root / "data")
    rows = [
        {"goal": f"⊢ {n}", "prefix": "", "tactic": "rfl", "steps_remaining": n % 3, "proof": str(n)}
        for n in range(12)
    ]
    (root / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    bert = make_tiny_classifier(root / "bert", hidden=16, layers=1)
    ProgressTrainer(
        root / "rows.jsonl", model_name=str(bert), output_dir=root / "progress", max_length=64, epochs=1
    ).train()
    return [root / "sft", retrieval.chain.path(learned.checkpoint), root / "progress"]


def test_folders_that_trainers_wrote_are_measured_promoted_and_prove(
    study: TracedProject, says_rfl: str, tmp_path: Path
) -> None:
    study.config.write_text(study.config.read_text() + SETTINGS)
    agent = BaseAgent(say=quiet)
    agent.setup_github_repository(study.url, study.sha)
    at = {one.at for one in agent.repos}
    folders = {kind_of(folder): folder for folder in trained(agent, says_rfl, tmp_path)}
    assert folders.keys() == {"tactics", "retriever", "progress"}
    with agent.session() as session:
        models = Models(session.store, chain_root=study.paths.models, tolerance=lambda _: 0)
        for kind, folder in folders.items():
            options: dict[str, Any] = {
                "model": kind,
                "folder": str(folder),
                "weights": begun(folder),
                "repository": KEY,
            }
            session.run(models.offer(ModelOffered(**options, trace=None, learned=True, by="me")))
        session.work_off(frozenset(TRAININGS), at)
        session.settle_models()
        in_use = {
            event.data["model"]: event.data["checkpoint"] for event in study.events("checkpoint_promoted")
        }
        assert in_use.keys() == folders.keys()
        assert {event.data["model"] for event in study.events("evaluation_finished")} == folders.keys()
        update = {"enabled": True, "hours_per_day": None, "rungs": (2,)}
        prove = session.settings.prove.model_copy(update=update)
        session.settings = session.settings.model_copy(update={"prove": prove})
        ([rung], waiting) = session.climb()
        assert not waiting
        session.work_off({"build", "prove", "check"}, at)
    text = rung.spec.model_dump_json()
    assert all(checkpoint in text for checkpoint in in_use.values()), "one search asks all three"
    (attempt,) = study.events("attempt_finished")
    assert (attempt.data["model"], attempt.data["outcome"]) == (in_use["tactics"], "found")
    assert not study.events("job_failed", "job_interrupted")
