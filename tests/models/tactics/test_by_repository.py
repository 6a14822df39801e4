"""LoRA by repository: each repository's adapter is trained, measured and used for that repository alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.specs import LearnedTask, TrainTacticsSpec
from pipeline.models.adapters import adapters_of, model_for
from pipeline.models.chain import Chain
from pipeline.models.config import TacticsConfig
from pipeline.models.curve import CURVE
from pipeline.models.datasets import TaskData
from pipeline.models.errors import ConfigError, ModelError
from pipeline.models.model_files import Checkpoint, file_digest, files_in
from pipeline.models.tactics.accepted import AcceptedProofs, write_accepted
from pipeline.models.tactics.generate import load_generator
from pipeline.models.tactics.job import TacticsJob, select_rows
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Decoding, Request
from pipeline.models.tactics.rows import Row
from pipeline.models.training_job import OnStep

ONE, TWO, NEW = "example.org/one", "example.org/two", "example.org/new"
GOAL = "⊢ p → p"
TACTICS = {ONE: "intro h", TWO: "exact id"}


def task(root: Path, name: str, *, theorems: int = 8, states: Sequence[str] = (GOAL,)) -> TaskData:
    """Return a repository whose every proof is of these states, and closes them by the repository's own tactic.

    All proofs but the first have a hypothesis of their own.
    """
    proved = [
        {
            "url": f"https://{name}", "commit": "a" * 40, "file_path": "A.lean", "full_name": f"t{number}",
            "theorem_statement": None, "start": [number + 1, 1], "end": [number + 1, 9],
            "traced_tactics": [
                {
                    "tactic": TACTICS[name], "annotated_tactic": ["", []], "state_after": "",
                    "state_before": f"h : {number}\n{state}" if number else state,
                }
                for state in states
            ],
        }
        for number in range(theorems)
    ]  # fmt: skip
    folder = root / f"{name.rpartition('/')[2]}-{theorems}"
    (folder / "random").mkdir(parents=True)
    (folder / "random" / "train.json").write_text(json.dumps(proved))
    (folder / "random" / "test.json").write_text(json.dumps(proved[:1]))
    return TaskData(name, folder)


ACCEPTED = (Row("⊢ q", "simp", "t", "A.lean", 0, commit="a" * 40, start=(1, 1), proof="p" * 16),)


@dataclass(frozen=True)
class Learned:
    """A chain of two repositories; not to be changed."""

    chain: Chain
    config: TacticsConfig
    tasks: tuple[TaskData, TaskData]
    first: Checkpoint
    second: Checkpoint

    def adapter(self, checkpoint: Checkpoint, repository: str) -> Path:
        return adapters_of(self.chain.path(checkpoint.checkpoint))[repository]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, causal: Path) -> Learned:
    root = tmp_path_factory.mktemp("by-repository")
    chain, tasks = Chain(root / "tactics"), (task(root, ONE), task(root, TWO))
    config = TacticsConfig(
        model_name=str(causal), lora=True, lora_by_repository=True, lora_rank=8, batch_size=2, epochs=6, lr=2e-2,
        max_seq_len=400, device="cpu",
    )  # fmt: skip
    first = learn(tasks[0], chain, config, parent=None)
    second = learn(tasks[1], chain, config, parent=first.checkpoint, earlier=tasks[:1])
    return Learned(chain, config, tasks, first, second)


def learn(
    task: TaskData,
    chain: Chain,
    config: TacticsConfig,
    *,
    parent: str | None,
    earlier: Sequence[TaskData] = (),
    on_step: OnStep = lambda _done, _total: None,
) -> Checkpoint:
    return job(chain, config, parent=parent, earlier=earlier).learn(task, on_step)


def job(
    chain: Chain, config: TacticsConfig, *, parent: str | None = None, earlier: Sequence[TaskData] = ()
) -> TacticsJob:
    nobody: Any = None
    tasks = tuple(LearnedTask(name=one.name, dataset=one.dataset, replayed=True) for one in earlier)
    order = TrainTacticsSpec(repository=ONE, chain=chain.folder, parent=parent, tasks=tasks)
    return TacticsJob(config, JobSpec("job", "train_tactics", 1, chain.folder, order), nobody)


def said(model: Path, repository: str) -> str:
    generator = load_generator(model, device="cpu", repository=repository)
    (found,) = generator.suggest([Request(GOAL, (), Decoding(candidates=1))])
    return found.tactics[0].tactic


def test_each_repository_s_goals_are_answered_by_its_own_adapter_and_a_new_one_s_by_the_base(
    learned: Learned, causal: Path
) -> None:
    folder = learned.chain.path(learned.second.checkpoint)
    assert {name: said(folder, name) for name in TACTICS} == TACTICS
    assert model_for(folder, NEW) == str(causal)
    assert not load_model(model_for(folder, NEW)).is_adapter
    with pytest.raises(ModelError, match=f"an adapter for each of {ONE}, {TWO}, and nothing says which"):
        load_generator(folder, device="cpu")
    assert model_for(causal, NEW) == str(causal), "a model for all is everyone's"


def test_another_repository_s_training_changes_no_bit_of_an_adapter(learned: Learned) -> None:
    before, after = learned.adapter(learned.first, ONE), learned.adapter(learned.second, ONE)
    assert files_in(before) == files_in(after)
    assert [file_digest(before / name) for name in files_in(before)] == [
        file_digest(after / name) for name in files_in(after)
    ]
    own = learned.adapter(learned.second, TWO)
    assert file_digest(own / "adapter_model.safetensors") != file_digest(before / "adapter_model.safetensors")
    read = learned.chain.read(learned.second.checkpoint, verify=True)
    assert read.about["adapters"] == {ONE: before.name, TWO: own.name}
    assert read.weights != learned.first.weights
    assert (learned.chain.path(read.checkpoint) / CURVE).is_file()


def test_a_task_goes_on_from_its_own_adapter_and_a_kill_changes_nothing(
    tmp_path: Path, learned: Learned
) -> None:
    def cut_off(done: int, _total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    grown = task(tmp_path, ONE, theorems=9)
    chain = Chain(shutil.copytree(learned.chain.folder, tmp_path / "tactics"))
    gentle = replace(learned.config, lr=1e-6, epochs=1)
    parent = learned.second.checkpoint
    whole = learn(grown, learned.chain, gentle, parent=parent)
    assert said(learned.chain.path(whole.checkpoint), ONE) == TACTICS[ONE], (
        "such a rate would teach nothing anew"
    )
    with pytest.raises(KeyboardInterrupt):
        learn(grown, chain, replace(gentle, save_minutes=0.0), parent=parent, on_step=cut_off)
    steps: list[int] = []
    made = learn(grown, chain, gentle, parent=parent, on_step=lambda done, _: steps.append(done))
    assert steps[0] == 5
    assert (made.checkpoint, made.weights) == (whole.checkpoint, whole.weights)


def test_a_checkpoint_needs_nothing_of_one_that_was_removed_and_may_move(
    tmp_path: Path, learned: Learned
) -> None:
    chain = Chain(shutil.copytree(learned.chain.folder, tmp_path / "tactics"))
    chain.remove(learned.first.checkpoint, tmp_path / "indices")
    chain.read(learned.second.checkpoint, verify=True)
    assert said(chain.path(learned.second.checkpoint), ONE) == TACTICS[ONE]


def test_a_checkpoint_is_measured_on_each_task_with_that_task_s_adapter(learned: Learned) -> None:
    measuring = job(learned.chain, learned.config)
    for one in learned.tasks:
        found = measuring.measure(learned.second.checkpoint, one, "test", lambda _done, _total: None)
        assert found.metrics["tactic@1"] == 1.0, one.name


def test_nothing_of_other_repositories_is_replayed(tmp_path: Path, learned: Learned) -> None:
    one, two = (task(tmp_path, name, states=("⊢ p", "⊢ q")) for name in (ONE, TWO))
    write_accepted(two.dataset, AcceptedProofs({ONE: ACCEPTED, TWO: ACCEPTED}))
    before = TaskData(TWO, learned.tasks[1].dataset)
    alone, _ = select_rows(two, learned.config, [one, before])
    assert {name for name, _ in alone.replayed} == {TWO}
    assert [row.proof for row in alone.own].count("p" * 16) == 1
    shared, _ = select_rows(two, replace(learned.config, lora_by_repository=False), [one, before])
    assert {name for name, _ in shared.replayed} == {ONE, TWO}


def test_a_chain_stays_of_its_kind(tmp_path: Path, learned: Learned) -> None:
    one, shared = learned.tasks[0], replace(learned.config, lora_by_repository=False, epochs=1)
    with pytest.raises(ConfigError, match=r"holds an adapter for each repository\. Set it to true"):
        learn(one, learned.chain, shared, parent=learned.second.checkpoint)
    chain = Chain(tmp_path / "shared")
    made = learn(one, chain, shared, parent=None)
    with pytest.raises(ConfigError, match=r"holds one model for all repositories\. Set it to false"):
        learn(one, chain, learned.config, parent=made.checkpoint)
    on_an_adapter = replace(learned.config, model_name=str(chain.path(made.checkpoint)))
    with pytest.raises(ConfigError, match="an adapter: with lora_by_repository a chain begins with a whole"):
        learn(one, Chain(tmp_path / "other"), on_an_adapter, parent=None)


def test_the_setting_needs_lora_and_is_part_of_a_checkpoint_s_id(learned: Learned) -> None:
    with pytest.raises(ConfigError, match="lora_by_repository is true, and lora is false"):
        TacticsConfig(lora_by_repository=True)
    assert learned.config.content()["lora_by_repository"] is True
