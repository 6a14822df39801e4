"""Whether what somebody wants done once can be done: why a trigger is refused, and which one has nothing left to do.

Pure questions of the view, the settings and what can run Lean; `daemon.desk` takes the wishes and records the answers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from daemon.polling.branch_diff import asked_for
from daemon.proving import exercises
from daemon.settings import Repo, Settings
from pipeline.lean.backend import Leans
from store.events.jobs import TriggeredWork, TriggerEnded
from store.view.queries import basic as queries
from store.view.queries import jobs as job_queries
from store.view.queries import proofs as proof_queries
from store.view.queries import traces as trace_queries
from store.view.rows import BranchRow, TraceRow


def why_not(
    view: sqlite3.Connection,
    *,
    work: TriggeredWork,
    repo: Repo,
    settings: Settings,
    leans: Leans,
    untrainable: str,
) -> str:
    """Say why this work cannot be done in a repository; "" where it can.

    Args:
        untrainable: what training lacks here (`daemon.training_needs`).
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
    scanned = [row for row in _branches(view, repo) if _is_scanned(row)]
    if not scanned:
        return "no tip of it is scanned yet; `unsorry repos` says how it stands"
    found = [leans.for_toolchain(row.toolchain or "") for row in scanned]
    if all(lean.kind == "none" for lean in found):
        return f"no Lean for it: {found[0].detail}"
    # A tip that is not scanned yet may bring a sorry.
    all_known = len(scanned) == len(_branches(view, repo))
    return _nothing_to_prove(view, repo, scanned, leans) if work == "prove" and all_known else ""


def in_vain(view: sqlite3.Connection, *, settings: Settings, leans: Leans) -> list[TriggerEnded]:
    """Return the ends of the searches that were triggered, did not begin, and have nothing left to find.

    A tip that is not scanned may still bring a sorry, a Lean that is missing may come, a setting that keeps the work
    away may change: then the trigger waits.
    """
    repos = {repo.key: repo for repo in settings.repos if repo.enabled and not repo.opt_out}
    ends = []
    for row in job_queries.triggers(view):
        repo = repos.get(row.repository)
        if row.work != "prove" or not row.waits or repo is None or not settings.prove.enabled:
            continue
        branches = _branches(view, repo)
        if not branches or not all(
            _is_scanned(branch) and leans.for_toolchain(branch.toolchain or "").kind != "none"
            for branch in branches
        ):
            continue
        if reason := _nothing_to_prove(view, repo, branches, leans):
            ends.append(
                TriggerEnded(work="prove", repository=repo.key, trigger=row.seq, reason=f"it {reason}")
            )
    return ends


def _branches(view: sqlite3.Connection, repo: Repo) -> list[BranchRow]:
    return [
        row
        for row in queries.branches(view, repo.key)
        if row.state == "live" and (not repo.branches or asked_for(row.branch, repo.branches))
    ]


def _is_scanned(branch: BranchRow) -> bool:
    return branch.scanned == branch.tip and branch.toolchain is not None


def _nothing_to_learn(view: sqlite3.Connection, repo: Repo, leans: Leans, untrainable: str) -> str:
    if untrainable:
        return f"nothing can be trained here: {untrainable}"
    traced = trace_queries.newest_traces(view, simulated=True)
    trace = next((trace for trace in traced if trace.repository == repo.key), None)
    if trace is None:
        return "has no trace to learn from; `unsorry trigger trace` makes one"
    if not _by_its_lean(view, trace, leans):
        return "its newest trace is not by the Lean that works there now; `unsorry trigger trace` makes one"
    return ""


def _by_its_lean(view: sqlite3.Connection, trace: TraceRow, leans: Leans) -> bool:
    for row in queries.branches(view, trace.repository):
        if row.state == "live" and trace_queries.branch_line(row.branch) == trace.line:
            lean = leans.for_toolchain(row.toolchain or "")
            return lean.kind != "none" and lean.simulated == trace.simulated
    return False


def _nothing_to_prove(
    view: sqlite3.Connection, repo: Repo, branches: Sequence[BranchRow], leans: Leans
) -> str:
    """Say why no search would begin on these branches; "" where one would."""
    is_exercise = {row.branch: exercises(view, repo, row.branch) for row in branches}
    still_open = [
        row
        for row in queries.sorries(view, repository=repo.key)
        if row.state == "open" and row.branch in is_exercise
    ]
    if not still_open:
        return "has no open sorry"
    for_us = [row for row in still_open if not is_exercise[row.branch](row.path)]
    if not for_us:
        return "every open sorry of it is an exercise, for people to solve; write exercises = [] in its [[repos]]"
    settled = {(row.branch, sorry) for row in branches for sorry in _settled(view, repo, row, leans)}
    if all((row.branch, row.sorry) in settled for row in for_us):
        return "has no open sorry without a proof, or a proof of its negation: `unsorry proofs` has them"
    return ""


def _settled(view: sqlite3.Connection, repo: Repo, branch: BranchRow, leans: Leans) -> set[str]:
    """Return the sorrys of a branch that are open and have nothing left to find (`Reached.proved`)."""
    simulated = leans.for_toolchain(branch.toolchain or "").simulated
    so_far = proof_queries.reached(view, repository=repo.key, branch=branch.branch, simulated=simulated)
    return {sorry for sorry, how_far in so_far.items() if how_far.proved}
