"""`everlean benchmark make`: what people filled in a real git history, before and after a day."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pipeline import fills
from tests.support import verbs
from tests.support.daemon.remote import Remote

DAY = date(2026, 3, 1)
OLD = """\
namespace Demo
theorem keep (p : Prop) (h : p) : p := h
theorem early (p : Prop) (h : p) : p ∧ p := by
  sorry
theorem late (p q : Prop) (h : p ∧ q) : q ∧ p := by
  sorry
theorem twin (r : Prop) (h : r) : r ∨ r := sorry
theorem again (r : Prop) (h : r) : r ∨ r := Or.inl h
theorem open_still (p : Prop) : p → p := by
  sorry
theorem by_a_gap (p : Prop) : p → p ∧ p := sorry
theorem by_us (p : Prop) (h : p) : p ∨ False := sorry
end Demo
"""
EARLY = ("p ∧ p := by\n  sorry", "p ∧ p := by\n  exact ⟨keep p h, keep p h⟩")
LATE = ("q ∧ p := by\n  sorry", "q ∧ p := by\n  -- as `keep` would\n  exact And.intro (Demo.keep q h.2) h.1")
OTHERS = (
    ("r ∨ r := sorry", "r ∨ r := Or.inr h"),
    ("p → p ∧ p := sorry", "p → p ∧ p := fun h => ⟨open_still p h, h⟩"),
    ("p ∨ False := sorry", "p ∨ False := Or.inl h"),
)


@pytest.fixture
def history(tmp_path: Path) -> Remote:
    """A clone in which `early` was filled in February, and the others in March, one by a clock of 2020."""
    remote = Remote(tmp_path / "Demo")
    text = OLD
    remote.commit("first", {"Demo.lean": text}, date="2026-01-01T00:00:00Z")
    for (was, now), when in zip(
        (EARLY, LATE, *OTHERS),
        ("2026-02-01", "2026-03-02", "2020-01-01", "2026-03-03", "2026-03-04"),
        strict=True,
    ):
        text = text.replace(was, now)
        remote.commit(f"at {when}", {"Demo.lean": text}, date=f"{when}T00:00:00Z")
    return remote


def made(history: Remote, out: Path, *others: str) -> dict[str, object]:
    arguments = ("benchmark", "make", str(out), str(history.path), "--day", str(DAY), "--json", *others)
    result = verbs.everlean(*arguments, environment=os.environ, folder=out.parent)
    assert result.returncode == 0, result.stderr
    document: dict[str, object] = json.loads(result.stdout)
    verbs.hold_to_schema("benchmark make", document)
    return document


def test_what_people_filled_is_split_by_a_day(history: Remote, tmp_path: Path) -> None:
    document = made(history, tmp_path / "out")
    assert (document["train"], document["test"], document["known"]) == (1, 2, 8)
    assert document["left_out"] == {
        "the same statement is proved before": 1,
        "its proof cites what has a sorry": 1,
    }
    (early,) = fills.rows_of(tmp_path / "out", "train")
    late, by_us = fills.rows_of(tmp_path / "out", "test")
    assert (early["name"], early["statement"]) == ("Demo.early", "(p : Prop) (h : p) : p ∧ p")
    assert (early["proof"], early["date"]) == (
        "by\n  exact ⟨keep p h, keep p h⟩",
        "2026-02-01T00:00:00+00:00",
    )
    assert early["premises"] == late["premises"] == ["Demo.keep"]
    assert (late["name"], by_us["name"]) == ("Demo.late", "Demo.by_us")
    known = {row["name"]: row["proof"] for row in fills.rows_of(tmp_path / "out", "known")}
    assert known["Demo.early"] == early["proof"]
    assert known["Demo.late"] == known["Demo.open_still"] == ""

    # Made again of a longer history, it gives the same sorry the same id, and is made nowhere twice.
    history.commit("later", {"Other.lean": "theorem other : True := trivial\n"}, date="2026-04-01T00:00:00Z")
    made(history, tmp_path / "again")
    assert [row["id"] for row in fills.rows_of(tmp_path / "again", "test")] == [late["id"], by_us["id"]]
    result = verbs.everlean(
        "benchmark",
        "make",
        "out",
        str(history.path),
        "--day",
        str(DAY),
        environment=os.environ,
        folder=tmp_path,
    )
    assert (result.returncode, "is there already" in result.stderr) == (1, True)


def test_what_the_log_of_a_daemon_knows_is_in_it_and_a_clock_set_back_moves_no_row(
    history: Remote, tmp_path: Path
) -> None:
    shas = history.git("log", "--reverse", "--format=%H").split()
    source = fills.Source(
        "demo",
        history.path / ".git",
        ours={(shas[-1], "Demo.by_us")},
        goals={(shas[2], "Demo.late"): "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"},
    )
    result = fills.make(tmp_path / "out", [source], DAY)
    assert result.left_out["filled by everlean"] == 1
    (late,) = fills.rows_of(tmp_path / "out", "test")
    assert late["goal"].endswith("⊢ q ∧ p")
    line = fills._line(source)
    assert [landed.date().isoformat() for _, landed in line][2:4] == ["2026-03-02", "2026-03-02"]


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("train", {"commit": "test"}),
        ("test", {"commit": "train"}),
        ("known", {"commit": "test"}),
        ("test", {"statement": "(p : Prop) (h : p) :  p ∧ p"}),
    ],
)
def test_a_leak_is_found_by_the_log(
    history: Remote, tmp_path: Path, part: str, change: dict[str, str]
) -> None:
    source = fills.Source("demo", history.path / ".git")
    out = tmp_path / "out"
    fills.make(out, [source], DAY)
    fills.check(out, [source], DAY)
    rows = fills.rows_of(out, part)
    for name, value in change.items():
        rows[0][name] = fills.rows_of(out, value)[0][name] if name == "commit" else value
    fills._write(out / f"{part}.parquet", rows)
    with pytest.raises(fills.BenchmarkError, match="leaks"):
        fills.check(out, [source], DAY)


def test_what_cannot_be_made_is_said(history: Remote, tmp_path: Path) -> None:
    source = fills.Source("demo", history.path / ".git")
    with pytest.raises(fills.BenchmarkError, match="no commit before 2019-01-01"):
        fills.make(tmp_path / "out", [source], date(2019, 1, 1))
    with pytest.raises(fills.BenchmarkError, match="no bare git repository"):
        fills.make(tmp_path / "out", [replace(source, git=tmp_path)], DAY)
    for arguments, said in (
        ((str(history.path), "--day", "today"), "is no day"),
        (("--day", str(DAY)), "name a clone"),
        ((str(history.path), str(history.path), "--day", str(DAY)), "once more"),
        ((str(tmp_path), "--day", str(DAY)), "name a clone"),
    ):
        result = verbs.everlean(
            "benchmark", "make", "out", *arguments, environment=os.environ, folder=tmp_path
        )
        assert result.returncode in (1, 2)
        assert said in result.stderr
