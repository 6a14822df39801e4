"""`Trace.lean`, the program that traces a file with nothing but the project's own toolchain, run by Lean 4.35.0."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from pipeline.lean.client.errors import BadRequest, ReplProtocolError, ReplStartError, ReplTimeout
from pipeline.lean.client.messages import Invocation
from pipeline.trace.program import Answer, ask, read
from store.view import trace_queries
from tests.support.trace import ALONE, Workshop, lean_itself


def told(
    lean: Path, project: Path, text: str | bytes, *, path: str = "File.lean", limit_s: float = 60
) -> Answer:
    """Ask about a file of a project that has it nowhere: what is elaborated is the text."""
    data = text if isinstance(text, bytes) else text.encode()
    return asyncio.run(
        ask(lean_itself(lean), project=project, path=path, data=data, memory_bytes=None, limit_s=limit_s)
    )


def records(answer: Answer) -> list[Invocation]:
    return [record for unit in answer.units for record in unit.invocations or ()]


# --- what is told ---------------------------------------------------------------------------------------------


def test_a_step_has_its_place_its_goals_and_the_constants_of_its_own_term(
    real_lean: Path, tmp_path: Path
) -> None:
    text = "theorem «é» (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  constructor -- ∧\n  all_goals simp [h]\n"
    first, *rest = records(told(real_lean, tmp_path, text))
    assert (first.tactic, first.used_constants) == ("constructor", ("And.intro",))
    assert first.goal_before == "p q : Prop\nh : p ∧ q\n⊢ q ∧ p"
    assert (
        first.goal_after == "case left\np q : Prop\nh : p ∧ q\n⊢ q\n\ncase right\np q : Prop\nh : p ∧ q\n⊢ p"
    )
    assert [record.tactic for record in rest] == ["all_goals simp [h]", "simp [h]", "simp [h]"]
    assert all(
        record.place is not None and text.encode()[slice(*record.place)].decode() == record.tactic
        for record in (first, *rest)
    )


def test_what_only_holds_steps_together_is_no_step(real_lean: Path, tmp_path: Path) -> None:
    text = """\
theorem t (p q : Prop) (h : p ∨ q) : q ∨ p := by
  cases h with
  | inl h => (exact Or.inr h)
  | inr h =>
    refine ?x
    case x => first | exact Or.inl h
"""
    said = [record.tactic for record in records(told(real_lean, tmp_path, text))]
    assert said[0].startswith("cases h with")
    assert said[1:] == ["exact Or.inr h", "refine ?x", "first | exact Or.inl h", "exact Or.inl h"]


def test_each_sorry_of_a_term_has_its_own_goal(real_lean: Path, tmp_path: Path) -> None:
    text = "theorem t (p q : Prop) (h : p ∧ q) : q ∧ (p → p) := ⟨sorry, fun x => sorry⟩\n"
    answer = told(real_lean, tmp_path, text)
    first, second = text.encode().index(b"sorry"), text.encode().rindex(b"sorry")
    assert answer.sorries == {
        first: "p q : Prop\nh : p ∧ q\n⊢ q",
        second: "p q : Prop\nh : p ∧ q\nx : p\n⊢ p",
    }


def test_carriage_returns_move_no_place(real_lean: Path, tmp_path: Path) -> None:
    text = "-- é\n\ntheorem a : True := by\n  skip\n  trivial\n\ntheorem b : True := sorry\n"
    plain, with_returns = (told(real_lean, tmp_path, one) for one in (text, text.replace("\n", "\r\n")))
    data = text.replace("\n", "\r\n").encode()
    places = [record.place for record in records(with_returns)]
    assert [data[slice(*place)].decode() for place in places if place] == ["skip", "trivial"]
    assert [data[unit.byte_start :][:9] for unit in with_returns.units[:2]] == [b"theorem a", b"theorem b"]
    assert list(with_returns.sorries) == [data.index(b"sorry")]
    assert list(with_returns.sorries.values()) == list(plain.sorries.values())
    assert [unit.new_constants for unit in with_returns.units] == [unit.new_constants for unit in plain.units]


def test_constants_are_told_with_what_they_use_and_where_that_is_declared(
    real_lean: Path, tmp_path: Path
) -> None:
    text = """\
def twice (n : Nat) : Nat := n + n

