"""Plan training: the jobs that train the models, and those that measure the retriever.

A task is one repository's newest trace. It is learned on top of the checkpoint in use of the same model, when enough
theorems that the chain of that one has not seen have come. What a tactic model has learned so is then trained with
Lean's reward, where the settings say so, once on each trace. A repository's newest test set is also put to the
retriever in use, where that one did not learn the task, so that both sides of every comparison are known.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path

from daemon.jobs.due import DueJob
from daemon.jobs.history import Readiness, ReadinessOfJobs
from daemon.planning.ladder import ladder_of
from daemon.planning.proving import repl_limits
from daemon.polling.branch_diff import asked_for
from daemon.settings import Repo, Settings
from daemon.settings.models import GrpoSettings, Learning
from pipeline.jobs.kinds import TRAINS, Kind
from pipeline.jobs.spec import HUB_KEY, Spec, hub_key
from pipeline.jobs.specs import (
    EvaluateSpec,
    LearnedTask,
    RetrieverSpec,
    TrainGrpoSpec,
    TrainRetrieverSpec,
    TrainSpec,
    TrainTacticsSpec,
)
from pipeline.lean.backend import LeanBackend, Leans
from pipeline.models.datasets import dataset_of
from store.domain.identity import job_id
from store.events.models import ModelKind
from store.events.projects import Project
from store.view import model_queries, queries, trace_queries
from store.view.model_queries import Learnable, Learned, ancestry
from store.view.rows import BranchRow, OfferRow, TraceRow

EVALUATED: ModelKind = "retriever"
"""The model that the kind `evaluate` measures."""
_LANE = "models"
"""The lane of trainings on the processor: one at a time. On GPUs each model has one of its own, and trains beside the
others where GPUs are free."""
TRIES = 2
"""Trainings of a trace on top of the same checkpoint: a refusal may be a seed's bad luck once, and seldom twice."""
Counted = MutableMapping[tuple[str, int, int, Learnable], int]
"""How many theorems of a repository's trace (closed at a log position) are new since another position. The past does
not change, and counting a large repository takes a third of a second: what was counted once is kept here."""


BuildFirst = Callable[[Repo, BranchRow, LeanBackend, str, str], "list[DueJob] | None"]
"""Returns the due jobs that build a commit's project; None where it is built, or need not be."""
_REWARDS: Kind = "train_grpo"


class TrainingJobs:
    """Finds out which trainings and evaluations repositories have due at one moment, and the builds that they need."""

    def __init__(
        self,
        view: sqlite3.Connection,
        *,
        settings: Settings,
        leans: Leans,
        standings: ReadinessOfJobs,
        counted: Counted,
        build_first: BuildFirst,
    ) -> None:
        self._build_first = build_first
        self._models = [
            _Training(
                view, learning, offers, settings=settings, leans=leans, standings=standings, counted=counted
            )
            for learning in map(settings.train.of, TRAINS)
            if (offers := model_queries.offers(view, learning.model)) or learning.enabled
        ]

    def of(self, repo: Repo) -> Iterator[DueJob]:
        """Yield a repository's due jobs, model by model."""
        if repo.opt_out:
            return
        for model in self._models:
            yield from model.of(repo, self._build_first)


