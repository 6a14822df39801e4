"""Experiments of provers: budgets that add up, what is learned from, and rungs on a repository's sorries."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments import learning, proving
from experiments.__main__ import main
from experiments.file import Learning, LibraryTheorems, Proving
from experiments.lab import Lab
from experiments.theorems import HELD_OUT, SOURCES, Library
from pipeline.models.retriever.corpus import Corpus
from pipeline.models.retriever.finder import Finder, Place
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


def experiment(theorems: object, **others: object) -> Proving:
    return Proving.model_validate(
        {"kind": "proving", "about": "a try", "seeds": [1], "theorems": theorems, **others}
    )


def figures(lab: Lab, given: Proving, name: str) -> list[dict[str, float]]:
    """Of each budget, the theorems that it tried."""
    known = lab.finished(proving._trial(given, name, given.arms[name], 1))
    assert known is not None
    return [dict(known.figures[what]) for what in known.order]


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("real_lean")
def test_a_larger_budget_adds_to_a_smaller_one_and_a_lemma_is_learned_by_the_proof_that_was_found(
    tmp_path: Path,
) -> None:
    arms = {"none": {"rung": 0}, "words": {"rung": 0, "premises": "bm25"}}
    given = experiment(
        {"source": "library", "held_out": 1}, shown=4, budgets=[2, 6], arms=arms, against=["none", "words"]
    )
    with Lab(tmp_path, "premises", "", print) as lab:
        result = proving.run(given, lab)
        for name in arms:
            first, second = figures(lab, given, name)
            assert len(first) == 1
            assert second.keys() == {theorem for theorem, proved in first.items() if not proved}
        assert result.head[3:5] == ("against none", "against words")
        assert [row[0] for row in result.rows] == [*arms]
        # A lemma is proved with as many tactics as its proof took, and with one less it is not.
        assert isinstance(given.theorems, LibraryTheorems)
        bench = proving._Bench(given, given.theorems, 1, lab)
        lemma = next(one for one in bench._lemmas if one.name == "Nat.one_add")
        commutes = Named(bench._corpus, "Nat.add_comm")
        ((proof, tactics),) = asyncio.run(bench._search([lemma], commutes, 40)).values()
        for most, expected in ((tactics, (proof, tactics)), (tactics - 1, ("", 0))):
            assert [*asyncio.run(bench._search([lemma], commutes, most)).values()] == [expected]
        assert "Nat.add_comm" in proof
        task = bench._dataset_of("own", [lemma], {lemma.name: proof})
    (row,) = json.loads((task.dataset / "random" / "train.json").read_text())
    assert "Nat.add_comm" in [use["full_name"] for use in row["traced_tactics"][0]["annotated_tactic"][1]]
    assert row["traced_tactics"][0]["state_before"].endswith("⊢ 1 + n = n + 1")


class Named(Finder):
    """Finds one premise."""

    def __init__(self, corpus: Corpus, name: str) -> None:
        super().__init__(corpus, premises=1)
        self._found = [number for number, one in enumerate(corpus) if one.full_name == name]

    def rank(self, asked: Sequence[tuple[str, Place]], k: int) -> list[list[int]]:
        return [self._found for _ in asked]


def test_without_lean_an_experiment_says_so_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAN_SHARED", str(tmp_path / "nowhere"))
    arguments = ["experiments/real/proving.yaml", "--folder", str(tmp_path / "run"), "--out", str(tmp_path)]
    assert main(arguments) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("Lean 4.35.0 cannot be built here")


@pytest.mark.timeout(300)
def test_the_library_builds_and_what_is_held_out_of_it_is_proved_below_it(
    real_lean: Path, tmp_path: Path
) -> None:
    library = Library(real_lean)
    library.build(tmp_path)
    # As the search states them: below everything, under names of their own.
    question = "\n".join(one.asked() for one in (*library.lemmas, *library.held_out))
    (tmp_path / "Asked.lean").write_text(f"import {library.imports[0]}\n{question}\n", encoding="utf-8")
    for file, proved in ((SOURCES / HELD_OUT, True), (tmp_path / "Asked.lean", False)):
        result = subprocess.run(
            [real_lean / "bin" / "lean", file],
            env={"LEAN_PATH": str(tmp_path / ".lake" / "build" / "lib" / "lean")},
            capture_output=True,
            text=True,
        )
        lines = [line for line in result.stdout.splitlines() if "declaration uses" not in line]
        assert (result.returncode, lines) == (0, [])
        assert ("declaration uses" in result.stdout) is not proved
    assert (len(library.lemmas), len(library.held_out)) == (374, 150)


def test_what_is_held_out_stands_nowhere_in_what_is_learned(real_lean: Path) -> None:
    library = Library(real_lean)
    names = {one.name for each in library.premises.values() for one in each}
    stated = {"".join(one.statement.split()) for each in library.premises.values() for one in each}
    assert names.isdisjoint(one.name for one in library.held_out)
    assert stated.isdisjoint("".join(one.statement.split()) for one in library.held_out)
    by_name = {one.name: one for one in library.lemmas}
    named = library.named(by_name["Nat.pow_add"], by_name["Nat.pow_add"].proof)
    assert [one.name for one in named] == [
        f"Nat.{name}" for name in ["add_zero", "pow_zero", "mul_one", "add_succ", "pow_succ", "mul_assoc"]
    ]


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
