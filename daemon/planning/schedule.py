"""Find out whether work may begin now, and why it waits: a pause, or quiet hours. Pure.

Pauses are commands (`work_paused` in the log), quiet hours settings. Running jobs are not touched here;
`why_yield` decides about preempting a long one: a training, which saves its place, or a search for proofs on
this machine, which begins again. Other jobs run to their end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from daemon.planning.look import branches_of, traced_by
from daemon.planning.proving import exercises
from daemon.settings import Repo, Settings
from daemon.settings.hours import clock, ends_at
from daemon.settings.schema import OF_SORT, Schedule, Sort
from pipeline.jobs.kinds import Kind
from pipeline.lean.backend import LeanBackend, Leans
from store.documents.by_design import by_design
from store.events.jobs import TriggeredWork, TriggerEnded
from store.events.projects import worked_on
from store.text import listed
from store.view import queries, trace_queries
from store.view.rows import BranchRow, PauseRow

Because = Literal["pause", "quiet"]


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason to hold work back. `until` is its end by the clock; None if a person has to end it."""

    because: Because
    text: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Timetable:
    """The work allowed at a moment."""

    schedule: Schedule
    now: datetime
    pauses: Sequence[PauseRow] = ()

    def of_kind(self, kind: Kind) -> Wait | None:
        """Return why jobs of a kind wait; None if they need not."""
        return self._waits(OF_SORT.get(kind))

    def of_work(self, work: Literal["poll", "trace", "train", "prove"]) -> Wait | None:
        """Return why a sort of work waits; None if it need not."""
        return self._waits(None if work == "trace" else work)

    def _waits(self, sort: Sort | None) -> Wait | None:
        for pause in self.pauses:
            if pause.work in ("all", sort):
                why = f" ({pause.reason})" if pause.reason else ""
                text = f"paused by {pause.by}{why}; `everlean resume {pause.work}`"
                return Wait("pause", text)
        if sort is None:
            return None
        until = ends_at(self.schedule.quiet.windows(sort), self.now)
        if until is not None:
            return Wait("quiet", f"quiet hours until {clock(until, self.now)}", until)
        return None


ALWAYS = Timetable(Schedule(), datetime.min.replace(tzinfo=UTC))
"""Nothing holds any work back."""


def read_timetable(view: sqlite3.Connection, *, schedule: Schedule, now: datetime) -> Timetable:
    """Return the timetable of a moment, with the view's pauses."""
    return Timetable(schedule, now, tuple(queries.pauses(view)))


def why_yield(
    timetable: Timetable,
    kind: Kind,
    *,
    runs_for_s: float,
    holds_gpu: bool,
    waiting_for_gpu: Sequence[str],
    asks_endpoint: bool = False,
) -> str:
    """Return why a running training or search is preempted; "" if it is not.

    Args:
        kind: its kind.
        runs_for_s: the seconds since its start.
        holds_gpu: whether it has a GPU.
        waiting_for_gpu: the descriptions of proof jobs waiting only for a GPU.
        asks_endpoint: whether it uses an endpoint or a program, as rungs 4 and 5 do. Such a search runs to
            its end: its requests are paid, and would be sent again.
    """
    trains = OF_SORT.get(kind) == "train"
    if asks_endpoint or (not trains and kind != "prove"):
        return ""
    preempt = timetable.schedule.preempt
    wait = timetable.of_kind(kind)
    if wait is not None and wait.because in preempt:
        return wait.text
    # A job that has just begun has nothing to save.
    if "prove" in preempt and trains and holds_gpu and waiting_for_gpu and runs_for_s >= LEAST_S:
        return f"{waiting_for_gpu[0]} waits for its GPU"
    return ""


LEAST_S = 600.0
"""Seconds that a training runs before a proof may preempt it."""


# ---- Whether triggered work can begin
# Why a trigger is refused, and which triggers have nothing left to do. Pure functions of the view, the
# settings and Lean; `daemon.scheduling.scheduler` takes the wishes and records the answers.