class _Training:
    """Collects the due training of one model."""

    def __init__(
        self,
        view: sqlite3.Connection,
        learning: Learning,
        offers: Sequence[OfferRow],
        *,
        settings: Settings,
        leans: Leans,
        standings: ReadinessOfJobs,
        counted: Counted,
    ) -> None:
        self._view = view
        self._offers = offers
        self._model = learning.model
        self._trains = learning.enabled
        self._kind = TRAINS[learning.model]
        self._lane = f"{_LANE} {learning.model}" if settings.train.device == "cuda" else _LANE
        self._config = learning.config
        self._grpo = learning.grpo
        self._settings = settings
        self._leans = leans
        self._standings = standings
        self._counted = counted
        self._every = model_queries.learned(view, self._model)
        self._known = [learned for learned in self._every if learned.job_state == "succeeded"]
        self._in_use = next((learned for learned in self._known if learned.promoted), None)
        # What began before the checkpoint in use was promoted had another parent: it is not resumed.
        began_after = "" if self._in_use is None else self._in_use.promoted_at or ""
        self._unfinished = [
            row.job
            for state in ("running", "failed", "interrupted", "released")
            for kind in ((self._kind, _REWARDS) if self._model == "tactics" else (self._kind,))
            for row in queries.jobs(view, state=state, kind=kind)
            if row.started_at > began_after and (state != "failed" or row.retry_at is not None)
        ]
        # Not even again: what opted out, or left the watchlist. It is still measured.
        self._learnable = {repo.key for repo in settings.repos if not repo.opt_out}
        self._triggered = {row.repository: row.seq for row in queries.triggers(view) if row.work == "train"}

    def of(self, repo: Repo, build_first: BuildFirst) -> Iterator[DueJob]:
        """Yield a repository's due jobs."""
        yield from self._offered(repo)
        if not self._trains:
            return
        if self._model == EVALUATED:
            yield from self._evaluate(repo)
        trains = [*self._train(repo)]
        yield from trains
        if self._grpo is not None and not trains:
            yield from self._train_with_rewards(repo, self._grpo, build_first)

    def _offered(self, repo: Repo) -> Iterator[DueJob]:
        """Yield the measurement of each model that a user gave, on this repository and all earlier tasks."""
        for offer in self._offers:
            if offer.repository != repo.key:
                continue
            identity = job_id(self._kind, "offered", offer.weights, offer.repository, offer.trace or "")
            standing = self._standings.of(identity)
            if standing.state != "ready":
                continue
            traces = trace_queries.traces(self._view, repository=repo.key)
            newest = trace_queries.newest_trace(self._view, repo.key)
            trace = next((one for one in traces if one.trace == offer.trace), newest)
            if trace is None:
                continue
            parent = self._parent()
            chain = newest_of_each(ancestry(self._known, parent))
            there = newest_of_each([one for one in reversed(self._known) if one.removed_at is None])
            measured = {one.repository for one in chain}
            tasks = (*chain, *(one for one in there if one.repository not in measured))
            others = [job for job in self._unfinished if job != identity]
            spec = self._to_train(repo, parent, tasks[::-1], others)
            given = {
                "taken": Path(offer.folder),
                "learned": offer.learned,
                "trace": trace.trace,
                "alone": False,
            }
            job = self._job(
                identity,
                standing,
                repo,
                _at(trace),
                describes=f"measure the {_called(self._model)} in {offer.folder} on {repo.key}",
                spec=spec.model_copy(update=given),
            )
            # What is given may be an adapter of a gated model, whatever the settings name.
            yield replace(job, key=HUB_KEY)

    def _train(self, repo: Repo) -> Iterator[DueJob]:
        """Yield the repository's newest trace as a task, if it is due."""
        trace = trace_queries.newest_trace(self._view, repo.key)
        if trace is None or not self._made_by_its_lean(repo, trace):
            return
        parent = self._parent()
        chain = ancestry(self._known, parent)
        due = self._due(repo, trace, parent, chain)
        if due is None:
            return
        identity, refused = due
        standing = self._standings.of(identity)
        if standing.state != "ready":
            return
        again = f" again, with another seed: what came of it was refused {_times(refused)}" if refused else ""
        others = [job for job in self._unfinished if job != identity]
        yield self._job(
            identity,
            standing,
            repo,
            _at(trace),
            describes=f"train the {_called(self._model)} on {repo.key} {trace.sha[:10]}{again}",
            spec=self._to_train(repo, parent, chain, others).model_copy(update={"refused": refused}),
        )

    def _train_with_rewards(
        self, repo: Repo, grpo: GrpoSettings, build_first: BuildFirst
    ) -> Iterator[DueJob]:
        """Yield the training with Lean's reward on the repository's newest trace, or the build that it needs, if it is
        due: the model in use has learned the repository, and no reward on it since it got so many new theorems."""
        trace = trace_queries.newest_trace(self._view, repo.key)
        if trace is None or not self._made_by_its_lean(repo, trace):
            return
        parent = self._parent()
        chain = ancestry(self._known, parent)
        of_it = [one for one in chain if self._is_of(one, trace)]
        rewarded = [one for one in of_it if _by_rewards(one)]
        if parent is None or len(rewarded) == len(of_it) or self._new_theorems(trace, 0) < grpo.goals:
            return
        if any(not self._is_new(trace, one.data_seq) for one in rewarded):
            return
        tried = [
            one
            for one in self._known
            if one.parent == parent and self._is_of(one, trace) and _by_rewards(one)
        ]
        if any(one.refused_at is None for one in tried) or len(tried) >= TRIES:
            return
        traced = self._traced(trace)
        if traced is None:
            return
        branch, project = traced
        lean = self._leans.for_toolchain(project.toolchain)
        again = (f"refused {len(tried)}",) if tried else ()
        identity = job_id(
            _REWARDS,
            repo.key,
            parent,
            json.dumps(self._config),
            grpo.spec().model_dump_json(),
            str(trace.seq),
            *again,
        )
        standing = self._standings.of(identity)
        if standing.state != "ready":
            return
        builds = build_first(repo, branch, lean, trace.sha, project.folder)
        if builds is not None:
            yield from builds
            return
        others = [job for job in self._unfinished if job != identity]
        spec = TrainGrpoSpec(
            **dict(self._to_train(repo, parent, chain, others).model_copy(update={"refused": len(tried)})),
            lean=lean,
            folder=project.folder,
            limits=repl_limits(self._settings),
            grpo=grpo.spec(),
        )
        job = self._job(
            identity,
            standing,
            repo,
            _at(trace),
            kind=_REWARDS,
            describes=f"train the {_called(self._model)} with Lean's reward on {repo.key} {trace.sha[:10]}",
            spec=spec,
        )
        yield replace(job, project=project.folder, built=lean.is_lean and self._settings.build.enabled)

    def _to_train(
        self, repo: Repo, parent: str | None, chain: Sequence[Learned], others: Sequence[str]
    ) -> TrainSpec:
        paths = self._settings.paths
        spec = TrainSpec(
            repository=repo.key,
            chain=paths.models / self._model,
            parent=parent,
            config=self._config,
            tasks=tuple(
                LearnedTask(
                    name=earlier.repository,
                    dataset=self._dataset(earlier),
                    replayed=earlier.repository in self._learnable,
                )
                for earlier in newest_of_each(chain)
            ),
            keep=(*self._datasets_needed(), *others),
            alone=not others,
            tensorboard=paths.state / "tensorboard" if self._settings.train.report_to != "none" else None,
        )
        match self._model:
            case "retriever":
                return TrainRetrieverSpec(**dict(spec), indices=paths.embeddings / self._model)
            case "tactics":
                return TrainTacticsSpec(
                    **dict(spec),
                    retriever=self._retriever(),
                    proofs_of=tuple(sorted(self._learnable)),
                )
            case _:
                return spec

    def _retriever(self) -> RetrieverSpec | None:
        """Return the retriever in use, which shows premises to the rows as it does to the provers; None for none."""
        checkpoint = model_queries.in_use(self._view).get("retriever")
        if checkpoint is None or not self._settings.prove.generator.premises:
            return None
        device = str(self._config.get("device", "auto"))
        return ladder_of(self._settings).retriever(checkpoint).model_copy(update={"device": device})

    def _datasets_needed(self) -> list[str]:
        """Return the jobs whose datasets measure or replay the tasks of a checkpoint whose files are there."""
        there = [learned for learned in self._every if learned.removed_at is None]
        tasks = (
            one.job for learned in there for one in newest_of_each(ancestry(self._every, learned.checkpoint))
        )
        return list(dict.fromkeys((*tasks, *(learned.job for learned in there))))

    def _due(
        self, repo: Repo, trace: TraceRow, parent: str | None, chain: Sequence[Learned]
    ) -> tuple[str, int] | None:
        """Return the id of the job that learns the trace, and how often what came of it was refused; None where it is
        not to be learned, or not now."""
        seq = self._triggered.get(repo.key)
        if seq is not None:
            # Whatever was learned before, and from whatever parent: one job answers to one trigger.
            identity = job_id(self._kind, repo.key, f"triggered at {seq}")
            if self._standings.of(identity).state not in ("done", "parked"):
                return identity, 0
        learned = [one for one in chain if self._is_of(one, trace) and not _by_rewards(one)]
        since = max((one.data_seq for one in learned), default=0)
        tried = [
            one
            for one in self._known
            if one.parent == parent and self._is_of(one, trace) and not _by_rewards(one)
        ]
        # What is not decided yet may come to be in use.
        if any(one.refused_at is None and one not in chain for one in tried):
            return None
        if learned and (by_proofs := self._due_by_proofs(repo, parent, learned)) is not None:
            return by_proofs, 0
        train = self._settings.train
        if trace.seq <= since or trace.n_theorems < train.new_theorems:
            return None
        same = [one for one in tried if not self._is_new(trace, one.data_seq)]
        if len(same) >= TRIES:
            return None
        again = (f"refused {len(same)}",) if same else ()
        identity = job_id(
            self._kind, repo.key, parent or "", json.dumps(self._config), str(trace.seq), *again
        )
        ready = self._standings.of(identity).state == "ready"
        return (identity, len(same)) if ready and self._is_new(trace, since) else None

    def _due_by_proofs(self, repo: Repo, parent: str | None, learned: Sequence[Learned]) -> str | None:
        """Return the id of the job that learns the repository again, with the proofs that the gate accepted since; None
        where there are too few, or it was tried."""
        if self._model != "tactics" or self._config["split"] != "random":
            return None
        latest = max(one.saved_at for one in learned)
        proofs = model_queries.accepted_proofs(self._view, repositories=(repo.key,), since=latest)
        if len(proofs) < self._settings.train.new_proofs:
            return None
        # As many again make another job; one that came to nothing is not repeated for each proof more.
        number = len(proofs) // self._settings.train.new_proofs
        identity = job_id(
            self._kind,
            repo.key,
            parent or "",
            json.dumps(self._config),
            f"{number} times new proofs since {latest}",
        )
        return identity if self._standings.of(identity).state == "ready" else None

    def _is_new(self, trace: TraceRow, since: int) -> bool:
        """Return whether a trace has enough that was not there at a log position."""
        return trace.seq > since and self._new_theorems(trace, since) >= self._settings.train.new_theorems

    @staticmethod
    def _is_of(learned: Learned, trace: TraceRow) -> bool:
        return learned.repository == trace.repository

    def _evaluate(self, repo: Repo) -> Iterator[DueJob]:
        """Yield the measurement of the checkpoint in use on the repository's newest test set, where it has none."""
        in_use = self._in_use
        if in_use is None:
            return
        newest = next(
            (
                learned
                for learned in reversed(self._known)
                if learned.repository == repo.key and learned.removed_at is None
            ),
            None,
        )
        # A checkpoint is measured on the tasks of its own chain when it is made.
        if newest is None or newest in ancestry(self._known, in_use.checkpoint):
            return
        identity = job_id("evaluate", in_use.checkpoint, newest.job)
        standing = self._standings.of(identity)
        if standing.state != "ready" or not self._has_test_set(newest):
            return
        (row,) = queries.jobs_by_prefix(self._view, newest.job)
        yield self._job(
            identity,
            standing,
            repo,
            (row.branch or "", row.sha or ""),
            kind="evaluate",
            describes=f"evaluate the {_called(self._model)} {in_use.checkpoint} on {repo.key}",
            spec=EvaluateSpec(
                chain=self._settings.paths.models / self._model,
                checkpoint=in_use.checkpoint,
                dataset=self._dataset(newest),
                name=repo.key,
                repository=repo.key,
                split="test",
                config=self._config,
                indices=self._settings.paths.embeddings / self._model,
            ),
        )

    def _new_theorems(self, trace: TraceRow, since: int) -> int:
        # Who learns tactics learns from every one of them, whatever it cites.
        with_a: Learnable = "premise" if self._model == "retriever" else "tactic"
        key = (trace.repository, trace.seq, since, with_a)
        if key not in self._counted:
            self._counted[key] = model_queries.new_theorems(
                self._view, trace=trace, since=since, with_a=with_a
            )
        return self._counted[key]

    def _made_by_its_lean(self, repo: Repo, trace: TraceRow) -> bool:
        """Return whether the branch's backend is the one that traced it; otherwise another trace follows, or none."""
        traced = self._traced(trace)
        if traced is None or traced[0].state != "live":
            return False
        branch, project = traced
        # What left the watchlist is not learned from, even before a poll has recorded that.
        if repo.branches and not asked_for(branch.branch, repo.branches):
            return False
        lean = self._leans.for_toolchain(project.toolchain)
        return lean.kind != "none"

    def _traced(self, trace: TraceRow) -> tuple[BranchRow, Project] | None:
        """Return the branch and the Lake project that a trace is of; None where there is none of the two any more."""
        name, folder = trace_queries.place_of_line(trace.line)
        return next(
            (
                (row, project)
                for row in queries.branches(self._view, trace.repository)
                if row.branch == name
                for project in row.lake_projects
                if project.folder == folder
            ),
            None,
        )

    def _parent(self) -> str | None:
        if self._in_use is None:
            return None
        return self._in_use.checkpoint

    def _has_test_set(self, learned: Learned) -> bool:
        rows = model_queries.evaluations(self._view, learned.checkpoint)
        return any(
            row.repository == learned.repository and row.split.rpartition("/")[2] == "test" for row in rows
        )

    def _dataset(self, learned: Learned) -> Path:
        """Return the frozen dataset of a task."""
        return dataset_of(self._settings.paths.models / self._model, learned.job)

    def _job(
        self,
        identity: str,
        standing: Readiness,
        repo: Repo,
        at: tuple[str, str],
        *,
        describes: str,
        spec: Spec,
        kind: Kind | None = None,
    ) -> DueJob:
        """Return a job within the limits of [train], by default of the model's own kind; `at`: branch and commit."""
        train = self._settings.train
        return DueJob(
            job=identity,
            kind=kind or self._kind,
            attempt=standing.attempt,
            lane=self._lane,
            repository=repo.key,
            branch=at[0],
            sha=at[1],
            describes=describes,
            spec=spec,
            timeout_s=train.timeout_s,
            memory_bytes=train.memory_bytes,
            gpus=int(train.device != "cpu"),
            cpu_too=train.device == "auto",
            key=hub_key(str(self._config.get("model_name", ""))),
        )


def _by_rewards(learned: Learned) -> bool:
    # A job's id begins with its kind.
    return learned.job.startswith(f"{_REWARDS}-")


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _called(model: ModelKind) -> str:
    return model if model == "retriever" else f"{model} model"


def newest_of_each(chain: Sequence[Learned]) -> list[Learned]:
    """Return the newest task of each repository, oldest first, of a chain that has the newest first.

    A repository's later test set has all of the earlier one but what is gone from the source.
    """
    newest: dict[str, Learned] = {}
    for learned in chain:
        newest.setdefault(learned.repository, learned)
    return list(reversed(newest.values()))


def _at(trace: TraceRow) -> tuple[str, str]:
    return trace_queries.place_of_line(trace.line)[0], trace.sha
