"""What is due, derived from the database and nothing else."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from daemon.jobs.due import DueJob
from daemon.jobs.runner import spec_now
from daemon.planning.admission import admit
from daemon.planning.ladder import ladder_of
from daemon.planning.look import Judges
from daemon.planning.plan import Plan, Planner
from daemon.settings import Settings, load
from pipeline.gate.advisories import Advisory
from pipeline.jobs.spec import HUB_KEY
from pipeline.jobs.specs import (
    BuildSpec,
    BumpSpec,
    CheckSpec,
    CountSpec,
    CuratedRung,
    GeneratorRung,
    ProveSpec,
    ScanSpec,
    TraceSpec,
)
from pipeline.lean.backend import LeanBackend, Leans
from pipeline.lean.build.build_cache import BuildKey
from store.domain.identity import slug
from store.domain.records import ScannedFile
from store.events.base import BlobRef, EventBody
from store.events.bumps import BumpAsked, BumpBuilt, BumpFinished
from store.events.jobs import (
    JobReleased,
    WorkPaused,
    WorkResumed,
    WorkTriggered,
)
from store.events.places import SorryPlace
from store.events.projects import Project
from store.events.proofs import ProofFound
from store.events.repositories import BranchRewritten, BranchUnwatched
from store.events.scans import PastCommit, PastCounted, PastListed, SorryMoved, SorryOpened
from store.events.traces import TraceMeasured
from tests.support import events, planning, traced_repository
from tests.support.daemon.deployment import HISTORY
from tests.support.models import checkpoint_promoted, checkpoint_saved
from tests.support.planning import (
    KEY,
    LEAN,
    NO_LEAN,
    NOW,
    Told,
    cancelled,
    commit_scanned,
    created,
    failed,
    interrupted,
    observed,
    sha,
    started,
    succeeded,
)
from tests.support.specs import asked

BLOB = "b" * 40
OLD, NEW = "leanprover/lean4:v4.20.0", "leanprover/lean4:v4.29.1"
BUILT = frozenset(BuildKey(KEY, sha(number)) for number in range(1, 10))
"""Every commit of the tests, for those that are not about builds."""


def real(*toolchains: str) -> Leans:
    """Return the Leans of a machine with a REPL for each of these versions."""
    return Leans(
        fixed=None,
        builds=tuple(
            LeanBackend("pantograph", (f"/repl/{one}",), "", one, sandbox="bubblewrap") for one in toolchains
        ),
    )


SCAN = ScannedFile("A.lean", None, (), (), ())
PAYLOAD = json.dumps(SCAN.as_json()).encode()
DIGEST = hashlib.sha256(PAYLOAD).hexdigest()


def scanned(
    number: int, *, include: tuple[str, ...] = ("**/*.lean",), toolchain: str = ""
) -> list[EventBody]:
    body, _ = events.file_scanned(SCAN, commit=sha(number), blob=BLOB)
    cited = BlobRef(sha256=DIGEST, size_bytes=len(PAYLOAD))
    return [
        body.model_copy(update={"repository": KEY, "scan": cited}),
        commit_scanned(number, include=include, toolchain=toolchain),
    ]


def place(name: str) -> SorryPlace:
    scan = events.scanned("A.lean", [events.declaration(name)], with_sorry=[name])
    return events.place(scan, scan.sorries[0], blob=BLOB)


def sorry(name: str, number: int = 1) -> list[EventBody]:
    return [
        SorryOpened(
            repository=KEY, branch="main", sha=sha(number), sorry=name, place=place(name), reopened=False
        )
    ]


def attempted(name: str, *, settings: Settings) -> list[EventBody]:
    ((zero, *_), _) = ladder_of(settings).climb({}, traced=False)
    budget = f"{zero.budget_key}/{LEAN.summary.kind}"
    body = events.attempt(name, place(name), commit=sha(1), outcome="exhausted")
    return [body.model_copy(update={"repository": KEY, "budget": budget})]


def found(proof: str, *, toolchain: str = "") -> list[EventBody]:
    body = events.proof_found("a", place("a"), commit=sha(1))
    return [body.model_copy(update={"repository": KEY, "proof": proof, "toolchain": toolchain})]


class World(planning.World):
    """One repository; every commit is built, and scans cite one payload."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.stage(PAYLOAD)

    def configure(self, *, entry: str = "", extra: str = "", trace: bool = False) -> Settings:
        """Write the configuration; most tests are plainer without traces."""
        self.settings = self.deployment.write(
            repos=[self.deployment.folder / "remotes" / "demo"],
            entry=entry,
            extra=extra if trace else f"[trace]\nenabled = false\n{extra}",
        )
        return self.settings

    def plan(self, *groups: Told, **about: Any) -> Plan:
        return super().plan(*groups, **{"builds": BUILT, **about})


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def kinds(plan: Plan) -> list[str]:
    return [job.kind for job in plan.due]


def test_nothing_is_due_where_nothing_was_seen(world: World) -> None:
    plan = world.plan()
    assert (plan.due, plan.held, plan.next_retry_at) == ((), (), None)


def test_the_oldest_unscanned_commit_of_each_branch_is_due_and_only_that_one(world: World) -> None:
    plan = world.plan(created(), observed(2), observed(3), created(branch="side", tip=7))
    assert [(job.kind, job.branch, job.sha) for job in plan.due] == [
        ("scan", "main", sha(1)),
        ("scan", "side", sha(7)),
    ]
    plan = world.plan(scanned(1))
    assert [job.sha for job in plan.due if job.branch == "main"] == [sha(2)]
    assert asked(plan.due[0], ScanSpec).base == sha(1)


def test_a_scan_goes_on_with_the_commits_after_its_own(world: World) -> None:
    (job,) = world.plan(created(), observed(2), observed(3)).due
    assert (job.sha, asked(job, ScanSpec).then) == (sha(1), (sha(2), sha(3)))
    (again,) = world.plan(interrupted(job)).due
    assert (again.job, again.attempt) == (job.job, 2), "at once"
    assert asked(again, ScanSpec).then == (), "a second attempt is of the one commit"


