"""The jobs `train` and `evaluate` as processes of their own, from a log to events and back: chains, kills, refusals."""

from __future__ import annotations

import json
import shutil
import signal
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import preemption
from pipeline.models.curve import read_curve
from pipeline.models.datasets import dataset_of
from pipeline.models.training_job import stream_of
from store.leandojo.reading import import_leandojo
from store.log.reader import LogReader
from store.view import model_queries, queries
from tests.support.daemon.disk import SmallDisk, small_disk
from tests.support.job_processes import JobProcesses, Outcome, record
from tests.support.retrieval import small_config, write_dataset

pytestmark = pytest.mark.timeout(300)

STREAM = stream_of("retriever")
FIRST, SECOND = "example.org/First", "example.org/Second"


class Bench:
    """A log with traces, a chain's folder, and jobs run on them."""

    def __init__(self, root: Path, jobs: JobProcesses, model: Path) -> None:
        self.root = root
        self.jobs = jobs
        self.model = model
        self.chain = root / "chain"

    def trace(self, name: str, *, commit: str = "a", **changes: Any) -> None:
        """Import a repository `example.org/<name>` as LeanDojo traces one; `changes` is of `write_dataset`."""
        corpus = changes.pop("corpus", None)
        folder = write_dataset(
            self.root / f"{name}-{commit}", **{"files": 3, "prefix": name, "held_out": 0.2, **changes}
        )
        (folder / "metadata.json").write_text(
            json.dumps({"from_repo": {"url": f"https://example.org/{name}", "commit": commit * 40}})
        )
        if corpus is not None:
            path = folder / "corpus.jsonl"
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            corpus(lines)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        import_leandojo(
            folder,
            events_db=self.root / "events.db",
            database_db=self.root / "database.db",
            stage=self.root / "stage",
        )

    def train(
        self,
        repository: str,
        *,
        job: str = "",
        kill: Any = None,
        number: signal.Signals = signal.SIGKILL,
        **changes: Any,
    ) -> Outcome:
        parameters = {
            "events_db": str(self.root / "events.db"),
            "database_db": str(self.root / "database.db"),
            "repository": repository,
            "chain": str(self.chain),
            "parent": None,
            "config": small_config(self.model).to_dict(),
            "indices": str(self.root / "indices"),
            "tasks": [],
            **changes,
        }
        name = job or f"train-{repository.rpartition('/')[2]}"
        return self.job("train", parameters, name=name, kill=kill, number=number)

    def job(
        self,
        kind: str,
        parameters: dict[str, Any],
        *,
        name: str,
        kill: Any = None,
        number: signal.Signals = signal.SIGKILL,
    ) -> Outcome:
        """Run one attempt of a job."""
        return self.jobs.run(kind, parameters, self.root, name=name, kill=kill, number=number)

    def record(self, outcome: Outcome) -> bool:
        """Append an outcome's batches to the log; whether it had all of them."""
        return record(
            outcome,
            "retriever",
            events_db=self.root / "events.db",
            database_db=self.root / "database.db",
        )

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in self.chain.glob("[0-9a-f]*"))


@dataclass(frozen=True)
class Learned:
    bench: Bench
    first: Outcome
    second: Outcome


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, jobs: JobProcesses, model: Path) -> Learned:
    """Two tasks learned one after the other, and recorded; not to be changed."""
    bench = Bench(tmp_path_factory.mktemp("learned"), jobs, model)
    bench.trace("First")
    bench.trace("Second", seed=1, alphabet=1)
    first = bench.train(FIRST)
    second = bench.train(
        SECOND,
        parent=first.summary["checkpoint"],
        tasks=[{"name": FIRST, "dataset": first.summary["dataset"]}],
    )
    bench.record(first)
    bench.record(second)
    return Learned(bench, first, second)


@pytest.fixture
def bench(tmp_path: Path, jobs: JobProcesses, model: Path) -> Bench:
    return Bench(tmp_path, jobs, model)


def test_each_task_is_a_link_of_the_chain_and_is_measured_on_all_tasks_so_far(learned: Learned) -> None:
    bench, first, second = learned.bench, learned.first, learned.second
    (one,), (two,) = first.of("checkpoint_saved"), second.of("checkpoint_saved")
    assert (one["parent"], two["parent"]) == (None, one["checkpoint"])
    assert (one["job"], two["job"]) == ("train-First", "train-Second")
    assert one["data_seq"] > 0
    assert two["fisher"] is not None
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
    assert (before["checkpoint"], after["checkpoint"]) == (one["checkpoint"], two["checkpoint"])
    for item in second.of("evaluation_finished"):
        for name in ("recall@1", "recall@10", "mrr"):
            low, mean, high = (item["metrics"][name + end] for end in ("_low", "", "_high"))
            assert 0 <= low <= mean <= high <= 1
    steps = [line for line in first.lines if line.get("note") == f"training on {FIRST}"]
    assert steps[-1]["done"] == steps[-1]["total"] == one["steps"]
    assert {event["stream"] for event in second.events} == {STREAM}
    with LogReader.open(bench.root / "events.db") as log:
        losses = read_curve(log.blob(one["curve"]["sha256"]))["loss"]
    assert [step for step, _ in losses] == list(range(1, one["steps"] + 1))
    # Where `daemon.results.models` looks before it puts a checkpoint in use.
    assert (bench.chain / one["checkpoint"] / "model.safetensors").stat().st_size == one["size_bytes"]
    with closing(queries.connect(bench.root / "database.db")) as view:
        assert {(row.checkpoint, row.parent) for row in model_queries.checkpoints(view, "retriever")} == {
            (one["checkpoint"], None),
            (two["checkpoint"], one["checkpoint"]),
        }
        assert len(model_queries.evaluations(view, two["checkpoint"])) == 3
    assert (first.returncode, first.stderr) == (0, "")


