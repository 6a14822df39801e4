"""`Trace.lean`, the program that traces a file with nothing but the project's own toolchain, run by Lean 4.35.0."""

from __future__ import annotations

import asyncio
import subprocess
import time
from functools import cache
from pathlib import Path

import pytest

from pipeline.lean.client.errors import ImportsRefused, ReplDied, ReplProtocolError, ReplTimeout
from pipeline.lean.client.messages import Position
from pipeline.trace.program import UNREAD, Answer, Tactic, ask, compiled, read
from store.view import trace_queries
from tests.support.trace import ALONE, Workshop, lean_itself


def told(
    lean: Path, project: Path, text: str | bytes, *, path: str = "File.lean", limit_s: float = 60
) -> Answer:
    """Ask about a file of a project that has it nowhere: what is elaborated is the text."""
    data = text if isinstance(text, bytes) else text.encode()
    asked = ask(
        lean_itself(lean),
        program(lean),
        project=project,
        path=path,
        data=data,
        memory_bytes=None,
        limit_s=limit_s,
    )
    return asyncio.run(asked)


@cache
def program(lean: Path) -> bytes:
    return asyncio.run(compiled(lean_itself(lean), memory_bytes=None, limit_s=60))


def tactics(answer: Answer) -> list[Tactic]:
    return [tactic for command in answer.commands for tactic in command.tactics]


def texts(answer: Answer, text: str) -> list[str]:
    """The tactics of a text."""
    return [text.encode()[tactic.start : tactic.end].decode() for tactic in tactics(answer)]


# --- what is told ---------------------------------------------------------------------------------------------


