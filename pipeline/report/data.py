"""What the report shows, as frozen dataclasses; `pipeline.report.gathering` reads them from the view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.prove.tree import Tree
from pipeline.report.history import Moment
from pipeline.report.machine import MachineTime
from pipeline.report.matrix import Matrix
from pipeline.report.periods import OverTime
from store.view.queries.reports import Searches
from store.view.rows import AttemptRow, CheckpointRow, EvaluationRow, JobRow, ProofRow, ServiceRow

SORRY_COLUMNS = ("open", "verified", "by_people", "by_us", "by_simulation", "removed")
"""What a repository's sorrys are counted by: the states, and of the filled ones who filled them."""

TRAINED_BY = {"train": "retriever", "train_tactics": "tactics", "train_progress": "progress"}
"""The kinds of jobs that train, and which model each trains."""
FINE = frozenset({"ok", "new"})
"""States of a repository that is not in trouble."""


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """A repository; `sorries` counts those of its watched branches, by `SORRY_COLUMNS`.

    One that is not `enabled` is not asked; its state is that of the last time.
    """

    repository: str
    state: str
    watched: bool
    enabled: bool
    reason: str
    remedy: str
    checked_at: str | None
    sorries: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProofCount:
    """How many proofs have a verdict; `simulated` ones are no proofs."""

    state: str
    simulated: bool
    n: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """How often the gate rejected for this reason, which begins with the step that failed.

    `conditional`: the proof rests on another sorry, and may hold once that one is filled.
    """

    reason: str
    conditional: bool
    simulated: bool
    n: int


@dataclass(frozen=True, slots=True)
class ShownProof:
    """A proof, and the search that found it: what was tried, and its tree. Without a tree `no_tree` says why."""

    row: ProofRow
    attempt: AttemptRow | None = None
    tree: Tree | None = None
    no_tree: str = ""


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that the page shows. `position` is the last event that the view contains.

    `flows` are the sorrys that were opened, filled and removed in each period, by `history.followed`'s words.
    `verified` are the newest proofs that Lean accepted, `others` the newest of all other texts; `proofs` counts them
    all. `failed_trainings` are jobs, the newest start first. `machine_periods` has seconds by (kind, simulated).
    """

    made_at: str
    position: int
    service: ServiceRow | None
    repositories: tuple[RepositoryState, ...]
    history: tuple[Moment, ...]
    flows: OverTime[str]
    proofs: tuple[ProofCount, ...]
    verified: tuple[ShownProof, ...]
    others: tuple[ShownProof, ...]
    searches: tuple[Searches, ...]
    rejections: tuple[Rejection, ...]
    matrices: tuple[Matrix, ...]
    trainings: tuple[CheckpointRow, ...]
    failed_trainings: tuple[JobRow, ...]
    measurements: tuple[EvaluationRow, ...]
    machine_time: tuple[MachineTime, ...]
    machine_periods: OverTime[tuple[str, bool]]

    @property
    def sorries(self) -> Mapping[str, int]:
        """How many sorrys watched branches have or had, by `SORRY_COLUMNS`."""
        return {name: sum(row.sorries[name] for row in self.repositories) for name in SORRY_COLUMNS}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (
            self.repositories or self.history or self.proofs or self.searches or self.trainings or self.measurements
            or self.machine_time
        )  # fmt: skip

    @property
    def simulated(self) -> bool:
        """Whether anything here comes from the simulator."""
        parts: tuple[Sequence[Any], ...] = (
            self.proofs, self.searches, self.trainings, self.measurements, self.machine_time
        )  # fmt: skip
        return (
            (self.service is not None and self.service.lean == "simulator")
            or any(item.simulated for part in parts for item in part)
            or any(moment.by_simulation for moment in self.history)
        )
