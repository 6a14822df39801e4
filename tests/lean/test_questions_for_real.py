"""The gate's questions put to Lean 4.35.0 itself: its answers on modules that this Lean has built.

`lean` is the wheel's, with a library of our own; everything else is what the gate runs, but for lake, in whose place
`lean -o` builds.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.gate import questions
from pipeline.gate.answers import Answer, differences
from pipeline.gate.lake_checks import axioms_of, judge_axioms
from pipeline.gate.questions import ask_exactly
from pipeline.lean.build.lake import LakeRunner
from pipeline.lean.client.process import lean_path
from pipeline.lean.export import shown

A = """namespace N
def two : Nat := 2
theorem gap : two = 3 := sorry
axiom own : two = 2
theorem mine (n : Nat) (h : n = two) : 2 = n := PROOF
end N
"""
DECLARED = {"N.two", "N.gap", "N.own"}


@dataclass(frozen=True)
class Project:
    """Modules in one folder, and the toolchain that builds them and is asked."""

    runner: LakeRunner

    @property
    def library(self) -> Path:
        assert self.runner.library is not None
        return self.runner.library

    @property
    def built(self) -> Path:
        return self.runner.project / ".lake/build/lib/lean"

    def build(self, module: str, text: str, *, folder: Path | None = None) -> None:
        source, olean = self.runner.project / f"{module}.lean", (folder or self.built) / f"{module}.olean"
        source.write_text(text, "utf-8")
        olean.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [self.runner.program.with_name("lean"), "-o", olean, source.name],
            cwd=self.runner.project,
            env={"LEAN_PATH": lean_path(self.runner.project, library=self.library)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout

    def said(self, constant: str, module: str = "A") -> Answer | str:
        return ask_exactly(self.runner, module=module, declaration=constant)

    def asked(self, constant: str, module: str = "A") -> Answer:
        answer = self.said(constant, module)
        assert isinstance(answer, Answer), answer
        return answer

    def proved(self, proof: str, text: str = A) -> Answer:
        self.build("A", text.replace("PROOF", proof))
        return self.asked("N.mine")


@pytest.fixture
def project(real_lean: Path, tmp_path: Path) -> Project:
    return Project(LakeRunner(real_lean / "bin/lake", real_lean, "none", tmp_path))


def test_a_proof_changes_nothing_but_itself(project: Project) -> None:
    without, with_it = project.proved("sorry"), project.proved("h.symm")
    assert differences(without, with_it, declared=DECLARED) == []
    assert without.digest == with_it.digest
    assert (without.axioms, without.sorried) == (("sorryAx",), ("N.mine",))
    assert without.homes == {"sorryAx": "Init.Logic"}
    assert (with_it.axioms, with_it.sorried, with_it.native, with_it.unsafe) == ((), (), (), ())
    assert with_it.statement.kind == "theorem"
    assert {shown(name): one.kind for name, one in with_it.premises.items()} == {"N.two": "definition"}
    assert {name: one.kind for name, one in with_it.declared.items()} == {
        "N.two": "definition",
        "N.gap": "theorem",
        "N.own": "axiom",
    }


@pytest.mark.slow
def test_the_two_ways_to_read_a_module_agree(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To Lean before 4.20, files are read one by one; this Lean can do that too."""
    imported = project.proved("own ▸ h ▸ rfl")
    script = tmp_path / "Questions.lean"
    text = questions.QUESTIONS.read_text("utf-8")
    script.write_text(text.replace("Lean.version.minor < 20", "Lean.version.minor < 99"), "utf-8")
    assert script.read_text("utf-8") != text
    monkeypatch.setattr(questions, "QUESTIONS", script)
    read = project.asked("N.mine")
    assert (read.statement, read.premises, read.declared, read.export.declared) == (
        imported.statement,
        imported.premises,
        imported.declared,
        imported.export.declared,
    )
    assert read.homes == imported.homes == {"N.own": "A"}
    assert sorted(read.modules, key=str) == sorted(imported.modules, key=str)
    for unknown in ("N.none", "Nat.add"):
        assert isinstance(project.said(unknown), str)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("2 = n", "n = 2", "its type"),
        pytest.param("(n : Nat)", "{n : Nat} (m : Nat)", "its type", marks=pytest.mark.slow),
        ("Nat := 2", "Nat := 1 + 1", "N.two, on which its statement rests"),
        pytest.param("def two", "abbrev two", None, marks=pytest.mark.slow),
        ("theorem mine", "def mine", "it is a theorem without the proof and a definition with it"),
        pytest.param("own : two = 2", "own : two = 3", "N.own is another", marks=pytest.mark.slow),
    ],
)
def test_another_statement_or_premise_differs(old: str, new: str, told: str | None, project: Project) -> None:
    without, other = project.proved("sorry"), project.proved("sorry", A.replace(old, new))
    found = differences(without, other, declared=DECLARED)
    assert any(told in one for one in found) if told else found == []


