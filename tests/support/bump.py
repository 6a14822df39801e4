"""Small files that a newer library breaks, each in a way of its own, and the whole bump job on them.

`Base.lean` is what a library has become; the other files were written for the library before. Lean 4.35.0 itself
compiles them (`tests.support.lean.real_gate`), so that messages, mends and verdicts are its own.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.bump.__main__ import work
from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import Budget, BuildSpec, BumpSpec, CuratedRung, Rung
from pipeline.lean.backend import LeanBackend
from pipeline.lean.pool import PoolLimits
from store.events.base import EventBody
from store.events.bumps import BumpBuilt, BumpFinished, BumpTried
from store.events.registry import EVENT_TYPES

SHA = "a" * 40
BUDGET = Budget(20, 10.0, 5.0)
RUNG = Rung(spec=CuratedRung(), budget=BUDGET, budget_key="small")
OLD = "leanprover/lean4:v4.34.1"

BASE = """namespace Base

theorem turn (p q : Prop) (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩
@[deprecated turn (since := "2026-01-01")]
theorem swap {p q : Prop} (h : p ∧ q) : q ∧ p := ⟨h.2, h.1⟩
theorem pairing (p q : Prop) (hq : q) (hp : p) : p ∧ q := ⟨hp, hq⟩
theorem first {p q : Prop} (h : p ∧ q) : p := h.1
def Twice (p : Prop) : Prop := p ∧ p
theorem twice_eq (p : Prop) : Twice p = p := propext ⟨fun h => h.1, fun h => ⟨h, h⟩⟩
macro "halve" : tactic => `(tactic| constructor)
def pick (p q : Prop) (_ : p) : Prop := q
theorem pick_eq (p q : Prop) (h : p) : pick p q h = q := rfl
theorem lifted {α : Type} (a : α) : a = a := rfl

end Base
"""

FAMILY: Mapping[str, str] = {
    "Deprecated": "theorem deprecated_lemma (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  exact Base.swap p q h\n",
    "Renamed": "theorem renamed_lemma (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  exact Base.rotate p q h\n",
    "Removed": "theorem removed_lemma (p q : Prop) (h : p ∧ q) : p ∧ q := by\n  exact Base.vanished p q h\n",
    "Order": "theorem changed_order (p q : Prop) (a : p) (b : q) : p ∧ q := by\n  exact Base.pairing p q a b\n",
    "Implicit": "theorem implicit (p q : Prop) (h : p ∧ q) : p := by\n  exact Base.first p q h\n",
    "SimpSet": "theorem simp_set (p : Prop) (h : p) : Base.Twice p := by\n  simp [h]\n",
    "Tactic": "theorem tactic_renamed (p q : Prop) (a : p) (b : q) : p ∧ q := by\n"
    "  split_goal\n  · exact a\n  · exact b\n",
    "Default": "theorem default_changed (p q : Prop) (a : p) (b : q) : Base.pick p q a := by\n"
    "  exact Base.pick_eq p q\n",
    "Universe": "theorem universe_changed (p : Prop) (h : p) : h = h := by\n  exact Base.lifted h\n",
    "Statement": "theorem statement_broken (p : Prop) (h : p) : Base.Gone p := by\n  exact h\n\n"
    "theorem beside_it (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  exact Base.rotate p q h\n",
    "Definition": "def helper (p : Prop) : Prop := Base.Twofold p\n\n"
    "theorem cites_it (p : Prop) (h : p) : p := by\n  have _same : helper p = helper p := rfl\n  exact h\n",
    "Beyond": "import Base\nimport Definition\n\n"
    "theorem far (p : Prop) (h : p) : p := by\n  have _same : helper p = helper p := rfl\n  exact h\n",
    "Import": "import Base.Moved\n\ntheorem import_moved (p : Prop) (h : p) : p := h\n",
    "Notation": "theorem notation_changed (p q : Prop) (a : p) (b : q) : p ∧ q := by\n"
    "  have both : p ⊠ q := ⟨a, b⟩\n  exact both\n",
    "Timeout": "set_option maxHeartbeats 10 in\n"
    "theorem times_out (a b c d e f : Prop) (h : a ∧ b ∧ c ∧ d ∧ e ∧ f) : f ∧ e ∧ d ∧ c ∧ b ∧ a := by\n  simp_all\n",
    "Two": "theorem two_breaks (p q : Prop) (h : p ∧ q) : p ∧ (q ∧ p) := by\n"
    "  have one : p := Base.fst h\n  have two : q ∧ p := Base.rotate p q h\n  exact ⟨one, two⟩\n",
}


@dataclass(frozen=True)
class Tried:
    """What one bump recorded."""

    built: BumpBuilt
    tried: tuple[BumpTried, ...]
    finished: BumpFinished
    series: Sequence[Mapping[str, str]]

    @property
    def mended(self) -> dict[str, str]:
        return {one.declaration: one.how for one in self.finished.mended}

    @property
    def left(self) -> dict[str, str]:
        return {one.declaration or one.path: one.kind for one in self.finished.left}

    def verdicts(self, declaration: str) -> list[tuple[str, str]]:
        return [(one.verdict, one.step) for one in self.tried if one.declaration == declaration]


def project(folder: Path, files: Mapping[str, str], *, base: str = BASE) -> Path:
    """Write the project; each file imports `Base` unless it imports something else."""
    folder.mkdir(parents=True)
    texts = {"Base.lean": base}
    for name, text in files.items():
        texts[f"{name}.lean"] = text if text.startswith("import ") else f"import Base\n\n{text}"
    targets = ", ".join(f'"{name}"' for name in files)
    texts["lakefile.toml"] = f'name = "x"\ndefaultTargets = [{targets}]\n'
    texts["lean-toolchain"] = f"{OLD}\n"
    for path, text in texts.items():
        (folder / path).write_text(text, "utf-8")
    return folder


def job_spec(
    folder: Path, lean: LeanBackend, *, schemes: tuple[str, ...] = ("https",), **given: Any
) -> JobSpec[BumpSpec]:
    """Return the specification of the bump job in `folder`/project; packages are fetched by these `schemes`."""
    attempt = folder / "attempt"
    attempt.mkdir()
    build = BuildSpec(
        repository="local/x/y",
        branch="main",
        sha=SHA,
        lean=lean,
        cache=folder / "cache",
        timeout_s=3000.0,  # a loaded machine is not what is tested
        memory_bytes=2**33,
        disk_bytes=2**30,
        hosts=(),
        schemes=schemes,
    )
    parameters = BumpSpec(
        build=build,
        bump="b1",
        limits=PoolLimits(processes=1, ready_timeout_s=60.0),
        **{"toolchain": lean.toolchain, "rungs": (RUNG,), **given},
    )
    return JobSpec("bump-1", "bump", 1, attempt, parameters, worktree=folder / "project")


def recorded(out: io.StringIO) -> list[EventBody]:
    """Return what a job told its daemon to record."""
    return [
        EVENT_TYPES[event["type"]].model_validate_json(json.dumps(event["data"]))
        for line in map(json.loads, out.getvalue().splitlines())
        if line["line"] == "events"
        for event in line["events"]
    ]


def bump(folder: Path, lean: LeanBackend, **given: Any) -> Tried:
    """Run the bump job in `folder`/project."""
    spec, out = job_spec(folder, lean, **given), io.StringIO()
    work(spec, Reporter(spec, out))
    bodies = recorded(out)
    (built,) = (one for one in bodies if isinstance(one, BumpBuilt))
    (finished,) = (one for one in bodies if isinstance(one, BumpFinished))
    series = json.loads((spec.staging / finished.series.sha256).read_text("ascii"))
    tried = tuple(one for one in bodies if isinstance(one, BumpTried))
    return Tried(built, tried, finished, series)
