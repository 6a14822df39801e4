"""Red team: a file that opens Lean's own namespaces, so that a proof's text reaches the world by short names."""

from __future__ import annotations

import pytest

from tests.support.gate import FILE, Case, Refused

OPENED = "open IO System\n" + FILE
ACTS = {
    "a file, by a tactic's configuration": 'simp (config := ((FS.writeFile "a" "b") ()).1) [h]',
    "by a name that the file made for it": "simp (config := (mine.run ()).1) [h]",
    "by a structure's field": "simp (config := { maxSteps := (go ()).1 }) [h]",
    "by the new spelling": "simp (maxSteps := (go ()).1) [h]",
    "by the anonymous unit": "simp (maxSteps := (go ⟨⟩).1) [h]",
    "by the unit's name": "simp (maxSteps := (go Unit.unit).1) [h]",
    "by the unit's constructor": "simp (maxSteps := (go .unit).1) [h]",
    "by a quoted option": "simp («config» := other) [h]",
    "a process": "exact (Process.spawn x).elim",
    "a clock that prints": 'exact timeit "x" h',
}


@pytest.mark.parametrize("proof", ACTS.values(), ids=ACTS.keys())
def test_what_acts_on_the_world_while_lean_elaborates_is_refused(refused: Refused, proof: str) -> None:
    refused(Case(proof, file=OPENED), step="text")
