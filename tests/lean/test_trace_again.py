"""Which files of a commit the trace job traces again, what a crash or a failing file costs, and where a line stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.known import known_to_trace
from pipeline.lean.pool import PoolLimits
from store.view import trace_queries
from tests.support.daemon.remote import git
from tests.support.trace import ALONE, BASE, FILES, IMPORTED, KEY, MID, Workshop, lean_itself, lean_that_dies
from tests.support.views import sorry_steps

PROJECT = {path for path in FILES if path.endswith(".lean")}


@pytest.fixture(scope="module")
def undisturbed(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the trace of `FILES` says where nothing went wrong."""
    workshop = Workshop(tmp_path_factory.mktemp("undisturbed"), lean_itself(real_lean))
    workshop.commit(FILES)
    workshop.build(*IMPORTED)
    assert workshop.trace().returncode == 0
    yield record_of(workshop)
    workshop.close()


@pytest.fixture
def workshop(real_lean: Path, tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path, lean_itself(real_lean))
    yield made
    made.close()


@pytest.mark.slow
def test_a_commit_has_only_those_files_traced_again_whose_trace_may_differ(workshop: Workshop) -> None:
    files = {
        "Base.lean": "theorem base : True := trivial\n",
        "Mid.lean": "import Base\n\ntheorem mid : True := base\n",
        "Leaf.lean": "import Mid\n\ntheorem leaf : True := mid\n",
        "Sub/Alone.lean": ALONE,
    }
    workshop.commit(files)
    workshop.build(*IMPORTED)
    assert workshop.trace().traced == set(files)
    workshop.commit({"README.md": "words\n"})
    assert workshop.trace().traced == set()
    workshop.commit({"Leaf.lean": files["Leaf.lean"] + "\n-- a word\n"})
    assert workshop.trace().traced == {"Leaf.lean"}
    workshop.commit({"Base.lean": files["Base.lean"] + "\ndef dozen : Nat := 12\n"})
    assert workshop.trace().traced == {"Base.lean", "Mid.lean", "Leaf.lean"}
    workshop.commit({"Sub/Alone.lean": None, "Moved.lean": ALONE})
    outcome = workshop.trace()
    assert outcome.traced == {"Moved.lean"}
    assert [item["path"] for item in outcome.of("traced_file_removed")] == ["Sub/Alone.lean"]
    everything = set(files) - {"Sub/Alone.lean"} | {"Moved.lean"}
    assert {
        row.path for row in trace_queries.files_of_trace(workshop.db, workshop.newest.trace)
    } == everything
    workshop.commit({"lake-manifest.json": '{"version": "1.1.0", "packages": [1]}\n'})
    assert workshop.trace().traced == everything
    workshop.commit({"lean-toolchain": "leanprover/lean4:v4.36.0\n"})
    assert workshop.trace().traced == everything
    # All commits have their counts, also of files that they did not touch.
    assert {row.n_theorems for row in trace_queries.traces(workshop.db)} == {4}
    assert {row.theorems_seen for row in trace_queries.newest_measures(workshop.db)} == {4}


@pytest.mark.parametrize("batches", [1, 4, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 5))])
def test_a_run_that_is_killed_anywhere_is_completed_by_another_that_traces_only_what_is_left(
    workshop: Workshop, undisturbed: dict[str, Any], batches: int
) -> None:
    workshop.commit(FILES)
    workshop.build(*IMPORTED)
    # A batch a file, and the closing one.
    killed = workshop.killed_trace(batches, limits=PoolLimits(processes=1))
    assert len(killed.traced) == min(batches, len(PROJECT))
    if batches <= len(PROJECT):
        assert trace_queries.traces(workshop.db) == [], "nothing counts before the commit is closed"
    resumed = workshop.trace()
    assert killed.traced | resumed.traced == PROJECT
    assert not killed.traced & resumed.traced
    assert record_of(workshop) == undisturbed


def record_of(workshop: Workshop) -> dict[str, Any]:
    """Everything that a trace says, but for the commit's id and the time."""
    newest, (measure,) = workshop.newest, trace_queries.newest_measures(workshop.db)
    return {
        "files": {path: workshop.file(path) for path in PROJECT},
        "counts": (newest.files_traced, newest.n_theorems, newest.n_premises, newest.n_tactics),
        "measure": replace(measure, trace="", sha="", seq=0, measured_at=""),
        "gaps": trace_queries.gaps_of_trace(workshop.db, newest.trace),
        "goals": {(row.sorry, row.goal) for row in trace_queries.sorry_goals(workshop.db)},
        "steps": sorted((step.sorry, step.step, step.detail) for step in sorry_steps(workshop.db)),
    }