def test_binder_names_and_kinds_are_no_part_of_a_statement(project: Project) -> None:
    without = project.proved("sorry")
    assert (
        project.proved(
            "sorry",
            A.replace("(n : Nat)", "{k : Nat}").replace("n = two", "k = two").replace("2 = n", "2 = k"),
        ).statement
        == without.statement
    )


@pytest.mark.slow
def test_what_rests_on_a_gap_names_it(project: Project) -> None:
    answer = project.proved("absurd gap (by decide)")
    assert (answer.axioms, answer.sorried) == (("sorryAx",), ("N.gap",))
    printed = axioms_of(project.runner, module="A", declaration="N.mine")
    assert printed == answer.axioms
    finding = judge_axioms(answer, printed, declaration="N.mine", by="lean", library=project.library)
    assert (finding.verdict, finding.sorried) == ("failed", ("N.gap",))


def test_axioms_have_the_modules_that_declare_them(project: Project) -> None:
    answer = project.proved("(Classical.em (two = 2)).elim (fun _ => own ▸ h ▸ rfl) (fun n => absurd own n)")
    core = {"propext": "Init.Logic", "Classical.choice": "Init.Logic", "Quot.sound": "Init.Logic"}
    assert answer.homes == {"N.own": "A", **core}
    assert set(axioms_of(project.runner, module="A", declaration="N.mine")) == set(answer.axioms)
    finding = judge_axioms(answer, answer.axioms, declaration="N.mine", by="lean", library=project.library)
    assert (finding.verdict, finding.evidence) == ("failed", "N.mine rests on N.own")


def test_modules_have_their_files_and_say_whether_they_begin_at_init(project: Project) -> None:
    project.build("P", "prelude\nimport Init.Nat\ntheorem start : 1 = 1 := rfl\n")
    project.build("A", "import P\ntheorem t : 1 = 1 := start\n")
    modules = {one.name: one for one in project.asked("t").modules}
    assert {"Init", "Init.Nat", "P", "A"} <= set(modules)
    assert modules["A"].path == project.built / "A.olean"
    assert modules["Init.Nat"].path == project.library / "Init/Nat.olean"
    assert all(one.path.is_file() for one in modules.values())
    assert [set(modules[name].imports) for name in ("P", "A")] == [{"Init.Nat"}, {"Init", "P"}]
    assert [modules[name].is_bare for name in ("P", "A", "Init.Nat")] == [True, False, True]
    assert [modules[name].lies_in(project.library) for name in ("P", "A", "Init.Nat")] == [False, False, True]


WRITE_PARTS = """import Lean
open Lean
@[extern "lean_save_module_data_parts"] opaque Lean.saveModuleDataParts (module : Name)
  (parts : Array (System.FilePath × ModuleData)) : IO Unit
def main (files : List String) : IO Unit := do
  match files with
  | [first, second, third] =>
    let (data, _) ← readModuleData first
    let other := { data with imports := #[{ module := `Init.Nat }] }
    Lean.saveModuleDataParts `P #[(first, other), (second, data), (third, data)]
  | _ => return ()
"""


def test_a_module_in_several_files_is_told_and_has_to_import_the_same_in_each(
    project: Project, tmp_path: Path
) -> None:
    """The kernel's replay would take the imports of the first, and all that imports the module those of the last."""
    project.build("P", "module\npublic theorem start : 1 = 1 := rfl\n")
    project.build("A", "import P\ntheorem t : 1 = 1 := start\n")
    answer = project.asked("t")
    assert {"P", "Init"} <= answer.in_parts
    assert "A" not in answer.in_parts
    script = tmp_path / "Write.lean"
    script.write_text(WRITE_PARTS, "utf-8")
    files = [project.built / f"P.olean{end}" for end in ("", ".server", ".private")]
    subprocess.run(
        [project.runner.program.with_name("lean"), "--run", script, *files], check=True, timeout=60
    )
    assert "its files do not import the same: P" in str(project.said("t"))


def test_what_another_module_declares_is_no_premise_but_its_axioms_count(project: Project) -> None:
    project.build("A", A.replace("PROOF", "sorry"))
    project.build("B", "import A\ndef three : Nat := 3\ntheorem t : three = N.two + 1 := rfl\n")
    proof = "⟨N.gap, N.mine _ rfl, N.own⟩"
    project.build("C", f"import B\ntheorem t' : N.two = three ∧ 2 = N.two ∧ N.two = 2 := {proof}\n")
    first = project.asked("t", "B")
    assert (first.axioms, list(first.premises), list(first.declared)) == ((), [("three",)], ["three"])
    second = project.asked("t'", "C")
    assert list(second.premises) == []
    assert second.homes == {"sorryAx": "Init.Logic", "N.own": "A"}
    assert set(second.sorried) == {"N.gap", "N.mine"}


@pytest.mark.slow
def test_a_private_theorem_is_found_by_its_name_in_the_source(project: Project) -> None:
    text = "namespace N\nprivate theorem mine : 1 = 1 := PROOF\nend N\n"
    without, with_it = project.proved("sorry", text), project.proved("rfl", text)
    assert differences(without, with_it, declared=()) == []
    assert (without.sorried, with_it.sorried) == (("_private.A.0.N.mine",), ())


