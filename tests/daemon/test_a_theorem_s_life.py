"""A theorem from its first sight on, as people commit: real git histories, the real plan, scan job and projection."""

from __future__ import annotations

import io
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from daemon.jobs.runner import spec_now
from daemon.place.control_client import request
from daemon.planning.plan import Planner
from pipeline.jobs.lines import Batch, parse_line
from pipeline.jobs.protocol import Reporter
from pipeline.jobs.specs import ScanSpec
from pipeline.scan import scan_commit
from store.documents.theorems import Version, describe_theorems
from store.events.base import EventBody
from store.events.repositories import BranchCreated, CommitObserved, RepositoryWatched
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.view import queries
from store.view.reading import read
from store.view.rebuild import verify
from store.view.rows import TheoremRow
from store.view.view import View
from tests.support.daemon.deployment import Deployment
from tests.support.planning import NO_LEAN
from tests.support.specs import job_spec

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)

ONE = "theorem one (n : Nat) : n + 0 = n := by\n  simp\n"
TWO = "theorem two (n : Nat) : 0 + n = n := by\n  simp\n"


class History:
    """A repository with a work tree, and the log and view that a daemon would keep of it."""

    def __init__(self, folder: Path) -> None:
        deployment = Deployment(folder)
        self.remote = deployment.remote("demo")
        self.settings = deployment.write(repos=[self.remote.path])
        self.key = self.settings.repos[0].key
        self.folder = folder
        self.log = EventLog.open(folder / "events.db")
        self.reader = self.log.reader()
        self.view = View.open(folder / "database.db", self.reader)
        self.runs = 0
        self.append(
            RepositoryWatched(projects=(),
                repository=self.key, url=str(self.remote.path), branches=(), include=("**/*.lean",), exclude=(),
                every_s=300.0, enabled=True, opt_out=False,
            )
        )  # fmt: skip

    def close(self) -> None:
        self.view.close()
        self.reader.close()
        self.log.close()

    def append(self, *bodies: EventBody) -> None:
        stream = f"repository:{self.key}"
        self.log.append([NewEvent(stream, body) for body in bodies], expect={stream: Expect.ANY})
        self.view.catch_up()

    def commit(
        self,
        files: Mapping[str, str | None],
        *,
        follow: bool = True,
        changed: Mapping[str, Any] | None = None,
    ) -> None:
        """Write these files (None removes one), commit, observe, scan.

        Args:
            follow: False leaves out `theorems_followed`, as a version before it did.
            changed: parameters of the job that are other ones than the plan's.
        """
        present = {name: text for name, text in files.items() if text is not None}
        for name in set(files) - set(present):
            (self.remote.path / name).unlink()
        self.runs += 1
        subject = f"commit {self.runs}"
        sha = self.remote.commit(subject, present or {"NOTES.md": subject})
        if self.runs == 1:
            self.append(BranchCreated(repository=self.key, branch="main", tip=sha, is_default=True))
        self.append(
            CommitObserved(
                repository=self.key, branch="main", sha=sha, parents=(), author="Ada", committed_at=NOW,
                subject=subject, baseline=self.runs == 1,
            )
        )  # fmt: skip
        self._scan(follow=follow, changed=changed or {})
        if follow:
            self.check()

    def _scan(self, *, follow: bool, changed: Mapping[str, Any]) -> None:
        with closing(self.connect()) as view:
            (job,) = Planner(whole=True).plan(view, settings=self.settings, leans=NO_LEAN, now=NOW).due
            given = spec_now(view, job=job, mirrors=self.folder)
        assert isinstance(given, ScanSpec)
        known = given.known.model_copy(update={name: changed[name] for name in ("files",) if name in changed})
        others = {name: value for name, value in changed.items() if name != "files"}
        parameters = {**dict(given), "known": known, **others}
        directory = self.folder / "jobs" / str(self.runs)
        directory.mkdir(parents=True)
        parameters["mirror"] = self.remote.path / ".git"
        spec = job_spec(ScanSpec, "scan", parameters, directory, job=job.job)
        out = io.StringIO()
        scan_commit(spec, Reporter(spec, out))
        for line in out.getvalue().splitlines():
            batch = parse_line(line.encode(), job=job)
            if isinstance(batch, Batch):
                events = [event for event in batch.events if follow or event.body.type != "theorems_followed"]
                blobs = {digest: spec.staging / digest for digest in batch.cites}
                self.log.append(events, expect={events[0].stream: Expect.ANY}, blobs=blobs)
        self.view.catch_up()

    def connect(self) -> sqlite3.Connection:
        return queries.connect(self.folder / "database.db")

    def check(self) -> None:
        """Every present theorem is one declaration of the tip, and every version is counted."""
        with closing(self.connect()) as view:
            rows = read(view, TheoremRow, "theorems")
            standing = queries.theorems(view)
            assert Counter(
                (row.path, row.name, row.statement_hash, row.identity)
                for row in rows
                if row.state == "present"
            ) == Counter((row.path, row.name, row.statement_hash, row.theorem) for row in standing)
            for row in rows:
                versions = history_in(view, row)
                last = versions[-1]
                assert row.versions == len(versions)
                assert (row.state == "deleted") == (last.steps == ["deleted"])
                assert (row.name, row.path, row.statement) == (last.name, last.path, last.statement)
                assert row.last_sha == last.sha

    def rows(self, *, state: str | None = None) -> list[TheoremRow]:
        with closing(self.connect()) as view:
            return read(
                view, TheoremRow, "theorems", equal={"state": state}, order="repository, branch, path, name"
            )

    def named(self, name: str) -> TheoremRow:
        """The one lineage that has this name now, or had it when it was deleted."""
        (row,) = (row for row in self.rows() if row.name == name)
        return row

    def versions(self, name: str) -> list[Version]:
        with closing(self.connect()) as view:
            return history_in(view, self.named(name))

    def steps(self, name: str) -> list[str]:
        return [",".join(version.steps) for version in self.versions(name)]

    def followed(self) -> int:
        return len(list(self.reader.read(types=["theorems_followed"])))


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path)
    yield made
    made.close()


