"""What the report shows, as frozen dataclasses; `pipeline.report.gathering` reads them from the view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.history import Moment
from pipeline.report.recall import RecallMatrix
from store.rows import JobRow, ProofRow
from store.trace_rows import CheckpointRow, EvaluationRow

SORRY_COLUMNS = ("open", "verified", "by_people", "by_us", "by_simulation", "removed")
"""What a repository's sorrys are counted by: the states, and of the filled ones who filled them."""


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """A repository; `sorries` counts those of its watched branches, by `SORRY_COLUMNS`."""

    repository: str
    state: str
    watched: bool
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
class MachineTime:
    """The newest attempts of the jobs of one kind: how many, how many of them still run or failed, what they took.

    `seconds` are of those that ended. `peak_rss_bytes` is the largest of any; None where none was measured.
    """

    kind: str
    simulated: bool
    jobs: int
    running: int
    failed: int
    seconds: float
    peak_rss_bytes: int | None


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that the page shows. `position` is the last event that the view contains.

    `proofs_found` are the newest proofs, of `sum(count.n for count in proofs)` in all. `failed_trainings` are jobs.
    """

    made_at: str
    position: int
    lean: str
    lean_detail: str
    repositories: tuple[RepositoryState, ...]
    history: tuple[Moment, ...]
    proofs: tuple[ProofCount, ...]
    proofs_found: tuple[ProofRow, ...]
    rejections: tuple[Rejection, ...]
    matrices: tuple[RecallMatrix, ...]
    trainings: tuple[CheckpointRow, ...]
    failed_trainings: tuple[JobRow, ...]
    measurements: tuple[EvaluationRow, ...]
    machine_time: tuple[MachineTime, ...]

    @property
    def sorries(self) -> Mapping[str, int]:
        """How many sorrys watched branches have or had, by `SORRY_COLUMNS`."""
        return {name: sum(row.sorries[name] for row in self.repositories) for name in SORRY_COLUMNS}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to report."""
        return not (
            self.repositories or self.history or self.proofs or self.trainings or self.measurements
            or self.machine_time
        )  # fmt: skip

    @property
    def simulated(self) -> bool:
        """Whether anything here comes from the simulator."""
        parts: tuple[Sequence[Any], ...] = (self.proofs, self.trainings, self.measurements, self.machine_time)
        return (
            self.lean == "simulator"
            or any(item.simulated for part in parts for item in part)
            or any(moment.by_simulation for moment in self.history)
        )