def test_the_first_scan_of_branches_at_one_commit_is_one_job_and_first_scans_have_one_lane(
    world: World,
) -> None:
    one, other = world.plan(
        created(), created(branch="same"), created(branch="also"), created(branch="side", tip=7)
    ).due
    assert {one.branch, *asked(one, ScanSpec).alike} == {"main", "same", "also"}
    assert (other.branch, asked(other, ScanSpec).alike) == ("side", ())
    assert one.lane == other.lane
    assert world.plan(running={one.lane}).due == ()


def test_a_commit_that_comes_back_after_a_force_push_is_another_job(world: World) -> None:
    (first,) = world.plan(created()).due
    rewritten = [
        BranchRewritten(repository=KEY, branch="main", old=sha(1), new=sha(9), base=None, dropped=(sha(1),)),
        *observed(9),
        BranchRewritten(repository=KEY, branch="main", old=sha(9), new=sha(1), base=None, dropped=(sha(9),)),
        *observed(1),
    ]
    (again,) = world.plan(succeeded(first), scanned(1), rewritten).due
    assert again.sha == first.sha
    assert again.job != first.job


def test_a_deterministic_failure_is_not_due_again_and_holds_up_nothing(world: World) -> None:
    (job,) = world.plan(created(), observed(2)).due
    plan = world.plan(failed(job, deterministic=True))
    assert [due.sha for due in plan.due] == [sha(2)]


def test_a_failure_that_was_given_up_is_not_due_again(world: World) -> None:
    (job,) = world.plan(created()).due
    assert world.plan(failed(job, retry_at=None)).due == ()


def test_a_failure_is_due_again_at_its_time_and_not_before(world: World) -> None:
    (job,) = world.plan(created(), observed(2)).due
    later = NOW + timedelta(minutes=5)
    plan = world.plan(failed(job, retry_at=later))
    assert plan.due == ()
    assert plan.next_retry_at == later
    (again,) = world.plan(now=later).due
    assert (again.job, again.attempt) == (job.job, 2)


def test_a_failure_of_a_time_that_is_still_to_come_waits_for_nothing(world: World) -> None:
    """An earlier daemon recorded it, and the clock was set back since: how much of the wait is over no one knows."""
    (job,) = world.plan(created()).due
    ended = datetime.now(UTC)
    later = ended + timedelta(minutes=5)
    (again,) = world.plan(failed(job, retry_at=later), now=ended - timedelta(hours=1)).due
    assert (again.job, again.attempt) == (job.job, 2)
    plan = world.plan(now=ended + timedelta(minutes=1))
    assert (plan.due, plan.next_retry_at) == ((), later)


def past(*commits: int, repository: str = KEY, branch: str = "main") -> list[EventBody]:
    """Return what git says of these commits of the past, the newest first, one a week."""
    dated = (
        PastCommit(sha=sha(one), committed_at=NOW - timedelta(weeks=weeks), begins=False)
        for weeks, one in enumerate(commits)
    )
    return [PastListed(repository=repository, branch=branch, commits=tuple(dated))]


def past_counted(number: int) -> list[EventBody]:
    body = PastCounted(repository=KEY, branch="main", sha=sha(number), sorries=1, files=1, files_failed=0)
    return [body]


def test_the_past_is_counted_last_of_all_the_newest_commits_first_and_each_once(world: World) -> None:
    world.configure(extra=HISTORY)
    plan = world.plan(created(), scanned(1), sorry("a"), observed(5), past(1, 8, 7))
    assert kinds(plan) == ["scan", "count"]
    for running in ((), ("count",)):
        assert "scan" in {one.kind for one in admit(plan, running=running, max_running=1).start}, (
            "it has no slot"
        )
    plan = world.plan(scanned(5))
    assert kinds(plan) == ["prove", "count"]
    job = plan.due[-1]
    assert asked(job, CountSpec).commits == (sha(1), sha(8), sha(7))
    assert kinds(world.plan(running=[job.lane])) == ["prove"], "one at a time, whatever the repository"
    plan = world.plan(past_counted(1), succeeded(job))
    assert asked(plan.due[-1], CountSpec).commits == (sha(8), sha(7)), "what was not counted before it ended"
    assert kinds(world.plan(past_counted(8), past_counted(7))) == ["prove"]


def test_the_past_of_a_branch_that_is_not_watched_is_not_counted_nor_with_the_setting_off(
    world: World,
) -> None:
    world.configure(extra=HISTORY)
    assert kinds(world.plan(created(), scanned(1), past(1, 8))) == ["count"]
    world.configure()
    assert kinds(world.plan()) == []
    world.configure(extra=HISTORY, entry='branches = ["other"]')
    assert kinds(world.plan()) == []


def test_sorries_are_attempted_when_the_tip_is_scanned_and_not_before(world: World) -> None:
    assert kinds(world.plan(created(), sorry("a"))) == ["scan"]
    (prove,) = world.plan(scanned(1)).due
    assert prove.kind == "prove"
    assert [item.sorry for item in asked(prove, ProveSpec).sorries] == ["a"]
    assert kinds(world.plan(observed(2))) == ["scan"]


def test_without_lean_nothing_is_proved_or_checked(world: World) -> None:
    assert world.plan(created(), sorry("a"), scanned(1), found("p" * 16), leans=NO_LEAN).due == ()


@pytest.mark.parametrize(
    ("entry", "extra"),
    [("opt_out = true", ""), ("enabled = false", ""), ("", "[prove]\nenabled = false\n")],
)
def test_who_opted_out_is_left_alone(world: World, entry: str, extra: str) -> None:
    world.configure(entry=entry, extra=extra)
    assert world.plan(created(), sorry("a"), scanned(1)).due == ()


def test_an_attempted_sorry_is_not_attempted_again_until_the_budget_changes(world: World) -> None:
    plan = world.plan(created(), sorry("a"), sorry("b"), scanned(1), attempted("a", settings=world.settings))
    assert [item.sorry for item in asked(plan.due[0], ProveSpec).sorries] == ["b"]
    world.configure(extra='[prove]\nseconds_per_sorry = "120s"\n')
    due = [[item.sorry for item in asked(job, ProveSpec).sorries] for job in world.plan().due]
    assert due == [["b"], ["a"]], "what was never tried goes first"


