"""Traps: a proof that brings its own axiom, or trusts the compiler instead of the kernel.

The list is of what is allowed, never of what is not: each version of Lean has other names for computing natively.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from pipeline.gate.answers import Answer, BuiltModule, Stated
from pipeline.gate.finding import Finding
from pipeline.gate.lake_checks import judge_axioms
from pipeline.lean.export import Declared, Export
from tests.support.gate import Case, GateProject, Refused
from tests.support.lean.credulous import Rule

IN_THE_TEXT = {
    "a new axiom after the proof": "exact cheat\n\naxiom cheat : False",
    "a new axiom in a comment's shadow": "exact cheat /- -/\naxiom cheat : False",
    "a constant, which is an axiom": "exact x.elim\nopaque x : False",
    "native_decide": "native_decide",
    "native_decide in a term": "exact by native_decide",
    "decide +native": "decide +native",
    "decide with a configuration": "decide (config := { native := true })",
    "bv_decide, which trusts a solver's certificate natively": "bv_decide",
    "the axiom of native_decide": "exact Lean.ofReduceBool _ _ rfl",
    "the same, quoted": "exact «Lean».«ofReduceBool» _ _ rfl",
    "trusting the compiler": "exact Lean.trustCompiler.elim",
    "unsafe code": "exact unsafe lcProof",
    "a cast that checks nothing": "exact unsafeCast h",
    "what the compiler assumes": "exact lcProof",
}
FROM_LEAN = {
    "an axiom of the project": "Demo.cheat",
    "native computation, old": "Lean.ofReduceBool",
    "native computation, old, second": "Lean.trustCompiler",
    "native computation, new": "Demo.mine._native.native_decide.ax_1",
    "native computation of a lemma": "Demo.helper._native.bv_decide.ax_1_2",
    "a name that ends like an allowed one": "Demo.propext",
    "a name that begins like an allowed one": "Classical.choice'",
    "another library's axiom": "Classical.choice.extra",
}


LIBRARY = Path("/lean/lib/lean")


def answer(*axioms: str, home: str = "Init.Core") -> Answer:
    """What a Lean says that has read `Init.Core` of its own library and the project's `A`."""
    modules = (
        BuiltModule("Init.Core", LIBRARY / "Init" / "Core.olean", ()),
        BuiltModule("A", Path("/project/A.olean"), ("Init",)),
    )
    homes = dict.fromkeys(axioms, home)
    export = Export(declared={tuple(one.split(".")): Declared("axiom", b"", b"") for one in axioms})
    stated = Stated("theorem", b"")
    return Answer(
        "4.28.0",
        modules,
        axioms,
        homes,
        (),
        (),
        (),
        {},
        ("Demo", "mine"),
        stated,
        {},
        frozenset(),
        None,
        None,
        export,
    )


def test_an_axiom_whose_one_part_reads_like_an_allowed_name_is_another() -> None:
    """A second kernel permits axioms by a text in which parts are joined by dots."""
    said = dataclasses.replace(answer("Classical.choice"), export=answer().export)
    said.export.declared["Classical.choice",] = Declared("axiom", b"", b"")
    finding = judged(said, ("Classical.choice",))
    assert (finding.verdict, finding.evidence) == (
        "failed",
        "Demo.mine rests on «Classical.choice», as its export names it",
    )


def judged(exact: Answer, printed: tuple[str, ...] | str) -> Finding:
    return judge_axioms(exact, printed, declaration="Demo.mine", by="Lean", library=LIBRARY)


@pytest.mark.parametrize("proof", IN_THE_TEXT.values(), ids=IN_THE_TEXT.keys())
def test_the_text_gives_it_away(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")


@pytest.mark.parametrize("axiom", FROM_LEAN.values(), ids=FROM_LEAN.keys())
def test_an_axiom_that_is_not_allowed_is_refused(axiom: str) -> None:
    for exact, printed in (
        (answer(axiom), "no answer"),
        (answer("propext"), ("propext", axiom)),
        (answer(axiom), ()),
    ):
        finding = judged(exact, printed)
        assert finding.verdict == "failed"
        assert f"rests on {axiom}" in finding.evidence


def test_what_is_unsafe_is_refused() -> None:
    unsafe = dataclasses.replace(answer("propext"), unsafe=("Demo.cheat",))
    assert judged(unsafe, ()).verdict == "failed"


def test_native_computation_is_refused_through_the_whole_job(court: GateProject) -> None:
    case = Case("finish_it", rules=(Rule("finish_it", axioms=("Demo.mine._native.native_decide.ax_1",)),))
    assert court.rejected(case, step="axioms").conditional_on == ()


def test_the_exact_answer_alone_refuses(court: GateProject) -> None:
    rules = (Rule("finish_it", printed="no idea"), Rule("finish_it", axioms=("Demo.cheat",)))
    court.rejected(Case("finish_it", rules=rules), step="axioms")


def test_the_printed_answer_refuses_what_the_exact_one_allows() -> None:
    finding = judged(answer("propext"), ("propext", "sorryAx"))
    assert (finding.verdict, finding.axioms) == ("failed", ("propext", "sorryAx"))


def test_two_answers_that_do_not_agree_verify_nothing(court: GateProject) -> None:
    data = "'CONSTANT' does not depend on any axioms"
    said = json.dumps({"severity": "information", "pos": {"line": 2}, "fileName": "FILE", "data": data})
    rules = (Rule("finish_it", printed=said), Rule("finish_it", axioms=("propext",)))
    assert "axioms" in court.candidate(Case("finish_it", rules=rules)).not_checked