INSIDE = "namespace {0}\n" + ONE + TWO + "end {0}\n"
ALIAS = '@[deprecated (since := "2026-05-01")] alias one := uno\n'
LEMMA = "def {0} (n : Nat) := n\ntheorem {0}_zero (n : Nat) : {0} n + {0} 0 = {0} n := by simp [{0}]\n"
UNO = ONE.replace("one", "uno")

LIVES: dict[str, tuple[list[Mapping[str, str | None]], dict[str, str]]] = {
    "moved lines are no version": (
        [{"A.lean": ONE}, {"A.lean": "-- a comment\n\n" + ONE}, {"A.lean": "def zero := 0\n" + ONE + "\n\n"}],
        {"one": "appeared"},
    ),
    "line breaks are the same statement": (
        [
            {"A.lean": ONE},
            {"A.lean": "theorem one\n    (n : Nat) :\n    n + 0 = n := by\n  simp\n"},
            {"A.lean": ONE},
        ],
        {"one": "appeared"},
    ),
    "so are comments": (
        [
            {"A.lean": ONE},
            {"A.lean": ONE.replace(" :", " /- of any size -/ :").replace(" := by", " -- no\n := by")},
        ],
        {"one": "appeared"},
    ),
    "so are a doc comment, an attribute and indentation": (
        [
            {"A.lean": ONE},
            {"A.lean": "/-- Adding nothing. -/\n@[simp]\n" + ONE.replace("  simp", "    -- plain\n    simp")},
        ],
        {"one": "appeared"},
    ),
    "it moves with its file": (
        [{"A.lean": ONE}, {"A.lean": None, "Lib/B.lean": ONE}],
        {"one": "appeared; file_moved"},
    ),
    "it moves from file to file alone": (
        [
            {"A.lean": ONE + TWO, "B.lean": "def zero := 0\n"},
            {"A.lean": TWO, "B.lean": "def zero := 0\n" + ONE},
        ],
        {"one": "appeared; file_moved", "two": "appeared"},
    ),
    "it is renamed": (
        [{"A.lean": ONE + TWO}, {"A.lean": UNO + TWO}],
        {"uno": "appeared; renamed", "two": "appeared"},
    ),
    "it is renamed and leaves a deprecated alias": (
        [{"A.lean": ONE + TWO}, {"A.lean": UNO + ALIAS + TWO}],
        {"uno": "appeared; renamed", "two": "appeared"},
    ),
    "the definition that it is about is renamed": (
        [{"A.lean": LEMMA.format("lcm_upto")}, {"A.lean": LEMMA.format("lcmUpto")}],
        {"lcmUpto_zero": "appeared; renamed,restated"},
    ),
    "its namespace is renamed": (
        [{"A.lean": INSIDE.format("Old")}, {"A.lean": INSIDE.format("New.Inner")}],
        {"New.Inner.one": "appeared; renamed", "New.Inner.two": "appeared; renamed"},
    ),
    "it moves and is renamed at once": (
        [{"A.lean": ONE}, {"A.lean": None, "B.lean": f"namespace N\n{UNO}end N\n"}],
        {"N.uno": "appeared; renamed,file_moved"},
    ),
    "it comes back where it was, and elsewhere": (
        [{"A.lean": ONE}, {"A.lean": None}, {"A.lean": ONE}, {"A.lean": None}, {"C/D.lean": TWO + ONE}],
        {"one": "appeared; deleted; returned; deleted; returned,file_moved", "two": "appeared"},
    ),
    "two change places": (
        [{"A.lean": ONE + TWO}, {"A.lean": TWO + ONE}],
        {"one": "appeared", "two": "appeared"},
    ),
    "two swap their names": (
        [{"A.lean": ONE + TWO}, {"A.lean": ONE.replace("one", "two") + TWO.replace("two", "one")}],
        {"one": "appeared; restated", "two": "appeared; restated"},
    ),
    "of two with one statement one goes": (
        [{"A.lean": ONE + UNO}, {"A.lean": UNO}],
        {"uno": "appeared", "one": "appeared; deleted"},
    ),
    "it is a definition for a while": (
        [
            {"A.lean": ONE},
            {"A.lean": ONE.replace("theorem", "def")},
            {"A.lean": ONE.replace("theorem", "lemma")},
        ],
        {"one": "appeared; deleted; returned"},
    ),
}
"""What people commit, and the steps of each theorem by its last name."""


