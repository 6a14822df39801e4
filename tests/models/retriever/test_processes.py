"""A retriever's training in two processes, by gloo."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.models.chain import Chain
from pipeline.models.curve import CURVE, LOSS
from pipeline.models.datasets import TaskData
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever.batches import read_lesson
from pipeline.models.retriever.encoder import load_encoder
from pipeline.models.retriever.ewc import parameters_of
from pipeline.models.retriever.learning import learn
from store.leandojo import DynamicDatabase, Repository
from tests.models.retriever.conftest import train_task
from tests.support import programs
from tests.support.retrieval import small_config, write_dataset
from tests.support.tiny_models import make_tiny_retriever

pytestmark = pytest.mark.timeout(300)

# Two processes of it, each of which says what it has: of one task, then of a chain, then of a task that is preempted;
# one program for all, as it is the imports that take their time. With a port someone else has started the two, as
# torchrun does; else the first starts the second one.
PROGRAM = """
import json, os, sys

if sys.argv[2:]:
    given, port = sys.argv[2:]
    os.environ |= {"RANK": given, "LOCAL_RANK": given, "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
from pathlib import Path
from pipeline.jobs import preemption
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.config import TrainingConfig
from pipeline.models.trainers import RetrievalTrainer
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever.batches import read_lesson
from pipeline.models.retriever.encoder import save_encoder
from pipeline.models.retriever.learning import learn
from pipeline.models.ranks import join, start_again, world
from pipeline.models.running import Reports
from tests.models.retriever.conftest import train_task
from tests.models.retriever.test_processes import PREEMPTED_AFTER, UNEVEN
from tests.support.retrieval import small_config
from store.leandojo import DynamicDatabase

folder = Path(sys.argv[1])
if world() == 1:
    start_again(2)
join("cpu", timeout_s=60)
config = small_config(folder / "model", max_epochs=2)
lesson = read_lesson(folder / "data", config)
trained = train_task(folder / "model", lesson, config, folder / "run")
encoder = trained.encoder
rank = os.environ.get("LOCAL_RANK", "0")
(folder / f"{rank}.json").write_text(json.dumps([trained.curve.measured, tensors_digest(encoder.state_dict())]))
if rank == "0":
    save_encoder(encoder, folder / "model", folder / "made")

config = small_config(folder / "model", batch_size=2, against_forgetting="ewc", max_epochs=2).to_dict()
database = DynamicDatabase(folder / "database.json")
trainer = RetrievalTrainer(TrainingConfig.from_dict({**config, "num_gpus": 2}), folder / "checkpoints")
learned = trainer.train(database.repositories, database, folder / "exported")
links = [[one.checkpoint, one.parent, one.about["digest"]] for one in learned]
(folder / f"chain-{rank}.json").write_text(json.dumps([links, os.readlink(folder / "checkpoints" / "HEAD")]))


def stop(done, total):
    # The second process alone is told to end.
    preemption.wanted = lambda: rank == "1" and done == PREEMPTED_AFTER


config = small_config(folder / "model", **UNEVEN)
cat, data = TaskData("cat", folder / "cat"), TaskData("data", folder / "data")
chain = Chain(folder / "continued")
parent = learn(cat, chain, config, parent=None).checkpoint
try:
    learn(data, chain, config, parent=parent, earlier=[cat], reports=Reports(stop))
except preemption.Yielded as ended:
    (folder / f"preempted-{rank}").write_text(ended.saved)
"""


UNEVEN: dict[str, Any] = {
    "batch_size": 7,
    "replay_share": 0.4,  # of seven rows three
    "against_forgetting": "ewc+replay+average",
    "accumulate_grad_batches": 2,
}
"""What two processes cannot share evenly."""
PREEMPTED_AFTER = 2


@dataclass(frozen=True)
class Shared:
    """What a run of two processes left, and what it said."""

    folder: Path
    said: list[str]


@pytest.fixture(scope="module", params=["started by others", pytest.param("alone", marks=pytest.mark.slow)])
def two_processes(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    repository: Callable[[Path, str, int], Repository],
) -> Shared:
    folder = tmp_path_factory.mktemp("two")
    make_tiny_retriever(folder / "model", d_model=32, layers=1)
    write_dataset(folder / "data")
    database = DynamicDatabase(folder / "database.json")
    for number, name in enumerate(("ark", "bee"), start=1):
        database.add_repository(repository(folder / name, name, number))
    database.to_json()
    write_dataset(folder / "cat", seed=1, alphabet=1)
    if request.param != "alone":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        both = [
            programs.start(PROGRAM, folder, rank, port, folder=folder / f"said by {rank}") for rank in (0, 1)
        ]
        first, second = (program.wait() for program in both)
        for one in (first, second):
            assert (one.returncode, one.stderr) == (0, "")
        assert second.stdout == ""
        return Shared(folder, first.stdout.splitlines())
    (folder / "program.py").write_text(PROGRAM)
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, folder / "program.py", folder],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(root)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return Shared(folder, done.stdout.splitlines())


def test_two_processes_learn_and_measure_what_one_does(two_processes: Shared) -> None:
    folder = two_processes.folder
    said, of_second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    assert said == of_second
    curve, digest = said
    config = small_config(folder / "model", max_epochs=2)
    lesson = read_lesson(folder / "data", config)
    alone = train_task(folder / "model", lesson, config, folder / "run alone")
    assert curve.keys() == alone.curve.measured.keys() >= {LOSS, "learning_rate", "Recall@10_val", "MRR"}
    for name, points in alone.curve.measured.items():
        assert [step for step, _ in curve[name]] == [step for step, _ in points]
        assert [value for _, value in curve[name]] == pytest.approx([value for _, value in points], rel=1e-4)
    together = load_encoder(folder / "made").state_dict()
    assert tensors_digest(together) == digest
    for name, value in alone.encoder.state_dict().items():
        torch.testing.assert_close(together[name], value, rtol=1e-4, atol=1e-5)


def test_a_chain_of_tasks_is_learned_by_two_processes_as_one_and_said_once(two_processes: Shared) -> None:
    folder = two_processes.folder
    (first, head), (second, _) = (
        json.loads((folder / f"chain-{rank}.json").read_text()) for rank in range(2)
    )
    assert first == second
    assert [parent for _, parent, _ in first] == [None, first[0][0]]
    assert head == first[1][0]
    assert two_processes.said[::2] == [
        f"https://example.org/demo/{name}@{str(number) * 40}: checkpoint {link[0]}"
        for (number, name), link in zip(enumerate(("ark", "bee"), start=1), first, strict=True)
    ]
    made = Chain(folder / "checkpoints").path(head)
    assert json.loads((made / CURVE).read_text())["ewc/penalty"][-1][1] > 0


def test_a_run_of_two_processes_is_continued_by_one_with_the_same_curve_and_weights(
    two_processes: Shared,
) -> None:
    folder = two_processes.folder
    assert (folder / "preempted-0").read_text() == f"step {PREEMPTED_AFTER} is saved"
    config = small_config(folder / "model", **UNEVEN)
    cat, data = TaskData("cat", folder / "cat"), TaskData("data", folder / "data")
    continued, alone = (
        [
            first := learn(cat, chain, config, parent=None),
            learn(data, chain, config, parent=first.checkpoint, earlier=[cat]),
        ]
        for chain in (Chain(folder / "continued"), Chain(folder / "alone"))
    )
    for one, other in zip(continued, alone, strict=True):
        assert (one.checkpoint, one.steps) == (other.checkpoint, other.steps)
        at = [folder / "continued" / one.checkpoint, folder / "alone" / one.checkpoint]
        curves = [json.loads((place / CURVE).read_text()) for place in at]
        # Of the penalty a continued run knows no value before the next tenth step.
        for name in (LOSS, "learning_rate"):
            both = [torch.tensor(curve[name]) for curve in curves]
            torch.testing.assert_close(*both, rtol=1e-4, atol=1e-6)
        weights = [parameters_of(load_encoder(place)) for place in at]
        for name, value in weights[1].items():
            torch.testing.assert_close(weights[0][name], value, rtol=1e-4, atol=1e-5)


def test_a_lambda_holds_the_weights_back_from_the_first_task_on(tmp_path: Path) -> None:
    model = make_tiny_retriever(tmp_path / "model", d_model=32, layers=1)
    dataset = write_dataset(tmp_path / "data")
    start, moved = parameters_of(load_encoder(model)), []
    for share in (0.0, 100.0):
        config = small_config(model, against_forgetting="ewc", lambda_value=share)
        lesson = read_lesson(dataset, config)
        ends = parameters_of(train_task(model, lesson, config, tmp_path / f"{share}").encoder)
        moved.append(sum(float((ends[name] - value).square().sum()) for name, value in start.items()))
    assert moved[0] > moved[1] > 0
