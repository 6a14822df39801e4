"""The jobs `train_tactics` and `train_progress` as processes of their own, from a log to events and back."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import preemption
from pipeline.models.chain import Chain
from pipeline.models.datasets import TaskData, dataset_of
from pipeline.models.progress import ProgressModel
from pipeline.models.progress.steps import LEARN, TEST, file_of
from pipeline.models.retriever import learning as retriever_learning
from pipeline.models.tactics.accepted import AcceptedStep, read_accepted
from pipeline.models.tactics.generate import Generator
from pipeline.models.tactics.models import load_model
from pipeline.models.tactics.requests import Request
from store.domain.identity import split_key
from store.domain.splits import Split, drawn_side
from store.events.models import ModelKind
from store.events.proofs import ProofFound
from store.log.log import EventLog
from store.view import model_queries, queries
from store.view.view import View
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
MODELS: tuple[ModelKind, ...] = ("tactics", "progress")
METRICS: dict[ModelKind, tuple[str, ...]] = {
    "tactics": ("tactic@1", "tactic@8", "token_accuracy"),
    "progress": ("mae", "mse", "within_1"),
}
EPOCHS = {"epochs": 2}


@dataclass(frozen=True)
class Learned:
    bench: Any
    model: ModelKind
    first: Outcome
    second: Outcome


@pytest.fixture(scope="module", params=MODELS)
def learned(request: pytest.FixtureRequest, traced: Any) -> Learned:
    """Two tasks learned one after the other, and recorded; not to be changed."""
    model: ModelKind = request.param
    first = traced.train(model, "First", config=EPOCHS)
    second = traced.train(
        model,
        "Second",
        parent=first.summary["checkpoint"],
        tasks=[{"name": FIRST, "dataset": first.summary["dataset"]}],
        config=EPOCHS,
    )
    traced.record(first, model)
    traced.record(second, model)
    return Learned(traced, model, first, second)


def theorems_of(dataset: Path, split: str, of: Split = "random") -> set[str]:
    if (dataset / "corpus.jsonl").is_file():
        return {theorem["full_name"] for theorem in json.loads((dataset / of / f"{split}.json").read_text())}
    lines = file_of(dataset, of, TEST if split == "test" else LEARN).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["theorem"] for row in rows if split == "test" or row["side"] == split}


@pytest.mark.slow
def test_each_task_is_a_link_and_is_measured_on_all_tasks_so_far(learned: Learned) -> None:
    bench, model, first, second = learned.bench, learned.model, learned.first, learned.second
    (one,), (two,) = first.of("checkpoint_saved"), second.of("checkpoint_saved")
    assert (one["parent"], two["parent"]) == (None, one["checkpoint"])
    assert one["base"] == two["base"] == str(bench.models[model])
    assert (one["model"], one["job"], one["fisher"]) == (model, f"{model}-First", None)
    assert one["data_seq"] > 0
    assert one["weights"] != two["weights"]
    measured = [
        [(item["repository"], item["split"]) for item in outcome.of("evaluation_finished")]
        for outcome in (first, second)
    ]
    assert measured == [
        [(FIRST, "test"), (FIRST, "val")],
        [(FIRST, "test"), (SECOND, "test"), (SECOND, "val")],
    ]
    before, after = first.of("evaluation_finished")[0], second.of("evaluation_finished")[0]
    assert before["dataset"] == after["dataset"], "the test set is frozen"
    for item in second.of("evaluation_finished"):
        for name in METRICS[model]:
            low, mean, high = (item["metrics"][name + end] for end in ("_low", "", "_high"))
            assert low <= mean <= high
    steps = [line for line in first.lines if line.get("note") == f"training on {FIRST}"]
    assert steps[-1]["done"] == steps[-1]["total"] == one["steps"]
    assert {event["stream"] for event in second.events} == {f"model:{model}"}
    assert (bench.chain(model) / one["checkpoint"] / "model.safetensors").stat().st_size == one["size_bytes"]
    assert Chain(bench.chain(model)).read(two["checkpoint"], verify=True).parent == one["checkpoint"]
    with closing(queries.connect(bench.root / "database.db")) as view:
        assert {(row.checkpoint, row.parent) for row in model_queries.checkpoints(view, model)} == {
            (one["checkpoint"], None),
            (two["checkpoint"], one["checkpoint"]),
        }


def test_a_later_task_replays_the_earlier_one_s_training_split(learned: Learned) -> None:
    bench, model = learned.bench, learned.model
    chain = Chain(bench.chain(model))
    one, two = (
        chain.read(outcome.summary["checkpoint"]).about for outcome in (learned.first, learned.second)
    )
    if model == "tactics":
        one, two = one["rows"], two["rows"]
        assert two["accepted"] == {"proofs": 0, "steps": 0, "left_out": {}}
    assert (one["replayed"], list(two["replayed"])) == ({}, [FIRST])
    new = two["steps"] if model == "tactics" else two["rows"][0] - two["replayed"][FIRST]
    assert two["replayed"][FIRST] == round(new / 3), "a quarter of all rows"


def test_what_is_measured_was_not_trained_on_and_cannot_be_written(learned: Learned) -> None:
    dataset = Path(learned.first.summary["dataset"])
    assert dataset == dataset_of(learned.bench.chain(learned.model), f"{learned.model}-First")
    train, val, test = (theorems_of(dataset, split) for split in ("train", "val", "test"))
    assert min(map(len, (train, val, test))) > 0
    assert not train & val | train & test | val & test
    assert not [path for path in (dataset, *dataset.rglob("*")) if path.stat().st_mode & 0o222]


def test_a_job_that_ended_and_is_run_again_says_the_same_and_makes_nothing(learned: Learned) -> None:
    bench, model = learned.bench, learned.model
    known = bench.checkpoints(model)
    again = bench.train(model, "First", config=EPOCHS)
    assert again.events == learned.first.events
    assert again.steps() == []
    assert bench.record(again, model), "the log has it"
    assert bench.checkpoints(model) == known


def test_what_is_cut_off_is_not_taken_for_a_checkpoint_goes_on_and_comes_out_the_same(
    learned: Learned,
) -> None:
    bench, model = learned.bench, learned.model
    # Another order of the same job: nothing of what was made before is of use. Only how often it saves is another.
    config = {**EPOCHS, "save_minutes": 0}
    given = {"job": f"{model}-cut", "chain": str(bench.root / f"{model}-cut"), "config": config}
    (whole,) = learned.first.of("checkpoint_saved")
    steps = whole["steps"]
    cut = bench.train(model, "First", kill=("training", steps - 2), **given)
    assert (cut.returncode, cut.events) == (-9, [])
    chain = Chain(bench.root / f"{model}-cut")
    assert not chain.has(whole["checkpoint"])
    # Asked to make way, it saves the step that it is at.
    asked = bench.train(
        model, "First", kill=("training", steps - 1), number=signal.SIGTERM, **{**given, "config": EPOCHS}
    )
    assert (asked.returncode, asked.events) == (preemption.STATUS, [])
    assert asked.steps() == [steps - 2, steps - 1], "the step that was killed was not saved"
    unmeasured = bench.train(model, "First", kill=(f"measuring {FIRST}, val", 1), **given)
    assert unmeasured.returncode == -9
    assert [event["type"] for event in unmeasured.events] == ["checkpoint_saved", "evaluation_finished"]
    assert unmeasured.steps() == [steps]
    ended = bench.train(model, "First", **given)
    assert ended.events[:2] == unmeasured.events
    (made,) = ended.of("checkpoint_saved")
    assert [made[name] for name in ("checkpoint", "weights", "curve")] == [
        whole[name] for name in ("checkpoint", "weights", "curve")
    ]
    numbers = [
        [item["metrics"] for item in outcome.of("evaluation_finished")] for outcome in (ended, learned.first)
    ]
    assert numbers[0] == numbers[1]
    assert not list((chain.folder / ".runs").iterdir())


def test_a_checkpoint_answers_what_it_was_taught(learned: Learned) -> None:
    for measured in learned.first.of("evaluation_finished"):
        if learned.model == "tactics":
            assert measured["metrics"]["tactic@1"] == measured["metrics"]["token_accuracy"] == 1.0
        else:
            assert measured["metrics"]["mae"] < 0.4, "the best constant is off by 0.6"
    folder = learned.bench.chain(learned.model) / learned.first.summary["checkpoint"]
    if learned.model == "tactics":
        (said,) = Generator(load_model(folder)).suggest([Request("⊢ p ∧ p First999")])
        assert said.tactics[0].tactic == "and"
    else:
        ProgressModel(folder, device="cpu")


def test_an_adapter_is_trained_further_as_one(traced: Any) -> None:
    config = {"lora": True, "lora_rank": 4, "lr": 1e-2}
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


def prove(bench: Any, repository: str, name: str) -> ProofFound:
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


def test_our_own_verified_proofs_are_rows_of_the_job_and_what_is_held_out_is_counted(bench: Any) -> None:
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
    (proof,) = read_accepted(dataset).proofs
    assert (proof.proof, proof.steps) == (found.proof, (AcceptedStep(f"⊢ {ours} = {ours}", "trivial"),))
    about = Chain(bench.chain("tactics")).read(made.summary["checkpoint"]).about["rows"]
    assert about["accepted"] == {"proofs": 1, "steps": 1, "left_out": {"held_out": 1}}
    assert not [path for path in dataset.rglob("*") if path.stat().st_mode & 0o222]
    assert not [path for path in dataset.parent.iterdir() if path != dataset]


def test_a_tactic_model_is_trained_and_measured_with_a_retriever_s_premises(
    traced: Any, tmp_path: Path
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


@pytest.mark.parametrize("model", MODELS)
def test_it_trains_and_measures_on_leandojo_s_other_split_and_a_chain_stays_with_it(
    bench: Any, model: ModelKind
) -> None:
    bench.trace("First", uses=True)
    made = bench.train(model, "First", config={"split": "novel_premises"})
    dataset, chain = Path(made.summary["dataset"]), Chain(bench.chain(model))
    sides = {side: theorems_of(dataset, side, "novel_premises") for side in ("train", "val", "test")}
    measured = {event["split"]: event["n"] for event in made.of("evaluation_finished")}
    assert measured.keys() == {"novel_premises/val", "novel_premises/test"}
    about = chain.read(made.summary["checkpoint"]).about
    trained_on = about["rows"]["steps"] if model == "tactics" else about["rows"][0]

    def steps(side: str) -> int:
        return sum(1 + int(name.removeprefix("First.t")) % 3 for name in sides[side])

    assert (trained_on, measured["novel_premises/test"]) == (steps("train"), steps("test"))
    drawn = {f"First.t{at}" for at in range(40) if drawn_side(split_key(f"First.t{at}", None)) == "train"}
    assert sides["train"] != drawn, "it is not the split by hash"
    refused = bench.train(model, "First", job="other", parent=made.summary["checkpoint"])
    assert "learned from 'novel_premises'" in refused.last["message"]


@pytest.mark.parametrize("model", MODELS)
def test_what_cannot_be_learned_is_a_failure_with_its_reason_and_leaves_nothing(
    bench: Any, model: ModelKind
) -> None:
    bench.trace("First", proofs=6)

    def refused(repository: str, **changes: Any) -> tuple[str, bool, str]:
        outcome = bench.train(model, repository, **changes)
        assert (outcome.returncode, outcome.last["line"], outcome.events) == (1, "failure", [])
        return outcome.last["reason"], outcome.last["deterministic"], outcome.last["message"]

    reason, final, message = refused("First", config={"lerning_rate": 1.0})
    assert (reason, final) == ("bad_config", True)
    assert "lerning_rate is no field" in message
    reason, final, message = refused("Nobodys")
    assert (reason, final) == ("bad_dataset", True)
    assert 'no trace of "example.org/Nobodys"' in message
    reason, final, message = refused("First", parent="0" * 16)
    assert (reason, final) == ("bad_checkpoint", False)
    assert "no checkpoint 0000" in message
    reason, final, message = refused("First", config={"model_name": str(bench.root / "nothing")})
    assert (reason, final) == ("bad_model", False)
    reason, final, message = refused("First", config={"lr": 1e30, "batch_size": 1})
    assert (reason, final) == ("diverged", True)
    assert message.startswith(FIRST)
    assert bench.checkpoints(model) == []