@pytest.mark.parametrize("life", LIVES)
def test_a_theorem_is_followed_through_what_people_commit(history: History, life: str) -> None:
    commits, expected = LIVES[life]
    for files in commits:
        history.commit(files)
    assert {row.name: "; ".join(history.steps(row.name)) for row in history.rows()} == expected
    assert history.followed() == max(len(steps.split(";")) for steps in expected.values())


def test_a_deleted_theorem_keeps_its_row_and_its_last_statement(history: History) -> None:
    history.commit({"A.lean": ONE + TWO})
    history.commit({"A.lean": TWO})
    row = history.named("one")
    assert (row.state, row.statement, row.path) == ("deleted", "(n : Nat) : n + 0 = n", "A.lean")


def test_another_statement_under_the_name_of_a_deleted_theorem_is_another_theorem(history: History) -> None:
    history.commit({"A.lean": ONE})
    history.commit({"A.lean": None})
    history.commit({"A.lean": "theorem one : 1 = 1 := rfl\n"})
    assert sorted((row.state, row.versions) for row in history.rows()) == [("deleted", 2), ("present", 1)]


def test_a_changed_statement_is_restated_and_says_both(history: History) -> None:
    history.commit({"A.lean": ONE})
    history.commit({"A.lean": ONE.replace("n + 0 = n", "n = n + 0")})
    old, new = history.versions("one")
    assert (old.steps, new.steps) == (["appeared"], ["restated"])
    assert (old.statement, new.statement) == ("(n : Nat) : n + 0 = n", "(n : Nat) : n = n + 0")


