"""LeanDojo-v2's agents: `HFAgent`, `LeanAgent`, `ExternalAgent`.

An agent runs the daemon's jobs through the daemon's plan and appends the same events, so `everlean status`,
`sorries`, `proofs`, `models` and `jobs` show all its results.
"""

from __future__ import annotations

import getpass
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from pydantic import ValidationError

from daemon.health.requirements import why_not_trainable
from daemon.jobs.engine import Commit
from daemon.jobs.gpus import cuda_is_there
from daemon.jobs.local import checkout
from daemon.leandojo.repository import Pinned, address, pin
from daemon.leandojo.session import AgentError, AgentSession, Say, settings_for
from daemon.polling.errors import RemoteError
from daemon.settings import Settings
from daemon.settings.models import External, Prove, lacking
from pipeline.jobs.kinds import TRAINS, Kind
from pipeline.jobs.protocol import JobError
from pipeline.jobs.specs import Rung
from pipeline.lean.build.build_cache import BuildMissingError
from pipeline.models.errors import LearningError
from pipeline.models.model_files import begun, read_checkpoint
from pipeline.models.retriever.config import RetrieverConfig
from pipeline.models.tactics.goals import GoalContext, SourcePlaces
from store import curriculum
from store.documents.attempts import Attempt, describe_attempts
from store.documents.proofs import Proof, describe_proofs, worth
from store.domain.identity import slug
from store.events.models import ModelKind, ModelOffered
from store.leandojo import DynamicDatabase, Repository, Theorem
from store.log.envelope import NewEvent
from store.text import counted
from store.view import model_queries, queries, trace_queries
from store.view.rows import CheckpointRow, EvaluationRow, JobRow, SorryRow

if TYPE_CHECKING:
    from pipeline.models.retriever.config import TrainingConfig
    from pipeline.models.trainers import SFTTrainer

TO_TRACE: frozenset[Kind] = frozenset({"scan", "build", "trace"})
TO_PROVE: frozenset[Kind] = frozenset({"build", "prove", "check"})
TACTICS: ModelKind = "tactics"
RETRIEVER: ModelKind = "retriever"

# ---- Results


Verdict = Literal["proved", "unjudged", "conditional", "rejected", "not found", "not tried"]
"""proved: Lean checked it, by the whole gate. unjudged: nothing failed, and not every check could run here.
conditional: it rests on other sorries. The rest are no proofs."""


@dataclass(frozen=True, slots=True)
class SorryResult:
    """The outcome of one sorry.

    Attributes:
        sorry: its row; the other rows are those of `everlean proofs` and `everlean sorries`.
        proof: the best one of its text; None without one.
        attempt: the last one with this model and budget; None without one.
        tried_now: whether this call made the attempt; a try with the same model and budget is not repeated.
    """

    sorry: SorryRow
    proof: Proof | None
    attempt: Attempt | None
    tried_now: bool

    @property
    def verdict(self) -> Verdict:
        return self._judged[0]

    @property
    def detail(self) -> str:
        """The reason for the verdict, for people."""
        return self._judged[1]

    @property
    def _judged(self) -> tuple[Verdict, str]:
        proof, attempt = self.proof, self.attempt
        if proof is None:
            if attempt is None:
                return "not tried", "not tried"
            why = attempt.detail or attempt.outcome.replace("_", " ")
            reached = "; ".join(filter(None, (why, attempt.best)))
            return "not found", f"not found: {reached} ({attempt.nodes} nodes, {attempt.seconds:.1f} s)"
        match proof.verdict:
            case "accepted":
                axioms = ", ".join(proof.axioms) or "no axioms"
                return "proved", f"proved: Lean checked it ({axioms})"
            case "rejected" if proof.conditional_on:
                others = ", ".join(proof.conditional_on)
                return "conditional", f"not proved: it rests on other sorries ({others})"
            case "rejected":
                return "rejected", f"found, and rejected: {proof.why}"
        return "unjudged", f"found: {proof.why}"

    def __str__(self) -> str:
        head = f"{self.sorry.path}:{self.sorry.line} {self.sorry.declaration}: {self.detail}"
        if self.verdict == "not found" and not self.tried_now:
            head += " (tried before)"
        lines = [] if self.proof is None else self.proof.replacement.splitlines()
        return "\n".join([head, *(f"    {line}" for line in lines)])


