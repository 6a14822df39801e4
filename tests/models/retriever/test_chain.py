"""A chain of tasks on a tiny encoder: what it records, what a repeat does, and what it is known by."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pytest

from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import TrainRetrieverSpec
from pipeline.models.chain import Chain, Step
from pipeline.models.datasets import TaskData, dataset_of
from pipeline.models.errors import CheckpointError, ModelError
from pipeline.models.libraries import tensors_digest
from pipeline.models.retriever import learning as lifelong
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.retriever.encoder import load_encoder
from pipeline.models.retriever.index import Retriever, load_retriever
from pipeline.models.retriever.job import RetrieverJob
from pipeline.models.retriever.learning import learn, measure
from tests.models.retriever.conftest import Taught, learn_both
from tests.support.retrieval import small_config
from tests.support.tiny_models import make_tiny_retriever

pytestmark = pytest.mark.timeout(300)


def files_of(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and ".indices" not in path.parts
    }


def test_each_link_knows_its_parent_and_what_it_was_made_from_and_a_repeat_makes_nothing(
    taught: Taught, chain: Chain, config: RetrieverConfig, tasks: list[TaskData]
) -> None:
    first, second = taught.checkpoints
    assert (first.parent, second.parent) == (None, first.checkpoint)
    assert (first.learned, second.learned) == (("a",), ("a", "b"))
    assert [(link.task, link.data_seq, link.base) for link in (first, second)] == [
        ("a", 7, config.model_name),
        ("b", 8, config.model_name),
    ]
    assert first.data != second.data
    assert first.config == config.to_dict()
    assert set(first.versions) == {
        "everlean",
        "python",
        "torch",
        "transformers",
        "numpy",
    }
    assert set(first.files) == {path.name for path in chain.path(first.checkpoint).iterdir()} - {
        "checkpoint.json"
    }
    assert first.warnings == ()
    for link in (first, second):
        encoder = load_encoder(chain.path(link.checkpoint))
        assert tensors_digest(encoder.state_dict()) == link.about["digest"]
    assert first.about["digest"] != second.about["digest"]
    made = files_of(chain.folder)
    assert not list(chain.folder.glob(".runs/*"))
    assert learn_both(tasks, chain, config) == taught.checkpoints
    assert files_of(chain.folder) == made


def test_other_data_another_parent_or_another_setting_is_another_checkpoint(
    tmp_path: Path, config: RetrieverConfig, tasks: list[TaskData], model: Path
) -> None:
    chain = Chain(tmp_path / "chain")

    def planned(changed: RetrieverConfig = config, task: TaskData = tasks[0]) -> str:
        return lifelong.plan(task, chain, changed, parent=None)[0].checkpoint

    moved = shutil.copytree(tasks[0].dataset, tmp_path / "moved")
    assert planned(task=TaskData("a", moved)) == planned()
    assert planned(small_config(model, num_workers=2, save_minutes=0.0)) == planned()
    assert planned(small_config(model, seed=1)) != planned()
    lines = (moved / "corpus.jsonl").read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), "imports": []})
    (moved / "corpus.jsonl").write_text("\n".join(lines))
    assert planned(task=TaskData("a", moved)) != planned(), "imports decide what may be drawn"
    shutil.copy(tasks[0].dataset / "corpus.jsonl", moved)
    shutil.copy(moved / "random" / "test.json", moved / "random" / "val.json")
    assert planned(task=TaskData("a", moved)) != planned(), "the val split chooses the epoch"
    other = make_tiny_retriever(tmp_path / "other", d_model=32, layers=1, seed=0)
    before = planned(small_config(other))
    make_tiny_retriever(other, d_model=32, layers=1, seed=1)
    assert planned(small_config(other)) != before, "the folder has other weights under its name"


def test_weights_that_are_not_what_was_saved_are_found_and_not_built_upon(
    taught: Taught, chain: Chain, config: RetrieverConfig, tasks: list[TaskData]
) -> None:
    made, _ = taught.checkpoints
    weights = chain.path(made.checkpoint) / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-7] ^= 1
    weights.write_bytes(data)
    chain.read(made.checkpoint)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not what was saved"):
        chain.read(made.checkpoint, verify=True)
    with pytest.raises(CheckpointError, match="is not what was saved"):
        learn(tasks[1], chain, config, parent=made.checkpoint)
    weights.unlink()
    with pytest.raises(CheckpointError, match="is not what was saved"):
        chain.read(made.checkpoint, verify=True)
    for name in ("0" * 16, "../chain", ""):
        with pytest.raises(CheckpointError, match="no checkpoint"):
            chain.read(name)


def test_what_is_replayed_is_part_of_what_a_checkpoint_is_made_of_and_known_by(
    taught: Taught, chain: Chain, model: Path, tasks: list[TaskData]
) -> None:
    first, _ = taught.checkpoints

    def planned(against_forgetting: str) -> list[Step]:
        config = small_config(model, against_forgetting=against_forgetting)
        return [
            lifelong.plan(tasks[1], chain, config, parent=first.checkpoint, earlier=earlier)[0]
            for earlier in ([], tasks[:1])
        ]

    alone, replayed = planned("replay")
    assert alone.checkpoint != replayed.checkpoint
    assert alone.data != replayed.data
    # A way that replays nothing does not ask what it could have replayed.
    alone, replayed = planned("none")
    assert alone == replayed


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_another_file_of_a_checkpoint_that_is_not_what_was_saved_is_found_too(
    taught: Taught, chain: Chain, config: RetrieverConfig, tasks: list[TaskData], name: str
) -> None:
    first, _ = taught.checkpoints
    path = chain.path(first.checkpoint) / name
    path.write_text(path.read_text().replace("e", "E", 1))
    with pytest.raises(CheckpointError, match=rf"{name} is not what was saved"):
        learn(tasks[1], chain, config, parent=first.checkpoint)


def test_a_folder_that_was_copied_in_half_is_no_checkpoint_and_is_made_whole(
    taught: Taught, chain: Chain, config: RetrieverConfig, tasks: list[TaskData]
) -> None:
    made, _ = taught.checkpoints
    for path in chain.path(made.checkpoint).iterdir():
        if path.name != "config.json":
            path.unlink()
    with pytest.raises(CheckpointError, match="no checkpoint"):
        chain.read(made.checkpoint)
    again = learn(tasks[0], chain, config, parent=None)
    assert chain.read(made.checkpoint, verify=True) == again
    assert again.about == made.about


def test_a_description_that_is_another_s_is_refused(taught: Taught, chain: Chain) -> None:
    made, _ = taught.checkpoints
    shutil.copytree(chain.path(made.checkpoint), chain.path("f" * 16))
    with pytest.raises(CheckpointError, match=f"is the checkpoint {made.checkpoint} under another's name"):
        chain.read("f" * 16)
    description = chain.path(made.checkpoint) / "checkpoint.json"
    said = json.loads(description.read_text())
    incomplete = {key: value for key, value in said.items() if key != "steps"}
    for text in ("", "[]", "{}", json.dumps({**said, "files": {}}), json.dumps(incomplete)):
        description.write_text(text)
        with pytest.raises(
            CheckpointError, match=r"checkpoint\.json cannot be read.*Restore it from a backup"
        ):
            chain.read(made.checkpoint)


def test_two_processes_do_not_make_one_checkpoint_at_once(
    tmp_path: Path, config: RetrieverConfig, tasks: list[TaskData]
) -> None:
    chain = Chain(tmp_path / "own")
    with chain.making(lifelong.plan(tasks[0], chain, config, parent=None)[0].checkpoint):
        pid = os.fork()
        if pid == 0:
            try:
                learn(tasks[0], chain, config, parent=None)
            except CheckpointError as error:
                os._exit(7 if "another process is making the checkpoint" in str(error) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_a_dataset_that_only_has_a_test_split_can_be_measured(
    tmp_path: Path, config: RetrieverConfig, tasks: list[TaskData], model: Path
) -> None:
    only = shutil.copytree(tasks[0].dataset, tmp_path / "only")
    for split in ("train", "val"):
        (only / "random" / f"{split}.json").unlink()
    assert measure(model, TaskData("a", only), config).n > 0


def test_a_model_takes_the_place_of_one_that_cannot_be_loaded(
    tmp_path: Path,
    taught: Taught,
    chain: Chain,
    config: RetrieverConfig,
    tasks: list[TaskData],
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset = shutil.copytree(tasks[0].dataset, dataset_of(chain.folder, "job"))
    (dataset / "metadata.json").write_text('{"everlean": {"position": 7}}')
    parent = taught.checkpoints[0].checkpoint

    def load(job: RetrieverJob, source: str) -> Retriever:
        if Path(source).name == parent:
            raise ModelError("its adapter's base is gone")
        return load_retriever(source, config=job.measured_with)

    monkeypatch.setattr(RetrieverJob, "load", load)
    order = TrainRetrieverSpec(
        repository="a", chain=chain.folder, parent=parent, indices=tmp_path / "indices", taken=model
    )
    spec = JobSpec("job", "train", 1, tmp_path / "attempt", order)
    summary = RetrieverJob(config, spec, Reporter(spec, io.StringIO())).run()
    (missing,) = summary["unmeasured"]
    assert missing == {"task": "a", "split": "test", "reason": "its adapter's base is gone"}
