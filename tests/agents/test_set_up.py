"""Setting a repository up: what is recorded where all is well, and that nothing is where it is not."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from daemon.leandojo import AgentError, BaseAgent, ExternalAgent
from daemon.place.lock import AlreadyRunningError, DaemonLock, holder
from store.leandojo import DynamicDatabase
from tests.support.daemon.remote import Remote
from tests.support.daemon.traced_project import FILES, KEY, TracedProject

UNKNOWN = "1" * 40


def agent(**named: Any) -> BaseAgent:
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
    said: list[str] = []
    again = agent(say=said.append)
    again.setup_github_repository(study.url, "main")
    assert study.events() == before
    assert [repo.commit for repo in again.repos] == [study.sha]
    counted = "4 files, 10 theorems, 9 tactics, 1 open sorry"
    assert said == [f"{KEY} at {study.sha[:10]}: {counted}"]


def test_an_agent_works_in_a_thread_with_an_event_loop(study: TracedProject) -> None:
    async def cell() -> str:
        made = agent()
        made.setup_github_repository(study.url, "main")
        return made.repos[0].commit

    assert asyncio.run(cell()) == study.sha


def test_leandojo_s_database_is_written_to_its_path(study: TracedProject, tmp_path: Path) -> None:
    path = tmp_path / "dynamic_database.json"
    again = agent(database_path=path)
    again.setup_github_repository(study.url, study.sha)
    (repository,) = DynamicDatabase(path).repositories
    assert (repository.url, repository.commit) == (study.url, study.sha)
    assert [repo.commit for repo in again.database.repositories] == [study.sha]


def test_a_later_commit_is_observed_on_its_branch_and_an_earlier_one_beside_it(study: TracedProject) -> None:
    own = study.folder / "remotes" / "small"
    shutil.copytree(study.remote.path, own)
    remote = Remote.at(own)
    second = remote.commit("second", {"New.lean": "theorem new : 1 = 1 := sorry\n"})
    agent().setup_local_repository(own)
    back = agent()
    back.setup_github_repository(f"file://{own}", study.sha)
    observed = [(event.data["branch"], event.data["sha"]) for event in study.events("commit_observed")]
    assert observed == [("main", study.sha), ("main", second), (f"at-{study.sha[:12]}", study.sha)]
    assert [repo.branch for repo in back.repos] == [f"at-{study.sha[:12]}"]
    forth = agent()
    forth.setup_local_repository(own)
    assert [repo.branch for repo in forth.repos] == ["main"]
    assert not study.events("branch_rewritten", "branch_deleted", "repository_unwatched")


def fails(study: TracedProject, url: str, commit: str, **named: Any) -> str:
    before = study.events()
    made = agent(**named)
    with pytest.raises(AgentError) as error:
        made.setup_github_repository(url, commit)
    assert study.events() == before
    assert made.repos == []
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
        agent().setup_local_repository(tmp_path / "nothing")
    (tmp_path / "bare").mkdir()
    with pytest.raises(AgentError, match="`git init` and a first commit"):
        agent().setup_local_repository(tmp_path / "bare")


def test_without_lean_nothing_is_traced(study: TracedProject, tmp_path: Path) -> None:
    other = Remote(tmp_path / "remotes" / "other")
    sha = other.commit("first", {**FILES, "lean-toolchain": "leanprover/lean4:v4.9.0\n"})
    said = fails(study, str(other.path), sha, lean="auto")
    assert "nothing here runs its Lean" in said
    with pytest.raises(AgentError, match="lean is 'coq': it takes one of auto, "):
        agent(lean="coq")


def test_a_repository_that_opted_out_is_refused(study: TracedProject) -> None:
    entry = f'[[repos]]\nurl = "{study.url}"\nopt_out = true\n'
    study.config.write_text(study.config.read_text(encoding="utf-8") + entry, encoding="utf-8")
    assert "its owners want no proofs (opt_out in" in fails(study, study.url, study.sha)


def test_a_configuration_that_is_not_valid_is_refused_with_its_line(study: TracedProject) -> None:
    study.config.write_text("[prove]\nrungs = [7]\n", encoding="utf-8")
    with pytest.raises(AgentError, match=r"config.toml:2: prove.rungs.*has no rung 7"):
        agent()
    with pytest.raises(AgentError, match=r"named by --config, is not a file"):
        agent(config=study.folder / "other.toml")


def test_the_holder_of_the_state_folder_is_named(study: TracedProject) -> None:
    before = study.events()
    daemon = DaemonLock.acquire(study.paths.lock)
    try:
        with pytest.raises(
            AlreadyRunningError, match=rf"held by process {os.getpid()}.*stop it first"
        ) as error:
            agent().setup_github_repository(study.url, study.sha)
    finally:
        daemon.release()
    assert error.value.pid == os.getpid()
    assert study.events() == before


def test_an_endpoint_gets_no_request_before_its_prices_are_set(study: TracedProject) -> None:
    made = agent()
    made.setup_github_repository(study.url, study.sha)
    with pytest.raises(AgentError, match="needs usd_per_day under"):
        made.prove()
    with pytest.raises(AgentError, match="base_url would send the key unencrypted"):
        ExternalAgent(base_url="http://example.org/v1")
    with pytest.raises(AgentError, match="trains nothing"):
        made.train()
    assert not study.events("attempt_finished")


def test_without_a_repository_there_is_nothing_to_train_on_and_nothing_to_prove(study: TracedProject) -> None:
    with pytest.raises(ValueError, match="No repository loaded"):
        agent().train()
    assert agent().prove().sorries == ()