def test_a_step_has_its_place_its_goals_and_the_constants_of_its_own_term(
    real_lean: Path, tmp_path: Path
) -> None:
    text = "theorem «é» (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  constructor -- ∧\n  all_goals simp [h]\n"
    answer = told(real_lean, tmp_path, text)
    assert texts(answer, text) == ["constructor", "all_goals simp [h]", "simp [h]", "simp [h]"]
    first = tactics(answer)[0]
    assert first.constants == ("And.intro",)
    assert first.before == ("p q : Prop\nh : p ∧ q\n⊢ q ∧ p",)
    assert first.after == (
        "case left\np q : Prop\nh : p ∧ q\n⊢ q",
        "case right\np q : Prop\nh : p ∧ q\n⊢ p",
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
    outer, *inner = texts(told(real_lean, tmp_path, text), text)
    assert outer.startswith("cases h with")
    assert inner == ["exact Or.inr h", "refine ?x", "first | exact Or.inl h", "exact Or.inl h"]


NAMING = """\
def twice (n : Nat) : Nat := n + n
namespace A
theorem foo (a b : Nat) (h : a = b) : b = a := h.symm
theorem hidden (p : Prop) (twice : p) (h : 1 = 2) : 2 = 1 ∧ (p ∨ p) := by
  -- twice
  refine ⟨foo 1 2 h, .inl twice⟩
theorem lists (n : Nat) (h : n = 1) : 1 = n ∧ True := by
  constructor
  · exact (h.symm)
  · simp only [A.foo, twice]
end A
"""


def test_names_are_told_where_they_stand_for_a_constant(real_lean: Path, tmp_path: Path) -> None:
    """Neither a hypothesis of the same name nor a comment is one; what follows the dot of a hypothesis is."""
    answer = told(real_lean, tmp_path, NAMING)
    data = NAMING.encode()
    named = [(data[one.start : one.end].decode(), one.constant) for one in answer.names]
    assert [one for one in named if one[1] != "Nat"] == [
        ("symm", "Eq.symm"),
        ("foo", "A.foo"),
        (".inl", "Or.inl"),
        ("True", "True"),
        ("symm", "Eq.symm"),
        ("A.foo", "A.foo"),
        ("twice", "twice"),
    ]


def test_each_sorry_has_its_own_goals(real_lean: Path, tmp_path: Path) -> None:
    text = """\
theorem t (p q : Prop) (h : p ∧ q) : q ∧ (p → p) := ⟨sorry, fun x => sorry⟩
theorem u (p : Prop) : p ∧ True := by
  constructor <;> admit
theorem v : True ∧ True := by
  constructor
  stop
  trivial
"""
    data = text.encode()
    assert told(real_lean, tmp_path, text).sorries == {
        data.index(b"sorry"): "p q : Prop\nh : p ∧ q\n⊢ q",
        data.rindex(b"sorry"): "p q : Prop\nh : p ∧ q\nx : p\n⊢ p",
        data.index(b"admit"): "case left\np : Prop\n⊢ p\n\ncase right\np : Prop\n⊢ True",
        data.index(b"stop"): "case left\n⊢ True",
    }


def test_where_a_sorry_stands_is_no_premise(real_lean: Path, tmp_path: Path) -> None:
    """Lean 4.35 writes it into the term, as a name."""
    text = "theorem t (p : Prop) (h : p) : p ∧ True := by\n  constructor\n  · exact h\n  · sorry\n"
    answer = told(real_lean, tmp_path, text + "theorem u (p : Prop) : p ∧ (p ∨ p) := ⟨sorry, sorry⟩\n")
    assert [one.constants for one in tactics(answer)][-1] == ("sorryAx", "True")
    assert {name: set(used) for name, used in answer.uses.items()} == {
        "t": {"And.intro", "True", "sorryAx"},
        "u": {"And.intro", "Or", "sorryAx"},
    }


def test_carriage_returns_move_no_place(real_lean: Path, tmp_path: Path) -> None:
    text = "-- é\n\ntheorem a : True := by\n  skip\n  trivial\n\ntheorem b : True := sorry\n"
    returns = text.replace("\n", "\r\n")
    plain, with_returns = (told(real_lean, tmp_path, one) for one in (text, returns))
    data = returns.encode()
    assert texts(with_returns, returns) == ["skip", "trivial"]
    assert [data[one.start :][:9] for one in with_returns.commands[:2]] == [b"theorem a", b"theorem b"]
    assert list(with_returns.sorries) == [data.index(b"sorry")]
    assert list(with_returns.sorries.values()) == list(plain.sorries.values())
    assert [one.made for one in with_returns.commands] == [one.made for one in plain.commands]


def test_constants_are_told_with_what_they_use_and_where_its_name_is_declared(
    real_lean: Path, tmp_path: Path
) -> None:
    text = """\
def twice (n : Nat) : Nat := n + n

private theorem two : twice 1 = 2 := rfl

theorem four (p : Prop) (h : p ∨ p) : p := by
  cases h <;> assumption
"""
    answer = told(real_lean, tmp_path, text, path="Sub/Some File.lean")
    private = "_private.Sub.«Some File».0.two"
    assert [one.made for one in answer.commands[:3]] == [("twice",), (private,), ("four",)]
    assert "twice" in answer.uses[private]
    assert answer.homes["twice"] == ("", (Position(1, 4), Position(1, 9)))
    assert answer.homes["Or.casesOn"] == answer.homes["Or"], "what Lean adds to a type is where that is"
    module, place = answer.homes["Or"]
    assert (module, place is not None) == ("Init.Logic", True)


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
    assert [one.data for command in answer.commands for one in command.errors] == []
    assert texts(answer, header + proofs + goal) == ["rfl", "exact inner"]
    assert [one.constants[-1] for one in tactics(answer)] == ["two", "_private.Own.0.inner"]
    seen = told(real_lean, tmp_path, header.replace("import all Own\n", "") + proofs)
    assert len([one for command in seen.commands for one in command.errors]) == 2


def test_messages_belong_to_the_command_that_they_are_on(real_lean: Path, tmp_path: Path) -> None:
    text = "theorem a : 1 = 2 := by decide\ntheorem b : True := by\n  sorry\n#check a\n"
    first, second, third = told(real_lean, tmp_path, text).commands[:3]
    assert [message.severity for message in first.errors] == ["error"]
    assert [message.is_sorry_warning for message in second.messages] == [True]
    assert [message.data for message in third.messages] == ["a : 1 = 2"]


def test_the_lakefile_s_options_hold(real_lean: Path, tmp_path: Path) -> None:
    text = "theorem t : (fun n : Nat => n) = id := by\n  rfl\n"
    (tmp_path / "lakefile.toml").write_text(
        'name = "x"\n[leanOptions]\npp.unicode.fun = true\nautoImplicit = false\nweak.none.such = 3\n'
    )
    (tactic,) = tactics(told(real_lean, tmp_path, text))
    assert tactic.before == ("⊢ (fun n ↦ n) = id",)
    answer = told(real_lean, tmp_path, "theorem t (a : α) : a = a := rfl\n")
    assert answer.commands[0].errors


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
    with pytest.raises(ImportsRefused, match="unknown module prefix 'Nowhere'"):
        told(real_lean, tmp_path, "import Nowhere\ntheorem t : True := trivial\n")
    with pytest.raises(ImportsRefused, match="expected"):
        told(real_lean, tmp_path, "import 7\n")


def test_a_file_without_an_end_is_given_up_and_leaves_no_process(real_lean: Path, tmp_path: Path) -> None:
    endless = "theorem t : True := by\n  repeat (first | skip)\n  trivial\n"
    started = time.monotonic()
    assert not any(" Endless " in words for words in _commands())
    with pytest.raises(ReplTimeout, match="not done in 2 s"):
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
        (['name\t"1000"\t"1001"\t"A"', "end"], "byte 1000 of 30 begins no character"),
        (['sorry\t"9"\t"⊢ p"', "end"], "byte 9 of 30 begins no character"),
        (['command\t"-1"', "end"], "-1 is no place"),
        (['home\t"A"\t"B"\t"1"\t"2"\t"3"\t"9999999999"', "end"], "9999999999 is no place"),
        (['tactic\t"4"\t"4"\t"0"\t"0"', "end"], "a tactic from byte 4 to byte 4"),
        (['message\t"loud"\t"1"\t"0"\t"1"\t"0"\t"x"', "end"], "loud"),
    ],
)
def test_what_is_no_answer_is_refused(lines: list[str], reason: str) -> None:
    with pytest.raises(UNREAD, match=reason):
        read(iter(line + "\n" for line in lines), "theorem ∀ : True := trivial\n".encode())


