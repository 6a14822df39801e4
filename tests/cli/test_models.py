"""`everlean models`: what the view holds of checkpoints, and what it refuses before it asks the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from store.events.models import ModelKind
from tests.support.models import (
    checkpoint_promoted,
    checkpoint_refused,
    checkpoint_saved,
    evaluation_finished,
)
from tests.support.verbs import hold_to_schema


@pytest.fixture
def trained(folder: Any) -> Any:
    """Two retrievers, the first in use and measured like the second, and a tactic model."""
    folder.add("model:retriever", checkpoint_saved("r-1"))
    folder.add("model:retriever", evaluation_finished("r-1", recall=0.40))
    folder.add("model:retriever", checkpoint_promoted("r-1"))
    folder.add("model:retriever", checkpoint_saved("r-22", parent="r-1"))
    folder.add("model:retriever", evaluation_finished("r-22", recall=0.35))
    folder.add("model:tactics", checkpoint_saved("t-1", model="tactics"))
    folder.write()
    return folder


def test_the_list_says_which_is_in_use(trained: Any) -> None:
    checkpoints = trained.everlean("models", "--json").json["checkpoints"]
    assert {item["checkpoint"]: item["promoted"] for item in checkpoints} == {
        "r-1": True,
        "r-22": False,
        "t-1": False,
    }
    assert [item["checkpoint"] for item in trained.everlean("models", "list", "--model", "tactics", "--json").json[
        "checkpoints"
    ]] == ["t-1"]  # fmt: skip
    lines = trained.everlean("models").out.splitlines()
    assert lines[1].split()[:5] == ["r-1", "retriever", "in", "use", "-"]
    assert lines[2].split()[:4] == ["r-22", "retriever", "undecided", "r-1"]
    assert "0.3500 on 1 task" in lines[2]


@pytest.fixture
def decided(folder: Any) -> Any:
    """One checkpoint in each state: one that was in use, one that is, one refused, one new."""
    folder.add("model:retriever", checkpoint_saved("s-1"))
    folder.add("model:retriever", evaluation_finished("s-1", recall=0.9))
    folder.add("model:retriever", checkpoint_promoted("s-1"))
    folder.add("model:retriever", checkpoint_saved("r-1"))
    folder.add("model:retriever", evaluation_finished("r-1", recall=0.40))
    two = {
        "evaluation": "other",
        "repository": "example.org/two",
        "split": "test",
        "metrics": {"recall@10": 0.25},
    }
    folder.add("model:retriever", evaluation_finished("r-1").model_copy(update=two))
    folder.add(
        "model:retriever",
        evaluation_finished("r-1").model_copy(update={**two, "evaluation": "v", "split": "val"}),
    )
    folder.add("model:retriever", checkpoint_promoted("r-1", previous="s-1"))
    folder.add("model:retriever", checkpoint_saved("r-2", parent="r-1"))
    folder.add("model:retriever", checkpoint_refused("r-2", in_use="r-1"))
    folder.add("model:retriever", checkpoint_saved("s-2", parent="s-1"))
    folder.write()
    return folder


def test_the_list_says_what_was_decided(decided: Any) -> None:
    listed = {item["checkpoint"]: item for item in decided.everlean("models", "--json").json["checkpoints"]}
    assert {name: item["state"] for name, item in listed.items()} == {
        "s-1": "was in use",
        "r-1": "in use",
        "r-2": "refused",
        "s-2": "undecided",
    }
    assert listed["r-2"]["refused_reason"] == "recall@10 0.31 < 0.38"
    assert [(task["repository"], task["metrics"]["recall@10"]) for task in listed["r-1"]["tasks"]] == [
        (None, 0.40),
        ("example.org/two", 0.25),
    ]
    lines = {line.split()[0]: line for line in decided.everlean("models").out.splitlines()}
    assert "was in use" in lines["s-1"]
    assert "undecided" in lines["s-2"]
    assert "0.2500 to 0.4000 on 2 tasks" in lines["r-1"]


def test_show_says_why_one_was_refused(decided: Any) -> None:
    text = decided.everlean("models", "show", "r-2").out
    assert text.startswith("r-2  retriever, refused\n")
    assert "recall@10 0.31 < 0.38" in text


def test_show_sets_the_baselines_below_the_task_that_they_were_measured_on(folder: Any) -> None:
    folder.add("model:retriever", checkpoint_saved("r-1"))
    body = evaluation_finished("r-1", recall=0.5)
    metrics = {**body.metrics, "bm25 recall@10": 0.25, "mepo recall@10": 0.125}
    folder.add("model:retriever", body.model_copy(update={"metrics": metrics}))
    folder.write()
    lines = folder.everlean("models", "show", "r-1").out.splitlines()
    assert "while it is in use, premises are found by this retriever" in lines
    task = next(number for number, line in enumerate(lines) if "(random)" in line)
    assert "0.5000" in lines[task]
    assert [line.split()[0] for line in lines[task + 1 :]] == ["BM25", "MePo"]
    assert ["0.2500" in lines[task + 1], "0.1250" in lines[task + 2]] == [True, True]


def test_show_says_how_the_loss_fell_where_it_was_kept(folder: Any) -> None:
    curve = folder.blob(b'{"loss": [[1, 2.5], [2, 0.75]]}')
    folder.add("model:retriever", checkpoint_saved("r-1", curve=curve))
    folder.add("model:retriever", checkpoint_saved("r-2"))
    folder.write()
    losses = [
        next(line.split(maxsplit=1)[1] for line in shown.out.splitlines() if line.split()[:1] == ["loss"])
        for shown in (folder.everlean("models", "show", name) for name in ("r-1", "r-2"))
    ]
    assert losses == ["2.5 -> 0.75", "not kept"]
    assert folder.everlean("models", "show", "r-1", "--json").json["checkpoint"]["curve"] == curve.sha256


def test_show_has_the_provenance_and_the_measurements(trained: Any) -> None:
    document = trained.everlean("models", "show", "r-2", "--json").json
    assert document["checkpoint"]["parent"] == "r-1"
    assert [item["metrics"]["recall@10"] for item in document["evaluations"]] == [0.35]
    text = trained.everlean("models", "show", "r-22").out
    for said in (
        "r-22  retriever, undecided\n",
        "learning_rate 0.001",
        "seed 3407",
        "torch 2.7.1",
        "all repositories (random)",
        "0.3500",
    ):
        assert said in text, said
    assert "recall@10 0.41 > 0.38" in trained.everlean("models", "show", "r-1").out


def test_as_of_answers_about_an_earlier_moment(trained: Any) -> None:
    (only,) = trained.everlean("models", "--json", "--as-of", "2").json["checkpoints"]
    assert (only["checkpoint"], only["promoted"]) == ("r-1", False)
    shown = trained.everlean("models", "show", "r-1", "--as-of", "1", "--json").json
    assert shown["as_of"]["seq"] == 1
    assert shown["evaluations"] == []
    assert trained.everlean("models", "--as-of", "2", "compare", "r-1", "r-22").code == 1


def test_compare_sets_the_tasks_side_by_side_and_says_what_the_rule_says(trained: Any) -> None:
    document = trained.everlean("models", "compare", "r-1", "r-22", "--json").json
    assert (document["before"], document["after"], document["model"]) == ("r-1", "r-22", "retriever")
    assert (document["verdict"], document["tolerance"]) == ("refuse", 2)
    assert (document["metric"], document["unit"]) == ("recall@10", "points")
    (task,) = document["tasks"]
    assert task["lost"] == pytest.approx(5)
    assert (task["before"]["recall@10"], task["after"]["recall@10"]) == (0.40, 0.35)
    text = trained.everlean("models", "compare", "r-1", "r-22").out
    assert "-5.00" in text
    assert "may not be promoted: recall@10 on all repositories (random) falls by 5.00 points" in text
    assert trained.everlean("models", "compare", "r-22", "r-1", "--json").json["verdict"] == "promote"


def test_each_model_is_compared_by_its_own_metric_and_tolerance(folder: Any) -> None:
    result: dict[ModelKind, tuple[str, float, float]] = {
        "tactics": ("tactic@8", 0.5, 0.45),
        "progress": ("mae", 1.0, 1.25),
    }
    for model, (metric, *values) in result.items():
        for name, value in zip("ab", values, strict=True):
            measured = evaluation_finished(f"{model}-{name}", model=model)
            folder.add(f"model:{model}", checkpoint_saved(f"{model}-{name}", model=model))
            folder.add(f"model:{model}", measured.model_copy(update={"metrics": {metric: value}}))
    folder.write()
    found = {
        model: folder.everlean("models", "compare", f"{model}-a", f"{model}-b")
        for model in ("tactics", "progress")
    }
    assert "-5.00" in found["tactics"].out
    assert "tactic@8 on all repositories (random) falls by 5.00 points" in found["tactics"].out
    assert "+0.25" in found["progress"].out
    text = "mae on all repositories (random) rises by 0.25 steps, from 1.00 to 1.25, with 0.1 allowed"
    assert text in " ".join(found["progress"].out.split())
    with folder.config.open("a", encoding="utf-8") as file:
        file.write("[train.progress]\ntolerance = 0.3\n")
    document = folder.everlean("models", "compare", "progress-a", "progress-b", "--json").json
    assert (document["verdict"], document["tolerance"], document["unit"]) == ("promote", 0.3, "steps")
    checkpoints = folder.everlean("models", "list", "--model", "progress", "--json").json["checkpoints"]
    assert [item["tasks"][0]["metrics"]["mae"] for item in checkpoints] == [1.0, 1.25]
    assert "mae 1.2500 on 1 task" in folder.everlean("models").out
    assert "WITHIN_1" in folder.everlean("models", "show", "progress-a").out
    answer = folder.everlean("models", "compare", "tactics-a", "tactics-b", "--tolerance", "101")
    assert (answer.code, "more than 100 points" in answer.err) == (1, True)


def test_compare_takes_the_configured_tolerance_unless_another_is_given(trained: Any) -> None:
    with trained.config.open("a", encoding="utf-8") as file:
        file.write("[train]\ntolerance = 5.5\n")
    document = trained.everlean("models", "compare", "r-1", "r-22", "--json").json
    assert (document["verdict"], document["tolerance"]) == ("promote", 5.5)
    document = trained.everlean("models", "compare", "r-1", "r-22", "--tolerance", "4", "--json").json
    assert (document["verdict"], document["tolerance"]) == ("refuse", 4)
    trained.config.write_text(
        trained.config.read_text(encoding="utf-8").replace("5.5", "500"), encoding="utf-8"
    )
    answer = trained.everlean("models", "compare", "r-1", "r-22")
    assert answer.code == 78
    assert "train.tolerance: must be at most 100.0" in answer.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("show", "x"), 1, 'no checkpoint has an id that starts with "x"; `everlean models` lists them'),
        (("show", "r-"), 1, '"r-" is the beginning of several checkpoint ids (r-1, r-22); write more of it'),
        (("compare", "r-1", "t-1"), 1, "r-1 is a checkpoint of retriever and t-1 of tactics"),
        (("promote", "t-1", "--model", "retriever"), 1, "t-1 is a checkpoint of tactics, not of retriever"),
        (("promote", "t-1"), 3, "no daemon listens there; start it with `everlean run`"),
        (("promote", "r-"), 1, "several checkpoint ids"),
        (("promote", "x"), 1, "no checkpoint has an id"),
        (("promote", "r-22"), 3, "no daemon listens there; start it with `everlean run`"),
        (("rollback",), 3, "no daemon listens there; start it with `everlean run`"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_says_why(trained: Any, arguments: tuple[str, ...], code: int, said: str) -> None:
    answer = trained.everlean("models", *arguments)
    assert answer.code == code, answer.err
    assert said in " ".join(answer.err.replace("│", " ").split())


@pytest.mark.parametrize(
    "verb", [("models",), ("models", "show", "r-1"), ("models", "compare", "r-1", "r-22")]
)
def test_every_document_is_what_its_schema_says(trained: Any, verb: tuple[str, ...]) -> None:
    hold_to_schema(" ".join(verb[:2]), trained.everlean(*verb, "--json").json)


def test_a_folder_without_a_model_is_refused_and_one_with_a_model_needs_theorems_and_a_daemon(
    trained: Any, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    assert "holds no model" in trained.everlean("models", "add", str(given)).err
    (given / "model.safetensors").write_bytes(b"weights")
    (given / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    assert "no repository is traced yet" in trained.everlean("models", "add", str(given)).err
    assert trained.everlean("models", "add", str(given), "--repo", "example.org/one").code == 3
