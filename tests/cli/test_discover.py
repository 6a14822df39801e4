"""`everlean repos discover`: repositories of Reservoir's index, of requirements, of GitHub's search and of lists."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import date

import pytest

from daemon.polling import discovery
from daemon.polling.discovery import Named, Search, candidates
from daemon.polling.errors import RemoteError
from daemon.polling.github import GitHub
from store.domain.identity import slug
from store.events.projects import Project
from store.events.scans import CommitScanned
from tests.support.daemon.github import Found, GitHubServer
from tests.support.daemon.remote import Remote
from tests.support.state_folder import REPOSITORY, TIP, StateFolder, fill

TOKEN = "a-token"


def searched(
    server: GitHubServer, said: list[str] | None = None, found: list[Named] | None = None
) -> list[Named]:
    """Return what a search finds; `found` has it also where the search ends with an error."""
    said = [] if said is None else said
    found = [] if found is None else found

    async def search() -> None:
        github = GitHub(api_url=server.url, token=TOKEN, timeout_s=10)
        made = Search(github, say=said.append, today=date(2026, 11, 29))
        try:
            await made.run()
        finally:
            found.extend(made.found)
            await github.close()

    asyncio.run(search())
    return found


def test_more_than_a_thousand_are_found_by_dividing_days_and_a_day_by_sizes() -> None:
    with GitHubServer(token=TOKEN) as server:
        server.found = [Found(f"o/d{n}", f"2024-0{1 + n % 9}-{10 + n % 17}") for n in range(1100)]
        server.found += [Found(f"o/s{n}", "2025-05-05", size_kb=n % 700) for n in range(1300)]
        result = searched(server)
    assert len(result) == len({one.url for one in result}) == 2400


def test_what_is_no_lean_4_a_fork_or_archived_is_left_out() -> None:
    with GitHubServer(token=TOKEN) as server:
        server.found = [
            Found("o/four", "2024-01-01", stars=7),
            Found("o/three", "2019-01-01", toolchain="leanprover-community/lean:3.51.1"),
            Found("o/none", "2024-01-01", toolchain=""),
            Found("o/fork", "2024-01-01", fork=True),
            Found("o/old", "2024-01-01", archived=True),
        ]
        assert searched(server) == [Named("https://github.com/o/four", 7, "v4.35.0")]


def test_a_limit_that_is_used_up_is_waited_for_and_said() -> None:
    lines: list[str] = []
    with GitHubServer(token=TOKEN) as server:
        server.found = [Found("o/four", "2024-01-01")]
        server.remaining, server.reset_at = 1, time.time() + 1
        # Full again once it was waited for.
        result = searched(server, _Refilling(server, lines))
    assert [one.url for one in result] == ["https://github.com/o/four"]
    assert len(lines) == 1
    assert lines[0].endswith("the search goes on then")


class _Refilling(list[str]):
    def __init__(self, server: GitHubServer, said: list[str]) -> None:
        super().__init__()
        self._server, self._said = server, said

    def append(self, line: str) -> None:
        self._server.remaining = None
        self._said.append(line)


@pytest.mark.parametrize("answer", [{"items": []}, {"total_count": 3, "items": None}, ["no object"]])
def test_what_github_would_not_answer_is_an_error(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.daemon import github

    with GitHubServer(token=TOKEN) as server:
        monkeypatch.setattr(server, "_search", lambda _query: github._Answer(200, answer))
        with pytest.raises(RemoteError, match="not what GitHub sends"):
            searched(server)


def test_what_was_found_before_a_refusal_is_kept_and_no_api_is_asked_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "_MOST_QUESTIONS", 4)
    result: list[Named] = []
    with GitHubServer(token=TOKEN) as server:
        server.found = [Found(f"o/n{n}", "2024-01-01") for n in range(400)]
        with pytest.raises(RemoteError, match="has more after 4 answers"):
            searched(server, found=result)
    assert len(result) == 200


def test_each_repository_is_once_with_all_who_name_it_and_no_address_but_https() -> None:
    named = {
        "github": [Named("https://github.com/A/B", 3, "v4.35.0"), Named("https://github.com/known/one", 9)],
        "reservoir": [Named("https://github.com/a/b.git", 2), Named("https://user:pw@github.com/a/c")],
        "list.json": [Named(url) for url in ("file:///etc", "ssh://git@github.com/a/d", "https://[", "/etc")],
    }
    (one,), watched = candidates(named, known=["github.com/Known/One"])
    assert (one.repository, one.toolchain, one.stars) == ("github.com/A/B", "v4.35.0", 3)
    assert (one.sources, watched) == (("github", "reservoir"), 1)


def entry(url: object, stars: object = 1) -> str:
    return json.dumps({"name": "x", "stars": stars, "sources": [{"type": "git", "gitUrl": url}]})


def test_the_index_a_list_and_requirements_are_read_and_the_watchlist_stays(folder: StateFolder) -> None:
    index = Remote(folder.root / "index")
    index.commit(
        "first",
        {
            "a/b/metadata.json": entry("https://github.com/a/b", 12),
            "a/b/builds.json": "[]",
            "a/c/metadata.json": entry("https://github.com/a/c", "many"),
            "a/d/metadata.json": "[" * 5000,
            "a/e/metadata.json": entry(["no text"]),
            "a/f/metadata.json": json.dumps({"sources": "none"}),
            "a/g/metadata.json": entry("https://github.com/a/" + "g" * 20_000),
        },
    )
    index.git("config", "uploadpack.allowFilter", "true")
    for name, key in (("list.json", "a/c"), ("more/list.json", "a/h")):
        (folder.root / name).parent.mkdir(exist_ok=True)
        (folder.root / name).write_text(json.dumps({"repos": [{"remote": f"https://github.com/{key}"}]}))
    folder.everlean("repos", "add", "a/f")
    before = folder.config.read_bytes()
    asked = (
        "repos",
        "discover",
        "--index",
        f"file://{index.path}",
        "--list",
        "list.json",
        "--list",
        "more/list.json",
        "--source",
        "reservoir",
    )
    answer = folder.everlean(*asked, "--json").json
    assert [(one["repository"], one["stars"], one["sources"]) for one in answer["repositories"]] == [
        ("github.com/a/b", 12, ["reservoir"]),
        ("github.com/a/c", None, ["reservoir", "list.json"]),
        ("github.com/a/h", None, ["more/list.json"]),
    ]
    assert folder.config.read_bytes() == before


def test_github_is_not_asked_without_a_token_which_is_said_and_a_failure(folder: StateFolder) -> None:
    answer = folder.everlean("repos", "discover", "--source", "github")
    assert answer.code == 1
    assert "everlean: github: its search needs a token" in answer.err


def test_what_a_watched_repository_requires_is_named_with_who_requires_it(folder: StateFolder) -> None:
    fill(folder)
    required = {
        "type": "git",
        "name": "batteries",
        "url": "https://github.com/leanprover/batteries",
        "rev": "b" * 40,
    }
    remote = Remote(folder.root / "demo")
    remote.commit("first", {"lake-manifest.json": json.dumps({"packages": [required]})})
    mirror = folder.root / "state" / "cache" / "mirrors" / f"{slug(REPOSITORY)}.git"
    remote.git("clone", "--quiet", "--bare", ".", str(mirror))
    projects = (Project("", "", remote.git("rev-parse", "HEAD:lake-manifest.json")),)
    folder.add(f"repository:{REPOSITORY}", CommitScanned(
        repository=REPOSITORY, branch="main", sha=TIP, base=None, include=("**/*.lean",), exclude=(),
        projects=projects, files_scanned=0, files_removed=0, files_failed=0, seconds=0.1, challenges=(),
    ))  # fmt: skip
    folder.write()
    (one,) = folder.everlean("repos", "discover", "--source", "required", "--json").json["repositories"]
    assert (one["repository"], one["sources"]) == ("github.com/leanprover/batteries", [REPOSITORY])
    (mirror / "HEAD").write_text("no reference")
    answer = folder.everlean("repos", "discover", "--source", "required")
    assert answer.code == 1
    assert f"everlean: required: {REPOSITORY}: " in answer.err
