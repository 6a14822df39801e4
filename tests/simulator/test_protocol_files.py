"""Whole texts and the environment over the simulator's protocol: units, side files, sources, conformity."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.simulator.frontend import Modules
from pipeline.lean.simulator.server import Server

Ask = Callable[..., dict[str, Any]]
PROCESS = {"readHeader": False, "inheritEnv": False, "newConstants": False}


def pieces(ask: Ask, text: str, *, header: bool) -> list[str]:
    """Return the text of each unit; together they are everything after the header."""
    units = ask("frontend.process", file=text, **PROCESS | {"readHeader": header})["units"]
    ranges = [unit["boundary"] for unit in units]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ranges))
    assert not ranges or ranges[-1][1] == len(text.encode())
    return [text.encode()[slice(*one)].decode() for one in ranges]


# ---- boundaries


def test_the_first_unit_starts_after_the_header_and_its_trailing_space_and_comments(ask: Ask) -> None:
    text = "import Init\n\n-- about ∀\n/- more -/\nopen Classical\n-- tail\n"

    assert pieces(ask, text, header=True) == ["open Classical\n-- tail\n"]


def test_without_a_header_the_first_unit_starts_at_the_first_byte(ask: Ask) -> None:
    text = "\n-- 𝕜\nexample : True := trivial\n"

    assert pieces(ask, text, header=False) == [text]


def test_comments_belong_to_what_is_before_and_docs_to_what_follows(ask: Ask) -> None:
    text = (
        "/-! module -/\n\n/-- ∀ -/\n@[simp] theorem a : True := trivial\n-- after a\n\n/- block -/\n"
        "/-- doc of b -/ private theorem b : True := trivial"
    )

    assert pieces(ask, text, header=False) == [
        "/-! module -/\n\n",
        "/-- ∀ -/\n@[simp] theorem a : True := trivial\n-- after a\n\n/- block -/\n",
        "/-- doc of b -/ private theorem b : True := trivial",
    ]


@pytest.mark.parametrize("text", ["", "\n\n", "-- only a comment\n"])
def test_a_text_without_commands_has_no_units(ask: Ask, text: str) -> None:
    assert pieces(ask, text, header=False) == []


def test_a_broken_command_is_a_unit_of_its_own(ask: Ask) -> None:
    text = "theorem a : ) := 1\n\ntheorem b : True := trivial\n"

    assert pieces(ask, text, header=False) == ["theorem a : ) := 1\n\n", "theorem b : True := trivial\n"]


# ---- headers


def test_an_import_in_the_text_is_an_error_message_when_no_header_is_read(ask: Ask) -> None:
    units = ask("frontend.process", file="import Init\nexample : True := trivial", **PROCESS)["units"]

    assert "invalid 'import' command" in units[0]["messages"][0]["data"]
    assert units[1]["messages"] == []


def test_what_goes_wrong_in_a_header_shows_only_in_what_follows(
    ask: Ask, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "import No.Such\ntheorem t : True := trivial"
    request = PROCESS | {"readHeader": True, "inheritEnv": True}

    assert ask("frontend.process", file="import No.Such\n", **request) == {"units": []}
    (unit,) = ask("frontend.process", file=text, **request)["units"]
    assert unit["messages"][0]["data"] == "unknown identifier 'True'"
    assert "No.Such" in capfd.readouterr().err
    # Only the environment tells: what was to be imported is in no module.
    assert ask("env.describe") == {"imports": ["No.Such"], "modules": []}


def test_without_imports_there_is_not_even_init(tmp_path: Path) -> None:
    server = Server.start(Modules(tmp_path), [])
    assert server.answer("goal.start", {"expr": "True"})["error"] == "elab"
    header = {"file": "import Init", **PROCESS, "readHeader": True, "inheritEnv": True}
    server.answer("frontend.process", header)

    assert server.answer("goal.start", {"expr": "True"})["stateId"] == 0


def test_a_file_is_read_from_disk_or_from_the_request_but_not_both(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "A.lean"
    path.write_text("theorem t : False := trivial", "utf-8")
    (unit,) = ask("frontend.process", fileName=str(path), **PROCESS)["units"]

    assert unit["messages"][0]["fileName"] == str(path)
    assert ask("frontend.process", fileName=str(path), file="", **PROCESS)["error"] == "command"


# ---- tactic records


def records(ask: Ask, tmp_path: Path, text: str) -> list[list[dict[str, Any]]]:
    path = tmp_path / "invocations.json"
    units = ask("frontend.process", file=text, invocations=str(path), **PROCESS)["units"]
    found = [unit["invocations"] for unit in json.loads(path.read_text("utf-8"))["units"]]
    assert [unit["nInvocations"] for unit in units] == [len(unit) for unit in found]
    return found


def test_the_side_file_holds_what_each_tactic_did(ask: Ask, tmp_path: Path) -> None:
    text = "example : ∀ (p q: Prop), p → p ∨ q := by\n  intro p q h -- names\n  exact Or.inl h"
    (unit,) = records(ask, tmp_path, text)

    assert unit == [
        {
            "goalBefore": "⊢ ∀ (p q : Prop), p → p ∨ q",
            "goalAfter": "p q : Prop\nh : p\n⊢ p ∨ q",
            "tactic": "intro p q h",
            "usedConstants": [],
        },
        {
            "goalBefore": "p q : Prop\nh : p\n⊢ p ∨ q",
            "goalAfter": "",
            "tactic": "exact Or.inl h",
            "usedConstants": ["Or.inl"],
        },
    ]


def test_records_nest_in_order_and_combinators_have_none(ask: Ask, tmp_path: Path) -> None:
    text = (
        "theorem t (p q : Prop) (h : p ∨ q) : q ∨ p := by\n  cases h with\n  | inl a =>\n    /- why -/\n"
        "    right\n    exact a\n  | inr b => (left; exact b)\n"
        "theorem u (p : Prop) (h : p) : p ∧ p := by\n  constructor <;> exact h\n"
        "theorem v (p : Prop) (h : p) : p := h\n"
    )
    first, second, third = records(ask, tmp_path, text)

    assert [one["tactic"].partition("\n")[0] for one in first] == [
        "cases h with",
        "right",
        "exact a",
        "left",
        "exact b",
    ]
    assert "why" not in first[0]["tactic"]
    assert first[0]["goalAfter"] == ""
    assert [one["tactic"] for one in second] == ["constructor", "exact h", "exact h"]
    assert third == []


@pytest.mark.parametrize(
    ("statement", "tactic", "constants"),
    [
        ("True", "trivial", ["True.intro"]),
        ("5 < 7", "omega", ["Nat.lt"]),
    ],
)
def test_what_a_tactic_tries_inside_itself_has_no_record(
    ask: Ask, tmp_path: Path, statement: str, tactic: str, constants: list[str]
) -> None:
    ((record,),) = records(ask, tmp_path, f"example : {statement} := by {tactic}")

    assert (record["tactic"], record["goalAfter"]) == (tactic, "")
    assert record["usedConstants"] == constants


def test_hypotheses_of_one_type_share_a_line_in_records_whatever_the_type(ask: Ask, tmp_path: Path) -> None:
    text = "example (p q : Prop) (h g : p) (n : Nat) (f : q) (k : p) : p := by exact h"
    ((record,),) = records(ask, tmp_path, text)

    assert record["goalBefore"] == "p q : Prop\nh g : p\nn : Nat\nf : q\nk : p\n⊢ p"


def test_a_file_without_a_side_file_does_not_count_tactics(ask: Ask, tmp_path: Path) -> None:
    (unit,) = ask("frontend.process", file="example : True := by trivial", **PROCESS)["units"]

    assert unit.keys() == {"boundary", "messages"}
    nowhere = str(tmp_path / "no" / "file")
    assert ask("frontend.process", file="", invocations=nowhere, **PROCESS)["error"] == "io"


# ---- where constants stand


@pytest.fixture
def project(tmp_path: Path) -> Server:
    (tmp_path / "Lib").mkdir()
    (tmp_path / "Lib" / "Base.lean").write_text(
        "/-! intro -/\n\nnamespace Lib\n\n/-- doc -/\n@[simp]\ntheorem base (p : Prop) (h : p) : p := by\n"
        "  exact h -- end\n\ndef 𝕜 : Nat := 3\n\nend Lib\n",
        "utf-8",
    )
    (tmp_path / "Lib" / "Top.lean").write_text(
        "import Lib.Base\n\ntheorem top : True := Lib.base True trivial\n", "utf-8"
    )
    return Server.start(Modules(tmp_path), ["Lib.Top"])


def test_a_constant_of_a_module_says_where_it_is_declared(project: Server, tmp_path: Path) -> None:
    found = project.answer(
        "env.inspect", {"name": "Lib.base", "source": True, "dependency": True, "value": True}
    )

    assert found["module"] == "Lib.Base"
    assert found["sourceUri"] == (tmp_path / "Lib" / "Base.lean").resolve().as_uri()
    assert (found["sourceStart"], found["sourceEnd"]) == (
        {"line": 5, "column": 0},
        {"line": 8, "column": 9},
    )
    short = project.answer("env.inspect", {"name": "Lib.𝕜", "source": True})
    assert (short["sourceStart"], short["sourceEnd"]) == (
        {"line": 10, "column": 0},
        {"line": 10, "column": 16},
    )
    top = project.answer("env.inspect", {"name": "top", "value": True, "dependency": True})
    assert top["valueDependency"] == ["Lib.base", "True", "trivial"]
    assert "sourceUri" not in top


def test_a_constant_of_no_module_has_a_place_but_no_file(project: Server) -> None:
    text = "open Lib in\n/-- doc -/\ntheorem mine : True := trivial"
    project.answer("frontend.process", {"file": text, **PROCESS, "inheritEnv": True})
    found = project.answer("env.inspect", {"name": "mine", "source": True})

    assert "sourceUri" not in found
    assert "module" not in found
    assert found["sourceStart"] == {"line": 2, "column": 0}
    built_in = project.answer("env.inspect", {"name": "And.comm", "source": True})
    assert (built_in["module"], "sourceUri" in built_in) == ("Init.Core", False)


def test_modules_are_described(project: Server) -> None:
    described = project.answer("env.describe", {})
    assert described["imports"] == ["Lib.Top"]
    assert described["modules"][-2:] == ["Lib.Base", "Lib.Top"]  # type: ignore[index]


# ---- conformity


SPEC = "def f : Nat → Nat := sorry\ntheorem spec (n : Nat) : f n = n + 1 := sorry"


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("def f (x : Nat) := x + 1\ntheorem spec (n : Nat) : f n = n + 1 := rfl", None),
        ("def g : Nat := 1\ndef f (x : Nat) := x + g\ntheorem spec (n : Nat) : f n = n + 1 := rfl", None),
        ("def f (x : Nat) := x + 1\ntheorem spec (n : Nat) : 0 = 0 := rfl", "Type clash of spec"),
        ("def f (x : Nat) := x + 1", "[spec] not accounted for"),
        (SPEC, "Definition value has sorry: f"),
        ("axiom z : False\n" + SPEC, "Adding axiom is not allowed: z"),
        ("noncomputable def f (x : Nat) := x + 1", "Must not modify computability on f"),
    ],
)
def test_a_text_that_does_not_keep_its_specification_is_told_why(
    ask: Ask, text: str, failure: str | None
) -> None:
    reply = ask("frontend.track", src=SPEC, dst=text)

    assert (reply["srcMessages"], reply["dstMessages"]) == ([], [])
    assert reply.get("failure") == failure


def test_with_errors_there_is_no_verdict_only_messages(ask: Ask) -> None:
    reply = ask("frontend.track", src=SPEC, dst="def f : Nat := trivial")

    assert "failure" not in reply
    assert [message["severity"] for message in reply["srcMessages"]] == ["warning", "warning"]
    assert [message["severity"] for message in reply["dstMessages"]] == ["error"]


def test_a_value_that_was_no_sorry_must_stay(ask: Ask) -> None:
    assert ask("frontend.track", src="def a : Nat := 1", dst="def a : Nat := 2")["failure"] == (
        "Definition clash of a"
    )


# ---- what it does not do, said as an error


def test_coupled_sorries_are_refused_and_never_split(ask: Ask) -> None:
    for ignore in (True, False):
        reply = ask("frontend.distil", file=SPEC, ignoreValues=ignore)
        assert (reply["error"], "outside its logic" in reply["desc"]) == ("io", True)


def test_a_sorry_that_was_undone_is_no_goal(ask: Ask) -> None:
    text = (
        "theorem t : True ∧ True := by\n  first\n  | (constructor; sorry; exact nonexistent)\n"
        "  | exact ⟨trivial, sorry⟩"
    )
    (target,) = ask("frontend.distil", file=text, ignoreValues=False)["targets"]

    assert [goal["target"]["pp"] for goal in target["goals"]] == ["True"]