@pytest.mark.slow
def test_quoted_names_of_modules_and_constants_are_found(project: Project) -> None:
    project.build("2 b", "theorem «a b».«c.d».e : True := trivial\n")
    answer = project.asked("«a b».«c.d».e", "«2 b»")
    assert [one.name for one in answer.modules][-1] == "«2 b»"
    assert answer.modules[-1].path == project.built / "2 b.olean"


def test_names_with_line_ends_are_escaped_and_read_back(project: Project) -> None:
    """A name may hold what the answer's lines end with, so it could forge lines."""
    name = f"«x\nend n\ny\tz\\n{chr(0x2028)}»"
    text = f"axiom {name} : 1 = 2\ndef «p\nq» : Nat := 1\ntheorem t (n : Nat) (h : n = «p\nq») : n = 2 := {name} ▸ h\n"
    project.build("A", text)
    answer = project.asked("t")
    assert answer.axioms == (name,)
    assert answer.homes == {name: "A"}
    assert list(answer.premises) == [("p\nq",)]


def test_what_is_unsafe_and_what_the_kernel_evaluates_by_compiled_code_is_named(project: Project) -> None:
    project.build(
        "A",
        "unsafe def loose : Nat := 1\nunsafe def user : Nat := loose\n"
        "def b : Bool := true\ntheorem native : Lean.reduceBool b = Lean.reduceBool b := rfl\n",
    )
    assert set(project.asked("user").unsafe) == {"user", "loose"}
    answer = project.asked("native")
    assert (answer.native, answer.unsafe) == (("native",), ())


def test_asking_runs_nothing_of_the_module(project: Project) -> None:
    marker = project.runner.project / "ran"
    initializer = f'initialize do\n  let _ ← IO.FS.Handle.mk "{marker}" .write\n'
    project.build("A", f"import Lean\n{initializer}theorem t : 1 = 1 := rfl\n")
    project.asked("t")
    assert not marker.exists()
    # That it would run where something is run is what makes this a test.
    axioms_of(project.runner, module="A", declaration="t")
    assert marker.exists()


@pytest.mark.parametrize(
    ("constant", "module", "why"),
    [
        ("N.none", "A", "no such constant: N.none"),
        ("Nat.add", "A", "no such constant: Nat.add"),
        ("N.mine", "B", "no such constant: N.mine"),
        ("N.mine", "Missing", "unknown module prefix 'Missing'"),
    ],
)
def test_what_the_module_does_not_declare_gets_no_answer(
    constant: str, module: str, why: str, project: Project
) -> None:
    project.build("A", A.replace("PROOF", "sorry"))
    project.build("B", "import A\n")
    answer = project.said(constant, module)
    assert isinstance(answer, str)
    assert why in answer


def test_no_program_but_lean_is_started(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Lean's library lies is known from where `lean` lies; a `lean` on PATH may be another."""
    bait = project.runner.project / "bait"
    bait.mkdir()
    (bait / "lean").write_text("#!/bin/sh\ntouch started\nexit 1\n", "utf-8")
    (bait / "lean").chmod(0o755)
    monkeypatch.setattr(
        LakeRunner, "_environment", lambda self: {"PATH": f"{bait}:/usr/bin:/bin", **self.environment}
    )
    project.proved("sorry")
    assert not (project.runner.project / "started").exists()


PRINTED = """inductive Ok (p : Prop) : Prop where
  | ok : p → Ok p
attribute [class] Ok
set_option autoImplicit true
namespace N
variable [Ok True] (Nat : Type)
theorem loose (f : α → β) [i : Inhabited α] (b : β) : ∀ x : α, f x = b → ∀ x : α, f x = b := sorry
theorem shadow (x y : Nat) : ∀ [Ok (x = y)], x = y := sorry
private theorem «a\u202eb c\u05d0» : True := trivial
end N
"""


def test_a_statement_is_written_with_every_name_argument_level_and_variable(project: Project) -> None:
    project.build("A", PRINTED)
    instance = "∀ [inst : Ok True], "
    expected = {
        "N.loose": (
            "N.loose.{u_1, u_2}",
            instance
            + "∀ {α : Sort u_1}, ∀ {β : Sort u_2}, ∀ (f : α → β), ∀ [i : Inhabited.{u_1} α], ∀ (b : β), "
            "∀ (x : α), (@Eq.{u_2} β (f x) b) → ∀ (x_1 : α), @Eq.{u_2} β (f x_1) b",
        ),
        "N.shadow": (
            "N.shadow",
            instance
            + "∀ (Nat : Type), ∀ (x : Nat), ∀ (y : Nat), ∀ [inst_1 : Ok (@Eq.{1} Nat x y)], @Eq.{1} Nat x y",
        ),
        "N.«a\u202eb c\u05d0»": ("_private.A.0.N.«a\\u{202e}b c\\u{5d0}»", instance + "True"),
    }
    for constant, (name, text) in expected.items():
        told = project.asked(constant).told
        assert told is not None
        assert (told.name, told.type, told.whole) == (name, text, True)