@dataclass(frozen=True, slots=True)
class ProveResult:
    """The outcomes of the open sorries, in the order of the source."""

    sorries: tuple[SorryResult, ...]

    @property
    def proved(self) -> tuple[SorryResult, ...]:
        """The results checked by Lean itself."""
        return tuple(item for item in self.sorries if item.verdict == "proved")

    def __str__(self) -> str:
        if not self.sorries:
            return "No sorry found to prove."
        numbers = Counter(item.verdict for item in self.sorries)
        verdicts = ", ".join(f"{number} {verdict}" for verdict, number in numbers.most_common())
        return f"{counted(len(self.sorries), 'sorry')}: {verdicts}"


def sorry_results(
    view: sqlite3.Connection,
    *,
    sorries: Sequence[SorryRow],
    jobs: frozenset[str],
    rungs: Sequence[Rung],
) -> tuple[SorryResult, ...]:
    """Return the store's results for these sorries, in the present versions of their files.

    Args:
        jobs: those of this call.
        rungs: the rungs whose attempts count for a sorry without a proof.
    """
    targets = {(rung.prover, rung.number, rung.model, rung.budget_key) for rung in rungs}
    attempts = describe_attempts(view, (row.sorry for row in sorries))
    result = [one for row in sorries for one in queries.proofs(view, sorry=row.sorry) if one.blob == row.blob]
    best = {one.sorry: one for one in sorted(describe_proofs(view, result), key=worth)}
    results = []
    for row in sorries:
        tried = (one for one in attempts.get(row.sorry, ()) if one.blob == row.blob)
        of_these = [one for one in tried if (one.prover, one.rung, one.model, one.budget) in targets]
        last = of_these[-1] if of_these else None
        proof = best.get(row.sorry)
        results.append(SorryResult(row, proof, last, tried_now=last is not None and last.job in jobs))
    return tuple(results)


def _metrics_line(row: EvaluationRow) -> str:
    figures = ", ".join(
        f"{name} {value:.4g}" for name, value in row.metrics.items() if not name.endswith(("_low", "_high"))
    )
    return f"{row.repository}, {row.split}: {figures} of {row.n}, checkpoint {row.checkpoint}"


def _decision(row: CheckpointRow) -> str:
    """Return the decision on a checkpoint, for people."""
    if row.promoted:
        return f"checkpoint {row.checkpoint}: in use ({row.reason})"
    reason = row.refused_reason or "no decision on it yet"
    return f"checkpoint {row.checkpoint}: not in use ({reason})"


# ---- The agents


@dataclass
class ProverConfig:
    """LeanDojo-v2's configuration of provers, by its names and with its defaults, for settings of `[prove]`.

    `num_sampled_tactics` is [prove.generator] candidates, `timeout` the seconds for a sorry, `max_expansions`
    the states. LeanDojo reads none of them. The others have no effect: models run in this process, in batches
    of their own.
    """

    use_vllm: bool = False
    num_workers: int = 4
    timeout: int = 600
    max_expansions: int | None = None
    num_sampled_tactics: int = 64
    debug: bool = False
    batch_size: int = 12

    def applied(self, prove: Prove) -> Prove:
        """Return the settings with these values."""
        update: dict[str, Any] = {"seconds_per_sorry": float(self.timeout)}
        if self.max_expansions is not None:
            update["nodes_per_sorry"] = self.max_expansions
        generator = prove.generator.model_copy(update={"candidates": self.num_sampled_tactics})
        return prove.model_copy(update={**update, "generator": generator})


