"""When each repository's turn is: intervals that adapt, restarts, hints, back-off, clocks that are set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.polling import poller, schedule
from daemon.polling.github import GitHub
from daemon.polling.poller import PollResult
from daemon.polling.schedule import PollScheduler
from daemon.settings import Repo, load
from daemon.state.context import Context
from store.view import queries
from tests.support.daemon.deployment import Deployment, Parts
from tests.support.daemon.github import Failure, GitHubServer
from tests.support.daemon.remote import Remote

TOKEN = "ghp_thisIsASecretOfTheTest0123456789"


class Clocks:
    """The wall clock and the one that is never set; `pass_` lets both go on."""

    def __init__(self) -> None:
        self.wall = datetime.now(UTC)
        self.elapsed = 5000.0

    def pass_(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.elapsed += seconds


class Turns(Context):
    """The polls of a daemon that was just started, as far as whose turn it is."""

    def __init__(self, parts: Parts, clocks: Clocks) -> None:
        super().__init__(parts.settings)
        self._begun: list[asyncio.Task[None]] = []
        self._asked: list[str] = []
        parts.poller._now = lambda: clocks.wall
        self.polls = PollScheduler(
            parts.poller,
            self,
            elapsed=lambda: clocks.elapsed,
            now=lambda: clocks.wall,
        )

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        self._asked.append(name.rpartition("/")[2])
        self._begun.append(asyncio.create_task(work))

    async def tick(self) -> list[str]:
        """Tick once; return whom that asked, when they have answered."""
        self._asked.clear()
        await self.polls.tick()
        await asyncio.gather(*self._begun)
        assert self.problems.texts() == []
        return sorted(self._asked)


@asynccontextmanager
async def started(
    deployment: Deployment, clocks: Clocks, *, github: GitHub | None = None
) -> AsyncIterator[Turns]:
    """Start, as after a restart: everything that is known is in the view."""
    async with deployment.opened(github=github) as parts:
        turns = Turns(parts, clocks)
        turns.polls.remember(await parts.store.ask(queries.repositories))
        yield turns


@pytest.fixture(autouse=True)
def _no_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "_SPREAD", 0.0)


@pytest.fixture
def remotes(deployment: Deployment) -> list[Remote]:
    result = [deployment.remote(name) for name in ("a", "b")]
    for remote in result:
        remote.commit("first")
    return result


def write(deployment: Deployment, remotes: Sequence[Remote], **other: str) -> None:
    deployment.write(repos=[remote.path for remote in remotes], **{"every": "60s", **other})


def test_a_restart_asks_no_one_before_the_time_and_everyone_at_it(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    write(deployment, remotes)
    clocks = Clocks()

    async def daemon(*, after_s: float) -> list[str]:
        clocks.pass_(after_s)
        clocks.elapsed += 1e6  # another boot
        async with started(deployment, clocks) as turns:
            return await turns.tick() + await turns.tick()

    assert asyncio.run(daemon(after_s=0)) == ["a", "b"]
    assert asyncio.run(daemon(after_s=30)) == []
    assert asyncio.run(daemon(after_s=31)) == ["a", "b"]


def test_a_restart_makes_no_request_and_the_next_poll_costs_no_quota(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    with GitHubServer(token=TOKEN) as server:
        for remote in remotes:
            server.add(f"remotes/{remote.path.name}", remote.path)
        server.remaining = 100
        write(deployment, remotes, extra=f'[github]\napi_url = "{server.url}"\n')
        clocks = Clocks()

        async def daemon(*, after_s: float) -> None:
            clocks.pass_(after_s)
            client = GitHub(api_url=server.url, token=TOKEN, timeout_s=5, local=True)
            async with started(deployment, clocks, github=client) as turns:
                await turns.tick()

        asyncio.run(daemon(after_s=0))
        spent, asked = 100 - server.remaining, len(server.requests)
        assert (spent, asked) == (4, 4)
        asyncio.run(daemon(after_s=10))
        assert len(server.requests) == asked
        asyncio.run(daemon(after_s=61))
        assert [request.status for request in server.requests[asked:]] == [304, 304]
        assert server.remaining == 96


async def test_the_quiet_are_asked_less_often_and_who_changes_often_again(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    write(deployment, remotes, slowest="1h")
    clocks = Clocks()
    day = 86400.0
    async with started(deployment, clocks) as turns:
        result = [await turns.tick()]
        clocks.pass_(day)
        result.append(await turns.tick())  # both have been quiet for a day: an hour
        clocks.pass_(1800)
        result.append(await turns.tick())
        remotes[1].commit("second")
        clocks.pass_(1900)
        result.append(await turns.tick())
        clocks.pass_(70)
        result.append(await turns.tick())
    assert result == [["a", "b"], ["a", "b"], [], ["a", "b"], ["b"]]


def test_a_changed_entry_is_asked_at_once_and_the_others_keep_their_time(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    write(deployment, remotes)
    clocks = Clocks()

    async def daemon() -> list[str]:
        clocks.pass_(1)
        async with started(deployment, clocks) as turns:
            return await turns.tick()

    asyncio.run(daemon())
    text = deployment.config.read_text(encoding="utf-8")
    deployment.config.write_text(text.replace('/a"\n', '/a"\nbranches = ["main", "x*"]\n'), encoding="utf-8")
    assert asyncio.run(daemon()) == ["a"]
    assert asyncio.run(daemon()) == []


async def test_a_wall_clock_that_is_set_an_hour_back_or_on_changes_nobodys_turn(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    write(deployment, remotes)
    clocks = Clocks()
    async with started(deployment, clocks) as turns:
        result = [await turns.tick()]
        for hours in (-1, 2):
            clocks.wall += timedelta(hours=hours)
            clocks.elapsed += 30
            result.append(await turns.tick())
            clocks.elapsed += 31
            result.append(await turns.tick())
    assert result == [["a", "b"], [], ["a", "b"], [], ["a", "b"]]


async def test_a_clock_that_was_set_back_while_no_one_ran_delays_by_one_interval_at_the_most(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    write(deployment, remotes)
    clocks = Clocks()
    async with started(deployment, clocks) as turns:
        await turns.tick()
    # The view has times of today, and the clock now says last year.
    async with deployment.opened() as parts:
        row = (await parts.store.ask(queries.repositories))[0]
        for one in ("a", "b"):
            await parts.store.set_poll_state(
                f"local/remotes/{one}",
                checked_at=(clocks.wall + timedelta(days=365)).isoformat(),
                next_due_at=(clocks.wall + timedelta(days=365, seconds=60)).isoformat(),
                outcome="unchanged",
                etag=row.etag,
            )
    async with started(deployment, clocks) as turns:
        clocks.elapsed += 61
        result = await turns.tick()
    assert result == ["a", "b"]


async def test_a_hint_brings_a_poll_forward_once_in_ten_seconds(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    write(deployment, remotes)
    clocks = Clocks()
    async with started(deployment, clocks) as turns:
        result = [await turns.tick()]
        for seconds in (5.0, 6.0, 5.0, 6.0):
            assert turns.polls.hint({"local/remotes/a", "local/remotes/nobody"}) == ["local/remotes/a"]
            clocks.pass_(seconds)
            result.append(await turns.tick())
    assert result == [["a", "b"], [], ["a"], [], ["a"]]


def test_a_hint_is_found_by_name_whatever_its_case_and_by_number_after_a_rename(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    with GitHubServer(token=TOKEN) as server:
        for remote in remotes:
            server.add(f"remotes/{remote.path.name}", remote.path)
        write(deployment, remotes, extra=f'[github]\napi_url = "{server.url}"\n')
        server.rename("remotes/b", "elsewhere/better")

        async def go() -> list[Sequence[str]]:
            client = GitHub(api_url=server.url, token=TOKEN, timeout_s=5, local=True)
            async with started(deployment, Clocks(), github=client) as turns:
                await turns.tick()
                named = turns.polls.hint_named
                return [
                    await named("Remotes/A", 7),
                    await named("elsewhere/better", 1001),
                    await named("who/else", None),
                ]

        assert asyncio.run(go()) == [["local/remotes/a"], ["local/remotes/b"], []]


def test_a_hint_does_not_break_a_promise_of_patience(deployment: Deployment, remotes: list[Remote]) -> None:
    with GitHubServer(token=TOKEN) as server:
        server.retry_after_s = 600
        write(deployment, remotes[:1], extra=f'[github]\napi_url = "{server.url}"\n')
        clocks = Clocks()

        async def daemon(*, after_s: float) -> list[str]:
            clocks.pass_(after_s)
            client = GitHub(api_url=server.url, token=TOKEN, timeout_s=5, local=True)
            async with started(deployment, clocks, github=client) as turns:
                turns.polls.hint({"local/remotes/a"})
                return await turns.tick()

        assert asyncio.run(daemon(after_s=0)) == ["a"]
        assert asyncio.run(daemon(after_s=300)) == []
        assert asyncio.run(daemon(after_s=310)) == ["a"]


def test_a_new_token_lets_those_in_at_once_that_the_old_one_did_not(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    with GitHubServer(token=TOKEN) as server:
        for remote in remotes:
            server.add(f"remotes/{remote.path.name}", remote.path)
        write(deployment, remotes, extra=f'[github]\napi_url = "{server.url}"\n')
        clocks = Clocks()

        async def go() -> list[list[str]]:
            token = ["ghp_old"]
            client = GitHub(
                api_url=server.url, token=token[0], timeout_s=5, local=True, renew=lambda: token[0]
            )
            async with started(deployment, clocks, github=client) as turns:
                result = [await turns.tick()]
                clocks.pass_(1)
                result.append(await turns.tick())
                token[0] = TOKEN
                turns.polls.let_in_again()
                result.append(await turns.tick())
                clocks.pass_(1)
                result.append(await turns.tick())
                return result

        assert asyncio.run(go()) == [["a", "b"], [], ["a", "b"], []]
    assert len(deployment.events("repository_recovered")) == 2


async def test_after_an_outage_the_first_that_is_reached_brings_the_others_of_its_host_along(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    write(deployment, remotes)
    clocks = Clocks()
    with GitHubServer(token=TOKEN) as server:
        for remote in remotes:
            server.add(f"remotes/{remote.path.name}", remote.path)
        write(deployment, remotes, extra=f'[github]\napi_url = "{server.url}"\n')
        client = GitHub(api_url=server.url, token=TOKEN, timeout_s=5, local=True)
        async with started(deployment, clocks, github=client) as turns:
            server.failures = [Failure("GET", "/heads/", 503) for _ in range(8)]
            for _ in range(4):
                clocks.pass_(1300)
                await turns.tick()
            clocks.pass_(100)
            result = [await turns.tick()]
            turns.polls.hint({"local/remotes/a"})
            answer = [*result, await turns.tick(), await turns.tick(), await turns.tick()]
    assert answer == [[], ["a"], ["b"], []]


def test_there_are_ten_ticks_in_the_shortest_interval_within_bounds(
    deployment: Deployment, remotes: list[Remote]
) -> None:
    async def tick_s() -> float:
        async with started(deployment, Clocks()) as turns:
            return turns.polls.tick_s()

    result = []
    for every in ("10s", "1s", "1h"):
        write(deployment, remotes, every=every)
        result.append(asyncio.run(tick_s()))
    assert result == [1.0, 0.25, 5.0]


class _Slow:
    """In a poller's place: polls end when a test lets them, in the order of their beginning."""

    def __init__(self) -> None:
        self.github, self.disk_problem, self.slowest_s = None, "", 3600.0
        self.asked: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    async def poll(self, repo: Repo) -> PollResult:
        self.asked.append(repo.key)
        await self.ends.setdefault(repo.key, asyncio.Event()).wait()
        return PollResult(repo.key, "unchanged", 0, 0, 0.0, repo.every_s)


