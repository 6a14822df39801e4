"""LeanDojo-v2's documented scripts, as they stand in examples/leandojo, on tiny models: what they do is in the store.

They run in one process, one after the other, for the training libraries are loaded once; each has a store of its own.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.models.retriever import TrainingConfig
from pipeline.models.tactics.models import Lengths
from tests.support.chat_server import ChatServer, Says
from tests.support.daemon.traced_project import KEY, TracedProject
from tests.support.tiny_models import make_tiny_retriever, make_tiny_seq2seq

pytestmark = pytest.mark.timeout(300)
SCRIPTS = Path(__file__).parents[2] / "examples" / "leandojo"


def run(name: str, study: TracedProject, **constants: Any) -> None:
    """Run a script's `main` with the constants at its top changed, as a reader would."""
    text = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    for constant, value in {"url": study.url, "commit": study.sha, **constants}.items():
        line = f"{constant} = {value!r}"
        text, found = re.subn(rf"(?m)^{constant} = .*$", line.replace("\\", "\\\\"), text)
        assert found == 1, f"{name}.py has no {constant} at its top"
    module: dict[str, Any] = {"__name__": f"examples.leandojo.{name}"}
    exec(compile(text, f"{name}.py", "exec"), module)
    module["main"]()


@dataclass(frozen=True)
class Proved:
    """The store after the script external.py, what that printed, and the models that the endpoint was asked for."""

    study: TracedProject
    said: str
    asked: frozenset[str]


@pytest.fixture(scope="session")
def proved_once(set_up_once: TracedProject, tmp_path_factory: pytest.TempPathFactory) -> Proved:
    study = set_up_once.copied(tmp_path_factory.mktemp("proved"))
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as said,
        ChatServer([Says("```lean\nby rfl\n```")]) as server,
    ):
        patch.setenv("EVERLEAN_CONFIG", str(study.config))
        run("external", study, model_name="a-model", base_url=server.url)
        return Proved(study, said.getvalue(), frozenset(request.body["model"] for request in server.requests))


@pytest.fixture
def proved(proved_once: Proved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TracedProject:
    """A store in which the one sorry has its proof, so that nothing is tried again."""
    made = proved_once.study.copied(tmp_path)
    monkeypatch.setenv("EVERLEAN_CONFIG", str(made.config))
    monkeypatch.chdir(tmp_path)
    return made


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
    (found,) = study.everlean("proofs")["proofs"]
    assert (found["declaration"], found["state"]) == ("four", "candidate")
    assert re.search(r"four: found: could not be checked: .*\n    rfl", proved_once.said)
    assert "1 sorry: 1 unjudged" in proved_once.said
    assert_every_job_ended_well(study)


def test_sft(study: TracedProject, says_rfl: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("sft", study, model_name=says_rfl, output_dir="outputs")
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
    (found,) = study.everlean("proofs")["proofs"]
    assert (found["declaration"], found["state"], found["rung"]) == ("four", "candidate", 2)
    said = capsys.readouterr().out
    assert f"{KEY}, test: tactic@1" in said
    assert "1 sorry: 1 unjudged" in said
    assert_every_job_ended_well(study)


@pytest.mark.slow
def test_lora(proved: TracedProject, says_rfl: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("lora", proved, model_name=says_rfl, output_dir="outputs")
    (saved,) = proved.events("checkpoint_saved")
    assert (
        proved.paths.models / "tactics" / saved.data["checkpoint"] / "adapter_model.safetensors"
    ).is_file()
    assert saved.data["config"]["lora"]["r"] == 16
    assert "four: found: could not be checked: " in capsys.readouterr().out
    assert {one["rung"] for one in attempts(proved).values()} == {4}, "what has its proof was tried again"
    assert_every_job_ended_well(proved)


def test_grpo(proved: TracedProject, says_rfl: str) -> None:
    run("grpo", proved, model_name=says_rfl, output_dir="outputs")
    (saved,) = proved.events("checkpoint_saved")
    assert saved.data["config"]["kind"] == "grpo"
    assert_every_job_ended_well(proved)


@pytest.mark.slow
def test_lean_agent(study: TracedProject, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = TrainingConfig(
        model_name=str(make_tiny_retriever(tmp_path / "retriever", d_model=16, layers=1)),
        precision="32-true",
        num_workers=0,
        batch_size=2,
        accumulate_grad_batches=1,
        max_seq_len=64,
        data_max_seq_len=64,
        warmup_steps=0,
        fisher_samples=4,
        device="cpu",
    )
    generator = make_tiny_seq2seq(tmp_path / "generator", d_model=16, layers=1)
    Lengths(prompt=256, answer=8).save(generator)
    run("lean_agent", study, config=config, generator=str(generator))
    (saved,) = study.everlean("models")["checkpoints"]
    assert (saved["model"], saved["promoted"]) == ("retriever", True)
    assert {event.data["model"] for event in study.events("evaluation_finished")} == {"retriever"}
    assert {(one["rung"], one["model"]) for one in attempts(study).values()} == {
        (1, f"{saved['checkpoint']}+{generator}")
    }
    said = capsys.readouterr().out
    assert f"{KEY}, test: " in said
    assert "recall@10" in said
    assert "four: not found: " in said
    assert_every_job_ended_well(study)
