"""A trainer in the agent's own process: what comes of its model, and of a training that does not end well."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from daemon.leandojo import AgentError, HFAgent, LeanAgent
from daemon.place.lock import holder
from pipeline.models.errors import DivergedError
from pipeline.models.retriever import TrainingConfig
from pipeline.models.tactics import SFTTrainer
from pipeline.models.tactics.training import RepositoryTrainer
from pipeline.models.trainer_folder import publish
from tests.support.daemon.remote import Remote
from tests.support.daemon.traced_project import TracedProject

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def agent(study: TracedProject, says_rfl: str) -> HFAgent:
    trainer = SFTTrainer(says_rfl, output_dir=study.folder / "outputs", device="cpu", say=lambda _line: None)
    made = HFAgent(trainer, say=lambda _line: None)
    made.setup_github_repository(study.url, study.sha)
    return made


def ends_with(error: BaseException) -> Any:
    def train(*_: Any, **__: Any) -> None:
        raise error

    return train


def learns_nothing(trainer: RepositoryTrainer) -> Any:
    """Return a training of no step: the model that it begins with, and what a trainer says of it."""

    def train(repos: Any, *_: Any) -> None:
        def write(folder: Path) -> None:
            shutil.copytree(trainer.model_name, folder, dirs_exist_ok=True)

        about = {"kind": "sft", **trainer.follows_from(), "rows": "", "fitted": {"steps": 0}, "seconds": 0.0}
        learned = [{"url": repo.url, "commit": repo.commit} for repo in repos]
        publish(Path(trainer.output_dir), write, {**about, "repositories": learned, "device": "cpu"})

    return train


def test_a_training_that_is_stopped_or_fails_leaves_no_checkpoint_and_gives_the_folder_back(
    study: TracedProject, agent: HFAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent.trainer, "train", ends_with(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        agent.train()
    monkeypatch.setattr(agent.trainer, "train", ends_with(DivergedError("the loss is nan")))
    with pytest.raises(AgentError, match=r"was not learned: the loss is nan"):
        agent.train()
    monkeypatch.setattr(agent.trainer, "train", lambda *_: [])
    assert agent.train() == ()
    assert holder(study.paths.lock) is None
    assert not study.events("checkpoint_saved", "model_offered")


def test_a_model_that_cannot_be_measured_is_a_failed_job_with_its_reason_until_it_can_be(
    study: TracedProject, agent: HFAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*given: Any) -> None:
        learns_nothing(agent.trainer)(*given)
        (study.folder / "outputs" / "tokenizer_config.json").write_text("{")

    monkeypatch.setattr(agent.trainer, "train", train)
    with pytest.raises(AgentError, match=r"train_tactics failed: .*the tokenizer of .* cannot be loaded"):
        agent.train()
    (failed,) = study.events("job_failed")
    assert failed.data["deterministic"]
    monkeypatch.setattr(agent.trainer, "train", learns_nothing(agent.trainer))
    (made,) = agent.train()
    assert made.promoted, "what failed in an earlier call is tried anew"


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
    monkeypatch.setattr(agent.trainer, "train", learns_nothing(agent.trainer))
    (made,) = agent.train()
    assert (made.promoted, made.data_seq > 0) == (True, True)
    (dataset,) = (study.paths.models / "tactics" / ".datasets").iterdir()
    theorems = [
        theorem["full_name"]
        for split in ("train", "val", "test")
        for theorem in json.loads((dataset / "random" / f"{split}.json").read_text(encoding="utf-8"))
    ]
    assert "use2" in theorems
    assert not [name for name in theorems if name.startswith("later")]
    assert agent.train() == (), "what was added is not added again"


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
