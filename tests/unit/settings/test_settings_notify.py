"""[notify] and [metrics]: what is refused, with its remedy; no secret stands there, or in what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.settings import ConfigError, Settings, parse


def read(text: str, tmp_path: Path) -> Settings:
    return parse(text.encode(), path=tmp_path / "config.toml")


def refused(text: str, tmp_path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, tmp_path)
    (line,) = caught.value.errors
    return line


def test_nothing_is_told_and_nothing_listens_unless_it_is_asked_for(tmp_path: Path) -> None:
    settings = read("", tmp_path)
    assert (settings.notify.webhook.url, settings.notify.command.run, settings.metrics.listen) == ("", (), "")


def test_a_program_s_path_is_relative_to_the_file_and_its_name_is_left_to_path(tmp_path: Path) -> None:
    settings = read('[notify.command]\nrun = ["./tell", "./as-it-is"]', tmp_path)
    assert settings.notify.command.run == (str(tmp_path / "tell"), "./as-it-is")
    assert read('[notify.command]\nrun = ["tell"]', tmp_path).notify.command.run == ("tell",)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.slack.com/services/T0/B0/hushhush",
        "https://discord.com/api/webhooks/1/hushhush",
        "https://ada:hushhush@example.org/hook",
        "https://example.org/hook?token=hushhush",
    ],
)
def test_a_url_that_is_itself_a_secret_is_refused_and_not_printed(url: str, tmp_path: Path) -> None:
    line = refused(f'[notify.webhook]\nurl = "{url}"', tmp_path)
    assert line.startswith("config.toml:2: notify.webhook.url: is itself a secret")
    assert "everlean-notify-url" in line
    assert "hush" not in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[notify.webhook]\nurl = "http://example.org/hook"', "would be sent unencrypted"),
        ('[notify.webhook]\nurl = "ftp://example.org/hook"', "must be an https URL"),
        ('[notify.webhook]\nurl = "https://[example"', "is no valid URL"),
        ('[notify.webhook]\nsecret = "hushhush"', "everlean-notify-secret"),
        ('[notify.webhook]\nkinds = ["proof_found"]', "one of proof_verified, proof_doubted, model"),
        ("[notify.webhook]\nkinds = []", "should have at least 1 item"),
        ('[notify.command]\nrun = [""]', "names no program"),
        ('[notify.command]\nrun = "tell --here"', "list in square brackets"),
        ("[notify]\ndigest = 60", "must be a string with a unit"),
        ('[metrics]\nlisten = "0.0.0.0:9464"', "lets other machines read"),
        ('[metrics]\nlisten = "[::]:9464"', "lets other machines read"),
        ('[metrics]\nlisten = "192.0.2.1:9464"', "public = true"),
        ('[metrics]\nlisten = "localhost:9464"', "IP address, not a name"),
        ('[metrics]\nlisten = "127.0.0.1"', "no address with a port"),
        ('[metrics]\nlisten = "127.0.0.1:0"', "no address with a port"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(text: str, expected: str, tmp_path: Path) -> None:
    line = refused(text, tmp_path)
    assert expected in line
    assert "; " in line
    assert "hush" not in line


@pytest.mark.parametrize("listen", ["127.0.0.1:9464", "127.1.2.3:1", "[::1]:9464"])
def test_this_machine_s_own_addresses_may_be_listened_on(listen: str, tmp_path: Path) -> None:
    assert read(f'[metrics]\nlisten = "{listen}"', tmp_path).metrics.listen == listen


def test_another_address_has_to_be_wanted_in_so_many_words(tmp_path: Path) -> None:
    for text in ('listen = "0.0.0.0:9464"\npublic = true', 'public = true\nlisten = "0.0.0.0:9464"'):
        assert read(f"[metrics]\n{text}", tmp_path).metrics.public
