"""Polls through the REST API, against the shipped server that behaves like GitHub's."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from daemon.github import GitHub
from daemon.poll import Polled
from daemon.testing.github import GitHubServer
from daemon.testing.house import House
from daemon.testing.remote import Remote
from store import queries

TOKEN = "ghp_thisIsASecretOfTheTest0123456789"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
def github() -> Iterator[GitHubServer]:
    with GitHubServer(token=TOKEN) as server:
        yield server


@pytest.fixture
def remote(house: House, github: GitHubServer) -> Remote:
    remote = house.remote("demo")
    remote.commit("first")
    github.add("remotes/demo", remote.path)
    house.write(repos=[remote.path], extra=f'[github]\napi_url = "{github.url}"\n')
    return remote


def poll(house: House, github: GitHubServer, *, token: str | None = TOKEN, times: int = 1) -> list[Polled]:
    async def go() -> list[Polled]:
        client = GitHub(api_url=github.url, token=token, timeout_s=5)
        async with house.opened(github=client) as parts:
            return [await parts.poller.poll(parts.repo) for _ in range(times)]

    return asyncio.run(go())


def statuses(github: GitHubServer) -> list[int]:
    return [request.status for request in github.requests]


def test_an_unchanged_repository_costs_two_requests_that_answer_304(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    first, second = poll(house, github, times=2)
    assert (first.outcome, first.requests) == ("changed", 2)
    assert (second.outcome, second.requests) == ("unchanged", 2)
    assert statuses(github) == [200, 200, 304, 304]


def test_the_etags_survive_a_restart_of_the_daemon(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    poll(house, github)
    poll(house, github)
    assert statuses(github)[2:] == [304, 304]


def test_a_new_commit_is_seen_through_the_api_and_fetched_by_git(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    poll(house, github)
    tip = remote.commit("second")
    (polled,) = poll(house, github)
    assert polled.commits == 1
    assert house.events("commit_observed")[-1].data["sha"] == tip


def test_a_lost_database_row_makes_the_etags_worthless(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    """An ETag of a history that this log does not have would hide commits for ever."""
    poll(house, github)
    settings = house.write(repos=[remote.path], entry='branches = ["*"]')
    remote.git("branch", "other")
    (polled,) = poll(house, github)
    assert polled.outcome == "changed"
    assert [event.data["branch"] for event in house.events("branch_created")] == ["main", "other"]
    assert settings.repos[0].branches == ("*",)


def test_a_rename_is_recorded_once_and_polling_goes_on(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    poll(house, github)
    github.rename("remotes/demo", "elsewhere/better-name")
    remote.commit("second")
    poll(house, github, times=2)
    (renamed,) = house.events("repository_renamed")
    assert "elsewhere/better-name" in renamed.data["new_url"]
    assert renamed.data["forge_id"] == 1000
    assert [event.data["subject"] for event in house.events("commit_observed")] == ["first", "second"]


def test_a_used_up_rate_limit_is_waited_out_and_stops_all_requests(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    github.remaining = 0
    github.reset_at = time.time() + 600
    first, second = poll(house, github, times=2)
    assert first.outcome == second.outcome == "rate_limited"
    assert statuses(github) == [403]
    assert 500 < (first.next_due_at - datetime.now(UTC)).total_seconds() < 620
    assert house.events("repository_failed")[0].data["problem"] == "rate_limited"


def test_retry_after_is_honoured(house: House, github: GitHubServer, remote: Remote) -> None:
    github.retry_after_s = 90
    (polled,) = poll(house, github)
    assert polled.outcome == "rate_limited"
    assert 60 < (polled.next_due_at - datetime.now(UTC)).total_seconds() < 95


def test_a_304_costs_no_quota(house: House, github: GitHubServer, remote: Remote) -> None:
    github.remaining = 5
    poll(house, github, times=4)
    assert github.remaining == 3


@pytest.mark.parametrize(
    ("status", "problem"), [(404, "gone"), (451, "gone"), (502, "unreachable"), (409, "empty")]
)
def test_each_status_has_its_problem(
    house: House, github: GitHubServer, remote: Remote, status: int, problem: str
) -> None:
    github.add("remotes/demo", remote.path).status = status
    (polled,) = poll(house, github)
    assert polled.outcome == problem


def test_a_private_repository_without_a_token_looks_gone(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    github.add("remotes/demo", remote.path, private=True)
    assert poll(house, github, token=None)[0].outcome == "gone"
    assert "private" in house.events("repository_failed")[0].data["remedy"]
    assert poll(house, github)[0].outcome == "changed"


def test_a_bad_token_is_an_authentication_failure(house: House, github: GitHubServer, remote: Remote) -> None:
    assert poll(house, github, token="ghp_wrong")[0].outcome == "auth_failed"


def test_branches_on_several_pages_are_all_seen(house: House, github: GitHubServer, remote: Remote) -> None:
    github.page_size = 2
    for number in range(5):
        remote.git("branch", f"b{number}")
    house.write(repos=[remote.path], entry='branches = ["*"]')
    poll(house, github)
    assert len(house.events("branch_created")) == 6
    remote.git("branch", "zz-last-page")
    poll(house, github)
    assert house.events("branch_created")[-1].data["branch"] == "zz-last-page"


def test_a_default_branch_that_changes_is_followed_even_to_a_branch_that_is_known(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    repository = github.add("remotes/demo", remote.path)
    poll(house, github)
    remote.git("branch", "trunk")
    repository.default_branch = "trunk"
    poll(house, github)
    repository.default_branch = "main"
    poll(house, github)
    poll(house, github)  # a restart, and every ETag still holds
    remote.git("checkout", "--quiet", "trunk")
    remote.commit("on trunk")
    assert poll(house, github)[0].commits == 0
    remote.git("checkout", "--quiet", "main")
    remote.commit("on main")
    assert poll(house, github)[0].commits == 1


def test_hostile_names_from_the_api_reach_no_git_command_and_no_event(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    sha = remote.git("rev-parse", "HEAD")
    repository = github.add("remotes/demo", remote.path)
    for name in ("../../x", "a..b", "x\ny", "-u --upload-pack=touch x", "ok\0", "a~1", ".hidden", "x.lock"):
        repository.extra_refs[f"refs/heads/{name}"] = sha
    house.write(repos=[remote.path], entry='branches = ["*"]')
    (polled,) = poll(house, github)
    assert polled.outcome == "changed"
    assert [event.data["branch"] for event in house.events("branch_created")] == ["main"]


def test_a_sha_that_is_none_is_a_problem_and_no_crash(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    github.add("remotes/demo", remote.path).extra_refs["refs/heads/evil"] = "--upload-pack=touch"
    house.write(repos=[remote.path], entry='branches = ["*"]')
    assert poll(house, github)[0].outcome == "changed"
    assert all(event.data["branch"] == "main" for event in house.events("branch_created"))


def test_a_redirect_to_another_host_does_not_get_the_token(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    with GitHubServer() as other:
        other.add("remotes/demo", remote.path)
        github.remove("remotes/demo")
        github.redirect = f"{other.url}/repos/remotes/demo"
        (polled,) = poll(house, github)
        assert polled.outcome == "invalid"
        assert other.requests == []


def test_the_token_is_in_no_event_and_no_view(house: House, github: GitHubServer, remote: Remote) -> None:
    poll(house, github)
    github.remove("remotes/demo")
    poll(house, github)
    assert any(request.authorization == f"Bearer {TOKEN}" for request in github.requests)
    for file in (house.folder / "state").rglob("*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes(), file
    assert TOKEN not in json.dumps([event.data for event in house.events()])


def test_the_problem_is_in_the_database_with_its_remedy(
    house: House, github: GitHubServer, remote: Remote
) -> None:
    github.remove("remotes/demo")
    poll(house, github)
    view = queries.connect(house.folder / "state" / "database.db")
    (row,) = queries.repositories(view)
    view.close()
    assert row.state == "gone"
    assert row.remedy
