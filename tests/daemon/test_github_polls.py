"""Polls through the REST API, against the shipped server that behaves like GitHub's."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from daemon.polling import github as github_api
from daemon.polling.errors import RemoteError
from daemon.polling.github import Forge, GitHub
from daemon.polling.poller import PollResult
from store.events.repositories import RepositoryIdentified
from store.log.envelope import NewEvent
from store.view import queries
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.github import GitHubServer
from tests.support.daemon.remote import Remote
from tests.support.hostile_server import CASES, HostileServer

TOKEN = "ghp_thisIsASecretOfTheTest0123456789"


@pytest.fixture
def github() -> Iterator[GitHubServer]:
    with GitHubServer(token=TOKEN) as server:
        yield server


@dataclass
class Watched:
    """A repository on the forge, and a daemon's folder that watches it."""

    deployment: Deployment
    github: GitHubServer
    remote: Remote

    def poll(self, *, token: str | None = TOKEN, times: int = 1, by_hand: bool = False) -> list[PollResult]:
        """Poll as a daemon does that has just started; `by_hand` as `everlean poll` has it do."""

        async def go() -> list[PollResult]:
            client = GitHub(api_url=self.github.url, token=token, timeout_s=5, local=True)
            async with self.deployment.opened(github=client) as parts:
                if by_hand:
                    parts.poller.forget(parts.repo.key)
                return [await parts.poller.poll(parts.repo) for _ in range(times)]

        return asyncio.run(go())

    def statuses(self) -> list[int]:
        return [request.status for request in self.github.requests]

    def state(self) -> tuple[str, int | None, int | None]:
        """Return what the view says of the repository: its state, who has its name, and its own number."""
        view = queries.connect(self.deployment.folder / "state" / "database.db")
        (row,) = queries.repositories(view)
        view.close()
        return row.state, row.replaced_by, row.forge_id


@pytest.fixture
def forge(deployment: Deployment, github: GitHubServer) -> Watched:
    remote = deployment.remote("demo")
    remote.commit("first")
    github.add("remotes/demo", remote.path)
    extra = f'[github]\napi_url = "{github.url}"\nlocal_repositories = true\n'
    deployment.write(repos=[remote.path], extra=extra)
    return Watched(deployment, github, remote)


def test_an_unchanged_repository_costs_one_request_that_answers_304(forge: Watched) -> None:
    first, second = forge.poll(times=2)
    assert (first.outcome, first.requests) == ("changed", 2)
    assert (second.outcome, second.requests) == ("unchanged", 1)
    assert forge.statuses() == [200, 200, 304]


def test_the_repository_itself_is_asked_once_an_hour_and_when_a_person_asks(forge: Watched) -> None:
    forge.poll(times=2)
    forge.poll(by_hand=True)
    assert forge.statuses()[2:] == [304, 304, 304]

    async def an_hour_later() -> int:
        client = GitHub(api_url=forge.github.url, token=TOKEN, timeout_s=5, local=True)
        async with forge.deployment.opened(github=client) as parts:
            parts.poller._now = lambda: datetime.now(UTC) + timedelta(hours=1, seconds=1)
            return (await parts.poller.poll(parts.repo)).requests

    assert asyncio.run(an_hour_later()) == 2


def test_a_lost_database_row_makes_the_etags_worthless(forge: Watched) -> None:
    """An ETag of a history that this log does not have would hide commits for ever."""
    forge.poll()
    settings = forge.deployment.write(repos=[forge.remote.path], entry='branches = ["*"]')
    forge.remote.git("branch", "other")
    (polled,) = forge.poll()
    assert polled.outcome == "changed"
    assert [event.data["branch"] for event in forge.deployment.events("branch_created")] == ["main", "other"]
    assert settings.repos[0].branches == ("*",)


def test_a_rename_is_recorded_once_and_polling_goes_on(forge: Watched) -> None:
    forge.poll()
    forge.github.rename("remotes/demo", "elsewhere/better-name")
    forge.remote.commit("second")
    forge.poll(times=2)
    (renamed,) = forge.deployment.events("repository_renamed")
    assert "elsewhere/better-name" in renamed.data["new_url"]
    assert renamed.data["forge_id"] == 1000
    assert [event.data["subject"] for event in forge.deployment.events("commit_observed")] == [
        "first",
        "second",
    ]


