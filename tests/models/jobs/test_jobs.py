"""The jobs of training as processes of their own, from a log to events and back: what holds of each kind of model."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import preemption
from pipeline.models.adapters import adapters_of
from pipeline.models.added import kind_of
from pipeline.models.chain import Chain
from pipeline.models.curve import CURVE, LOSS, read_curve
from pipeline.models.datasets import TaskData, dataset_of
from pipeline.models.model_files import begun
from pipeline.models.progress.model import ProgressModel
from pipeline.models.retriever import learning as retriever_learning
from pipeline.models.tactics.accepted import read_accepted
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Request
from store.domain.identity import split_key
from store.domain.splits import Split, drawn_side
from store.events.models import ModelKind
from store.events.proofs import ProofFound
from store.log.log import EventLog
from store.log.reader import LogReader
from store.view import model_queries, queries
from store.view.view import View
from tests.models.jobs.conftest import OFTEN, Bench, check_resumed
from tests.support import job_processes
from tests.support.daemon.disk import SmallDisk, small_disk
from tests.support.events import (
    PATCH,
    attempt,
    declaration,
    digest,
    place,
    proof_found,
    proof_verified,
    record,
    scanned,
    sha,
)
from tests.support.job_processes import Outcome
from tests.support.retrieval import small_config, write_dataset
from tests.support.tiny_models import make_tiny_retriever

pytestmark = pytest.mark.timeout(300)

FIRST, SECOND = "example.org/First", "example.org/Second"
MODELS: tuple[ModelKind, ...] = ("retriever", "tactics", "progress")
GENERAL = ("tactics", "progress")
"""Those that share their settings' names."""
METRICS: dict[ModelKind, tuple[str, ...]] = {
    "retriever": ("recall@1", "recall@10", "mrr"),
    "tactics": ("tactic@1", "tactic@8"),
    "progress": ("mae", "mse", "within_1"),
}
NOTHING: Mapping[str, Any] = {}
EPOCHS: dict[ModelKind, dict[str, int]] = {
    "retriever": {"max_epochs": 1},
    "tactics": {"epochs": 2},
    "progress": {"epochs": 2},
}


@dataclass(frozen=True)
class Learned:
    bench: Bench
    model: ModelKind
    first: Outcome
    second: Outcome


@pytest.fixture(scope="module", params=MODELS)
def learned(request: pytest.FixtureRequest, traced: Bench) -> Learned:
    """Two tasks learned one after the other, and recorded; not to be changed."""
    model: ModelKind = request.param
    first = traced.train(model, "First", config=EPOCHS[model])
    second = traced.train(
        model,
        "Second",
        parent=first.summary["checkpoint"],
        tasks=[{"name": FIRST, "dataset": first.summary["dataset"]}],
        config=EPOCHS[model],
    )
    traced.record(first, model)
    traced.record(second, model)
    return Learned(traced, model, first, second)


def theorems_of(dataset: Path, split: str, of: Split = "random") -> set[str]:
    return {theorem["full_name"] for theorem in json.loads((dataset / of / f"{split}.json").read_text())}


_BOARD = """
import importlib.machinery, json, sys, types
from pathlib import Path

class SummaryWriter:
    def __init__(self, log_dir, **_):
        Path(log_dir).mkdir(parents=True, exist_ok=True)
        self._file = (Path(log_dir) / "scalars").open("a")

    def add_scalar(self, tag, value, step=None, *_, **__):
        print(json.dumps([tag, step, float(value)]), file=self._file, flush=True)

    def __getattr__(self, _name):
        return lambda *_, **__: None

for name, has in (("tensorboard", {}), ("torch.utils.tensorboard", {"SummaryWriter": SummaryWriter})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name].__dict__.update(has)
"""
"""What a job's process has in place of TensorBoard, which the tests' environment lacks."""


def test_a_training_can_be_looked_at_in_tensorboard(
    traced: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_processes, "_JOB", _BOARD + job_processes._JOB)
    bench = Bench(traced.root, traced.jobs, traced.models)
    done = bench.train(
        "tactics", "First", job="seen", chain=str(tmp_path), tensorboard=str(tmp_path / "board")
    )
    curve = read_curve((tmp_path / done.summary["checkpoint"] / "curve.json").read_bytes())["loss"]
    written = (tmp_path / "board" / "seen" / "scalars").read_text().splitlines()
    shown = [value for tag, _, value in map(json.loads, written) if tag in ("train/loss", "loss")]
    assert shown == pytest.approx([loss for _, loss in curve])


