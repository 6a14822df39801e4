"""What an answer to a query about many repositories says of each of them."""

from __future__ import annotations

from typing import Any

from daemon.github_graphql import MOST_TOGETHER, query, read

SHA = "a" * 40


def found(name: str, **other: Any) -> dict[str, Any]:
    return {
        "databaseId": 7,
        "nameWithOwner": name,
        "url": f"https://github.com/{name}",
        "isArchived": False,
        "isEmpty": False,
        "defaultBranchRef": {"name": "main"},
        "refs": {
            "pageInfo": {"hasNextPage": False, "endCursor": "x"},
            "nodes": [{"name": "main", "target": {"oid": SHA}}],
        },
        **other,
    }


def test_a_query_names_each_repository_in_a_variable_and_never_in_its_text() -> None:
    hostile = 'o/") { x }'
    body = query({hostile: None, "o/two": "cursor"})
    assert hostile.partition("/")[2] not in body["query"]
    assert body["variables"]["n0"] == '") { x }'
    assert body["variables"]["a1"] == "cursor"
    assert body["query"].count("repository(") == 2


def test_what_one_repository_lacks_takes_nothing_from_the_others() -> None:
    content = {
        "data": {"rateLimit": {"cost": 1}, "r0": None, "r1": found("o/two"), "r2": found("o/new")},
        "errors": [{"type": "NOT_FOUND", "path": ["r0"], "message": "Could not resolve"}],
    }
    answered = read(content, ["o/one", "o/two", "o/three"])
    assert answered is not None
    assert set(answered.pages) == {"o/two", "o/three"}
    assert answered.pages["o/two"].heads == {"main": SHA}
    assert answered.pages["o/three"].full_name == "o/new"
    assert answered.cost == 1
    assert not answered.limited


def test_an_error_inside_a_repository_makes_all_of_it_doubtful() -> None:
    content = {
        "data": {"r0": found("o/one")},
        "errors": [{"type": "SERVICE_UNAVAILABLE", "path": ["r0", "refs", "nodes", 3, "target"]}],
    }
    answered = read(content, ["o/one"])
    assert answered is not None
    assert answered.pages == {}


def test_both_names_of_the_limit_are_known() -> None:
    for kind in ("RATE_LIMIT", "RATE_LIMITED"):
        answered = read({"errors": [{"type": kind, "message": "API rate limit exceeded"}]}, ["o/one"])
        assert answered is not None
        assert answered.limited


def test_an_empty_repository_is_left_to_rest() -> None:
    answered = read({"data": {"r0": found("o/one", isEmpty=True)}}, ["o/one"])
    assert answered is not None
    assert answered.pages == {}


def test_what_github_would_not_send_is_no_answer() -> None:
    contents: list[Any] = [None, [], "x", {}, {"data": None}, {"data": []}]
    assert [read(content, ["o/one"]) for content in contents] == [None] * len(contents)
    broken: list[Any] = [
        None,
        {},
        {"pageInfo": {}, "nodes": None},
        {"pageInfo": {}, "nodes": [{"name": "x"}]},
    ]
    for refs in broken:
        answered = read({"data": {"r0": found("o/one", refs=refs)}}, ["o/one"])
        assert answered is not None
        assert answered.pages == {}
    more = {"pageInfo": {"hasNextPage": True, "endCursor": None}, "nodes": []}
    answered = read({"data": {"r0": found("o/one", refs=more)}}, ["o/one"])
    assert answered is not None
    assert answered.pages == {}


def test_a_full_query_stays_within_githubs_limits() -> None:
    body = query({f"owner/name-{number}": None for number in range(MOST_TOGETHER)})
    assert MOST_TOGETHER + MOST_TOGETHER * 100 < 500_000  # nodes
    assert len(str(body)) < 100_000
