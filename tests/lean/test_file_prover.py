"""A file's sorries on the pool's REPLs, and what happens when these die. The simulator stands in for Lean."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path

import pytest

from pipeline.jobs.specs import Budget, SorryToProve
from pipeline.lean.backend import LeanBackend, simulator
from pipeline.lean.client.errors import ReplStartError
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import PoolStats, ReplPool
from pipeline.lean.source.scanner import scan_source
from pipeline.prove.effort import Attempt
from pipeline.prove.file import FileProver
from store.domain.identity import git_blob

SOURCE = """theorem first (p : Prop) : p → p := sorry
theorem poison (p : Prop) : p → p := sorry
theorem last (p q : Prop) : p ∧ q → p := by
  sorry
"""
# Passes everything on to the simulator, and dies where a real Lean would have run out of stack.
FRAGILE = """
import os, subprocess, sys
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
    backend = simulator()
    return dataclasses.replace(backend, argv=(sys.executable, str(script)))


def wanted(source: str) -> list[SorryToProve]:
    data = source.encode()
    scanned = scan_source(data, path="A.lean")
    return [
        SorryToProve(
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


def run(
    folder: Path,
    source: str,
    *,
    backend: LeanBackend,
    on_disk: str | None = None,
    limits: PoolLimits | None = None,
    pools: list[PoolStats] | None = None,
) -> dict[str, Attempt]:
    (folder / "A.lean").write_text(on_disk or source, encoding="utf-8")
    done: list[Attempt] = []
    budget = Budget(nodes=100, seconds=20, tactic_timeout_s=5)

    async def main() -> None:
        async with ReplPool(limits) as pool:
            prover = FileProver(
                backend, pool=pool, project=folder, path="A.lean", budget=budget, done=done.append
            )
            await prover.run(wanted(source))
            if pools is not None:
                pools.append(pool.stats)

    asyncio.run(main())
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


def test_what_another_command_holds_is_given_to_no_prover(tmp_path: Path) -> None:
    source = "#time theorem a (p : Prop) : p → p := sorry\n\nGoal (p : Prop) : p → p := sorry\n"
    attempts = run(tmp_path, source, backend=simulator())
    assert {name: (one.outcome, one.detail) for name, one in attempts.items()} == {
        "a": ("unsupported", "a is held by the command #time, which may do anything"),
        "_Goal": ("unsupported", "_Goal is held by the command Goal, which may do anything"),
    }


def test_one_process_serves_all_the_declarations_of_a_file(tmp_path: Path) -> None:
    pools: list[PoolStats] = []
    backend = simulator()
    attempts = run(tmp_path, SOURCE, backend=backend, pools=pools)
    assert {attempt.outcome for attempt in attempts.values()} == {"found"}
    assert pools[0].started == 1


def test_the_older_dialect_s_goals_are_searched_as_well(tmp_path: Path) -> None:
    backend = simulator()
    older = dataclasses.replace(backend, argv=(*backend.argv, "--dialect", "old"))
    newer = run(tmp_path, SOURCE, backend=backend)
    assert {name: attempt.proof for name, attempt in run(tmp_path, SOURCE, backend=older).items()} == {
        name: attempt.proof for name, attempt in newer.items()
    }


HARD = """def two : Nat := 2
theorem first (p q : Prop) : p ∧ q → q ∧ p := sorry
theorem last (p q r : Prop) : (p ∨ q) ∨ r → p ∨ (q ∨ r) := by
  sorry
"""


def test_a_process_that_dies_in_mid_search_loses_nothing_but_time(tmp_path: Path) -> None:
    calm = run(tmp_path, HARD, backend=simulator())
    # Each of these ends the process that is asked for it first, in the middle of a search.
    words = ("rcases", "simp_all", "trivial")
    deadly = f"any(word in line and not os.path.exists(word) and os.mkdir(word) is None for word in {words})"
    pools: list[PoolStats] = []
    shaken = run(tmp_path, HARD, backend=fragile(tmp_path, deadly=deadly), pools=pools)
    assert pools[0].died == 3
    for name, attempt in calm.items():
        assert (attempt.outcome, attempt.proof) == ("found", shaken[name].proof)
        assert shaken[name].effort.repl_calls > attempt.effort.repl_calls


def test_a_tactic_that_kills_lean_counts_as_failed_and_is_reported(tmp_path: Path) -> None:
    source = "theorem open_question (p : Prop) : p ∨ ¬p := sorry\n"
    pools: list[PoolStats] = []
    deadly = "'goal.tactic' in line and '\"simp\"' in line"
    attempts = run(tmp_path, source, backend=fragile(tmp_path, deadly=deadly), pools=pools)
    assert attempts["open_question"].outcome == "exhausted"
    assert "tactics that ended the process each time" in attempts["open_question"].detail
    assert pools[0].died >= 2


def test_processes_are_replaced_in_mid_search_without_harm(tmp_path: Path) -> None:
    backend = simulator()
    calm = run(tmp_path, HARD, backend=backend)
    pools: list[PoolStats] = []
    worn = run(tmp_path, HARD, backend=backend, limits=PoolLimits(processes=1, calls=10), pools=pools)
    assert {name: attempt.proof for name, attempt in worn.items()} == {
        name: attempt.proof for name, attempt in calm.items()
    }
    assert pools[0].recycled > 0


def test_a_text_that_kills_every_process_is_given_up_after_two(tmp_path: Path) -> None:
    source = "theorem poison : True := trivial\n" + SOURCE.replace("poison", "second")
    attempts = run(tmp_path, source, backend=fragile(tmp_path, deadly="'poison' in line"))
    assert {attempt.outcome for attempt in attempts.values()} == {"error"}
    assert "tried twice" in attempts["last"].detail


def test_a_lean_that_does_not_start_is_the_caller_s_to_judge(tmp_path: Path) -> None:
    backend = dataclasses.replace(fragile(tmp_path, deadly="True"), argv=(str(tmp_path / "missing"),))
    with pytest.raises(ReplStartError):
        run(tmp_path, SOURCE, backend=backend)


def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    backend = simulator()
    attempts = run(tmp_path, SOURCE, backend=backend, on_disk=SOURCE + "-- changed\n")
    assert {attempt.outcome for attempt in attempts.values()} == {"error"}
    assert all("is not blob" in attempt.detail for attempt in attempts.values())


def test_an_earlier_sorried_theorem_is_known_to_the_later_ones(tmp_path: Path) -> None:
    source = "def two : Nat := 2\ntheorem gap : two = 2 := sorry\ntheorem uses : two = 2 ∧ two = two := by\n  sorry\n"
    attempts = run(tmp_path, source, backend=simulator())
    assert {attempt.outcome for attempt in attempts.values()} == {"found"}
