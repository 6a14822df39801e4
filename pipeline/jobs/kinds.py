"""The kinds of jobs: one row each. A new kind is a row here, a specification in `pipeline.jobs.specs`, and a module.

`daemon.planning` decides when a job is due; `pipeline.jobs.lines` checks its lines further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.jobs.spec import Spec
from pipeline.jobs.specs import (
    BuildSpec,
    BumpSpec,
    CheckSpec,
    CountSpec,
    ProveSpec,
    ScanSpec,
    TraceSpec,
    TrainGrpoSpec,
    TrainRetrieverSpec,
    TrainSpec,
    TrainTacticsSpec,
)
from store.events.models import ModelKind

Kind = Literal[
    "scan",
    "check",
    "build",
    "trace",
    "prove",
    "bump",
    "train",
    "train_tactics",
    "train_grpo",
    "train_progress",
    "count",
]


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of jobs.

    Attributes:
        name: its name for people and the log.
        module: the module for `python -m pipeline.jobs.launch`.
        spec: the class of its parameters.
        may_record: the types of events it may record.
        longer_remedy: remedy for a job out of time.
        memory_remedy: remedy for a job possibly killed for its memory.
        long: a job may take hours; long ones never take the last free slot.
        beside: a job may take days, or waits for all others. Such jobs take no slot, and one runs at a time (by their
            lane). Trainings need their own children, and time, to save their state.
        resumes: a preempted job goes on from its records. A build's products are lost with its folder.
        in_worktree: a job gets a worktree of its commit.
        stays: a job takes seconds, or waits for all others, and reads the daemon's mirror: it runs on the daemon's
            machine, whatever the engine.
        lean_processes: Lean processes of the job, each with a memory limit of its own; None: `[lean] repls` of them.
        model: the model to train.
    """

    name: Kind
    module: str
    spec: type[Spec]
    may_record: frozenset[str]
    longer_remedy: str
    memory_remedy: str
    long: bool = False
    beside: bool = False
    resumes: bool = False
    in_worktree: bool = False
    stays: bool = False
    lean_processes: int | None = 0
    model: ModelKind | None = None


_TRAIN_LONGER = (
    "raise [train] timeout; the steps that were saved stay, and the next attempt continues from there"
)
_TRAINED = frozenset({"checkpoint_saved", "evaluation_finished"})

BY_PRIORITY: tuple[JobKind, ...] = (
    JobKind(
        "scan",
        "pipeline.scan",
        ScanSpec,
        frozenset(
            {
                "scan_begun",
                "file_scanned",
                "file_removed",
                "sorry_opened",
                "sorry_moved",
                "sorry_changed",
                "sorry_filled",
                "sorry_removed",
                "theorems_followed",
                "commit_scanned",
            }
        ),
        "raise [jobs] timeout",
        "raise [jobs] memory",
        stays=True,
    ),
    JobKind(
        "check",
        "pipeline.gate.check",
        CheckSpec,
        frozenset({"proof_checked", "proof_verified", "proof_rejected", "closure_judged"}),
        "raise [jobs] timeout",
        "raise [jobs] memory",
        in_worktree=True,
        lean_processes=2,  # one compiles, one lists the axioms
    ),
    JobKind(
        "build",
        "pipeline.build",
        BuildSpec,
        frozenset({"project_built"}),
        "raise [build] timeout",
        "raise [build] memory, or lower [jobs] max_running",
        long=True,
        in_worktree=True,
    ),
    JobKind(
        "trace",
        "pipeline.trace",
        TraceSpec,
        frozenset({"file_traced", "traced_file_removed", "commit_traced", "trace_measured", "sorry_stated"}),
        "raise [jobs] timeout; what is traced stays, and the next attempt continues from there",
        "raise [jobs] memory, or lower [lean] repls",
        long=True,
        resumes=True,
        in_worktree=True,
        lean_processes=None,
    ),
    JobKind(
        "prove",
        "pipeline.prove",
        ProveSpec,
        frozenset({"proof_found", "attempt_finished"}),
        "raise [jobs] timeout, or lower [prove] sorries_per_job",
        "raise [jobs] memory ([prove] memory where a model runs in it), or lower [lean] repls",
        long=True,
        resumes=True,
        in_worktree=True,
        lean_processes=None,
    ),
    JobKind(
        "bump",
        "pipeline.bump",
        BumpSpec,
        frozenset({"bump_built", "bump_tried", "bump_finished"}),
        "raise [build] timeout",
        "raise [build] memory, or lower [jobs] max_running",
        long=True,
        in_worktree=True,
        lean_processes=2,  # one compiles, one searches
    ),
    JobKind(
        "train",
        "pipeline.models",
        TrainRetrieverSpec,
        _TRAINED,
        _TRAIN_LONGER,
        "raise [train] memory, or lower batch_size under [train.retriever]",
        beside=True,
        model="retriever",
    ),
    JobKind(
        "train_tactics",
        "pipeline.models",
        TrainTacticsSpec,
        _TRAINED,
        _TRAIN_LONGER,
        "raise [train] memory, or lower batch_size or set lora under [train.tactics]",
        beside=True,
        model="tactics",
    ),
    JobKind(
        "train_grpo",
        "pipeline.models",
        TrainGrpoSpec,
        _TRAINED,
        _TRAIN_LONGER,
        "raise [train] memory, or lower batch_size or num_generations under [train.tactics.grpo]",
        beside=True,
        in_worktree=True,
        lean_processes=None,
        model="tactics",
    ),
    JobKind(
        "train_progress",
        "pipeline.models",
        TrainSpec,
        _TRAINED,
        _TRAIN_LONGER,
        "raise [train] memory, or lower batch_size under [train.progress]",
        beside=True,
        model="progress",
    ),
    JobKind(
        "count",
        "pipeline.count",
        CountSpec,
        frozenset({"past_counted"}),
        "raise [jobs] timeout; what is counted stays, and the next job continues from there",
        "raise [jobs] memory",
        beside=True,
        stays=True,
    ),
)
"""All kinds, the most urgent first."""
KINDS: Mapping[Kind, JobKind] = {kind.name: kind for kind in BY_PRIORITY}
TRAININGS: tuple[Kind, ...] = tuple(
    kind.name for kind in BY_PRIORITY if "checkpoint_saved" in kind.may_record
)
"""The kinds of trainings."""
TRAINS: Mapping[ModelKind, Kind] = {
    model: name for name in TRAININGS if name != "train_grpo" and (model := KINDS[name].model)
}
"""The kind of training for each model on a trace; a tactic model also learns from rewards (`train_grpo`)."""