def test_a_renamed_repository_costs_one_request_again_until_someone_asks_by_its_name(forge: Watched) -> None:
    forge.poll()
    forge.github.rename("remotes/demo", "elsewhere/better-name")
    forge.poll()
    told = len(forge.github.requests)
    for _ in range(3):  # a daemon that starts anew knows it too
        (polled,) = forge.poll()
        assert (polled.outcome, polled.requests) == ("unchanged", 1)
    assert [(one.path.split("/git")[0], one.status) for one in forge.github.requests[told:]] == [
        ("/repositories/1000", 304)
    ] * 3
    tip = forge.remote.commit("second")
    forge.poll()
    assert forge.deployment.events("commit_observed")[-1].data["sha"] == tip
    # Its old name is another's, or its own again: who asks by the name sees it, once an hour and for `everlean poll`.
    forge.github.rename("elsewhere/better-name", "remotes/demo")
    (by_name,) = forge.poll(by_hand=True)
    asked = len(forge.github.requests)
    assert (by_name.outcome, by_name.requests) == ("unchanged", 2)
    assert forge.poll()[0].requests == 1
    assert forge.github.requests[asked].path.startswith("/repos/remotes/demo/git")
    assert len(forge.deployment.events("repository_renamed")) == 1


def test_a_name_that_was_given_to_another_repository_is_not_followed_when_the_one_that_moved_is_gone(
    forge: Watched,
) -> None:
    forge.poll()
    forge.github.rename("remotes/demo", "elsewhere/better-name")
    forge.poll()
    assert forge.poll()[0].requests == 1
    forge.remote.commit("second")
    forge.github.add("remotes/demo", forge.remote.path)  # by another number
    forge.github.remove("elsewhere/better-name")
    told = len(forge.github.requests)
    (result,) = forge.poll()
    assert (result.outcome, result.commits) == ("replaced", 0)
    requests = [(one.path.split("/git")[0], one.status) for one in forge.github.requests[told:]]
    assert requests == [
        ("/repositories/1000", 404),
        ("/repos/remotes/demo", 200),
        ("/repos/remotes/demo", 200),
    ]
    assert not forge.deployment.events("repository_failed")


def test_git_goes_to_no_other_repository_under_the_old_name_of_one_that_moved(forge: Watched) -> None:
    """The one that moved is asked by its number, while git goes by the address of the entry."""
    forge.poll()
    forge.github.rename("remotes/demo", "elsewhere/better-name")
    forge.poll()
    forge.github.add("remotes/demo", forge.remote.path)  # by another number
    assert forge.poll()[0].outcome == "unchanged"
    forge.remote.commit("theirs")
    (result,) = forge.poll()
    assert (result.outcome, result.commits) == ("replaced", 0)


def test_an_entry_with_another_address_of_the_same_repository_is_recorded(forge: Watched) -> None:
    forge.poll()
    url = f"file://{forge.remote.path}"
    text = forge.deployment.config.read_text(encoding="utf-8")
    forge.deployment.config.write_text(text.replace(f'"{forge.remote.path}"', f'"{url}"'), encoding="utf-8")
    forge.poll()
    assert [one.data["url"] for one in forge.deployment.events("repository_watched")] == [
        str(forge.remote.path),
        url,
    ]


def test_another_repository_under_the_same_name_stops_it_until_a_person_says_which_is_meant(
    forge: Watched,
) -> None:
    """Somebody else takes a name that was given back: GitHub lets them."""
    forge.poll()
    (identified,) = forge.deployment.events("repository_identified")
    assert (identified.data["forge_id"], identified.data["by"]) == (1000, "")
    events = len(forge.deployment.events())
    forge.github.remove("remotes/demo")
    forge.github.add("remotes/demo", forge.remote.path, forge_id=777)
    forge.remote.git("commit", "--amend", "--allow-empty", "-m", "theirs")
    result = forge.poll(times=2)
    assert [(one.outcome, one.commits) for one in result] == [("replaced", 0)] * 2
    (replaced,) = forge.deployment.events()[events:]
    assert (replaced.type, replaced.data["before"], replaced.data["forge_id"]) == (
        "repository_replaced",
        1000,
        777,
    )
    assert "everlean repos accept local/remotes/demo" in replaced.data["remedy"]
    assert forge.state() == ("replaced", 777, 1000)

    async def accept() -> tuple[str, str]:
        client = GitHub(api_url=forge.github.url, token=TOKEN, timeout_s=5, local=True)
        async with forge.deployment.opened(github=client) as parts:
            body = RepositoryIdentified(repository=parts.repo.key, forge_id=777, private=False, by="ann")
            await parts.store.append([NewEvent(f"repository:{parts.repo.key}", body)])
            first = await parts.poller.poll(parts.repo)
            return first.outcome, (await parts.poller.poll(parts.repo)).outcome

    assert asyncio.run(accept()) == ("changed", "unchanged")
    types = [one.type for one in forge.deployment.events()[events + 1 :]]
    assert types[:2] == ["repository_identified", "repository_recovered"]
    assert "branch_rewritten" in types


