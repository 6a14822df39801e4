"""Processes that learn together, as a job starts them: what becomes of them where one fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pipeline.models import ranks, training_job
from tests.support.specs import raw_spec

pytestmark = pytest.mark.timeout(300)

JOB = """
import sys
from pathlib import Path
from pipeline.models import ranks, training_job

ranks._OWN_END_S = 0.1
with training_job.helped(2, Path(sys.argv[1]), "cpu"):
    print("they met")
"""


def test_a_job_that_waits_for_a_process_that_failed_ends_and_its_log_has_the_reason(tmp_path: Path) -> None:
    spec = raw_spec("train", {"chain": str(tmp_path)}, tmp_path, job="train-1", attempt=1)
    job = subprocess.run(
        [sys.executable, "-c", JOB, str(spec.write())], capture_output=True, text=True, check=False
    )
    assert job.returncode == 1
    reason, ended = job.stdout, job.stderr.splitlines()[-1]
    assert "repository: Field required" in reason
    assert "they met" not in reason
    assert ended == "of the processes that learned together number 1 ended with 1: its reason is above"


def test_the_processes_end_with_the_job_s_own_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "spec.json"
    os.mkfifo(spec)  # they wait for its content
    ours = psutil.Process()
    others = {one.pid for one in ours.children()}

    def fail(_device: str) -> None:
        assert ranks.world() == 3
        assert len(ours.children()) == len(others) + 2
        raise MemoryError

    monkeypatch.setattr(training_job, "join", fail)
    with pytest.raises(MemoryError), training_job.helped(3, spec, "cpu"):
        pytest.fail("it did something")
    assert {one.pid for one in ours.children()} == others
    assert ranks.world() == 1
