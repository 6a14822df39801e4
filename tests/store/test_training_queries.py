"""What training asks of the view: the checkpoints with what they learned, and how much is new in a trace."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.domain.identity import split_key
from store.domain.records import PremiseUse, TracedFile, TracedTactic, TracedTheorem
from store.events.base import EventBody
from store.events.jobs import JobStarted, JobSucceeded
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.recording import TraceHead, file_event, record_trace
from store.view import queries
from store.view.model_queries import Learned, ancestry, learned, new_theorems, undecided
from store.view.rows import TraceRow
from store.view.view import View
from tests.support.events import record
from tests.support.models import checkpoint_promoted, checkpoint_refused, checkpoint_saved
from tests.support.trace_rows import trace_of
from tests.support.traced_repository import head

ONE = "example.org/demo/one"
TWO = "example.org/demo/two"


class Place:
    """A log and its view."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = EventLog.open(folder / "events.db")
        self.reader = self.log.reader()
        self.view = View.open(folder / "database.db", self.reader)
        self.db = queries.connect(folder / "database.db")

    def tell(self, *bodies: EventBody) -> None:
        for body in bodies:
            self.log.append([NewEvent("s", body)], expect={"s": Expect.ANY})
        self.view.catch_up()

    def half(self, trace: TraceHead, file: TracedFile) -> None:
        """Record a file of a trace that is not closed yet."""
        body, payload = file_event(trace, file)
        record(self.log, [body], folder=self.folder / "stage", payloads=[payload])
        self.view.catch_up()

    def trace(self, trace: TraceHead, *files: TracedFile) -> TraceRow:
        found = record_trace(
            self.log, trace=trace, files=files, stage=self.folder / "stage", view=self.db
        ).trace
        self.view.catch_up()
        row = trace_of(self.db, found)
        assert row is not None
        return row

    def new(self, row: TraceRow, *, since: int) -> int:
        return new_theorems(self.db, trace=row, since=since)

    def close(self) -> None:
        self.db.close()
        self.view.close()
        self.reader.close()
        self.log.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def started(job: str, *, repository: str | None = ONE) -> JobStarted:
    return JobStarted(
        job=job, kind="train", attempt=1, repository=repository, branch=None, sha=None, describes="")  # fmt: skip


def succeeded(job: str) -> JobSucceeded:
    return JobSucceeded(job=job, attempt=1, seconds=1.0, peak_rss_bytes=None, summary={})


def link(checkpoint: str, parent: str | None) -> Learned:
    return Learned(
        checkpoint, "retriever", parent, ONE, "train-1", 1, "2026-01-01", False, None, None, None, "succeeded"
    )  # fmt: skip


# --- checkpoints ----------------------------------------------------------------------------------------


def test_a_checkpoint_comes_with_its_repository_and_the_state_of_its_job(place: Place) -> None:
    place.tell(
        started("t1"),
        checkpoint_saved("b", job="t1", data_seq=7),
        succeeded("t1"),
        started("t2", repository=TWO),
        checkpoint_saved("a", parent="b", job="t2"),
        checkpoint_promoted("b"),
        checkpoint_refused("a"),
    )
    first, second = learned(place.db, "retriever")
    assert (first.checkpoint, first.parent, first.repository, first.job) == ("b", None, ONE, "t1")
    assert (first.data_seq, first.job_state) == (7, "succeeded")
    assert (first.promoted, first.promoted_at is None, first.refused_at) == (True, False, None)
    assert (second.checkpoint, second.parent, second.repository) == ("a", "b", TWO)
    assert (second.job_state, second.promoted_at) == ("running", None)
    assert second.refused_at is not None


def test_a_checkpoint_of_no_known_job_or_of_no_repository_is_left_out(place: Place) -> None:
    place.tell(
        started("t1", repository=None),
        checkpoint_saved("a", job="t1"),
        checkpoint_saved("b", job="nobodys"),
        started("t3"),
        checkpoint_saved("c", job="t3", model="tactics"),
    )
    assert learned(place.db, "retriever") == []
    assert [row.checkpoint for row in learned(place.db, "tactics")] == ["c"]