def test_a_changed_proof_is_reproved_and_the_statement_stays(history: History) -> None:
    history.commit({"A.lean": ONE})
    history.commit({"A.lean": ONE.replace("simp", "rfl")})
    old, new = history.versions("one")
    assert (new.steps, new.statement_hash) == (["reproved"], old.statement_hash)
    assert new.text_hash != old.text_hash


def test_a_filled_sorry_is_a_new_proof(history: History) -> None:
    history.commit({"A.lean": ONE.replace("simp", "sorry")})
    history.commit({"A.lean": ONE})
    assert [(version.steps, version.n_sorries) for version in history.versions("one")] == [
        (["appeared"], 1),
        (["reproved"], 0),
    ]


def test_a_copy_in_another_file_is_another_theorem_and_the_old_one_stays(history: History) -> None:
    history.commit({"A.lean": ONE})
    old = history.named("one")
    history.commit({"A.lean": "-- the old one\n" + ONE, "AA.lean": ONE})
    there = {row.path: row for row in history.rows()}
    assert there["A.lean"].theorem == old.theorem
    assert there["A.lean"].versions == 1
    assert there["AA.lean"].theorem != old.theorem
    assert there["AA.lean"].identity == old.identity
    history.commit({"A.lean": None})
    assert {row.path: row.state for row in history.rows()} == {"A.lean": "deleted", "AA.lean": "present"}


def test_a_force_push_is_compared_with_what_was_scanned_last(history: History) -> None:
    history.commit({"A.lean": ONE})
    history.commit({"A.lean": ONE.replace("simp", "rfl")})
    history.remote.reset("HEAD~1")
    history.commit({"B.lean": TWO})
    assert history.steps("one") == ["appeared", "reproved", "reproved"]
    assert history.steps("two") == ["appeared"]


def test_a_log_from_before_theorems_were_followed_is_taken_up_at_the_next_change(history: History) -> None:
    gone, renamed = "theorem gone : 3 = 3 := rfl\n", "theorem {} : 4 = 4 := rfl\n"
    history.commit({"A.lean": ONE, "B.lean": TWO, "C.lean": gone + renamed.format("before")}, follow=False)
    history.commit({"A.lean": "\n" + ONE}, follow=False)
    assert history.rows() == []
    history.commit({"C.lean": renamed.format("after")})
    assert history.steps("one") == history.steps("two") == ["appeared"]
    assert history.steps("after") == ["appeared,renamed"]
    assert (history.steps("gone"), history.named("gone").statement) == (["deleted"], "")
    dates = {row.name: row.first_sha for row in history.rows()}
    assert len({dates["one"], dates["two"], dates["after"]}) == 3, (
        "the commits that the files were scanned at"
    )


def test_theorems_of_files_that_cannot_be_read_as_they_were_are_found_by_what_stands_there(
    history: History,
) -> None:
    third = "theorem three : 3 = 3 := rfl\n"
    history.commit({"A.lean": ONE + TWO, "B.lean": third})
    lost = {"base": "1" * 40, "files": {"A.lean": "2" * 40, "B.lean": "3" * 40}}
    changed = {"A.lean": ONE.replace("simp", "rfl"), "B.lean": None, "C.lean": third}
    history.commit(changed, changed=lost)
    assert history.steps("one") == ["appeared"], "whether it was proved anew is not known"
    assert history.steps("two") == ["appeared", "deleted"]
    assert history.steps("three") == ["appeared", "file_moved"]


def test_a_branch_that_begins_without_theorems_and_one_that_loses_all(history: History) -> None:
    history.commit({"README.md": "soon"})
    assert history.followed() == 0
    history.commit({"A.lean": ONE + TWO})
    history.commit({"A.lean": None})
    assert [row.state for row in history.rows()] == ["deleted", "deleted"]


