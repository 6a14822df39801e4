"""Records of a real Lean become steps: paired with their declarations and placed in the text."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from pipeline.lean.client.messages import Invocation, Message, Position, Unit
from pipeline.trace.file import Proof, other_gaps, proofs, tactics
from pipeline.trace.source import FileSource
from store.domain.records import ConstantUse

DIALOGUES = Path(__file__).resolve().parents[3].parent / "shared" / "reference" / "lean-dialogues.jsonl"
TEXT = """\
theorem one (p q : Prop) (h : p ∧ q) : q ∧ p := by
  cases h with -- both
  | intro hp hq => exact ⟨hq, hp⟩

mutual
theorem left : True := by trivial
theorem right : True := by
  exact True.intro
end
"""


def record(before: str, tactic: str, after: str = "", *used: str) -> Invocation:
    return Invocation(goal_before=before, goal_after=after, tactic=tactic, used_constants=used)


def units() -> list[Unit]:
    """What a Lean says of the text, with the records that are no steps as older Leans have them."""
    start = "h : p ∧ q\n⊢ q ∧ p"
    inner = "case intro\nhp : p\nhq : q\n⊢ q ∧ p"
    first = (
        record(start, "cases h with\n  | intro hp hq => exact ⟨hq, hp⟩", "", "And.casesOn"),
        record(inner, "exact ⟨hq, hp⟩", "", "And.intro"),
        record(inner, "exact ⟨hq, hp⟩", "", "And.intro"),
        record(inner, "· exact ⟨hq, hp⟩"),
        record(inner, "rw [h", inner + " "),
        record(inner, "skip", inner),
        record("", "done"),
    )
    second = (record("⊢ True", "trivial"), record("⊢ True", "exact True.intro", "", "True.intro"))
    border = TEXT.index("mutual")
    size = len(TEXT[:border].encode())
    return [
        Unit(0, size, new_constants=("one",), invocations=first),
        Unit(size, len(TEXT.encode()), new_constants=("left", "right"), invocations=second),
    ]


def by_name(found: list[Proof]) -> dict[str, Proof]:
    return {proof.item.record.name: proof for proof in found}


def test_repetitions_focus_blocks_pieces_and_what_changes_nothing_are_no_steps() -> None:
    source = FileSource.read("A.lean", TEXT.encode())
    one = by_name(proofs(source, units()))["one"]
    assert [one.text(source, step) for step in one.steps] == [
        "cases h with\n| intro hp hq => exact ⟨hq, hp⟩",
        "exact ⟨hq, hp⟩",
    ]
    assert one.constants == ["And.casesOn", "And.intro"]


def test_the_records_of_a_mutual_block_go_to_the_declaration_that_they_stand_in() -> None:
    source = FileSource.read("A.lean", TEXT.encode())
    found = by_name(proofs(source, units()))
    assert [step.record.tactic for step in found["left"].steps] == ["trivial"]
    assert [step.record.tactic for step in found["right"].steps] == ["exact True.intro"]


def test_an_outer_step_marks_what_its_inner_ones_use() -> None:
    proof_text = "cases h with\n  | inl h => exact A.foo h\n  | inr h => exact h"
    text = f"theorem t (p : Prop) (h : p ∨ p) : p := by\n  {proof_text}\n"
    source = FileSource.read("A.lean", text.encode())
    records = (
        record("h : p ∨ p\n⊢ p", proof_text),
        record("case inl\nh : p\n⊢ p", "exact A.foo h", "", "A.foo"),
        record("case inr\nh : p\n⊢ p", "exact h"),
    )
    (proof,) = proofs(source, [Unit(0, len(text.encode()), new_constants=("t",), invocations=records)])
    use = ConstantUse("A.foo", ("A.lean", (1, 1), (1, 2)))
    outer, inner, last = tactics(source, proof, {"A.foo": use}, ("",))
    assert outer.annotated == "cases h with\n| inl h => exact <a>A.foo</a> h\n| inr h => exact h"
    assert inner.annotated == "exact <a>A.foo</a> h"
    assert last.premises == ()


def test_a_private_theorem_is_the_constant_with_its_module_before_its_name() -> None:
    text = "private theorem t : True := trivial\n"
    source = FileSource.read("A.lean", text.encode())
    (proof,) = proofs(source, [Unit(0, len(text), new_constants=("_private.0.t",))])
    assert proof.made == "_private.0.t"


def error(line: int, said: str) -> Message:
    return Message("error", said, "", Position(line, 2), None, "A.lean")


def test_a_theorem_that_lean_refuses_is_a_gap_though_lean_makes_its_constant() -> None:
    source = FileSource.read("A.lean", TEXT.encode())
    first, second = units()
    units_with_errors = [first, replace(second, messages=(error(7, "unknown identifier 'nothing'"),))]
    found = by_name(proofs(source, units_with_errors))
    assert found["right"].made == "right"
    gap = found["right"].refusal
    assert gap is not None
    assert (gap.kind, gap.declaration) == ("elaboration", "right")
    assert "unknown identifier 'nothing'" in gap.reason
    assert found["left"].refusal is None, "the error stands on the other's lines"
    ends = [first, replace(second, messages=(error(5, "fail to show termination"),))]
    found = by_name(proofs(source, ends))
    assert found["left"].refusal is not None
    assert found["right"].refusal is not None


def test_what_no_theorem_accounts_for_is_a_gap_too() -> None:
    commands = [
        "-- ∀ é: more bytes than letters\ndef d : Nat := nothing\n",
        "open Nowhere\n",
        '@[simp] local notation "foo" => True\n',
        "-- ∀ é\nmk_theorem made\n",
    ]
    data = "".join(commands).encode()
    borders = [0, *accumulate(len(command.encode()) for command in commands)]
    refused, opened, notation, made = (Unit(start, end) for start, end in pairwise(borders))
    said = [
        replace(refused, messages=(error(2, "unknown identifier 'nothing'"),), new_constants=("d",)),
        replace(opened, messages=(error(3, "unknown namespace 'Nowhere'"),)),
        replace(notation, new_constants=("termFoo",)),
        replace(made, new_constants=("made",)),
    ]
    gaps = other_gaps(data, said, proofs(FileSource.read("A.lean", data), said))
    assert [(gap.kind, gap.declaration) for gap in gaps] == [
        ("elaboration", "d"),
        ("elaboration", ""),
        ("generated", "made"),
    ]
    assert gaps[-1].reason == "declared by 'mk_theorem made', not in the text"


def recorded_files() -> list[Any]:
    if not DIALOGUES.is_file():
        return []
    lines = [json.loads(line) for line in DIALOGUES.read_text("utf-8").splitlines()]
    return [line["records"][0] for line in lines if line.get("kind") == "file"]


@pytest.mark.skipif(not DIALOGUES.is_file(), reason="the recorded dialogues with a real Lean are not here")
def test_every_step_of_the_recorded_files_is_found_in_its_source() -> None:
    n_steps = 0
    for item in recorded_files():
        source = FileSource.read("A.lean", item["request"]["file"].encode())
        made = [
            Unit(
                byte_start=unit["boundary"][0],
                byte_end=unit["boundary"][1],
                new_constants=tuple(unit["newConstants"]),
                invocations=tuple(Invocation.from_json(one) for one in side["invocations"]),
            )
            for unit, side in zip(item["response"]["units"], item["side_file"]["units"], strict=True)
        ]
        for proof in proofs(source, made):
            if proof.is_theorem:
                assert proof.made == proof.item.record.name
            lost = [step.record.tactic for step in proof.steps if step.span is None]
            assert lost == []
            n_steps += len(proof.steps)
    assert n_steps > 20
