"""Agents as LeanDojo's users have them: a repository set up, agents and provers of one's own with the gate behind them,
and a trainer in the agent's own process.

In one file, since the repository is set up with Lean itself once in each process of the tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from daemon.leandojo import (
    AgentError,
    BaseAgent,
    ExternalAgent,
    HFAgent,
    LeanAgent,
    LeanGitRepo,
    ProverConfig,
)
from daemon.leandojo.names import NAMES, in_place_of_leandojo, names_of, resolve
from daemon.leandojo.session import settings_for
from daemon.place.lock import AlreadyRunningError, DaemonLock, holder
from pipeline.models.errors import DivergedError
from pipeline.models.retriever.config import TrainingConfig
from pipeline.models.trainers import SFTTrainer
from pipeline.prove.provers import Prover
from store.leandojo import DynamicDatabase
from tests.support.daemon.remote import Remote
from tests.support.daemon.traced_project import FILES, KEY, TracedProject
from tests.support.models import describe

pytestmark = pytest.mark.timeout(300)


# ---- set up


UNKNOWN = "1" * 40


def of_an_endpoint(**named: Any) -> BaseAgent:
    return ExternalAgent(base_url="http://127.0.0.1:1/v1", **{"say": lambda _line: None, **named})


def test_a_repository_that_was_set_up_is_shown_by_everlean(study: TracedProject) -> None:
    assert [
        event.type for event in study.events("repository_watched", "branch_created", "commit_traced")
    ] == [
        "repository_watched",
        "branch_created",
        "commit_traced",
    ]
    assert [row["repository"] for row in study.everlean("repos")["repositories"]] == [KEY]
    assert [row["declaration"] for row in study.everlean("sorries", "list")["sorries"]] == ["four"]
    assert {row["kind"] for row in study.everlean("jobs", "list")["jobs"]} == {"scan", "build", "trace"}


def test_a_second_set_up_records_nothing_and_prints_the_counts(study: TracedProject) -> None:
    before = study.events()
    lines: list[str] = []
    again = of_an_endpoint(say=lines.append)
    again.setup_github_repository(study.url, "main")
    assert study.events() == before
    assert [repo.commit for repo in again.repos] == [study.sha]
    counted = "4 files, 10 theorems, 9 tactics, 1 open sorry"
    assert lines == [f"{KEY} at {study.sha[:10]}: {counted}"]


def test_an_agent_works_in_a_thread_with_an_event_loop(study: TracedProject) -> None:
    async def cell() -> str:
        result = of_an_endpoint()
        result.setup_github_repository(study.url, "main")
        return result.repos[0].commit

    assert asyncio.run(cell()) == study.sha


def test_leandojo_s_database_is_written_to_its_path(study: TracedProject, tmp_path: Path) -> None:
    path = tmp_path / "dynamic_database.json"
    again = of_an_endpoint(database_path=path)
    again.setup_github_repository(study.url, study.sha)
    (repository,) = DynamicDatabase(path).repositories
    assert (repository.url, repository.commit) == (study.url, study.sha)
    assert [repo.commit for repo in again.database.repositories] == [study.sha]


def test_a_later_commit_is_observed_on_its_branch_and_an_earlier_one_beside_it(study: TracedProject) -> None:
    own = study.folder / "remotes" / "small"
    shutil.copytree(study.remote.path, own)
    remote = Remote.at(own)
    second = remote.commit("second", {"New.lean": "theorem new : 1 = 1 := sorry\n"})
    of_an_endpoint().setup_local_repository(own)
    back = of_an_endpoint()
    back.setup_github_repository(f"file://{own}", study.sha)
    observed = [(event.data["branch"], event.data["sha"]) for event in study.events("commit_observed")]
    assert observed == [("main", study.sha), ("main", second), (f"at-{study.sha[:12]}", study.sha)]
    assert [repo.branch for repo in back.repos] == [f"at-{study.sha[:12]}"]
    forth = of_an_endpoint()
    forth.setup_local_repository(own)
    assert [repo.branch for repo in forth.repos] == ["main"]
    assert not study.events("branch_rewritten", "branch_deleted", "repository_unwatched")


def fails(study: TracedProject, url: str, commit: str, **named: Any) -> str:
    before = study.events()
    result = of_an_endpoint(**named)
    with pytest.raises(AgentError) as error:
        result.setup_github_repository(url, commit)
    assert study.events() == before
    assert result.repos == []
    assert holder(study.paths.lock) is None
    return str(error.value)


def test_a_failed_set_up_changes_nothing_and_names_the_remedy(study: TracedProject, tmp_path: Path) -> None:
    nowhere = fails(study, f"file://{tmp_path}/nowhere", "main")
    assert "cannot be read" in nowhere
    assert "check the address" in nowhere
    assert "neither a URL nor a path" in fails(study, "lean4-example", "main")
    secret = fails(study, "https://me:hunter2@example.org/owner/name", "main")
    assert "credentials" in secret
    assert "hunter2" not in secret
    assert f"no branch has the commit {UNKNOWN}; push it" in fails(study, study.url, UNKNOWN)
    assert "neither a commit's full id (40 digits" in fails(study, study.url, study.sha[:12])


def test_a_repository_without_lean_files_is_refused(study: TracedProject, tmp_path: Path) -> None:
    other = Remote(tmp_path / "remotes" / "python")
    sha = other.commit("first", {"setup.py": ""})
    assert "is no Lean project: it has no .lean file" in fails(study, str(other.path), sha)
    with pytest.raises(AgentError, match="there is no such folder"):
        of_an_endpoint().setup_local_repository(tmp_path / "nothing")
    (tmp_path / "bare").mkdir()
    with pytest.raises(AgentError, match="`git init` and a first commit"):
        of_an_endpoint().setup_local_repository(tmp_path / "bare")


def test_without_lean_nothing_is_traced(study: TracedProject, tmp_path: Path) -> None:
    other = Remote(tmp_path / "remotes" / "other")
    sha = other.commit("first", {**FILES, "lean-toolchain": "leanprover/lean4:v4.9.0\n"})
    said = fails(study, str(other.path), sha, lean="auto")
    assert "nothing here runs its Lean" in said
    with pytest.raises(AgentError, match="lean is 'coq': it takes one of auto, "):
        of_an_endpoint(lean="coq")


def test_a_repository_that_opted_out_is_refused(study: TracedProject) -> None:
    entry = f'[[repos]]\nurl = "{study.url}"\nopt_out = true\n'
    study.config.write_text(study.config.read_text(encoding="utf-8") + entry, encoding="utf-8")
    assert "its owners want no proofs (opt_out in" in fails(study, study.url, study.sha)


def test_a_configuration_that_is_not_valid_is_refused_with_its_line(study: TracedProject) -> None:
    study.config.write_text("[prove]\nrungs = [7]\n", encoding="utf-8")
    with pytest.raises(AgentError, match=r"config.toml:2: prove.rungs.*has no rung 7"):
        of_an_endpoint()
    with pytest.raises(AgentError, match=r"named by --config, is not a file"):
        of_an_endpoint(config=study.folder / "other.toml")


def test_the_holder_of_the_state_folder_is_named(study: TracedProject) -> None:
    before = study.events()
    daemon = DaemonLock.acquire(study.paths.lock)
    try:
        with pytest.raises(
            AlreadyRunningError, match=rf"held by process {os.getpid()}.*stop it first"
        ) as error:
            of_an_endpoint().setup_github_repository(study.url, study.sha)
    finally:
        daemon.release()
    assert error.value.pid == os.getpid()
    assert study.events() == before


def test_an_endpoint_gets_no_request_before_its_prices_are_set(study: TracedProject) -> None:
    result = of_an_endpoint()
    result.setup_github_repository(study.url, study.sha)
    with pytest.raises(AgentError, match="needs usd_per_day under"):
        result.prove()
    with pytest.raises(AgentError, match="base_url would send the key unencrypted"):
        ExternalAgent(base_url="http://example.org/v1")
    with pytest.raises(AgentError, match="trains nothing"):
        result.train()
    assert not study.events("attempt_finished")


def test_without_a_repository_there_is_nothing_to_train_on_and_nothing_to_prove(study: TracedProject) -> None:
    with pytest.raises(ValueError, match="No repository loaded"):
        of_an_endpoint().train()
    assert of_an_endpoint().prove().sorries == ()


# ---- agents and provers of one's own


class Says(Prover):
    """A prover as LeanDojo's users write one: it suggests these tactics, and writes this whole proof."""

    def __init__(self, *tactics: str, whole: str = "") -> None:
        super().__init__()
        self.tactics, self.whole = tactics, whole
        self.asked: list[str] = []

    def next_tactic(self, state: Any, goal_id: int = 0) -> str | None:
        self.asked.append(state)
        tried = self.asked.count(state)
        return self.tactics[tried - 1] if tried <= len(self.tactics) else None

    def generate_whole_proof(self, theorem: Any, server: Any = None) -> str:
        self.asked.append(theorem)
        return self.whole


