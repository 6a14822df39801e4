"""Red team: a project that answers what the gate asks Lean, or says what the names of Lean's own library mean."""

from __future__ import annotations

import json

import pytest

from pipeline.lean.client.process import lean_path
from store.events.proofs import ProofChecked
from tests.support.gate import FILE, Case, GateProject
from tests.support.lean.credulous import Rule

PROOF = "exact ⟨h.2, h.1⟩"
WITH_THE_PROOF = r"theorem mine .*\n  exact"
LIBRARY = ".lake/build/lib/lean/"


def reason(verdict: ProofChecked, step: str = "axioms") -> str:
    return next(one.evidence for one in verdict.checks if one.step == step and one.verdict == "not_checked")


@pytest.mark.parametrize(
    "module", ["Lean", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Init", "Std"))]
)
def test_building_the_proof_puts_no_module_before_lean_s_own(court: GateProject, module: str) -> None:
    """Written by the second build, the project's `Lean` would be what `import Lean` of the question means."""
    rules = (Rule(WITH_THE_PROOF, writes=f"{LIBRARY}{module}.olean"),)
    assert f"a module {module} of its own" in reason(court.candidate(Case(PROOF, rules=rules)))


def test_the_toolchain_s_library_is_first_on_the_search_path(court: GateProject) -> None:
    """Nothing that a project builds can hide a module of Lean's."""
    (court.project / LIBRARY).mkdir(parents=True)
    library = court.backend().library
    assert library is not None
    first, *rest = lean_path(court.project, library=library).split(":")
    assert first == str(library)
    assert str(court.project / LIBRARY).rstrip("/") in rest


@pytest.mark.parametrize("name", ["Lean.Evil", "Init.Tactics", "Std"])
def test_a_module_with_a_name_of_lean_s_library_comes_from_there_or_nothing_counts(
    court: GateProject, name: str
) -> None:
    package = court.project / ".lake" / "packages" / "evil" / LIBRARY / f"{name.replace('.', '/')}.olean"
    package.parent.mkdir(parents=True)
    package.write_text(json.dumps({"text": "-- evil\n", "statements": {}, "imports": []}))
    verdict = court.candidate(Case(PROOF, file=f"import {name}\n" + FILE))
    assert "of its own" in reason(verdict) or f"Lean read {name} from" in reason(verdict)


def test_a_question_without_an_exact_answer_is_not_answered_by_a_printed_one(court: GateProject) -> None:
    """The module can redefine `#print axioms`, and make our script silent by what it declares."""
    data = "'CONSTANT' does not depend on any axioms"
    said = json.dumps({"severity": "information", "pos": {"line": 2}, "fileName": "FILE", "data": data})
    verdict = court.candidate(Case(PROOF, rules=(Rule("", questions=1, printed=said),)))
    assert {"axioms", "statement"} <= set(verdict.not_checked)


def test_a_printed_answer_that_names_more_than_the_exact_one_refuses(court: GateProject) -> None:
    data = "'CONSTANT' depends on axioms: [Demo.cheat]"
    said = json.dumps({"severity": "information", "pos": {"line": 2}, "fileName": "FILE", "data": data})
    court.rejected(Case(PROOF, rules=(Rule("", printed=said),)), step="axioms")


@pytest.mark.parametrize(
    "axiom",
    ["propext", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Quot.sound", "Classical.choice"))],
)
def test_an_axiom_is_allowed_by_its_home_and_not_by_its_name(court: GateProject, axiom: str) -> None:
    """`axiom propext : ∀ p : Prop, p` of a file without Lean's beginning proves anything."""
    allowed = Case(PROOF, rules=(Rule("", axioms=(axiom,)),))
    assert court.verified(allowed).axioms == (axiom,)
    event = court.rejected(Case(PROOF, rules=(Rule("", axioms=(axiom,), home="Evil"),)), step="axioms")
    assert f"rests on {axiom} of Evil" in event.reason


def test_a_prelude_file_is_refused(court: GateProject) -> None:
    """It declares Lean's own names for itself."""
    case = Case(PROOF, file="prelude\nimport Init.Core\n" + FILE)
    assert "is a prelude file" in reason(court.candidate(case))