@pytest.mark.parametrize("line", ["rumour", r'message\t"loud"\t"1"\t"0"\t"1"\t"0"\t"x"'])
def test_an_answer_that_a_file_spoils_is_that_file_s_error(tmp_path: Path, line: str) -> None:
    """What a file has Lean run may write where the program does."""
    with pytest.raises(ReplProtocolError, match=r"the answer is none: .*(rumour|loud)"):
        told(_answering(tmp_path, f"{line}\n"), tmp_path, ALONE)


@pytest.mark.parametrize("spoils", ["", 'rm "$3"; ', 'rm "$3"; ln -s "$3" "$3"; ', 'rm "$3"; mkdir "$3"; '])
def test_a_file_that_removes_the_answer_fails_alone(tmp_path: Path, spoils: str) -> None:
    """Else one file of a project could keep the whole of it from being traced."""
    lean = _stand_in(tmp_path, f'case $1 in -R) touch $4;; *) touch "$3"; {spoils}exit 1;; esac\n')
    with pytest.raises(ReplDied, match="exit status 1"):
        told(lean, tmp_path, ALONE)


def _refusing(folder: Path, lean: Path) -> Path:
    return _stand_in(
        folder,
        f'case "$1" in -R) echo "Trace.lean:3:0: error: no such name"; exit 1;; esac\nexec {lean}/bin/lean "$@"\n',
    )


def _answering(folder: Path, text: str) -> Path:
    return _stand_in(folder, f"case $1 in -R) touch $4;; *) printf '{text}' > \"$3\";; esac\n")


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
