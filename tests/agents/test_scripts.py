"""The scripts of LeanDojo-v2's documentation, word for word, on tiny models: what they do is in the store.

They run in one process, one after the other, for the training libraries are loaded once; each has a store of its own.
What stands in them for a model, an address or a commit is replaced.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from daemon.cli.app import build
from daemon.leandojo import ExternalAgent
from daemon.leandojo.names import run_script
from pipeline.models.tactics.models import read_model
from store.leandojo import DynamicDatabase
from tests.support.chat_server import ChatServer, Says
from tests.support.daemon.traced_project import KEY, TracedProject
from tests.support.tiny_models import make_tiny_classifier, make_tiny_retriever, make_tiny_seq2seq

pytestmark = pytest.mark.timeout(300)
SCRIPTS = dict(
    re.findall(
        r"## (\w+)\n.*?```python\n(.*?)```",
        Path(__file__).with_name("scripts.md").read_text("utf-8"),
        re.DOTALL,
    )
)
MODEL = "deepseek-ai/DeepSeek-Prover-V2-7B"
RETRIEVER = """
[train.retriever]
model_name = "{retriever}"
precision = "32-true"
num_workers = 0
max_seq_len = 64
data_max_seq_len = 64
warmup_steps = 0
fisher_samples = 4
"""


def run(name: str, study: TracedProject, tmp_path: Path, **replaced: str) -> None:
    """Run a script with its models, address and commits replaced."""
    text = SCRIPTS[name].replace("https://github.com/durant42040/lean4-example", study.url)
    text = re.sub(r"\b[0-9a-f]{40}\b", study.sha, text)
    for old, new in replaced.items():
        old = {"model": MODEL, "bert": "bert-base-uncased"}.get(old, old)
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    run_script(path, ())


@dataclass(frozen=True)
class Proved:
    """The store after an endpoint was asked, what that printed, and the models that the endpoint was asked for."""

    study: TracedProject
    said: str
    asked: frozenset[str]


@pytest.fixture(scope="session")
def proved_once(set_up_once: TracedProject, tmp_path_factory: pytest.TempPathFactory) -> Proved:
    study = set_up_once.copied(tmp_path_factory.mktemp("proved"))
    with (
        redirect_stdout(io.StringIO()) as output,
        ChatServer([Says("```lean\nby rfl\n```")]) as server,
    ):
        agent = ExternalAgent(
            "a-model",
            base_url=server.url,
            usd_per_day=1,
            usd_per_million_prompt=1,
            usd_per_million_completion=3,
            config=study.config,
        )
        agent.setup_github_repository(study.url, study.sha)
        agent.prove(whole_proof=True)
        return Proved(
            study, output.getvalue(), frozenset(request.body["model"] for request in server.requests)
        )


@pytest.fixture
def proved(proved_once: Proved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TracedProject:
    """A store in which the one sorry has its proof, so that nothing is tried again."""
    result = proved_once.study.copied(tmp_path)
    monkeypatch.setenv("EVERLEAN_CONFIG", str(result.config))
    monkeypatch.chdir(tmp_path)
    return result


def attempts(study: TracedProject) -> dict[str, dict[str, Any]]:
    """What was tried, by declaration."""
    names = {row["sorry"]: row["declaration"] for row in study.everlean("sorries")["sorries"]}
    return {names[event.data["sorry"]]: dict(event.data) for event in study.events("attempt_finished")}


def assert_every_job_ended_well(study: TracedProject) -> None:
    assert not study.events("job_failed", "job_interrupted")
    assert len(study.events("job_succeeded")) == len(study.events("job_started"))


@pytest.mark.slow
def test_external(proved_once: Proved) -> None:
    study = proved_once.study
    assert proved_once.asked == {"a-model"}
    assert {(one["rung"], one["model"]) for one in attempts(study).values()} == {(4, "a-model")}
    (result,) = study.everlean("proofs")["proofs"]
    assert (result["declaration"], result["state"]) == ("four", "candidate")
    assert re.search(r"four: found: could not be checked: .*\n    rfl", proved_once.said)
    assert "1 sorry: 1 unjudged" in proved_once.said
    assert_every_job_ended_well(study)


def test_quickstart(
    study: TracedProject, says_rfl: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("quickstart", study, tmp_path, model=says_rfl)
    (saved,) = study.everlean("models")["checkpoints"]
    assert (saved["model"], saved["promoted"]) == ("tactics", True)
    measured = study.events("evaluation_finished")
    assert {(event.data["repository"], event.data["split"]) for event in measured} == {
        (KEY, "test"),
        (KEY, "val"),
    }
    assert all({"tactic@1", "tactic@8"} <= set(event.data["metrics"]) for event in measured)
    assert {name: (one["rung"], one["prover"], one["model"]) for name, one in attempts(study).items()} == {
        "four": (2, "generator", saved["checkpoint"])
    }
    (result,) = study.everlean("proofs")["proofs"]
    assert (result["declaration"], result["state"], result["rung"]) == ("four", "candidate", 2)
    assert "1 sorry: 1 unjudged" in capsys.readouterr().out
    assert_every_job_ended_well(study)


@pytest.mark.parametrize(
    "name",
    [
        "sft",
        "grpo_lora",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("sft_minimal", "lora", "grpo")),
    ],
)
def test_a_trainer(name: str, proved: TracedProject, says_rfl: str, tmp_path: Path) -> None:
    run(name, proved, tmp_path, model=says_rfl)
    (saved,) = proved.events("checkpoint_saved")
    config = saved.data["config"]
    assert (config["grpo"] is not None) == name.startswith("grpo")
    assert bool(config["lora"]) == ("lora" in name)
    assert {one["rung"] for one in attempts(proved).values()} == {4}, "what has its proof was tried again"
    assert_every_job_ended_well(proved)


@pytest.fixture(scope="session")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_retriever(tmp_path_factory.mktemp("retriever"), d_model=16, layers=1)


def test_lean_agent(
    study: TracedProject, retriever: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = make_tiny_seq2seq(tmp_path / "generator", d_model=16, layers=1)
    read_model(generator, max_seq_len=256).tokenizer.save_pretrained(generator)
    text = study.config.read_text().replace("[prove.generator]", f'[prove.generator]\nmodel = "{generator}"')
    study.config.write_text(text + RETRIEVER.format(retriever=retriever))
    run("lean_agent", study, tmp_path)
    (saved,) = study.everlean("models")["checkpoints"]
    assert (saved["model"], saved["promoted"]) == ("retriever", True)
    assert {event.data["model"] for event in study.events("evaluation_finished")} == {"retriever"}
    (tried,) = attempts(study).values()
    finder, _, model = tried["model"].partition("+")
    # BM25 may find more than a model of random weights.
    assert finder in {saved["checkpoint"], "bm25"}
    assert (tried["rung"], model) == (1, str(generator))
    assert "four: not found: " in capsys.readouterr().out
    assert_every_job_ended_well(study)


def test_manual_retrieval_and_its_configuration(
    study: TracedProject, retriever: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = f"""