class BaseAgent:
    """LeanDojo-v2's agent on everlean's store.

    Your own agent is a subclass with a `trainer` that has LeanDojo's `train(repos, database, data_path)`, and
    `_setup_prover`, which sets `prover`. The gate judges all its proofs.

    Attributes:
        trainer: trains a model; None: nothing is trained.
        prover: proves in this process: a prover of `pipeline.prove`, or an object with its `next_tactic`;
            None: see each agent.
        settings: the daemon's, with the caller's overrides.
        repos: the repositories set up, each with `url` and `commit`.
        database_path: the place of LeanDojo's dynamic_database.json, written after each repository; None:
            nowhere.
    """

    trainer: Any = None
    prover: Any = None

    def __init__(
        self,
        database_path: str | Path | None = None,
        *,
        prover_config: ProverConfig | None = None,
        state_dir: str | Path | None = None,
        config: str | Path | None = None,
        lean: str | None = None,
        say: Say = print,
    ) -> None:
        """Args:
        database_path: see the class.
        prover_config: budgets, in the place of those of [prove].
        state_dir, config, lean: see `daemon.leandojo.session.settings_for`.
        say: takes lines of text for people.

        Raises:
            AgentError: the configuration is not valid.
        """
        self.settings = settings_for(config=config, state_dir=state_dir, lean=lean)
        if prover_config is not None:
            prove = prover_config.applied(self.settings.prove)
            self.settings = self.settings.model_copy(update={"prove": prove})
        self.repos: list[Pinned] = []
        self._seen: list[Pinned] = []
        self.database_path = None if database_path is None else Path(database_path)
        self._say = say

    @property
    def database(self) -> DynamicDatabase:
        """The store as LeanDojo's database, readable at any time.

        Raises:
            AgentError: nothing was recorded yet.
        """
        if not self.settings.paths.events_db.is_file():
            raise AgentError(
                f"{self.settings.paths.state}: nothing is recorded there yet; set a repository up first"
            )
        return self._database(self.repos)

    @property
    def data_path(self) -> Path:
        """The folder for training datasets."""
        return self.settings.paths.cache / "agent" / "merged"

    def setup_github_repository(self, url: str, commit: str) -> None:
        """Fetch a repository, scan and trace one commit of it, and add it to `repos`.

        Args:
            url: its address, as for `git clone`.
            commit: the full id of a commit on one of its branches, or a branch's name for its newest.

        Raises:
            AgentError: it cannot be read, is no Lean project, no backend here runs its Lean, or it cannot be
                traced; the message names the remedy.
            daemon.place.lock.AlreadyRunningError: a daemon, or another agent, holds the state folder.
        """
        self._set_up(address(url), commit)

    def setup_local_repository(self, path: str | Path) -> None:
        """Do the same for a repository on this machine, at its newest commit; uncommitted changes are
        ignored."""
        folder = Path(path).expanduser().absolute()
        if not folder.is_dir():
            raise AgentError(f"{folder}: there is no such folder; name the folder of a git repository")
        self._set_up(address(str(folder)), None)

    def trace_repository(self, url: str, commit: str | None, build_deps: bool | None = None) -> Repository:  # noqa: ARG002
        """Fetch and trace a commit as `setup_github_repository` does, without training on it; return its
        record.

        Args:
            url, commit: see `setup_github_repository`; None: the newest commit of the branch checked out
                there.
            build_deps: as LeanDojo's; a build here always has the dependencies, and a trace the repository's
                own files.

        Raises:
            AgentError, AlreadyRunningError: see `setup_github_repository`.
        """
        pinned = self._traced(address(url), commit)
        result = self._database([pinned]).get_repository(pinned.url, pinned.commit)
        assert result is not None  # it was traced just now
        return result

    def add_repository(self, repo: Any) -> None:
        """Set up a repository: a `Repository`, a `LeanGitRepo`, or any object with `url` and `commit`."""
        self._set_up(address(repo.url), repo.commit)

    def export(self, repositories: Sequence[Repository], out: Path) -> None:
        """Write traced repositories as a dataset folder.

        Raises:
            store.errors.LogError: something other than an export lies there.
        """
        by_commit = {(pinned.url, pinned.commit): pinned for pinned in self._seen}
        pinned = [by_commit[repo.url, repo.commit] for repo in repositories]
        self._database(pinned).export_merged_data(repositories, out)

    def initialize_prover(self) -> list[tuple[Theorem, Pinned]]:
        """Set the prover up; return the theorems with a sorry, each with its repository."""
        self._setup_prover()
        database = self.database
        return [
            (theorem, pinned)
            for pinned in self.repos
            if (repo := database.get_repository(pinned.url, pinned.commit)) is not None
            for theorem in repo.sorry_theorems_unproved
        ]

    def prove_theorem(self, theorem: Theorem, repo: Any, whole_proof: bool = False) -> bool | None:
        """Try to prove a theorem with a sorry, together with the others of its repository, as `prove` does.

        Returns:
            whether Lean has checked a proof by the whole gate; None if it could not be judged wholly here.

        Raises:
            AgentError: see `prove`; or the repository was not set up, or has no such sorry.
        """
        pinned = [one for one in self.repos if (one.url, one.commit) == (repo.url, repo.commit)]
        if not pinned:
            raise AgentError(f"{repo.url} at {repo.commit}: was not set up; call add_repository(repo) first")
        target = theorem.full_name, str(theorem.file_path)
        verdicts = [
            item.verdict
            for item in self._prove(pinned, whole_proof).sorries
            if (item.sorry.declaration, item.sorry.path) == target
        ]
        if not verdicts:
            raise AgentError(f"{theorem.full_name}: {theorem.file_path} has no open sorry of that name")
        return (
            True
            if set(verdicts) == {"proved"}
            else None
            if set(verdicts) <= {"proved", "unjudged"}
            else False
        )

    def _get_build_deps(self) -> bool:
        """Answer LeanDojo's question whether dependencies are traced; see `trace_repository`."""
        return False

    def _setup_prover(self) -> None:
        """Set `prover`, in an agent of your own."""

    def train(self) -> Any:
        """Train on the repositories set up.

        Raises:
            ValueError: no repository was set up.
        """
        if not self.repos:
            raise ValueError(
                "No repository loaded. Call setup_github_repository() or setup_local_repository() first."
            )
        return self._train()

    def evaluate(self) -> tuple[EvaluationRow, ...]:
        """Return, and print, the model's metrics on the test splits of the repositories set up.

        Raises:
            AgentError: there is nothing to measure, or it cannot be measured.
        """
        with self.session() as session:
            checkpoint = self._measured_checkpoint(session)
            rows = session.ask(partial(model_queries.evaluations, checkpoint=checkpoint))
        keys = {pinned.key for pinned in self.repos}
        measured = tuple(row for row in rows if row.split == "test" and row.repository in keys)
        for key in sorted(keys - {row.repository for row in measured}):
            self._say(f"{key}: its test split has no example: there is nothing to measure")
        for row in measured:
            self._say(_metrics_line(row))
        return measured

    def prove(self, whole_proof: bool = False) -> ProveResult:
        """Try the open sorries of the repositories set up; print and return the outcome of each.

        A proof counts when Lean has passed all of the gate. An earlier try with the same model and budget is
        not repeated; its result is returned.

        Args:
            whole_proof: have the model write whole proofs, and mend them by Lean's errors, instead of
                tactics.

        Raises:
            AgentError: there is no model to prove with.
            daemon.place.lock.AlreadyRunningError: a daemon, or another agent, holds the state folder.
        """
        if not self.repos:
            self._say("No sorry found to prove: no repository was set up.")
            return ProveResult(())
        return self._prove(self.repos, whole_proof)

    def _prove(self, repos: Sequence[Pinned], whole_proof: bool) -> ProveResult:
        with AgentSession.open(self._watching(repos), say=self._say) as session:
            # The daemon's hours do not apply to a direct call.
            prove = self.settings.prove.model_copy(update={"enabled": True, "hours_per_day": None})
            self._setup_prover()
            if self.prover is None:
                prove = self._proving(session, prove, whole_proof)
            else:
                prove = _with_own(self.prover, session, prove, whole_proof)
            session.settings = session.settings.model_copy(update={"prove": prove})
            sorries = [row for pinned in repos for row in session.ask(pinned.open_sorries)]
            climbed, waiting = session.climb()
            if waiting:
                raise AgentError(f"nothing can be proved yet: {waiting[0]}")
            rungs = [rung.with_judge(pinned.lean) for pinned in repos for rung in climbed]
            ended: Sequence[JobRow] = ()
            if sorries:
                self._say(f"Found {counted(len(sorries), 'sorry')} to prove")
                ended = session.work_off(TO_PROVE, {pinned.at for pinned in repos})
            jobs = frozenset(row.job for row in ended)
            result = ProveResult(
                session.ask(partial(sorry_results, sorries=sorries, jobs=jobs, rungs=tuple(rungs)))
            )
            session.tidy({pinned.at for pinned in repos})
        for item in result.sorries:
            self._say(str(item))
        self._say(str(result))
        return result

    def _proving(self, session: AgentSession, prove: Prove, whole_proof: bool) -> Prove:  # noqa: ARG002
        """Return the settings with this agent's rung; set `session.tactics` for rung 2.

        Raises:
            AgentError: there is no model.
        """
        raise AgentError(f"{type(self).__qualname__} has no prover; set self.prover in _setup_prover()")

    def _train(self) -> Any:
        """Train on the repositories, in the order of the curriculum."""
        if self.trainer is None:
            raise AgentError(f"{type(self).__qualname__} has no trainer; set self.trainer")
        database, repos = self._ordered()
        return self.trainer.train(repos=repos, database=database, data_path=self.data_path)

    def _ordered(self) -> tuple[DynamicDatabase, list[Repository]]:
        """Return the store, and its repositories set up here, in the order of the curriculum.

        Raises:
            AgentError: one has no trace any more.
        """
        database, pinned = self.database, {(one.url, one.commit): one for one in self.repos}
        ordered = [
            repo for repo in database.sort_repositories_by_difficulty() if (repo.url, repo.commit) in pinned
        ]
        lost = pinned.keys() - {(repo.url, repo.commit) for repo in ordered}
        if lost:
            gone = ", ".join(sorted(str(pinned[key]) for key in lost))
            raise AgentError(f"{gone}: has no trace any more; set the repository up again")
        return database, ordered

    def _measured_checkpoint(self, session: AgentSession) -> str:  # noqa: ARG002
        """Return the id of the checkpoint to evaluate."""
        raise AgentError(f"{type(self).__qualname__} has no model in the store; ask its trainer's evaluate()")

    def session(self) -> AbstractContextManager[AgentSession]:
        """Open a session on the repositories set up."""
        return AgentSession.open(self._watching(self.repos), say=self._say)

    def _watching(self, repos: Sequence[Pinned]) -> Settings:
        """Return the settings with these repositories as the whole watchlist, so nothing else is due."""
        return self.settings.model_copy(update={"repos": tuple(pinned.repo for pinned in repos)})

    def _set_up(self, url: str, commit: str | None) -> None:
        pinned = self._traced(url, commit)
        self.repos = [*(repo for repo in self.repos if repo.key != pinned.key), pinned]
        if self.database_path is not None:
            self.database.to_json(self.database_path)

    def _traced(self, url: str, commit: str | None) -> Pinned:
        with self.session() as session:
            pinned = session.run(pin(session, url, commit, watchlist=self.settings.repos))
            session.settings = self._watching([pinned])
            ended = session.work_off(TO_TRACE, {pinned.at})
            trace = session.ask(pinned.trace)
            if trace is None:
                raise AgentError(_why_not_done(pinned, ended, *sorted(TO_TRACE)))
            count = counted(len(session.ask(pinned.open_sorries)), "open sorry")
            session.tidy({pinned.at})
            # The store and its datasets use the repository's first address.
            pinned = replace(pinned, repo=pinned.repo.model_copy(update={"url": trace.url}))
            self._say(
                f"{pinned}: {trace.files_traced} files, {trace.n_theorems} theorems, {trace.n_tactics} tactics, "
                f"{count}"
            )
        self._seen = [*(one for one in self._seen if str(one) != str(pinned)), pinned]
        return pinned

    def _database(self, repos: Sequence[Pinned]) -> DynamicDatabase:
        """Open the store's records: each repository's newest trace, and those of these commits."""
        state = self.settings.paths.state
        with closing(queries.connect(self.settings.paths.database_db)) as view:
            traces = [trace.trace for pinned in repos if (trace := pinned.trace(view)) is not None]
        return DynamicDatabase(state, tracer=self.trace_repository, also=traces)