private theorem two : twice 1 = 2 := rfl

theorem four (p : Prop) (h : p ∨ p) : p := by
  cases h <;> assumption
"""
    answer = told(real_lean, tmp_path, text, path="Sub/Some File.lean")

    async def inspect() -> None:
        name = "_private.Sub.«Some File».0.two"
        assert "twice" in ((await answer.env_inspect(name, value=True)).value_dependency or ())
        home = await answer.env_inspect("Or.casesOn", source=True)
        assert (home.module, home.source_start is not None) == ("Init.Logic", True)
        with pytest.raises(BadRequest, match="told nothing of Nowhere"):
            await answer.env_inspect("Nowhere")

    asyncio.run(inspect())
    assert [unit.new_constants for unit in answer.units[:3]] == [
        ("twice",), ("_private.Sub.«Some File».0.two",), ("four",),
    ]  # fmt: skip


def test_a_module_file_is_elaborated_under_its_own_header(real_lean: Path, tmp_path: Path) -> None:
    header = "module\npublic import Own\nimport all Own\n\n@[expose] public section\n"
    proofs = "theorem a : two = 2 := by\n  rfl\n\nprivate theorem b : 1 = 1 := by\n  exact inner\n"
    goal = "theorem c (p : Prop) : p → p := sorry\n"
    compiled = tmp_path / ".lake" / "build" / "lib" / "lean"
    compiled.mkdir(parents=True)
    (tmp_path / "Own.lean").write_text(
        "module\nprivate theorem inner : 1 = 1 := rfl\npublic def two : Nat := 2\n", "utf-8"
    )
    lean = real_lean / "bin" / "lean"
    subprocess.run([lean, "-o", compiled / "Own.olean", "Own.lean"], cwd=tmp_path, env={}, check=True)
    answer = told(real_lean, tmp_path, header + proofs + goal)
    assert list(answer.sorries.values()) == ["p : Prop\n⊢ p → p"]
    assert [one.data for unit in answer.units for one in unit.errors] == []
    assert [(one.tactic, one.used_constants[-1]) for one in records(answer)] == [
        ("rfl", "two"),
        ("exact inner", "_private.Own.0.inner"),
    ]
    seen = told(real_lean, tmp_path, header.replace("import all Own\n", "") + proofs)
    assert len([one for unit in seen.units for one in unit.errors]) == 2


def test_messages_belong_to_the_command_that_they_are_on(real_lean: Path, tmp_path: Path) -> None:
    text = "theorem a : 1 = 2 := by decide\ntheorem b : True := by\n  sorry\n#check a\n"
    first, second, third = told(real_lean, tmp_path, text).units[:3]
    assert [message.severity for message in first.errors] == ["error"]
    assert second.uses_sorry
    assert [message.data for message in third.messages] == ["a : 1 = 2"]


def test_the_lakefile_s_options_hold(real_lean: Path, tmp_path: Path) -> None:
    text = "theorem t : (fun n : Nat => n) = id := by\n  rfl\n"
    (tmp_path / "lakefile.toml").write_text(
        'name = "x"\n[leanOptions]\npp.unicode.fun = true\nautoImplicit = false\nweak.none.such = 3\n'
    )
    (record,) = records(told(real_lean, tmp_path, text))
    assert record.goal_before == "⊢ (fun n ↦ n) = id"
    answer = told(real_lean, tmp_path, "theorem t (a : α) : a = a := rfl\n")
    assert answer.units[0].errors


def test_a_module_file_is_traced_as_what_it_is(real_lean: Path, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lean=lean_itself(real_lean))
    below = "module\n\npublic theorem shown : True := trivial\n\ntheorem hidden : True := trivial\n"
    above = "module\n\nimport Below\n\npublic theorem top : True := by\n  exact shown\n\ntheorem bad : True := hidden\n"
    workshop.commit({"Below.lean": below, "Above.lean": above})
    workshop.build("Below.lean")
    workshop.trace()
    assert [item.full_name for item in workshop.file("Below.lean").theorems] == ["shown", "hidden"]
    (top,) = workshop.file("Above.lean").theorems
    assert [(step.annotated, step.state_before) for step in top.tactics] == [("exact <a>shown</a>", "⊢ True")]
    gaps = trace_queries.gaps_of_trace(workshop.db, workshop.newest.trace)
    (refused,) = (gap for gap in gaps if gap.kind == "elaboration")
    assert (refused.declaration, "hidden" in refused.reason) == ("bad", True)
    workshop.close()


# --- what goes wrong ------------------------------------------------------------------------------------------


def test_a_file_whose_imports_fail_is_told_from_one_that_is_wrong(real_lean: Path, tmp_path: Path) -> None:
    with pytest.raises(ReplStartError, match="unknown module prefix 'Nowhere'"):
        told(real_lean, tmp_path, "import Nowhere\ntheorem t : True := trivial\n")
    with pytest.raises(ReplStartError, match="expected"):
        told(real_lean, tmp_path, "import 7\n")


def test_a_file_without_an_end_is_given_up_and_leaves_no_process(real_lean: Path, tmp_path: Path) -> None:
    endless = "theorem t : True := by\n  repeat (first | skip)\n  trivial\n"
    started = time.monotonic()
    assert not any(" Endless " in words for words in _commands())
    with pytest.raises(ReplTimeout, match="no answer in 2 s"):
        told(
            real_lean,
            tmp_path,
            "set_option maxRecDepth 100000000 in\n" + endless,
            path="Endless.lean",
            limit_s=2,
        )
    assert time.monotonic() - started < 10
    assert not any(" Endless " in words for words in _commands())


def test_what_the_program_cannot_do_fails_the_job_and_not_each_file(real_lean: Path, tmp_path: Path) -> None:
    """A Lean in which `Trace.lean` does not compile is no fault of the repository's files."""
    workshop = Workshop(tmp_path, lean=lean_itself(_refusing(tmp_path, real_lean)))
    workshop.commit({"A.lean": ALONE})
    ended = workshop.trace()
    assert ended.last["reason"] == "lean_does_not_start"
    assert "Trace.lean: exit status 1: Trace.lean:3:0: error: no such name" in ended.last["message"]
    assert trace_queries.traces(workshop.db) == []
    workshop.close()