def test_a_folder_is_taken_as_it_is_and_measured_as_what_is_trained(learned: Learned) -> None:
    bench, model, first = learned.bench, learned.model, learned.first
    trained = Chain(bench.chain(model)).path(first.summary["checkpoint"])
    about = {
        "parent": first.summary["checkpoint"],
        "tasks": [{"name": FIRST, "dataset": first.summary["dataset"]}],
    }
    weights = next(trained.glob("*model.safetensors"))
    whole = weights.read_bytes()
    for folder, knows in ((trained, True), (bench.models[model], False)):
        assert kind_of(folder) == model
        if not knows:
            weights.write_bytes(whole[:-1])  # what is offered takes the place of a damaged one, too
        given = bench.train(
            model,
            "Second",
            job=f"{model}-{knows}",
            taken=str(folder),
            learned=knows,
            config={"eval_steps": 2} if model == "tactics" else {},  # what knows nothing says a lot
            **about,
        )
        (saved,) = given.of("checkpoint_saved")
        assert saved["weights"] == begun(folder)
        assert (saved["parent"], saved["data_seq"] > 0) == (first.summary["checkpoint"], knows)
        measured = [(item["repository"], item["split"]) for item in given.of("evaluation_finished")]
        before = [(SECOND, "test")] if knows else []
        assert measured == [(FIRST, "test"), (SECOND, "test"), (SECOND, "val"), *before]
        assert ["is not what was saved" in one["reason"] for one in given.summary["unmeasured"]] == [True] * (
            not knows
        )
        place = Chain(bench.chain(model)).path(saved["checkpoint"])
        assert Chain(bench.chain(model)).read(saved["checkpoint"], verify=True).config["added"] == str(folder)
        shutil.rmtree(place)
    weights.write_bytes(whole)


def test_each_task_is_a_link_and_is_measured_on_all_tasks_so_far(learned: Learned) -> None:
    bench, model, first, second = learned.bench, learned.model, learned.first, learned.second
    (one,), (two,) = first.of("checkpoint_saved"), second.of("checkpoint_saved")
    assert (one["parent"], two["parent"]) == (None, one["checkpoint"])
    assert one["base"] == two["base"] == str(bench.models[model])
    assert (one["model"], one["job"]) == (model, f"{model}-First")
    assert one["data_seq"] > 0
    assert one["weights"] != two["weights"]
    measured = [
        [(item["repository"], item["split"]) for item in outcome.of("evaluation_finished")]
        for outcome in (first, second)
    ]
    assert measured == [
        [(FIRST, "test"), (FIRST, "val")],
        [(FIRST, "test"), (SECOND, "test"), (SECOND, "val"), (SECOND, "test")],
    ]
    # What it learned shows beside what the one before knew of the same test set.
    _, own, _, known = second.of("evaluation_finished")
    assert (known["checkpoint"], own["checkpoint"]) == (one["checkpoint"], two["checkpoint"])
    assert (known["dataset"], known["job"]) == (own["dataset"], own["job"])
    before, after = first.of("evaluation_finished")[0], second.of("evaluation_finished")[0]
    assert before["dataset"] == after["dataset"], "the test set is frozen"
    for item in second.of("evaluation_finished"):
        for name in METRICS[model]:
            low, mean, high = (item["metrics"][name + end] for end in ("_low", "", "_high"))
            assert low <= mean <= high
    steps = [line for line in first.lines if line.get("note") == f"training on {FIRST}"]
    assert steps[-1]["done"] == steps[-1]["total"] == one["steps"]
    assert {event["stream"] for event in second.events} == {f"model:{model}"}
    with LogReader.open(bench.root / "events.db") as log:
        losses = read_curve(log.blob(one["curve"]["sha256"]))["loss"]
    assert [step for step, _ in losses] == list(range(1, one["steps"] + 1))
    # Where `daemon.results.models` looks before it puts a checkpoint in use.
    assert (bench.chain(model) / one["checkpoint"] / "model.safetensors").stat().st_size == one["size_bytes"]
    assert Chain(bench.chain(model)).read(two["checkpoint"], verify=True).parent == one["checkpoint"]
    with closing(queries.connect(bench.root / "database.db")) as view:
        assert {(row.checkpoint, row.parent) for row in model_queries.checkpoints(view, model)} == {
            (one["checkpoint"], None),
            (two["checkpoint"], one["checkpoint"]),
        }
        assert len(model_queries.evaluations(view, two["checkpoint"])) == 3