def test_a_tasks_dataset_stays_beside_the_chain_and_cannot_be_written(learned: Learned) -> None:
    place = Path(learned.first.summary["dataset"])
    assert place == dataset_of(learned.bench.chain, learned.first.of("checkpoint_saved")[0]["job"])
    everything = [place, *place.rglob("*")]
    assert place / "random" / "test.json" in everything
    assert not [path for path in everything if path.stat().st_mode & 0o222]


def test_a_job_that_ended_and_is_run_again_says_the_same_and_makes_nothing(learned: Learned) -> None:
    bench = learned.bench
    again = bench.train(
        SECOND,
        parent=learned.first.summary["checkpoint"],
        tasks=[{"name": FIRST, "dataset": learned.first.summary["dataset"]}],
    )
    assert again.events == learned.second.events
    assert again.steps() == []
    assert bench.record(again), "the log has it"
    assert len(bench.checkpoints()) == 2


def test_a_killed_job_goes_on_from_its_last_step_on_the_data_that_it_began_with(
    learned: Learned, bench: Bench
) -> None:
    bench.trace("First")
    settings = small_config(bench.model, checkpoint_every_n_steps=1).to_dict()
    cut = bench.train(FIRST, config=settings, kill=("training", 4))
    assert (cut.returncode, cut.events, cut.steps()) == (-9, [], [1, 2, 3, 4])
    bench.trace("First", commit="b", seed=5)
    cut_again = bench.train(FIRST, config=settings, kill=(f"measuring {FIRST}, val", 1))
    assert cut_again.returncode == -9
    assert cut_again.steps()[0] == 4, "step 3 was saved"
    assert [event["type"] for event in cut_again.events] == ["checkpoint_saved", "evaluation_finished"]
    bench.record(cut_again)
    ended = bench.train(FIRST, config=settings)
    assert ended.events[:2] == cut_again.events
    bench.record(ended)
    (whole,), (made,) = learned.first.of("checkpoint_saved"), ended.of("checkpoint_saved")
    assert (made["checkpoint"], made["weights"]) == (whole["checkpoint"], whole["weights"])
    numbers = [
        [item["metrics"] for item in outcome.of("evaluation_finished")] for outcome in (ended, learned.first)
    ]
    assert numbers[0] == numbers[1]
    # The newer commit is for another job.
    other = bench.train(FIRST, job="train-later", parent=made["checkpoint"], config=settings)
    assert other.of("checkpoint_saved")[0]["data_seq"] > made["data_seq"]


def test_a_job_that_is_preempted_saves_where_it_is_and_goes_on_exactly_from_there(
    learned: Learned, bench: Bench
) -> None:
    bench.trace("First")
    # So rarely that nothing but the wish to make way saves a step.
    settings = small_config(bench.model, checkpoint_every_n_steps=1000).to_dict()
    cut = bench.train(FIRST, config=settings, kill=("training", 3), number=signal.SIGTERM)
    assert (cut.returncode, cut.events, cut.steps()) == (preemption.STATUS, [], [1, 2, 3])
    assert "preempted: step 3 is saved" in cut.stderr
    ended = bench.train(FIRST, config=settings)
    assert ended.steps()[0] == 4
    (whole,), (made,) = learned.first.of("checkpoint_saved"), ended.of("checkpoint_saved")
    assert (made["checkpoint"], made["weights"]) == (whole["checkpoint"], whole["weights"])


def _circle(lines: list[dict[str, Any]]) -> None:
    lines[0]["imports"] = [lines[-1]["path"]]
    lines[-1]["imports"] = [lines[0]["path"]]


