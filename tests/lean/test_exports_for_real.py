"""Exports that Lean 4.35.0 writes of modules that it has built: complete, in order, and the same for the same meaning.

Where `nanoda_bin` is on PATH, that kernel judges them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.gate.answers import Answer, differences, not_of_the_proof
from pipeline.gate.questions import MOST_BYTES, asked_exactly
from pipeline.gate.second_kernel import NANODA, ExportKernel, Judged, judge_export
from pipeline.gate.vouched import Library
from pipeline.lean.build.lake import Bounds, LakeRunner
from pipeline.lean.export import _Reader, shown
from tests.lean.test_questions_for_real import Project

AXIOMS = ["Classical.choice", "Quot.sound", "propext"]
TEXT = r"""
universe u v
namespace B
inductive Tree (α : Type u) where
  | leaf : Tree α
  | node (l : Tree α) (x : α) (r : Tree α) : Tree α
def Tree.size {α : Type u} : Tree α → Nat
  | leaf => 0
  | node l _ r => l.size + r.size + 1
mutual
inductive Even : Nat → Prop where
  | zero : Even 0
  | succ {n : Nat} (h : Odd n) : Even (n + 1)
inductive Odd : Nat → Prop where
  | succ {n : Nat} (h : Even n) : Odd (n + 1)
end
inductive Roses (α : Type u) where
  | none : Roses α
  | more (x : α) (xs : Roses α) : Roses α
inductive Rose where
  | mk (children : Roses Rose)
structure Point (α : Type u) (β : Type v) where
  x : α
  y : β
theorem recursion {α : Type u} (l r : Tree α) (x : α) : (Tree.node l x r).size = l.size + r.size + 1 := rfl
theorem mutual' : Even 2 := .succ (.succ .zero)
theorem nested (r : Rose) : r = r := rfl
theorem eta {α : Type u} {β : Type v} (p : Point α β) : p = ⟨p.x, p.y⟩ := rfl
theorem big : (123456789012345678901234567890 : Nat) * 1000 = 123456789012345678901234567890000 := rfl
theorem text : "a\"b\\c\n\t∀\u0001" = "a\"b\\c\n\t∀\u0001" := rfl
theorem quotient (α : Sort u) (r : α → α → Prop) (a b : α) (h : r a b) : Quot.mk r a = Quot.mk r b := Quot.sound h
theorem classical (p : Prop) : p ∨ ¬p := Classical.em p
private def hidden : Nat := 3
theorem private' : hidden = 3 := rfl
theorem notes (a b : Nat) : a + b = b + a := by
  have h : a + b = b + a := Nat.add_comm a b
  simp [h]
