"""What people ask of the work is recorded, outlives the daemon, and is refused with a reason where it cannot be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from daemon.cli.app import build
from daemon.http.control import bump_route
from daemon.place.control_client import request
from daemon.planning.plan import Plan
from daemon.planning.schedule import Timetable
from daemon.scheduling.scheduler import Operator, WorkStateError
from daemon.settings.schema import Schedule
from pipeline.lean.backend import LeanBackend, Leans
from store.domain.identity import job_id
from store.events.base import EventBody
from store.events.bumps import BumpAsked
from store.events.jobs import JobFailed, JobStarted, WorkPaused
from store.events.places import SorryPlace
from store.events.projects import Project
from store.events.repositories import BranchCreated, RepositoryReplaced
from store.events.scans import SorryOpened
from store.log.envelope import NewEvent
from store.view import queries
from store.view.rows import PauseRow
from tests.support import events
from tests.support.daemon.bench import Bench, bench, until
from tests.support.daemon.deployment import Deployment, LeanOfTests
from tests.support.daemon.remote import Remote
from tests.support.planning import KEY, LEAN, NO_LEAN


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    deployment.write(repos=[remote.path])
    return deployment


@asynccontextmanager
async def desk(
    deployment: Deployment, *, plan: Plan | None = None, **about: Any
) -> AsyncIterator[tuple[Operator, Bench]]:
    async with bench(deployment) as b:
        work = SimpleNamespace(**{"plan": plan or Plan(), "untrainable": "", "leans": LEAN, **about})
        yield Operator(b.parts.store, b.runner, work, b.parts.context), b  # type: ignore[arg-type] # what it needs of it


async def test_a_pause_is_recorded_once_with_who_and_why_and_ended_by_resume(deployment: Deployment) -> None:
    async with desk(deployment) as (it, b):
        lines: list[Any] = [
            await it.pause("train", by="ada", reason="hot"),
            await it.pause("train", by="bob", reason=""),
            [(row.work, row.by, row.reason) for row in await b.parts.store.ask(queries.pauses)],
            await it.resume("train", by="bob"),
            await it.resume("train", by="bob"),
            await b.parts.store.ask(queries.pauses),
        ]
        await it.pause("all", by="ada", reason="")
        with pytest.raises(WorkStateError, match="everything is paused; `everlean resume all`"):
            await it.resume("prove", by="ada")
    assert lines == [True, False, [("train", "ada", "hot")], True, False, []]
    assert [(event.type, event.actor) for event in deployment.events("work_paused", "work_resumed")] == [
        ("work_paused", "user:ada"),
        ("work_resumed", "user:bob"),
        ("work_paused", "user:ada"),
    ]


async def test_another_repository_in_the_place_of_a_watched_one_is_accepted_by_a_person(
    deployment: Deployment,
) -> None:
    async with desk(deployment) as (it, b):
        key = b.parts.repo.key
        with pytest.raises(KeyError):
            await it.accept("nobody/knows/it", by="ada")
        with pytest.raises(WorkStateError, match="no other repository was seen under its name"):
            await it.accept(key, by="ada")
        body = RepositoryReplaced(repository=key, before=1, forge_id=2, reason="another", remedy="say which")
        await b.parts.store.append([NewEvent(f"repository:{key}", body)], wait=True)
        accepted = await it.accept(key, by="ada")
        row = await b.parts.store.ask(partial(queries.repository, key=key))
        assert row is not None
        result = accepted.forge_id, row.replaced_by
    assert result == (2, None)
    assert deployment.events("repository_identified")[-1].actor == "user:ada"


async def test_a_trigger_that_waits_is_not_recorded_twice_and_says_what_it_waits_for(
    deployment: Deployment,
) -> None:
    table = Timetable(Schedule.model_validate({"quiet": {"train": ["00:00-24:00"]}}), datetime.now(UTC))
    paused = Plan(timetable=table)
    async with desk(deployment, plan=paused) as (it, b):
        await b.run(b.due("succeed"))
        with pytest.raises(WorkStateError, match=f"{KEY}: has no trace to learn from"):
            await it.trigger("train", KEY, by="ada")
        first, second = [await it.trigger("trace", KEY, by="ada"), await it.trigger("trace", KEY, by="bob")]
    assert (first, second) == (
        {"triggered": True, "waits": None},
        {"triggered": False, "waits": None},
    )
    assert len(deployment.events("work_triggered")) == 1


def tip(toolchain: str) -> list[EventBody]:
    """Return the events of a default branch whose tip is scanned."""
    about = {"repository": KEY, "branch": "main"}
    return [
        BranchCreated(**about, tip=events.sha(1), is_default=True),
        events.observed(events.sha(1)).model_copy(update=about),
        events.commit_scanned(events.sha(1)).model_copy(
            update={**about, "projects": (Project("", toolchain, ""),)}
        ),
    ]


async def test_a_bump_is_recorded_once_with_who_asked_and_refused_where_nothing_can_build(
    deployment: Deployment,
) -> None:
    old, new = "leanprover/lean4:v4.34.1", "leanprover/lean4:v4.35.0"
    leans = Leans(None, (LeanBackend("server", ("/lean",), "", new, sandbox="none"),))
    options = {"package": "", "rev": ""}
    async with desk(deployment, leans=leans) as (it, b):
        with pytest.raises(WorkStateError, match="no tip of its default branch is scanned yet"):
            await it.bump(KEY, toolchain=new, **options, by="ada")
        await b.parts.store.append([NewEvent(f"repository:{KEY}", one) for one in tip(old)])
        first, waits = await it.bump(KEY, toolchain=new, **options, by="ada")
        assert waits is None
        assert await it.bump(KEY, toolchain=new, **options, by="bob") == (first, None)
        with pytest.raises(WorkStateError, match="already"):
            await it.bump(KEY, toolchain=old, **options, by="ada")
        with pytest.raises(WorkStateError, match=r"nothing can build it: .*v4\.40\.0"):
            await it.bump(KEY, toolchain="leanprover/lean4:v4.40.0", **options, by="ada")
        with pytest.raises(KeyError):
            await it.bump("local/remotes/other", toolchain=new, **options, by="ada")
    (asked,) = deployment.events("bump_asked")
    assert (asked.data["toolchain"], asked.data["by"], asked.actor) == (new, "ada", "user:ada")


async def test_a_bump_is_asked_for_anew_where_its_job_is_given_up_and_else_it_is_said_what_it_waits_for(
    deployment: Deployment,
) -> None:
    old, new = "leanprover/lean4:v4.34.1", "leanprover/lean4:v4.35.0"
    leans = Leans(None, (LeanBackend("server", ("/lean",), "", new, sandbox="none"),))
    options = {"toolchain": new, "package": "base", "rev": "c" * 40, "by": "ada"}
    later = datetime(2100, 1, 1, tzinfo=UTC)
    paused = Timetable(Schedule(), later, (PauseRow("prove", "bob", "", "2026-01-01T00:00:00Z"),))
    plan = Plan(timetable=paused)
    async with desk(deployment, leans=leans, plan=plan) as (it, b):
        await b.parts.store.append([NewEvent(f"repository:{KEY}", one) for one in tip(old)])
        first, waits = await it.bump(KEY, **options)
        assert waits == "paused by bob; `everlean resume prove`"
        job = job_id("bump", KEY, first.bump)

        async def tell(*bodies: EventBody) -> None:
            await b.parts.store.append([NewEvent(f"job:{job}", one) for one in bodies])

        begun = JobStarted(job=job, kind="bump", attempt=1, repository=KEY, branch="main", sha=events.sha(1),
                           describes="bump")  # fmt: skip
        failure = JobFailed(job=job, attempt=1, reason="gone", message="m", remedy="r", deterministic=False,
                            retry_at=later, seconds=1.0, peak_rss_bytes=None)  # fmt: skip
        await tell(begun)
        assert await it.bump(KEY, **options) == (first, f"it runs already; `everlean jobs show {job}`")
        await tell(failure)
        again, waits = await it.bump(KEY, **options)
        assert again == first
        assert waits is not None
        assert "it failed (gone) and is tried again by itself after 2100-01-01" in waits
        parked = {"attempt": 2, "deterministic": True, "retry_at": None}
        await tell(begun.model_copy(update={"attempt": 2}), failure.model_copy(update=parked))
        anew, _ = await it.bump(KEY, **options)
        assert anew.bump != first.bump
        assert (await it.bump(KEY, **options))[0] == anew
    assert len(deployment.events("bump_asked")) == 2


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"toolchain": "v4.35.0"}, 202),
        ({"package": "base", "rev": "c" * 40}, 202),
        ({"toolchain": "v4.35.0", "package": "base", "rev": "c" * 40}, 202),
        ({}, 400),
        ({"package": "base"}, 400),
        ({"toolchain": "v4.35.0", "rev": "c" * 40}, 400),
        ({"toolchain": "v4.35.0\n"}, 400),
        ({"toolchain": ["v4.35.0"]}, 400),
        ({"package": "base", "rev": "c" * 201}, 400),
    ],
)
def test_lean_a_package_or_both_are_asked_for_by_http_and_nothing_else(
    given: dict[str, Any], status: int
) -> None:
    class Desk:
        async def bump(self, repository: str, **given: Any) -> tuple[BumpAsked, str]:
            return BumpAsked(repository=repository, bump="b1", **given), "paused"

    async def body() -> dict[str, Any]:
        return {"repository": KEY, **given}

    desk: Any = Desk()
    peer = SimpleNamespace(peer=SimpleNamespace(uid=0))
    request: Any = SimpleNamespace(state=peer, headers={"content-length": "9"}, json=body)
    answer = asyncio.run(bump_route(desk).endpoint(request))
    assert answer.status_code == status
    said = json.loads(answer.body)
    assert (
        (said["waits"], said["bump"]) == ("paused", "b1") if status == 202 else 'send {"repo' in said["error"]
    )


@pytest.mark.parametrize(
    ("work", "extra", "entry", "about", "why"),
    [
        ("trace", "", "", {}, "no tip of it is scanned yet"),
        ("trace", "[trace]\nenabled = false\n", "", {}, "write enabled = true under \\[trace\\]"),
        ("prove", "", "opt_out = true", {}, "has opt_out"),
        ("prove", "", "enabled = false", {}, "is not enabled"),
        ("train", "", "", {"untrainable": "torch not installed"}, "nothing can be trained here: torch not"),
    ],
)
async def test_what_cannot_be_done_in_a_repository_is_refused_with_the_reason(
    deployment: Deployment, work: Any, extra: str, entry: str, about: dict[str, Any], why: str
) -> None:
    deployment.write(repos=[deployment.folder / "remotes" / "demo"], extra=extra, entry=entry)
    async with deployment.opened() as parts:
        stub: Any = SimpleNamespace(plan=Plan(), leans=LEAN, **{"untrainable": "", **about})
        runner: Any = None
        it = Operator(parts.store, runner, stub, parts.context)
        with pytest.raises(WorkStateError, match=why):
            await it.trigger(work, KEY, by="ada")
        with pytest.raises(KeyError):
            await it.trigger(work, "local/remotes/other", by="ada")
    assert not deployment.events("work_triggered")


async def test_a_repository_without_lean_or_open_sorry_is_refused_with_that(deployment: Deployment) -> None:
    async with desk(deployment, leans=NO_LEAN) as (it, b):
        await b.run(b.due("succeed"))
        with pytest.raises(WorkStateError, match="no Lean for it"):
            await it.trigger("trace", KEY, by="ada")
    async with desk(deployment) as (it, _):
        with pytest.raises(WorkStateError, match="has no open sorry"):
            await it.trigger("prove", KEY, by="ada")


@pytest.mark.parametrize(
    ("exercises", "path", "why"),
    [
        (
            "",
            "Exercises/One.lean",
            "every open sorry of it is an exercise, for people to solve; write exercises",
        ),
        ("exercises = []", "Exercises/One.lean", ""),
        ("", "Main.lean", ""),
    ],
)
def test_a_search_where_every_open_sorry_is_an_exercise_is_refused_with_that(
    deployment: Deployment, exercises: str, path: str, why: str
) -> None:
    deployment.write(repos=[deployment.folder / "remotes" / "demo"], entry=exercises)

    async def go() -> bool:
        async with desk(deployment) as (it, b):
            await b.run(b.due("succeed"))
            opened = SorryOpened(
                repository=KEY,
                branch="main",
                sha=b.sha,
                sorry="a",
                place=SorryPlace(
                    path=path,
                    blob="b" * 40,
                    line=2,
                    column=2,
                    byte_start=10,
                    byte_end=15,
                    declaration="a",
                    kind="theorem",
                    statement="True",
                    statement_hash="h",
                    ordinal=0,
                    token="sorry",
                    mode="tactic",
                    context_hash="c",
                ),
                reopened=False,
            )
            await b.parts.store.append([NewEvent(f"repository:{KEY}", opened)])
            if why:
                with pytest.raises(WorkStateError, match=why):
                    await it.trigger("prove", KEY, by="ada")
                return False
            return bool((await it.trigger("prove", KEY, by="ada"))["triggered"])

    assert asyncio.run(go()) == (why == "")
    assert len(deployment.events("work_triggered")) == (why == "")


async def test_a_search_that_waits_ends_when_someone_fills_the_last_sorry_and_status_says_so(
    deployment: Deployment,
) -> None:
    settings = deployment.write(
        repos=[deployment.folder / "remotes" / "demo"],
        extra=LeanOfTests.scripted(deployment.folder).settings,
    )

    def ask(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        status, answer = request(settings.paths, method, path, body)
        assert status in (200, 202), answer
        return answer

    def waiting() -> list[Any]:
        with closing(queries.connect(settings.paths.database_db)) as view:
            return [row for row in queries.triggers(view) if row.waits]

    def scanned() -> bool:
        with closing(queries.connect(settings.paths.database_db)) as view:
            return any(branch.scanned for branch in queries.branches(view))

    async with deployment.opened() as parts:
        await parts.store.append([NewEvent("work", WorkPaused(work="prove", by="ada", reason=""))])
    with deployment.daemon():
        deployment.wait_for(scanned, what="the first scan")
        assert ask("POST", "/trigger", {"work": "prove", "repository": KEY})["triggered"]
        (one,) = waiting()
        assert (one.work, one.repository) == ("prove", KEY)
        Remote.at(deployment.folder / "remotes" / "demo").commit(
            "second", {"A.lean": "theorem a : True := trivial\n"}
        )
        ask("POST", "/poll", {"repository": KEY})
        deployment.wait_for(lambda: deployment.events("trigger_ended"), what="its end")
        deployment.wait_for(lambda: waiting() == [], what="the view to know of it")
    (ended,) = deployment.events("trigger_ended")
    assert ended.data["reason"] == "it has no open sorry"
    assert not deployment.events("job_started", "attempt_finished")[2:], "two scans, and no search"


async def test_a_job_can_be_cancelled_while_it_runs_while_it_waits_and_before_it_ever_began(
    deployment: Deployment,
) -> None:
    async with bench(deployment) as b:
        never = b.due("succeed")
        paused = Timetable(Schedule(), datetime.now(UTC), [PauseRow("all", "ada", "", "")])
        plan = replace(Plan.of([never]), timetable=paused)
        stub: Any = SimpleNamespace(plan=plan, leans=LEAN, untrainable="")
        it = Operator(b.parts.store, b.runner, stub, b.parts.context)
        b.runner.start(b.due("hang"))
        await until(lambda: b.runner.running()[0].pid)
        lines = [await it.cancel("scan-hang", by="ada")]
        await until(lambda: not b.runner.running())
        await b.run(b.due("fail_for_now"))
        lines += [await it.cancel("scan-fail_for_now", by="ada"), await it.cancel(never.job, by="ada")]
        with pytest.raises(WorkStateError, match="is cancelled; only a job that runs or waits"):
            await it.cancel("scan-hang", by="ada")
        with pytest.raises(KeyError):
            await it.cancel("nobody", by="ada")
    assert lines == ["running", "waiting", "waiting"]
    ends = {event.data["job"]: event.data["attempt"] for event in deployment.events("job_cancelled")}
    assert ends == {"scan-hang": 1, "scan-fail_for_now": 1, "scan-succeed": 0}


async def test_a_job_that_was_cancelled_since_the_plan_was_made_does_not_begin(
    deployment: Deployment,
) -> None:
    async with bench(deployment) as b:
        due = b.due("succeed")
        stub: Any = SimpleNamespace(plan=Plan.of([due]), leans=LEAN, untrainable="")
        it = Operator(b.parts.store, b.runner, stub, b.parts.context)
        assert await it.cancel(due.job, by="ada") == "waiting"
        await b.run(due)
    assert [event.type for event in deployment.events("job_started", "job_cancelled", "job_succeeded")] == [
        "job_cancelled"
    ]


def test_a_pause_survives_a_restart_and_the_command_line_says_so_and_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": "theorem a : True := by\n  sorry\n"})
    deployment.write(repos=[remote.path])
    monkeypatch.setenv("EVERLEAN_CONFIG", str(deployment.config))

    def everlean(*arguments: str) -> Any:
        result = CliRunner().invoke(build(), [*arguments, "--json"])
        assert result.exception is None, (result.output, result.exception)
        return json.loads(result.output)

    with deployment.daemon():
        deployment.wait_for(lambda: deployment.events("commit_scanned"), what="the first scan")
        assert everlean("pause", "all", "--reason", "the room is hot")["paused"]
    with deployment.daemon():
        deployment.wait_for(lambda: deployment.log().count("daemon_ready") == 2, what="the second start")
        status = everlean("status")
        (pause,) = status["work"]["paused"]
        assert (pause["work"], pause["reason"]) == ("all", "the room is hot")
        assert [
            (item["code"], item["remedy"]) for item in status["problems"] if item["code"] == "work_paused"
        ] == [("work_paused", "everlean resume all")]
        remote.commit("second", {"B.lean": "theorem b : True := trivial\n"})
        everlean("poll")
        deployment.wait_for(lambda: len(deployment.events("commit_observed")) == 2, what="the second commit")
        deployment.wait_for(lambda: everlean("jobs")["queued"], what="the scan that waits")
        (queued,) = everlean("jobs")["queued"]
        assert queued["waits"].endswith("(the room is hot); `everlean resume all`")
        assert everlean("resume", "all")["resumed"]
        deployment.wait_for(lambda: len(deployment.events("commit_scanned")) == 2, what="the second scan")
        refused = CliRunner().invoke(build(), ["trigger", "train", "demo"])
        assert "has no trace to learn from" in str(refused.exception) or "nothing can be trained" in str(
            refused.exception
        )