@pytest.mark.parametrize("learned", GENERAL, indirect=True)
def test_a_later_task_replays_the_earlier_one_s_training_split(learned: Learned) -> None:
    chain = Chain(learned.bench.chain(learned.model))
    one, two = (
        chain.read(outcome.summary["checkpoint"]).about["rows"] for outcome in (learned.first, learned.second)
    )
    assert (one["replayed"], list(two["replayed"])) == ({}, [FIRST])
    assert two["replayed"][FIRST] == round(two["steps"] / 3), "a quarter of all rows"


@pytest.mark.parametrize("learned", ["retriever", "tactics"], indirect=True)
def test_a_training_goes_on_with_another_number_of_gpus_and_learns_the_same(
    learned: Learned, tmp_path: Path
) -> None:
    model, two = learned.model, ("GPU-a", "GPU-b")

    def train(**about: Any) -> Outcome:
        return learned.bench.train(
            model, "First", job=f"{model}-gpus", chain=str(tmp_path), config=EPOCHS[model], **about
        )

    together = train(gpus=two, kill=("training", 1), number=signal.SIGTERM)
    alone = train(gpus=two[:1], kill=("training", 2), number=signal.SIGTERM)
    ended = train(gpus=two)
    assert [one.returncode for one in (together, alone)] == [preemption.STATUS] * 2, together.stderr
    assert [one.steps()[0] for one in (together, alone, ended)] == [1, 2, 3]
    assert (together.events, alone.events) == ([], [])
    assert ["a helper starts" in one.stderr for one in (together, alone, ended)] == [True, False, True]
    checkpoint = learned.first.summary["checkpoint"]
    assert ended.summary["checkpoint"] == checkpoint
    ours, theirs = (
        [loss for _, loss in read_curve((folder / checkpoint / CURVE).read_bytes())[LOSS]]
        for folder in (tmp_path, learned.bench.chain(model))
    )
    assert len(ours) == len(theirs)
    # Before the end of the first epoch, where some rows may count twice.
    assert ours[:4] == pytest.approx(theirs[:4], rel=1e-3)


def test_what_is_measured_was_not_trained_on(learned: Learned) -> None:
    dataset = Path(learned.first.summary["dataset"])
    assert dataset == dataset_of(learned.bench.chain(learned.model), f"{learned.model}-First")
    train, val, test = (theorems_of(dataset, split) for split in ("train", "val", "test"))
    assert min(map(len, (train, val, test))) > 0
    assert not train & val | train & test | val & test


def test_a_job_that_ended_and_is_run_again_says_the_same_and_makes_nothing(learned: Learned) -> None:
    bench, model = learned.bench, learned.model
    known = bench.checkpoints(model)
    earlier = [{"name": FIRST, "dataset": learned.first.summary["dataset"]}]
    parent = learned.first.summary["checkpoint"]
    again = bench.train(model, "Second", parent=parent, tasks=earlier, config=EPOCHS[model])
    assert again.events == learned.second.events
    assert again.steps() == []
    assert bench.record(again, model), "the log has it"
    assert bench.checkpoints(model) == known


def test_what_is_cut_off_goes_on_with_the_data_that_it_began_with_and_comes_out_the_same(
    learned: Learned, bench: Bench
) -> None:
    model = learned.model
    bench.trace("First")

    def train(*, config: Mapping[str, Any] = NOTHING, **others: Any) -> Outcome:
        return bench.train(model, "First", config={**EPOCHS[model], **config}, **others)

    unmeasured, ended = check_resumed(
        train,
        learned.first,
        chain=Chain(bench.chain(model)),
        measured=FIRST,
        meanwhile=lambda: bench.trace("First", commit="b", proofs=30),
    )
    bench.record(unmeasured, model)
    bench.record(ended, model)
    (made,) = ended.of("checkpoint_saved")
    # The newer commit is for another job.
    other = train(job="later", parent=made["checkpoint"])
    assert other.of("checkpoint_saved")[0]["data_seq"] > made["data_seq"]


