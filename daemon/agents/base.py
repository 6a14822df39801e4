"""Base of the agents: bring repositories in, trace them, prove sorries, measure models.

An agent works on the daemon's own store: it runs the same jobs, through the same plan, and appends the same events, so
that whatever it does is there for `unsorry status`, `sorries`, `proofs`, `models`, `jobs`. One process writes the log:
an agent holds the state folder while one of its calls lasts, and is refused while a daemon has it.
"""

from __future__ import annotations

import abc
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from daemon.agents.bringing import Pinned, address, bring, local_head
from daemon.agents.errors import AgentError
from daemon.agents.home import held, settings_for
from daemon.agents.results import Measured, ProveResult, count_sorries, results_of
from daemon.agents.workshop import Say, Workshop, in_a_loop
from daemon.settings import Settings
from pipeline.jobs.kinds import Kind
from store.leandojo import DynamicDatabase
from store.view import model_queries, queries, trace_queries
from store.view.rows import JobRow, SorryRow, TraceRow

TO_LEARN_FROM: frozenset[Kind] = frozenset({"scan", "build", "trace"})
TO_PROVE: frozenset[Kind] = frozenset({"build", "prove", "check"})

ALWAYS: Mapping[str, Any] = {"enabled": True, "hours_per_day": None}
"""The overrides of [prove] for a direct call: the daemon's hours do not apply."""