def test_many_sorries_are_split_into_jobs_that_share_one_lane(world: World) -> None:
    world.configure(extra="[prove]\nsorries_per_job = 2\n")
    plan = world.plan(created(), *[sorry(name) for name in "abcde"], scanned(1))
    assert [len(asked(job, ProveSpec).sorries) for job in plan.due] == [2, 2, 1]
    assert len({job.lane for job in plan.due}) == 1
    assert len(admit(plan, running=(), max_running=4).start) == 1


def test_a_job_that_keeps_crashing_is_halved_until_the_culprit_is_alone(world: World) -> None:
    plan = world.plan(created(), *[sorry(name) for name in "abcd"], scanned(1))
    sizes = []
    for _ in range(7):
        if not plan.due:
            break
        job = plan.due[0]
        names = [item.sorry for item in asked(job, ProveSpec).sorries]
        sizes.append(len(names))
        if "a" in names:
            plan = world.plan(failed(job, retry_at=None))
        else:
            done = [attempted(name, settings=world.settings) for name in names]
            plan = world.plan(*done)
    assert sizes[:3] == [4, 2, 1]
    assert plan.due == ()


def test_a_deterministic_failure_of_many_is_not_halved(world: World) -> None:
    plan = world.plan(created(), *[sorry(name) for name in "abcd"], scanned(1))
    assert world.plan(failed(plan.due[0], deterministic=True)).due == ()


def test_a_candidate_is_checked_once_and_before_more_is_proved(world: World) -> None:
    plan = world.plan(created(), sorry("a"), sorry("b"), scanned(1), found("p" * 16))
    assert kinds(plan) == ["check", "prove"]
    assert asked(plan.due[0], CheckSpec).proof.replacement == "trivial"


def test_scans_come_first_and_proofs_never_take_the_last_slot(world: World) -> None:
    plan = world.plan(created(), sorry("a"), scanned(1), created(branch="side", tip=7))
    assert kinds(plan) == ["scan", "prove"]
    assert [one.kind for one in admit(plan, running=("prove",), max_running=2).start] == ["scan"]
    assert [one.kind for one in admit(plan, running=(), max_running=2).start] == ["scan", "prove"]
    assert [one.kind for one in admit(plan, running=(), max_running=1).start] == ["scan"]
    assert admit(plan, running=("scan", "prove"), max_running=2).start == ()


def test_a_sorry_whose_proof_was_rejected_is_due_again(world: World) -> None:
    (candidate,) = found("p" * 16)
    assert kinds(world.plan(created(), sorry("a"), scanned(1), [candidate])) == ["check"]
    assert isinstance(candidate, ProofFound)
    assert kinds(world.plan([events.proof_rejected(candidate)])) == ["prove"]


def test_a_branch_that_the_watchlist_does_not_name_is_not_worked_on_before_any_poll_says_so(
    world: World,
) -> None:
    plan = world.plan(created(), scanned(1), sorry("a"), created(branch="topic", tip=2))
    assert {job.branch for job in plan.due} == {"main", "topic"}
    world.configure(entry='branches = ["top*"]')
    assert [(job.kind, job.branch) for job in world.plan().due] == [("scan", "topic")]


def test_an_unwatched_branch_has_nothing_due(world: World) -> None:
    assert set(kinds(world.plan(created(), scanned(1), sorry("a"), sorry("b"), found("p")))) == {
        "prove",
        "check",
    }
    assert world.plan([BranchUnwatched(repository=KEY, branch="main", last=sha(1))]).due == ()


def test_changed_path_patterns_lead_to_one_scan_of_the_tip_each_time(world: World) -> None:
    (first,) = world.plan(created()).due
    assert asked(first, ScanSpec).by_files is False
    assert world.plan(scanned(1), succeeded(first)).due == ()
    jobs = [first.job]
    for entry, include in (
        ('include = ["Lib/**"]', ("Lib/**",)),
        ("", ("**/*.lean",)),
        ('include = ["Lib/**"]', ("Lib/**",)),
    ):
        world.configure(entry=entry)
        (again,) = world.plan().due
        assert (again.kind, again.sha, asked(again, ScanSpec).by_files) == ("scan", sha(1), True)
        jobs.append(again.job)
        assert world.plan(scanned(1, include=include), succeeded(again)).due == ()
    assert len(set(jobs)) == 4


def test_a_scan_that_failed_is_another_job_with_other_patterns(world: World) -> None:
    (job,) = world.plan(created()).due
    assert world.plan(failed(job, deterministic=True)).due == ()
    world.configure(entry='exclude = ["Old/**"]')
    assert kinds(world.plan()) == ["scan"]


def test_the_second_attempt_of_a_scan_does_without_its_base(world: World) -> None:
    (job,) = world.plan(created(), scanned(1), observed(2)).due
    assert asked(job, ScanSpec).by_files is False
    (again,) = world.plan(failed(job, retry_at=NOW - timedelta(seconds=1))).due
    assert asked(again, ScanSpec).by_files is True
    first, second = (
        spec_now(world.view, job=one, mirrors=world.settings.paths.mirrors) for one in (job, again)
    )
    assert isinstance(first, ScanSpec)
    assert isinstance(second, ScanSpec)
    assert (first.known.files, second.known.files) == (None, {"A.lean": BLOB})


def test_a_tip_is_built_before_anything_is_asked_of_it(world: World) -> None:
    world.configure(trace=True)
    plan = world.plan(created(), sorry("a"), scanned(1, toolchain=OLD), leans=real(OLD), builds=())
    (build,) = plan.due
    assert (build.kind, build.sha, build.built) == ("build", sha(1), False)
    assert asked(build, BuildSpec).lean.toolchain == OLD
    plan = world.plan(leans=real(OLD), builds={BuildKey(KEY, sha(1))})
    assert [(job.kind, job.built) for job in plan.due] == [("trace", True), ("prove", True)]


def test_each_branch_is_worked_on_by_the_lean_that_its_toolchain_names(world: World) -> None:
    world.plan(created(), sorry("a"), scanned(1, toolchain=OLD))
    assert world.plan(leans=real(NEW)).due == ()
    (build,) = world.plan(leans=real(NEW, OLD), builds=()).due
    assert asked(build, BuildSpec).lean.argv == (f"/repl/{OLD}",)


