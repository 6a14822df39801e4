"""The ladder's rungs on the open sorries of repositories at pinned commits, as the daemon tries them.

Each arm has a store of its own, copied after the repositories are fetched, built and traced: a sorry solved
by one arm is still open for another. A sorry counts as solved if the whole gate has verified its proof.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NoReturn

from pydantic import BaseModel, ValidationError

from daemon.leandojo import AgentError
from daemon.leandojo.agents import BaseAgent
from daemon.leandojo.repository import Pinned, address
from daemon.leandojo.session import AgentSession, Say
from daemon.place.paths import Paths
from daemon.settings.models import Prove
from daemon.settings.types import repository_key
from experiments.file import ExperimentError, Repositories, Repository, SorryDB
from experiments.lab import Lab, Trial
from store.view.rows import CheckpointRow


class RungAgent(BaseAgent):
    """An agent for one rung, with its seconds for a sorry, with the configured models."""

    rung = 0
    seconds = 60.0

    @classmethod
    def of(cls, repositories: Repositories, say: Say) -> tuple[RungAgent, list[Pinned]]:
        """Return an agent, and these repositories, fetched, built and traced; finished work is not repeated.

        Raises:
            AgentError: one cannot be read, built or traced.
        """
        agent = cls(state_dir=repositories.state, config=repositories.config, say=say)
        result = []
        for repository in repositories.repositories:
            agent._set_up(address(repository.url), repository.commit)
            result.append(agent.repos[-1])
        return agent, result

    def _proving(self, session: AgentSession, prove: Prove, whole_proof: bool) -> Prove:  # noqa: ARG002
        own = {"seconds_per_sorry": self.seconds}
        parts = {
            name: getattr(prove, name).model_copy(update=own) for name in ("generator", "whole", "external")
        }
        return prove.model_copy(update={"rungs": (self.rung,), "nodes_per_sorry": 1_000_000, **own, **parts})

    def _train(self) -> tuple[CheckpointRow, ...]:
        return ()

    def _measured_checkpoint(self, session: AgentSession) -> NoReturn:  # noqa: ARG002
        raise AgentError("an agent of one rung has no model of its own to measure")


class _Repo(BaseModel):
    remote: str
    commit: str


class _Location(BaseModel):
    path: str
    start_line: int


class _Sorry(BaseModel):
    repo: _Repo
    location: _Location


class _List(BaseModel):
    sorries: tuple[_Sorry, ...]


Listed = frozenset[tuple[str, str, str, int]]
"""The repository's key, the commit, the file's path and the line of each sorry of a list."""


def of_sorrydb(source: SorryDB) -> tuple[Repositories, Listed]:
    """Return the repositories of a list of SorryDB's, each at its commit, and its sorries.

    Raises:
        ExperimentError: the file is no such list.
    """
    try:
        sorries = _List.model_validate_json(source.file.read_bytes()).sorries
    except (OSError, ValidationError) as error:
        raise ExperimentError(
            f"{source.file} is no list of SorryDB's: {error}; take one from https://github.com/SorryDB/sorrydb-data"
        ) from error
    repositories = Repositories(
        source="repositories",
        state=source.state,
        config=source.config,
        repositories=tuple(
            Repository(url=url, commit=commit)
            for url, commit in dict.fromkeys((sorry.repo.remote, sorry.repo.commit) for sorry in sorries)
        ),
    )
    return repositories, frozenset(
        (
            repository_key(address(sorry.repo.remote)),
            sorry.repo.commit,
            sorry.location.path,
            sorry.location.start_line,
        )
        for sorry in sorries
    )


def solved_sorries(
    source: Repositories | SorryDB,
    rung: int,
    trial: Trial,
    lab: Lab,
    seconds: int,
    *,
    but_not: Collection[str],
) -> Mapping[str, float]:
    """Map each sorry but those of `but_not` to 1 if the rung solves it, else 0, by its id.

    Sorries in the arm's store, with an attempt of an interrupted run among them, are not tried again. For a
    list of SorryDB's all sorries of its repositories are tried, and its own are returned.

    Raises:
        ExperimentError: a repository cannot be read, built or traced, or the rung lacks its model.
    """
    source, listed = of_sorrydb(source) if isinstance(source, SorryDB) else (source, None)
    solved: dict[str, float] = {}
    try:
        agent, pinned = RungAgent.of(source, lab.say)
        own = lab.folder / "states" / trial.identity
        if not own.exists():
            _copy(agent.settings.paths, own)
        shared = agent.settings.paths
        paths = Paths(state=own, cache=shared.cache, runtime=own / "run")
        agent.settings = agent.settings.model_copy(update={"paths": paths})
        agent.rung, agent.seconds = rung, float(seconds)
        for one in pinned:
            # One at a time: a list may have several commits of one repository.
            agent.repos = [one]
            for sorry in agent.prove().sorries:
                row = sorry.sorry
                is_listed = listed is None or (one.key, one.commit, row.path, row.line) in listed
                if is_listed and row.sorry not in but_not:
                    solved[row.sorry] = max(solved.get(row.sorry, 0.0), float(sorry.verdict == "proved"))
    except AgentError as error:
        raise ExperimentError(str(error)) from error
    return solved


def _copy(paths: Paths, own: Path) -> None:
    """Copy a store without its cache; its models, unchanged here, are linked."""
    beside = own.with_name(f".{own.name}")
    shutil.rmtree(beside, ignore_errors=True)
    apart = {path.name for path in (paths.cache, paths.runtime, paths.models)}
    shutil.copytree(paths.state, beside, ignore=lambda _folder, names: apart & set(names))
    if paths.models.exists():
        (beside / paths.models.name).symlink_to(paths.models.absolute())
    beside.rename(own)