def _with_own(prover: Any, session: AgentSession, prove: Prove, whole_proof: bool) -> Prove:
    """Return the settings for the caller's prover, for the session's prove jobs."""
    from pipeline.prove.provers import as_prover

    own = as_prover(prover)
    session.prove_with(own, whole=whole_proof)
    session.tactics = own.name, own.name
    # No job is to lease a GPU for it.
    generator = prove.generator.model_copy(update={"device": "cpu"})
    whole = prove.whole.model_copy(update={"model": own.name})
    rungs = (3,) if whole_proof else (2,)
    return prove.model_copy(update={"rungs": rungs, "generator": generator, "whole": whole})


def _why_not_done(pinned: Pinned, ended: Sequence[JobRow], *kinds: Kind) -> str:
    """Return why the work of these kinds of jobs is not done."""
    for row in ended:
        if row.state == "failed" and row.kind in kinds:
            remedy = f"; {row.remedy}" if row.remedy else ""
            return (
                f"{pinned}: {row.kind} failed: {row.message or row.reason}{remedy}; `everlean jobs logs {row.job}` has "
                "more, and the same call tries it again"
            )
    return f"{pinned}: was not done ({', '.join(kinds)}), and no job says why; see `everlean jobs`"


class ExternalAgent(BaseAgent):
    """An agent for a model behind an OpenAI-compatible endpoint.

    It trains nothing. The model writes whole proofs and mends them by Lean's errors. The endpoint may cost
    money: the caller sets a cap for the day.
    """

    ROUTER = "https://router.huggingface.co/v1"

    def __init__(
        self,
        model_name: str = "deepseek-ai/DeepSeek-Prover-V2-671B:novita",
        database_path: str | Path | None = None,
        *,
        base_url: str = "",
        usd_per_day: float | None = None,
        usd_per_million_prompt: float | None = None,
        usd_per_million_completion: float | None = None,
        **others: Any,
    ) -> None:
        """Args:
        model_name: as the endpoint names it.
        base_url: of the endpoint; "": [prove.external] base_url, else Hugging Face's router (key: HF_TOKEN).
        usd_per_day, usd_per_million_prompt, usd_per_million_completion: the cap and the prices; None: those of
            [prove.external]. A free endpoint has prices of 0.
        database_path, others: see `BaseAgent`.
        """
        super().__init__(database_path, **others)
        self.model_name = model_name
        external = self.settings.prove.external
        money = {
            "usd_per_day": usd_per_day,
            "usd_per_million_prompt": usd_per_million_prompt,
            "usd_per_million_completion": usd_per_million_completion,
        }
        update: dict[str, Any] = {"model": model_name}
        update |= {name: float(value) for name, value in money.items() if value is not None}
        if base_url:
            update["base_url"] = base_url
        elif not external.base_url:
            update["base_url"] = self.ROUTER
            if external.key.variable not in os.environ:
                update["credential"] = "hf-token"
        try:
            checked = External.model_validate(update)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            raise AgentError(f"{name} {first['msg'].removeprefix('Value error, ')}") from error
        external = external.model_copy(update={name: getattr(checked, name) for name in update})
        prove = self.settings.prove.model_copy(update={"external": external})
        self.settings = self.settings.model_copy(update={"prove": prove})

    def _proving(self, session: AgentSession, prove: Prove, whole_proof: bool) -> Prove:  # noqa: ARG002
        prove = prove.model_copy(update={"rungs": (4,)})
        problems = [f"the agent {problem}" for problem in lacking(prove)]
        if problems:
            raise AgentError("; ".join(problems))
        return prove

    def _train(self) -> NoReturn:
        raise AgentError("ExternalAgent trains nothing: its model is external; take HFAgent or LeanAgent")

    def _measured_checkpoint(self, session: AgentSession) -> NoReturn:  # noqa: ARG002
        raise AgentError(
            "ExternalAgent has no model of its own to measure; prove() says what it proves, and the attempts' cost is "
            "in `everlean sorries`"
        )


