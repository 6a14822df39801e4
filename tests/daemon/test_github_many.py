"""Many repositories in one GraphQL query, against the shipped server that behaves like GitHub's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from daemon.github import GitHub
from daemon.polls import Polls
from daemon.testing.github import Failure, GitHubServer
from daemon.testing.house import House, Parts
from daemon.testing.remote import Remote
from store import queries

TOKEN = "ghp_thisIsASecretOfTheTest0123456789"
NAMES = ("a", "b", "c", "d")


class Forge:
    """Four repositories on one forge, asked in common because the configuration says so."""

    def __init__(self, house: House, github: GitHubServer) -> None:
        self.house = house
        self.github = github
        self.remotes = {name: house.remote(name) for name in NAMES}
        for name, remote in self.remotes.items():
            remote.commit(f"first of {name}")
            github.add(f"remotes/{name}", remote.path)
        self.write()

    def write(self, *, above: int = 2, entry: str = "") -> None:
        self.house.write(
            repos=[self.remotes[name].path for name in NAMES],
            entry=entry,
            extra=f'[github]\napi_url = "{self.github.url}"\ngraphql_above = {above}\n',
        )

    def round(self, *, token: str | None = TOKEN, times: int = 1) -> dict[str, str]:
        """Poll all as `unsorry poll` does; return what each came to. Forgets the requests before."""
        self.github.requests.clear()

        async def go() -> dict[str, str]:
            client = GitHub(api_url=self.github.url, token=token, timeout_s=5)
            async with self.house.opened(github=client) as parts:
                for _ in range(times):
                    await polled(parts)
                rows = await parts.ledger.ask(queries.repositories)
                return {row.repository.rpartition("/")[2]: row.poll_outcome or "" for row in rows}

        return asyncio.run(go())

    def asked(self) -> list[str]:
        """What was asked in the last round, a query as "graphql"."""
        return [
            "graphql" if one.path == "/graphql" else f"{one.status} {one.path}"
            for one in self.github.requests
        ]


async def polled(parts: Parts, repository: str | None = None) -> None:
    """Begin polls as the service does, and wait for them."""
    begun: list[asyncio.Task[None]] = []

    def begin(_name: str, work: Coroutine[Any, Any, None]) -> None:
        begun.append(asyncio.create_task(work))

    problems: dict[str, str] = {}
    polls = Polls(
        parts.poller, settings=lambda: parts.settings, problems=problems, begin=begin, ending=lambda: False
    )
    polls.poll_now(repository)
    await asyncio.gather(*begun)
    assert problems == {}
    assert polls.running == set()


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    with GitHubServer(token=TOKEN) as server:
        yield Forge(House(tmp_path), server)


def observed(house: House) -> list[str]:
    return sorted(event.data["subject"] for event in house.events("commit_observed"))


def test_one_query_tells_of_all_and_an_unchanged_round_is_one_query(forge: Forge) -> None:
    assert set(forge.round().values()) == {"changed"}
    assert forge.asked() == ["graphql"]
    assert observed(forge.house) == [f"first of {name}" for name in NAMES]
    before = len(forge.house.events())
    assert set(forge.round(times=2).values()) == {"unchanged"}
    assert forge.asked() == ["graphql"] * 2
    assert len(forge.house.events()) == before
    forge.remotes["c"].commit("second of c")
    assert forge.round() == {"a": "unchanged", "b": "unchanged", "c": "changed", "d": "unchanged"}
    assert observed(forge.house)[-1] == "second of c"


@pytest.mark.parametrize("above", [0, 4])
def test_no_query_is_made_where_the_configuration_wants_none(forge: Forge, above: int) -> None:
    forge.write(above=above)
    forge.round()
    assert len(forge.asked()) == 8
    assert "graphql" not in forge.asked()


def test_without_a_token_there_is_no_query(forge: Forge) -> None:
    assert set(forge.round(token=None).values()) == {"changed"}
    assert "graphql" not in forge.asked()


def test_what_a_query_does_not_answer_rest_says_exactly(forge: Forge) -> None:
    forge.round()
    forge.github.remove("remotes/a")
    forge.github.add("remotes/b", forge.remotes["b"].path).status = 451
    forge.github.rename("remotes/c", "elsewhere/better")
    forge.remotes["d"].commit("second of d")
    assert forge.round() == {"a": "gone", "b": "gone", "c": "unchanged", "d": "changed"}
    assert forge.asked() == [
        "graphql",
        "404 /repos/remotes/a/git/matching-refs/heads/",
        "451 /repos/remotes/b/git/matching-refs/heads/",
    ]
    (renamed,) = forge.house.events("repository_renamed")
    assert renamed.data["new_url"] == "https://github.com/elsewhere/better.git"
    assert "legal" in forge.house.events("repository_failed")[1].data["remedy"]


def test_a_repository_without_access_and_an_empty_one_are_told_apart(forge: Forge, tmp_path: Path) -> None:
    forge.github.add("remotes/a", forge.remotes["a"].path).status = 403
    forge.github.add("remotes/b", Remote(tmp_path / "empty").path)
    assert forge.round() == {"a": "auth_failed", "b": "empty", "c": "changed", "d": "changed"}


def test_all_pages_of_branches_are_seen_and_a_deletion_among_them(forge: Forge) -> None:
    forge.github.page_size = 2
    for number in range(4):
        forge.remotes["b"].git("branch", f"b{number}")
    forge.write(entry='branches = ["*"]')
    forge.round()
    assert forge.asked() == ["graphql"] * 3
    assert len(forge.house.events("branch_created")) == 8
    forge.remotes["b"].git("branch", "-D", "b1")
    forge.round()
    (deleted,) = forge.house.events("branch_deleted")
    assert deleted.data["branch"] == "b1"


def test_a_used_up_quota_of_points_leaves_rest_its_own(forge: Forge) -> None:
    forge.round()
    forge.github.points = 0
    forge.remotes["a"].commit("second of a")
    assert forge.round()["a"] == "changed"
    assert forge.asked()[0] == "graphql"
    assert len(forge.asked()) == 9  # REST remembers nothing of them yet: two requests each


def test_the_points_are_counted_and_the_last_one_still_buys_an_answer(forge: Forge) -> None:
    forge.github.points = 2
    assert set(forge.round().values()) == {"changed"}
    forge.round(times=3)
    assert forge.github.points == 0
    assert forge.asked()[:2] == ["graphql", "200 /repos/remotes/a/git/matching-refs/heads/"]


def test_a_query_that_takes_github_too_long_is_asked_by_rest(forge: Forge) -> None:
    forge.github.too_slow_above = 3
    assert set(forge.round().values()) == {"changed"}
    assert forge.asked()[0] == "graphql"
    assert len(forge.asked()) == 9


def test_where_graphql_itself_is_forbidden_rest_answers(forge: Forge) -> None:
    forge.github.failures = [
        Failure("POST", "/graphql", 403, message="Resource not accessible by this token")
    ]
    assert set(forge.round().values()) == {"changed"}
    assert len(forge.asked()) == 9


def test_after_a_query_that_took_too_long_the_next_are_smaller_until_one_is_answered() -> None:
    with GitHubServer(token=TOKEN) as server:
        server.too_slow_above = 30

        async def go() -> None:
            client = GitHub(api_url=server.url, token=TOKEN, timeout_s=5)
            for _ in range(4):
                await client.look_at_all([f"o/n{number}" for number in range(60)])
            await client.close()

        asyncio.run(go())
        # 60 at once, 50 and what is left, 25 and then 35 as that went well, …: it never asks for 60 for ever.
        assert [request.status for request in server.requests][:4] == [502, 502, 200, 502]


def test_a_refused_token_is_the_answer_for_all_and_costs_one_request(forge: Forge) -> None:
    assert set(forge.round(token="ghp_wrong").values()) == {"auth_failed"}
    assert len(forge.asked()) == 1


def test_a_secondary_limit_stops_rest_as_well(forge: Forge) -> None:
    forge.github.secondary = True
    assert set(forge.round().values()) == {"rate_limited"}
    assert len(forge.asked()) == 1


def test_hostile_names_in_an_answer_reach_no_git_command_and_no_event(forge: Forge) -> None:
    repository = forge.github.add("remotes/a", forge.remotes["a"].path)
    sha = forge.remotes["a"].git("rev-parse", "HEAD")
    for name in ("../../x", "a..b", "x\ny", "--upload-pack=touch x", "a~1"):
        repository.extra_refs[f"refs/heads/{name}"] = sha
    repository.extra_refs["refs/heads/evil"] = "--upload-pack=touch"
    forge.write(entry='branches = ["*"]')
    assert set(forge.round().values()) == {"changed"}
    assert {event.data["branch"] for event in forge.house.events("branch_created")} == {"main"}


def test_etags_of_rest_are_not_trusted_over_what_a_query_has_seen_since(forge: Forge) -> None:
    forge.write(above=0)
    forge.round()
    forge.write(above=2)
    forge.remotes["a"].commit("second of a")
    forge.round()
    forge.remotes["a"].reset("HEAD~1")
    forge.write(above=0)
    assert forge.round()["a"] == "changed"
    assert len(forge.house.events("branch_rewritten")) == 1


def test_an_archived_repository_is_seen_by_a_query(forge: Forge) -> None:
    forge.github.add("remotes/a", forge.remotes["a"].path).archived = True
    forge.round(times=2)
    (archived,) = forge.house.events("repository_archived")
    assert archived.data == {"repository": "local/remotes/a", "archived": True}