class Trainer:
    def train(self, repos: Any, database: Any, data_path: Path) -> str:
        database.export_merged_data(repos, data_path)
        return f"{len(repos)} repositories, {(data_path / 'corpus.jsonl').is_file()}"


class Own(BaseAgent):
    def __init__(self, prover: Any, **named: Any) -> None:
        super().__init__(say=lambda _line: None, **named)
        self.trainer = Trainer()
        self.own = prover

    def _get_build_deps(self) -> bool:
        return False

    def _setup_prover(self) -> None:
        self.prover = self.own


def test_an_own_agent_trains_and_proves_and_the_gate_judges(study: TracedProject) -> None:
    prover = Says("nonsense", "rfl")
    agent = Own(prover)
    agent.setup_github_repository(study.url, study.sha)
    assert agent.train() == "1 repositories, True"
    ((theorem, repo),) = agent.initialize_prover()
    assert (theorem.full_name, repo.commit) == ("four", study.sha)
    assert agent.prove_theorem(theorem, repo) is None, (
        "the tests' library is not Lean's own: it is not proved"
    )
    assert prover.asked[0] == "⊢ 2 + 2 = 4"
    (attempt,) = study.events("attempt_finished")
    assert (attempt.data["model"], attempt.data["outcome"]) == ("Says", "found")
    (result,) = study.everlean("proofs")["proofs"]
    assert (result["declaration"], result["state"]) == ("four", "candidate")
    assert not study.events("job_failed", "job_interrupted")


