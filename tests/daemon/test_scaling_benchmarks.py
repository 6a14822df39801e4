"""The benchmarks of scaling run, small: jobs that wait, and the simulated year."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import engines
from benchmarks.year import INPUTS, Year, simulate
from benchmarks.year_world import Inputs
from daemon.planning.ladder import spending
from store.log.reader import LogReader

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
def test_every_job_that_waits_succeeds_and_its_processor_time_is_told_apart(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    small = ["--slots", "1", "2", "--waves", "1", "--sorries", "1", "--engines", "local"]
    assert engines.main([*small, "--json", str(target)]) == 0
    stages = json.loads(target.read_text(encoding="utf-8"))["stages"]
    assert [(one["slots"], one["jobs"]) for one in stages] == [(1, 1), (2, 2)]
    assert all(one["control_ms"] > 0 and one["jobs_ms"] > 0 for one in stages)


@pytest.mark.timeout(300)
def test_a_simulated_week_holds_the_caps_and_leaves_nothing_open(tmp_path: Path) -> None:
    inputs = Inputs.read(INPUTS)
    whole = {"repositories": 5, "sorries": 100, "gpus": 2, "usd_per_day": 0.2, "days": 7.0}
    inputs = inputs.model_copy(update={"whole": inputs.whole.model_copy(update=whole)})
    figures = simulate(inputs, 1.0, tmp_path)
    paths = Year(inputs, tmp_path).settings.paths
    with closing(sqlite3.connect(paths.database_db)) as view:
        (twice,) = view.execute(
            "SELECT count(*) - count(DISTINCT sorry || blob || rung || model || budget) FROM attempts"
        ).fetchone()
        (running,) = view.execute("SELECT count(*) FROM jobs WHERE state = 'running'").fetchone()
    assert twice == 0
    assert running <= figures.most_running
    with LogReader.open(paths.events_db) as log:
        assert log.position() >= figures.events
    by_day: dict[str, dict[str, float]] = {}
    ledger = spending(Year(inputs, tmp_path).settings)
    for line in map(json.loads, ledger.read_text(encoding="utf-8").splitlines()):
        by_day.setdefault(line["day"], {})[line["id"]] = line["usd"]
    assert all(sum(day.values()) <= 0.2 for day in by_day.values())
    assert 0 < figures.usd <= 0.2 * len(by_day)