def _no_premises(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        line["premises"] = []


def test_what_cannot_be_learned_is_a_failure_with_its_reason_and_leaves_nothing(bench: Bench) -> None:
    bench.trace("First")
    bench.trace("Empty", theorems=0)
    bench.trace("Circle", corpus=_circle)
    bench.trace("Bare", corpus=_no_premises)

    def refused(repository: str, **changes: Any) -> tuple[str, bool, str]:
        outcome = bench.train(f"example.org/{repository}", **changes)
        assert (outcome.returncode, outcome.last["line"], outcome.events) == (1, "failure", [])
        return outcome.last["reason"], outcome.last["deterministic"], outcome.last["message"]

    reason, final, message = refused("Empty")
    assert (reason, final) == ("bad_dataset", True)
    assert "train.json has no theorem" in message
    reason, final, message = refused("Circle")
    assert (reason, final) == ("bad_corpus", True)
    assert "in a circle" in message
    reason, final, message = refused("Bare")
    assert (reason, final) == ("bad_dataset", True)
    assert "uses a premise" in message
    reason, final, message = refused("Nobodys")
    assert (reason, final) == ("bad_dataset", True)
    assert 'no trace of "example.org/Nobodys"' in message
    reason, final, message = refused("First", config=small_config(bench.model, lr=1e30).to_dict())
    assert (reason, final) == ("diverged", True)
    assert message.startswith(f"{FIRST}: the loss of step")
    assert list((bench.chain / ".datasets").iterdir()) == []
    reason, final, message = refused("First", parent="0" * 16)
    assert (reason, final) == ("bad_checkpoint", False)
    assert "no checkpoint 0000" in message
    (bench.root / "file").write_text("")
    reason, final, message = refused("First", chain=str(bench.root / "file"))
    assert (reason, final) == ("disk", False)
    reason, final, message = refused("First", config={"lrr": 1.0})
    assert (reason, final) == ("bad_config", True)
    assert "is lr meant?" in message
    reason, final, message = refused("First", config={"num_gpus": 2})
    assert (reason, final) == ("bad_config", True)
    reason, final, message = refused("First", tasks=[{"name": "x"}])
    assert (reason, final) == ("bad_spec", True)
    assert "tasks.0.dataset: Field required" in message
    assert bench.checkpoints() == []


def test_a_full_disk_is_a_failure_that_is_tried_again_and_what_was_exported_stays(bench: Bench) -> None:
    bench.trace("First")
    with small_disk(bench.root / "disk", size_bytes=8 * 2**20) as disk:
        if not isinstance(disk, SmallDisk):
            pytest.skip("nothing may be mounted here")
        chain = bench.root / "disk" / "chain"
        (chain / ".datasets").mkdir(parents=True)
        disk.refuse(0)
        unexported = bench.train(FIRST, chain=str(chain))
        assert (unexported.last["reason"], unexported.last["deterministic"]) == (
            "disk",
            False,
        )
        assert list((chain / ".datasets").iterdir()) == []
        disk.mend()
        bench.train(FIRST, chain=str(chain), kill=("training", 1))
        disk.refuse(0)
        unwritten = bench.train(FIRST, chain=str(chain))
        assert (unwritten.last["reason"], unwritten.last["deterministic"]) == ("bad_checkpoint", False)
        assert unwritten.events == []
        assert (dataset_of(chain, "train-First") / "corpus.jsonl").exists()
        disk.mend()
        assert [item["split"] for item in bench.train(FIRST, chain=str(chain)).of("evaluation_finished")] == [
            "test",
            "val",
        ]


def test_a_checkpoint_is_measured_on_any_dataset_as_the_training_job_would(learned: Learned) -> None:
    bench = learned.bench
    dataset = shutil.copytree(learned.first.summary["dataset"], bench.root / "copied")
    parameters = {
        "chain": str(bench.chain),
        "checkpoint": learned.second.summary["checkpoint"],
        "dataset": str(dataset),
        "name": "copy",
        "indices": str(bench.root / "indices"),
    }
    done = bench.job("evaluate", parameters, name="evaluate-1")
    (found,) = done.of("evaluation_finished")
    (known, *_) = learned.second.of("evaluation_finished")
    assert (found["repository"], found["split"], found["job"]) == (None, "test", "evaluate-1")
    same = ("dataset", "metrics", "n", "checkpoint", "model")
    assert {key: found[key] for key in same} == {key: known[key] for key in same}
    assert found["evaluation"] != known["evaluation"]
    again = bench.job("evaluate", {**parameters}, name="evaluate-again")
    (repeated,) = again.of("evaluation_finished")
    assert repeated == {**found, "job": "evaluate-again"}, "it was not measured again"
    (dataset / "random").chmod(0o755)
    (dataset / "random" / "val.json").unlink()
    (dataset / "random" / "val.json").write_text("[]")
    empty = bench.job("evaluate", {**parameters, "split": "val"}, name="evaluate-2")
    assert (empty.last["reason"], empty.last["deterministic"], empty.events) == ("bad_dataset", True, [])
    wrong = bench.job("evaluate", {**parameters, "split": "train"}, name="evaluate-3")
    assert wrong.last["reason"] == "bad_spec"
    unknown = bench.job("evaluate", {**parameters, "checkpoint": "f" * 16}, name="evaluate-4")
    assert (unknown.last["reason"], unknown.last["deterministic"]) == ("bad_checkpoint", False)
