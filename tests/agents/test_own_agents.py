"""Agents and provers of one's own: LeanDojo-v2's extension points, with the gate behind them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from daemon.leandojo import AgentError, BaseAgent, LeanGitRepo, ProverConfig
from daemon.leandojo.names import NAMES, in_place_of_leandojo, names_of, resolve
from daemon.leandojo.session import settings_for
from pipeline.prove.provers import Prover
from tests.support.daemon.traced_project import TracedProject

pytestmark = pytest.mark.timeout(300)


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
    (found,) = study.everlean("proofs")["proofs"]
    assert (found["declaration"], found["state"]) == ("four", "candidate")
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