@asynccontextmanager
async def watched_by(tmp_path: Path, number: int) -> AsyncIterator[tuple[Turns, _Slow, Clocks]]:
    """Watch so many repositories of which nothing is known, with a poller that does as it is told."""
    entries = "".join(f'[[repos]]\nurl = "https://example.org/o/r{at}"\n' for at in range(number))
    (tmp_path / "config.toml").write_text(f'[poll]\nevery = "60s"\ntimeout = "30s"\n{entries}')
    clocks, poller = Clocks(), _Slow()
    parts = SimpleNamespace(settings=load(tmp_path / "config.toml"), poller=poller)
    turns = Turns(parts, clocks)  # type: ignore[arg-type]  # as much of the parts as it takes
    yield turns, poller, clocks
    for task in turns._begun:
        task.cancel()


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_poll_that_is_overdue_is_a_problem_until_it_ends(tmp_path: Path) -> None:
    lines: list[list[str]] = []
    async with watched_by(tmp_path, 2) as (turns, poller, clocks):
        for event in (
            first := asyncio.Event(),
            poller.ends.setdefault("example.org/o/r1", asyncio.Event()),
        ):
            event.set()
        poller.ends["example.org/o/r0"] = first
        # The second poll of r0 does not end.
        for seconds in (0, 61, 89, 2):
            clocks.pass_(seconds)
            await turns.polls.tick()
            lines.append(turns.problems.texts())
            await _settle()
            first.clear()
        first.set()
        await _settle()
        await turns.polls.tick()
        *before, (problem,), after = [*lines, turns.problems.texts()]
    assert (before, after) == ([[], [], []], [])
    assert problem.startswith(
        "polls of 1 of 2 repositories are overdue: example.org/o/r0 (for 1m31s); look at"
    )


async def test_of_two_thousand_first_looks_the_first_ones_end_first_and_none_is_called_late(
    tmp_path: Path,
) -> None:
    async with watched_by(tmp_path, 2000) as (turns, poller, clocks):
        await turns.polls.tick()
        await _settle()
        assert len(poller.asked) == 8
        for _ in range(50):
            for key in poller.asked:
                poller.ends[key].set()
            clocks.pass_(20)
            await turns.polls.tick()
            await _settle()
        assert turns.problems.texts() == []
        assert 300 < len(poller.asked) < 2000


async def test_polls_that_are_slow_keep_no_others_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "_PATIENCE_S", 0.01)
    async with watched_by(tmp_path, 40) as (turns, poller, _):
        await turns.polls.tick()
        async with asyncio.timeout(60):
            while len(poller.asked) < 40:  # noqa: ASYNC110 - what is waited for is a timer of the product's own
                await asyncio.sleep(0.01)