def test_a_build_that_failed_for_good_waits_for_another_commit_or_for_someone_who_asks(world: World) -> None:
    (build,) = world.plan(created(), sorry("a"), scanned(1, toolchain=OLD), leans=real(OLD), builds=()).due
    assert world.plan(failed(build, deterministic=True), leans=real(OLD), builds=()).due == ()
    (again,) = world.plan([JobReleased(job=build.job)], leans=real(OLD), builds=()).due
    assert (again.job, again.attempt) == (build.job, 2)
    assert world.plan(failed(again, deterministic=True), leans=real(OLD), builds=()).due == ()
    (other,) = world.plan(observed(2), scanned(2, toolchain=OLD), leans=real(OLD), builds=()).due
    assert (other.kind, other.sha) == ("build", sha(2))


def test_a_build_that_was_swept_from_the_cache_is_made_again_when_it_is_needed(world: World) -> None:
    (build,) = world.plan(created(), sorry("a"), scanned(1, toolchain=OLD), leans=real(OLD), builds=()).due
    assert kinds(world.plan(succeeded(build), leans=real(OLD))) == ["prove"]
    (again,) = world.plan(leans=real(OLD), builds=()).due
    assert (again.job, again.attempt) == (build.job, 2)


def test_a_build_that_was_swept_from_the_cache_is_left_at_that_where_nothing_is_to_be_done_in_it(
    world: World,
) -> None:
    world.configure(trace=True)
    (build,) = world.plan(created(), scanned(1, toolchain=OLD), leans=real(OLD), builds=()).due
    (trace,) = world.plan(succeeded(build), leans=real(OLD)).due
    assert (build.kind, trace.kind) == ("build", "trace")
    assert world.plan(succeeded(trace), leans=real(OLD), builds=()).due == ()
    proof = found("p" * 16, toolchain=OLD)
    (again,) = world.plan(proof, leans=real(OLD), builds=()).due
    assert (again.job, again.attempt) == (build.job, 2), "a proof to check is something to be done in it"


def test_a_proof_is_checked_with_the_lean_and_the_build_of_its_own_commit(world: World) -> None:
    proof = found("p" * 16, toolchain=OLD)
    world.plan(created(), sorry("a"), scanned(1, toolchain=OLD), proof)
    world.plan(observed(2), scanned(2, toolchain=NEW))
    old, *_ = world.plan(leans=real(OLD, NEW), builds={BuildKey(KEY, sha(2))}).due
    assert (old.kind, old.sha, asked(old, BuildSpec).lean.toolchain) == ("build", sha(1), OLD)
    check, *_ = world.plan(leans=real(OLD, NEW)).due
    assert (check.kind, asked(check, CheckSpec).lean.toolchain, check.built) == ("check", OLD, True)


def test_a_proof_that_may_be_proposed_is_checked_again_where_its_branch_has_gone_on(world: World) -> None:
    name = events.proof_found("a", place("a"), commit=sha(1)).sorry
    world.configure(entry="pull_requests = true")
    proof = [body.model_copy(update={"sorry": name}) for body in found("p" * 16, toolchain=OLD)]
    done = [
        events.proof_verified(body).model_copy(
            update={"patch": BlobRef(sha256=DIGEST, size_bytes=len(PAYLOAD))}
        )
        for body in proof
        if isinstance(body, ProofFound)
    ]
    world.plan(created(), sorry(name), scanned(1, toolchain=OLD), proof, done)
    assert "check" not in kinds(world.plan(leans=real(OLD, NEW)))
    world.plan(observed(2), scanned(2, toolchain=NEW))
    check = next(one for one in world.plan(leans=real(OLD, NEW)).due if one.kind == "check")
    given = asked(check, CheckSpec)
    assert (check.sha, given.lean.toolchain, given.proof.toolchain) == (sha(2), NEW, NEW)
    assert (given.proof.proof, given.proof.sha, given.proof.blob) == ("p" * 16, sha(2), BLOB)
    world.plan(succeeded(check))
    assert "check" not in kinds(world.plan(leans=real(OLD, NEW))), "once a tip"
    world.configure(entry="pull_requests = false")
    world.plan(observed(3), scanned(3, toolchain=NEW))
    assert "check" not in kinds(world.plan(leans=real(OLD, NEW))), "no one asked for it"


def test_a_text_that_fills_two_sorries_is_judged_once_and_at_a_tip_where_the_first_of_them_stands(
    world: World,
) -> None:
    def spot(name: str, start: int) -> SorryPlace:
        return replace(place("a"), byte_start=start, byte_end=start + 5, ordinal=int(name == "b"))

    world.configure(entry="pull_requests = true")
    stand = [
        SorryOpened(
            repository=KEY, branch="main", sha=sha(1), sorry=name, place=spot(name, start), reopened=False
        )
        for name, start in (("a", 20), ("b", 30))
    ]
    texts = [
        body.model_copy(update={"sorry": name, "byte_start": 20, "byte_end": 35, "parts": (1, 4)})
        for name in "ab"
        for body in found(name * 16, toolchain=OLD)
    ]
    plan = world.plan(created(), stand, scanned(1, toolchain=OLD), texts, leans=real(OLD))
    (check,) = [one for one in plan.due if one.kind == "check"]
    given = asked(check, CheckSpec)
    assert [given.proof.sorry, *(one.proof.sorry for one in given.alike)] == ["a", "b"]
    assert "with 1 more of the declaration" in check.describes
    done = [
        events.proof_verified(body).model_copy(
            update={"patch": BlobRef(sha256=DIGEST, size_bytes=len(PAYLOAD))}
        )
        for body in texts
        if isinstance(body, ProofFound)
    ]
    there = [
        SorryMoved(
            repository=KEY, branch="main", sha=sha(2), sorry=name, place=spot(name, start), what=("line",)
        )
        for name, start in (("a", 40), ("b", 50))
    ]
    world.plan(done, succeeded(check), observed(2), there, scanned(2, toolchain=OLD))
    (check,) = [one for one in world.plan(leans=real(OLD)).due if one.kind == "check"]
    given = asked(check, CheckSpec)
    both = (given.proof, *(one.proof for one in given.alike))
    assert [(one.sorry, one.sha, one.byte_start, one.byte_end, one.parts) for one in both] == [
        ("a", sha(2), 40, 55, (1, 4)),
        ("b", sha(2), 40, 55, (1, 4)),
    ]
    others = [
        texts[0].model_copy(update={"proof": name * 16, "sorry": name, "declaration_text_hash": digit * 64})
        for name, digit in (("c", "0"), ("d", "1"))
    ]
    checks = [one for one in world.plan(others, leans=real(OLD)).due if one.kind == "check"]
    judged = [text for one in checks for text in asked(one, CheckSpec).texts]
    alone = sorted(text.proof.sorry for text in judged if not text.alike)
    assert alone == ["c", "d"], "one verdict is of one declaration"