class Author:
    """Edits three files at random: adds, removes, copies, moves, renames, restates, reproves, shuffles theorems."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.files: dict[str, list[tuple[str, str, str, str]]] = {"A.lean": [], "B.lean": [], "C/D.lean": []}

    def edit(self) -> dict[str, str | None]:
        before = {path: list(items) for path, items in self.files.items()}
        for _ in range(self.random.randrange(1, 5)):
            self._one()
        changed: dict[str, str | None] = {}
        for path, items in self.files.items():
            if items != before[path]:
                changed[path] = "\n".join(map(self._text, items)) if items else None
        return changed

    def _one(self) -> None:
        rng = self.random
        path, other = rng.sample(sorted(self.files), 2)
        items = self.files[path]
        what = rng.choice(["add", "add", "remove", "copy", "move", "move all", "change", "change", "shuffle"])
        if what == "add" or not items:
            items.insert(rng.randrange(len(items) + 1), self._new())
        elif what == "remove":
            items.pop(rng.randrange(len(items)))
        elif what == "copy":
            self.files[other].append(rng.choice(items))
        elif what == "move":
            self.files[other].append(items.pop(rng.randrange(len(items))))
        elif what == "move all":
            self.files[other] += items
            self.files[path] = []
        elif what == "shuffle":
            rng.shuffle(items)
        else:
            at = rng.randrange(len(items))
            changed = list(items[at])
            part = rng.randrange(4)
            changed[part] = self._new()[part]
            items[at] = (changed[0], changed[1], changed[2], changed[3])

    def _new(self) -> tuple[str, str, str, str]:
        rng = self.random
        return (
            rng.choice(["theorem", "theorem", "lemma", "def"]),
            rng.choice(["a", "b", "c", "N.a", "N.b", "M.N.c", "d'"]),
            rng.choice([": 1 = 1", ": 2 = 2", "(n : Nat) : n = n", ": True"]),
            rng.choice(["rfl", "by simp", "by\n  sorry", "by sorry"]),
        )

    def _text(self, item: tuple[str, str, str, str]) -> str:
        kind, name, statement, proof = item
        space, _, own = name.rpartition(".")
        text = f"{kind} {own} {statement} := {proof}\n"
        return f"namespace {space}\n{text}end {space}\n" if space else text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_every_living_theorem_is_one_declaration_whatever_people_do(history: History, seed: int) -> None:
    author = Author(seed)
    for _ in range(30):
        history.commit(author.edit())  # which checks it
    steps = {step for row in history.rows() for step in history_of(history, row)}
    assert len(steps) >= 5, "the story is too short to say anything"
    report = verify(history.folder / "events.db", history.folder / "database.db")
    assert report.differences == ()


def history_of(history: History, row: TheoremRow) -> list[str]:
    with closing(history.connect()) as view:
        return [step for version in history_in(view, row) for step in version.steps]


def history_in(view: sqlite3.Connection, row: TheoremRow) -> list[Version]:
    return describe_theorems(view, [row])[0].history


def test_the_daemon_follows_a_theorem_by_itself(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": ONE})
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon():
        for number, source in enumerate((ONE, ONE.replace("one", "uno"), TWO), start=1):
            if number > 1:
                remote.commit(f"commit {number}", {"A.lean": source})
                request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})
            deployment.wait_for(
                lambda wanted=number: len(deployment.events("commit_scanned")) == wanted,  # type: ignore[misc]
                what=f"commit {number} to be scanned",
            )
    assert [event.data["counts"] for event in deployment.events("theorems_followed")] == [
        {"appeared": 1},
        {"renamed": 1},
        {"appeared": 1, "deleted": 1},
    ]
    assert [event.data["baseline"] for event in deployment.events("theorems_followed")] == [
        True,
        False,
        False,
    ]
