"""The polling benchmark runs, counts what was asked, and finds exactly what changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.poll import main

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_the_polling_benchmark_runs_and_an_unchanged_round_is_as_cheap_as_it_has_to_be(
    tmp_path: Path,
) -> None:
    target = tmp_path / "figures.json"
    assert main(["--quick", "--folder", str(tmp_path), "--json", str(target)]) == 0
    document = json.loads(target.read_text(encoding="utf-8"))
    assert document["quick"] is True
    figures = {(row["of"], row["what"]): row["value"] for row in document["rows"]}
    assert figures[("REST, 6 unchanged", "requests")] == 6
    assert figures[("REST, 6 unchanged", "of them answered 304")] == 6
    assert all(
        row["value"] > 0 for row in document["rows"] if row["what"] in ("time", "memory of the poller")
    )
    assert {path.name for path in tmp_path.iterdir()} == {"figures.json"}
