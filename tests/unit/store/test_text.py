from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from store.text import (
    ago,
    and_more,
    by_state,
    clean,
    clean_block,
    counted,
    cut,
    end_of,
    first_line,
    gigabytes,
    headline,
    listed,
    moment,
    one_line,
    plural,
    printable,
    printable_json,
    shown,
    size,
    span,
)

HOSTILE = "a\x1b]0;x\x07\u202eb\x7f\u2028∀\n\U000e0041é"


@pytest.mark.parametrize("indent", [None, 2])
def test_json_of_any_text_is_safe_to_print_and_reads_back_as_it_was(indent: int | None) -> None:
    value = {HOSTILE: [HOSTILE, 1, None]}
    text = printable_json(value, indent=indent)
    assert all(line.isprintable() for line in text.split("\n"))
    assert "∀" in text
    assert json.loads(text) == value


NOW = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90m", "2026-03-01T08:00"),
        ("2h ago", "2026-03-01T07:30"),
        ("7d", "2026-02-22T09:30"),
        ("2w", "2026-02-15T09:30"),
        ("today", "2026-03-01T00:00"),
        ("Yesterday", "2026-02-28T00:00"),
        ("2026-01-02", "2026-01-02T00:00"),
        ("2026-01-02T03:04", "2026-01-02T03:04"),
        ("2026-01-02T03:04+02:00", "2026-01-02T01:04"),
    ],
)
def test_a_time_is_relative_a_day_or_iso_and_in_utc_where_it_names_no_zone(text: str, meant: str) -> None:
    assert moment(text, NOW) == datetime.fromisoformat(meant).replace(tzinfo=UTC)


def test_days_begin_at_midnight_utc_wherever_now_is() -> None:
    here = NOW.astimezone(timezone(timedelta(hours=-10)))
    assert moment("today", here) == datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "7", "7 fortnights", "-1d", "999999w", "last week", "2026-13-01"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="such as 7d, yesterday or 2026-07-01T12:00"):
        moment(text, NOW)


def _table(function: Callable[..., str], *rows: tuple[Any, ...]) -> list[Any]:
    """One case for each row: the arguments, and what is returned for them."""
    return [
        pytest.param(function, row[:-1], row[-1], id=f"{function.__name__}{row[:-1]!r:.40}") for row in rows
    ]


@pytest.mark.parametrize(
    ("function", "given", "text"),
    [
        *_table(one_line, ("", ""), (" a\n\tb  c\u2028d ", "a b c d")),
        *_table(printable, ("añ ⊢ b", "añ ⊢ b"), ("a\x1b[31m\nb\u202e", "a�[31m�b�")),
        *_table(clean, (" a\n b\x07 ", "a b�"), ("plain", "plain")),
        *_table(clean_block, ("a\n\tb\x1b\r", "a\n\tb��")),
        *_table(headline, ("wrong:  this\nand the rest", "wrong: this"), ("", "")),
        *_table(cut, ("abc", 3, "abc"), ("abcd", 3, "ab…"), ("", 3, ""), ("ab", 1, "…")),
        *_table(shown, ("a\nb", r"'a\nb'"), ([1, None], "[1, None]"), ("x" * 80, "'" + "x" * 78 + "…")),
        *_table(shown, ({"key": "value"}, 8, "{'key':…")),
        *_table(
            first_line,
            (ValueError(" one\ntwo"), "one"),
            (ValueError(), "ValueError"),
            (OSError(2, "No such file"), "[Errno 2] No such file"),
        ),
        *_table(end_of, ("", "nothing"), (" \n", "nothing"), ("a\nb", "a b"), ("abcdef", 3, "def")),
        *_table(end_of, ("x" * 3000, "x" * 2000)),
        *_table(plural, ("job", "jobs"), ("open sorry", "open sorries"), ("branch", "branches")),
        *_table(
            counted,
            (0, "sorry", "0 sorries"),
            (1, "sorry", "1 sorry"),
            (2000, "new sorry", "2,000 new sorries"),
            (1, "sorry is", "sorries are", "1 sorry is"),
            (2, "sorry is", "sorries are", "2 sorries are"),
        ),
        *_table(
            listed,
            ([], 2, ""),
            (["a"], 2, "a"),
            (["a", "b"], 2, "a, b"),
            (("a", "b", "c"), 2, "a, b and 1 more"),
            ([str(one) for one in range(2001)], 1, "0 and 2,000 more"),
        ),
        *_table(and_more, (-1, ""), (0, ""), (3, " and 3 more")),
        *_table(by_state, ({}, ""), ({"open": 2000, "verified": 1}, "2,000 open, 1 verified")),
        *_table(
            span,
            (None, ""),
            (0.0, "0s"),
            (0.44, "0.4s"),
            (9.99, "10s"),
            (12.4, "12s"),
            (62, "1m2s"),
            (300, "5m"),
            (3599, "59m"),
            (7260, "2h1m"),
            (7200, "2h"),
            (4 * 86400 + 80000, "4d"),
        ),
        *_table(
            size,
            (None, ""),
            (0, "0 B"),
            (1023, "1023 B"),
            (312 * 2**20, "312 MiB"),
            (2**30, "1 GiB"),
            (3 * 2**39, "1.5 TiB"),
        ),
        *_table(gigabytes, (0, "0.0G"), (3.5 * 2**30, "3.5G"), (2**42, "4096.0G")),
    ],
)
def test_words_and_numbers(function: Callable[..., str], given: tuple[Any, ...], text: str) -> None:
    assert function(*given) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "never"),
        ("2026-03-01T09:30:00+00:00", "just now"),
        ("2026-03-01T09:27:00+00:00", "3m ago"),
        ("2026-03-01T09:27:00", "3m ago"),
        ("2026-03-01T09:34:00+00:00", "in 4m"),
    ],
)
def test_how_long_ago(text: str | None, words: str) -> None:
    assert ago(text, now=NOW) == words