@pytest.mark.parametrize("learned", ["retriever", "tactics"], indirect=True)
def test_a_full_disk_is_a_failure_that_is_tried_again_and_comes_out_the_same(
    learned: Learned, bench: Bench
) -> None:
    model, root = learned.model, bench.root / "disk"
    (expected,) = learned.first.of("checkpoint_saved")
    bench.trace("First")

    def train(of: Mapping[str, Any] = NOTHING, **others: Any) -> Outcome:
        return bench.train(
            model, "First", chain=str(root / "chain"), config={**EPOCHS[model], **of}, **others
        )

    with small_disk(root, size_bytes=16 * 2**20) as disk:
        if not isinstance(disk, SmallDisk):
            pytest.skip("nothing may be mounted here")
        datasets = root / "chain" / ".datasets"
        datasets.mkdir(parents=True)
        disk.refuse(0)
        unexported = train()
        assert (unexported.last["reason"], unexported.last["deterministic"]) == ("disk", False)
        assert list(datasets.iterdir()) == []
        # Where the first step is saved, and where what was trained is.
        for of, step in ((OFTEN, 1), (NOTHING, expected["steps"])):
            disk.mend()
            unwritten = train(of, kill=("training", step), fills=root)
            assert (unwritten.last["reason"], unwritten.last["deterministic"]) == ("bad_checkpoint", False)
            assert (unwritten.steps()[-1], unwritten.events) == (step, [])
            assert "Make room" in unwritten.last["message"]
            assert dataset_of(root / "chain", f"{model}-First").is_dir()
        disk.mend()
        ended = train()
        (made,) = ended.of("checkpoint_saved")
        assert [made[name] for name in ("checkpoint", "weights")] == [
            expected[name] for name in ("checkpoint", "weights")
        ]
        assert [one["split"] for one in ended.of("evaluation_finished")] == ["test", "val"]


def test_an_earlier_task_with_a_damaged_test_split_is_listed_and_the_training_is_not_lost(
    bench: Bench,
) -> None:
    bench.trace("First")
    bench.trace("Second")
    first = bench.train("progress", "First", config={"epochs": 1})
    dataset = Path(first.summary["dataset"])
    (dataset / "random" / "test.json").write_text("[")
    second = bench.train(
        "progress",
        "Second",
        parent=first.summary["checkpoint"],
        tasks=[{"name": FIRST, "dataset": str(dataset)}],
        config={"epochs": 1},
    )
    (one,) = second.summary["unmeasured"]
    assert (one["task"], one["split"]) == (FIRST, "test")
    assert str(dataset / "random" / "test.json") in one["reason"]
    measured = [(item["repository"], item["split"]) for item in second.of("evaluation_finished")]
    assert measured == [(SECOND, "test"), (SECOND, "val"), (SECOND, "test")]


@pytest.mark.parametrize("learned", GENERAL, indirect=True)
def test_a_checkpoint_answers_what_it_was_taught(learned: Learned) -> None:
    for measured in learned.first.of("evaluation_finished"):
        if learned.model == "tactics":
            assert measured["metrics"]["tactic@1"] == 1.0
        else:
            assert measured["metrics"]["mae"] < 0.4, "the best constant is off by 0.6"
    folder = learned.bench.chain(learned.model) / learned.first.summary["checkpoint"]
    if learned.model == "tactics":
        (said,) = Generator(load_model(folder)).suggest([Request("⊢ p ∧ p First999")])
        assert said.tactics[0].tactic == "and"
    else:
        ProgressModel(folder, device="cpu")


def test_an_adapter_is_trained_further_as_one(traced: Bench) -> None:
    config = {"lora": True, "lora_rank": 4, "lr": 1e-2, "eval_steps": 2}
    first = traced.train("tactics", "First", job="adapter-1", config=config)
    (one,) = first.of("checkpoint_saved")
    folder = traced.chain("tactics") / one["checkpoint"]
    assert (folder / "adapter_model.safetensors").stat().st_size == one["size_bytes"]
    assert not (folder / "model.safetensors").exists()
    on_top = traced.train("tactics", "Second", job="adapter-2", parent=one["checkpoint"], config=config)
    (two,) = on_top.of("checkpoint_saved")
    assert two["weights"] != one["weights"]
    found = load_model(traced.chain("tactics") / two["checkpoint"])
    assert found.is_adapter
    assert found.base == str(traced.models["tactics"])


