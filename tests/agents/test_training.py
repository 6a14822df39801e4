"""A trainer in the agent's own process: how a training that does not end well is recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from daemon.leandojo import AgentError, HFAgent, LeanAgent
from daemon.place.lock import holder
from pipeline.models.errors import DivergedError, NothingToLearnError
from pipeline.models.retriever import TrainingConfig
from pipeline.models.tactics import SFTTrainer
from tests.support.daemon.remote import Remote
from tests.support.daemon.traced_project import TracedProject

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def agent(study: TracedProject, says_rfl: str) -> HFAgent:
    trainer = SFTTrainer(says_rfl, output_dir=study.folder / "outputs", device="cpu", say=lambda _line: None)
    made = HFAgent(trainer, say=lambda _line: None)
    made.setup_github_repository(study.url, study.sha)
    return made


def test_another_spelling_of_the_address_is_the_same_repository(
    study: TracedProject, says_rfl: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = SFTTrainer(says_rfl, output_dir=study.folder / "outputs", device="cpu", say=lambda _line: None)
    made = HFAgent(trainer, say=lambda _line: None)
    made.setup_local_repository(study.remote.path)
    assert len(study.events("commit_traced")) == 1
    monkeypatch.setattr(trainer, "train", ends_with(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        made.train()


def ends_with(error: BaseException) -> Any:
    def train(*_: Any, **__: Any) -> None:
        raise error

    return train


def test_a_training_that_is_stopped_is_recorded_so_and_can_be_begun_again(
    study: TracedProject, agent: HFAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent.trainer, "train", ends_with(KeyboardInterrupt()))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            agent.train()
    ended = study.events("job_interrupted")
    assert [(event.data["attempt"], event.data["reason"]) for event in ended] == [
        (1, "the agent was stopped"),
        (2, "the agent was stopped"),
    ]
    assert holder(study.paths.lock) is None
    assert not study.events("checkpoint_saved")


def test_a_training_that_fails_is_a_failed_job_with_its_reason(
    study: TracedProject, agent: HFAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent.trainer, "train", ends_with(DivergedError("the loss is nan")))
    with pytest.raises(AgentError, match=r"was not learned: .*the loss is nan"):
        agent.train()
    (failed,) = study.events("job_failed")
    assert (failed.data["reason"], failed.data["deterministic"]) == (
        DivergedError.reason,
        DivergedError.for_good,
    )
    (job,) = [row for row in study.everlean("jobs")["jobs"] if row["kind"] == "train_tactics"]
    assert job["state"] == "failed"


def test_a_repository_without_a_step_to_learn_is_reported_and_skipped(
    study: TracedProject, agent: HFAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent.trainer, "train", lambda *_: [])
    said: list[str] = []
    again = HFAgent(agent.trainer, say=said.append)
    again.setup_github_repository(study.url, study.sha)
    assert again.train() == ()
    assert "has no step of a proof to learn from" in said[-1]
    assert [event.data["reason"] for event in study.events("job_failed")] == [NothingToLearnError.reason]


def test_an_agent_is_measured_on_the_commit_that_it_was_set_up_at_whatever_was_traced_since(
    study: TracedProject, agent: HFAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = study.folder / "remotes" / "small"
    shutil.copytree(study.remote.path, own)
    later = "".join(f"theorem later{n} (p : Prop) (h : p) : p := by\n  exact h\n\n" for n in range(20))
    Remote.at(own).commit("second", {"Later.lean": later})
    retrieving = LeanAgent(say=lambda _line: None)
    retrieving.setup_github_repository(study.url, study.sha)
    HFAgent(agent.trainer, say=lambda _line: None).setup_local_repository(own)
    with pytest.raises(AgentError, match=r"was traced since, .* set the repository up again"):
        retrieving.train()
    assert len(study.events("commit_traced")) == 2
    monkeypatch.setattr(agent.trainer, "train", ends_with(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        agent.train()
    (dataset,) = (study.paths.models / "tactics" / ".datasets").iterdir()
    theorems = [
        theorem["full_name"]
        for split in ("train", "val", "test")
        for theorem in json.loads((dataset / "random" / f"{split}.json").read_text(encoding="utf-8"))
    ]
    assert "use2" in theorems
    assert not [name for name in theorems if name.startswith("later")]


def test_a_lean_agent_trains_as_leandojo_s_configuration_says_whether_it_is_given_one_or_none(
    study: TracedProject,
) -> None:
    usual = LeanAgent(say=print).settings.train
    assert usual == LeanAgent(training_config=TrainingConfig(), say=print).settings.train
    config = usual.of("retriever").config
    assert (config["against_forgetting"], config["lambda_value"], config["loss"]) == ("ewc", 0.1, "mse")
    with study.config.open("a", encoding="utf-8") as file:
        file.write("[train.retriever]\nlr = 0.5\n")
    assert LeanAgent(say=print).settings.train.of("retriever").config == {**config, "lr": 0.5}


def test_an_untrained_model_cannot_be_measured(agent: HFAgent) -> None:
    with pytest.raises(AgentError, match="holds no model that this agent trained; call train"):
        agent.evaluate()


def test_settings_of_leandojo_that_have_another_place_here_are_refused(agent: HFAgent) -> None:
    with pytest.raises(AgentError, match="give the trainer its settings"):
        HFAgent(agent.trainer, training_config=Path())  # type: ignore[arg-type]
