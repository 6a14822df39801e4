"""The simulator as a process, driven by the real client: it works, and it never passes for Lean."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.messages import TacticOk
from pipeline.lean.client.repl import Repl, ReplStartError
from pipeline.lean.source.scanner import parse

SIMULATOR = [sys.executable, "-I", "-m", "pipeline.lean.simulator"]


def test_its_version_says_that_it_is_not_lean() -> None:
    said = subprocess.run([*SIMULATOR, "--version"], capture_output=True, text=True, check=True).stdout

    assert "simulator" in said
    assert "not Lean" in said


def test_it_says_so_on_stderr_at_its_start_and_ends_with_its_input() -> None:
    done = subprocess.run(SIMULATOR, input="", capture_output=True, text=True, check=True)

    assert done.stdout == "ready.\n"
    assert "not Lean" in done.stderr


def test_a_file_that_is_imported_gives_its_theorems(simulator: LeanBackend, tmp_path: Path) -> None:
    (tmp_path / "Demo").mkdir()
    (tmp_path / "Demo" / "Base.lean").write_text(
        "theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩\n", "utf-8"
    )

    async def run() -> None:
        async with await Repl.start(simulator, imports=["Demo.Base"], project=tmp_path) as repl:
            (target,) = await repl.distil("theorem t (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  sorry\n")
            assert target.goals[0].render() == "p : Prop\nq : Prop\nh : p ∧ q\n⊢ q ∧ p"
            result = await repl.goal_tactic(target.state, "exact swap p q h")
            assert isinstance(result, TacticOk)
            assert not result.goals
            assert (await repl.goal_print(result.state)).closed

    asyncio.run(run())


def test_a_missing_import_fails_at_the_start(simulator: LeanBackend, tmp_path: Path) -> None:
    with pytest.raises(ReplStartError, match=r"Gone\.lean"):
        asyncio.run(Repl.start(simulator, imports=["Gone"], project=tmp_path))


def test_the_projects_own_python_is_never_imported(simulator: LeanBackend, tmp_path: Path) -> None:
    """The working directory is someone's repository: a package of our name in it must not be picked up."""
    trap = tmp_path / "pipeline"
    trap.mkdir()
    (trap / "__init__.py").write_text("raise SystemExit('trapped')\n", "utf-8")
    (tmp_path / "json.py").write_text("raise SystemExit('trapped')\n", "utf-8")

    async def run() -> int:
        async with await Repl.start(simulator, imports=["Init"], project=tmp_path) as repl:
            return await repl.stat()

    assert asyncio.run(run()) == 0


def test_the_example_project_elaborates_with_nothing_but_sorries(simulator: LeanBackend) -> None:
    project = Path(__file__).resolve().parents[2] / "examples" / "demo-project"
    files = sorted(project.rglob("*.lean"))
    assert files

    async def run() -> int:
        holes = 0
        for path in files:
            text = path.read_text("utf-8")
            async with await Repl.start(
                simulator, imports=parse(text.encode()).imports, project=project
            ) as repl:
                for unit in await repl.process(text, read_header=True):
                    assert not unit.errors, (path, unit.errors)
                    holes += unit.uses_sorry
        return holes

    assert asyncio.run(run()) > 5
