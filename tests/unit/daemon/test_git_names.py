"""Names and messages of git, read without git."""

from __future__ import annotations

import pytest

from daemon.polling.errors import classify
from daemon.polling.git_process import is_branch_name


@pytest.mark.parametrize("name", ["main", "release/1.0", "été", "--upload-pack=x", "a@b", "«x»"])
def test_what_git_would_store_is_a_branch_name(name: str) -> None:
    assert is_branch_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "a..b",
        "a b",
        "a\nb",
        "a\x00b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[",
        "a\\b",
        "/a",
        "a/",
        "a//b",
        "@",
        "a.",
        ".a",
        "a/.b",
        "a.lock",
        "a.lock/b",
        "a@{b",
        "x" * 300,
        "a\ufffdb",
    ],
)
def test_what_git_would_refuse_is_none(name: str) -> None:
    assert not is_branch_name(name)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("fatal: repository 'https://github.com/o/n/' not found", "not_found"),
        ("fatal: '/x' does not appear to be a git repository", "not_found"),
        ("fatal: could not read Username for 'https://github.com': terminal prompts disabled", "auth_failed"),
        ("git@github.com: Permission denied (publickey).", "auth_failed"),
        ("fatal: unable to access 'https://h/': The requested URL returned error: 403", "auth_failed"),
        ("fatal: unable to access 'https://h/': The requested URL returned error: 429", "rate_limited"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", "unreachable"),
        ("ssh: connect to host h port 22: Connection refused", "unreachable"),
        ("something new that git says", "unreachable"),
    ],
)
def test_what_git_says_of_a_remote_becomes_a_problem_with_a_remedy(said: str, problem: str) -> None:
    error = classify(said, status=128, what="https://h/o/n", remote=True)
    assert error.problem == problem
    assert error.remedy
    assert str(error).startswith("https://h/o/n: ")


def test_what_git_says_in_several_lines_is_told_without_what_follows_from_it() -> None:
    lines = (
        "fatal: '/x' does not appear to be a git repository",
        "fatal: Could not read from remote repository.",
        "",
        "Please make sure you have the correct access rights",
        "and the repository exists.",
    )
    error = classify("\n".join(lines), status=128, what="/x", remote=True)
    assert str(error) == "/x: fatal: '/x' does not appear to be a git repository"
    two = classify("error: first\nfatal: second", status=128, what="/x", remote=True)
    assert str(two) == "/x: error: first; fatal: second"


def test_a_full_disk_is_named_as_such() -> None:
    error = classify("fatal: write error: No space left on device", status=128, what="/mirror", remote=True)
    assert "disk" in error.remedy
