"""A chain that two processes learn together, by gloo, as torchrun starts them; and one of them that goes on alone."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.models.chain import Chain
from pipeline.models.curve import CURVE, LOSS
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.encoder import load_encoder
from pipeline.models.retriever.fisher import parameters_of
from pipeline.models.retriever.learning import learn
from pipeline.models.retriever.training import data_module, train_task
from store.leandojo import DynamicDatabase, Repository
from tests.support import programs
from tests.support.retrieval import small_config, write_dataset
from tests.support.tiny_models import make_tiny_retriever

pytestmark = pytest.mark.timeout(300)

# One of two processes, each of which says what it has. First a chain of tasks with a class of LeanDojo's, then a task
# that is preempted: one program for both, as it is the imports that take their time.
PROGRAM = """
import json, os, sys, time

folder, rank, port = sys.argv[1:]
os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
from pathlib import Path
from transformers import Trainer
from pipeline.jobs import preemption
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.retriever import RetrievalTrainer, TrainingConfig
from pipeline.models.retriever.learning import learn
from tests.models.retriever.test_processes import PREEMPTED_AFTER, UNEVEN
from tests.support.retrieval import small_config
from store.leandojo import DynamicDatabase

folder = Path(folder)
take = Trainer._load_best_model
# The second process reads the best epoch's weights late: the first must not have removed them by then.
Trainer._load_best_model = lambda of: (time.sleep(0.5 * int(rank)), take(of))
config = small_config(folder / "model", batch_size=8, against_forgetting="ewc", max_epochs=2).to_dict()
database = DynamicDatabase(folder / "database.json")
trainer = RetrievalTrainer(TrainingConfig.from_dict(config), folder / "checkpoints")
learned = trainer.train(database.repositories, database, folder / "exported")
links = [[one.checkpoint.checkpoint, one.checkpoint.parent, one.checkpoint.digest] for one in learned]
(folder / f"chain-{rank}.json").write_text(json.dumps([links, trainer.head]))


def stop(done, total):
    # The second process alone is told to end.
    preemption.wanted = lambda: rank == "1" and done == PREEMPTED_AFTER


config = small_config(folder / "model", **UNEVEN)
cat, data = TaskData("cat", folder / "cat"), TaskData("data", folder / "data")
chain = Chain(folder / "continued")
parent = learn(cat, chain, config, parent=None).checkpoint
try:
    learn(data, chain, config, parent=parent, earlier=[cat], on_step=stop)
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


@pytest.fixture(scope="module")
def two_processes(
    tmp_path_factory: pytest.TempPathFactory, repository: Callable[[Path, str, int], Repository]
) -> Shared:
    folder = tmp_path_factory.mktemp("two")
    make_tiny_retriever(folder / "model", d_model=32, layers=1)
    write_dataset(folder / "data")
    database = DynamicDatabase(folder / "database.json")
    for number, name in enumerate(("ark", "bee"), start=1):
        database.add_repository(repository(folder / name, name, number))
    database.to_json()
    write_dataset(folder / "cat", seed=1, alphabet=1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    both = [programs.start(PROGRAM, folder, rank, port, folder=folder / f"said by {rank}") for rank in (0, 1)]
    first, second = (program.wait() for program in both)
    for one in (first, second):
        assert (one.returncode, one.stderr) == (0, "")
    assert second.stdout == ""
    return Shared(folder, first.stdout.splitlines())


def test_a_chain_of_tasks_is_learned_by_two_processes_as_one_and_said_once(two_processes: Shared) -> None:
    folder = two_processes.folder
    (first, head), (second, _) = (
        json.loads((folder / f"chain-{rank}.json").read_text()) for rank in range(2)
    )
    assert first == second
    assert [parent for _, parent, _ in first] == [None, first[0][0]]
    assert head == first[1][0]
    assert [line.split(",")[0] for line in two_processes.said] == [
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
    # The first one's first task is what the two have learned.
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
        for name in (LOSS, "learning_rate"):
            both = [torch.tensor(curve[name]) for curve in curves]
            torch.testing.assert_close(*both, rtol=1e-4, atol=1e-6)
        weights = [parameters_of(load_encoder(place)) for place in at]
        for name, value in weights[1].items():
            torch.testing.assert_close(weights[0][name], value, rtol=1e-4, atol=1e-5)


def test_a_lambda_holds_the_weights_back_from_the_first_task_on(tmp_path: Path) -> None:
    model = make_tiny_retriever(tmp_path / "model", d_model=32, layers=1)
    dataset, start = write_dataset(tmp_path / "data"), parameters_of(load_encoder(model))

    def moved(share: float) -> float:
        config = small_config(model, against_forgetting="ewc", lambda_value=share)
        data = data_module(dataset, config, tokens_of=model)
        ends = parameters_of(train_task(model, data, config, run=tmp_path / str(share)).encoder)
        return float(sum((ends[name] - start[name]).square().sum() for name in start))

    assert 0 < moved(100.0) < moved(0.0)