class LeanAgent(BaseAgent):
    """An agent that trains the lifelong premise retriever, and proves with a generator and its premises.

    Training, evaluation and promotion are the daemon's jobs and rules: a checkpoint that has forgotten too
    much is refused, and `everlean models` reports it.
    """

    GENERATOR = "kaiyuy/leandojo-lean4-retriever-tacgen-byt5-small"

    def __init__(
        self,
        database_path: str | Path | None = None,
        training_config: TrainingConfig | None = None,
        prover_config: ProverConfig | None = None,
        *,
        generator: str | Path = "",
        **others: Any,
    ) -> None:
        """Args:
        training_config: of the retriever; None: LeanDojo's defaults, with EWC, under the configuration's
            [train.retriever].
        generator: a folder or hub name of the tactic generator; "": [prove.generator] model, else LeanDojo's.
        database_path, prover_config, others: see `BaseAgent`.
        """
        super().__init__(database_path, prover_config=prover_config, **others)
        # Not at the top: the other agents need none of it.
        from pipeline.models.retriever.config import TrainingConfig

        train = self.settings.train
        config = training_config or TrainingConfig.from_dict(train.retriever)
        usual, fields = RetrieverConfig(), config.translated().to_dict()
        device = fields.pop("device")
        if device == "auto":
            device = "cuda" if train.device != "cpu" and cuda_is_there() else "cpu"
        update = {
            "enabled": True,
            "new_theorems": 1,
            "retriever": {name: one for name, one in fields.items() if one != getattr(usual, name)},
            "device": device,
            "gpus": max(train.gpus, config.num_gpus),
        }
        self.settings = self.settings.model_copy(update={"train": train.model_copy(update=update)})
        self.generator = str(generator) or self.settings.prove.generator.model or self.GENERATOR

    def _train(self) -> tuple[CheckpointRow, ...]:
        problem = why_not_trainable(self.settings.train)
        if problem:
            raise AgentError(f"nothing can be trained here: {problem}")
        with self.session() as session:
            ordered = session.ask(curriculum.curriculum).repositories
            order = {item.repository: number for number, item in enumerate(ordered)}
            repos = sorted(self.repos, key=lambda pinned: order.get(pinned.key, len(order)))
            traces = session.ask(trace_queries.newest_traces)
            newest = {row.repository: row.sha for row in traces}
            for pinned in repos:
                if (sha := newest.get(pinned.key, pinned.commit)) != pinned.commit:
                    raise AgentError(
                        f"{pinned}: {sha[:10]} was traced since, and training uses a repository's newest trace; set "
                        "the repository up again, at the right commit"
                    )
            return tuple(row for pinned in repos for row in self._learn(session, pinned))

    def _learn(self, session: AgentSession, pinned: Pinned) -> list[CheckpointRow]:
        session.settings = self._watching([pinned])
        ended = {row.job: row for row in session.work_off({"train"}, {pinned.at})}
        session.settle_models()
        if any(row.state == "failed" for row in ended.values()):
            raise AgentError(_why_not_done(pinned, [*ended.values()], "train"))
        checkpoints = session.ask(partial(model_queries.checkpoints, model=RETRIEVER))
        result = [row for row in checkpoints if row.job in ended]
        for checkpoint in result:
            self._say(_decision(checkpoint))
        if not result:
            self._say(f"{pinned}: nothing new to learn")
        return result

    def _measured_checkpoint(self, session: AgentSession) -> str:
        in_use = session.ask(partial(model_queries.checkpoint_in_use, model=RETRIEVER))
        if in_use is None:
            raise AgentError("no retriever is in use to be measured; call train() first")
        return in_use.checkpoint

    def _proving(self, session: AgentSession, prove: Prove, whole_proof: bool) -> Prove:  # noqa: ARG002
        if whole_proof:
            raise AgentError(
                "LeanAgent proves by tactics: its generator writes one tactic after the other; call prove() without "
                "whole_proof, or take HFAgent or ExternalAgent"
            )
        generator = prove.generator.model_copy(update={"model": self.generator})
        return prove.model_copy(update={"rungs": (1,), "generator": generator})