class BaseAgent(abc.ABC):
    """LeanDojo-v2's agent on our store; see the module.

    Attributes:
        settings: the daemon's, with what the caller named instead.
        repos: what was set up, each with `url` and `commit`.
    """

    def __init__(
        self,
        database_path: str | Path | None = None,
        *,
        state_dir: str | Path | None = None,
        config: str | Path | None = None,
        lean: str | None = None,
        say: Say = print,
    ) -> None:
        """Args:
        database_path: where LeanDojo's dynamic_database.json is written after each repository; None: nowhere.
        state_dir: the folder of the store; None: the one that `unsorry` uses.
        config: a config.toml; None: the one that `unsorry` would find.
        lean: what runs Lean, instead of [lean] backend; "simulator" where there is no Lean, for trying things out.
        say: takes lines of text for people.

        Raises:
            AgentError: the configuration is not valid.
        """
        self.settings = settings_for(config=config, state_dir=state_dir, lean=lean)
        self.repos: list[Pinned] = []
        self.database_path = None if database_path is None else Path(database_path)
        self._say = say

    @property
    def database(self) -> DynamicDatabase:
        """The store, as LeanDojo's database: to read at any time.

        Raises:
            AgentError: nothing was recorded yet.
        """
        if not self.settings.paths.events_db.is_file():
            raise AgentError(
                f"{self.settings.paths.state}: nothing is recorded there yet; set a repository up first"
            )
        return DynamicDatabase(self.settings.paths.state)

    @property
    def data_path(self) -> Path:
        """The folder for training datasets."""
        return self.settings.paths.cache / "agent" / "merged"

    def setup_github_repository(self, url: str, commit: str) -> None:
        """Fetch a repository, scan and trace one commit of it, and remember that.

        Args:
            url: its address, as `git clone` takes it.
            commit: the full id of a commit that one of its branches reaches, or a branch's name for its newest.

        Raises:
            AgentError: it cannot be read, is no Lean project, nothing here runs its Lean, or it cannot be traced; the
                message names the remedy.
            daemon.lock.AlreadyRunningError: a daemon, or another agent, holds the state folder.
        """
        self._set_up(address(url), commit)

    def setup_local_repository(self, path: str | Path) -> None:
        """As `setup_github_repository`, of a repository on this machine, at the commit that its branch stands at.

        What is not committed is not seen.
        """
        folder = Path(path).expanduser().absolute()
        if not folder.is_dir():
            raise AgentError(f"{folder}: there is no such folder; name the folder of a git repository")
        self._set_up(address(str(folder)), None)

    def train(self) -> Any:
        """Train on the repositories that were set up.

        Raises:
            ValueError: there is none.
        """
        if not self.repos:
            raise ValueError(
                "No repository loaded. Call setup_github_repository() or setup_local_repository() first."
            )
        return self._train()

    def evaluate(self) -> tuple[Measured, ...]:
        """Return, and print, how the model does on the test splits of the repositories that were set up.

        Raises:
            AgentError: there is nothing to measure, or it cannot be measured.
        """
        measured = self._evaluate()
        for item in measured:
            self._say(str(item))
        return measured

    def prove(self, whole_proof: bool = False) -> ProveResult:
        """Try the open sorries of the repositories that were set up; print and return what became of each.

        A proof counts when the gate has passed it, all of it by Lean. What was tried before with the same model and
        budget is not tried again; its result is told.

        Args:
            whole_proof: have the model write whole proofs, and mend them by Lean's errors, instead of tactics.

        Raises:
            AgentError: there is no model to prove with.
            daemon.lock.AlreadyRunningError: a daemon, or another agent, holds the state folder.
        """
        if not self.repos:
            self._say("No sorry found to prove: no repository was set up.")
            return ProveResult(())
        with held(self.settings):
            return in_a_loop(lambda: self._prove(whole_proof))

    @abc.abstractmethod
    async def proving(self, shop: Workshop, whole_proof: bool) -> Settings:
        """Return the settings that say how this agent proves, its rung first of all; set `shop.tactics` where need be.

        Raises:
            AgentError: there is no model.
        """

    @abc.abstractmethod
    def _train(self) -> Any: ...

    @abc.abstractmethod
    def _evaluate(self) -> tuple[Measured, ...]: ...

    # --- repositories -------------------------------------------------------------------------------------

    def _set_up(self, url: str, commit: str | None) -> None:
        with held(self.settings):
            pinned = in_a_loop(lambda: self._bring(url, commit))
            self.repos = [*(repo for repo in self.repos if repo.key != pinned.key), pinned]
            if self.database_path is not None:
                self.database.to_json(self.database_path)

    async def _bring(self, url: str, commit: str | None) -> Pinned:
        async with self.open_shop() as shop:
            commit = commit or await local_head(shop, url)
            pinned = await bring(shop, url, commit, watchlist=self.settings.repos)
            shop.settings = self.at_work_on([pinned])
            ended = await shop.work_off(TO_LEARN_FROM)
            trace = await shop.store.ask(partial(trace_of, pinned=pinned))
            if trace is None:
                raise AgentError(await self._why_not(shop, pinned, ended))
            sorries = await shop.store.ask(partial(open_sorries, pinned=pinned))
            await shop.tidy({(pinned.key, pinned.commit)})
        # The store has it under the address by which it first came, and so have its datasets.
        known = pinned.repo.model_copy(update={"url": trace.url})
        pinned = replace(pinned, repo=known)
        by = "; traced by the simulator, which is not Lean" if trace.simulated else ""
        self._say(
            f"{pinned}: {trace.files_traced} files, {trace.n_theorems} theorems, {trace.n_tactics} tactics, "
            f"{count_sorries(len(sorries), 'open ')}{by}"
        )
        return pinned

    async def _why_not(self, shop: Workshop, pinned: Pinned, ended: Sequence[JobRow]) -> str:
        failed = [row for row in ended if row.state == "failed"]
        if not failed:
            # It was tried before, and will not go otherwise.
            rows = await shop.store.ask(partial(queries.jobs, state="failed"))
            failed = [row for row in rows if (row.repository, row.sha) == (pinned.key, pinned.commit)]
        if not failed:
            return f"{pinned}: was not traced, and no job says why; see `unsorry jobs`"
        row = failed[0]
        remedy = f"; {row.remedy}" if row.remedy else ""
        return (
            f"{pinned}: {row.kind} failed: {row.message or row.reason}{remedy}; `unsorry jobs logs {row.job}` has "
            f"more, and `unsorry jobs retry {row.job}` has it tried again where that could help"
        )

    def at_work_on(self, repos: Sequence[Pinned]) -> Settings:
        """Return the settings with these as the whole watchlist, so that nothing else is due."""
        return self.settings.model_copy(update={"repos": tuple(pinned.repo for pinned in repos)})

    def open_shop(self, *, mend: bool = True) -> AbstractAsyncContextManager[Workshop]:
        """Open a workshop on the repositories that were set up; the caller holds the state folder."""
        return Workshop.open(self.at_work_on(self.repos), say=self._say, mend=mend)

    # --- proving ------------------------------------------------------------------------------------------

    async def _prove(self, whole_proof: bool) -> ProveResult:
        async with self.open_shop() as shop:
            shop.settings = await self.proving(shop, whole_proof)
            wanted: list[SorryRow] = []
            for pinned in self.repos:
                wanted += await shop.store.ask(partial(open_sorries, pinned=pinned))
            ladder = await shop.ladder()
            rungs = {rung.model: rung for pinned in self.repos for rung in ladder.rungs(pinned.lean)}
            waiting = [wait for pinned in self.repos for wait in ladder.waiting(pinned.lean)]
            if waiting:
                raise AgentError(f"nothing can be proved yet: {waiting[0]}")
            if wanted:
                self._say(f"Found {count_sorries(len(wanted))} to prove")
            ended = await shop.work_off(TO_PROVE) if wanted else ()
            found = await shop.store.ask(
                partial(
                    results_of,
                    sorries=wanted,
                    jobs=frozenset(row.job for row in ended),
                    rungs=tuple(rungs.values()),
                )
            )
            await shop.tidy({(pinned.key, pinned.commit) for pinned in self.repos})
        result = ProveResult(found)
        for item in result.sorries:
            self._say(str(item))
        self._say(str(result))
        return result


def trace_of(view: sqlite3.Connection, *, pinned: Pinned) -> TraceRow | None:
    """Return the trace of the commit, by the Lean that works on it; None where there is none."""
    wanted = (trace_queries.branch_line(pinned.branch), pinned.commit, pinned.lean.simulated)
    traces = trace_queries.traces(view, repository=pinned.key)
    return next((trace for trace in traces if (trace.line, trace.sha, trace.simulated) == wanted), None)


def open_sorries(view: sqlite3.Connection, *, pinned: Pinned) -> list[SorryRow]:
    """Return the sorries that stand open in the commit, in the order of the source."""
    return queries.sorries(view, repository=pinned.key, branch=pinned.branch, state="open")


def measured_in(
    view: sqlite3.Connection, checkpoint: str, *, repositories: frozenset[str]
) -> tuple[Measured, ...]:
    """Return what the store has of a checkpoint's measurements on the test splits of these repositories."""
    return tuple(
        Measured(
            repository=str(row.repository),
            split=row.split,
            checkpoint=row.checkpoint,
            metrics=row.metrics,
            n=row.n,
            simulated=row.simulated,
        )
        for row in model_queries.evaluations(view, checkpoint)
        if row.split == "test" and row.repository in repositories
    )
