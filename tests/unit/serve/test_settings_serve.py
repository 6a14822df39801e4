"""[serve] of config.toml: what is accepted, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.settings import ConfigError, parse
from daemon.settings.in_force import effective

MODEL = '[[serve.models]]\nname = "a"\nmodel = "m"\n'


def test_the_server_is_off_and_for_this_machine_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    serve = parse(b"", path=tmp_path / "config.toml").serve
    assert (serve.host, serve.port, serve.device) == ("127.0.0.1", 23337, "cpu")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('[serve]\nhost = "everywhere"', "serve.host: must be an address of this machine"),
        ("[serve]\nport = 0", "serve.port: must be at least 1"),
        ('[serve]\ntoken = "x"', "serve.token: the configuration must not contain a secret"),
        ('[serve]\ntoken_file = "nowhere"', 'nowhere" cannot be read (No such file or directory)'),
        ('[serve]\ndevice = "cuda:1"', "serve.device: must be one of cpu, cuda, auto"),
        ('[[serve.models]]\nkind = "tactics"\nmodel = "x"', "serve.models[0].name: is required"),
        ('[[serve.models]]\nname = "a"\nkind = "tactic"', 'did you mean "tactics"?'),
        ('[[serve.models]]\nname = "a"\nkind = "encoder"', "serve.models[0]: is of kind"),
        ('[[serve.models]]\nname = "a"\nkind = "retrieval"', "names nothing that the premises are shown to"),
        (f'{MODEL}kind = "endpoint"', "must have a base_url"),
        (f'{MODEL}kind = "tactics"\nbase_url = "https://x.example"', "must have a base_url"),
        (f'{MODEL}kind = "endpoint"\nbase_url = "http://x.example"', "unencrypted"),
        (
            f'{MODEL}kind = "endpoint"\nbase_url = "https://x.example"\nusd_per_day = 1',
            "cannot be held without prices",
        ),
        (
            '[[serve.models]]\nname = "a"\nkind = "tactics"\n[[serve.models]]\nname = "a"\nkind = "retriever"',
            'has the name "a" twice',
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_remedy(text: str, mistake: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode(), path=tmp_path / "config.toml")
    (line,) = caught.value.errors
    assert mistake in line
    assert ";" in line, "it says what to write instead"


def test_a_token_that_everyone_can_read_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600") as caught:
        parse(b'[serve]\ntoken_file = "token"', path=tmp_path / "config.toml")
    assert "s3cret" not in str(caught.value)
    token.chmod(0o600)
    assert parse(b'[serve]\ntoken_file = "token"', path=tmp_path / "config.toml").serve.token.file == str(
        token
    )


def test_the_settings_of_every_model_are_shown(tmp_path: Path) -> None:
    text = (
        b'[[serve.models]]\nname = "a"\nkind = "tactics"\n[[serve.models]]\nname = "b"\nkind = "retriever"\n'
    )
    shown = {item.name: item for item in effective(parse(text, path=tmp_path / "config.toml"))}
    assert shown["serve.models[1].kind"].toml == '"retriever"'
    assert (shown["serve.models[1].kind"].line, shown["serve.models[1].candidates"].origin) == (
        6,
        "default",
    )
    assert "serve.models" not in shown