def test_the_first_one_that_comes_back_under_its_name_goes_on_by_itself(forge: Watched) -> None:
    forge.poll()
    forge.github.remove("remotes/demo")
    forge.github.add("remotes/demo", forge.remote.path, forge_id=777)
    forge.remote.commit("second")
    assert forge.poll()[0].outcome == "replaced"
    forge.github.remove("remotes/demo")
    assert forge.poll()[0].outcome == "gone"
    assert forge.state() == ("replaced", 777, 1000)
    forge.github.add("remotes/demo", forge.remote.path, forge_id=1000)
    (back,) = forge.poll()
    assert (back.outcome, back.commits) == ("changed", 1)
    assert forge.state() == ("ok", None, 1000)


def test_a_used_up_rate_limit_is_waited_out_and_stops_all_requests(forge: Watched) -> None:
    forge.github.remaining = 0
    forge.github.reset_at = time.time() + 600
    first, second = forge.poll(times=2)
    assert first.outcome == second.outcome == "rate_limited"
    assert forge.statuses() == [403]
    assert 500 < first.wait_s < 620
    assert forge.deployment.events("repository_failed")[0].data["problem"] == "rate_limited"


def test_a_secondary_limit_without_a_word_of_how_long_is_no_matter_of_access(forge: Watched) -> None:
    forge.github.secondary = True
    first, second = forge.poll(times=2)
    assert first.outcome == second.outcome == "rate_limited"
    assert 50 < first.wait_s <= 60
    assert forge.statuses() == [403]
    forge.github.secondary = False
    assert forge.poll()[0].outcome == "changed"
    assert [event.type for event in forge.deployment.events()][-5:-3] == [
        "repository_failed",
        "repository_recovered",
    ]


@pytest.mark.parametrize(
    ("status", "problem", "remedy"),
    [
        (403, "auth_failed", "lacks read access"),
        (404, "not_found", "a private repository looks the same"),
        (409, "empty", "push a first commit"),
        (410, "gone", "check the url"),
        (451, "gone", "for legal reasons"),
        (502, "unreachable", "the daemon tries again"),
    ],
)
def test_each_status_has_its_problem_and_its_remedy(
    forge: Watched, status: int, problem: str, remedy: str
) -> None:
    forge.github.add("remotes/demo", forge.remote.path).status = status
    (polled,) = forge.poll()
    assert polled.outcome == problem
    (failed,) = forge.deployment.events("repository_failed")
    assert failed.data["problem"] == problem
    assert remedy in failed.data["remedy"]


def test_whether_a_repository_is_private_is_recorded_and_again_where_that_changes(forge: Watched) -> None:
    served = forge.github.add("remotes/demo", forge.remote.path, private=True, forge_id=7)
    forge.poll(times=2)
    served.private = False
    forge.poll(times=2, by_hand=True)
    told = forge.deployment.events("repository_identified")
    assert [(one.data["forge_id"], one.data["private"]) for one in told] == [(7, True), (7, False)]


def test_a_private_repository_without_a_token_is_not_found(forge: Watched) -> None:
    forge.github.add("remotes/demo", forge.remote.path, private=True)
    assert forge.poll(token=None)[0].outcome == "not_found"
    assert "private" in forge.deployment.events("repository_failed")[0].data["remedy"]
    assert forge.poll()[0].outcome == "changed"


async def test_a_refused_token_is_not_shown_again_before_there_is_another(forge: Watched) -> None:
    tokens = ["ghp_revoked"]
    refused: list[bool] = []
    client = GitHub(
        api_url=forge.github.url, token=tokens[-1], timeout_s=5, local=True, renew=lambda: tokens[-1]
    )
    async with forge.deployment.opened(github=client) as parts:
        polled = [await parts.poller.poll(parts.repo) for _ in range(3)]
        refused.append(client.token_refused)
        tokens.append(TOKEN)
        polled.append(await parts.poller.poll(parts.repo))
        refused.append(client.token_refused)
    assert refused == [True, False]
    assert [one.outcome for one in polled] == ["auth_failed", "auth_failed", "auth_failed", "changed"]
    assert forge.statuses() == [401, 200, 200]
    assert 200 < polled[1].wait_s <= 300
    assert "make a new one" in forge.deployment.events("repository_failed")[0].data["remedy"]
    assert (
        len(forge.deployment.events("repository_failed"))
        == len(forge.deployment.events("repository_recovered"))
        == 1
    )


