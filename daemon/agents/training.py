"""A trainer of the caller's, run in this process as what the daemon runs in another: the job `train_tactics`.

What the job says (`pipeline.models.tactics.job`) is held against what such a job may say before it is appended, and
its beginning and end are recorded as those of any other.
"""

from __future__ import annotations

import io
import json
import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.agents.base import trace_of
from daemon.agents.bringing import Pinned
from daemon.agents.checkouts import in_checkouts
from daemon.agents.errors import AgentError
from daemon.agents.results import TACTICS, became, recorded
from daemon.agents.workshop import OpenShop, Say, in_a_loop
from daemon.jobs.due import DueJob
from daemon.jobs.history import Standings
from daemon.jobs.lines import Batch, parse_line
from daemon.jobs.runner import of_attempt, started_event
from daemon.planning.training import newest_of_each
from daemon.redact import redact
from daemon.settings import Settings
from pipeline.jobs.kinds import Kind
from pipeline.jobs.protocol import JobError, JobSpec, Reporter, peak_rss_bytes
from pipeline.jobs.specs import LearnedTask, TrainSpec
from pipeline.models.chain import read_about
from pipeline.models.datasets import dataset_of
from pipeline.models.errors import NothingToLearnError
from store.domain.identity import job_id
from store.events.base import EventBody
from store.events.jobs import JobFailed, JobInterrupted, JobSucceeded
from store.leandojo import DynamicDatabase
from store.view import model_queries
from store.view.rows import CheckpointRow

if TYPE_CHECKING:
    from pipeline.models.tactics.job import Work
    from pipeline.models.tactics.training import RepositoryTrainer

KIND: Kind = "train_tactics"