from lean_dojo_v2.database import DynamicDatabase

database = DynamicDatabase({str(study.state)!r})
repos, data_path = database.sort_repositories_by_difficulty(), "raid/data/merged"
"""
    tiny = "config = TrainingConfig(\nmodel_name=" + repr(str(retriever)) + ", num_workers=0, max_seq_len=64,"
    config = {
        "from lean_dojo_v2.trainer.retrieval_trainer": before + "from lean_dojo_v2.trainer.retrieval_trainer"
    }
    config["config = TrainingConfig("] = tiny + 'precision="32-true", data_max_seq_len=64, fisher_samples=4,'
    run("retrieval", study, tmp_path, **config)
    assert "R@1 = " in capsys.readouterr().out
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "retrieval.yaml").write_text("lr: 0.0005\nmax_epochs: 3\n")
    (tmp_path / "config" / "retrieval.json").write_text('{"lambda_value": 0.05, "max_epochs": 2}')
    run("config", study, tmp_path)
    assert "max_epochs: 2" in (tmp_path / "config" / "retrieval_saved.yaml").read_text()


def test_generate_benchmark(study: TracedProject, tmp_path: Path) -> None:
    run("generate_benchmark", study, tmp_path)
    (folder,) = (tmp_path / "raid" / "data").iterdir()
    assert folder.name == f"remotes_small_{study.sha}"
    assert {"corpus.jsonl", "random", "novel_premises", "metadata.json"} <= {
        path.name for path in folder.iterdir()
    }
    theorems = [row["full_name"] for row in json.loads((folder / "random" / "test.json").read_text())]
    assert "use2" in theorems


def everlean(*words: str) -> Mapping[str, Any]:
    result = CliRunner().invoke(build(), words)
    assert result.exit_code == 0, result.output
    return {"out": result.stdout, "said": result.stderr}


def test_trace_writes_a_dataset_and_the_database_traces_too(study: TracedProject, tmp_path: Path) -> None:
    result = everlean(
        "trace", f"{study.url}@{study.sha}", "--out", "dataset", "--json", "--config", str(study.config)
    )
    (row,) = json.loads(result["out"])["repositories"]
    assert (row["repository"], row["commit"], row["theorems"]) == (KEY, study.sha, 10)
    assert (tmp_path / "dataset" / "corpus.jsonl").is_file()
    before = study.events()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    for addresses, out, said in (
        (("file:///nowhere",), "mine", "no export made it"),
        ((study.url, "nonsense"), "other", "neither a URL nor a path"),
    ):
        refused = CliRunner().invoke(build(), ("trace", *addresses, "--out", out))
        assert said in str(refused.exception), "before anything is fetched"
    assert study.events() == before
    script = tmp_path / "database.py"
    script.write_text(
        "from lean_dojo_v2.database.dynamic_database import DynamicDatabase\n"
        "from lean_dojo_v2.lean_dojo import LeanGitRepo\n"
        f"repo = LeanGitRepo.from_path({str(study.remote.path)!r})\n"
        "database = DynamicDatabase('database.json')\n"
        "assert database.trace_repository(repo.url, repo.commit).total_theorems == 10\n"
        "database.to_json()\n"
    )
    everlean("leandojo", "run", "-m", "database")
    (repository,) = DynamicDatabase(tmp_path / "database.json").repositories
    assert repository.commit == study.sha


def test_leanprogress(study: TracedProject, tmp_path: Path) -> None:
    model = make_tiny_classifier(tmp_path / "bert", hidden=16, layers=1)
    dataset = "raid/data/sample_leanprogress_dataset.jsonl"
    module = ("leandojo", "run", "-m", "lean_dojo_v2.lean_progress")
    everlean(*module[:3], f"{module[3]}.create_sample_dataset", "--output", dataset)
    run("leanprogress", study, tmp_path, bert=str(model))
    assert (tmp_path / "outputs-progress" / "config.json").is_file()
    steps = ("--output-dir", "steps", "--model-name", str(model), "--epochs", "1")
    everlean(*module[:3], f"{module[3]}.train_steps_model", "--dataset", dataset, *steps)
    assert (tmp_path / "steps" / "config.json").is_file()
