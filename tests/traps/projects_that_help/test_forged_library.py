"""Red team: a project makes the process that writes the export of its proof say what it likes of Lean's own library.

A kernel would accept it: with another `Nat.le` below it, the theorem is another one. So another process, which finds
nothing of the project, says what each constant of the library means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.gate import lake_checks
from pipeline.gate.answers import Answer
from pipeline.gate.questions import ask_exactly, asked_exactly
from pipeline.gate.second_kernel import NANODA
from pipeline.jobs.inputs import InputStore
from pipeline.jobs.specs import ACCEPTED_KEYS
from pipeline.lean.build.build_cache import CONSTANTS
from pipeline.lean.export import read_export
from store.events.proofs import ProofChecked, ProofVerified
from tests.support.gate import FILE, Case, GateProject, Verdict
from tests.support.lean.credulous import Rule
from tests.support.lean.real_gate import RealGate
from tests.support.lean.second_kernel import make_kernel

PROOF = "exact ⟨h.2, h.1⟩"
HONEST = Case(PROOF, rules=(Rule("", holds=("Nat.le", "Nat.lt")),))
FORGED = Case(PROOF, rules=(Rule("", holds=("Nat.lt", "Nat.le"), forges="anything"),))
NAMED = f"{NANODA} 0.0.1"
REPLAY = "leanchecker of v4.34.1"


def evidence(verdict: Verdict) -> str:
    return next(one.evidence for one in verdict.checks if one.step == "kernel")


@pytest.fixture
def judged(court: GateProject) -> GateProject:
    """One with a kernel that accepts whatever it reads, and a cache."""
    make_kernel(court.tools.sysroot / "bin" / NANODA)
    court.cache = court.folder / "cache"
    return court


def test_an_export_with_another_constant_of_the_library_puts_the_proof_in_doubt(judged: GateProject) -> None:
    assert judged.verified(HONEST).kernel == f"{REPLAY}, {NAMED}"
    event = judged.candidate(FORGED)
    assert event.not_checked == ("kernel",)
    assert event.disagreement.startswith("forged export: it has another Nat.le than Init.Core; look where")
    assert "build them from their sources" in event.disagreement
    assert "`leanchecker A`: every declaration replayed" in evidence(event)


def test_a_kernel_s_earlier_word_on_a_forged_export_counts_for_nothing(
    judged: GateProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "a" * 64
    monkeypatch.setattr(lake_checks, "export_key", lambda *_, **__: key)

    def told(case: Case) -> Verdict:
        given = {ACCEPTED_KEYS: key.encode()}
        inputs = InputStore(judged.folder / "inputs").freeze(judged.folder / "job-inputs", given)
        return judged.recorded(replace(judged.spec(case, lean="credulous"), inputs=inputs))[0]

    assert "the same bytes as before" in evidence(told(HONEST))
    forged = told(FORGED)
    assert isinstance(forged, ProofChecked)
    assert forged.disagreement.startswith("forged export: ")


def test_the_library_is_asked_where_nothing_of_the_project_is_found(judged: GateProject) -> None:
    judged.verified(HONEST)
    for asked in judged.tools.asked():
        folder, *rest = asked["path"].split(":")
        assert rest == [str(judged.tools.sysroot / "lib" / "lean")]
        assert not Path(folder).exists()
        assert asked["modules"] == ["Init", "Init.Core", "Init.Prelude"]


def test_a_library_that_does_not_answer_raises_no_grade_and_the_evidence_says_so(judged: GateProject) -> None:
    verdict = judged.verified(Case(PROOF, rules=(Rule("", constants=True),)))
    assert verdict.kernel == REPLAY
    told = f"not judged by {NAMED}: the meaning of Lean's own constants is unknown: Questions.lean: exit status 1"
    assert told in evidence(verdict)


def test_a_constant_that_the_library_does_not_have_is_not_taken_for_its_own(
    judged: GateProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*given: Any, **named: Any) -> Answer | str:
        found = ask_exactly(*given, **named)
        return found if isinstance(found, str) else replace(found, rests={"Init.Core": ("Nat.lt", "Nat.new")})

    monkeypatch.setattr(lake_checks, "ask_exactly", asked)
    event = judged.candidate(HONEST)
    assert event.disagreement.startswith(
        "forged export: it takes Nat.new from Init.Core, which declares none;"
    )


def test_a_library_s_constants_are_written_out_once_for_each_library(judged: GateProject) -> None:
    def written(case: Case = HONEST) -> list[str]:
        before = len(judged.tools.asked())
        judged.verified(case)
        return [name for one in judged.tools.asked()[before:] for name in one["written"]]

    assert written() == ["Nat.le", "Nat.lt"]
    assert written(Case(PROOF, file=FILE + "\n-- another file\n", rules=HONEST.rules)) == []
    # Another library: Lean's files are others.
    (judged.tools.sysroot / "lib/lean/Init/Core.olean").write_text("another one", "utf-8")
    assert written() == ["Nat.le", "Nat.lt"]
    assert written() == []


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut off": lambda whole: whole[:-9],
    "changed": lambda whole: whole.replace(b'"le"', b'"gt"'),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_of_the_cache_that_is_not_whole_is_made_anew(judged: GateProject, what: str) -> None:
    judged.verified(HONEST)
    (file,) = (one for one in (judged.folder / "cache" / CONSTANTS).rglob("*") if one.is_file())
    whole = file.read_bytes()
    file.write_bytes(BROKEN[what](whole))
    assert judged.verified(HONEST).kernel == f"{REPLAY}, {NAMED}"
    assert file.read_bytes() == whole
    assert [bool(one["written"]) for one in judged.tools.asked()] == [False, True, False, True]


# ---- on Lean 4.35


@contextmanager
def forging(*given: Any, **named: Any) -> Iterator[tuple[Answer, Path] | str]:
    """Be an exporter that a compiled file of the project has taken over: `Not` becomes another definition."""
    with asked_exactly(*given, **named) as found:
        assert not isinstance(found, str), found
        whole, export = found
        (number,) = (number for number, name in whole.export.names.items() if name == ("Not",))
        lines = export.read_text("utf-8").splitlines()
        (place,) = (at for at, line in enumerate(lines) if line.startswith(f'{{"def":{{"name":{number},'))
        head, _, tail = lines[place].partition('"value":')
        lines[place] = f'{head}"value":0,{tail.partition(",")[2]}'
        export.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        yield replace(whole, export=read_export(lines)), export


def test_lean_itself_says_what_its_library_means(
    lean: RealGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = str(make_kernel(tmp_path / "kernel"))
    lean.cache = tmp_path / "cache"
    case = Case("fun h => h", file="theorem mine : ¬False := HOLE\n", declaration="mine")
    honest = lean.judge(case, lean="credulous", second_kernel=kernel)
    assert isinstance(honest, ProofVerified), honest
    assert honest.kernel == "kernel 0.0.1"
    monkeypatch.setattr(lake_checks, "asked_exactly", forging)
    forged = lean.judge(case, lean="credulous", second_kernel=kernel)
    assert isinstance(forged, ProofChecked), forged
    assert forged.disagreement.startswith("forged export: it has another Not than Init.")
