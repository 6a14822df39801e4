"""Experiments as people run them: a file, its log, a kill in the middle, the page and the chart that come of it."""

from __future__ import annotations

import json
import lzma
import math
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree as ET

import pytest
import torch

from experiments import file
from experiments.__main__ import main
from experiments.file import ExperimentError, Order
from experiments.lab import FiguresMeasured, RunBegun, interval
from experiments.results import gain
from experiments.tasks import joined, ordered, write_dataset
from pipeline.models.datasets import TaskData
from pipeline.models.retriever.corpus import Corpus
from store.errors import DatabaseMissingError
from store.log.reader import LogReader
from tests.support import programs

ROOT = Path(file.__file__).parent
SMALL = """
kind: learning
about: A try.
seeds: [1]
tasks: {source: letters, tasks: 2, steps: 2, rows: 4, held_out: 8}
model: {d_model: 16, layers: 1}
training:
  {device: cpu, precision: 32-true, loss: contrastive, schedule: constant, warmup_steps: 0, batch_size: 4,
   accumulate_grad_batches: 1, max_seq_len: 64, data_max_seq_len: 64, num_workers: 0,
   fisher_samples: 4}
metric: recall@1
arms:
  EWC and replay: {training: {against_forgetting: ewc+replay}}
  LoRA: {training: {lora_by_repository: true, lora_rank: 2}}
  joint: {learned: together}
"""
NONE = "  none: {training: {against_forgetting: none}}\n"