def candidates(number: int) -> list[ProofFound]:
    proof = events.proof_found("a", place("a"), commit=sha(1))
    about = {"repository": KEY, "toolchain": OLD}
    texts = [
        {"proof": f"{at:016x}", "replacement": f"exact h{at}", "sorry": f"s{at}"} for at in range(number)
    ]
    return [proof.model_copy(update={**about, **text}) for text in texts]


def checks_of(plan: Plan) -> list[DueJob]:
    return [job for job in plan.due if job.kind == "check"]


def proofs_in(job: DueJob) -> list[str]:
    return [text.proof.proof for text in asked(job, CheckSpec).texts]


def test_the_checks_of_one_commit_are_few_jobs_and_no_text_is_in_two_of_them(world: World) -> None:
    plan = world.plan(created(), sorry("a"), scanned(1, toolchain=OLD), candidates(200), leans=real(OLD))
    checks = checks_of(plan)
    assert 10 <= len(checks) <= 14
    assert sorted(proof for job in checks for proof in proofs_in(job)) == [f"{at:016x}" for at in range(200)]
    assert max(len(proofs_in(job)) for job in checks) == 20
    assert len({job.lane for job in checks}) == 4
    assert {asked(job, CheckSpec).cache for job in checks if len(proofs_in(job)) > 1} == {
        world.settings.paths.cache
    }
    start = admit(plan, running=(), max_running=2).start
    assert len(start) == 2, "a repository by itself has all slots"
    assert "then 19 more of the commit" in start[0].describes


def test_of_a_check_that_is_cut_off_the_judged_texts_stay_and_only_the_first_unjudged_one_is_at_fault(
    world: World,
) -> None:
    """Whatever ends the job while it judges its second text, the third is not kept back by that."""
    world.plan(created(), sorry("a"), scanned(1, toolchain=OLD), candidates(40))
    first = checks_of(world.plan(leans=real(OLD)))[0]
    (one, two, three, *_), by_id = proofs_in(first), {body.proof: body for body in candidates(40)}
    checks = checks_of(world.plan([events.proof_rejected(by_id[one])], failed(first), leans=real(OLD)))
    (next_one,) = [job for job in checks if job.lane == first.lane]
    assert proofs_in(next_one)[:2] == [two, three]
    assert next_one.attempt == 1
    later = failed(next_one, retry_at=(NOW + timedelta(minutes=1)).isoformat())
    waits = checks_of(world.plan(later, leans=real(OLD)))
    (others,) = [job for job in waits if job.lane == first.lane]
    assert proofs_in(others)[0] == three
    assert two not in {proof for job in waits for proof in proofs_in(job)}
    again = checks_of(world.plan(leans=real(OLD), now=NOW + timedelta(minutes=2)))
    (alone,) = [job for job in again if two in proofs_in(job)]
    assert (proofs_in(alone), alone.attempt, alone.job) == ([two], 2, next_one.job)


@pytest.mark.parametrize("shared", ["no sandbox", "no build"])
def test_where_one_text_s_build_could_reach_another_s_each_is_a_job(world: World, shared: str) -> None:
    leans = real(OLD)
    if shared == "no build":
        world.configure(extra="[build]\nenabled = false\n")
    else:
        leans = Leans(fixed=None, builds=tuple(replace(one, sandbox="none") for one in leans.builds))
    plan = world.plan(created(), sorry("a"), scanned(1, toolchain=OLD), candidates(5), leans=leans)
    assert [len(proofs_in(job)) for job in checks_of(plan)] == [1] * 5


def doubted(world: World) -> Judges:
    """Record a proof that is in doubt at the first commit, and return what is known of kernels."""
    name = events.proof_found("a", place("a"), commit=sha(1)).sorry
    (body,) = found("p" * 16, toolchain=OLD)
    assert isinstance(body, ProofFound)
    body = body.model_copy(update={"sorry": name})
    result = events.proof_verified(body).model_copy(
        update={"patch": BlobRef(sha256=DIGEST, size_bytes=len(PAYLOAD)), "toolchain": OLD}
    )
    world.plan(
        created(), sorry(name), scanned(1, toolchain=OLD), [body], [result], [events.proof_doubted(body)]
    )
    fault = Advisory("x", NOW.date(), "t", "s", frozenset(), (("leanchecker", ("v4.29.1",)),))
    return Judges((fault,))


def test_a_proof_in_doubt_is_checked_again_once_its_branch_names_a_lean_without_the_fault(
    world: World,
) -> None:
    judges, leans = doubted(world), real(OLD, "leanprover/lean4:v4.21.0", NEW)
    assert "check" not in kinds(world.plan(leans=leans, judges=judges)), "nothing is new"
    world.plan(observed(2), scanned(2, toolchain="leanprover/lean4:v4.21.0"))
    assert "check" not in kinds(world.plan(leans=leans, judges=judges)), "it has the fault too"
    world.plan(observed(3), scanned(3, toolchain=NEW))
    due = world.plan(leans=leans, judges=judges).due
    (check,) = [one for one in due if one.kind == "check"]
    given = asked(check, CheckSpec)
    assert (check.sha, given.lean.toolchain, given.proof.sha) == (sha(3), NEW, sha(3))
    world.plan(succeeded(check))
    assert "check" not in kinds(world.plan(leans=leans, judges=judges)), "once a tip"


def test_a_proof_in_doubt_is_checked_again_where_it_was_with_a_second_kernel_that_came_since(
    world: World,
) -> None:
    judges = doubted(world)
    for since, due in (("2020-01-01T00:00:00.000000Z", 0), ("2999-01-01T00:00:00.000000Z", 1)):
        judges = replace(judges, second_since=since)
        found_due = world.plan(leans=real(OLD), judges=judges).due
        checks = [one for one in found_due if one.kind == "check"]
        assert len(checks) == due
    given = asked(checks[0], CheckSpec)
    assert (given.proof.sha, given.proof.toolchain) == (sha(1), OLD)
    world.plan(succeeded(checks[0]))
    assert "check" not in kinds(world.plan(leans=real(OLD), judges=judges)), "once a kernel"