def test_undecided_are_those_that_were_neither_promoted_nor_refused_of_jobs_that_succeeded(
    place: Place,
) -> None:
    place.tell(started("done"), started("runs"))
    for name in ("was-in-use", "in-use", "refused", "open", "of-tactics"):
        model: Any = "tactics" if name == "of-tactics" else "retriever"
        place.tell(checkpoint_saved(name, job="done", model=model))
    place.tell(
        checkpoint_saved("too-early", job="runs"),
        checkpoint_promoted("was-in-use"),
        checkpoint_promoted("in-use"),
        checkpoint_refused("refused"),
    )
    assert undecided(place.db) == []
    place.tell(succeeded("done"))
    assert [row.checkpoint for row in undecided(place.db)] == ["open", "of-tactics"]


def test_to_find_nothing_undecided_no_decided_checkpoint_is_read(place: Place) -> None:
    statements: list[str] = []
    place.db.set_trace_callback(statements.append)
    undecided(place.db)
    place.db.set_trace_callback(None)
    (statement,) = statements
    plan = [row[3] for row in place.db.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert plan[0] == "SEARCH c USING INDEX checkpoints_undecided (promoted_at=? AND refused_at=?)"


def test_the_ancestry_goes_back_until_a_link_is_not_known() -> None:
    known = [link("b", "a"), link("c", "b"), link("d", "b"), link("e", "lost"), link("r", None)]
    assert [one.checkpoint for one in ancestry(known, "c")] == ["c", "b"]
    assert [one.checkpoint for one in ancestry(known, "e")] == ["e"]
    assert [one.checkpoint for one in ancestry(known, "r")] == ["r"]
    assert ancestry(known, "lost") == ancestry(known, None) == []


def test_checkpoints_that_name_each_other_are_no_endless_ancestry() -> None:
    assert [one.checkpoint for one in ancestry([link("a", "b"), link("b", "a")], "a")] == ["a", "b"]


# --- new theorems ---------------------------------------------------------------------------------------


def theorem(name: str, *, premises: int = 1, tactics: int = 2) -> TracedTheorem:
    """A theorem whose last step alone names premises."""
    use = PremiseUse("Nat.foo", "Init.lean", (1, 1), (1, 4))
    steps = [TracedTactic(f"step{n}", f"step{n}", (), "⊢ p", "⊢ p") for n in range(tactics)]
    if steps:
        steps[-1] = replace(steps[-1], premises=(use,) * premises)
    return TracedTheorem(name, f"theorem {name} : {name} = p :=", (1, 1), (2, 1), tuple(steps))


def file(path: str, *theorems: TracedTheorem | str) -> TracedFile:
    made = tuple(theorem(one) if isinstance(one, str) else one for one in theorems)
    return TracedFile(path=path, in_corpus=True, imports=(), premises=(), theorems=made)


def at(number: int, *, repository: str = ONE, branch: str = "main") -> TraceHead:
    return replace(head(f"{number:040x}", repository=repository, branch=branch))


def test_who_learns_tactics_counts_every_theorem_that_has_one(place: Place) -> None:
    first = place.trace(at(1), file("A.lean", "a", theorem("b", premises=0), theorem("c", tactics=0)))
    assert new_theorems(place.db, trace=first, since=0, with_a="tactic") == 2
    more = [theorem("d", premises=0), theorem("e", premises=2), theorem("f", tactics=0)]
    second = place.trace(at(2), file("A.lean", "a", theorem("b", premises=0), *more))
    assert new_theorems(place.db, trace=second, since=first.seq, with_a="tactic") == 2


def test_only_theorems_with_a_premise_in_some_tactic_count(place: Place) -> None:
    row = place.trace(
        at(1),
        file("A.lean", "a", theorem("b", premises=0), theorem("c", tactics=0), theorem("d", premises=3)),
    )
    assert place.new(row, since=0) == 2


def test_new_is_what_was_in_no_trace_then(place: Place) -> None:
    first = place.trace(at(1), file("A.lean", "a", "b"), file("B.lean", "c"))
    second = place.trace(at(2), file("A.lean", "a", "b", "d"), file("B.lean", "c"))
    assert place.new(second, since=0) == 4
    assert place.new(second, since=first.seq - 1) == 4
    assert place.new(second, since=first.seq) == 1
    assert place.new(second, since=second.seq - 1) == 1
    assert place.new(second, since=second.seq) == 0
    assert place.new(first, since=first.seq) == 0


def test_what_moved_or_came_back_is_not_new(place: Place) -> None:
    place.trace(at(1), file("A.lean", "a", "b"))
    gone = place.trace(at(2), file("A.lean", "x"))
    back = place.trace(at(3), file("B.lean", "b", "a"), file("A.lean", "x", "y"))
    assert place.new(back, since=gone.seq) == 1


def test_a_file_whose_proofs_alone_changed_has_nothing_new(place: Place) -> None:
    first = place.trace(at(1), file("A.lean", "a"))
    second = place.trace(at(2), file("A.lean", theorem("a", tactics=5)))
    assert place.new(second, since=first.seq) == 0


def test_another_branch_of_the_repository_counts_and_another_repository_does_not(place: Place) -> None:
    elsewhere = place.trace(at(1, repository=TWO), file("A.lean", "a"))
    other = place.trace(at(2, branch="dev"), file("A.lean", "a", "b"))
    row = place.trace(at(3), file("A.lean", "b", "a", "c"))
    assert place.new(other, since=elsewhere.seq) == 2
    assert place.new(row, since=other.seq) == 1


def test_what_was_traced_and_not_closed_then_is_new(place: Place) -> None:
    first = place.trace(at(1), file("A.lean", "a"))
    place.half(at(2), file("B.lean", "b"))
    then = queries.position(place.db)
    second = place.trace(at(2), file("A.lean", "a"), file("B.lean", "b"))
    assert first.seq < then < second.seq
    assert place.new(second, since=then) == 1


def test_a_commit_that_a_second_branch_has_too_brings_nothing_new(place: Place) -> None:
    files = (file("A.lean", "a", "b"), file("B.lean", "c"))
    first = place.trace(at(1), *files)
    again = place.trace(at(1, branch="dev"), *files)
    assert (first.trace, first.seq < again.seq) == (again.trace, True)
    assert place.new(again, since=first.seq) == 0
    assert place.new(place.trace(at(2), file("A.lean", "a", "d")), since=first.seq) == 1


@pytest.mark.parametrize("seed", range(6))
def test_the_count_is_that_of_the_sets_of_keys(place: Place, seed: int) -> None:
    rng = random.Random(seed)
    standing: dict[tuple[str, str], dict[str, TracedFile]] = {}
    closings: list[tuple[TraceRow, set[str]]] = []
    for number in range(14):
        repository, branch = rng.choice([ONE, ONE, TWO]), rng.choice(["main", "dev"])
        files = standing.setdefault((repository, branch), {})
        for _ in range(rng.randrange(1, 3)):
            names = [f"n{rng.randrange(12)}" for _ in range(rng.randrange(4))]
            path = f"F{rng.randrange(3)}.lean"
            files[path] = file(
                path, *(theorem(name, premises=sum(map(ord, name)) % 3) for name in dict.fromkeys(names))
            )
        if rng.random() < 0.3:
            del files[rng.choice(sorted(files))]
        made = tuple(files.values())
        row = place.trace(at(number, repository=repository, branch=branch), *made)
        closings.append(
            (row, {split_key(one.full_name, one.statement) for item in made for one in item.theorems})
        )
        for since in {0, *(closed.seq for closed, _ in closings)}:
            had: set[str] = set()
            for closed, keys in closings:
                had |= keys if closed.repository == repository and closed.seq <= since else set()
            wanted = sum(
                split_key(one.full_name, one.statement) not in had
                for item in made
                for one in item.theorems
                if any(step.premises for step in one.tactics)
            )
            assert place.new(row, since=since) == wanted, (number, since)
