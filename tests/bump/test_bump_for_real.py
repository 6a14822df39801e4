"""The whole bump job with Lean 4.35.0 itself: its messages, its mends, its kernel's word on each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.bump import __main__ as job
from pipeline.gate import lake_checks
from tests.support.bump import BASE, FAMILY, OLD, bump, project
from tests.support.daemon.remote import git
from tests.support.lean.real_gate import FIRST_MODULE, RealGate

LIVES = {"Base.rotate": "Base.turn"}


@pytest.fixture
def court(real_lean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealGate:
    monkeypatch.setattr(lake_checks, "FIRST_MODULE", FIRST_MODULE)
    return RealGate(tmp_path / "gate")


def test_a_mend_is_verified_in_what_is_handed_over_and_consequences_are_left(
    court: RealGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job.Bump, "_climb", lambda _: None)
    files = ("Statement", "Renamed", "Definition", "Beyond")
    folder = project(tmp_path / "project", {name: FAMILY[name] for name in files})
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    feed = tmp_path / "advisories.toml"
    feed.write_text(
        '[[advisory]]\nid = "x#1"\npublished = 2026-11-01\ntitle = "t"\nsource = "s"\nfixed.lean = []\n',
        "utf-8",
    )
    result = bump(tmp_path, court.backend(), renames=LIVES, advisories=str(feed))

    assert {one.declaration: one.kind for one in result.built.broken} == {
        "statement_broken": "statement", "beside_it": "proof", "renamed_lemma": "proof",
        "helper": "definition", "cites_it": "proof", "far": "proof",
    }  # fmt: skip
    assert {one.declaration: one.follows for one in result.built.broken if one.follows} == {
        "cites_it": "helper", "far": "helper",
    }  # fmt: skip
    assert result.mended == {"beside_it": "renamed constants", "renamed_lemma": "renamed constants"}
    assert {one.declaration: one.follows for one in result.finished.left} == {
        "statement_broken": "", "helper": "", "cites_it": "helper", "far": "helper",
    }  # fmt: skip
    # Of what waits for another break, nothing but the old proof is tried.
    for name in ("cites_it", "far"):
        assert result.verdicts(name) == [("refused", "compile")]
    assert result.finished.modules_failed == ("Beyond", "Definition", "Statement")
    # The first module does not build as it is handed over; the other neither fails nor depends on one that does.
    assert result.verdicts("renamed_lemma")[-1] == ("checked", "statement")
    judged = {one.declaration: one for one in result.finished.mended}
    alone, beside = judged["renamed_lemma"], judged["beside_it"]
    assert (alone.verdict, alone.axioms, alone.grade, alone.doubts) == (
        "verified",
        (),
        "L0",
        ("x#1",),
    )
    assert (beside.verdict, beside.grade) == ("checked", "")
    assert "these modules do not build: Beyond, Definition, Statement" in beside.reason
    text = "".join(one["message"] for one in result.series)
    assert (
        "renamed_lemma: renamed constants; accepted by Lean; no kernel replayed all that it rests on; IN DOUBT: x#1"
        in text
    )
    assert "beside_it: renamed constants; NOT VERIFIED: with the patches" in text
    assert "cites_it: proof, which follows from helper" in text

    git(folder, "checkout", "--quiet", "--", ".")
    for one in result.series:
        git(folder, "apply", "--index", "-", data=one["diff"].encode())
    assert (folder / "lean-toolchain").read_text() == f"{court.backend().toolchain}\n"
    assert "exact Base.turn p q h" in (folder / "Statement.lean").read_text()
    assert "Base.Gone p := by\n  exact h" in (folder / "Statement.lean").read_text()
    assert "statement_broken: statement" in result.series[0]["message"]


@pytest.mark.slow
def test_a_forged_rename_to_an_axiom_is_rejected_by_the_gate(
    court: RealGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job.Bump, "_climb", lambda _: None)
    forged = (
        "axiom evil (p : Prop) {q : Prop} (_ : p) : q\n"
        '@[deprecated evil (since := "2026-01-01")]\ntheorem rotate (p : Prop) (h : p) : p := h\n'
    )
    base = BASE.replace("theorem turn", f"{forged}theorem turn")
    project(
        tmp_path / "project",
        {"A": "theorem a (p q : Prop) (h : p) : q := by\n  exact Base.rotate p h\n"},
        base=base,
    )
    result = bump(tmp_path, court.backend(), tries=1)
    assert result.verdicts("a") == [("rejected", "axioms")]
    assert "exact Base.evil p h" in result.tried[0].text
    assert result.mended == {}


def test_a_text_that_restates_the_theorem_is_rejected_by_the_gate(
    court: RealGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        ("another theorem", "sorry\n\ntheorem other : True := trivial"),
        ("hidden", "by\n  exact sorryAx _ false"),
        ("itself", "a p q h"),
    ]
    monkeypatch.setattr(job, "candidates", lambda *_: iter(texts))
    monkeypatch.setattr(job.Bump, "_climb", lambda _: None)
    project(tmp_path / "project", {"A": "theorem a (p q : Prop) (h : p) : q := by\n  exact Base.gone\n"})
    result = bump(tmp_path, court.backend())
    assert result.mended == {}
    assert [(one.how, one.verdict) for one in result.tried] == [
        ("another theorem", "rejected"),
        ("hidden", "rejected"),
        ("itself", "refused"),
    ]
    assert [one["title"] for one in result.series] == [f"Raise Lean to {court.backend().toolchain}"]


@pytest.mark.slow
def test_where_all_is_mended_and_builds_the_gate_s_word_stands(court: RealGate, tmp_path: Path) -> None:
    folder = project(tmp_path / "project", {"Renamed": FAMILY["Renamed"]})
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    result = bump(tmp_path, court.backend(), renames=LIVES)
    assert (result.left, result.finished.modules_failed) == ({}, ())
    assert [(one.verdict, one.axioms) for one in result.finished.mended] == [("verified", ())]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_project_that_breaks_in_many_ways(court: RealGate, tmp_path: Path) -> None:
    project(tmp_path / "project", FAMILY)
    result = bump(tmp_path, court.backend(), renames=LIVES)
    assert len(result.built.broken) == 18
    assert result.left == {
        "Import.lean": "import", "statement_broken": "statement", "times_out": "proof", "helper": "definition",
        "cites_it": "proof", "far": "proof",
    }  # fmt: skip
    assert result.finished.modules_failed == ("Beyond", "Definition", "Import", "Statement", "Timeout")
    assert len(result.mended) == 12
    assert {one.reason for one in result.built.broken} == {
        "unknown_name", "type_mismatch", "import", "syntax", "unsolved_goals", "timeout",
    }  # fmt: skip
    # In a module that fails nothing is called verified.
    assert [one.declaration for one in result.finished.mended if one.verdict == "checked"] == ["beside_it"]
    assert OLD not in result.series[0]["title"]