@pytest.fixture
def given(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


FIGURES = (2 + 3) + (2 + 3) + (1 + 2)
"""The arm that learns in turn, the adapters, and all at once: trainings, and measurements."""


def figures(folder: Path) -> list[tuple[int, FiguresMeasured]]:
    """The figures of a folder's log with their positions; none where no log is begun yet."""
    try:
        with LogReader.open(folder / "events.db") as log:
            events = log.read(types=[FiguresMeasured.type])
            return [(event.seq, FiguresMeasured.model_validate_json(event.data_json)) for event in events]
    except DatabaseMissingError:
        return []


def measured(found: list[tuple[int, FiguresMeasured]]) -> dict[tuple[str, str], dict[str, float]]:
    return {(one.arm, one.what): one.figures for _, one in found if "after" in one.what}


def run(path: Path, folder: Path, out: Path) -> int:
    return main([str(path), "--folder", str(folder), "--out", str(out)])


def cells(page: str) -> dict[str, list[str]]:
    """The rows of a page's table, without the processor's seconds."""
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    return {row[0].strip(): [cell.strip() for cell in row[1:-1]] for row in rows[2:]}


# ---- running, and being killed


@pytest.mark.timeout(400)
def test_a_run_that_is_killed_goes_on_with_the_first_figure_that_its_log_lacks(
    given: Path, tmp_path: Path
) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    program = "import sys; from experiments.__main__ import main; sys.exit(main())"
    process = programs.start(program, given, "--folder", killed, "--out", tmp_path, folder=tmp_path / "said")
    deadline = time.monotonic() + 300
    while len(begun_with := figures(killed)) < 3 and not process.has_ended():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    assert process.wait().returncode == -signal.SIGKILL
    before = figures(killed)
    assert before[: len(begun_with)] == begun_with
    assert run(given, killed, tmp_path / "after") == 0
    assert run(given, whole, tmp_path / "never") == 0
    after = figures(killed)
    assert len(before) < len(after) == FIGURES
    assert after[: len(before)] == before
    assert measured(after) == measured(figures(whole))
    pages = [(tmp_path / of / "small.md").read_text(encoding="utf-8") for of in ("after", "never")]
    assert cells(pages[0]) == cells(pages[1])
    assert [*cells(pages[0])] == ["EWC and replay", "LoRA", "joint"]
    assert not list((killed / "trials").iterdir())

    # Of a changed file only what the change concerns is measured; the log says with which file each run began.
    given.write_text(SMALL + NONE, encoding="utf-8")
    assert run(given, whole, tmp_path / "never") == 0
    assert {one.arm for _, one in figures(whole)[FIGURES:]} == {"none"}
    with LogReader.open(whole / "events.db") as log:
        begun = [RunBegun.model_validate_json(event.data_json) for event in log.read(types=[RunBegun.type])]
    assert [one.file for one in begun] == [SMALL, SMALL + NONE]
    drawn = "".join(ET.parse(tmp_path / "never" / "small.svg").getroot().itertext())
    assert "none" in drawn
    assert "(letters, no Lean)" in drawn


CHAIN = """
kind: learning
about: A try.
seeds: [1]
orders: [given, reversed]
tasks: {source: premises, folder: nowhere, repositories: [one, two], pairs: 8, held_out: 4, asked_of: 8}
model:
  d_model: 16
  layers: 1
  base: {source: premises, folder: nowhere, repositories: [old], pairs: 8, held_out: 4, asked_of: 8}
training:
  {device: cpu, precision: 32-true, loss: contrastive, warmup_steps: 0, batch_size: 4, accumulate_grad_batches: 1,
   max_seq_len: 64, data_max_seq_len: 64, num_workers: 0, fisher_samples: 4, baselines: false}
arms:
  all ways: {training: {against_forgetting: ewc+replay+average}}
  adapters: {training: {lora_by_repository: true, lora_rank: 2}}
  apart: {learned: apart}
  the base alone: {learned: never}
  BM25: {learned: by words}
"""


def test_a_chain_of_named_premises_begins_with_a_base_whose_keeping_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "chain.yaml"
    path.write_text(CHAIN, encoding="utf-8")
    data = tmp_path / "data"
    data.mkdir()
    for name in ("one", "two", "old"):
        docs = [f"theorem <a>{name}.lemma{number}</a> : word{number}" for number in range(20)]
        queries = [[f"theorem : goal of word{number}", [number], "F.lean"] for number in range(20)]
        content = json.dumps({"docs": docs, "queries": queries}).encode()
        (data / f"{name}.json.xz").write_bytes(lzma.compress(content))
    where = ["--folder", str(tmp_path / "run"), "--out", str(tmp_path)]
    assert main([str(path), *where]) == 1, "the folder is not there"
    assert main([str(path), *where, "--data", str(data)]) == 0
    result = {(one.arm, one.what): one.figures for _, one in figures(tmp_path / "run")}
    arms = {arm for arm, _ in result}
    in_turn = {f"{arm}, {order}" for arm in ("all ways", "adapters") for order in ("given", "reversed")}
    assert arms == {*in_turn, "apart", "the base alone", "BM25"}
    measured = {
        "one after 2",
        "two after 2",
        "base after 2",
        "one for choices",
        "two for choices",
        "base for choices",
    }
    learned = {"learning one", "learning two"}
    assert {what for arm, what in result if arm == "all ways, given"} == measured | learned | {"one after 1"}
    assert {what for arm, what in result if arm == "BM25"} == measured
    # Words that only the right one has.
    assert result["BM25", "one after 2"]["recall@1"] == 1.0
    for arm in ("apart", "adapters, given"):
        assert result[arm, "base after 2"] == result["the base alone", "base after 2"]
    assert result["adapters, given", "one after 1"] == result["adapters, given", "one after 2"]
    page = (tmp_path / "chain.md").read_text(encoding="utf-8")
    assert [*cells(page)] == ["all ways", "adapters", "apart", "the base alone", "BM25"]
    ET.parse(tmp_path / "chain.svg")


def test_a_dataset_that_is_not_there_is_named_with_what_to_do(
    given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "tasks: {source: datasets, folders: {benchmark: nowhere}}"
    given.write_text(re.sub("tasks: .*", source, SMALL), encoding="utf-8")
    assert run(given, tmp_path / "run", tmp_path) == 1
    assert "benchmark: nowhere/corpus.jsonl is not there; unpack or export" in capsys.readouterr().err


# ---- the file


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("stepz: 3", 'stepz is no key here; did you mean "steps"?'),
        ("source: lean", "'letters', 'datasets', 'repositories', 'premises'"),
        ("tasks: 27", "less than or equal to 26"),
        ("learnt: together", 'learnt is no key here; did you mean "learned"?'),
        (
            "training: {lambda_valu: 1}",
            "the training of EWC and replay: lambda_valu is no field of a training configuration",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_nearest_name(
    given: Path, wrong: str, said: str
) -> None:
    name = wrong.partition(":")[0]
    where = {
        "stepz": "steps: 2",
        "source": "source: letters",
        "tasks": "tasks: 2",
        "learnt": "learned: together",
    }
    old = where.get(name, "training: {against_forgetting: ewc+replay}")
    given.write_text(SMALL.replace(old, wrong, 1), encoding="utf-8")
    with pytest.raises(ExperimentError, match=re.escape(said)) as refused:
        file.read(given)
    assert str(refused.value).startswith(f"{given}: ")


def shipped(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).glob("*.yaml"))


@pytest.mark.parametrize("path", shipped("long", "lean", "real"), ids=lambda path: path.stem)
def test_every_shipped_file_can_be_read(path: Path) -> None:
    text, experiment = file.read(path)
    assert experiment.about
    assert len(text) > 0


@pytest.mark.parametrize("page", sorted((ROOT / "results").glob("*.md")), ids=lambda page: page.stem)
def test_every_result_is_that_of_a_shipped_file(page: Path) -> None:
    (path,) = (path for path in shipped("long", "lean", "real") if path.stem == page.stem)
    text = f"SHA-256 `{file.digest(path.read_text(encoding='utf-8'))}`"
    assert text in page.read_text(encoding="utf-8"), "run it again"
    ET.parse(page.with_suffix(".svg"))


# ---- the tasks


def test_files_that_tasks_share_are_one_and_others_of_one_path_are_told_apart(tmp_path: Path) -> None:
    tasks = [TaskData(name, tmp_path / name) for name in ("A", "B")]
    for task in tasks:
        library = file_of("Lib.lean", [], "theorem lib : p")
        own = file_of("Own.lean", ["Lib.lean"], f"theorem own : {task.name}")
        write_dataset(task.dataset, [library, own], {"train": [theorem("Own.lean")], "val": [], "test": []})
    result = joined(tasks, tmp_path / "joined")
    assert [one.path for one in Corpus(result.dataset / "corpus.jsonl").files] == [
        "Lib.lean",
        "Own.lean",
        "B/Own.lean",
    ]
    train = json.loads((result.dataset / "random" / "train.json").read_text(encoding="utf-8"))
    uses = [[use["def_path"] for use in one["traced_tactics"][0]["annotated_tactic"][1]] for one in train]
    assert [one["file_path"] for one in train] == ["Own.lean", "B/Own.lean"]
    assert uses == [["Lib.lean", "Own.lean"], ["Lib.lean", "B/Own.lean"]]


def test_the_easiest_task_has_the_most_easy_theorems(tmp_path: Path) -> None:
    steps = {"hard": [5, 5, 5, 1], "easy": [1, 1, 1], "small": [1]}
    tasks = [TaskData(name, tmp_path / name) for name in steps]
    for task in tasks:
        train = [theorem("A.lean", steps=number) for number in steps[task.name]]
        write_dataset(task.dataset, [file_of("A.lean", [], "p")], {"train": train, "val": [], "test": []})
    names = {order: [task.name for task in ordered(tasks, order, 7)] for order in get_args(Order)}
    assert names["given"] == ["hard", "easy", "small"]
    assert names["easiest first"] == ["easy", "hard", "small"]
    assert names["hardest first"] == ["hard", "small", "easy"]
    assert sorted(names["shuffled"]) == sorted(names["given"])


def file_of(path: str, imports: list[str], code: str) -> dict[str, Any]:
    premise = {"full_name": code, "code": code, "start": [1, 1], "end": [1, 9], "kind": "commanddeclaration"}
    return {"path": path, "imports": imports, "premises": [premise]}


def theorem(path: str, *, steps: int = 1) -> dict[str, Any]:
    uses = [
        {"full_name": "p", "def_path": one, "def_pos": [1, 2], "def_end_pos": [1, 3]}
        for one in ("Lib.lean", path)
    ]
    step = {
        "tactic": "exact p",
        "annotated_tactic": ["exact <a>p</a>", uses],
        "state_before": "⊢ p",
        "state_after": "no goals",
    }
    return {
        "file_path": path,
        "full_name": "t",
        "start": [9, 1],
        "end": [9, 9],
        "traced_tactics": steps * [step],
    }


# ---- the statistics


def test_an_interval_is_student_s_and_of_one_value_endless() -> None:
    mean, half = interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.303 / math.sqrt(3))
    assert interval([7.0]) == (7.0, math.inf)


def test_a_gain_counts_only_beyond_the_interval_of_the_paired_differences() -> None:
    none = [50.0, 60.0, 40.0]
    assert gain([55.0, 64.0, 46.0], none) == "+5.0 ± 2.5"
    assert gain([55.0, 59.0, 41.0], none) == "+1.7 ± 7.6 (within)"
    assert gain([55.0], [50.0]) == "+5.0"
