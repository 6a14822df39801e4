"""The problems known to the process or its machine alone; `store.documents.problems` has the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from store.documents.problems import Problem, ProblemCode, problem
from store.text import listed, size, span

if TYPE_CHECKING:
    from daemon.place.answers import CacheUse, Gpu, LackingLean, LiveStatus, ToldJump

BRANCHES_NAMED = 3
_BY_THE_UNIT = "run the daemon by its unit, on a machine with control groups of version 2"


def live_problems(live: LiveStatus) -> list[Problem]:
    """Return the problems in the living daemon's answer."""
    return [
        # Those of the configuration are in the view as well, and are reported from there.
        *(daemon_problem(text) for text in live.problems if not text.startswith("config: ")),
        *map(lacking_problem, live.lacking),
        *cache_problems(live.cache),
        *clock_problems(live.clock),
        *confinement_problems(live),
        *gpu_problems(live.gpus),
    ]


def daemon_problem(text: str) -> Problem:
    """Return the daemon's own problem; its remedy, if any, is behind the last semicolon."""
    message, _, remedy = text.rpartition("; ")
    return problem(ProblemCode.DAEMON_PROBLEM, message or text, remedy if message else "everlean doctor")


def lacking_problem(lacking: LackingLean) -> Problem:
    """Return the problem of a Lean version missing for watched branches: their sorries are found and never
    tried."""
    branches = lacking.branches
    names = listed(branches, BRANCHES_NAMED)
    return problem(
        ProblemCode.TOOLCHAIN_MISSING,
        f"{names}: nothing is built, traced or proved there: {lacking.detail}",
        lacking.remedy,
        severity="warning",
        subject=lacking.toolchain,
    )


def cache_problems(cache: CacheUse) -> list[Problem]:
    if cache.bytes <= cache.limit_bytes:
        return []
    text = (
        f"builds and packages take {size(cache.bytes)}, more than the {size(cache.limit_bytes)} of [cache] size:"
        " what is left is in use or about to be"
    )
    return [problem(ProblemCode.CACHE_OVER_LIMIT, text, "raise [cache] size", severity="warning")]


def clock_problems(jump: ToldJump | None) -> list[Problem]:
    """Return problems from jumps of the clock within the last hour, from the running daemon."""
    result = []
    if jump is not None and jump.set_s:
        way = "back" if jump.set_s < 0 else "forward"
        text = (
            f"the clock was set {way} by {span(abs(jump.set_s))} at {jump.noticed_at}: times in the log"
            " before and after do not compare, their order does"
        )
        remedy = (
            "nothing to be done here: intervals and deadlines do not hang on it; look at the time service"
        )
        result.append(problem(ProblemCode.CLOCK_SET, text, remedy, severity="warning"))
    if jump is not None and jump.slept_s:
        text = f"the machine slept for {span(jump.slept_s)}, until {jump.noticed_at}: the daemon did not run"
        remedy = "nothing to be done: what was due is caught up with, and running jobs have their time left"
        result.append(problem(ProblemCode.MACHINE_SLEPT, text, remedy, severity="warning"))
    return result


def confinement_problems(status: LiveStatus) -> list[Problem]:
    """Return the gaps between code of repositories and this machine, if Lean is real."""
    if status.lean not in ("pantograph", "server"):
        return []
    result = []
    if status.root:
        text = (
            "root runs the daemon, as [lean] as_root allows: code that gets out of its sandbox is root here"
        )
        result.append(
            problem(ProblemCode.RUNS_AS_ROOT, text, "run it as a user of its own", severity="warning")
        )
    if status.no_groups:
        message, _, remedy = status.no_groups.partition("; ")
        text = (
            "the memory of a job with all that it starts is looked at a few times a second, and not held by the kernel"
            f" ({message})"
        )
        result.append(problem(ProblemCode.BOUNDS_WATCHED, text, remedy or _BY_THE_UNIT, severity="warning"))
    return result


def gpu_problems(gpus: Sequence[Gpu]) -> list[Problem]:
    return [
        problem(
            ProblemCode.GPU_LOST,
            f"{gpu.called} is lost, and its jobs wait: {gpu.detail}",
            gpu.remedy,
            subject=gpu.uuid or None,
        )
        for gpu in gpus
        if gpu.state == "lost"
    ]