def test_a_retriever_s_adapters_are_a_chain_and_one_that_was_not_trained_answers_as_before(
    traced: Bench,
) -> None:
    config = {"lora_by_repository": True, "lora_rank": 4}
    first = traced.train("retriever", "First", job="adapters-1", config=config)
    (one,) = first.of("checkpoint_saved")
    earlier = [{"name": FIRST, "dataset": first.summary["dataset"]}]
    second = traced.train(
        "retriever", "Second", job="adapters-2", parent=one["checkpoint"], tasks=earlier, config=config
    )
    (two,) = second.of("checkpoint_saved")
    assert two["parent"] == one["checkpoint"]
    folder = traced.chain("retriever") / two["checkpoint"]
    adapters = {name: own / "adapter_model.safetensors" for name, own in adapters_of(folder).items()}
    assert adapters.keys() == {FIRST, SECOND}
    assert sum(path.stat().st_size for path in adapters.values()) == two["size_bytes"]
    assert kind_of(adapters[SECOND].parent) == "retriever", "as which it may be added"
    before, after = first.of("evaluation_finished")[0], second.of("evaluation_finished")[0]
    of_the_checkpoint = {"checkpoint", "evaluation", "job", "seconds"}
    assert {name for name, value in before.items() if after[name] != value} == of_the_checkpoint
    assert (after["checkpoint"], after["repository"]) == (two["checkpoint"], FIRST)
    for outcome in (first, second):
        traced.record(outcome, "retriever")
    with closing(queries.connect(traced.root / "database.db")) as view:
        rows = model_queries.evaluations(view, two["checkpoint"])
    assert {(row.repository, row.split) for row in rows} == {
        (FIRST, "test"), (SECOND, "test"), (SECOND, "val")
    }  # fmt: skip


def prove(bench: Bench, repository: str, name: str) -> ProofFound:
    """Record a sorry of a repository, a search's proof of it in one step, and that the gate verified it."""
    scan = scanned(f"{name}.lean", [declaration(name, statement=f": {name} = {name}")], with_sorry=[name])
    where = place(scan, scan.sorries[0], blob=sha(name))
    found = proof_found(sha(name)[:16], where, commit=sha(1)).model_copy(update={"repository": repository})
    node = {"depth": 0, "score": 0.0, "log_probability": 0.0, "remaining": None, "outcome": "proved"}
    nodes = [
        {"number": 0, "parent": None, "tactic": "", "goals": [f"⊢ {name} = {name}"], **node},
        {"number": 1, "parent": 0, "tactic": "trivial", "goals": [], **node},
    ]
    tree = json.dumps({"nodes": nodes, "proof": [0, 1]}).encode()
    ended = attempt(found.sorry, where, commit=sha(1)).model_copy(
        update={"repository": repository, "tree": digest(tree)}
    )
    with EventLog.open(bench.root / "events.db") as log, log.reader() as reader:
        bodies = [found, ended, proof_verified(found)]
        record(log, bodies, folder=bench.root / "stage", payloads=(PATCH, tree))
        with View.open(bench.root / "database.db", reader) as view:
            view.catch_up()
    return found


def test_our_own_verified_proofs_are_rows_of_the_job_and_what_is_held_out_is_counted(bench: Bench) -> None:
    bench.trace("First")
    names = [f"ours{number}" for number in range(40)]
    trained = {name: drawn_side(split_key(name, None)) == "train" for name in names}
    ours = next(name for name in names if trained[name])
    theirs = next(name for name in names if not trained[name])
    found = prove(bench, FIRST, ours)
    prove(bench, FIRST, theirs)
    prove(bench, "example.org/OptedOut", next(name for name in names if trained[name] and name != ours))
    made = bench.train("tactics", "First", proofs_of=[FIRST])
    dataset = Path(made.summary["dataset"])
    (row,) = read_accepted(dataset).rows[FIRST]
    assert (row.proof, row.state, row.tactic) == (found.proof, f"⊢ {ours} = {ours}", "trivial")
    about = Chain(bench.chain("tactics")).read(made.summary["checkpoint"]).about["rows"]
    assert about["accepted"] == {"proofs": 1, "left_out": {"held_out": 1}}
    assert not [path for path in dataset.parent.iterdir() if path != dataset]


def test_a_tactic_model_is_trained_and_measured_with_a_retriever_s_premises(
    traced: Bench, tmp_path: Path
) -> None:
    config = small_config(make_tiny_retriever(tmp_path / "tiny", d_model=32, layers=1))
    retriever = retriever_learning.learn(
        TaskData("example.org/Other", write_dataset(tmp_path / "data", files=2, theorems=20)),
        Chain(tmp_path / "retriever"),
        config,
        parent=None,
    )
    shown = {
        "chain": str(tmp_path / "retriever"),
        "checkpoint": retriever.checkpoint,
        "indices": str(tmp_path / "indices"),
        "device": "cpu",
        "premises": 2,
    }
    made = traced.train(
        "tactics", "First", job="with-premises", retriever=shown, config={"premise_dropout": 0.0}
    )
    checkpoint = Chain(traced.chain("tactics")).read(made.summary["checkpoint"])
    steps = checkpoint.about["rows"]["steps"]
    assert checkpoint.about["premises"] == {"of": f"{retriever.checkpoint}/2", "rows": steps}
    assert {event["split"] for event in made.of("evaluation_finished")} == {"test", "val"}