@pytest.mark.usefixtures("bubblewrap")
def test_a_file_is_traced_in_the_sandbox_and_reaches_nothing_outside(real_lean: Path, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, lean=lean_itself(real_lean, sandbox="bubblewrap"))
    workshop.commit({"A.lean": ALONE, "B.lean": "import A\ntheorem b : True := by\n  exact alone\n"})
    workshop.build("A.lean")
    assert workshop.trace().summary["theorems"] == 2
    (step,) = workshop.theorem("b").tactics
    assert (step.annotated, step.state_before) == ("exact <a>alone</a>", "⊢ True")
    workshop.close()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (['command\t"0"'], "no end"),
        (["end", 'command\t"0"'], "after the end"),
        (['rumour\t"x"', "end"], "a line of 'rumour'"),
        (["command\t0", "end"], "no text in quotes"),
        (['tactic\t"0"\t"1"\t"2"\t"one goal"', "end"], "2 goals of which 1 are there"),
        (['message\t"loud"\t"1"\t"0"\t"1"\t"0"\t"x"', "end"], "loud"),
    ],
)
def test_what_is_no_answer_is_refused(lines: list[str], reason: str) -> None:
    with pytest.raises((ValueError, KeyError), match=reason):
        read(iter(line + "\n" for line in lines), b"theorem t : True := trivial\n")


def test_an_answer_that_a_file_spoils_is_that_file_s_error(real_lean: Path, tmp_path: Path) -> None:
    """What a file has Lean run may write where the program does."""
    spoiling = _answering(tmp_path, "rumour\n")
    with pytest.raises(ReplProtocolError, match="the answer is none: a line of 'rumour"):
        told(spoiling, tmp_path, ALONE)


def _refusing(folder: Path, lean: Path) -> Path:
    return _stand_in(
        folder,
        f'case "$1" in --run) echo "Trace.lean:3:0: error: no such name"; exit 1;; esac\nexec {lean}/bin/lean "$@"\n',
    )


def _answering(folder: Path, text: str) -> Path:
    return _stand_in(folder, f"printf '{text}' > \"$3\"\n")


def _stand_in(folder: Path, script: str) -> Path:
    program = folder / "stand-in" / "bin" / "lean"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    return program.parent.parent


def _commands() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found
