"""What a job knows of the daemon's environment: no secret; and the one key that one job is handed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.endpoint import credentials
from pipeline.endpoint.credentials import job_key, read_key, take_hub_key, use_hub_key
from pipeline.endpoint.errors import CredentialError
from pipeline.jobs.child import job_environment, key_pipe
from pipeline.jobs.protocol import HUB_PIPE, KEY_PIPE
from pipeline.jobs.spec import HUB_KEY, KeyPlace, hub_key

KEY = "s3cret"
PLACE = KeyPlace("everlean-model-key", "EVERLEAN_MODEL_KEY")


@pytest.fixture(autouse=True)
def nothing_read_before() -> Iterator[None]:
    credentials._handed_over.cache_clear()
    yield
    credentials._handed_over.cache_clear()


def test_a_job_is_given_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("EVERLEAN_MODEL_KEY", "EVERLEAN_GITHUB_TOKEN", "CREDENTIALS_DIRECTORY", "HF_TOKEN"):
        monkeypatch.setenv(name, KEY)
    assert KEY not in job_environment(tmp_path).values()


def test_a_key_is_handed_over_by_a_pipe_that_is_empty_once_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVERLEAN_MODEL_KEY", KEY)
    with key_pipe(job_key(PLACE)) as handed:
        assert KEY not in repr(handed)
        (descriptor,) = handed.descriptors
        # The job's end of it is another descriptor of the same number, as here.
        variables = {KEY_PIPE: str(os.dup(descriptor))}
        assert read_key(environment=variables) == KEY
        assert os.read(descriptor, 100) == b""
        assert read_key(environment=variables) == KEY, "who asks twice is answered twice"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_child_of_a_job_inherits_neither_the_pipe_nor_a_variable_with_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVERLEAN_MODEL_KEY", KEY)
    grandchild = (
        "import os; print(sorted(os.listdir('/proc/self/fd'), key=int)[3:-1], 's3cret' in str(os.environ))"
    )
    child = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {grandchild!r}], check=True)"
    )
    with key_pipe(job_key(PLACE)) as handed:
        result = subprocess.run(
            [sys.executable, "-S", "-c", child],
            env={"PATH": "/usr/bin", **handed.variables},
            pass_fds=handed.descriptors,
            capture_output=True,
            text=True,
            check=True,
        )
    assert result.stdout == "[] False\n"


def test_without_a_key_nothing_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERLEAN_MODEL_KEY", raising=False)
    for place in (None, PLACE):
        with key_pipe(job_key(place)) as handed:
            assert (handed.descriptors, dict(handed.variables)) == ((), {})


def test_of_the_folder_of_credentials_only_the_one_is_handed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, text in (("everlean-model-key", KEY), ("github-token", "ghp_other")):
        (tmp_path / name).write_text(text + "\n", "ascii")
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with key_pipe(job_key(PLACE)) as handed:
        assert os.read(handed.descriptors[0], 100) == KEY.encode()
        assert str(tmp_path) not in handed.variables.values()


def test_a_key_that_cannot_be_used_is_the_job_s_to_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "everlean-model-key").write_text("two words", "ascii")
    (tmp_path / "everlean-model-key").chmod(0o600)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with key_pipe(job_key(PLACE)) as handed, pytest.raises(CredentialError, match="holds no key"):
        read_key(environment=handed.variables)


def test_the_hub_s_key_reaches_who_names_a_model_of_the_hub_and_no_endpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert hub_key("") is None
    assert hub_key(str(tmp_path)) is None
    monkeypatch.setenv("HF_TOKEN", KEY)
    with key_pipe(job_key(hub_key("owner/gated"))) as handed:
        assert list(handed.variables) == [HUB_PIPE]
        (descriptor,) = handed.descriptors
        monkeypatch.delenv("HF_TOKEN")
        monkeypatch.setenv(HUB_PIPE, str(os.dup(descriptor)))
        assert read_key(KeyPlace(variable="EVERLEAN_MODEL_KEY")) is None
        take_hub_key()
        assert os.environ["HF_TOKEN"] == KEY
        assert HUB_PIPE not in os.environ
        assert os.read(descriptor, 100) == b""
    monkeypatch.delenv("HF_TOKEN")
    (tmp_path / HUB_KEY.credential).write_text(KEY)
    (tmp_path / HUB_KEY.credential).chmod(0o600)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    use_hub_key()
    assert os.environ["HF_TOKEN"] == KEY, "the editors' server is no job"
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    monkeypatch.setenv("HF_TOKEN", "two words")
    with key_pipe(job_key(hub_key("owner/public"))) as handed:
        assert dict(handed.variables) == {}, "a public model needs none"
