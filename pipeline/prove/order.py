"""What the prove job is asked for: its parameters, read and checked (`pipeline/prove/__main__.py` lists the keys)."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.jobs.protocol import JobError
from pipeline.lean.backend import LeanBackend
from pipeline.lean.pool.pool import CALLS, MEMORY_BYTES, PoolLimits
from pipeline.prove.attempt import Wanted
from pipeline.prove.journal import ASIDE
from pipeline.prove.search import Budget
from store.domain.identity import short_hash

UNANSWERED = "unanswered"
"""Why a job fails whose model or endpoint failed to answer, and had answered nobody since."""
PROVERS = ("tactics", "retrieval", "generator", "whole", "external")
"""By rung."""
OF_AN_ENDPOINT = frozenset(
    {
        "auth_failed",
        "no_such_model",
        "no_credit",
        "redirected",
        "unreachable",
        "bad_credential",
        "bad_spending",
        "spending_cap",
    }
)
"""Why an endpoint answers nobody. What may be one request's trouble (too many requests, an error of the server, no
answer, or one that is none) is that sorry's, and the others go on; `UNANSWERED` is where it is everybody's."""
OF_THE_JOB = OF_AN_ENDPOINT | {UNANSWERED, "model_not_loaded", "bad_model", "journal"}
"""Why a job fails whichever sorrys it has: its model or its endpoint cannot be asked, or nothing can be written."""
OF_THE_MACHINE = OF_THE_JOB | {"lean_does_not_start", "database"}
"""Reasons that go away by themselves, in hours: nothing is wrong with the sorrys, and the job is worth another try."""
_JOURNALS_STAY_S = 14 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Order:
    """The job's parameters. `rung_s` are those of the rung: its models, its endpoint."""

    repository: str
    branch: str
    sha: str
    worktree: Path
    lean: LeanBackend
    prover: str
    rung: int
    model: str
    seed: int
    budget: Budget
    budget_key: str
    parallel: int
    limits: PoolLimits
    journal: Path | None
    database_db: Path | None
    sorries: tuple[Wanted, ...]
    rung_s: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, parameters: dict[str, Any]) -> Order:
        """Read the parameters.

        Raises:
            JobError: one is missing or malformed, the rung is none, or there is no Lean.
        """
        try:
            order = cls._read(parameters)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise bad_spec(f"{type(error).__name__}: {error}") from error
        if not 0 <= order.rung < len(PROVERS) or PROVERS[order.rung] != order.prover:
            there = ", ".join(f"{name!r} at {rung}" for rung, name in enumerate(PROVERS))
            raise JobError(
                "unknown_prover",
                f"prover {order.prover!r} at rung {order.rung} is not known; this version has {there}",
                deterministic=True,
            )
        if order.lean.kind == "none":
            raise JobError("no_lean", f"no Lean: {order.lean.detail}", remedy="see `unsorry doctor`")
        return order

    @classmethod
    def _read(cls, parameters: dict[str, Any]) -> Order:
        budget = parameters["budget"]
        parallel = max(1, int(parameters["parallel"]))
        calls = budget.get("calls_per_sorry")
        journal, lemmas = parameters.get("journal"), parameters.get("lemmas")
        return cls(
            repository=parameters["repository"],
            branch=parameters["branch"],
            sha=parameters["sha"],
            worktree=Path(parameters["worktree"]),
            lean=LeanBackend.from_json(parameters["lean"]),
            prover=parameters["prover"],
            rung=int(parameters["rung"]),
            model=str(parameters.get("model", "")),
            seed=int(parameters.get("seed", 0)),
            budget=Budget(
                nodes=int(budget["nodes_per_sorry"]),
                seconds=float(budget["seconds_per_sorry"]),
                tactic_timeout_s=float(budget["tactic_timeout_s"]),
                calls=None if calls is None else int(calls),
            ),
            budget_key=parameters["budget_key"],
            parallel=parallel,
            limits=PoolLimits(
                processes=int(parameters.get("repls", parallel)),
                memory_bytes=int(parameters.get("repl_memory_bytes", MEMORY_BYTES)),
                calls=int(parameters.get("repl_calls", CALLS)),
            ),
            journal=None if journal is None else Path(journal),
            database_db=None if lemmas is None else Path(lemmas["database_db"]),
            sorries=tuple(Wanted.from_json(item) for item in parameters["sorries"]),
            rung_s={
                name: dict(parameters[name])
                for name in ("generator", "retriever", "progress", "whole", "external")
                if parameters.get(name) is not None
            },
        )

    def part(self, name: str) -> dict[str, Any]:
        """Return the parameters of a part of the rung.

        Raises:
            JobError: there are none, and the rung needs them.
        """
        if name not in self.rung_s:
            raise bad_spec(f"rung {self.rung} ({self.prover}) needs {name!r}")
        return self.rung_s[name]

    def journal_of(self, wanted: Wanted, goal: int) -> Path | None:
        """Return where the search for a goal is written down, whichever job works on it; None for nowhere.

        A job that was killed is followed by one of another id, without the sorrys that had ended. The branch is in the
        name because the jobs of two branches may run at once.
        """
        if self.journal is None:
            return None
        key = (
            self.repository,
            self.branch,
            wanted.sorry,
            wanted.blob,
            self.prover,
            self.model,
            self.budget_key,
            str(self.seed),
            str(goal),
        )
        return self.journal / f"{short_hash('journal', *key)}.jsonl"

    def forget_old_journals(self) -> None:
        """Remove journals that nobody went on with: their sorry or its file is another one since."""
        if self.journal is None or not self.journal.is_dir():
            return
        for path in self.journal.glob(f"*.jsonl{ASIDE}"):
            path.unlink(missing_ok=True)
        for path in self.journal.glob("*.jsonl"):
            with contextlib.suppress(FileNotFoundError):  # another job may have ended its search just now
                if time.time() - path.stat().st_mtime > _JOURNALS_STAY_S:
                    path.unlink()


def bad_spec(what: str) -> JobError:
    """Return the failure of a spec that cannot be worked on."""
    return JobError(
        "bad_spec",
        f"the prove job's parameters cannot be read: {what}",
        remedy="see pipeline/prove/__main__.py for what they are",
        deterministic=True,
    )
