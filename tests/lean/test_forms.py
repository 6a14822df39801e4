"""Sorries in whatever form people write them, before Lean itself: what is found, and what is data and not invented."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from pipeline.gate import lake_checks
from pipeline.gate.second_kernel import OFF
from pipeline.gate.source_checks import parts_of
from pipeline.jobs.protocol import JobSpec
from pipeline.jobs.specs import CheckSpec
from pipeline.lean.source.splice import Replacement, splice
from store.events.proofs import AttemptFinished, ProofFound, ProofVerified
from tests.support.lean.real_gate import FIRST_MODULE, RealGate
from tests.support.prove import FILE, parameters, run
from tests.support.trace import lean_itself

FORMS = (Path(__file__).parent / "real" / "forms.lean").read_text("utf-8")
NOT_FOUND = {
    "t_stop": {"unsupported"},  # it leaves out what follows
    "t_def_prop": {"unsupported"},
    "t_number": {"unsupported"},
    "t_data": {"error"},
    "t_let_data": {"exhausted"},
    "t_exists_both": {"exhausted", "found"},  # the witness is data; the rest is no proof without it
}


@pytest.mark.parametrize(
    ("end", "every"),
    [
        pytest.param("\n", 5, id="each fifth"),
        pytest.param("\n", 1, id="lf", marks=pytest.mark.slow),
        pytest.param("\r\n", 1, id="crlf", marks=pytest.mark.slow),
    ],
)
def test_propositions_are_searched_whatever_their_form_and_data_is_not_invented(
    real_lean: Path, tmp_path: Path, end: str, every: int
) -> None:
    source = FORMS.replace("\n", end)
    outcomes, proofs = searched(tmp_path, real_lean, source, every)
    assert len(outcomes) > 100 // every
    # Of a declaration with several sorries a part of the run has a part of the outcomes.
    assert {name for name, said in outcomes.items() if not said <= NOT_FOUND.get(name, {"found"})} == set()
    assert every > 1 or {name for name, said in outcomes.items() if said != {"found"}} == set(NOT_FOUND)
    replaced = [Replacement(one.byte_start, one.byte_end, one.replacement, one.parts) for one in proofs]
    assert [why for one in replaced if isinstance(why := parts_of(source.encode(), one), str)] == []
    (tmp_path / FILE).write_bytes(
        functools.reduce(splice, sorted(replaced, key=_from_the_end), source.encode())
    )
    ran = subprocess.run(
        (real_lean / "bin" / "lean", "--json", FILE), cwd=tmp_path, env={}, capture_output=True, text=True
    )
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [one["data"] for one in said if one["severity"] == "error"] == []
    if every > 1:
        return
    lines = (tmp_path / FILE).read_text("utf-8").split("\n")
    left = [
        re.findall(r"t_\w+", lines[one["pos"]["line"] - 1])[0]
        for one in said
        if one["data"].startswith("declaration uses")
    ]
    assert sorted(left) == sorted(NOT_FOUND)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_gate_accepts_what_is_found(
    real_lean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_checks, "FIRST_MODULE", FIRST_MODULE)
    _, proofs = searched(tmp_path, real_lean, FORMS)
    court = RealGate(tmp_path / "court")
    (court.project / FILE).write_text(FORMS, "utf-8")
    refused = []
    for one in proofs:
        asked = CheckSpec(lean=court.backend(), proof=one, second_kernel=OFF)
        spec = JobSpec("check-1", "check", 1, tmp_path / "check", asked, worktree=court.project)
        (verdict,) = court.recorded(spec)
        if not isinstance(verdict, ProofVerified):
            refused.append((one.declaration, verdict.type))
    assert refused == [("_example", "proof_checked"), ("t_exists_both", "proof_rejected")]


def searched(
    folder: Path, lean: Path, source: str, every: int = 1
) -> tuple[dict[str, set[str]], list[ProofFound]]:
    """Search sorries of a file, each or each fifth one: return the outcomes by declaration, and each proof once."""
    given = parameters(folder, source, lean=lean_itself(lean))
    bodies, _ = run(given | {"sorries": given["sorries"][::every]}, folder / "job")
    outcomes: defaultdict[str, set[str]] = defaultdict(set)
    for one in bodies:
        if isinstance(one, AttemptFinished):
            outcomes[one.sorry].add(one.outcome)
    proofs = {(one.byte_start, one.byte_end): one for one in bodies if isinstance(one, ProofFound)}
    return dict(outcomes), list(proofs.values())


def _from_the_end(one: Replacement) -> int:
    return -one.byte_start
