"""Plan the jobs to train the models.

A task is one repository's newest trace. A model learns it on top of its checkpoint in use, when enough
theorems new to that chain have come. With Lean's reward in the settings, the tactic model then trains with
it, once on each trace.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from daemon.jobs.due import DueJob
from daemon.planning.ladder import ladder_of
from daemon.planning.look import Look, traced_by
from daemon.settings import Repo
from daemon.settings.models import GrpoSettings, Learning
from pipeline.jobs.kinds import KINDS, TRAININGS, TRAINS, Kind
from pipeline.jobs.spec import HUB_KEY, Spec, hub_key
from pipeline.jobs.specs import (
    LearnedTask,
    RetrieverSpec,
    TrainGrpoSpec,
    TrainRetrieverSpec,
    TrainSpec,
    TrainTacticsSpec,
)
from pipeline.lean.backend import LeanBackend
from pipeline.models.datasets import dataset_of
from store import promotion
from store.domain.identity import job_id
from store.events.models import ModelKind
from store.events.projects import Project
from store.view import model_queries, queries, trace_queries
from store.view.model_queries import Learnable, Learned, ancestry
from store.view.rows import BranchRow, OfferRow, TraceRow

_LANE = "models"
"""The lane of trainings on the processor: one at a time. On GPUs each model has its own, and trains beside
the others if GPUs are free."""
TRIES = 2
"""Trainings of a trace on top of the same checkpoint: a refusal may be a seed's bad luck once, and seldom
twice."""
Counted = MutableMapping[tuple[str, int, int, Learnable], int]
"""The number of theorems of a repository's trace (closed at a log position) new since another position. The
past does not change, and counting a large repository takes a third of a second, so counts are kept here."""


BuildFirst = Callable[[Repo, BranchRow, LeanBackend, str, str], "list[DueJob] | None"]
"""Returns the due jobs to build a commit's project; None if none is needed."""
_REWARDS: Kind = "train_grpo"


class TrainingJobs:
    """Plans the due trainings of repositories, and the builds before them."""

    def __init__(self, look: Look, counted: Counted, build_first: BuildFirst) -> None:
        self._build_first = build_first
        self._models = [
            _Training(look, learning, offers, counted)
            for learning in map(look.settings.train.of, TRAINS)
            if (offers := model_queries.offers(look.view, learning.model)) or learning.enabled
        ]

    def of(self, repo: Repo) -> Iterator[DueJob]:
        """Yield a repository's due jobs, model by model."""
        if repo.opt_out:
            return
        for model in self._models:
            yield from model.of(repo, self._build_first)