class Training:
    """Trains on repositories, one after the other. The caller holds the state folder, and opens workshops in it."""

    def __init__(
        self, trainer: RepositoryTrainer, repos: Sequence[Pinned], settings: Settings, open_shop: OpenShop
    ) -> None:
        """Args:
        trainer: makes the models.
        repos: what is to be learned.
        settings: those of the daemon whose store this is.
        open_shop: opens a workshop, without putting anything in order: the job here is no killed one's.
        """
        self._trainer = trainer
        self._pinned = {(pinned.url, pinned.commit): pinned for pinned in repos}
        self._settings = settings
        self._open = open_shop
        self._folder = Path(trainer.output_dir)

    def learn_all(self, data_path: Path, say: Say) -> list[CheckpointRow]:
        """Learn the repositories in the order of the curriculum; return the checkpoints that were made.

        Args:
            data_path: where the trainer's datasets are written.
            say: takes lines of text for people.

        Raises:
            AgentError: one could not be learned; those before stay.
        """
        from pipeline.models.tactics.job import Work

        database = DynamicDatabase(self._settings.paths.state, also=in_a_loop(self._traces))
        ordered = [
            repo
            for repo in database.sort_repositories_by_difficulty()
            if (repo.url, repo.commit) in self._pinned
        ]
        lost = self._pinned.keys() - {(repo.url, repo.commit) for repo in ordered}
        if lost:
            gone = ", ".join(sorted(str(self._pinned[key]) for key in lost))
            raise AgentError(f"{gone}: has no trace any more; set the repository up again")
        made: list[CheckpointRow] = []
        for number in range(1, len(ordered) + 1):
            row = self._learn(Work(ordered[:number], database, data_path), say)
            if row is not None:
                say(became(row))
                made.append(row)
        return made

    def _learn(self, work: Work, say: Say) -> CheckpointRow | None:
        from pipeline.models.tactics.job import TrainerJob

        last = work.repos[-1]
        pinned = self._pinned[last.url, last.commit]
        self._trainer.loaded()  # what lies in its folder is now its own, or was moved aside
        about = read_about(self._folder) if self._trainer.learned_before else None
        known = {"url": last.url, "commit": last.commit} in ([] if about is None else about["repositories"])
        begun = in_a_loop(lambda: self._begin(pinned, learned=known))
        if begun is None:
            say(f"{pinned}: learned before, into {self._folder}")
            return None
        due, given = begun
        spec = JobSpec(
            due.job,
            due.kind,
            due.attempt,
            self._settings.paths.jobs / due.job / str(due.attempt),
            given,
        )
        said = io.StringIO()
        job = TrainerJob(self._trainer, work, spec, Reporter(spec, said))
        started = time.monotonic()
        end: EventBody | None = None
        try:
            with in_checkouts(self._trainer, tuple(self._pinned.values()), self._settings, self._open):
                summary = job.run()
            end = JobSucceeded(
                job=due.job,
                attempt=due.attempt,
                seconds=round(time.monotonic() - started, 3),
                peak_rss_bytes=peak_rss_bytes(),
                summary=summary,
                simulated=due.simulated,
            )
        except Exception as error:
            end = _failed(due, error, started)
            if not isinstance(error, JobError):
                raise
            if isinstance(error.__cause__, NothingToLearnError):
                say(str(error))
                return None
            raise AgentError(
                f"{pinned}: was not learned: {error}{error.remedy and f'; {error.remedy}'}"
            ) from error
        finally:
            # An attempt without an end was interrupted with Ctrl-C.
            stopped = JobInterrupted(job=due.job, attempt=due.attempt, reason="the agent was stopped")
            in_a_loop(partial(self._end, due, said.getvalue(), end or stopped))
        return in_a_loop(self._made)

    async def _begin(self, pinned: Pinned, *, learned: bool) -> tuple[DueJob, TrainSpec] | None:
        """Record that a training begins, as the daemon would; None where it is over and recorded already."""
        async with self._open() as shop:
            before = await shop.store.ask(partial(recorded, folder=self._folder))
            if learned and before is not None:
                return None
            due, spec = await shop.store.ask(
                partial(self._due, pinned=pinned, parent=None if learned else before)
            )
            await shop.store.append([of_attempt(due, started_event(due))])
        return due, spec

    async def _traces(self) -> list[str]:
        """Return the traces of the commits: the database by itself has those of the newest ones."""

        def found(view: sqlite3.Connection) -> list[str]:
            rows = [trace_of(view, pinned=pinned) for pinned in self._pinned.values()]
            return [row.trace for row in rows if row is not None]

        async with self._open() as shop:
            return await shop.store.ask(found)

    def _due(
        self, view: sqlite3.Connection, *, pinned: Pinned, parent: CheckpointRow | None
    ) -> tuple[DueJob, TrainSpec]:
        paths = self._settings.paths
        # Not the repository's newest one, which another commit may have: what is learned is what is measured.
        trace = trace_of(view, pinned=pinned)
        chain = paths.models / TACTICS
        above = model_queries.ancestry(
            model_queries.learned(view, TACTICS), None if parent is None else parent.checkpoint
        )
        tasks = (
            LearnedTask(name=one.repository, dataset=dataset_of(chain, one.job))
            for one in newest_of_each(above)
            if one.repository != pinned.key
        )
        spec = TrainSpec(
            events_db=paths.events_db,
            database_db=paths.database_db,
            repository=pinned.key,
            simulated=pinned.lean.simulated,
            trace=None if trace is None else trace.trace,
            chain=chain,
            parent=None if parent is None else parent.checkpoint,
            tasks=tuple(tasks),
        )
        what = json.dumps([self._trainer.kind, self._trainer.follows_from()], sort_keys=True, default=str)
        job = job_id(KIND, pinned.key, pinned.commit, str(self._folder.absolute()), what)
        standing = Standings(view, now=datetime.now(UTC)).of(job)
        due = DueJob(
            job=job,
            kind=KIND,
            attempt=standing.attempt + (standing.state == "done"),
            lane="models",
            repository=pinned.key,
            branch=pinned.branch,
            sha=pinned.commit,
            describes=f"train a tactic model ({self._trainer.kind}) on {pinned}, in the agent's process",
            simulated=pinned.lean.simulated or (parent is not None and parent.simulated),
            spec=spec,
        )
        return due, spec

    async def _end(self, due: DueJob, said: str, end: EventBody) -> None:
        """Record what the job said, and its end; decide what becomes of its checkpoint."""
        async with self._open() as shop:
            for raw in said.encode().splitlines():
                line = parse_line(raw, job=due)
                if isinstance(line, Batch):
                    await shop.store.append(line.events)
            await shop.store.append([of_attempt(due, end)])
            await shop.settle_models()

    async def _made(self) -> CheckpointRow | None:
        async with self._open() as shop:
            return await shop.store.ask(partial(recorded, folder=self._folder))


def _failed(due: DueJob, error: Exception, started: float) -> JobFailed:
    said = error if isinstance(error, JobError) else JobError("crashed", f"{type(error).__name__}: {error}")
    return JobFailed(
        job=due.job,
        attempt=due.attempt,
        reason=said.reason,
        message=redact(str(said)),
        remedy=said.remedy,
        deterministic=said.deterministic,
        retry_at=None,
        seconds=round(time.monotonic() - started, 3),
        peak_rss_bytes=peak_rss_bytes(),
    )