async def test_a_token_that_was_changed_meanwhile_is_taken_up_by_the_request_that_needs_it(
    forge: Watched,
) -> None:
    client = GitHub(api_url=forge.github.url, token="ghp_old", timeout_s=5, local=True, renew=lambda: TOKEN)
    async with forge.deployment.opened(github=client) as parts:
        outcome = (await parts.poller.poll(parts.repo)).outcome
    assert outcome == "changed"
    assert forge.statuses() == [401, 200, 200]


async def test_a_new_token_in_the_file_lets_everything_in_again_without_a_reload(forge: Watched) -> None:
    file = forge.deployment.folder / "token"
    file.write_text("ghp_revoked", encoding="ascii")
    file.chmod(0o600)
    settings = forge.deployment.write(
        repos=[forge.remote.path],
        extra=f'[github]\napi_url = "{forge.github.url}"\nlocal_repositories = true\ntoken_file = "{file}"\n',
    )
    renewed: list[str] = []
    problems: list[str] = []
    tokens = Forge(renewed=lambda: renewed.append("told"))
    tokens.connect(settings)
    async with forge.deployment.opened(github=tokens.github) as parts:
        outcomes = [(await parts.poller.poll(parts.repo)).outcome]
        problems.append(tokens.problem)
        assert tokens.connect(settings) is None  # a reload that changes nothing keeps the client
        file.write_text(TOKEN, encoding="ascii")
        outcomes.append((await parts.poller.poll(parts.repo)).outcome)
        problems.append(tokens.problem)
        assert tokens.secrets() == (TOKEN,)
    assert outcomes == ["auth_failed", "changed"]
    assert "make a new one" in problems[0]
    assert problems[1] == ""
    assert renewed == ["told"]


def test_an_archived_repository_is_marked_once_and_asked_seldom_until_it_is_opened(forge: Watched) -> None:
    forge.deployment.write(
        repos=[forge.remote.path],
        every="60s",
        extra=f'[github]\napi_url = "{forge.github.url}"\nlocal_repositories = true\n',
    )
    repository = forge.github.add("remotes/demo", forge.remote.path)
    forge.poll()
    repository.archived = True
    assert [one.wait_s >= 600 for one in forge.poll(by_hand=True, times=2)] == [True, True]
    assert [event.data["archived"] for event in forge.deployment.events("repository_archived")] == [True]
    repository.archived = False
    assert forge.poll(by_hand=True)[0].wait_s < 200
    assert [event.data["archived"] for event in forge.deployment.events("repository_archived")] == [
        True,
        False,
    ]


