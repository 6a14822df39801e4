"""What one repository leaves open and another, or Lean's own library, proves: found by the types that Lean gives both,
filled by rung 0 and judged by the gate. Lean is Lean itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.gate import lake_checks
from pipeline.gate.second_kernel import OFF
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.specs import CheckSpec
from store.documents.sorries import describe_sorries
from store.documents.theorems import describe_theorems
from store.events.proofs import ProofFound, ProofVerified
from store.view import queries, transfers
from tests.support.lean.real_gate import FIRST_MODULE, RealGate
from tests.support.prove import FILE, attempts, parameters, run
from tests.support.trace import KEY, Workshop, lean_itself

SYMM = ".lake/packages/lean4/src/lean/Init/Base.lean"
OTHER = "example.org/you/parity"
EVEN = """inductive Even : Nat → Prop
  | zero : Even 0
  | more (n : Nat) (h : Even n) : Even (n + 2)
"""
ASKS = f"""{EVEN}
section
variable {{k : Nat}} (given : Even k)
include given
theorem grows : Even (k + 4) := sorry
end

theorem turned {{α : Sort w}} {{x y : α}} (e : x = y) : y = x := by
  sorry

theorem turned_too {{α : Sort u}} (a b : α) : a = b → b = a := fun h => by rw [h]
theorem halves (p q : Prop) (h : p ∧ q) : p ∧ True := by
  constructor
  · sorry
  · sorry
theorem nowhere (p q : Prop) : p → q := sorry
"""
PROVES = f"""{EVEN}
namespace Even
theorem four_more (n : Nat) : Even n → Even (n + 4) := by
  intro h -- so far
  have two : Even (n + 2) := .more _ h
  exact .more _ two
theorem open_too (n : Nat) (h : Even n) : Even (n + 4) := sorry
end Even
theorem part (p q : Prop) (h : p ∧ q) : p ∧ True := ⟨h.1, trivial⟩
"""


@pytest.fixture(scope="module")
def asking(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """The repository that asks; the one that proves is beside it."""
    folder = tmp_path_factory.mktemp("transfers")
    asking = Workshop(folder / "asks", lean_itself(real_lean))
    proving = Workshop(folder / "proves", lean_itself(real_lean), OTHER, beside=asking)
    for workshop, text in ((asking, ASKS), (proving, PROVES)):
        workshop.commit({FILE: text, "lean-toolchain": "leanprover/lean4:v4.35.0\n"})
        assert workshop.trace().summary["failed"] == 0
    yield asking
    asking.close()


def found(asking: Workshop) -> dict[str, list[transfers.Transfer]]:
    names = {row.sorry: row.declaration for row in queries.sorries(asking.db, repository=KEY, branch="main")}
    rows = transfers.transfers(asking.db, repository=KEY, branch="main")
    return {names[sorry]: found for sorry, found in rows.items()}


def test_what_states_the_same_is_found_whatever_its_variables_brackets_and_universes_are_called(
    asking: Workshop,
) -> None:
    rows = found(asking)
    assert rows.keys() == {"grows", "turned"}
    (grows,), (turned, own) = rows["grows"], rows["turned"]
    assert (grows.full_name, grows.repository, grows.path) == ("Even.four_more", OTHER, FILE)
    assert (grows.imported, grows.package) == (False, False)
    assert (turned.full_name, turned.imported, turned.package) == ("Eq.symm", True, True)
    assert (own.full_name, own.repository, own.package) == ("turned_too", KEY, False)
    assert transfers.asking(asking.db) == {KEY, OTHER}, "`open_too` asks what stands above it"


def test_a_sorry_shows_where_its_statement_is_proved(asking: Workshop) -> None:
    rows = queries.sorries(asking.db, repository=KEY, branch="main")
    told = {
        one.declaration: [where.text for where in one.elsewhere]
        for one in describe_sorries(asking.db, rows, elsewhere=True)
        if one.elsewhere
    }
    assert told == {
        "grows": [f"Even.four_more in {FILE} of {OTHER}"],
        "turned": [f"Eq.symm in {SYMM}", f"turned_too in {FILE} of {KEY}"],
    }


def test_a_project_s_theorem_that_lean_has_too_is_reported(asking: Workshop) -> None:
    (row,) = transfers.upstream(asking.db)
    assert (row.repository, row.path, row.name) == (KEY, FILE, "turned_too")
    assert (row.upstream, row.upstream_path) == ("Eq.symm", SYMM)
    (shown,) = describe_theorems(asking.db, queries.theorems_called(asking.db, "turned_too"))
    assert shown.upstream == [f"Eq.symm in {SYMM}"]


@pytest.fixture(scope="module")
def proofs(asking: Workshop, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ProofFound]:
    """What rung 0 finds, with one node to search in."""
    folder = tmp_path_factory.mktemp("prove")
    database = Path(asking.db.execute("PRAGMA database_list").fetchone()[2])
    given = parameters(
        folder, ASKS, lean=asking.lean, repository=KEY, branch="main", database_db=database,
        budget={"seconds": 20, "nodes": 1, "tactic_timeout_s": 5, "calls": 1},
    )  # fmt: skip
    rows = {
        (row.declaration, row.ordinal): row.sorry
        for row in queries.sorries(asking.db, repository=KEY, branch="main")
    }
    given["sorries"] = [
        one | {"sorry": rows[one["declaration"], one["ordinal"]]}
        for one in given["sorries"]
        if one["declaration"] in ("grows", "turned", "nowhere")
    ]
    bodies, _ = run(given, folder / "job")
    said = attempts(bodies)
    outcomes = {body.declaration: said[body.sorry].detail for body in bodies if isinstance(body, ProofFound)}
    assert outcomes == {
        "grows": f"by the proof of Even.four_more ({OTHER}, {FILE}), which states the same",
        "turned": f"by Eq.symm ({KEY}, {SYMM}), which states the same",
    }
    return {body.declaration: body for body in bodies if isinstance(body, ProofFound)}


@pytest.mark.parametrize("name", ["grows", "turned"])
def test_the_gate_takes_what_was_found_elsewhere(
    asking: Workshop,
    proofs: dict[str, ProofFound],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lake_checks, "FIRST_MODULE", FIRST_MODULE)
    court = RealGate(tmp_path / "court")
    (court.project / FILE).write_text(ASKS, "utf-8")
    given = CheckSpec(lean=court.backend(), proof=proofs[name], second_kernel=OFF)
    (verdict,) = court.recorded(JobSpec("check-1", "check", 1, tmp_path, given, worktree=court.project))
    assert isinstance(verdict, ProofVerified), verdict
