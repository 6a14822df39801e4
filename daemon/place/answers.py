"""The daemon's answer to GET /status, typed for both ends. Standard library only.

Every field but a job's id has a default: the command may be of another version than the daemon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from store.documents.ladder import Rung
from store.documents.live import JobProgress, QueuedJob

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from pipeline.jobs.kinds import Kind

Answer = TypeVar("Answer", bound="DataclassInstance")
GpuUse = Literal["free", "lent", "busy", "lost"]


def read_answer(cls: type[Answer], data: Mapping[str, Any]) -> Answer:
    """Return a part of an answer, without fields unknown to this version."""
    return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A running job. `gpu` names its GPUs, "" without one; `progress` is None before its first report."""

    job: str
    kind: Kind = "scan"
    attempt: int = 0
    repository: str = ""
    branch: str = ""
    sha: str = ""
    describes: str = ""
    pid: int | None = None
    started_at: str = ""
    seconds: float = 0.0
    gpu: str = ""
    progress: JobProgress | None = None

    @property
    def total(self) -> int:
        return self.progress.total if self.progress is not None else 0

    @property
    def note(self) -> str:
        return self.progress.note if self.progress is not None else ""


@dataclass(frozen=True, slots=True)
class LackingLean:
    """A Lean version needed by watched branches and not runnable here."""

    toolchain: str = ""
    version: str = ""
    branches: Sequence[str] = ()
    detail: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as it is now."""

    uuid: str
    """empty of the nameless one"""
    index: int
    name: str
    memory_bytes: int = 0
    used_bytes: int = 0
    state: GpuUse = "free"
    """`free`, `lent` (a job leases it), `busy` (another process uses it) or `lost` (it does not answer)"""
    detail: str = ""
    """more of the state"""
    remedy: str = ""

    @property
    def called(self) -> str:
        return f"GPU {self.index} ({self.name})"


@dataclass(frozen=True, slots=True)
class ConfigInForce:
    path: str = ""
    digest: str = ""
    errors: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Training:
    enabled: bool = False
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class ToldJump:
    """The last jump of the clock, for an hour after it was noticed."""

    set_s: int = 0
    slept_s: int = 0
    noticed_at: str = ""


@dataclass(frozen=True, slots=True)
class CacheUse:
    bytes: int = 0
    limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """The whole answer. `root`: root runs the daemon. `no_groups` is why jobs have no control groups, "" if
    they do."""

    problems: Sequence[str] = ()
    """those of its parts; GET /health has all"""
    pid: int | None = None
    version: str | None = None
    started_at: str | None = None
    lean: str = ""
    lean_detail: str = ""
    config: ConfigInForce = ConfigInForce()
    jobs: Sequence[LiveJob] = ()
    queued: Sequence[QueuedJob] = ()
    more_queued: int = 0
    """the number of jobs beyond `queued`"""
    gpus: Sequence[Gpu] = ()
    polling: Sequence[str] = ()
    lacking: Sequence[LackingLean] = ()
    ladder: Sequence[Rung] = ()
    training: Training = Training()
    clock: ToldJump | None = None
    root: bool = False
    no_groups: str = ""
    cache: CacheUse = CacheUse()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LiveStatus:
        """Read the answer from the socket."""
        read: dict[str, Any] = dict(data)
        for name, part in _PARTS.items():
            if read.get(name) is not None:
                read[name] = read_answer(part, read[name])
        for name, item in _LISTS.items():
            read[name] = [read_answer(item, one) for one in read.get(name, ())]
        read["jobs"] = [
            read_answer(LiveJob, {**job, "progress": progress and read_answer(JobProgress, progress)})
            for job in data.get("jobs", ())
            for progress in [job.get("progress") or None]
        ]
        return read_answer(cls, read)


_PARTS: dict[str, type[DataclassInstance]] = {
    "config": ConfigInForce,
    "training": Training,
    "clock": ToldJump,
    "cache": CacheUse,
}
_LISTS: dict[str, type[DataclassInstance]] = {
    "queued": QueuedJob,
    "gpus": Gpu,
    "lacking": LackingLean,
    "ladder": Rung,
}
