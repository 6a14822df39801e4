from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.endpoint.credentials import read_key
from pipeline.endpoint.errors import CredentialError
from pipeline.jobs.spec import KeyPlace

KEY = "sk-0123456789"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "external-key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    return tmp_path


def test_systemd_s_credential_comes_before_the_environment(folder: Path) -> None:
    known = {"CREDENTIALS_DIRECTORY": str(folder), "MY_KEY": "other"}
    assert read_key(KeyPlace("external-key", "MY_KEY"), environment=known) == KEY
    assert read_key(KeyPlace("missing", "MY_KEY"), environment=known) == "other"
    assert read_key(KeyPlace(variable="MY_KEY"), environment=known) == "other"


def test_there_need_be_none() -> None:
    assert read_key(KeyPlace("external-key", "MY_KEY"), environment={}) is None
    assert read_key(environment={"": "odd"}) is None
    assert read_key(KeyPlace(variable="MY_KEY"), environment={"MY_KEY": "  "}) is None


def test_a_file_that_everyone_reads_is_refused(folder: Path) -> None:
    (folder / "external-key").chmod(0o644)
    with pytest.raises(CredentialError, match="chmod 600"):
        read_key(KeyPlace("external-key"), environment={"CREDENTIALS_DIRECTORY": str(folder)})


@pytest.mark.parametrize("name", ["../external-key", "a/b", ".."])
def test_a_credential_s_name_is_no_path(folder: Path, name: str) -> None:
    with pytest.raises(CredentialError, match="no name"):
        read_key(KeyPlace(name), environment={"CREDENTIALS_DIRECTORY": str(folder)})


@pytest.mark.parametrize("value", ["", "\x00", "two words", "a\nX-Header: b", "schlüssel"])
def test_what_is_no_key_is_refused_and_not_shown(folder: Path, value: str) -> None:
    (folder / "external-key").write_text(value)
    with pytest.raises(CredentialError, match="holds no key") as raised:
        read_key(KeyPlace("external-key"), environment={"CREDENTIALS_DIRECTORY": str(folder)})
    assert value == "" or value not in str(raised.value)
    if value:
        with pytest.raises(CredentialError, match="MY_KEY holds no key"):
            read_key(KeyPlace(variable="MY_KEY"), environment={"MY_KEY": value})
