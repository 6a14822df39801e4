"""Experiments of provers: budgets that add up, premises that decide, and rungs on a repository's sorries."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from experiments import learning, proving
from experiments.__main__ import main
from experiments.families import Rows
from experiments.file import Learning, Proving, RowsFamily
from experiments.lab import Lab
from store.log.reader import LogReader
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import TOOLCHAIN, real_elan

# The splits are for life: use2 is always a test, use7 is always in val, the others are learned from.
USES = "".join(
    f"theorem use{n} (p q{n} : Prop) (hp : p) : p := by\n  exact keep p hp\n\n" for n in (0, 1, 2, 3, 7)
)
FILES = {
    "lakefile.toml": 'name = "small"\ndefaultTargets = ["Logic", "Open"]\n[[lean_lib]]\nname = "Basic"\n',
    "Basic.lean": "theorem keep (p : Prop) (h : p) : p := h\n",
    "Logic.lean": f"import Basic\n\n{USES}",
    "Open.lean": "import Basic\n\ntheorem four : 2 + 2 = 4 := by\n  sorry\n",
}
ROWS = {"source": "rows", "learned_from": 40, "held_out": 2}


def experiment(theorems: object, **others: object) -> Proving:
    return Proving.model_validate(
        {"kind": "proving", "about": "a try", "seeds": [1], "theorems": theorems, **others}
    )


def figures(lab: Lab, given: Proving, name: str) -> list[dict[str, float]]:
    """Of each budget, the theorems that it tried."""
    known = lab.finished(proving._trial(given, name, given.arms[name], 1))
    assert known is not None
    return [dict(known.figures[what]) for what in known.order]


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("real_lean")
def test_a_larger_budget_tries_what_a_smaller_one_left_and_premises_decide(tmp_path: Path) -> None:
    arms = {
        "none": {"rung": 0},
        "retrieved": {"rung": 0, "premises": "retrieved"},
    }
    given = experiment(ROWS, shown=4, budgets=[10, 40], arms=arms)
    with Lab(tmp_path, "premises", "", print) as lab:
        result = proving.run(given, lab)
        for name in arms:
            first, second = figures(lab, given, name)
            assert len(first) == 2
            assert second.keys() == {theorem for theorem, proved in first.items() if not proved}
        assert not any(value for each in figures(lab, given, "none") for value in each.values())
        first, second = figures(lab, given, "retrieved")
    none, *_, retrieved = result.rows
    assert none[:3] == ("none", "0.0", "0.0")
    assert float(retrieved[2]) == 50 * sum(value for each in (first, second) for value in each.values())
    assert float(retrieved[2]) > 0


def test_without_lean_an_experiment_says_so_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAN_SHARED", str(tmp_path / "nowhere"))
    arguments = ["experiments/small/premises.yaml", "--folder", str(tmp_path / "run"), "--out", str(tmp_path)]
    assert main(arguments) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("Lean 4.35.0 cannot be built here")


@pytest.mark.usefixtures("real_lean")
def test_each_problem_is_proved_by_its_lemma_below_the_lemmas_of_both_volumes(
    real_lean: Path, tmp_path: Path
) -> None:
    family = Rows(1, RowsFamily.model_validate({**ROWS, "held_out": 12}))
    text = "\n".join([family.above, *(one.text((f"rw [{one.theorem.lemma}]",)) for one in family.problems)])
    (tmp_path / "All.lean").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [real_lean / "bin" / "lean", "All.lean"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture
def source(tmp_path: Path, real_lean: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A repository for Lean 4.35.0, as an experiment's file names it."""
    monkeypatch.setenv("ELAN_HOME", str(real_elan(tmp_path / "tools")))
    remote = Remote(tmp_path / "remotes" / "small")
    sha = remote.commit("first", {"lean-toolchain": f"{TOOLCHAIN}\n", **FILES})
    config = tmp_path / "config.toml"
    config.write_text(
        '[lean]\nsandbox = "none"\nas_root = true\n[train]\ndevice = "cpu"\n[prove.generator]\ndevice = "cpu"\n',
        encoding="utf-8",
    )
    return {
        "source": "repositories",
        "state": tmp_path / "state",
        "config": config,
        "repositories": [{"url": f"file://{remote.path}", "commit": sha}],
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rungs_try_the_sorries_of_a_repository_each_in_a_store_of_its_own(
    tmp_path: Path, source: dict[str, object]
) -> None:
    given = experiment(source, budgets=[20, 30], arms={"rung 0": {"rung": 0}, "again": {"rung": 0}})
    with Lab(tmp_path / "run", "sorries", "", print) as lab:
        result = proving.run(given, lab)
        # What the whole gate did not verify is not solved, and no stand-in's library makes that.
        assert [list(each.values()) for each in figures(lab, given, "again")] == [[0.0], [0.0]]
        for name in given.arms:
            own = lab.folder / "states" / proving._trial(given, name, given.arms[name], 1).identity
            assert recorded(own, "proof_found")
            assert recorded(own, "proof_checked")
    assert [row[:3] for row in result.rows] == [("rung 0", "0.0", "0.0"), ("again", "0.0", "0.0")]
    state = tmp_path / "state"
    assert recorded(state, "commit_traced")
    assert not recorded(state, "attempt_finished"), "an arm has worked in the store that all are copied from"

    # A list of SorryDB's has of a repository's sorries those that it names.
    (repository,) = given.theorems.model_dump()["repositories"]
    place = {"path": "Open.lean", "start_line": 4, "start_column": 2, "end_line": 4, "end_column": 7}
    remote = {"remote": repository["url"], "branch": "main", "commit": repository["commit"]}
    for line, found in ((4, [0.0]), (5, [])):
        row = {"repo": remote, "location": {**place, "start_line": line}, "id": "1"}
        path = tmp_path / f"{line}.json"
        path.write_text(json.dumps({"sorries": [row]}), encoding="utf-8")
        listed = {**source, "source": "sorrydb", "file": path}
        del listed["repositories"]
        given = experiment(listed, budgets=[20], arms={"rung 0": {"rung": 0}})
        with Lab(tmp_path / f"list-{line}", "sorries", "", print) as lab:
            proving.run(given, lab)
            assert [list(each.values()) for each in figures(lab, given, "rung 0")] == [found]


def recorded(state: Path, kind: str) -> bool:
    """Return whether a store has such an event."""
    with LogReader.open(state / "events.db") as log:
        return bool(list(log.read(types=[kind])))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_traced_repositories_are_learned_from(tmp_path: Path, source: dict[str, object]) -> None:
    given = Learning.model_validate(
        {
            "kind": "learning",
            "about": "a try",
            "seeds": [1],
            "tasks": source,
            "model": {"d_model": 16},
            "training": {"device": "cpu", "precision": "32-true", "batch_size": 1, "num_workers": 0},
            "arms": {"none": {"training": {"against_forgetting": "none"}}},
        }
    )
    with Lab(tmp_path / "run", "traced", "", print) as lab:
        ((rows,),) = learning.matrices(given, lab).values()
    assert len(rows) == 1
    assert 0 <= rows[0][0] <= 100