def why_not(
    view: sqlite3.Connection,
    *,
    work: TriggeredWork,
    repo: Repo,
    settings: Settings,
    leans: Leans,
    untrainable: str,
) -> str:
    """Return why this work cannot be done in a repository; "" if it can.

    Args:
        untrainable: the missing requirements of training (`daemon.health.requirements`).
    """
    if not repo.enabled:
        return "is not enabled; write enabled = true in its [[repos]]"
    enabled = {
        "trace": settings.trace.enabled,
        "train": settings.train.enabled,
        "prove": settings.prove.enabled,
    }
    if not enabled[work]:
        return f"nothing is to {work}; write enabled = true under [{work}]"
    if work != "trace" and repo.opt_out:
        return "has opt_out; neither is it learned from nor is a proof searched there"
    if work == "train":
        return _nothing_to_learn(view, repo, leans, untrainable)
    scanned = [row for row in branches_of(view, repo) if _is_scanned(row)]
    if not scanned:
        return "no tip of it is scanned yet; `everlean repos` shows its state"
    result = [lean for row in scanned for lean in _leans_of(repo, row, leans)]
    if not result:
        return f"none of the Lake projects of [[repos]] projects is in it: {listed(list(repo.projects), 3)}"
    if all(lean.kind == "none" for lean in result):
        return f"no Lean for it: {result[0].detail}"
    # An unscanned tip may bring a sorry.
    all_known = len(scanned) == len(branches_of(view, repo))
    return _nothing_to_prove(view, repo, scanned) if work == "prove" and all_known else ""


def in_vain(view: sqlite3.Connection, *, settings: Settings, leans: Leans) -> list[TriggerEnded]:
    """Return the ends of triggered searches that did not begin and have nothing left to find.

    An unscanned tip may still bring a sorry, a missing Lean may come, a setting may change: then the trigger
    waits.
    """
    repos = {repo.key: repo for repo in settings.repos if repo.enabled and not repo.opt_out}
    ends = []
    for row in queries.triggers(view):
        repo = repos.get(row.repository)
        if row.work != "prove" or not row.waits or repo is None or not settings.prove.enabled:
            continue
        branches = branches_of(view, repo)
        if not branches or not all(
            _is_scanned(branch) and all(lean.kind != "none" for lean in _leans_of(repo, branch, leans))
            for branch in branches
        ):
            continue
        if reason := _nothing_to_prove(view, repo, branches):
            ends.append(
                TriggerEnded(work="prove", repository=repo.key, trigger=row.seq, reason=f"it {reason}")
            )
    return ends


def _is_scanned(branch: BranchRow) -> bool:
    return branch.scanned == branch.tip


def _nothing_to_learn(view: sqlite3.Connection, repo: Repo, leans: Leans, untrainable: str) -> str:
    if untrainable:
        return f"nothing can be trained here: {untrainable}"
    trace = trace_queries.newest_trace(view, repo.key)
    if trace is None:
        return "has no trace to learn from; `everlean trigger trace` makes one"
    if traced_by(view, repo, trace, leans) is None:
        return "its newest trace is not by the Lean that works there now; `everlean trigger trace` makes one"
    return ""


def _leans_of(repo: Repo, branch: BranchRow, leans: Leans) -> list[LeanBackend]:
    """Return the Lean of each watched project of a branch."""
    projects = worked_on(branch.lake_projects, repo.projects)
    return [leans.for_toolchain(one.toolchain) for one in projects]


def _nothing_to_prove(view: sqlite3.Connection, repo: Repo, branches: Sequence[BranchRow]) -> str:
    """Return why no search would begin on these branches; "" if one would."""
    is_exercise = {row.branch: exercises(view, repo, row.branch) for row in branches}
    still_open = [
        row
        for row in queries.sorries(view, repository=repo.key)
        if row.state == "open" and row.branch in is_exercise
    ]
    if not still_open:
        return "has no open sorry"
    design = by_design(view, repo.key)
    targets = [row for row in still_open if not design(row)]
    if not targets:
        return (
            "every open sorry of it is there by design: the challenge of a comparator.json, @[exercise], or "
            "answer(sorry)"
        )
    for_us = [row for row in targets if not is_exercise[row.branch](row.path)]
    if not for_us:
        return "every open sorry of it is an exercise, for people to solve; write exercises = [] in its [[repos]]"
    settled = {(row.branch, sorry) for row in branches for sorry in _settled(view, repo, row)}
    if all((row.branch, row.sorry) in settled for row in for_us):
        return "has no open sorry without a candidate, a proof, or a proof of its negation: see `everlean proofs`"
    return ""


def _settled(view: sqlite3.Connection, repo: Repo, branch: BranchRow) -> set[str]:
    """Return a branch's open sorries with nothing left to find (`SorryProgress.settled`)."""
    so_far = queries.reached(view, repository=repo.key, branch=branch.branch)
    return {sorry for sorry, how_far in so_far.items() if how_far.settled}
