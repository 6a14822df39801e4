"""benchmarks/serve.py runs: every figure comes out, whatever it is. How good they are is not a test's to say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.serve import QUICK, Turn, main

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_the_servers_benchmark_asks_two_real_servers_and_tells_every_figure(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    assert main(["--quick", "--folder", str(tmp_path), "--json", str(target)]) == 0
    document = json.loads(target.read_text(encoding="utf-8"))
    assert document["quick"] is True
    told = {(row["of"], row["what"]) for row in document["rows"]}
    of = [
        f"{what}, {clients} client{'s' * (clients > 1)}" for what in QUICK.asked for clients in QUICK.clients
    ]
    figures = [
        f"{name}, {way}" for name in ("requests", "p50", "p99") for way in ("batched", "one at a time")
    ]
    assert told == {(one, what) for one in of for what in [*figures, "requests, batched to one at a time"]}
    assert all(row["value"] > 0 for row in document["rows"])
    assert {path.name for path in tmp_path.iterdir()} == {"figures.json"}, "nothing is left behind"


def test_percentiles_are_of_the_nearest_rank() -> None:
    turn = Turn([number / 1000 for number in range(100, 0, -1)], seconds=2.0)
    assert (turn.percentile_ms(50), turn.percentile_ms(99), turn.rate) == (50.0, 99.0, 50.0)
    assert Turn([0.007], seconds=1.0).percentile_ms(99) == 7.0