theorem opened : (let x := 2; x + x) = 4 := rfl
theorem «odd name.\n"» : 1 = 1 := rfl
def use {α : Sort u} (_ : α) {β : Prop} (h : β) : β := h
theorem all : True :=
  use @recursion.{0} (use mutual' (use nested (use @eta.{0, 0} (use big (use text (use @quotient.{0} (use classical
    (use private' (use notes (use opened (use «odd name.\n"» True.intro)))))))))))
end B
"""


@pytest.fixture(scope="module")
def project(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(LakeRunner(real_lean / "bin/lake", real_lean, "none", tmp_path_factory.mktemp("exports")))
    made.build("A", TEXT)
    return made


@contextmanager
def exported(project: Project, theorem: str) -> Iterator[tuple[Answer, Path]]:
    with asked_exactly(project.runner, module="A", declaration=f"B.{theorem}", scope="closure") as found:
        assert not isinstance(found, str), found
        yield found


def test_a_closure_declares_all_that_it_mentions_and_is_of_the_proof(project: Project) -> None:
    with exported(project, "all") as (whole, export):
        assert not_of_the_proof(whole, project.asked("B.all")) is None
        kinds = {shown(name): one.kind for name, one in whole.export.declared.items()}
        assert {".".join(name) for name in whole.export.axioms} == set(whole.axioms) == set(AXIOMS)
        in_order(export)
    for name in ("Tree.rec", "Even.rec", "Odd.rec", "Rose.rec", "Rose.rec_1", "Roses.rec", "Point.rec"):
        assert kinds[f"B.{name}"] == "recursor"
    assert {name for name, kind in kinds.items() if kind == "quotient"} == {
        "Quot",
        "Quot.mk",
        "Quot.lift",
        "Quot.ind",
    }
    assert (kinds["B.Tree.size"], kinds["B.Point.x"], kinds["_private.A.#0.B.hidden"]) == ("definition",) * 3
    assert (kinds["B.all"], kinds['B.«odd name.\\n"»']) == ("theorem", "theorem")
    assert {"String.ofList", "List.cons", "Char"} <= kinds.keys()


@pytest.mark.parametrize("begin", ["module\npublic ", ""])
def test_a_package_s_hidden_definition_is_the_same_to_the_library_alone(
    real_lean: Path, tmp_path: Path, begin: str
) -> None:
    project = Project(LakeRunner(real_lean / "bin/lake", real_lean, "none", tmp_path))
    package = tmp_path / ".lake/packages/p/.lake/build/lib/lean"
    text = "module\npublic def hidden : Nat := 3\npublic theorem is_three : hidden = 3 := (rfl)\n"
    project.build("P", text, folder=package)
    (tmp_path / "P.lean").unlink()
    assert (package / "P.olean.private").exists()
    project.build(
        "A", f"{begin}import P\n{begin.removeprefix('module')}theorem mine : hidden = 3 := is_three\n"
    )
    with asked_exactly(project.runner, module="A", declaration="mine", scope="closure") as found:
        assert not isinstance(found, str), found
        whole, _ = found
        library = Library(project.runner, (project.library, package))
        assert library.differs(whole, project.asked("mine"), imports=("P",)) is None
        altered = {**whole.export.declared, ("hidden",): whole.export.declared[("is_three",)]}
        whole.export.declared = altered
        assert library.differs(whole, project.asked("mine"), imports=("P",)) == "it has another hidden than P"


def in_order(export: Path) -> None:
    """Hold that each declaration comes after all that it mentions: a kernel takes them one by one."""
    reader = _Reader()
    for number, line in enumerate(export.read_text("utf-8").split("\n")[:-1]):
        reader.line(line, first=number == 0)
        if not line.startswith('{"i') or line.startswith('{"inductive"'):
            assert reader.mentioned <= reader.export.declared.keys(), line[:200]


def test_what_no_proof_mentions_is_not_in_its_closure(project: Project) -> None:
    with exported(project, "quotient") as (whole, _):
        names = {shown(name) for name in whole.export.declared}
    assert whole.axioms == ("Quot.sound",)
    assert not {"String", "B.Tree", "B.all", "propext"} & names


RESTS = """universe u
inductive T where
  | a : T
  | b (n : Nat) : T
structure P where
  x : Nat
  y : Nat
mutual
inductive E : Nat → Prop where
  | zero : E 0
inductive O : Nat → Prop where
  | one (h : E 0) : O 1
end
theorem t (t : T) (p : P) (h : E 0) : t = t ∧ p.y = p.2 := sorry
"""


@pytest.mark.slow
def test_a_statement_differs_where_a_type_below_it_does(project: Project) -> None:
    project.build("Rests", RESTS)
    before = project.asked("t", "Rests")
    assert {shown(name) for name in before.premises} >= {"T", "P.mk", "E.rec", "O.one", "P.y"}
    for old, new, told in (
        ("(n : Nat) : T", "(n : Bool) : T", "T, on which its statement rests, is another"),
        (
            "  | a : T\n  | b (n : Nat) : T",
            "  | b (n : Nat) : T\n  | a : T",
            "T, on which its statement rests",
        ),
        ("O 1", "O 2", "E, on which its statement rests, is another"),
        ("y : Nat", "y : Nat\n  z : Nat", "P, on which its statement rests"),
        ("p.2", "(p.1 - 0)", "its type or its universe parameters"),
    ):
        project.build("Rests", RESTS.replace(old, new))
        found = differences(before, project.asked("t", "Rests"), declared=())
        assert any(told in one for one in found), (new, found)


def test_an_export_that_is_too_large_is_none(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOST_BYTES, "closure", 10_000)
    with asked_exactly(project.runner, module="A", declaration="B.all", scope="closure") as found:
        assert isinstance(found, str)
        assert "the export is larger than 10000 bytes" in found


def test_a_deep_term_is_written_whole(project: Project) -> None:
    """A term may be deeper than the stack of a process."""
    deep = 8000
    term = "Nat.succ (" * deep + "0" + ")" * deep
    project.build("Deep", f"set_option maxRecDepth 1000000\ntheorem deep : {term} = 0 := sorry\n")
    answer = project.asked("deep", "Deep")
    assert answer.export.terms[deep]


# --- a real second kernel -------------------------------------------------------------------------------------


@pytest.fixture
def nanoda(provide: Callable[[str], Path]) -> ExportKernel:
    return ExportKernel(provide(NANODA), NANODA, configuration=True)


def test_nanoda_accepts_what_lean_accepts_and_refuses_the_rest(
    project: Project, nanoda: ExportKernel
) -> None:
    with exported(project, "all") as (_, export):

        def judged(axioms: Sequence[str] = AXIOMS) -> Judged:
            return judge_export(
                nanoda, export, axioms=axioms, runner=project.runner, bounds=Bounds(timeout_s=60)
            )

        assert judged() == Judged("accepted", "")
        assert (judged(["propext"]).word, "unpermitted axiom" in judged(["propext"]).why) == ("refused", True)
        text = export.read_text("utf-8")
        export.write_text(
            text.replace('"123456789012345678901234567890"', '"123456789012345678901234567891"')
        )
        assert judged().word == "refused"
