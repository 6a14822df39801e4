"""The server's secrets: gathered, handed over by one pipe, and gone from it once they are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.handover import HandedOver, all_handed_over, keys_at
from pipeline.external import credentials
from pipeline.external.credentials import KEY_PROBLEM, KEYS_PIPE, KeyPlace, read_key
from pipeline.external.errors import CredentialError


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    credentials._all_handed_over.cache_clear()
    yield
    credentials._all_handed_over.cache_clear()


def as_the_child_sees_it(handed: HandedOver) -> dict[str, str]:
    """Return the child's environment, with a descriptor of its own of the pipe."""
    (descriptor,) = handed.descriptors
    return {**handed.variables, KEYS_PIPE: str(os.dup(descriptor))}


def test_each_key_is_read_by_its_place_and_what_cannot_be_used_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRST_KEY", "k1")
    bad = tmp_path / "bad"
    bad.write_text("two words")
    bad.chmod(0o600)
    first, none, broken = KeyPlace("c", "FIRST_KEY"), KeyPlace("c", "NO_KEY"), KeyPlace("c", "", str(bad))
    with all_handed_over(keys_at((first, none, broken))) as handed:
        assert set(handed.variables) == {KEYS_PIPE}, "no key is in a variable"
        known = as_the_child_sees_it(handed)
    assert read_key(credential="c", variable="FIRST_KEY", environment=known) == "k1"
    assert read_key(credential="c", variable="NO_KEY", environment=known) is None
    assert read_key(credential="c", variable="ANOTHER", environment={**known, "ANOTHER": "x"}) is None
    with pytest.raises(CredentialError, match="holds no key"):
        read_key(credential="c", file=str(bad), environment=known)


def test_keys_that_do_not_fit_into_a_pipe_are_not_waited_for() -> None:
    with all_handed_over(b"x" * 2**22) as handed:
        assert handed.descriptors == ()
        with pytest.raises(CredentialError, match="do not fit"):
            read_key(variable="FIRST_KEY", environment=handed.variables)
        assert set(handed.variables) == {KEY_PROBLEM}


def test_other_keys_or_another_token_are_another_start(monkeypatch: pytest.MonkeyPatch) -> None:
    place = KeyPlace("", "FIRST_KEY")
    monkeypatch.setenv("FIRST_KEY", "k1")
    before = keys_at((place,))
    assert keys_at((place,)) == before
    monkeypatch.setenv("FIRST_KEY", "k2")
    assert keys_at((place,)) != before
