"""benchmarks/lean.py runs: every figure comes out, whatever it is. How fast things are is not a test's to say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "lean.py"


def test_every_figure_of_the_client_and_the_pool_comes_out(tmp_path: Path) -> None:
    target = tmp_path / "lean.json"
    command = [sys.executable, str(PROGRAM), "--quick", "--json", str(target)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(target.read_text("utf-8"))
    assert document["quick"] is True
    assert [row["of"] for row in document["rows"] if row["target"]] == ["call", "call"]
    assert {row["of"] for row in document["rows"]} == {"call", "together", "checkout", "replay"}
    for row in document["rows"]:
        assert row["value"] is not None
        assert f"| {row['of']} | {row['what']} |" in done.stdout