class Duck:
    """What has LeanDojo's methods, and none of our classes."""

    def __init__(self, whole: str) -> None:
        self.whole = whole

    def next_tactic(self, state: Any, goal_id: int) -> str | None:
        return None

    def generate_whole_proof(self, theorem: Any) -> str:
        return self.whole


@pytest.mark.parametrize(("whole", "verdict"), [("by\n  sorry", "not found"), ("by\n  rfl", "unjudged")])
def test_whoever_has_the_methods_is_a_prover_whose_proofs_count_by_lean_s_word_alone(
    study: TracedProject, whole: str, verdict: str
) -> None:
    agent = Own(Duck(whole))
    agent.add_repository(LeanGitRepo(study.url, study.sha))
    (item,) = agent.prove(whole_proof=True).sorries
    assert item.verdict == verdict


def test_what_is_no_prover_is_refused(study: TracedProject) -> None:
    agent = Own(object())
    agent.setup_github_repository(study.url, study.sha)
    with pytest.raises(TypeError, match="it has no next_tactic"):
        agent.prove()
    agent.own = None
    with pytest.raises(AgentError, match=r"set self\.prover in _setup_prover"):
        agent.prove()


def test_a_prover_s_configuration_sets_the_budgets(study: TracedProject) -> None:
    prove = ProverConfig(timeout=7, max_expansions=3, num_sampled_tactics=5).applied(settings_for().prove)
    assert (prove.seconds_per_sorry, prove.nodes_per_sorry, prove.generator.candidates) == (7.0, 3, 5)


def test_scripts_that_name_no_configuration_have_a_store_of_their_own_in_raid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVERLEAN_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert settings_for().paths.state == tmp_path / "raid" / "everlean"
    monkeypatch.setenv("RAID_DIR", str(tmp_path / "fast"))
    assert settings_for().paths.state == tmp_path / "fast" / "everlean"
    (tmp_path / "fast" / "everlean.toml").write_text("[lean]\nbackend = 'none'\n")
    assert settings_for().lean.backend == "none", "what a person wrote there stays"


def test_every_name_of_leandojo_s_is_found_and_one_that_is_not_says_what_is_there() -> None:
    assert all(resolve(module, name) is not None for module, own in NAMES.items() for name in own)
    with in_place_of_leandojo():
        assert import_module("lean_dojo_v2.agent").HFAgent.__module__ == "daemon.leandojo.agents"
        assert import_module("lean_dojo_v2.lean_agent.database").Repository.__module__.startswith(
            "store.leandojo"
        )
        with pytest.raises(ModuleNotFoundError):
            import_module("lean_dojo_v2.unknown")
    assert {"HFAgent", "LeanAgent"} <= names_of("agent").keys()
    assert names_of("lean_agent.database") == names_of("database")
    with pytest.raises(AttributeError, match="generate_benchmark"):
        resolve("lean_dojo", "trace")


def test_an_own_agent_is_measured_by_its_own_trainer(study: TracedProject) -> None:
    agent = Own(None)
    agent.setup_github_repository(study.url, study.sha)
    with pytest.raises(AgentError, match="has no model in the store"):
        agent.evaluate()


# ---- trained


@pytest.fixture
def agent(study: TracedProject, says_rfl: str) -> HFAgent:
    trainer = SFTTrainer(says_rfl, output_dir=study.folder / "outputs", device="cpu")
    result = HFAgent(trainer, say=lambda _line: None)
    result.setup_github_repository(study.url, study.sha)
    return result


def ends_with(error: BaseException) -> Any:
    def train(*_: Any, **__: Any) -> None:
        raise error

    return train


def learns_nothing(trainer: SFTTrainer) -> Any:
    """Return a training of no step: the model that it begins with, and what a trainer says of it."""

    def train(repos: Any, *_: Any) -> None:
        folder = shutil.copytree(trainer.model_name, Path(trainer.output_dir), dirs_exist_ok=True)
        describe(folder, learned=tuple(f"{repo.url}@{repo.commit}" for repo in repos))

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
    two = LeanAgent(training_config=TrainingConfig(num_gpus=2), say=print).settings.train
    assert (two.gpus, two.retriever["batch_size"], "num_gpus" in two.retriever) == (2, 2, False)
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
