"""Durations, sizes, globs, branches, URLs and the keys of repositories."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.settings.types import (
    check_branch,
    check_glob,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    repository_key,
    resolve_url,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10s", 10), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("1.5h", 5400), ("2d", 172800), ("0s", 0)],
)
def test_a_duration_is_numbers_with_units(text: str, expected: float) -> None:
    assert parse_duration(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "-5m", "5m!", "5M", "５m", "1e3s", "５m5"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**11))
def test_a_formatted_duration_reads_back_the_same(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@pytest.mark.parametrize(
    ("text", "expected"), [("4G", 2**32), ("512M", 2**29), ("1.5GiB", 3 * 2**29), ("2KB", 2048)]
)
def test_a_size_is_a_number_with_a_unit(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["4", "4 G", "G", "4g", "-1G", "4GG"])
def test_anything_else_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@given(st.integers(min_value=1, max_value=2**20))
def test_a_formatted_size_reads_back_the_same(kibibytes: int) -> None:
    assert parse_size(format_size(kibibytes * 1024)) == kibibytes * 1024


@pytest.mark.parametrize("pattern", ["**/*.lean", "A/B.lean", "A/[ab]*.lean", "A/[]x]", "A/**", "«x».lean"])
def test_a_glob_inside_the_repository_is_accepted(pattern: str) -> None:
    assert check_glob(pattern) == pattern


@pytest.mark.parametrize(
    "pattern",
    ["", " ", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a**/b", "[ab", "a\\b", "~/a", "[]", "[!]"],
)
def test_a_glob_that_can_match_nothing_inside_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="write a path glob"):
        check_glob(pattern)


@pytest.mark.parametrize("name", ["main", "release/*", "v[0-9]*", "a.b", "feature/ünï"])
def test_a_branch_or_a_glob_of_branches_is_accepted(name: str) -> None:
    assert check_branch(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-x",
        "/x",
        "x/",
        "a..b",
        "a b",
        "a~b",
        "a^b",
        "a:b",
        "x.lock",
        "@{u}",
        "a\\b",
        "x.",
        "a//b",
        "a\x07",
    ],
)
def test_what_git_refuses_as_a_branch_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"branch|name"):
        check_branch(name)


def test_a_full_ref_is_refused_with_the_branch_alone_as_remedy() -> None:
    with pytest.raises(ValueError, match='write the branch alone: "main"'):
        check_branch("refs/heads/main")


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://github.com/owner/name", "github.com/owner/name"),
        ("https://GitHub.com/Owner/Name.git", "github.com/Owner/Name"),
        ("https://github.com:443/owner/name/", "github.com/owner/name"),
        ("https://git.example.org:8443/owner/name", "git.example.org:8443/owner/name"),
        ("ssh://git@github.com/owner/name.git", "github.com/owner/name"),
        ("git@github.com:owner/name.git", "github.com/owner/name"),
        ("https://gitlab.com/group/sub/name", "gitlab.com/group/sub/name"),
        ("file:///srv/git/name.git", "local/git/name"),
        ("file:///srv/git%20x/name", "local/git x/name"),
        ("/srv/git/name", "local/git/name"),
        ("/srv/git/name/.git", "local/git/name"),
        ("/name", "local/root/name"),
    ],
)
def test_a_repository_key_is_host_owner_name(url: str, key: str) -> None:
    assert repository_key(url) == key


@pytest.mark.parametrize("url", ["./a", "../a", "/a", "~/a"])
def test_a_path_becomes_absolute(url: str) -> None:
    assert Path(resolve_url(url, base=Path("/base/here"))).is_absolute()


@pytest.mark.parametrize(
    "url",
    [
        "", "owner/name", "name", "https://", "https:///a/b", "https://github.com/name", "https://github.com",
        "git@github.com:name", "http://github.com/a/b", "git://github.com/a/b", "file://host/a", "file://",
        "https://github.com/a/../b", "https://github.com/a/b\n", "https://[::1/a/b", "--upload-pack=x:y",
        "ext::sh -c x", "-oProxyCommand=x:a/b", "-oX:a/b", "git@-oX:a/b",
        "ssh://-oX/a/b", "ssh://git@-oX/a/b",
    ],
)  # fmt: skip
def test_what_is_no_url_of_a_repository_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        resolve_url(url, base=Path("/base"))
