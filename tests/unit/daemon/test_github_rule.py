"""For whom the REST API is asked, and who gets the token."""

from __future__ import annotations

import asyncio

import pytest

from daemon.polling.github import GitHub


@pytest.mark.parametrize(
    ("api_url", "key", "name"),
    [
        ("", "github.com/owner/name", "owner/name"),
        ("https://api.github.com", "github.com/owner/name", "owner/name"),
        ("", "gitlab.com/owner/name", None),
        ("", "local/remotes/demo", None),
        ("https://git.corp/api/v3", "git.corp/owner/name", "owner/name"),
        ("https://git.corp/api/v3", "github.com/owner/name", None),
        ("https://api.corp.ghe.com", "corp.ghe.com/owner/name", "owner/name"),
        ("http://127.0.0.1:8000", "local/remotes/demo", None),
        ("http://127.0.0.1:8000", "github.com/owner/name", None),
        ("", "github.com/too/many/parts", None),
    ],
)
def test_an_api_answers_for_its_own_forge_only(api_url: str, key: str, name: str | None) -> None:
    async def go() -> str | None:
        client = GitHub(api_url=api_url, token="t", timeout_s=1)
        try:
            return client.name_of(key)
        finally:
            await client.close()

    assert asyncio.run(go()) == name


@pytest.mark.parametrize(
    ("token", "local", "name"),
    [("t", False, None), ("t", True, "remotes/demo"), (None, False, "remotes/demo")],
    ids=["with a token", "with a token, and the setting", "without a token"],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_local_repository_is_asked_of_no_forge_with_the_token_unless_the_settings_say_so(
    host: str, token: str | None, local: bool, name: str | None
) -> None:
    async def go() -> str | None:
        client = GitHub(api_url=f"http://{host}:8000", token=token, timeout_s=1, local=local)
        try:
            return client.name_of("local/remotes/demo")
        finally:
            await client.close()

    assert asyncio.run(go()) == name


@pytest.mark.parametrize(
    ("url", "given"),
    [
        ("https://github.com/o/n", True),
        ("https://gitlab.com/o/n", False),
        ("https://github.com.evil.org/o/n", False),
        ("http://github.com/o/n", False),
        ("ssh://git@github.com/o/n", False),
        ("/local/path", False),
    ],
)
def test_git_gets_the_token_for_the_apis_forge_only(url: str, given: bool) -> None:
    async def go() -> str | None:
        client = GitHub(api_url="", token="t", timeout_s=1)
        try:
            return client.token_for(url)
        finally:
            await client.close()

    assert (asyncio.run(go()) == "t") is given
