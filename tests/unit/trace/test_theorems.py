"""What Lean says of commands becomes steps and gaps: paired with their declarations, with their texts and marks."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

from pipeline.lean.client.messages import Message, Position
from pipeline.trace.file import Proof, constants_used, other_gaps, proofs, tactics
from pipeline.trace.program import Answer, Command, Name, Tactic
from pipeline.trace.source import FileSource
from store.domain.records import ConstantUse

TEXT = """\
theorem one (p q : Prop) (h : p ∧ q) : q ∧ p := by
  cases h with -- both
  | intro hp hq => exact ⟨hq, hp⟩

mutual
theorem left : True := by · trivial
theorem right : True := by
  exact True.intro
end
"""


def tactic(text: str, words: str, before: str, after: str = "", *used: str) -> Tactic:
    """The tactic of a text that these words are, the first time that they stand there."""
    start = len(text[: text.index(words)].encode())
    goals_before, goals_after = (tuple(filter(None, [goal])) for goal in (before, after))
    return Tactic(start, start + len(words.encode()), goals_before, goals_after, used)


def commands() -> list[Command]:
    """What a Lean says of the text, with what is no step."""
    start = "h : p ∧ q\n⊢ q ∧ p"
    inner = "case intro\nhp : p\nhq : q\n⊢ q ∧ p"
    whole = TEXT[TEXT.index("cases h") : TEXT.index("\n\nmutual")]
    exact = tactic(TEXT, "exact ⟨hq, hp⟩", inner, "", "And.intro")
    first = (
        tactic(TEXT, whole, start, "", "And.casesOn"),
        exact,
        exact,
        tactic(TEXT, "· trivial", "⊢ True"),
        tactic(TEXT, "with", inner, inner),
        tactic(TEXT, "mutual", ""),
    )
    second = (
        tactic(TEXT, "trivial", "⊢ True"),
        tactic(TEXT, "exact True.intro", "⊢ True", "", "True.intro"),
    )
    size = len(TEXT[: TEXT.index("mutual")].encode())
    return [
        Command(0, size, made=("one",), tactics=first),
        Command(size, len(TEXT.encode()), made=("left", "right"), tactics=second),
    ]


def by_name(found: list[Proof]) -> dict[str, Proof]:
    return {proof.item.record.name: proof for proof in found}


def test_repetitions_focus_blocks_and_what_changes_nothing_are_no_steps() -> None:
    source = FileSource.read("A.lean", TEXT.encode())
    one = by_name(proofs(source, commands()))["one"]
    assert [source.step(step.start, step.end) for step in one.steps] == [
        "cases h with\n| intro hp hq => exact ⟨hq, hp⟩",
        "exact ⟨hq, hp⟩",
    ]
    assert one.constants == ["And.casesOn", "And.intro"]


def test_the_tactics_of_a_mutual_block_go_to_the_declaration_that_they_stand_in() -> None:
    source = FileSource.read("A.lean", TEXT.encode())
    found = by_name(proofs(source, commands()))
    texts = {name: [source.code[one.start : one.end] for one in proof.steps] for name, proof in found.items()}
    assert (texts["left"], texts["right"]) == (["trivial"], ["exact True.intro"])


def test_a_step_marks_the_names_in_it_that_have_a_site_and_of_several_at_a_place_one() -> None:
    whole = "cases h with\n  | inl h => exact A.foo h\n  | inr h => exact «é» h"
    text = f"theorem t (p : Prop) (h : p ∨ p) : p := by\n  {whole}\n"
    source = FileSource.read("A.lean", text.encode())
    steps = (
        tactic(text, whole, "h : p ∨ p\n⊢ p"),
        tactic(text, "exact A.foo h", "case inl\nh : p\n⊢ p"),
        tactic(text, "exact «é» h", "case inr\nh : p\n⊢ p"),
    )

    def name(word: str, constant: str) -> Name:
        start = len(text[: text.index(word)].encode())
        return Name(start, start + len(word.encode()), constant)

    known = {one: (f"{one}.lean", (1, 1), (1, 2)) for one in ("A.foo", "A.foo'", "é", "Prop'")}
    names = sorted(
        [
            name("A.foo", "A.foo"),
            name("A.foo", "A.foo'"),
            name("«é»", "é"),
            name("inl", "Or.inl"),
            name("Prop", "Prop'"),
        ]
    )
    (proof,) = proofs(source, [Command(0, len(text.encode()), made=("t",), tactics=steps)])
    outer, inner, last = tactics(source, proof, names, lambda one: ConstantUse(one, known.get(one)))
    assert outer.annotated == "cases h with\n| inl h => exact <a>A.foo</a> h\n| inr h => exact <a>«é»</a> h"
    assert [use.full_name for use in outer.premises] == ["A.foo", "é"]
    assert (inner.annotated, last.annotated) == ("exact <a>A.foo</a> h", "exact <a>«é»</a> h")


def test_what_lean_split_off_a_proof_counts_with_it() -> None:
    uses = {"one": ("And.right", "one.match_1"), "one.match_1": ("And.casesOn", "one")}
    assert constants_used(Answer((), uses=uses), "one") == ["And.right", "And.casesOn"]


def test_a_private_theorem_is_the_constant_with_its_module_before_its_name() -> None:
    text = "private theorem t : True := trivial\n"
    source = FileSource.read("A.lean", text.encode())
    (proof,) = proofs(source, [Command(0, len(text), made=("_private.0.t",))])
    assert proof.made == "_private.0.t"


def error(line: int, said: str) -> Message:
    return Message("error", said, pos=Position(line, 2))


def test_a_theorem_that_lean_refuses_is_a_gap_though_lean_makes_its_constant() -> None:
    source = FileSource.read("A.lean", TEXT.encode())
    first, second = commands()
    with_errors = [first, replace(second, messages=(error(7, "unknown identifier 'nothing'"),))]
    found = by_name(proofs(source, with_errors))
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
    texts = [
        "-- ∀ é: more bytes than letters\ndef d : Nat := nothing\n",
        "open Nowhere\n",
        '@[simp] local notation "foo" => True\n',
        "-- ∀ é\nmk_theorem made\n",
    ]
    data = "".join(texts).encode()
    borders = [0, *accumulate(len(text.encode()) for text in texts)]
    refused, opened, notation, made = (Command(start, end) for start, end in pairwise(borders))
    said = [
        replace(refused, messages=(error(2, "unknown identifier 'nothing'"),), made=("d",)),
        replace(opened, messages=(error(3, "unknown namespace 'Nowhere'"),)),
        replace(notation, made=("termFoo",)),
        replace(made, made=("made",)),
    ]
    gaps = other_gaps(data, said, proofs(FileSource.read("A.lean", data), said))
    assert [(gap.kind, gap.declaration) for gap in gaps] == [
        ("elaboration", "d"),
        ("elaboration", ""),
        ("generated", "made"),
    ]
    assert gaps[-1].reason == "declared by 'mk_theorem made', not in the text"
