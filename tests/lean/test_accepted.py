"""What kernels accepted is not asked again: on Lean 4.35 and its kernel, commit after commit, and never wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.freeze import contents
from pipeline.gate import accepted, lake_checks
from pipeline.gate.accepted import export_key, kernel_digest, module_keys
from pipeline.gate.answers import BuiltModule
from pipeline.gate.second_kernel import NANODA, ExportKernel, Judged, judge_export
from pipeline.jobs.inputs import Inputs, InputStore
from pipeline.jobs.specs import ACCEPTED_KEYS, CheckSpec
from pipeline.lean.backend import LeanBackend
from store.events.proofs import Accepted, ClosureJudged, ProofChecked, ProofVerified
from store.view import queries
from tests.support.events import RESTS_ON, closure_judged, declaration, place, proof_found, scanned, sha
from tests.support.gate import Case, GateProject
from tests.support.lean.real_gate import FIRST_MODULE, RealGate
from tests.support.lean.second_kernel import make_kernel
from tests.support.state_folder import StateFolder

COMMIT = {
    "Base.lean": "theorem base (p : Prop) : p → p := fun h => h\n",
    "Left.lean": "import Base\ntheorem left (p q : Prop) (h : p ∧ q) : p := base p h.1\n",
    "Right.lean": "import Base\ntheorem right (p q : Prop) (h : p ∧ q) : q := base q h.2\n",
}
MINE = "import Left\nimport Right\ntheorem mine (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  HOLE\n"
SCAN = scanned("A.lean", [declaration("a")], with_sorry=["a"])
FOUND = proof_found("0123456789abcdef", place(SCAN, SCAN.sorries[0], blob=sha("blob")), commit=sha(1))
PROOF = "exact ⟨right p q h, left p q h⟩"


@pytest.fixture
def court(real_lean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealGate:
    monkeypatch.setattr(lake_checks, "FIRST_MODULE", FIRST_MODULE)
    return RealGate(tmp_path, leanchecker=True)


def check(
    court: GateProject, files: dict[str, str], known: Sequence[ClosureJudged] = ()
) -> tuple[ProofVerified | ProofChecked, ClosureJudged | None]:
    """Run the check job on a commit; it is handed what kernels accepted in these checks."""
    spec = court.spec(Case(PROOF, file=MINE, declaration="mine", others=files), lean="credulous")
    keys = "\n".join(one.key for asked in known for one in asked.accepted).encode()
    inputs = InputStore(court.folder / "inputs").freeze(court.folder / "job-inputs", {ACCEPTED_KEYS: keys})
    verdict, *more = court.told(replace(spec, inputs=inputs))
    assert isinstance(verdict, ProofVerified | ProofChecked), verdict
    asked = [one for one in more if isinstance(one, ClosureJudged)]
    return verdict, asked[0] if asked else None


def names(asked: ClosureJudged | None) -> set[str]:
    return set() if asked is None else {one.what for one in asked.accepted}


def verdicts(told: ProofVerified | ProofChecked) -> list[tuple[str, str]]:
    return [(one.step, one.verdict) for one in told.checks]


def test_the_check_of_the_next_commit_replays_what_changed_with_the_verdict_of_a_whole_replay(
    court: RealGate,
) -> None:
    first, asked = check(court, COMMIT)
    assert isinstance(first, ProofVerified)
    assert asked is not None
    assert (first.grade, first.kernel) == ("L1", "leanchecker of v4.35.0")
    assert (asked.replayed, asked.known, names(asked)) == (4, 0, {"A", "Base", "Left", "Right"})

    # One module of the next commit is another.
    commit = {**COMMIT, "Left.lean": COMMIT["Left.lean"].replace("base p h.1", "h.1")}
    whole, all_asked = check(court, commit)
    again, less_asked = check(court, commit, [asked])
    assert all_asked is not None
    assert less_asked is not None
    assert (all_asked.replayed, less_asked.replayed, less_asked.known) == (4, 2, 2)
    assert names(less_asked) == {"A", "Left"}
    assert verdicts(again) == verdicts(whole)
    assert isinstance(again, ProofVerified)
    assert isinstance(whole, ProofVerified)
    assert (again.grade, again.kernel, again.material) == (whole.grade, whole.kernel, whole.material)
    assert "all 3 modules below it that the project or its packages bring, 2 of them" in evidence(again)

    # What the theorem rests on, by module.
    assert asked.rests_on is not None
    rests = json.loads((court.folder / "job" / "staging" / asked.rests_on.sha256).read_bytes())
    assert (rests["Base"], rests["A"], "And.intro" in rests["Init.Base"]) == (["base"], ["mine"], True)


def evidence(told: ProofVerified | ProofChecked) -> str:
    return told.checks[-1].evidence


def test_what_the_kernel_refuses_verifies_nothing_whatever_is_known_beside_it(court: RealGate) -> None:
    """The compiler takes it, since the file tells it not to ask the kernel."""
    _, asked = check(court, COMMIT)
    assert asked is not None
    forged = "set_option debug.skipKernelTC true in\ntheorem forged : False := by decide +kernel\n"
    left = f"import Base\n{forged}theorem left (p q : Prop) (_ : p ∧ q) : p := forged.elim\n"
    verdict, now = check(court, {**COMMIT, "Left.lean": left}, [asked])
    assert isinstance(verdict, ProofChecked)
    assert (verdict.not_checked, names(now)) == (("kernel",), set())
    assert "leanchecker refuses what A imports, one of Left" in evidence(verdict)


def test_a_file_that_changes_while_it_is_replayed_is_not_known_afterwards(tmp_path: Path) -> None:
    court = GateProject(tmp_path)
    checker = court.tools.sysroot / "bin" / "leanchecker"
    checker.write_text("#!/bin/sh\nprintf ' ' >> .lake/build/lib/lean/Left.olean\n", "utf-8")
    verdict, asked = check(court, COMMIT)
    assert isinstance(verdict, ProofVerified)
    assert names(asked) == {"Base", "Right"}


def modules(folder: Path) -> list[BuiltModule]:
    """`A`, which imports `B` and `C`, which import `D`; two of them lie where no project can write."""
    imports = {"A": ("B", "C"), "B": ("D",), "C": ("D",), "D": ()}
    for name in imports:
        (folder / f"{name}.olean").write_text(name, "utf-8")
    (folder / "D.olean.private").write_text("proofs", "utf-8")
    return [BuiltModule(name, folder / f"{name}.olean", below) for name, below in imports.items()]


OTHERS: dict[str, tuple[Callable[[Path, list[BuiltModule]], None], set[str]]] = {
    "its own bytes": (lambda place, _: append(place / "A.olean"), {"A"}),
    "the bytes of what it imports": (lambda place, _: append(place / "B.olean"), {"A", "B"}),
    "the proofs of what all import": (
        lambda place, _: append(place / "D.olean.private"),
        {"A", "B", "C", "D"},
    ),
    "a file more": (lambda place, _: append(place / "C.olean.server"), {"A", "C"}),
    "an import less": (lambda _, found: found.__setitem__(1, replace(found[1], imports=())), {"A", "B"}),
    "another name": (lambda _, found: rename(found), {"A", "B"}),
    "another program": (lambda place, _: append(place / "toolchain/bin/leanchecker"), {"A", "B", "C", "D"}),
    "another library of its Lean": (
        lambda place, _: append(place / "toolchain/lib/lean/libleanshared.so"),
        {"A", "B", "C", "D"},
    ),
}


def append(file: Path) -> None:
    with file.open("a") as out:
        out.write("x")


def rename(found: list[BuiltModule]) -> None:
    found[1] = replace(found[1], name="E")
    found[0] = replace(found[0], imports=("E", "C"))


@pytest.mark.parametrize("what", OTHERS)
def test_a_key_is_another_with_anything_else_below_it(tmp_path: Path, what: str) -> None:
    program = tmp_path / "toolchain" / "bin" / "leanchecker"
    for file in (program, tmp_path / "toolchain" / "lib" / "lean" / "libleanshared.so"):
        file.parent.mkdir(parents=True)
        file.write_text("1", "utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "toolchain")
    found = modules(tmp_path)

    def keys(name: str = "leanchecker of v4.35.0") -> dict[str, str]:
        linked = tmp_path / "link" / "bin" / "leanchecker"
        kernel = kernel_digest(name, linked, toolchain=tmp_path / "toolchain")
        return module_keys(kernel, found, vouched=(tmp_path,))

    before = keys()
    assert before == keys()
    assert len(set(before.values())) == 4
    assert set(before.values()).isdisjoint(keys("leanchecker of v4.35.1").values())
    change, changed = OTHERS[what]
    change(tmp_path, found)
    assert {name for name in before if keys().get(name) != before[name]} == changed


def test_what_was_accepted_by_earlier_rules_of_the_gate_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel").touch()
    before = kernel_digest("nanoda_bin 0.3.1", tmp_path / "kernel", toolchain=tmp_path)
    monkeypatch.setattr(accepted, "_RULES", "of another day")
    assert kernel_digest("nanoda_bin 0.3.1", tmp_path / "kernel", toolchain=tmp_path) != before


def test_a_module_without_its_file_or_all_that_it_imports_has_no_key(tmp_path: Path) -> None:
    found = modules(tmp_path)
    assert set(module_keys("k", found[:1] + found[2:], vouched=())) == {"C", "D"}
    round_ = [replace(one, imports=("A",)) if one.name == "D" else one for one in found]
    assert module_keys("k", round_, vouched=()) == {}
    assert module_keys("k", [BuiltModule("E", tmp_path / "E.olean", ())], vouched=()) == {}


def test_an_export_that_a_kernel_accepted_is_not_put_before_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    court, asked_of = GateProject(tmp_path), list[str]()

    def judge(kernel: ExportKernel, *given: Any, **named: Any) -> Judged:
        asked_of.append(kernel.name)
        return judge_export(kernel, *given, **named)

    monkeypatch.setattr(lake_checks, "judge_export", judge)
    make_kernel(court.tools.sysroot / "bin" / NANODA)
    first, asked = check(court, COMMIT)
    assert asked is not None
    again, _ = check(court, COMMIT, [asked])
    assert asked_of == [f"{NANODA} 0.0.1"]
    both = "leanchecker of v4.34.1, nanoda_bin 0.0.1"
    for verdict in (first, again):
        assert isinstance(verdict, ProofVerified)
        assert (verdict.grade, verdict.kernel) == ("L1", both)
    # Another program of the same name and version is asked.
    make_kernel(court.tools.sysroot / "bin" / NANODA, says="refuse")
    doubted, now = check(court, COMMIT, [asked])
    assert isinstance(doubted, ProofChecked)
    assert doubted.disagreement
    assert names(now) == set()


def test_the_key_of_an_export_is_another_with_other_axioms(tmp_path: Path) -> None:
    export = tmp_path / "export"
    export.write_text("x", "utf-8")
    given = [("k", ("propext",)), ("k", ()), ("l", ())]
    assert len({export_key(kernel, export, axioms=axioms) for kernel, axioms in given}) == 3


def test_a_check_is_handed_what_was_accepted_with_its_lean_in_whatever_repository(tmp_path: Path) -> None:
    state, store = StateFolder(tmp_path), InputStore(tmp_path / "inputs")
    asked = closure_judged(FOUND)
    more = Accepted(key="f" * 64, kernel="nanoda_bin 0.3.1", what="Demo.mine")
    of_another = asked.model_copy(update={"toolchain": "leanprover/lean4:v4.34.9", "accepted": (more,)})
    state.blob(RESTS_ON)
    for body in (asked, of_another):
        state.add(f"proof:{body.proof}", body)
    state.write()

    def handed(toolchain: str) -> set[str]:
        spec = CheckSpec(lean=LeanBackend("server", (), "", toolchain, sandbox="none"), proof=FOUND)
        with closing(queries.connect(state.state / "database.db")) as view:
            given = contents(view, spec, "check-1", tmp_path / "job", store)
        if isinstance(given, Inputs | None):
            return set()
        return set(store.freeze(tmp_path / "job", given).path(ACCEPTED_KEYS).read_text().split())

    assert handed("leanprover/lean4:v4.34.9") == {"f" * 64}
    store.forget(tmp_path / "job")
    assert handed(asked.toolchain) == {one.key for one in asked.accepted}
    store.forget(tmp_path / "job")
    assert handed("leanprover/lean4:v4.33.0") == set()