class HFAgent(BaseAgent):
    """An agent that trains with the caller's trainer, in this process, and proves with the trained model.

    After each repository the model in `output_dir` is offered to the store (as `everlean models add` does): a
    job measures it on the test splits, and the daemon's rule promotes or refuses it. The agent itself proves
    with its trainer's model, promoted or not; before any training, with the trainer's first model.
    """

    def __init__(
        self,
        trainer: SFTTrainer,
        database_path: str | Path | None = None,
        training_config: None = None,
        prover_config: ProverConfig | None = None,
        **others: Any,
    ) -> None:
        """Args:
        trainer: trains a model in its `output_dir`.
        training_config: takes None alone: it is of the retriever, and the trainer has its own settings.
        database_path, prover_config, others: see `BaseAgent`.
        """
        if training_config is not None:
            raise AgentError("training_config is not taken: give the trainer its settings")
        super().__init__(database_path, prover_config=prover_config, **others)
        self.trainer = trainer
        self.output_dir = trainer.output_dir
        self.use_lora = trainer.lora_config is not None
        self._folder = Path(trainer.output_dir).absolute()
        base = Path(trainer.model_name)
        self._base = str(base.absolute()) if base.exists() else trainer.model_name

    def _train(self) -> tuple[CheckpointRow, ...]:
        with self.session() as session, self._checkouts(session):
            database, ordered = self._ordered()
            pinned = {(repo.url, repo.commit): repo for repo in self.repos}
            result = []
            for number, repo in enumerate(ordered, 1):
                own = pinned[repo.url, repo.commit]
                try:
                    self.trainer.train(ordered[:number], database, self.data_path)
                except LearningError as error:
                    raise AgentError(f"{own}: was not learned: {error}") from error
                row = self._added(session, own)
                if row is not None:
                    self._say(_decision(row))
                    result.append(row)
            return tuple(result)

    def _added(self, session: AgentSession, pinned: Pinned) -> CheckpointRow | None:
        """Have the store measure and judge the trained model as a checkpoint; return it, None if nothing is
        new.

        Raises:
            AgentError: it could not be measured.
        """
        made = read_checkpoint(self._folder)
        learned = () if made is None else made.learned
        if f"{pinned.url}@{pinned.commit}" not in learned:
            self._say(f"{pinned}: has no step of a proof to learn from")
            return None
        if session.ask(partial(_checkpoint_of, folder=self._folder)) is not None:
            return None
        trace = session.ask(pinned.trace)
        assert trace is not None  # it was trained on
        body = ModelOffered(
            model=TACTICS,
            folder=str(self._folder),
            weights=begun(self._folder),
            repository=pinned.key,
            trace=trace.trace,
            learned=True,
            by=getpass.getuser(),
        )
        session.run(session.store.append([NewEvent(f"model:{TACTICS}", body, actor="control")]))
        train = self.settings.train
        update = {
            "enabled": True,
            "tactics": {**train.tactics, "enabled": False},
            "device": self.trainer.config.device,
        }
        session.settings = self._watching([pinned]).model_copy(
            update={"train": train.model_copy(update=update)}
        )
        ended = session.work_off({TRAINS[TACTICS]}, {pinned.at})
        session.settle_models()
        row = session.ask(partial(_checkpoint_of, folder=self._folder))
        if row is None:
            raise AgentError(_why_not_done(pinned, ended, TRAINS[TACTICS]))
        return row

    @contextmanager
    def _checkouts(self, session: AgentSession) -> Iterator[None]:
        """Check the repositories out for a trainer whose reward runs Lean, if it has no places for it.

        Raises:
            AgentError: one cannot be checked out, or its build is gone.
        """
        if not getattr(self.trainer, "wants_places", False):
            yield
            return
        paths = self.settings.paths
        checkouts: dict[tuple[str, str], SourcePlaces] = {}
        for pinned in self.repos:
            folder = paths.worktrees / f"agent-{slug(pinned.key)}"
            built = pinned.lean.is_lean and self.settings.build.enabled
            result = checkout(folder, Commit(pinned.key, pinned.commit, built), git=session.git, paths=paths)
            try:
                session.run(session.attached.enter_async_context(result))
            except (JobError, RemoteError) as error:
                raise AgentError(f"{pinned}: cannot be checked out: {error}; {error.remedy}") from error
            except BuildMissingError as error:
                raise AgentError(
                    f"{pinned}: {error}; set the repository up again, which builds it"
                ) from error
            checkouts[pinned.url, pinned.commit] = SourcePlaces(pinned.lean, folder)

        def place(row: Mapping[str, Any]) -> GoalContext | None:
            places = checkouts.get((str(row.get("url")), str(row.get("commit"))))
            return None if places is None else places(row)

        trainer: Any = self.trainer
        trainer.places = place
        try:
            yield
        finally:
            trainer.places = None

    def _measured_checkpoint(self, session: AgentSession) -> str:
        row = session.ask(partial(_checkpoint_of, folder=self._folder))
        if row is None:
            raise AgentError(f"{self.output_dir}: holds no model that this agent trained; call train() first")
        return row.checkpoint

    def _proving(self, session: AgentSession, prove: Prove, whole_proof: bool) -> Prove:
        row = session.ask(partial(_checkpoint_of, folder=self._folder))
        if row is not None:
            name, model = row.checkpoint, str(session.settings.paths.models / TACTICS / row.checkpoint)
        elif begun(self._folder):
            name = model = str(self._folder)
        else:
            self._say(f"nothing was trained into {self.output_dir} yet: {self._base} is used as it is")
            name = model = self._base
        if whole_proof:
            whole = prove.whole.model_copy(update={"model": model})
            return prove.model_copy(update={"rungs": (3,), "whole": whole})
        session.tactics = name, model
        return prove.model_copy(update={"rungs": (2,)})


def _checkpoint_of(view: sqlite3.Connection, *, folder: Path) -> CheckpointRow | None:
    """Return the checkpoint with the weights of a model's folder; None if the store has none."""
    weights = begun(folder)
    rows = model_queries.checkpoints(view, model=TACTICS) if weights else []
    return next((row for row in rows if row.weights == weights), None)
