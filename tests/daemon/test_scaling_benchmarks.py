"""The benchmark of jobs that wait runs, small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import engines

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
def test_every_job_that_waits_succeeds_and_its_processor_time_is_told_apart(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    small = ["--slots", "1", "2", "--waves", "1", "--sorries", "1", "--engines", "local"]
    assert engines.main([*small, "--json", str(target)]) == 0
    stages = json.loads(target.read_text(encoding="utf-8"))["stages"]
    assert [(one["slots"], one["jobs"]) for one in stages] == [(1, 1), (2, 2)]
    assert all(one["control_ms"] > 0 and one["jobs_ms"] > 0 for one in stages)