def test_where_nothing_is_built_lean_works_in_the_sources(world: World) -> None:
    world.configure(extra="[build]\nenabled = false\n")
    (prove,) = world.plan(created(), sorry("a"), scanned(1, toolchain=OLD), leans=real(OLD)).due
    assert (prove.kind, prove.built) == ("prove", False)


def test_a_trace_is_made_once_a_commit_and_again_with_other_patterns_or_another_lean(world: World) -> None:
    world.configure(trace=True)
    (trace,) = world.plan(created(), scanned(1, toolchain=OLD)).due
    assert world.plan(succeeded(trace)).due == ()
    (other,) = world.plan(leans=real(OLD)).due
    assert other.kind == "trace"
    assert other.job != trace.job


def traced(job: DueJob) -> list[EventBody]:
    """A trace job that closed its commit and ended well."""
    measure = TraceMeasured(
        trace="t" * 16,
        repository=KEY,
        line=f"branch:{job.branch}",
        sha=job.sha,
        files_seen=1,
        files_traced=1,
        theorems_seen=0,
        theorems_traced=0,
        tactics_seen=0,
        tactics_traced=0,
        n_dependencies=0,
        gaps={},
        details=BlobRef(sha256=DIGEST, size_bytes=len(PAYLOAD)),
    )
    return [measure, *succeeded(job)]


def forced_back(old: int, new: int) -> list[EventBody]:
    rewritten = BranchRewritten(
        repository=KEY, branch="main", old=sha(old), new=sha(new), base=None, dropped=(sha(old),)
    )
    return [rewritten, *observed(new)]


def test_a_commit_that_comes_back_after_a_force_push_is_traced_again_each_time_once(world: World) -> None:
    world.configure(trace=True)
    (trace,) = world.plan(created(), scanned(1, toolchain=OLD)).due
    jobs = [trace.job]
    assert world.plan(traced(trace)).due == ()
    for old, new in ((1, 2), (2, 1), (1, 2)):
        (trace,) = world.plan(forced_back(old, new), scanned(new, toolchain=OLD)).due
        assert (trace.kind, trace.sha) == ("trace", sha(new))
        jobs.append(trace.job)
        assert world.plan(traced(trace)).due == (), "else it would be traced for ever"
    assert len(set(jobs)) == 4


def test_patterns_that_come_back_have_the_tip_traced_again(world: World) -> None:
    world.configure(trace=True)
    (trace,) = world.plan(created(), scanned(1, toolchain=OLD)).due
    jobs = [trace.job]
    world.plan(traced(trace))
    for entry, include in (('include = ["Lib/**"]', ("Lib/**",)), ("", ("**/*.lean",))):
        world.configure(entry=entry, trace=True)
        rescan = world.plan().due[0]
        plan = world.plan(scanned(1, include=include, toolchain=OLD), succeeded(rescan))
        (trace,) = plan.due
        jobs.append(trace.job)
        assert world.plan(traced(trace)).due == ()
    assert len(set(jobs)) == 3


def test_long_jobs_together_leave_a_slot_for_what_is_quick(world: World) -> None:
    world.configure(trace=True)
    plan = world.plan(created(), sorry("a"), scanned(1))
    assert kinds(plan) == ["trace", "prove"]
    assert [one.kind for one in admit(plan, running=(), max_running=2).start] == ["trace"]
    assert [one.kind for one in admit(plan, running=(), max_running=3).start] == ["trace", "prove"]
    assert admit(plan, running=("build",), max_running=2).start == ()


def triggered(work: str) -> list[EventBody]:
    return [WorkTriggered.model_validate({"work": work, "repository": KEY, "by": "ada"})]


def waiting(plan: Plan) -> list[tuple[str, str]]:
    return [(held.due.kind, held.waits) for held in plan.held]


def test_a_pause_holds_what_is_due_until_it_is_resumed_and_says_so(world: World) -> None:
    pause = WorkPaused(work="prove", by="ada", reason="the machine is needed")
    plan = world.plan(created(), sorry("a"), scanned(1), [pause])
    assert kinds(plan) == []
    assert waiting(plan) == [
        ("prove", "paused by ada (the machine is needed); `everlean resume prove`"),
    ]
    assert kinds(world.plan([WorkResumed(work="prove", by="ada")])) == ["prove"]
    everything = world.plan([WorkPaused(work="all", by="ada", reason="")], created(branch="side", tip=7))
    assert kinds(everything) == []
    assert [kind for kind, _ in waiting(everything)] == ["scan", "prove"]
    assert kinds(world.plan([WorkResumed(work="all", by="bob")])) == ["scan", "prove"]


def test_quiet_hours_hold_what_is_due_and_the_plan_is_made_again_at_their_end(world: World) -> None:
    here = NOW.astimezone()
    ends = here + timedelta(hours=2)
    window = f"{here - timedelta(hours=1):%H:%M}-{ends:%H:%M}"
    world.configure(extra=f'[schedule.quiet]\nprove = ["{window}"]\n')
    plan = world.plan(created(), sorry("a"), scanned(1))
    assert (kinds(plan), waiting(plan)) == ([], [("prove", f"quiet hours until {ends:%H:%M}")])
    assert plan.next_retry_at == ends
    assert kinds(world.plan(now=ends)) == ["prove"]


