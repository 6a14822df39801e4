"""A search that was asked for ends when nothing is left to find before a job of it begins, and waits otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.planning.schedule import in_vain, why_not
from pipeline.lean.backend import Leans
from store.events.base import EventBody
from store.events.jobs import JobStarted, TriggerEnded, WorkTriggered
from store.events.repositories import BranchCreated
from store.events.scans import SorryFilled, SorryOpened
from store.view import queries
from tests.support import planning
from tests.support.events import (
    BRANCH,
    REPOSITORY,
    commit_scanned,
    declaration,
    observed,
    place,
    proof_found,
    scanned,
    sha,
)
from tests.support.planning import LEAN, NO_LEAN

SCAN = scanned("Demo/Main.lean", [declaration("a")], with_sorry=["a"])
PLACE = place(SCAN, SCAN.sorries[0], blob=sha("file"))
ONE, TWO = sha(1), sha(2)
OPEN: list[EventBody] = [
    BranchCreated(repository=REPOSITORY, branch=BRANCH, tip=ONE, is_default=True),
    observed(ONE),
    SorryOpened(repository=REPOSITORY, branch=BRANCH, sha=ONE, sorry="s", place=PLACE, reopened=False),
    commit_scanned(ONE),
    WorkTriggered(work="prove", repository=REPOSITORY, by="ada"),
]
FILLED: list[EventBody] = [
    observed(TWO, parent=ONE),
    SorryFilled(repository=REPOSITORY, branch=BRANCH, sha=TWO, sorry="s", by="people", proof=None),
]
SCANNED: list[EventBody] = [commit_scanned(TWO, base=ONE)]
PROVED: list[EventBody] = [proof_found("s", PLACE, commit=ONE)]
BEGAN: list[EventBody] = [
    JobStarted(
        job="prove-1",
        kind="prove",
        attempt=1,
        repository=REPOSITORY,
        branch=BRANCH,
        sha=ONE,
        describes="prove a",
    )
]


class World(planning.World):
    """One repository, and what its view says of the triggers."""

    def after(self, *bodies: EventBody, leans: Leans = LEAN) -> tuple[list[str], int]:
        """Record the events, and what then ends in vain; return the reasons, and how many triggers wait."""
        self.tell(bodies)
        ends = in_vain(self.view, settings=self.settings, leans=leans)
        self.tell(ends)
        return [end.reason for end in ends], sum(row.waits for row in queries.triggers(self.view))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_it_waits_while_a_sorry_is_open_and_ends_once_when_the_last_is_filled(world: World) -> None:
    assert world.after(*OPEN) == ([], 1)
    assert world.after(*FILLED) == ([], 1), "the tip is not scanned: it may bring another one"
    assert world.after(*SCANNED) == (["it has no open sorry"], 0)
    assert world.after() == ([], 0)
    assert world.after(WorkTriggered(work="prove", repository=REPOSITORY, by="bob")) == (
        ["it has no open sorry"],
        0,
    )


def test_it_ends_where_a_search_that_ran_already_found_a_proof_of_each(world: World) -> None:
    (reason,), waiting = world.after(*OPEN, *PROVED)
    assert reason.startswith("it has no open sorry without a candidate, a proof,")
    assert waiting == 0


def test_it_waits_for_a_lean_that_is_missing(world: World) -> None:
    assert world.after(*OPEN, *FILLED, *SCANNED, leans=NO_LEAN) == ([], 1)
    assert world.after() == (["it has no open sorry"], 0)


def test_one_for_which_a_job_began_and_one_for_other_work_are_left_alone(world: World) -> None:
    assert world.after(*OPEN, *BEGAN, *FILLED, *SCANNED) == ([], 0)
    assert world.after(WorkTriggered(work="trace", repository=REPOSITORY, by="ada")) == ([], 1)


def test_an_end_is_of_one_trigger_and_leaves_a_later_one(world: World) -> None:
    world.after(*OPEN)
    earlier = TriggerEnded(work="prove", repository=REPOSITORY, trigger=3, reason="another one")
    assert world.after(earlier) == ([], 1)


def test_what_begins_after_its_end_is_no_answer_to_it(world: World) -> None:
    world.after(*OPEN, *FILLED, *SCANNED)
    world.after(*BEGAN)
    (row,) = queries.triggers(world.view)
    assert (row.job, row.ended) == (None, "it has no open sorry")


def test_it_is_not_refused_while_a_tip_is_not_scanned_that_may_bring_a_sorry(world: World) -> None:
    other = BranchCreated(repository=REPOSITORY, branch="dev", tip=sha(3), is_default=False)
    world.after(*OPEN, *FILLED, *SCANNED)

    def answered() -> str:
        (repo,) = world.settings.repos
        return why_not(
            world.view, work="prove", repo=repo, settings=world.settings, leans=LEAN, untrainable=""
        )

    assert answered() == "has no open sorry"
    world.after(other, observed(sha(3)).model_copy(update={"branch": "dev"}))
    assert answered() == ""
