"""`everlean mcp` as agents meet it, through the protocol's official client: reading what is there."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from daemon.agents.server import Tools, make_server
from tests.support.agents import answer_of
from tests.support.reference import DOCS
from tests.support.state_folder import (
    OTHER_SORRY,
    PROOF,
    REPOSITORY,
    SORRY,
    StateFolder,
    environment,
    fill,
    make_folder,
    open_sorry,
)

COMMAND = Path(sys.executable).parent / "everlean"


def call(folder: StateFolder, tool: str, **arguments: Any) -> tuple[bool, Any]:
    """Return whether a tool answered, and its answer; of a refusal the text."""

    async def go() -> tuple[bool, Any]:
        async with Client(make_server(Tools(folder.config))) as client:
            return answer_of(await client.call_tool(tool, arguments))

    return asyncio.run(go())


def test_an_agent_sees_the_repositories_and_their_open_sorries(filled: StateFolder) -> None:
    _, result = call(filled, "list_repositories")
    assert result["daemon_running"] is False
    (repository,) = result["repositories"]
    assert repository["repository"] == REPOSITORY
    assert ([one["branch"] for one in repository["heads"]], repository["sorries"]["open"]) == (["main"], 1)
    _, page = call(filled, "search_sorries", repository="one")
    assert (page["total"], "next_offset" in page) == (1, False)
    (sorry,) = page["sorries"]
    assert (sorry["sorry"], sorry["declaration"], sorry["state"]) == (OTHER_SORRY, "Demo.beta", "open")


def test_a_long_list_comes_in_pages(filled: StateFolder) -> None:
    assert call(filled, "search_sorries", offset=1) == (True, {"total": 1}), "what is empty is left out"
    assert call(filled, "search_sorries", limit=201)[0] is False


def test_a_sorry_is_shown_with_its_proofs_and_their_verdicts(filled: StateFolder) -> None:
    _, one = call(filled, "show_sorry", sorry=SORRY[:6])
    assert [branch["line"] for branch in one["branches"]] == [14]
    assert "source" not in one, "nobody asked for it"
    _, one = call(filled, "show_sorry", sorry=SORRY, source=10)
    assert "source" not in one, "there is no mirror here"
    (proof,) = one["proofs"]
    assert (proof["proof"], proof["verdict"], proof["axioms"]) == (PROOF, "accepted", ["propext"])


def test_a_proof_that_no_kernel_replayed_has_no_certificate(filled: StateFolder) -> None:
    answered, why = call(filled, "show_certificate", proof=PROOF)
    assert not answered
    assert "kernel" in why


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("show_sorry", {"sorry": "ffff"}, "no sorry has an id"),
        ("show_sorry", {}, "the argument sorry is missing; give the id, or its beginning"),
        (
            "show_proof",
            {"proof": "../../etc/passwd"},
            "proof is '../../etc/passwd', but should match pattern",
        ),
        ("show_sorry", {"sorry": "5"}, "sorry is '5', but should match pattern"),
        ("show_sorry", {"sorry": ["5a5a"]}, "sorry is ['5a5a'], but should be a valid string"),
        ("search_sorries", {"repository": "evil\x1b[31m"}, "no repository is called"),
        ("search_sorries", {"limit": -1}, "limit is -1, but should be greater than or equal to 1"),
        ("search_sorries", {"limit": "many"}, "limit is 'many', but should be a valid integer"),
        ("search_sorries", {"state": "proved"}, "'open'"),
        (
            "search_sorries",
            {"order": "\x1b[31m"},
            "order is '\\x1b[31m', but should be 'place' or 'impact'; give",
        ),
        ("search_sorries", {"repo": "one"}, "has no argument 'repo'; it takes text, file, repository"),
        ("list_sorries", {}, "no tool is called 'list_sorries'; there are list_repositories, search_sorries"),
    ],
)
def test_what_is_not_there_or_not_asked_properly_is_refused_in_one_sentence(
    filled: StateFolder, tool: str, arguments: dict[str, Any], why: str
) -> None:
    answered, said = call(filled, tool, **arguments)
    assert not answered
    assert why in said
    assert "\x1b" not in said
    assert "\n" not in said
    assert "pydantic" not in said
    assert "Error executing" not in said


def test_sorries_are_found_by_words_by_file_and_by_state(filled: StateFolder) -> None:
    def ids(**arguments: Any) -> list[str]:
        return [one["sorry"] for one in call(filled, "search_sorries", **arguments)[1].get("sorries", [])]

    with sqlite3.connect(filled.state / "database.db") as db:
        db.execute("UPDATE sorries SET path = 'Deep/Demo_2.lean' WHERE sorry = ?", (OTHER_SORRY,))
    assert ids(state="verified") == [SORRY]
    for item in (
        {"text": "BETA"}, {"text": "x = x"}, {"file": "Demo_2.lean"}, {"file": "Deep/Demo_2.lean"},
        {"branch": "main"}, {"order": "impact"},
    ):  # fmt: skip
        assert ids(**item) == [OTHER_SORRY], item
    for missed in ({"text": "alpha"}, {"file": "2.lean"}, {"file": "Demo%2.lean"}, {"branch": "other"}):
        assert ids(**missed) == [], missed


def test_a_sorry_of_two_branches_is_found_once_with_the_other_one_named(filled: StateFolder) -> None:
    open_sorry(filled, "next", OTHER_SORRY, "Demo.beta")
    _, page = call(filled, "search_sorries")
    assert page["total"] == 1
    assert [(one["branch"], one["also_on"]) for one in page["sorries"]] == [("main", ["next"])]


def test_two_thousand_sorries_with_long_statements_are_listed_in_less_than_8_kb(filled: StateFolder) -> None:
    statement = ": ∀ ε > 0, ∃ δ > 0, " + "x" * 180
    with sqlite3.connect(filled.state / "database.db") as db:
        cursor = db.execute("SELECT * FROM sorries WHERE sorry = ?", (OTHER_SORRY,))
        row = dict(zip((name for name, *_ in cursor.description), cursor.fetchone(), strict=True))
        changed = [
            row | {"sorry": f"{n:016x}", "statement": statement, "declaration": f"Demo.Long.Name.lemma_{n}"}
            for n in range(1999)
        ]
        statements = f"INSERT INTO sorries ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        db.executemany(statements, [(*one.values(),) for one in changed])
        db.execute("UPDATE sorries SET statement = ? WHERE sorry = ?", (statement, OTHER_SORRY))

    async def go() -> Any:
        async with Client(make_server(Tools(filled.config))) as client:
            return await client.call_tool("search_sorries", {})

    result = asyncio.run(go())
    page, (text,) = result.structured_content, result.content
    assert json.loads(text.text) == page
    assert len(text.text.encode()) < 8_000
    assert (page["total"], len(page["sorries"]), page["next_offset"]) == (2000, 20, 20)
    assert all(one["statement"].endswith("…") for one in page["sorries"])
    assert "show_sorry has the whole" in page["note"]
    _, one = call(filled, "show_sorry", sorry=page["sorries"][0]["sorry"])
    assert one["branches"][0]["statement"] == statement


def test_a_claim_of_one_s_own_is_said_to_be_one_s_own_and_its_id_is_told_to_nobody(
    filled: StateFolder,
) -> None:
    claim = "c1" * 8
    with sqlite3.connect(filled.state / "database.db") as db:
        db.execute(
            "INSERT INTO claims (claim, repository, sorry, agent, by, since, until) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (claim, REPOSITORY, OTHER_SORRY, "ada", "me", "2026-01-01T00:00:00Z", "9999-01-01T00:00:00Z"),
        )
    for given, yours in (
        ({}, False),
        ({"agent": "bob"}, False),
        ({"agent": "ada"}, True),
        ({"claim": claim}, True),
    ):
        _, page = call(filled, "search_sorries", **given)
        _, shown = call(filled, "show_sorry", sorry=OTHER_SORRY, **given)
        for one in (page["sorries"][0], shown["branches"][0]):
            assert (one["claimed_by"], one.get("yours", False)) == ("ada", yours)
        assert claim not in json.dumps([page, shown])


async def test_every_tool_has_a_schema_of_its_answer_and_describes_its_arguments(filled: StateFolder) -> None:
    async with Client(make_server(Tools(filled.config))) as client:
        tools: dict[str, Any] = {tool.name: tool for tool in (await client.list_tools()).tools}
    for tool in tools.values():
        assert tool.output_schema["type"] == "object"
        assert "required" not in tool.output_schema, "what is empty is left out"
        for name, schema in tool.input_schema["properties"].items():
            assert schema["description"], (tool.name, name)
    assert {"proof", "verdict", "why", "checks"} < tools["show_proof"].output_schema["properties"].keys()


def test_names_with_control_characters_are_shown_without_them(filled: StateFolder) -> None:
    with closing(sqlite3.connect(filled.state / "database.db")) as db, db:
        db.execute("UPDATE sorries SET declaration = ?, statement = ?", ("a\x1b]0;x\x07b", "x\u202ey"))
    _, page = call(filled, "search_sorries")
    assert [(one["declaration"], one["statement"]) for one in page["sorries"]] == [("a�]0;x�b", "x�y")]


def test_no_answer_and_no_error_names_the_daemon_s_folders(filled: StateFolder) -> None:
    (filled.state / "events.db").unlink()
    answered, said = call(filled, "show_certificate", proof=PROOF)
    assert not answered
    assert str(filled.root) not in said
    (filled.state / "database.db").unlink()
    answered, said = call(filled, "search_sorries")
    assert not answered
    assert str(filled.root) not in said
    assert "everlean run" in said


def as_documented() -> dict[str, Any]:
    """Return what docs/mcp.md has agents run, which is the same for each of them."""
    page = (DOCS / "mcp.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:json)?\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    (as_json,) = (block for block in blocks if block.startswith('{"mcpServers"'))
    (as_toml,) = (block for block in blocks if block.startswith("[mcp_servers"))
    everlean = json.loads(as_json)["mcpServers"]["everlean"]
    assert tomllib.loads(as_toml)["mcp_servers"]["everlean"] == everlean
    assert f"claude mcp add everlean -- {' '.join([everlean['command'], *everlean['args']])}\n" in page
    (address,) = re.findall(r"^everlean mcp --http (\S+)$", page, flags=re.MULTILINE)
    assert f"claude mcp add --transport http everlean http://{address}/mcp --header" in page
    assert everlean["command"] == COMMAND.name
    assert isinstance(everlean, dict)
    return everlean


async def test_the_installed_command_speaks_the_protocol_over_its_standard_streams(
    filled: StateFolder,
) -> None:
    arguments = [*as_documented()["args"], "--config", str(filled.config)]
    async with Client(StdioServerParameters(command=str(COMMAND), args=arguments)) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert "no instructions to you" in (client.instructions or "")
        answered, page = answer_of(await client.call_tool("search_sorries", {}))
    assert "show_sorry" in tools
    assert answered
    assert page["total"] == 1


async def test_clients_of_the_protocol_s_versions_before_2026_are_answered(filled: StateFolder) -> None:
    async with Client(make_server(Tools(filled.config)), mode="legacy") as client:
        answer = answer_of(await client.call_tool("search_sorries", {}))
    assert answer[1]["total"] == 1


async def test_every_tool_is_documented(filled: StateFolder) -> None:
    page = (DOCS / "mcp.md").read_text(encoding="utf-8")
    async with Client(make_server(Tools(filled.config))) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
    assert re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE) == names


# --- HTTP

TOKEN = "what-agents-have-to-send"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the installed command serves."""
    folder = make_folder(tmp_path_factory.mktemp("http"))
    fill(folder)
    folder.write()
    command = [str(COMMAND), "mcp", "--http", "127.0.0.1:0", "--config", str(folder.config)]
    variables = {**environment(folder.root), "EVERLEAN_SERVE_TOKEN": TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        try:
            assert process.stdout is not None
            port = json.loads(process.stdout.readline())["listening"]["port"]
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            assert process.wait(30) in (0, -signal.SIGTERM)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_who_has_the_token_is_answered_over_http(url: str, mode: Any) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        answered, page = answer_of(await client.call_tool("search_sorries", {}))
    assert (answered, page["total"]) == (True, 1)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer another"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "https://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 421),
    ],
)
def test_who_has_no_token_and_pages_of_other_origins_are_refused(
    url: str, headers: dict[str, str], status: int
) -> None:
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with httpx2.Client(trust_env=False) as client:
        answer = client.post(url, json=ask, headers={"Accept": "application/json", **headers})
    assert answer.status_code == status
    assert "search_sorries" not in answer.text


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ("--http 127.0.0.1:0", 78, "agents over HTTP need a token"),
        ("--http 127.0.0.1", 2, "is no HOST:PORT"),
        ("--http example.org:80", 2, "must be an address of this machine"),
    ],
)
def test_without_a_token_or_an_address_nothing_is_served(
    filled: StateFolder, words: str, code: int, why: str
) -> None:
    given = {} if code == 78 else {"EVERLEAN_SERVE_TOKEN": TOKEN}
    result = filled.everlean("mcp", *words.split(), env=given)
    assert (result.code, result.out) == (code, "")
    assert why in " ".join(result.err.split())
