"""Our own Lean script: its answers have the shape that is read, and where there is a Lean, they are right."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from pipeline.gate import answers
from pipeline.gate.answers import Answer, differences
from pipeline.gate.lake_checks import axioms_of
from pipeline.gate.questions import QUESTIONS, ask_exactly
from pipeline.lean import export
from pipeline.lean.build.lake import LakeRunner, build
from pipeline.lean.program_text import program_text

SCRIPT = program_text(QUESTIONS, "Nodes").decode()
A = """namespace N
def two : Nat := 2
theorem gap : two = 3 := sorry
theorem mine (n : Nat) (h : n = two) : 2 = n := PROOF
end N
"""


def test_the_script_writes_the_facts_and_the_kinds_that_are_read() -> None:
    assert f'"everlean-questions {answers.FORMAT} "' in SCRIPT
    assert set(re.findall(r'\| \.\w+Info _ => "(\w+)"', SCRIPT)) == set(answers._KINDS)
    facts = set(re.findall(r'say out \("(\w+)\\t', SCRIPT))
    assert facts == set(answers._FIELDS)


def test_every_node_that_the_script_writes_is_one_that_is_read() -> None:
    """But for a hole in a term, which no constant has once the kernel has taken it: nothing is to be compared there.

    Notes (`mdata`) are read, since other programs may write them.
    """
    kinds = set(re.findall(r'\(field "(\w+)"', SCRIPT))
    assert kinds == {*export.NODES, "hole"} - {"mdata"}


@pytest.fixture
def runner(elan_lean: None, tmp_path: Path) -> LakeRunner:
    (tmp_path / "lakefile.toml").write_text('name = "n"\ndefaultTargets = ["A"]\n[[lean_lib]]\nname = "A"\n')
    prefix = subprocess.run(["lean", "--print-prefix"], capture_output=True, text=True).stdout.strip()
    return LakeRunner(Path(prefix) / "bin" / "lake", Path(prefix), "none", tmp_path)


def asked(runner: LakeRunner, proof: str, *, text: str = A) -> Answer:
    (runner.project / "A.lean").write_text(text.replace("PROOF", proof), "utf-8")
    built = build(runner, "A")
    assert built.ok, built.output
    answer = ask_exactly(runner, module="A", declaration="N.mine")
    assert isinstance(answer, Answer), answer
    return answer


def test_a_proof_changes_nothing_but_itself(runner: LakeRunner) -> None:
    without, with_it = asked(runner, "sorry"), asked(runner, "h.symm")
    assert differences(without, with_it, declared={"N.two", "N.gap"}) == []
    assert without.sorried == ("N.mine",)
    assert (with_it.axioms, with_it.sorried, with_it.native, with_it.unsafe) == ((), (), (), ())
    assert list(with_it.premises) == [("N", "two")]


def test_another_statement_or_premise_differs(runner: LakeRunner) -> None:
    without = asked(runner, "sorry")
    for change in (("2 = n", "n = n"), ("Nat := 2", "Nat := 1 + 1")):
        other = asked(runner, "sorry", text=A.replace(*change))
        assert differences(without, other, declared=()), change


def test_what_rests_on_a_gap_names_it(runner: LakeRunner) -> None:
    answer = asked(runner, "absurd gap (by decide)")
    assert "sorryAx" in answer.axioms
    assert answer.sorried == ("N.gap",)
    printed = axioms_of(runner, module="A", declaration="N.mine")
    assert not isinstance(printed, str)
    assert set(printed) == set(answer.axioms)


def test_the_answer_says_which_lean_it_is_by(runner: LakeRunner) -> None:
    said = subprocess.run(["lean", "--version"], capture_output=True, text=True, cwd=runner.project).stdout
    assert f"version {asked(runner, 'h.symm').lean}," in said


def test_quoted_names_of_modules_and_constants_are_found(runner: LakeRunner) -> None:
    (runner.project / "lakefile.toml").write_text('name = "n"\n[[lean_lib]]\nname = "«2 b»"\n')
    (runner.project / "2 b.lean").write_text("theorem «a b».c : True := trivial\n", "utf-8")
    built = build(runner, "«2 b»")
    assert built.ok, built.output
    answer = ask_exactly(runner, module="«2 b»", declaration="«a b».c")
    assert isinstance(answer, Answer), answer


def test_compiled_code_that_the_kernel_believed_is_named(runner: LakeRunner) -> None:
    """Where this Lean has no `Lean.reduceBool` any more, nothing can be believed in this way."""
    text = "def b : Bool := true\ntheorem N.mine : Lean.reduceBool b = true := PROOF\n"
    (runner.project / "A.lean").write_text(text.replace("PROOF", "rfl"), "utf-8")
    if not build(runner, "A").ok:
        pytest.skip("this Lean does not take Lean.reduceBool")
    answer = asked(runner, "rfl", text=text)
    assert "N.mine" in answer.native


def test_an_initializer_of_the_module_does_not_run(runner: LakeRunner) -> None:
    """Asking is reading: to most versions of Lean, importing a module means running what it initializes."""
    marker = runner.project / "ran"
    text = f'import Lean\ninitialize do IO.FS.writeFile "{marker}" ""\n' + A
    without = asked(runner, "sorry", text=text)
    assert without.sorried == ("N.mine",)
    assert not marker.exists()
