"""Lightning's module and data module in a user's own trainer: in one process with a penalty, and in two by gloo."""

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
import pytorch_lightning as pl
import torch

from pipeline.models.chain import Chain
from pipeline.models.curve import CURVE, LOSS
from pipeline.models.datasets import TaskData
from pipeline.models.libraries import quiet_libraries, tensors_digest
from pipeline.models.retriever.batches import RetrievalDataModule
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import byte_ids, load_encoder
from pipeline.models.retriever.fisher import parameters_of
from pipeline.models.retriever.index import Retriever
from pipeline.models.retriever.learning import evaluate, learn
from pipeline.models.retriever.losses import squared_error
from pipeline.models.retriever.retriever import PremiseRetriever
from pipeline.models.retriever.strategies import Protection
from store.leandojo import DynamicDatabase, Repository
from tests.support import programs
from tests.support.retrieval import small_config, write_dataset
from tests.support.tiny_models import make_tiny_retriever

pytestmark = pytest.mark.timeout(300)

# Two processes of it, each of which says what it has. First a user's own trainer, then a chain of tasks, then a task
# that is preempted: one program for all, as it is the imports that take their time. With a port someone else has
# started the two, as torchrun does; else Lightning starts the second one.
PROGRAM = """
import json, os, sys

if sys.argv[2:]:
    given, port = sys.argv[2:]
    os.environ |= {"LOCAL_RANK": given, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
from pathlib import Path
import pytorch_lightning as pl
from pipeline.jobs import preemption
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.batches import RetrievalDataModule
from pipeline.models.retriever.compat import RetrievalTrainer, TrainingConfig
from pipeline.models.retriever.encoder import save_encoder
from pipeline.models.retriever.retriever import PremiseRetriever
from pipeline.models.libraries import tensors_digest
from pipeline.models.libraries import quiet_libraries
from pipeline.models.retriever.learning import learn
from tests.models.retriever.test_processes import PREEMPTED_AFTER, UNEVEN
from tests.support.retrieval import small_config
from store.leandojo import DynamicDatabase

folder = Path(sys.argv[1])
data = RetrievalDataModule(
    folder / "data/random", folder / "data/corpus.jsonl", 3, 1, folder / "model", 8, 5, 64, 0,
    config=small_config(folder / "model"),
)
model = PremiseRetriever(folder / "model", small_config(folder / "model"), total_steps=3)
model.train()
taken, losses = [], []

class Taken(pl.Callback):
    def on_train_batch_start(self, trainer, model, batch, number):
        taken.append(list(batch.pairs))

    def on_train_batch_end(self, trainer, model, outputs, batch, number):
        losses.append(float(trainer.callback_metrics["loss_train"]))


with quiet_libraries():
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, limit_train_batches=3, logger=False,
        callbacks=[Taken()], use_distributed_sampler=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(model, datamodule=data)
measured = {key: float(value) for key, value in trainer.callback_metrics.items() if key != "loss_train"}
said = {"taken": taken, "losses": losses, "weights": tensors_digest(model.encoder.state_dict()), "measured": measured}
(folder / f"{trainer.global_rank}.json").write_text(json.dumps(said))
if trainer.global_rank == 0:
    save_encoder(model.encoder, folder / "model", folder / "made")

config = small_config(folder / "model", num_gpus=2, batch_size=4, against_forgetting="ewc", max_epochs=2).to_dict()
database = DynamicDatabase(folder / "database.json")
trainer = RetrievalTrainer(TrainingConfig.from_dict(config), folder / "checkpoints")
learned = trainer.train(database.repositories, database, folder / "exported")
links = [[one.checkpoint, one.parent, one.digest] for one in learned]
rank = os.environ.get("LOCAL_RANK", "0")
(folder / f"chain-{rank}.json").write_text(json.dumps([links, trainer.head]))


def stop(done, total):
    # The second process alone is told to end.
    preemption.wanted = lambda: rank == "1" and done == PREEMPTED_AFTER


config = small_config(folder / "model", num_gpus=2, **UNEVEN)
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


def data_module(folder: Path, model: Path, config: RetrieverConfig | None = None) -> RetrievalDataModule:
    return RetrievalDataModule(
        folder / "random", folder / "corpus.jsonl", 3, 1, model, 4, 5, 64, 0, config=config
    )


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


def test_two_processes_share_each_step_end_with_the_same_weights_and_measure_what_one_would(
    two_processes: Shared,
) -> None:
    folder = two_processes.folder
    first, second = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    assert first["weights"] == second["weights"]
    assert first["measured"] == second["measured"]
    data = data_module(folder / "data", folder / "model")
    for step in range(3):
        together = first["taken"][step] + second["taken"][step]
        assert len(set(together)) == 8
        assert together == list(data.batches(batch_size=8).at(step).pairs)
    encoder = load_encoder(folder / "made")
    assert tensors_digest(encoder.state_dict()) == first["weights"]
    alone = evaluate(Retriever(encoder, byte_ids, 64, 64), data.corpus, data.examples("val"))
    assert first["measured"] == {
        "Recall@1_val": pytest.approx(100 * alone.metrics["recall@1"].mean, abs=1e-4),
        "Recall@10_val": pytest.approx(100 * alone.metrics["recall@10"].mean, abs=1e-4),
        "MRR": pytest.approx(alone.metrics["mrr"].mean, abs=1e-6),
    }


def test_two_processes_learn_what_one_does_with_the_batch_of_both(two_processes: Shared) -> None:
    folder = two_processes.folder
    config = small_config(folder / "model")
    data = data_module(folder / "data", folder / "model", config)
    alone = PremiseRetriever(folder / "model", config, total_steps=3)
    made = alone.configure_optimizers()
    optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    curve = []
    for step in range(3):
        optimizer.zero_grad()
        batch = data.batches(batch_size=8).at(step)
        loss = alone.losses(alone(batch), batch.label, batch.ignore).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        curve.append(float(loss.detach()))
        optimizer.step()
        schedule.step()
    said = [json.loads((folder / f"{rank}.json").read_text())["losses"] for rank in range(2)]
    assert said[0] == said[1] == pytest.approx(curve, rel=1e-5)
    together = load_encoder(folder / "made").state_dict()
    for name, value in alone.encoder.state_dict().items():
        torch.testing.assert_close(together[name], value, rtol=1e-5, atol=1e-6)


def test_a_chain_of_tasks_is_learned_by_two_processes_as_one_and_said_once(two_processes: Shared) -> None:
    folder = two_processes.folder
    (first, head), (second, _) = (
        json.loads((folder / f"chain-{rank}.json").read_text()) for rank in range(2)
    )
    assert first == second
    assert [parent for _, parent, _ in first] == [None, first[0][0]]
    assert head == first[1][0]
    # The user's own trainer says nothing.
    assert two_processes.said[::2] == [
        f"https://example.org/demo/{name}@{str(number) * 40}: checkpoint {link[0]}"
        for (number, name), link in zip(enumerate(("ark", "bee"), start=1), first, strict=True)
    ]
    assert not list(folder.glob(".exported-*")), "a process's own copy of the datasets"
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


def moved(model: Path, data: RetrievalDataModule, share: float) -> float:
    """Train for some steps with a trainer of one's own; return how far the weights have gone."""
    retriever = PremiseRetriever(model, small_config(model), total_steps=10)
    start = {name: value.clone() for name, value in parameters_of(retriever.encoder).items()}
    protection = Protection(RetrieverConfig(against_forgetting="ewc", lambda_value=share, fisher_samples=16))
    protection.begin(retriever.encoder, byte_ids, lambda: data.batches(batch_size=1), squared_error)
    retriever.protection = protection
    with quiet_libraries():
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=1,
            limit_train_batches=10,
            limit_val_batches=0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        retriever.train()
        trainer.fit(retriever, datamodule=data)
    ends = parameters_of(retriever.encoder)
    return float(sum((ends[name].detach() - start[name]).square().sum() for name in start))


def test_an_epoch_of_a_trainer_that_knows_no_limit_takes_each_pair_once_and_ends(tmp_path: Path) -> None:
    model = make_tiny_retriever(tmp_path / "model", d_model=32, layers=1)
    data = data_module(write_dataset(tmp_path / "data"), model)
    taken: list[int] = []

    class Taken(pl.Callback):
        def on_train_batch_start(
            self, trainer: pl.Trainer, model: pl.LightningModule, batch: Any, number: int
        ) -> None:
            taken.extend(batch.pairs)

    with quiet_libraries():
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=1,
            callbacks=[Taken()],
            limit_val_batches=0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(PremiseRetriever(model, small_config(model), total_steps=20).train(), datamodule=data)
    assert trainer.global_step == data.batches().steps_per_epoch
    assert len(taken) == len(set(taken)) == 4 * trainer.global_step


def test_a_lambda_holds_the_weights_back_from_the_first_task_on(tmp_path: Path) -> None:
    model = make_tiny_retriever(tmp_path / "model", d_model=32, layers=1)
    data = data_module(write_dataset(tmp_path / "data"), model)
    free = moved(model, data, 0.0)
    assert free > 0
    assert moved(model, data, 100.0) < free