@pytest.fixture
def evening(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone in which it is about nine in the evening: a night ends at noon, and no test runs across one."""
    monkeypatch.setenv("TZ", f"EVE{(datetime.now(UTC).hour - 21 + 12) % 24 - 12:+d}")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(("entry", "first"), [("", "two"), ("priority = 1\n", "one")])
def test_who_was_served_longest_ago_goes_first_but_behind_a_priority(
    world: World, entry: str, first: str
) -> None:
    remotes = world.deployment.folder / "remotes"
    world.settings = world.deployment.write(repos=[remotes / "one", remotes / "two"])
    if entry:
        text = world.deployment.config.read_text().replace('/one"\n', f'/one"\n{entry}')
        world.deployment.config.write_text(text)
        world.settings = load(world.deployment.config)
    world.tell(*(created(repository=repo.key) for repo in world.settings.repos))
    served = {"local/remotes/one": 5.0, "local/remotes/two": 1.0}
    plan = Planner(whole=True).plan(
        world.view, settings=world.settings, leans=NO_LEAN, now=NOW, last_started=served
    )
    assert plan.due[0].repository == f"local/remotes/{first}"


def test_a_kind_has_the_limits_that_it_has_for_itself_and_lean_s_beside_them(world: World) -> None:
    world.configure(
        extra='[lean]\nbackend = "none"\nrepls = 3\nrepl_memory = "1G"\n'
        '[jobs]\nmemory = "2G"\ntimeout = "10m"\n[jobs.limits]\nprove = { memory = "3G", timeout = "1h" }\n'
    )
    plan = world.plan(created(), sorry("a"), scanned(1), created(branch="side", tip=7))
    scan, prove = plan.due
    assert (scan.memory_bytes, scan.timeout_s, scan.whole_bytes) == (2 * 2**30, 600.0, 2 * 2**30)
    assert (prove.memory_bytes, prove.timeout_s, prove.whole_bytes) == (3 * 2**30, 3600.0, 6 * 2**30)


def test_a_cancelled_job_is_not_tried_again_nor_in_halves_until_someone_releases_it(world: World) -> None:
    (job,) = world.plan(created(), sorry("a"), sorry("b"), scanned(1)).due
    assert world.plan(started(job), cancelled(job)).due == ()
    (again,) = world.plan([JobReleased(job=job.job)]).due
    assert (again.job, again.attempt) == (job.job, 2)


def test_a_job_that_was_cancelled_before_it_began_does_not_begin(world: World) -> None:
    (job,) = world.plan(created()).due
    never = [body.model_copy(update={"attempt": 0, "seconds": None}) for body in cancelled(job)]
    assert world.plan(never).due == ()
    (again,) = world.plan([JobReleased(job=job.job)]).due
    assert (again.job, again.attempt) == (job.job, 1)


def test_a_trigger_has_every_open_sorry_searched_once_more(world: World) -> None:
    tried = attempted("a", settings=world.settings)
    assert world.plan(created(), sorry("a"), scanned(1), tried).due == ()
    (job,) = world.plan(triggered("prove")).due
    assert [one.sorry for one in asked(job, ProveSpec).sorries] == ["a"]
    again = [body.model_copy(update={"budget": asked(job, ProveSpec).budget_key}) for body in tried]
    assert world.plan(started(job), again).due == ()
    assert len(world.plan(triggered("prove")).due) == 1, "and once more for another trigger"


def test_a_trigger_has_a_traced_tip_traced_once_more(world: World) -> None:
    world.configure(trace=True, extra="[prove]\nenabled = false\n")
    (first,) = world.plan(created(), scanned(1)).due
    assert world.plan(succeeded(first)).due == ()
    (job,) = world.plan(triggered("trace")).due
    assert (job.kind, job.attempt) == ("trace", 1)
    assert job.job != first.job
    assert world.plan(succeeded(job)).due == ()


# --- bumps ----------------------------------------------------------------------------------------------------


def asked_for(*, toolchain: str = NEW, package: str = "", rev: str = "") -> list[EventBody]:
    about = {"toolchain": toolchain, "package": package, "rev": rev}
    return [BumpAsked(repository=KEY, bump="b1", by="ada", **about)]


def ended(job: DueJob) -> list[EventBody]:
    """Return the start and the end of a bump that broke nothing."""
    spec = asked(job, BumpSpec)
    about = {
        "repository": KEY, "branch": job.branch, "sha": job.sha, "bump": spec.bump, "job": job.job,
        "toolchain": spec.toolchain, "package": spec.package, "rev": spec.rev,
    }  # fmt: skip
    cited = {"sha256": DIGEST, "size_bytes": len(PAYLOAD)}
    return [
        *started(job),
        BumpBuilt.model_validate({**about, "broken": (), "modules_failed": ()}),
        BumpFinished.model_validate(
            {
                **about,
                "mended": (),
                "left": (),
                "modules_failed": (),
                "series": cited,
                "tried": 0,
                "unrecorded": 0,
                "seconds": 1.0,
            }
        ),
        *succeeded(job)[1:],
    ]


def test_a_bump_that_was_asked_for_is_due_once_with_the_lean_that_it_raises_to(world: World) -> None:
    plan = world.plan(created(), scanned(1, toolchain=OLD), asked_for(), leans=real(OLD, NEW))
    (job,) = plan.due
    spec = asked(job, BumpSpec)
    assert (job.kind, job.sha, job.built) == ("bump", sha(1), False)
    assert (spec.toolchain, spec.build.lean.toolchain) == (NEW, NEW)
    # What needs the mirror is read once the job starts, and not for each plan.
    mirrors = world.settings.paths.mirrors
    (mirrors / f"{slug(KEY)}.git").mkdir(parents=True)
    (mirrors / f"{slug(KEY)}.git" / "HEAD").touch()
    with capture_logs() as output:
        assert world.plan(leans=real(OLD, NEW)).due == (job,)
        assert output == []
        assert spec_now(world.view, job=job, mirrors=mirrors) == spec
    assert [one["event"] for one in output] == ["manifest_not_read"]
    assert world.plan(ended(job), leans=real(OLD, NEW)).due == ()


def test_a_bump_searches_with_the_ladder_s_rungs_that_need_no_endpoint_on_the_processor(world: World) -> None:
    free = "usd_per_day = 1\nusd_per_million_prompt = 0\nusd_per_million_completion = 0\n"
    endpoint = f'[prove.external]\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"\n{free}'
    world.configure(extra=f"[prove]\nrungs = [0, 2, 4]\n{endpoint}")
    in_use: list[EventBody] = [
        checkpoint_saved("t-1", model="tactics"),
        checkpoint_promoted("t-1", model="tactics"),
    ]
    plan = world.plan(created(), scanned(1, toolchain=OLD), in_use, asked_for(), leans=real(OLD, NEW))
    (job,) = plan.due
    zero, two = asked(job, BumpSpec).rungs
    assert (zero.spec, zero.model) == (CuratedRung(), "")
    assert isinstance(two.spec, GeneratorRung)
    assert (two.spec.generator.device, two.model, job.key) == ("cpu", "t-1", None)
    world.configure(extra='[prove]\nrungs = [0, 1]\n[prove.generator]\nmodel = "owner/gated"\n')
    trace = traced_repository.closing(traced_repository.head(sha(1), repository=KEY, branch="main"), ())
    (job,) = world.plan([trace], leans=real(OLD, NEW)).due
    assert job.key == HUB_KEY
    world.configure(extra=f"[prove]\nrungs = [4]\n{endpoint}")
    (job,) = world.plan(leans=real(OLD, NEW)).due
    assert asked(job, BumpSpec).rungs == ()


def test_a_bump_of_a_package_is_built_with_the_commit_s_own_lean(world: World) -> None:
    bump = asked_for(toolchain="", package="base", rev="c" * 40)
    (job,) = world.plan(created(), scanned(1, toolchain=OLD), bump, leans=real(OLD, NEW)).due
    assert asked(job, BumpSpec).build.lean.toolchain == OLD


def test_no_bump_is_due_without_its_lean_nor_where_nobody_wants_proofs(world: World) -> None:
    assert world.plan(created(), scanned(1, toolchain=OLD), asked_for(), leans=real(OLD)).due == ()
    assert world.plan(leans=NO_LEAN).due == ()
    world.configure(entry="opt_out = true")
    assert world.plan(leans=real(OLD, NEW)).due == ()


def test_with_try_bumps_the_newest_release_is_tried_once_a_week_where_the_branch_has_moved(
    world: World,
) -> None:
    world.configure(entry='try_bumps = "weekly"')
    leans = real(OLD, "leanprover/lean4:v4.21.0", NEW, "leanprover/lean4:v4.40.0-rc1")
    (job,) = world.plan(created(), scanned(1, toolchain=OLD), leans=leans).due
    assert asked(job, BumpSpec).toolchain == NEW
    assert world.plan(ended(job), leans=leans).due == ()
    plan = world.plan(observed(2), scanned(2, toolchain=OLD), leans=leans)
    assert plan.due == ()
    assert plan.next_retry_at is not None
    (again,) = world.plan(leans=leans, now=plan.next_retry_at).due
    assert (again.kind, again.sha) == ("bump", sha(2))
    assert again.job != job.job


def test_where_the_branch_has_the_newest_release_no_bump_is_tried(world: World) -> None:
    world.configure(entry='try_bumps = "weekly"')
    assert world.plan(created(), scanned(1, toolchain=NEW), leans=real(OLD, NEW)).due == ()


def in_folders(number: int, *projects: Project) -> list[EventBody]:
    """Return a scan that found these Lake projects, and a file in each and beside them."""
    file, closed = scanned(number)
    paths = ["lean/A.lean", "book/B.lean", "docs/B.lean", "C.lean", "A.lean"]
    files = [file.model_copy(update={"path": path}) for path in paths]
    return [*files, closed.model_copy(update={"projects": projects})]


def sorry_in(name: str, path: str) -> list[EventBody]:
    (opened,) = sorry(name)
    assert isinstance(opened, SorryOpened)
    return [opened.model_copy(update={"place": replace(opened.place, path=path)})]


TWO_PROJECTS = (Project("book", NEW, ""), Project("lean", OLD, ""))


def test_each_lake_project_is_built_traced_and_proved_in_by_its_own_lean(world: World) -> None:
    world.configure(trace=True)
    stand = [*sorry_in("a", "lean/A.lean"), *sorry_in("b", "book/B.lean"), *sorry_in("c", "C.lean")]
    due = world.plan(created(), stand, in_folders(1, *TWO_PROJECTS), leans=real(OLD, NEW)).due
    builds = [(one.project, asked(one, BuildSpec)) for one in due]
    assert [(name, spec.folder, spec.lean.toolchain) for name, spec in builds] == [
        ("book", "book", NEW),
        ("lean", "lean", OLD),
    ]
    assert len({one.job for one in due}) == 2
    book, lean = BuildKey(KEY, sha(1), "book"), BuildKey(KEY, sha(1), "lean")
    due = world.plan(leans=real(OLD, NEW), builds={book}).due
    assert {(one.kind, one.project) for one in due} == {
        ("build", "lean"), ("trace", "book"), ("prove", "book"),
    }  # fmt: skip
    due = world.plan(leans=real(OLD, NEW), builds={book, lean}).due
    assert len({one.job for one in due}) == len(due) == 4
    assert {one.project: asked(one, TraceSpec).lean.toolchain for one in due if one.kind == "trace"} == {
        "book": NEW,
        "lean": OLD,
    }
    searches = {one.project: asked(one, ProveSpec) for one in due if one.kind == "prove"}
    assert {name: (spec.folder, spec.lean.toolchain) for name, spec in searches.items()} == {
        "book": ("book", NEW),
        "lean": ("lean", OLD),
    }
    assert {name: [one.sorry for one in spec.sorries] for name, spec in searches.items()} == {
        "book": ["b"],
        "lean": ["a"],
    }, "what lies in no project is in no search"
    due = world.plan(leans=real(OLD), builds={lean}).due
    assert {(one.kind, one.project) for one in due} == {("trace", "lean"), ("prove", "lean")}


@pytest.mark.parametrize(
    ("entry", "folders"),
    [("", [""]), ('projects = ["docs"]', ["docs"]), ('projects = [".", "docs"]', ["", "docs"])],
)
def test_beside_a_project_at_the_root_others_are_worked_on_where_they_are_chosen(
    world: World, entry: str, folders: list[str]
) -> None:
    world.configure(trace=True, entry=entry, extra="[build]\nenabled = false\n")
    root = Project("", OLD, "")
    stand = [*sorry_in("a", "A.lean"), *sorry_in("b", "docs/B.lean")]
    due = world.plan(created(), stand, in_folders(1, root, Project("docs", OLD, ""))).due
    assert sorted({one.project for one in due}) == folders
    traces = [asked(one, TraceSpec) for one in due if one.kind == "trace"]
    assert [(spec.folder, spec.without) for spec in traces] == [
        (folder, () if folder else ("docs",)) for folder in folders
    ]
