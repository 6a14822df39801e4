"""One REPL for a file, and what happens to the other sorrys when it dies. The simulator stands in for Lean."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path

import pytest

from pipeline.lean.backend import LeanBackend, find_lean
from pipeline.lean.repl import ReplStartError
from pipeline.lean.scanner import scan_source
from pipeline.prove.file import Attempt, FileProver, Wanted, git_blob
from pipeline.prove.search import Budget

SOURCE = """theorem first (p : Prop) : p → p := sorry
theorem poison (p : Prop) : p → p := sorry
theorem last (p q : Prop) : p ∧ q → p := by
  sorry
"""
# Passes everything on to the simulator, and dies where a real Lean would have run out of stack.
FRAGILE = """
import json, subprocess, sys
child = subprocess.Popen([sys.executable, "-I", "-m", "pipeline.lean.simulator", *sys.argv[1:]],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
print(child.stdout.readline(), end="", flush=True)
for line in sys.stdin:
    if {deadly}:
        child.kill()
        sys.exit("stack overflow")
    child.stdin.write(line)
    child.stdin.flush()
    print(child.stdout.readline(), end="", flush=True)
"""


def fragile(folder: Path, *, deadly: str) -> LeanBackend:
    script = folder / "fragile.py"
    script.write_text(FRAGILE.replace("{deadly}", deadly))
    backend = find_lean(backend="simulator", repl="", sandbox="none")
    return dataclasses.replace(backend, argv=(sys.executable, str(script)))


def wanted(source: str) -> list[Wanted]:
    data = source.encode()
    scanned = scan_source(data, path="A.lean")
    return [
        Wanted(
            sorry=sorry.declaration,
            path="A.lean",
            blob=git_blob(data, like="0" * 40),
            byte_start=sorry.byte_start,
            byte_end=sorry.byte_end,
            declaration=sorry.declaration,
            kind=scanned.declarations[sorry.index].kind,
            ordinal=sorry.ordinal,
        )
        for sorry in scanned.sorries
    ]


def run(folder: Path, source: str, *, backend: LeanBackend, on_disk: str | None = None) -> dict[str, Attempt]:
    (folder / "A.lean").write_text(on_disk or source, encoding="utf-8")
    done: list[Attempt] = []
    budget = Budget(nodes=100, seconds=20, tactic_timeout_s=5)
    prover = FileProver(backend, project=folder, path="A.lean", budget=budget, done=done.append)
    asyncio.run(prover.run(wanted(source)))
    return {attempt.wanted.sorry: attempt for attempt in done}


def test_a_crash_costs_the_sorry_it_happened_at_and_no_other(tmp_path: Path) -> None:
    backend = fragile(tmp_path, deadly="'frontend.distil' in line and 'poison' in line")
    attempts = run(tmp_path, SOURCE, backend=backend)
    assert {name: attempt.outcome for name, attempt in attempts.items()} == {
        "first": "found",
        "poison": "error",
        "last": "found",
    }
    assert "stack overflow" in attempts["poison"].detail


def test_a_text_that_kills_every_process_is_given_up_after_two(tmp_path: Path) -> None:
    source = "theorem poison : True := trivial\n" + SOURCE.replace("poison", "second")
    attempts = run(tmp_path, source, backend=fragile(tmp_path, deadly="'poison' in line"))
    assert {attempt.outcome for attempt in attempts.values()} == {"error"}
    assert "tried twice" in attempts["last"].detail


def test_a_lean_that_does_not_start_is_the_caller_s_to_judge(tmp_path: Path) -> None:
    backend = dataclasses.replace(fragile(tmp_path, deadly="True"), argv=(str(tmp_path / "missing"),))
    with pytest.raises(ReplStartError):
        run(tmp_path, SOURCE, backend=backend)


def test_a_file_that_is_not_the_version_asked_for_is_left_alone(tmp_path: Path) -> None:
    backend = find_lean(backend="simulator", repl="", sandbox="none")
    attempts = run(tmp_path, SOURCE, backend=backend, on_disk=SOURCE + "-- changed\n")
    assert {attempt.outcome for attempt in attempts.values()} == {"error"}
    assert all("is not blob" in attempt.detail for attempt in attempts.values())


def test_an_earlier_sorried_theorem_is_known_to_the_later_ones(tmp_path: Path) -> None:
    source = "def two : Nat := 2\ntheorem gap : two = 2 := sorry\ntheorem uses : two = 2 ∧ two = two := by\n  sorry\n"
    attempts = run(tmp_path, source, backend=find_lean(backend="simulator", repl="", sandbox="none"))
    assert {attempt.outcome for attempt in attempts.values()} == {"found"}
