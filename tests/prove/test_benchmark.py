"""benchmarks/prove.py runs: every figure comes out, whatever it is. How good they are is not a test's to say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.prove import main
from benchmarks.prove_family import shapes, steps_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.usefixtures("real_lean")
def test_both_ways_print_their_figures_whatever_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    threads, target = torch.get_num_threads(), tmp_path / "prove.json"
    try:
        assert main(["--quick", "--folder", str(tmp_path), "--json", str(target)]) == 0
    finally:
        torch.set_num_threads(threads)
    assert [path.name for path in tmp_path.iterdir()] == ["prove.json"]
    document: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    assert document["quick"] is True
    targets = [row["target"] for row in document["rows"] if row["target"]]
    assert targets == ["at least 10", "at least the other's"]
    printed = capsys.readouterr().out
    for row in document["rows"]:
        assert row["value"] is not None, row
        assert row["what"] in printed


def test_without_lean_it_says_so_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAN_SHARED", str(tmp_path / "nowhere"))
    assert main(["--quick", "--folder", str(tmp_path)]) == 3
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("prove: "))
    assert line.startswith("prove: Lean 4.35.0 cannot be built here")


@pytest.mark.usefixtures("real_lean")
def test_each_theorem_of_the_family_is_proved_by_its_own_steps_and_no_two_are_alike(tmp_path: Path) -> None:
    given = [*shapes(1, 2, 12), *shapes(1, 4, 12)]
    assert len({theorem.stated for theorem in given}) == 24
    rows = asyncio.run(steps_of(given, tmp_path))
    assert len(rows) == sum(len(theorem.steps) for theorem in given)