def test_no_answer_of_one_repository_keeps_the_others_waiting_or_speaks_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that never end go on till the deadline; the good ones, asked last, are answered long before."""
    monkeypatch.setattr(github_api, "_MOST_PAGES", 3)
    good = ("good", "good2", "good3")

    async def go() -> tuple[dict[str, str], list[str]]:
        with HostileServer() as server:
            client = GitHub(api_url=server.url, token=TOKEN, timeout_s=20.0, local=True)
            result: dict[str, str] = {}

            async def look(name: str) -> None:
                try:
                    answer = await client.look(f"o/{name}")
                    result[name] = ", ".join(answer.heads or ())
                except RemoteError as error:
                    # It speaks of the one that was asked about.
                    result[name] = error.problem if f"o/{name}" in str(error) else str(error)

            looks = {name: asyncio.create_task(look(name)) for name in (*CASES, *good)}
            await asyncio.wait([looks[name] for name in good])
            going_on = [name for name, one in looks.items() if not one.done()]
            for name in going_on:
                looks[name].cancel()
            await asyncio.gather(*looks.values(), return_exceptions=True)
            await client.close()
            return result, going_on

    result, going_on = asyncio.run(go())
    assert {result.pop(name) for name in good} == {"main"}
    assert {"silent", "drips", "drips_head"} <= set(going_on)
    assert set(result.values()) == {"invalid", "unreachable"}


async def test_a_hundred_repositories_at_an_api_that_is_silent_end_together() -> None:
    """Five hundred repositories and a minute's timeout, one after the other, would be a day's work."""
    began = time.monotonic()
    with HostileServer() as server:
        client = GitHub(api_url=server.url, token=TOKEN, timeout_s=2.0, local=True)
        looks = [client.look("o/silent") for _ in range(100)]
        result = await asyncio.gather(*looks, return_exceptions=True)
        await client.close()
        answer = {one.problem if isinstance(one, RemoteError) else repr(one) for one in result}
    assert answer == {"unreachable"}
    assert time.monotonic() - began < 60  # and not 200


def test_branches_on_several_pages_are_all_seen(forge: Watched) -> None:
    forge.github.page_size = 2
    for number in range(5):
        forge.remote.git("branch", f"b{number}")
    forge.deployment.write(repos=[forge.remote.path], entry='branches = ["*"]')
    forge.poll()
    assert len(forge.deployment.events("branch_created")) == 6
    forge.remote.git("branch", "zz-last-page")
    forge.poll()
    assert forge.deployment.events("branch_created")[-1].data["branch"] == "zz-last-page"


def test_a_default_branch_that_changes_is_followed_even_to_a_branch_that_is_known(forge: Watched) -> None:
    repository = forge.github.add("remotes/demo", forge.remote.path)
    forge.poll()
    forge.remote.git("branch", "trunk")
    repository.default_branch = "trunk"
    forge.poll()
    repository.default_branch = "main"
    forge.poll(by_hand=True)
    forge.poll()  # a restart, and every ETag still holds
    forge.remote.git("checkout", "--quiet", "trunk")
    forge.remote.commit("on trunk")
    assert forge.poll()[0].commits == 0
    forge.remote.git("checkout", "--quiet", "main")
    forge.remote.commit("on main")
    assert forge.poll()[0].commits == 1


def test_hostile_names_from_the_api_reach_no_git_command_and_no_event(forge: Watched) -> None:
    sha = forge.remote.git("rev-parse", "HEAD")
    repository = forge.github.add("remotes/demo", forge.remote.path)
    for name in (
        "../../x",
        "a..b",
        "x\ny",
        "-u --upload-pack=touch x",
        "ok\0",
        "a~1",
        ".hidden",
        "x.lock",
        "\ud800",
    ):
        repository.extra_refs[f"refs/heads/{name}"] = sha
    forge.deployment.write(repos=[forge.remote.path], entry='branches = ["*"]')
    (polled,) = forge.poll()
    assert polled.outcome == "changed"
    assert [event.data["branch"] for event in forge.deployment.events("branch_created")] == ["main"]


def test_a_sha_that_is_none_is_a_problem_and_no_crash(forge: Watched) -> None:
    forge.github.add("remotes/demo", forge.remote.path).extra_refs["refs/heads/evil"] = "--upload-pack=touch"
    forge.deployment.write(repos=[forge.remote.path], entry='branches = ["*"]')
    assert forge.poll()[0].outcome == "changed"
    assert all(event.data["branch"] == "main" for event in forge.deployment.events("branch_created"))


@pytest.mark.parametrize("number", [2**63, 10**30, -5])
def test_a_number_that_no_table_has_room_for_is_none(forge: Watched, number: int) -> None:
    """Recorded, it would keep the view from being made for good."""
    forge.github.add("remotes/demo", forge.remote.path, forge_id=number)
    assert forge.poll()[0].outcome == "changed"
    assert forge.state() == ("ok", None, None)


def test_a_redirect_to_what_is_no_address_is_an_answer_that_is_not_understood(forge: Watched) -> None:
    forge.github.redirect = "http://["
    assert forge.poll()[0].outcome == "unreachable"


def test_a_redirect_to_another_host_does_not_get_the_token(forge: Watched) -> None:
    with GitHubServer() as other:
        other.add("remotes/demo", forge.remote.path)
        forge.github.remove("remotes/demo")
        forge.github.redirect = f"{other.url}/repos/remotes/demo"
        (polled,) = forge.poll()
        assert polled.outcome == "invalid"
        assert other.requests == []


def test_the_token_is_in_no_event_and_no_view(forge: Watched) -> None:
    forge.poll()
    forge.github.remove("remotes/demo")
    forge.poll()
    assert any(request.authorization == f"Bearer {TOKEN}" for request in forge.github.requests)
    for file in (forge.deployment.folder / "state").rglob("*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes(), file
    assert TOKEN not in json.dumps([event.data for event in forge.deployment.events()])
