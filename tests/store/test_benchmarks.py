"""benchmarks/store.py runs: every figure comes out, whatever it is. How fast things are is not a test's to say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "store.py"


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("benchmark")
    target = folder / "store.json"
    command = [
        sys.executable,
        str(PROGRAM),
        "--quick",
        "--no-peer",
        "--folder",
        str(folder),
        "--json",
        str(target),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["store.json"]
    return done.stdout, json.loads(target.read_text(encoding="utf-8"))


def test_every_number_that_the_store_is_held_to_has_a_row(answer: tuple[str, dict[str, Any]]) -> None:
    _, document = answer
    targets = [(row["of"], row["target"]) for row in document["rows"] if row["target"]]
    assert targets == [
        ("append", "at least 60"),
        ("append", "at least 30"),
        ("append", "at least 5"),
        ("rebuild", "at least 15,000"),
        ("rebuild", "under 400 MB"),
        ("rebuild", "about 1"),
        ("commit", "about 1"),
        ("commit", "about 1"),
        ("commit", "at least 100"),
        ("export", "at most 12"),
        ("export", "at least 20"),
        ("import", "at least 0.5"),
        ("status", "under 300"),
    ]


def test_what_was_measured_has_a_value_and_what_was_not_says_so(answer: tuple[str, dict[str, Any]]) -> None:
    table, document = answer
    for row in document["rows"]:
        of_the_peer = "LeanDojo-v2" in row["what"]
        assert (row["value"] is None) == of_the_peer, row
        assert of_the_peer == ("not measured" in row["note"])
        if not of_the_peer:
            assert row["value"] > 0
        assert f"| {row['of']} | {row['what']} |" in table
    assert document["quick"] is True
    assert document["machine"]["cores"] >= 1
    mix = next(row["note"] for row in document["rows"] if row["what"] == "recording the log")
    assert "attempt_finished" in mix
    assert "theorems_followed" in mix


def test_one_measurement_can_be_had_alone(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(PROGRAM),
        "--quick",
        "--no-peer",
        "--only",
        "append",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and "---" not in line]
    assert {line.split(" | ")[0] for line in rows[1:]} == {"| append"}
