"""The time before a repository was watched, out of real git repositories: which commits count, and where they show."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest

from daemon.polling import past as module
from daemon.polling.git import DatedCommit
from daemon.polling.past import Past, weekly
from pipeline.report import sections
from store.log.envelope import NewEvent
from store.sqlite import connect_readonly
from store.view import queries, report_queries
from tests.support.daemon.deployment import HISTORY, Deployment, Parts
from tests.support.daemon.remote import Remote
from tests.support.events import commit_scanned
from tests.support.views import sorry_steps

Answer = TypeVar("Answer")
BEGAN = datetime(2025, 1, 6, tzinfo=UTC)
HASTY = "import daemon.polling.past as past\npast._PAUSE_S = 0.1\n"
DONE = "theorem done : 1 = 1 := rfl\n"


def lean(*names: str) -> str:
    return "".join(f"theorem {name} : 1 = 1 := by\n  sorry\n" for name in names)


def on(day: float) -> str:
    return (BEGAN + timedelta(days=day)).isoformat()


@pytest.fixture
def remote(deployment: Deployment) -> Remote:
    """A repository of four weeks, with another commit in two of them."""
    remote = deployment.remote("demo")
    remote.serve_partially()
    remote.commit("first", {"A.lean": DONE, "a.md": "sorry"}, date=on(0))
    remote.commit("one", {"A.lean": lean("a")}, date=on(1))
    remote.commit("three", {"A.lean": lean("a", "b"), "B.lean": lean("c")}, date=on(7))
    remote.commit("moved", {"lakefile.lean": lean("no", "source"), "a.md": "more"}, date=on(8))
    remote.git("mv", "B.lean", "C.lean")
    remote.commit("two", {"A.lean": DONE, "C.lean": lean("c", "d")}, date=on(15))
    remote.commit("four", {"A.lean": lean("a", "b")}, date=on(22))
    deployment.write(repos=[remote.path], extra=HISTORY)
    return remote


def counted(deployment: Deployment) -> list[int | None]:
    """Return the numbers of the past, the oldest first, once all are known."""
    with closing(connect_readonly(deployment.settings().paths.database_db)) as view:
        rows = view.execute("SELECT sorries FROM past_commits ORDER BY committed_at").fetchall()
    return [row[0] for row in rows]


def watch(deployment: Deployment, weeks: int) -> None:
    """Run a daemon until the past is counted and the tip scanned, and its view says so."""
    with deployment.daemon(prelude=HASTY):
        deployment.wait_for(
            lambda: len(deployment.events("past_counted")) >= weeks, what=f"{weeks} weeks to be counted"
        )
        deployment.wait_for(lambda: deployment.events("commit_scanned"), what="the tip to be scanned")
        deployment.wait_for(lambda: None not in counted(deployment), what="the view to say so")


def test_one_commit_a_week_is_counted_and_none_of_it_is_news_or_a_life(
    deployment: Deployment, remote: Remote
) -> None:
    watch(deployment, 4)
    assert counted(deployment) == [1, 3, 2, 4]
    assert {event.data["files_failed"] for event in deployment.events("past_counted")} == {0}
    assert len(deployment.events("sorry_opened")) == 4, "those of the tip"
    assert not deployment.events("sorry_filled", "sorry_removed", "sorry_moved", "sorry_changed")
    with closing(connect_readonly(deployment.settings().paths.database_db)) as view:
        assert [one.open for one in sections.followed(report_queries.turns(view), report_queries.past(view))] == [
            1, 3, 2, 4,
        ]  # fmt: skip
        assert [turn for turn in report_queries.turns_since(view, "") if not turn.first_read] == []
        assert {step.sha for step in sorry_steps(view)} == {remote.git("rev-parse", "HEAD")}
        picture = sections.history(report_queries.turns(view), report_queries.past(view))
    assert picture is not None
    assert "out of git&#39;s history" in picture.html


def test_what_a_killed_daemon_had_not_counted_the_next_one_does_and_nothing_twice(
    deployment: Deployment, remote: Remote
) -> None:
    for week in range(4, 40):
        remote.commit(
            f"week {week}", {"A.lean": lean(*(f"t{number}" for number in range(week)))}, date=on(7 * week)
        )
    with deployment.daemon(prelude=HASTY) as daemon:
        deployment.wait_for(lambda: deployment.events("past_listed"), what="the past to be listed")
        daemon.kill()
    watch(deployment, 40)
    deployment.write(repos=[remote.path], every="1s", extra=HISTORY)
    remote.commit("news", {"D.lean": lean("d")})
    with deployment.daemon(prelude=HASTY):
        deployment.wait_for(lambda: len(deployment.events("commit_scanned")) > 1, what="the news")
    assert len(deployment.events("past_listed")) == 1
    assert sorted(event.data["sha"] for event in deployment.events("past_counted")) == sorted(
        one["sha"] for one in deployment.events("past_listed")[0].data["commits"]
    )
    assert counted(deployment) == [1, 3, 2, 4, *(week + 2 for week in range(4, 40))]


def with_parts(deployment: Deployment, work: Callable[[Parts], Awaitable[Answer]]) -> Answer:
    async def go() -> Answer:
        async with deployment.opened() as parts:
            await parts.poller.poll(parts.repo)
            (branch,) = await parts.store.ask(queries.branches)
            about = {"repository": parts.repo.key, "branch": branch.branch}
            body = commit_scanned(branch.tip).model_copy(update=about)
            await parts.store.append([NewEvent(f"repository:{parts.repo.key}", body)])
            return await work(parts)

    return asyncio.run(go())


async def look(parts: Parts, times: int = 1) -> int:
    """Ask git so many times; return how many packs came."""
    packs = parts.poller.mirror(parts.repo.key) / "objects" / "pack"
    before = len([*packs.glob("*.pack")])
    past = Past(store=parts.store, git=parts.git, mirror=parts.poller.mirror, context=parts.context)
    for _ in range(times):
        await past.look()
    return len([*packs.glob("*.pack")]) - before


def test_the_versions_of_all_weeks_come_in_one_request_and_are_asked_for_once(
    deployment: Deployment, remote: Remote
) -> None:
    assert with_parts(deployment, lambda parts: look(parts, times=3)) == 1
    assert len(deployment.events("past_listed")) == 1
    assert with_parts(deployment, look) == 0


@pytest.mark.parametrize(
    ("most", "weeks", "begins"), [(3, 4, True), (2, 3, False), (1, 2, False), (0, 1, False)]
)
def test_no_more_versions_are_fetched_than_the_bound_and_the_newest_weeks_go_first(
    most: int,
    weeks: int,
    begins: bool,
    deployment: Deployment,
    remote: Remote,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_VERSIONS", most)
    with_parts(deployment, look)
    (event,) = deployment.events("past_listed")
    assert len(event.data["commits"]) == weeks
    assert event.data["commits"][0]["sha"] == remote.git("rev-parse", "HEAD")
    assert [one["begins"] for one in event.data["commits"]] == [*[False] * (weeks - 1), begins]


def test_what_a_deleted_mirror_lost_is_fetched_again_to_be_counted(
    deployment: Deployment, remote: Remote
) -> None:
    async def lose(parts: Parts) -> int:
        await look(parts)
        mirror = parts.poller.mirror(parts.repo.key)
        shutil.rmtree(mirror)
        await parts.poller.poll(parts.repo)
        return await look(parts, times=2)

    assert with_parts(deployment, lose) == 1
    watch(deployment, 4)
    assert counted(deployment) == [1, 3, 2, 4]


def test_with_the_setting_off_nothing_of_the_past_is_asked_fetched_or_counted(
    deployment: Deployment, remote: Remote
) -> None:
    deployment.write(repos=[remote.path])
    assert with_parts(deployment, look) == 0
    assert deployment.events("past_listed", "sorry_written") == []


def history(*days: float, root: bool = True) -> list[DatedCommit]:
    """Return commits made on these days, the oldest first in the arguments."""
    result = [
        DatedCommit(f"{day:g}", "", BEGAN + timedelta(days=day), root=root and number == 0)
        for number, day in enumerate(days)
    ]
    return result[::-1]


WEEKS: dict[str, tuple[Sequence[DatedCommit], str, bool]] = {
    "one commit": (history(1), "1", True),
    "the last of each week": (history(0, 1, 2, 8, 9, 30), "30 9 2", True),
    "a clock years behind in the middle": (history(1, 9, -3000, 17, 25), "25 17 9 1", True),
    "a clock ahead in the middle": (history(1, 9, 3000, 17, 25), "25 17 9 1", True),
    "a clock of 2099 at the tip": (history(1, 9, 17, 30_000), "30000 17 9 1", True),
    "several clocks behind": (history(1, 9, -3000, -2999, 17, 25, -50, 33), "33 25 17 9 1", True),
    "no further than five years": (history(-1800, 1, 40), "40 1", False),
    "a history that is cut off": (history(1, 9, root=False), "9 1", False),
}


@pytest.mark.parametrize(("given", "taken", "whole"), WEEKS.values(), ids=list(WEEKS))
def test_dates_are_believed_as_far_as_they_agree_with_those_of_the_other_commits(
    given: Sequence[DatedCommit], taken: str, whole: bool
) -> None:
    result, begins = weekly(given, now=BEGAN + timedelta(days=100))
    assert (" ".join(one.sha for one in result), begins) == (taken, whole)


@pytest.mark.parametrize("commits", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_long_past_takes_seconds(deployment: Deployment, commits: int) -> None:
    remote = deployment.remote("long")
    remote.serve_partially()
    remote.import_files(commits, lambda number: (f"F{number % 7}.lean", lean(f"t{number}")))
    deployment.write(repos=[remote.path], extra=HISTORY)
    began = asyncio.run(asyncio.sleep(0, datetime.now(UTC)))
    with_parts(deployment, look)
    assert datetime.now(UTC) - began < timedelta(seconds=60)
    (event,) = deployment.events("past_listed")
    assert event.data["commits"]
