"""What each event does to the tables, asked through the questions that people ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from store.events.base import EventBody
from store.events.places import SorryPlace
from store.events.repositories import (
    BranchCreated,
    BranchDeleted,
    BranchRewritten,
    BranchUnwatched,
    RepositoryRecovered,
    RepositoryRenamed,
    RepositoryUnwatched,
)
from store.events.scans import (
    FileRemoved,
    PastListed,
    SorryChanged,
    SorryFilled,
    SorryMoved,
    SorryOpened,
    SorryRemoved,
    SorryWritten,
)
from store.view import queries, report_queries, rows
from store.view.bumps import bumps
from store.view.counts import count_all
from store.view.rows import SorryRow
from tests.support.events import (
    BRANCH,
    REPOSITORY,
    attempt,
    bump_bodies,
    commit_scanned,
    declaration,
    file_scanned,
    job_started,
    observed,
    place,
    proof_checked,
    proof_found,
    proof_rejected,
    proof_verified,
    samples,
    scanned,
    sha,
    watched,
)
from tests.support.views import LoggedView, sorry_steps

BRANCH_KEY = {"repository": REPOSITORY, "branch": BRANCH}
SORRY = "0123456789abcdef"
BLOB, BLOB2 = sha("blob"), sha("blob2")
SCAN = scanned("A.lean", [declaration("a"), declaration("N.b", line=5, kind="def")], with_sorry=["a"])
SPOT = place(SCAN, SCAN.sorries[0], blob=BLOB)
CREATED = BranchCreated(**BRANCH_KEY, tip=sha(1), is_default=True)


class World(LoggedView):
    """A log in memory, and the view of it."""

    def scan(self, commit: str, scan: object = SCAN, *, blob: str = BLOB) -> None:
        body, payload = file_scanned(scan, commit=commit, blob=blob)  # type: ignore[arg-type] # a ScannedFile
        self.tell(body, commit_scanned(commit), payloads=(payload,))

    def sorry(self, branch: str = BRANCH) -> SorryRow:
        (row,) = queries.sorries(self.db, branch=branch)
        return row

    def steps(self) -> list[str]:
        return [step.step for step in sorry_steps(self.db, SORRY)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def life(commit: str = sha(1), *, branch: str = BRANCH) -> dict[str, str]:
    return {"repository": REPOSITORY, "branch": branch, "sha": commit, "sorry": SORRY}


def opened(*, reopened: bool = False, spot: SorryPlace = SPOT, branch: str = BRANCH) -> SorryOpened:
    return SorryOpened.model_validate(life(branch=branch) | {"place": spot, "reopened": reopened})


def moved(*what: str, spot: SorryPlace = SPOT) -> SorryMoved:
    return SorryMoved.model_validate(life(sha(2)) | {"place": spot, "what": what})


# --- repositories, branches, commits


def test_a_watched_repository_is_new_until_a_branch_of_it_is_seen(world: World) -> None:
    world.tell(watched(branches=("main",), exclude=("x/**",)))
    (row,) = queries.repositories(world.db)
    assert (row.state, row.watched, row.branches, row.exclude) == ("new", True, ["main"], ["x/**"])
    world.tell(CREATED)
    (row,) = queries.repositories(world.db)
    assert (row.state, row.default_branch) == ("ok", BRANCH)


def test_watching_again_takes_new_settings_and_keeps_what_is_known(world: World) -> None:
    world.tell(watched(), CREATED, RepositoryUnwatched(repository=REPOSITORY))
    assert queries.repositories(world.db, watched_only=True) == []
    (before,) = queries.repositories(world.db)
    assert not before.watched
    world.tell(watched(every_s=60.0, opt_out=True))
    (row,) = queries.repositories(world.db, watched_only=True)
    assert (row.every_s, row.opt_out, row.state, row.default_branch) == (60.0, True, "ok", BRANCH)
    assert row.first_seen_at == before.first_seen_at


def test_a_problem_is_shown_until_it_is_over(world: World) -> None:
    failed = samples()["repository_failed"]
    world.tell(watched(), CREATED, failed)
    (row,) = queries.repositories(world.db)
    assert (row.state, row.reason, row.remedy) == ("unreachable", "no route", "check the network")
    world.tell(RepositoryRecovered(repository=REPOSITORY))
    (row,) = queries.repositories(world.db)
    assert (row.state, row.reason, row.remedy) == ("ok", "", "")


def test_a_renamed_repository_keeps_its_key_and_its_forge_id(world: World) -> None:
    world.tell(watched(), samples()["repository_renamed"])
    world.tell(RepositoryRenamed(repository=REPOSITORY, new_url="https://x.org/y", forge_id=None))
    (row,) = queries.repositories(world.db)
    assert (row.repository, row.url, row.forge_id) == (REPOSITORY, "https://x.org/y", 42)


def test_commits_are_scanned_oldest_first(world: World) -> None:
    world.tell(CREATED, observed(sha(1)), observed(sha(2), parent=sha(1)))
    assert next_sha(world) == sha(1)
    world.scan(sha(1))
    assert next_sha(world) == sha(2)
    (branch,) = queries.branches(world.db)
    assert (branch.tip, branch.scanned) == (sha(2), sha(1))
    world.scan(sha(2))
    assert next_sha(world) is None
    newest, oldest = queries.commits(world.db, repository=REPOSITORY)
    assert (newest.sha, newest.parent, newest.baseline) == (sha(2), sha(1), False)
    assert (oldest.state, oldest.baseline, oldest.files_scanned) == ("scanned", True, 1)


def next_sha(world: World) -> str | None:
    row = queries.next_commit_to_scan(world.db, REPOSITORY, BRANCH)
    return None if row is None else row.sha


def rewritten(*dropped: str, base: str | None) -> BranchRewritten:
    return BranchRewritten(**BRANCH_KEY, old=sha(3), new=sha(4), base=base, dropped=dropped)


def test_what_a_force_push_drops_is_never_scanned(world: World) -> None:
    world.tell(CREATED, observed(sha(1)), observed(sha(2)), observed(sha(3)))
    world.scan(sha(2))
    world.tell(rewritten(sha(3), sha(2), base=sha(1)), observed(sha(4), parent=sha(1)))
    assert [(c.sha, c.state) for c in queries.commits(world.db)] == [
        (sha(4), "observed"),
        (sha(3), "dropped"),
        (sha(2), "dropped"),
        (sha(1), "observed"),
    ]
    (branch,) = queries.branches(world.db)
    # What lies in the tables is still the scan of the dropped commit: the next one starts from it.
    assert (branch.tip, branch.rewrites, branch.scanned) == (sha(4), 1, sha(2))
    assert next_sha(world) == sha(1)


def test_a_commit_that_is_dropped_while_it_is_scanned_stays_dropped(world: World) -> None:
    world.tell(CREATED, observed(sha(1)), observed(sha(3)), rewritten(sha(3), base=sha(1)))
    world.scan(sha(3))
    assert queries.commits(world.db, state="dropped")[0].sha == sha(3)
    assert queries.branches(world.db)[0].scanned == sha(3)


def test_a_dropped_commit_that_comes_back_is_due_again(world: World) -> None:
    world.tell(CREATED, observed(sha(1)), observed(sha(3)))
    world.scan(sha(1))
    world.scan(sha(3))
    world.tell(rewritten(sha(3), base=sha(1)), observed(sha(3), parent=sha(1)))
    assert next_sha(world) == sha(3)


@pytest.mark.parametrize(("base", "left"), [(sha("c", 500), 501), (None, 0), (sha("unseen"), 0)])
def test_a_force_push_too_long_for_its_list_drops_the_rest_too(
    world: World, base: str | None, left: int
) -> None:
    commits = [sha("c", number) for number in range(1700)]
    world.tell(CREATED, *(observed(commit) for commit in commits))
    world.tell(rewritten(*reversed(commits[-1000:]), base=base))
    assert len(queries.commits(world.db, state="observed")) == left


def test_a_deleted_branch_has_nothing_to_scan_or_prove_until_it_is_back(world: World) -> None:
    world.tell(CREATED, observed(sha(1)))
    world.tell(BranchDeleted(**BRANCH_KEY, last=sha(1)))
    assert queries.branches(world.db)[0].state == "deleted"
    assert next_sha(world) is None
    world.tell(CREATED)
    assert next_sha(world) == sha(1)


# --- files and declarations


def test_a_new_scan_replaces_the_declarations_of_its_file_alone(world: World) -> None:
    other = scanned("B.lean", [declaration("x", kind="lemma")])
    world.scan(sha(1))
    world.scan(sha(1), other)
    assert [t.name for t in queries.theorems(world.db)] == ["a", "x"]
    world.scan(sha(2), scanned("A.lean", [declaration("c")]), blob=BLOB2)
    assert [t.name for t in queries.theorems(world.db, kinds=())] == ["c", "x"]
    assert (count_all(world.db).theorems, len(queries.files(world.db))) == (2, 2)
    (first, _) = queries.files(world.db, repository=REPOSITORY, branch=BRANCH)
    assert (first.path, first.blob, first.sha, first.imports) == ("A.lean", BLOB2, sha(2), ["Init"])


def test_a_removed_file_takes_its_declarations_with_it(world: World) -> None:
    world.scan(sha(1))
    assert len(queries.theorems(world.db, kinds=())) == 2
    world.tell(FileRemoved(**BRANCH_KEY, sha=sha(2), path="A.lean"))
    assert queries.theorems(world.db, kinds=()) == []
    assert queries.files(world.db) == []
    assert world.db.execute("SELECT count(*) FROM tallies").fetchone()[0] == 0


def test_theorems_can_be_asked_by_name_pattern_kind_and_page(world: World) -> None:
    world.scan(sha(1), scanned("A.lean", [declaration(n, line=i) for i, n in enumerate(["x", "N.x", "N.y"])]))
    world.scan(sha(1), scanned("B.lean", [declaration("z", kind="def")]))

    def names(**query: object) -> list[str]:
        return [row.name for row in queries.theorems(world.db, **query)]  # type: ignore[arg-type] # passed through

    assert names() == ["x", "N.x", "N.y"]
    assert names(name="N.x") == ["N.x"]
    assert names(name="N.*") == ["N.x", "N.y"]
    assert names(kinds=("def",)) == ["z"]
    assert names(kinds=()) == ["x", "N.x", "N.y", "z"]
    assert names(limit=1, offset=1) == ["N.x"]
    assert names(repository="other") == []


def test_a_declaration_knows_its_sorries_and_its_identity(world: World) -> None:
    world.scan(sha(1))
    a, b = queries.theorems(world.db, kinds=())
    assert (a.n_sorries, b.n_sorries) == (1, 0)
    world.scan(sha(2), scanned("C.lean", [declaration("a", line=90)]))
    assert queries.theorems(world.db, name="a")[1].theorem == a.theorem


# --- sorries


def test_a_sorry_lives_from_opened_to_filled_and_reopened(world: World) -> None:
    world.tell(opened())
    row = world.sorry()
    assert (row.state, row.path, row.line, row.opened_sha) == ("open", "A.lean", 2, sha(1))
    world.tell(SorryFilled.model_validate(life(sha(2)) | {"by": "people", "proof": None}))
    row = world.sorry()
    assert (row.state, row.filled_by, row.closed_sha) == ("filled", "people", sha(2))
    world.tell(opened(reopened=True))
    row = world.sorry()
    assert (row.state, row.filled_by, row.closed_sha, row.opened_sha) == ("open", None, None, sha(1))
    world.tell(SorryRemoved.model_validate(life(sha(3))))
    assert world.sorry().state == "removed"
    assert world.steps() == ["opened", "filled", "reopened", "removed"]
    assert count_all(world.db).sorries == {"open": 0, "verified": 0, "filled": 0, "removed": 1}


def test_a_step_has_the_time_of_its_commit_which_is_never_later_than_it_was_seen(world: World) -> None:
    ahead = observed(sha(2), parent=sha(1)).model_copy(
        update={"committed_at": datetime(2999, 1, 1, tzinfo=UTC), "subject": "b (#12)"}
    )
    below = replace(SPOT, line=SPOT.line + 1)
    world.tell(CREATED, observed(sha(1)), ahead, opened(), moved("line", spot=below))
    first, second = sorry_steps(world.db, SORRY)
    assert (first.at, second.at) == ("2026-01-01T00:00:00.000000Z", second.recorded_at)
    assert world.sorry().opened_at == first.at < first.recorded_at
    assert (first.author, first.pull_request, second.pull_request) == ("Ada", None, 12)


def test_a_move_from_a_place_to_the_same_place_is_no_step(world: World) -> None:
    world.tell(opened(), moved("context", spot=replace(SPOT, blob=BLOB2, byte_start=7)))
    assert world.steps() == ["opened"]
    assert (world.sorry().blob, world.sorry().byte_start) == (BLOB2, 7)


def written(**changes: object) -> SorryWritten:
    said = samples()["sorry_written"].model_copy(update={"sorry": SORRY, **changes})
    assert isinstance(said, SorryWritten)
    return said


def test_who_wrote_a_sorry_is_asked_once_and_anew_when_it_comes_back(world: World) -> None:
    def asked() -> bool:
        return queries.unwritten_repositories(world.db) == [REPOSITORY]

    world.tell(watched(), CREATED, observed(sha(1)), opened())
    world.scan(sha(1))
    assert asked()
    world.tell(written())
    row = world.sorry()
    assert (row.written_sha, row.written_by, row.pull_request) == (sha(1), "Ada", 7)
    assert row.written_at == "2025-12-31T00:00:00.000000Z"
    assert not asked()
    world.tell(opened(reopened=True))
    assert asked()
    world.tell(written(sha=None, author="", authored_at=None, pull_request=None, reason="no such file"))
    assert (world.sorry().written_sha, world.sorry().written_at, asked()) == ("", None, False)
    world.tell(SorryFilled(**life(sha(2)), by="people", proof=None))
    assert not asked()


def test_the_past_of_a_repository_is_asked_once_of_the_default_branch_or_else_the_first(world: World) -> None:
    world.tell(watched())
    assert queries.past_unlisted(world.db) == {}
    for branch, first in (("a", 3), ("main", 1), ("z", 5)):
        life = {"repository": REPOSITORY, "branch": branch}
        world.tell(
            BranchCreated(**life, tip=sha(first), is_default=branch == "main"),
            observed(sha(first)).model_copy(update={**life, "baseline": True}),
            observed(sha(first + 1)).model_copy(update={**life, "baseline": False}),
            commit_scanned(sha(first)).model_copy(update=life),
        )
    assert queries.past_unlisted(world.db) == {REPOSITORY: ("main", sha(1))}
    world.tell(BranchUnwatched(repository=REPOSITORY, branch="main", last=sha(1)))
    assert queries.past_unlisted(world.db) == {REPOSITORY: ("a", sha(3))}
    world.tell(samples()["past_listed"])
    assert queries.past_unlisted(world.db) == {}


def test_a_commit_of_the_past_is_never_later_than_git_was_asked_and_is_counted_once(world: World) -> None:
    listed = samples()["past_listed"]
    assert isinstance(listed, PastListed)
    first, root = listed.commits
    late = first.model_copy(update={"committed_at": datetime(2999, 1, 1, tzinfo=UTC)})
    world.tell(watched(), listed.model_copy(update={"commits": (late, root)}))
    rows = queries.past_to_count(world.db, REPOSITORY)
    assert [(row.sha, row.begins, row.committed_at < "2999") for row in rows] == [
        (first.sha, False, True),
        (root.sha, True, True),
    ]
    world.tell(samples()["past_counted"])
    assert [row.sha for row in queries.past_to_count(world.db, REPOSITORY)] == [first.sha]


def test_the_steps_of_a_sorry_can_be_read_by_people(world: World) -> None:
    there = replace(SPOT, path="B.lean", line=9, declaration="b", statement="False")
    world.tell(opened(), moved("file", "rename", spot=there))
    world.tell(SorryChanged.model_validate(life() | {"place": there, "statement_before": "True"}))
    world.tell(SorryFilled.model_validate(life() | {"by": "us", "proof": "p1"}))
    assert [step.detail for step in sorry_steps(world.db, SORRY)] == [
        "A.lean:2:2, tactic mode, in theorem a",
        "file, rename: A.lean:2:2 -> B.lean:9:2, a -> b",
        "statement: True -> False",
        "by us, with the text of proof p1",
    ]


def test_each_filling_of_a_sorry_says_by_whom_it_was_an_earlier_one_too(world: World) -> None:
    world.tell(opened(), SorryFilled.model_validate(life() | {"by": "us", "proof": "p1"}))
    world.tell(opened(reopened=True), SorryFilled.model_validate(life() | {"by": "people", "proof": None}))
    assert [step.filled_by for step in sorry_steps(world.db, SORRY)] == [None, "us", None, "people"]
    turns = [turn.what for turn in report_queries.turns(world.db)]
    assert turns == ["opened", "by_us", "opened", "by_people"]


FOUND = proof_found(SORRY, SPOT, commit=sha(1))


def test_a_verified_proof_makes_its_sorry_verified(world: World) -> None:
    world.tell(opened(), FOUND)
    assert world.sorry().state == "open"
    assert [proof.proof for proof in queries.proofs_to_check(world.db)] == [FOUND.proof]
    world.tell(proof_verified(FOUND))
    row = world.sorry()
    assert (row.state, row.verified_proof) == ("verified", FOUND.proof)
    assert queries.proofs_to_check(world.db) == []
    (proof,) = queries.proofs(world.db, state="verified")
    assert (proof.axioms, proof.checks[3]["step"], proof.tactics) == (["propext"], "compile", ["trivial"])
    assert world.steps() == ["opened", "verified"]


def test_a_proof_of_an_older_version_of_the_file_verifies_nothing(world: World) -> None:
    world.tell(opened(), FOUND, moved("line", spot=replace(SPOT, blob=BLOB2)))
    world.tell(proof_verified(FOUND))
    assert world.sorry().state == "open"
    assert queries.proofs(world.db)[0].state == "verified"


@pytest.mark.parametrize(
    ("what", "change", "state"),
    [
        (("line",), {}, "verified"),
        (("file", "rename"), {"path": "B.lean", "declaration": "b"}, "verified"),
        (("context",), {}, "verified"),  # other bytes of the file, not those before the sorry
        (("context",), {"context_hash": "other"}, "open"),
        (("line",), {"statement_hash": "other"}, "open"),
    ],
)
def test_a_verified_sorry_stays_so_while_statement_and_context_stay(
    world: World, what: tuple[str, ...], change: dict[str, Any], state: str
) -> None:
    there = replace(SPOT, line=8, blob=BLOB2, **change)
    world.tell(opened(), FOUND, proof_verified(FOUND), moved(*what, spot=there))
    row = world.sorry()
    assert (row.state, row.line, row.blob) == (state, 8, BLOB2)
    assert row.verified_proof == (FOUND.proof if state == "verified" else None)


def test_a_changed_statement_opens_a_verified_sorry_again(world: World) -> None:
    world.tell(opened(), FOUND, proof_verified(FOUND))
    world.tell(SorryChanged.model_validate(life() | {"place": SPOT, "statement_before": "False"}))
    assert (world.sorry().state, world.sorry().verified_proof) == ("open", None)


def test_the_same_file_version_elsewhere_has_its_proof_already(world: World) -> None:
    world.tell(opened(), FOUND, proof_verified(FOUND), opened(branch="dev"))
    assert (world.sorry("dev").state, world.sorry("dev").verified_proof) == ("verified", FOUND.proof)
    world.tell(opened(branch="old", spot=replace(SPOT, blob=BLOB2)))
    assert world.sorry("old").state == "open"


@pytest.mark.parametrize(
    ("step", "change"),
    [(step, None) for step in ("text", "shape", "statement", "compile", "axioms")]
    + [
        ("compile", {"verdict": "not_checked"}),
        ("statement", {"verdict": "failed"}),
        ("kernel", {"step": "kernel", "verdict": "failed"}),
        ("compile", {"by": "nobody"}),
        ("axioms", {"by": "scanner"}),
    ],
)
def test_an_event_without_every_required_check_verifies_nothing(
    world: World, step: str, change: dict[str, str] | None
) -> None:
    whole = proof_verified(FOUND)
    judged = next((check for check in whole.checks if check.step == step), whole.checks[0])
    others = tuple(check for check in whole.checks if check.step != step)
    more = () if change is None else (judged.model_copy(update=change),)
    world.tell(opened(), FOUND, whole.model_copy(update={"checks": (*others, *more)}))
    assert (world.sorry().state, queries.proofs(world.db)[0].state) == ("open", "candidate")


def test_nothing_verifies_what_is_unknown_or_of_another_sorry_or_rejected(world: World) -> None:
    whole = proof_verified(FOUND)
    world.tell(opened(), whole, FOUND, whole.model_copy(update={"sorry": "fedcba9876543210"}))
    assert (world.sorry().state, queries.proofs(world.db)[0].state) == ("open", "candidate")
    world.tell(proof_rejected(FOUND), whole)
    assert (world.sorry().state, queries.proofs(world.db)[0].state) == ("open", "rejected")


def test_a_rejected_proof_has_no_patch_any_more_and_a_late_check_gives_it_none(world: World) -> None:
    world.tell(opened(), FOUND, proof_verified(FOUND), proof_rejected(FOUND), proof_checked(FOUND))
    (proof,) = queries.proofs(world.db)
    assert (proof.state, proof.patch_sha256) == ("rejected", None)


@pytest.mark.parametrize(("conditional_on", "state"), [((), "rejected"), (("other",), "conditional")])
def test_a_rejected_proof_leaves_its_sorry_open_and_says_why(
    world: World, conditional_on: tuple[str, ...], state: str
) -> None:
    world.tell(opened(), FOUND, proof_rejected(FOUND, conditional_on=conditional_on))
    (proof,) = queries.proofs(world.db)
    assert (proof.state, proof.reason) == (state, "axioms: it rests on sorryAx")
    assert proof.conditional_on == list(conditional_on)
    assert world.sorry().state == "open"


def test_a_proof_rejected_after_all_opens_its_sorry_again(world: World) -> None:
    world.tell(opened(), FOUND, proof_verified(FOUND), proof_rejected(FOUND))
    assert (world.sorry().state, world.sorry().verified_proof) == ("open", None)
    assert world.steps() == ["opened", "verified", "refuted"]


def test_what_was_verified_is_a_candidate_in_doubt_once_kernels_do_not_agree_on_it(world: World) -> None:
    again = proof_checked(FOUND)
    world.tell(opened(), FOUND, proof_verified(FOUND), again)
    assert world.sorry().state == "verified", "what could not be judged says nothing against it"
    said = "kernels do not agree: one refuses, two accepts"
    world.tell(again.model_copy(update={"disagreement": said}))
    (proof,) = queries.doubted_proofs(world.db)
    assert (proof.state, proof.grade, proof.reason) == ("candidate", "", said)
    assert (world.sorry().state, world.sorry().verified_proof) == ("open", None)
    world.tell(proof_verified(FOUND))
    assert (world.sorry().state, queries.doubted_proofs(world.db)) == ("verified", [])


def test_a_proof_is_found_by_the_start_of_its_id(world: World) -> None:
    world.tell(FOUND)
    assert [p.proof for p in queries.proofs_by_prefix(world.db, FOUND.proof[:5])] == [FOUND.proof]
    assert queries.proofs_by_prefix(world.db, "%") == []
    assert queries.proofs_by_prefix(world.db, FOUND.proof + "0") == []


# --- what is to be proved


def to_prove(world: World, **changes: object) -> list[str]:
    question = {**BRANCH_KEY, "prover": "tactics", "rung": 0, "budget": "small"} | changes
    return [row.sorry for row in queries.sorries_to_prove(world.db, **question)]  # type: ignore[arg-type] # as above


def test_an_open_sorry_is_to_prove_until_it_was_tried_with_this_budget(world: World) -> None:
    world.tell(CREATED, observed(sha(1)))
    world.scan(sha(1))
    world.tell(opened())
    assert to_prove(world) == [SORRY]
    world.tell(attempt(SORRY, SPOT, commit=sha(1), outcome="exhausted"))
    assert to_prove(world) == []
    assert to_prove(world, budget="large") == [SORRY]
    assert to_prove(world, rung=1) == [SORRY]
    assert to_prove(world, prover="other") == [SORRY]
    assert [a.outcome for a in queries.attempts(world.db, sorry=SORRY)] == ["exhausted"]


def test_what_one_model_tried_is_to_prove_for_another_one(world: World) -> None:
    world.tell(CREATED, observed(sha(1)))
    world.scan(sha(1))
    world.tell(opened())
    world.tell(attempt(SORRY, SPOT, commit=sha(1), outcome="budget", model="tactics-1"))
    rung = {"prover": "generator", "rung": 2}
    assert to_prove(world, **rung, model="tactics-1") == []
    assert to_prove(world, **rung, model="tactics-2") == [SORRY]
    assert to_prove(world) == [SORRY]
    world.tell(attempt(SORRY, SPOT, commit=sha(1), outcome="found", model="tactics-2"))
    tried = {row.model: (row.outcome, row.best, row.goals_left) for row in queries.attempts(world.db)}
    assert tried == {
        "tactics-1": ("budget", "1 goal left after intro h", 1),
        "tactics-2": ("found", "", None),
    }


def test_nothing_is_left_to_find_for_a_false_sorry_until_its_file_changes(world: World) -> None:
    world.tell(opened(), attempt(SORRY, SPOT, commit=sha(1), outcome="exhausted"))
    assert not queries.reached(world.db, repository=REPOSITORY, branch=BRANCH)[SORRY].settled
    world.tell(attempt(SORRY, SPOT, commit=sha(1), outcome="disproved", model="tactics-1"))
    assert queries.reached(world.db, repository=REPOSITORY, branch=BRANCH)[SORRY].settled
    assert queries.disproved(world.db) == {(REPOSITORY, BRANCH, SORRY)}
    world.tell(moved("context", spot=replace(SPOT, blob=BLOB2)))
    assert queries.reached(world.db, repository=REPOSITORY, branch=BRANCH) == {}
    assert queries.disproved(world.db) == set()


def test_a_changed_file_makes_its_sorries_worth_another_attempt(world: World) -> None:
    world.tell(CREATED, observed(sha(1)))
    world.scan(sha(1))
    world.tell(opened(), attempt(SORRY, SPOT, commit=sha(1)))
    assert to_prove(world) == []
    world.scan(sha(2), blob=BLOB2)
    assert to_prove(world) == []  # the bytes of the sorry in the new version are not known yet
    world.tell(moved("context", spot=replace(SPOT, blob=BLOB2)))
    assert to_prove(world) == [SORRY]


@pytest.mark.parametrize(
    "end",
    [
        lambda: SorryFilled.model_validate(life() | {"by": "people", "proof": None}),
        lambda: SorryRemoved.model_validate(life()),
        lambda: BranchDeleted(**BRANCH_KEY, last=sha(1)),
        lambda: FileRemoved(**BRANCH_KEY, sha=sha(2), path="A.lean"),
    ],
)
def test_what_is_not_in_the_source_is_not_to_prove(world: World, end: Callable[[], EventBody]) -> None:
    world.tell(CREATED)
    world.scan(sha(1))
    world.tell(opened())
    assert to_prove(world) == [SORRY]
    world.tell(end())
    assert to_prove(world) == []


def test_a_verified_sorry_is_not_to_prove(world: World) -> None:
    world.tell(CREATED)
    world.scan(sha(1))
    world.tell(opened(), FOUND, proof_verified(FOUND))
    assert to_prove(world) == []


# --- jobs and the service


def test_a_job_runs_fails_and_starts_again_without_traces(world: World) -> None:
    world.tell(job_started())
    assert [job.state for job in queries.jobs(world.db, state="running")] == ["running"]
    world.tell(samples()["job_failed"])
    (job,) = queries.jobs(world.db, kind="scan")
    assert (job.state, job.reason, job.remedy, job.deterministic) == ("failed", "crashed", "report it", False)
    assert job.retry_at == "2026-01-02T00:00:00.000000Z"
    world.tell(job_started(attempt=2))
    (job,) = queries.jobs(world.db)
    assert (job.state, job.attempt, job.reason, job.retry_at, job.ended_at) == ("running", 2, "", None, None)


def test_news_of_an_older_attempt_changes_nothing(world: World) -> None:
    world.tell(
        job_started(), job_started(attempt=2), samples()["job_interrupted"], samples()["job_succeeded"]
    )
    assert queries.jobs(world.db)[0].state == "running"


def test_an_interrupted_and_a_succeeded_job_say_so(world: World) -> None:
    world.tell(job_started(), samples()["job_interrupted"], job_started("scan-2"))
    world.tell(samples()["job_succeeded"].model_copy(update={"job": "scan-2"}))
    (done,) = queries.jobs(world.db, state="succeeded")
    assert (done.job, done.summary, done.seconds) == ("scan-2", {"files": 1}, 1.5)
    (lost,) = queries.jobs_by_prefix(world.db, "scan-1")
    assert (lost.state, lost.reason) == ("interrupted", "daemon stopped")
    assert len(queries.jobs(world.db, limit=1)) == 1


def test_the_service_tells_of_its_start_stop_and_configuration(world: World) -> None:
    assert queries.service(world.db) is None
    world.tell(samples()["config_loaded"], samples()["daemon_started"], samples()["config_rejected"])
    service = queries.service(world.db)
    assert service is not None
    assert (service.pid, service.lean, service.stopped_at) == (7, "pantograph", None)
    assert (service.config_digest, service.config_errors) == ("a" * 64, ["config.toml:1: no"])
    world.tell(samples()["config_loaded"], samples()["lean_chosen"], samples()["daemon_stopped"])
    service = queries.service(world.db)
    assert service is not None
    assert (service.lean, service.lean_detail) == ("server", "Lean's language server")
    assert (service.config_errors, service.config_rejected_at) == ([], None)
    assert (service.stop_reason, service.version) == ("SIGTERM", "0.1.0")


def test_every_known_state_is_counted_even_where_there_is_none(world: World) -> None:
    counts = count_all(world.db)
    assert set(counts.sorries) == set(rows.SORRY_STATES)
    assert set(counts.proofs) == set(rows.PROOF_STATES)
    assert set(counts.jobs) == set(rows.JOB_STATES)
    assert sum([*counts.sorries.values(), *counts.proofs.values(), *counts.jobs.values()]) == 0
    assert queries.position(world.db) == 0


@pytest.mark.parametrize(
    "end",
    [
        lambda: BranchDeleted(**BRANCH_KEY, last=sha(1)),
        lambda: BranchUnwatched(**BRANCH_KEY, last=sha(1)),
        lambda: RepositoryUnwatched(repository=REPOSITORY),
    ],
)
def test_what_is_watched_no_more_is_kept_and_counts_for_nothing(
    world: World, end: Callable[[], EventBody]
) -> None:
    world.tell(watched(), CREATED, observed(sha(1)))
    world.scan(sha(1))
    world.tell(opened(), FOUND, observed(sha(2)))
    counts = count_all(world.db)
    assert (counts.sorries["open"], counts.theorems) == (1, 1)
    assert queries.commits_to_scan(world.db) == len(queries.proofs_to_check(world.db)) == 1
    world.tell(end())
    counts = count_all(world.db)
    assert (counts.sorries["open"], counts.theorems) == (0, 0)
    assert queries.commits_to_scan(world.db) == 0
    assert queries.proofs_to_check(world.db) == []
    assert queries.sorries(world.db, watched_only=True) == []
    assert queries.theorems(world.db, watched_only=True) == []
    assert len(queries.sorries(world.db)) == len(queries.theorems(world.db)) == 1
    assert [row.sorry for row in queries.sorries_by_prefix(world.db, SORRY[:6])] == [SORRY]


def test_a_proof_found_on_a_branch_that_went_is_checked_for_the_branch_that_has_its_sorry(
    world: World,
) -> None:
    world.tell(CREATED, opened(), FOUND)
    there = opened().model_copy(update={"branch": "other"})
    world.tell(CREATED.model_copy(update={"branch": "other"}), there)
    world.tell(BranchDeleted(**BRANCH_KEY, last=sha(1)))
    assert [proof.proof for proof in queries.proofs_to_check(world.db)] == [FOUND.proof]


def test_a_branch_remembers_how_it_was_scanned(world: World) -> None:
    world.tell(CREATED, observed(sha(1)))
    (branch,) = queries.branches(world.db)
    assert (branch.scanned_seq, branch.scanned_include) == (None, [])
    scanned_so = commit_scanned(sha(1)).model_copy(update={"exclude": ("Old/**",)})
    world.tell(scanned_so)
    (branch,) = queries.branches(world.db)
    assert (branch.scanned_include, branch.scanned_exclude) == (["**/*.lean"], ["Old/**"])
    assert branch.scanned_seq == queries.position(world.db)


def test_a_bump_is_followed_from_its_request_to_what_is_left(world: World) -> None:
    asked, built, tried, finished = bump_bodies()
    world.tell(asked)
    (row,) = bumps(world.db)
    assert (row.by, row.toolchain, row.sha, row.finished_at) == (
        "ada",
        "leanprover/lean4:v4.35.0",
        None,
        None,
    )
    world.tell(built, tried, built)
    (row,) = bumps(world.db, repository=REPOSITORY)
    assert (row.sha, [one["declaration"] for one in row.left], row.tried) == (sha(1), ["a", "b"], 0)
    world.tell(tried, finished)
    (row,) = bumps(world.db)
    assert ([one["declaration"] for one in row.mended], [one["declaration"] for one in row.left]) == (
        ["a"],
        ["b"],
    )
    assert (row.tried, row.raises, row.finished_at is not None) == (
        1,
        "Lean to leanprover/lean4:v4.35.0",
        True,
    )


def test_a_bump_that_nobody_asked_for_begins_with_its_build(world: World) -> None:
    _, built, _, finished = bump_bodies()
    world.tell(built, finished)
    (row,) = bumps(world.db)
    assert (row.by, row.modules_failed) == ("", ["A"])
