"""From an address to a dataset: LeanDojo's tracing, on everlean's store."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.leandojo.agents import BaseAgent
from daemon.leandojo.session import AgentError, raid_folder
from store.leandojo import DynamicDatabase as Records
from store.leandojo import Repository


@dataclass(frozen=True, slots=True)
class LeanGitRepo:
    """A repository at a commit, for a trainer and `BaseAgent.add_repository`. Nothing is fetched yet."""

    url: str
    commit: str

    @property
    def name(self) -> str:
        return "/".join(self.url.removesuffix(".git").rstrip("/").split("/")[-2:])

    @classmethod
    def from_path(cls, path: str | Path) -> LeanGitRepo:
        """Return a clone on this machine at its newest commit.

        Raises:
            AgentError: the folder is no git repository with a commit.
        """
        folder = Path(path).expanduser().absolute()
        result = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise AgentError(
                f"{folder}: is no git repository with a commit; `git init` and a first commit make one"
            )
        return cls(str(folder), result.stdout.strip())


def generate_benchmark(
    repos: Sequence[tuple[str, str] | LeanGitRepo],
    build_deps: bool = False,
    output_dir: str | Path | None = None,
    **session: Any,
) -> list[Path]:
    """Trace repositories and write each as a dataset: corpus.jsonl, random/, novel_premises/, metadata.json.

    Args:
        repos: (url, commit) of each; see `BaseAgent.setup_github_repository`.
        build_deps: as LeanDojo's; a build here always has the dependencies, and a trace the repository's own
            files.
        output_dir: gets a folder for each, `owner_name_commit`; None: `data` in `raid_folder`, where
            `RetrievalTrainer.evaluate` looks for datasets.
        session: see `BaseAgent`.

    Raises:
        AgentError: one cannot be traced.
        store.errors.LogError: something other than an export lies in the place of a folder.
    """
    agent = BaseAgent(**session)
    result = []
    for one in repos:
        url, commit = (one.url, one.commit) if isinstance(one, LeanGitRepo) else one
        repo = agent.trace_repository(url, commit, build_deps)
        result.append(
            Path(output_dir or raid_folder() / "data") / f"{repo.name.replace('/', '_')}_{repo.commit}"
        )
        agent.export([repo], result[-1])
    return result


class DynamicDatabase(Records):
    """`store.leandojo.DynamicDatabase` whose `trace_repository` traces."""

    def trace_repository(self, url: str, commit: str, build_deps: bool = False) -> Repository | None:
        """Trace a commit in the store of the scripts (see `daemon.leandojo.session`), add it, and return
        it."""
        if self._tracer is None:
            self._tracer = BaseAgent().trace_repository
        return super().trace_repository(url, commit, build_deps)