def test_a_process_that_dies_costs_its_file_and_no_other(workshop: Workshop, real_lean: Path) -> None:
    workshop.commit({"Base.lean": BASE, "Mid.lean": MID, "Sub/Alone.lean": ALONE})
    workshop.build("Base.lean")
    workshop.lean = lean_that_dies(workshop.root, real_lean, on="Mid")
    outcome = workshop.trace()
    assert outcome.summary["failed"] == 1
    errors = {item["path"]: item["error"] for item in outcome.of("file_traced")}
    assert errors["Base.lean"] is None
    assert errors["Sub/Alone.lean"] is None
    assert errors["Mid.lean"] == "Lean gave no trace: Trace.lean: exit status 1: Lean is out of breath"
    (gap,) = (
        gap for gap in trace_queries.gaps_of_trace(workshop.db, workshop.newest.trace) if gap.kind == "file"
    )
    assert (gap.path, gap.reason) == ("Mid.lean", errors["Mid.lean"])
    assert workshop.file("Mid.lean").premises, "what the scanner reads is there all the same"
    (measure,) = trace_queries.newest_measures(workshop.db)
    assert (measure.files_seen, measure.files_traced, measure.theorems_seen - measure.theorems_traced) == (
        3,
        2,
        3,
    )
    # The next commit gives it another chance.
    workshop.lean = lean_itself(real_lean)
    workshop.commit({"README.md": "more\n"})
    assert workshop.trace().traced == {"Mid.lean"}
    assert workshop.newest.files_failed == 0


def test_a_file_that_fails_has_its_turn_once_a_commit_also_where_it_failed_before(
    workshop: Workshop, real_lean: Path
) -> None:
    workshop.lean = lean_that_dies(workshop.root, real_lean, on="Mid")
    workshop.commit({"Mid.lean": MID, "Sub/Alone.lean": ALONE})
    assert workshop.trace().summary["failed"] == 1
    workshop.commit({"README.md": "more\n"})
    killed = workshop.killed_trace(1)
    assert killed.traced == {"Mid.lean"}, "another commit, another chance"
    resumed = workshop.trace()
    assert resumed.traced == set(), "it failed at this commit in the same words as before"
    assert resumed.summary["failed"] == 1


@pytest.mark.slow
def test_what_another_lean_says_in_the_same_words_is_recorded_too(workshop: Workshop) -> None:
    workshop.commit({"A.lean": ALONE})
    workshop.trace()
    workshop.commit({"lake-manifest.json": "{}"})
    killed = workshop.killed_trace(1)
    assert killed.traced == {"A.lean"}
    workshop.lean = replace(workshop.lean, toolchain="leanprover/lean4:v4.9.0")
    assert workshop.trace().traced == {"A.lean"}
    assert workshop.newest.sha == workshop.sha
    assert workshop.trace().traced == set()


def test_two_branches_at_one_commit_have_a_measure_and_a_position_each(workshop: Workshop) -> None:
    workshop.commit({"A.lean": ALONE})

    def trace(branch: str) -> None:
        known = known_to_trace(workshop.db, repository=KEY, branch=branch)
        assert workshop.trace(branch=branch, known=known).returncode == 0

    trace("main")
    before = trace_queries.line_position(workshop.db, KEY, "branch:main")
    trace("side")
    assert [(row.line, row.sha) for row in trace_queries.newest_measures(workshop.db)] == [
        ("branch:main", workshop.sha),
        ("branch:side", workshop.sha),
    ]
    assert trace_queries.line_position(workshop.db, KEY, "branch:main") == before


@pytest.mark.slow
def test_a_commit_that_comes_back_is_recorded_again(workshop: Workshop) -> None:
    workshop.commit({"A.lean": "theorem a : True := trivial\n"})
    first = workshop.sha
    workshop.trace()
    workshop.commit({"A.lean": "theorem other : True := trivial\n"})
    workshop.trace()
    git(workshop.tree, "reset", "-q", "--hard", first)
    workshop.trace()
    assert workshop.newest.sha == first
    assert [item.full_name for item in workshop.file("A.lean").theorems] == ["a"]


def test_dependencies_that_are_imported_give_premises_and_are_read_once(workshop: Workshop) -> None:
    package = workshop.tree / ".lake" / "packages" / "algebra"
    package.mkdir(parents=True)
    (package / "Algebra.lean").write_text("import Algebra.Basic\n")
    (package / "Algebra").mkdir()
    (package / "Algebra" / "Basic.lean").write_text("theorem basic : True := trivial\n")
    (package / "Algebra" / "Unused.lean").write_text("theorem unused : True := trivial\n")
    workshop.commit({".gitignore": "/.lake\n", "A.lean": "import Algebra\n\ntheorem a : True := trivial\n"})
    # They are not built, so Lean refuses the file; what the scanner reads does not depend on it.
    outcome = workshop.trace()
    folder = ".lake/packages/algebra"
    assert outcome.summary["dependencies"] == 2
    assert outcome.traced == {"A.lean", f"{folder}/Algebra.lean", f"{folder}/Algebra/Basic.lean"}
    assert [item.full_name for item in workshop.file(f"{folder}/Algebra/Basic.lean").premises] == ["basic"]
    assert workshop.file(f"{folder}/Algebra.lean").imports == (f"{folder}/Algebra/Basic.lean",)
    assert workshop.file("A.lean").imports == (f"{folder}/Algebra.lean",)
    workshop.commit({"B.lean": ALONE})
    assert not {path for path in workshop.trace().traced if path.startswith(".lake")}