class _Training:
    """Plans one model's trainings."""

    def __init__(self, look: Look, learning: Learning, offers: Sequence[OfferRow], counted: Counted) -> None:
        self._look = look
        self._view = view = look.view
        self._settings = settings = look.settings
        self._offers = offers
        self._model = learning.model
        self._trains = learning.enabled
        self._kind = TRAINS[learning.model]
        self._lane = f"{_LANE} {learning.model}" if settings.train.device == "cuda" else _LANE
        self._config = learning.config
        self._grpo = learning.grpo
        self._counted = counted
        every = model_queries.learned(view, self._model)
        self._known = [learned for learned in every if learned.job_state == "succeeded"]
        self._in_use = next((learned for learned in self._known if learned.promoted), None)
        # A repository that opted out or left the watchlist is not replayed either, but still measured.
        self._learnable = {repo.key for repo in settings.repos if not repo.opt_out}
        self._triggered = {row.repository: row.seq for row in queries.triggers(view) if row.work == "train"}

    def of(self, repo: Repo, build_first: BuildFirst) -> Iterator[DueJob]:
        """Yield a repository's due jobs."""
        yield from self._offered(repo)
        if not self._trains:
            return
        trains = [*self._train(repo)]
        yield from trains
        if self._grpo is not None and not trains:
            yield from self._train_with_rewards(repo, self._grpo, build_first)

    def _offered(self, repo: Repo) -> Iterator[DueJob]:
        """Yield the measurement of each model offered by a user, on this repository and all earlier tasks."""
        for offer in self._offers:
            if offer.repository != repo.key:
                continue
            identity = job_id(self._kind, "offered", offer.weights, offer.repository, offer.trace or "")
            if not self._is_ready(identity):
                continue
            traces = trace_queries.traces(self._view, repository=repo.key)
            newest = trace_queries.newest_trace(self._view, repo.key)
            trace = next((one for one in traces if one.trace == offer.trace), newest)
            if trace is None:
                continue
            chain = newest_of_each(ancestry(self._known, self._parent))
            there = newest_of_each([one for one in reversed(self._known) if one.removed_at is None])
            repositories = {one.repository for one in chain}
            tasks = (*chain, *(one for one in there if one.repository not in repositories))
            options = {
                "taken": Path(offer.folder),
                "learned": offer.learned,
                "trace": trace.trace,
            }
            yield from self._jobs(
                identity,
                repo,
                _at(trace),
                describes=f"measure the {_called(self._model)} in {offer.folder} on {repo.key}",
                spec=self._to_train(repo, tasks[::-1]).model_copy(update=options),
                # The offered model may be an adapter of a gated model, whatever the settings name.
                key=HUB_KEY,
            )

    def _task(self, repo: Repo) -> tuple[TraceRow, BranchRow, Project, LeanBackend] | None:
        """Return the repository's newest trace with its branch, project and Lean; None without any of
        them."""
        trace = trace_queries.newest_trace(self._view, repo.key)
        traced = None if trace is None else traced_by(self._view, repo, trace, self._look.leans)
        return None if trace is None or traced is None else (trace, *traced)

    def _train(self, repo: Repo) -> Iterator[DueJob]:
        """Yield the training on the repository's newest trace, if it is due."""
        task = self._task(repo)
        if task is None:
            return
        trace, *_ = task
        chain = ancestry(self._known, self._parent)
        due = self._due(repo, trace, chain)
        if due is None:
            return
        identity, refused = due
        again = " again, with another seed: what came of it was refused" if refused else ""
        yield from self._jobs(
            identity,
            repo,
            _at(trace),
            describes=f"train the {_called(self._model)} on {repo.key} {trace.sha[:10]}{again}",
            spec=self._to_train(repo, chain).model_copy(update={"refused": refused}),
            gpus=self._numbers_of_gpus(),
        )

    def _train_with_rewards(
        self, repo: Repo, grpo: GrpoSettings, build_first: BuildFirst
    ) -> Iterator[DueJob]:
        """Yield the training with Lean's reward on the repository's newest trace, or the build before it, if
        it is due: the model in use has learned the repository, and no training with reward since enough new
        theorems came."""
        task, parent = self._task(repo), self._parent
        if task is None or parent is None:
            return
        trace, branch, project, lean = task
        chain = ancestry(self._known, parent)
        of_it = [one for one in chain if one.repository == repo.key]
        rewarded = [one for one in of_it if _by_rewards(one)]
        if len(rewarded) == len(of_it) or self._new_theorems(trace, 0) < grpo.goals:
            return
        if any(not self._is_new(trace, one.data_seq) for one in rewarded):
            return
        checkpoints = self._tried(repo, rewards=True)
        if any(one.refused_at is None for one in checkpoints) or len(checkpoints) >= TRIES:
            return
        identity = job_id(
            _REWARDS,
            repo.key,
            parent,
            json.dumps(self._config),
            grpo.spec().model_dump_json(),
            str(trace.seq),
            f"refused {len(checkpoints)}",
        )
        if not self._is_ready(identity):
            return
        builds = build_first(repo, branch, lean, trace.sha, project.folder)
        if builds is not None:
            yield from builds
            return
        spec = TrainGrpoSpec(
            **dict(self._to_train(repo, chain).model_copy(update={"refused": len(checkpoints)})),
            lean=lean,
            folder=project.folder,
            limits=self._look.repls(),
            grpo=grpo.spec(),
        )
        yield from self._jobs(
            identity,
            repo,
            _at(trace),
            kind=_REWARDS,
            describes=f"train the {_called(self._model)} with Lean's reward on {repo.key} {trace.sha[:10]}",
            spec=spec,
            project=project.folder,
            built=self._look.is_built(lean),
        )

    def _to_train(self, repo: Repo, chain: Sequence[Learned]) -> TrainSpec:
        paths = self._settings.paths
        spec = TrainSpec(
            repository=repo.key,
            chain=paths.models / self._model,
            parent=self._parent,
            config=self._config,
            tasks=tuple(
                LearnedTask(
                    name=earlier.repository,
                    dataset=self._dataset(earlier),
                    replayed=earlier.repository in self._learnable,
                )
                for earlier in newest_of_each(chain)
            ),
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
        """Return the retriever of the rows' premises, the same as for the provers; None for none."""
        if not self._settings.prove.generator.premises:
            return None
        finds = promotion.ladder_models(self._view).get("retriever", promotion.WORDS)
        device = str(self._config.get("device", "auto"))
        return ladder_of(self._settings).retriever(finds).model_copy(update={"device": device})

    def _due(self, repo: Repo, trace: TraceRow, chain: Sequence[Learned]) -> tuple[str, int] | None:
        """Return the id of the job to learn the trace, and the number of refusals so far; None if none is
        due."""
        seq = self._triggered.get(repo.key)
        if seq is not None:
            # One job answers to one trigger, whatever was learned before, and from any parent.
            identity = job_id(self._kind, repo.key, f"triggered at {seq}")
            if self._look.standings.of(identity).state not in ("done", "parked"):
                return identity, 0
        learned = [one for one in chain if one.repository == repo.key and not _by_rewards(one)]
        since = max((one.data_seq for one in learned), default=0)
        checkpoints = self._tried(repo, rewards=False)
        # An undecided checkpoint may still be promoted.
        if any(one.refused_at is None and one.promoted_at is None for one in checkpoints):
            return None
        if learned and (by_proofs := self._due_by_proofs(repo, learned)) is not None:
            return by_proofs, 0
        train = self._settings.train
        if trace.seq <= since or trace.n_theorems < train.new_theorems:
            return None
        same = [one for one in checkpoints if not self._is_new(trace, one.data_seq)]
        # A promoted one was rolled back: another seed is no remedy.
        if len(same) >= TRIES or any(one.promoted_at for one in same):
            return None
        identity = job_id(
            self._kind,
            repo.key,
            self._parent or "",
            json.dumps(self._config),
            str(trace.seq),
            f"refused {len(same)}",
        )
        return (identity, len(same)) if self._is_ready(identity) and self._is_new(trace, since) else None

    def _tried(self, repo: Repo, *, rewards: bool) -> list[Learned]:
        """Return the checkpoints trained on the repository from the one in use, with Lean's reward or
        without."""
        return [
            one
            for one in self._known
            if one.parent == self._parent and one.repository == repo.key and _by_rewards(one) == rewards
        ]

    def _due_by_proofs(self, repo: Repo, learned: Sequence[Learned]) -> str | None:
        """Return the id of the job to learn the repository again, with the proofs accepted since; None if
        there are too few, or it was tried."""
        if self._model != "tactics" or self._config["split"] != "random":
            return None
        latest = max(one.saved_at for one in learned)
        proofs = model_queries.accepted_proofs(self._view, repositories=(repo.key,), since=latest)
        if len(proofs) < self._settings.train.new_proofs:
            return None
        # As many again make another job; after a failure, one more proof is not enough to repeat it.
        number = len(proofs) // self._settings.train.new_proofs
        identity = job_id(
            self._kind,
            repo.key,
            self._parent or "",
            json.dumps(self._config),
            f"{number} times new proofs since {latest}",
        )
        return identity if self._is_ready(identity) else None

    def _numbers_of_gpus(self) -> tuple[int, ...]:
        """Return the numbers of GPUs that divide a step's batch evenly."""
        train = self._settings.train
        most = 0 if train.device == "cpu" else train.gpus
        return tuple(number for number in range(1, most + 1) if self._config["batch_size"] % number == 0)

    def _is_ready(self, identity: str) -> bool:
        return self._look.standings.of(identity).state == "ready"

    def _is_new(self, trace: TraceRow, since: int) -> bool:
        """Return whether a trace has enough theorems new since a log position."""
        return trace.seq > since and self._new_theorems(trace, since) >= self._settings.train.new_theorems

    def _new_theorems(self, trace: TraceRow, since: int) -> int:
        # The other models learn from every tactic, with or without premises.
        with_a: Learnable = "premise" if self._model == "retriever" else "tactic"
        key = (trace.repository, trace.seq, since, with_a)
        if key not in self._counted:
            self._counted[key] = model_queries.new_theorems(
                self._view, trace=trace, since=since, with_a=with_a
            )
        return self._counted[key]

    @property
    def _parent(self) -> str | None:
        return None if self._in_use is None else self._in_use.checkpoint

    def _dataset(self, learned: Learned) -> Path:
        """Return the frozen dataset of a task."""
        return dataset_of(self._settings.paths.models / self._model, learned.job)

    def _jobs(
        self,
        identity: str,
        repo: Repo,
        at: tuple[str, str],
        *,
        spec: Spec,
        kind: Kind | None = None,
        **more: Any,
    ) -> Iterator[DueJob]:
        """Yield a job within the limits of [train], by default of the model's own kind; `at`: branch and
        commit."""
        train = self._settings.train
        usual = {
            "timeout_s": train.timeout_s,
            "memory_bytes": train.memory_bytes,
            "gpus": () if train.device == "cpu" else (1,),
            "cpu_too": train.device == "auto",
            "key": hub_key(str(self._config.get("model_name", ""))),
        }
        yield from self._look.ready(
            identity,
            kind or self._kind,
            spec,
            lane=self._lane,
            repository=repo.key,
            branch=at[0],
            sha=at[1],
            **(usual | more),
        )


def _by_rewards(learned: Learned) -> bool:
    # A job's id begins with its kind.
    return learned.job.startswith(f"{_REWARDS}-")


def _called(model: ModelKind) -> str:
    return model if model == "retriever" else f"{model} model"


def datasets_needed(view: sqlite3.Connection, model: str) -> tuple[set[str], bool]:
    """Return the jobs of a model whose datasets are needed, and whether one of them is unfinished.

    They are the unfinished ones, and those whose datasets measure or replay the tasks of checkpoints with
    files on disk.
    """
    every = model_queries.learned(view, model)
    there = [one for one in every if one.removed_at is None]
    # Jobs begun before the promotion of the checkpoint in use had another parent: they are not resumed.
    began_after = next((one.promoted_at or "" for one in every if one.promoted), "")
    unfinished = {
        row.job
        for state in ("running", "failed", "interrupted", "released")
        for kind in TRAININGS
        if KINDS[kind].model == model
        for row in queries.jobs(view, state=state, kind=kind)
        if row.started_at > began_after and (state != "failed" or row.retry_at is not None)
    }
    jobs = unfinished | {one.job for one in there}
    for one in there:
        jobs.update(task.job for task in newest_of_each(ancestry(every, one.checkpoint)))
    return jobs, bool(unfinished)


def newest_of_each(chain: Sequence[Learned]) -> list[Learned]:
    """Return the newest task of each repository, oldest first, of a chain with the newest first.

    A repository's later test set has all of the earlier one, except statements gone from the source.
    """
    newest: dict[str, Learned] = {}
    for learned in chain:
        newest.setdefault(learned.repository, learned)
    return list(reversed(newest.values()))


def _at(trace: TraceRow) -> tuple[str, str]:
    return trace_queries.place_of_line(trace.line)[0], trace.sha
