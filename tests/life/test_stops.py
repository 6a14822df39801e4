"""SIGTERM of the daemon while a job of each kind is at its work.

It ends well and within its time, the attempt is recorded as interrupted and not as failed, no process is left, the view
is what a rebuild makes, and the next daemon does the work.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from pipeline.jobs.kinds import KINDS, Kind
from store.events.models import ModelKind
from tests.support.daemon import kills
from tests.support.daemon.at_work import SHUTDOWN_S, Child, Works

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("real_lean")]

MOST_TRIES = 5
"""Stops of a kind until one falls before the job's result."""


@dataclass(frozen=True, slots=True)
class Row:
    """How a job of a kind comes to be stopped, and how it is seen to be done at last.

    Attributes:
        closes: the event that is recorded when the work is done. A short job may have been stopped between that one and
            its own end, and is then not done again.
        more: makes a job due where nothing is; after a commit, all that follows from it comes by itself.
        learn: the models that are trained (`Works.write`).
        saves: it saves where it is.
        rewards: what learned is then trained with Lean's reward, without a trigger.
    """

    closes: str
    more: Callable[[Works], object] = Works.push
    learn: tuple[ModelKind, ...] = ()
    saves: bool = False
    rewards: bool = False


ROWS: Mapping[Kind, Row] = {
    "scan": Row("commit_scanned"),
    "build": Row("project_built"),
    "trace": Row("commit_traced"),
    "prove": Row("attempt_finished"),
    "check": Row("proof_checked"),
    "bump": Row("bump_finished", Works.bump),
    "train": Row("job_succeeded", Works.train, ("retriever",), saves=True),
    "train_tactics": Row("job_succeeded", Works.train, ("tactics",), saves=True),
    "train_grpo": Row("job_succeeded", Works.train, ("tactics",), saves=True, rewards=True),
    "train_progress": Row("job_succeeded", Works.train, ("progress",), saves=True),
}
"""In the order in which one comes of the other."""


def test_each_kind_of_job_is_stopped_here() -> None:
    # The past is counted once: tests/daemon/test_past.py kills the daemon then.
    assert set(ROWS) == set(KINDS) - {"count"}


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(["scan", "prove"], id="a short one and a long one"),
        pytest.param(
            [kind for kind in ROWS if KINDS[kind].model is None], id="a commit's jobs", marks=pytest.mark.slow
        ),
        pytest.param(
            [kind for kind in ROWS if KINDS[kind].model], id="those of models", marks=pytest.mark.slow
        ),
    ],
)
def test_a_daemon_that_is_told_to_stop_interrupts_its_job_and_the_next_one_does_it(
    tmp_path: Path, kinds: Iterable[Kind]
) -> None:
    works = Works(tmp_path)
    seconds: dict[str, float] = {}
    undone: Child | None = None
    for kind in kinds:
        works.write(learn=ROWS[kind].learn, epochs=20, rewards=ROWS[kind].rewards)
        # One that has given its result succeeds, though it is stopped before it has ended.
        stops = (stopped_at(works, kind, undone) for _ in range(MOST_TRIES))
        undone, seconds[kind] = next(filter(None, stops))
        (tmp_path / "measured.json").write_text(json.dumps(seconds), encoding="utf-8")
        if ROWS[kind].learn:
            # The next one's configuration is another.
            with works.running():
                wait_until_done(works, undone)
            undone = None
    if undone is not None:
        with works.running():
            wait_until_done(works, undone)


def stopped_at(works: Works, kind: Kind, undone: Child | None) -> tuple[Child, float] | None:
    """Stop the daemon while a job of this kind is at its work, and what was stopped before is done.

    Returns the job, and how long the daemon took to end; None where the job had given its result already.
    """
    row, paths = ROWS[kind], works.settings.paths
    with works.started() as daemon:
        while True:
            child = works.wait_for(daemon, kind, more=partial(row.more, works))
            if child.frozen():
                break  # and not over before it could be frozen
        if undone is not None:
            wait_until_done(works, undone)
        began = time.monotonic()
        daemon.send_signal(signal.SIGTERM)
        works.deployment.wait_for(child.is_told_to_end, what="the job to be told")
        child.thawed()
        assert daemon.wait(timeout=SHUTDOWN_S) == 0, works.deployment.log()
        took_s = time.monotonic() - began
    events = kills.read(paths)
    ends = [
        event
        for event in events
        if event.type in kills.ENDS
        and (event.stream, event.data["attempt"]) == (f"job:{child.job}", child.attempt)
    ]
    assert events[-1].type == "daemon_stopped"
    assert kills.open_attempts(events) == set()
    assert kills.orphans(paths) == []
    assert kills.differences(paths) == []
    if [end.type for end in ends] == ["job_succeeded"]:
        return None
    saved = "; where it was is saved" if row.saves else ""
    assert [(end.type, end.data.get("reason")) for end in ends] == [
        ("job_interrupted", f"the daemon stopped{saved}")
    ]
    return child, took_s


def wait_until_done(works: Works, child: Child) -> None:
    """Wait until what closes the job's work is in the log.

    A search that a trace overtook goes on as another job, which has the trace's premises.
    """

    def is_done() -> bool:
        jobs = {child.job}
        if child.kind == "prove":
            begun = {
                event.data["job"]: event.data["describes"] for event in works.deployment.events("job_started")
            }
            jobs = {job for job, sorry in begun.items() if sorry == begun[child.job]}
        return any(event.correlation_id in jobs for event in works.deployment.events(ROWS[child.kind].closes))

    works.deployment.wait_for(is_done, what=f"the {child.kind} to be done", seconds=300)
