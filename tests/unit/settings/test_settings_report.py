"""[report]: off until it is wanted, and refused where no one could reach it."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.settings import ConfigError, Settings, parse


def read(text: str) -> Settings:
    return parse(text.encode(), path=Path("config.toml"))


def test_the_report_is_not_served_unless_it_is_wanted() -> None:
    assert not read("").report.serve
    assert read('[metrics]\nlisten = "127.0.0.1:9464"\n[report]\nserve = true\n').report.serve


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[report]\nserve = true",
            "config.toml:2: report.serve: has no address to be served at; write listen",
        ),
        ("[report]\nserve = 1", "config.toml:2: report.serve: must be true or false"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_remedy(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    (line,) = caught.value.errors
    assert line.startswith(expected)
    assert "; " in line