@pytest.mark.parametrize("model", GENERAL)
def test_it_trains_and_measures_on_leandojo_s_other_split_and_a_chain_stays_with_it(
    bench: Bench, model: ModelKind
) -> None:
    bench.trace("First")
    made = bench.train(model, "First", config={"split": "novel_premises"})
    dataset, chain = Path(made.summary["dataset"]), Chain(bench.chain(model))
    sides = {side: theorems_of(dataset, side, "novel_premises") for side in ("train", "val", "test")}
    measured = {event["split"]: event["n"] for event in made.of("evaluation_finished")}
    assert measured.keys() == {"novel_premises/val", "novel_premises/test"}
    trained_on = chain.read(made.summary["checkpoint"]).about["rows"]["steps"]

    def steps(side: str) -> int:
        return sum(1 + int(name.removeprefix("First.t")) % 3 for name in sides[side])

    assert (trained_on, measured["novel_premises/test"]) == (steps("train"), steps("test"))
    drawn = {f"First.t{at}" for at in range(40) if drawn_side(split_key(f"First.t{at}", None)) == "train"}
    assert sides["train"] != drawn, "it is not the split by hash"
    refused = bench.train(model, "First", job="other", parent=made.summary["checkpoint"])
    assert "learned from 'novel_premises'" in refused.last["message"]


def _circle(files: list[dict[str, Any]]) -> None:
    files[0]["imports"] = [files[1]["path"]]


def _no_premises(files: list[dict[str, Any]]) -> None:
    for file in files:
        file["premises"] = []


@dataclass(frozen=True)
class Refused:
    """An order that cannot be carried out, and what the job says to it."""

    reason: str
    deterministic: bool
    message: str = ""
    repository: str = "First"
    changes: Mapping[str, Any] = field(default_factory=dict)


def _refused(model: ModelKind, root: Path) -> list[Refused]:
    found = [
        Refused("bad_dataset", True, 'no trace of "example.org/Nobodys"', "Nobodys"),
        Refused("bad_checkpoint", False, "no checkpoint 0000", changes={"parent": "0" * 16}),
        Refused("bad_spec", True, "tasks.0.dataset: Field required", changes={"tasks": [{"name": "x"}]}),
        Refused("diverged", True, FIRST, changes={"config": {"lr": 1e30, "batch_size": 1}}),
    ]
    if model != "retriever":
        missing = {"model_name": str(root / "nothing")}
        return [
            *found,
            Refused(
                "bad_config", True, "lerning_rate is no field", changes={"config": {"lerning_rate": 1.0}}
            ),
            Refused("bad_model", False, changes={"config": missing}),
        ]
    return [
        *found,
        Refused("bad_config", True, "is lr meant?", changes={"config": {"lrr": 1.0}}),
        Refused("bad_dataset", True, "train.json uses a premise", "Empty"),
        Refused("bad_dataset", True, "in a circle", "Circle"),
        Refused("bad_dataset", True, "uses a premise", "Bare"),
        Refused("disk", False, changes={"chain": str(root / "file")}),
    ]


@pytest.mark.parametrize("model", MODELS)
def test_what_cannot_be_learned_is_a_failure_with_its_reason_and_leaves_nothing(
    bench: Bench, model: ModelKind
) -> None:
    bench.trace("First", proofs=6)
    if model == "retriever":
        bench.trace("Empty", proofs=0)
        bench.trace("Circle", corpus=_circle)
        bench.trace("Bare", corpus=_no_premises)
    (bench.root / "file").write_text("")
    for number, given in enumerate(_refused(model, bench.root)):
        outcome = bench.train(model, given.repository, job=f"order-{number}", **given.changes)
        assert (outcome.returncode, outcome.last["line"], outcome.events) == (1, "failure", []), given
        assert (outcome.last["reason"], outcome.last["deterministic"]) == (given.reason, given.deterministic)
        assert given.message in outcome.last["message"]
    assert bench.checkpoints(model) == []
