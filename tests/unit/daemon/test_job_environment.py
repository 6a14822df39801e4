"""What a job knows of the daemon's environment: no secret, but for the one job that needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.process import job_environment


def test_a_job_is_given_no_secret_but_those_that_it_is_started_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("UNSORRY_MODEL_KEY", "UNSORRY_GITHUB_TOKEN", "CREDENTIALS_DIRECTORY"):
        monkeypatch.setenv(name, "s3cret")
    assert "s3cret" not in job_environment(tmp_path).values()
    given = job_environment(tmp_path, secrets=("UNSORRY_MODEL_KEY", "NOT_THERE"))
    assert [name for name, value in given.items() if value == "s3cret"] == ["UNSORRY_MODEL_KEY"]
