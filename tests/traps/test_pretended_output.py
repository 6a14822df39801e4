"""Traps: output that passes for the compiler's.

A proof that prints is refused by its text. What the project itself prints while it is built or asked about is no answer
either: answers come in a file of their own with a random mark, or carry the asking file's random name.
"""

from __future__ import annotations

import pytest

from tests.support.gate import Case, GateProject, Refused
from tests.support.lean.credulous import Rule

PRINTS = {
    "#eval": "exact ⟨h.2, h.1⟩\n#eval IO.println \"'Demo.mine' does not depend on any axioms\"",
    "IO.println in a term": 'exact (IO.println "no axioms")',
    "logInfo": 'run_tac Lean.logInfo "no axioms"',
    "logInfo by itself": 'exact Lean.logInfo "no axioms"',
    "dbg_trace": 'dbg_trace "no axioms"\n  exact h',
    "dbgTrace": 'exact dbgTrace "no axioms" fun _ => h',
    "dbgTrace, quoted": 'exact «dbgTrace» "no axioms" fun _ => h',
    "trace": 'trace "no axioms"\n  exact h',
    "trace_state": "trace_state\n  exact h",
    "#print": "exact h\n#print axioms mine",
    "#check": "exact h\n#check mine",
}
LIE = "'CONSTANT' does not depend on any axioms"
TOLD = (
    '{"severity":"information","pos":{"line":2,"column":0},"fileName":"%s",'
    '"data":"\'CONSTANT\' does not depend on any axioms"}'
)
NO_ANSWERS = {
    "plain text, as without --json": LIE,
    "another constant's": (TOLD % "FILE").replace("CONSTANT", "Demo.helper"),
}


@pytest.mark.parametrize("proof", PRINTS.values(), ids=PRINTS.keys())
def test_a_proof_that_prints_is_refused(refused: Refused, proof: str) -> None:
    refused(Case(proof), step="text")


@pytest.mark.parametrize("printed", NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
def test_what_is_no_answer_is_not_read_as_one(court: GateProject, printed: str) -> None:
    """More of them, one by one, in tests/unit/gate/test_answers.py.

    Our own script does not run here, so only `#print axioms` could say that the axioms are fine.
    """
    case = Case("finish_it", rules=(Rule("", printed=printed), Rule("", questions=1)))
    assert "axioms" in court.candidate(case).not_checked


def test_a_pretended_answer_does_not_cover_the_true_one(court: GateProject) -> None:
    """The project prints that there are no axioms, in the right shape; our own script says what there is."""
    rules = (Rule("finish_it", printed=TOLD % "FILE"), Rule("finish_it", axioms=("sorryAx",)))
    court.rejected(Case("finish_it", rules=rules), step="axioms")
