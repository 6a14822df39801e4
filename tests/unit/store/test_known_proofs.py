"""Which proofs of a repository are offered to a sorry: those of the same statement or goal that stood the gate."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.prove.lemmas import known_to
from store import events as ev
from store import queries, schema
from store.catchup import catch_up
from store.proof_queries import attempt_behind, known_proofs
from store.testing import MemoryLog
from store.testing_events import (
    BRANCH,
    PATCH,
    REPOSITORY,
    attempt,
    declaration,
    place,
    proof_checked,
    proof_found,
    proof_rejected,
    proof_verified,
    record,
    scanned,
    sha,
)
from store.trace_events import SorryStated

OLD, NEW, OTHER = "a" * 16, "b" * 16, "c" * 16


class World:
    """A sorry that was proved (OLD), a copy of it under another name (NEW), and one of another statement (OTHER)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = MemoryLog()
        self.reader = self.log.reader()
        self.db = sqlite3.connect(folder / "view.db", isolation_level=None)
        schema.create(self.db)
        self.db.row_factory = sqlite3.Row
        names = {"old": "p → p", "new": "p → p", "other": "p → q"}
        scan = scanned(
            "A.lean",
            [declaration(name, line=at, statement=said) for at, (name, said) in enumerate(names.items(), 1)],
            with_sorry=list(names),
        )
        self.places = dict(
            zip((OLD, NEW, OTHER), (place(scan, one, blob=sha("blob")) for one in scan.sorries), strict=True)
        )
        for sorry, where in self.places.items():
            life = {"repository": REPOSITORY, "branch": BRANCH, "sha": sha(1), "sorry": sorry}
            self.tell(ev.SorryOpened.model_validate(life | {"place": where, "reopened": False}))

    def tell(self, *bodies: ev.EventBody) -> None:
        record(self.log, bodies, folder=self.folder / "staging", payloads=(PATCH,))
        catch_up(self.db, self.reader)

    def found(self, *, simulated: bool = False) -> ev.ProofFound:
        body = proof_found(OLD, self.places[OLD], commit=sha(1), simulated=simulated)
        self.tell(body)
        return body

    def known(self, *, simulated: bool = False) -> dict[str, tuple[str, ...]]:
        rows = known_proofs(self.db, repository=REPOSITORY, sorries=(OLD, NEW, OTHER), simulated=simulated)
        return {row.sorry: row.tactics for row in rows}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    with closing(world.db):
        yield world


def test_a_verified_proof_is_known_wherever_its_statement_stands(world: World) -> None:
    found = world.found()
    assert world.known() == {}, "a candidate is not known to be right"
    world.tell(proof_verified(found))
    assert world.known() == {OLD: ("trivial",), NEW: ("trivial",)}
    assert world.known(simulated=True) == {}
    assert known_proofs(world.db, repository="another/one", sorries=(OLD,), simulated=False) == []


def test_a_rejected_proof_is_not_offered(world: World) -> None:
    world.tell(proof_rejected(world.found()))
    assert world.known() == {}


def test_what_the_simulator_took_is_offered_to_the_simulator_alone(world: World) -> None:
    found = world.found(simulated=True)
    assert world.known(simulated=True) == {}, "it was not checked yet"
    world.tell(proof_checked(found))
    assert set(world.known(simulated=True)) == {OLD, NEW}
    assert world.known() == {}


def test_another_statement_with_the_same_goal_is_offered_it_too(world: World) -> None:
    world.tell(proof_verified(world.found()))
    for sorry in (OLD, OTHER):
        where = world.places[sorry]
        said = {"repository": REPOSITORY, "branch": BRANCH, "sha": sha(1), "sorry": sorry, "goal": "⊢ p → p"}
        about = {
            "statement_hash": where.statement_hash,
            "context_hash": where.context_hash,
            "simulated": False,
        }
        world.tell(SorryStated.model_validate(said | about | {"before": None, "same_text": True}))
    assert set(world.known()) == {OLD, NEW, OTHER}


def test_a_prove_job_is_offered_each_text_once(world: World) -> None:
    found = world.found()
    world.tell(proof_verified(found))
    again = found.model_copy(update={"proof": "e" * 16, "replacement": "by trivial"})
    world.tell(again, proof_verified(again))
    view = world.folder / "view.db"
    offered = known_to(view, repository=REPOSITORY, sorries=(NEW, OTHER), simulated=False)
    assert set(offered) == {NEW}
    assert [one.tactics for one in offered[NEW]] == [("trivial",)]
    assert known_to(view, repository=REPOSITORY, sorries=(NEW,), simulated=True) == {}


def test_the_attempt_behind_a_proof_is_the_one_of_its_job(world: World) -> None:
    found = world.found()
    (proof,) = queries.proofs(world.db)
    assert attempt_behind(world.db, proof) is None
    where = world.places[OLD]
    world.tell(attempt(OLD, where, commit=sha(1), model="tactics-1"), attempt(NEW, where, commit=sha(1)))
    assert attempt_behind(world.db, proof) is None
    world.tell(attempt(OLD, where, commit=sha(1)))
    behind = attempt_behind(world.db, proof)
    assert behind is not None
    assert (behind.sorry, behind.job, behind.rung) == (OLD, found.job, found.rung)
