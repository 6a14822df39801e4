"""What became of theorems between two versions of some files, by the text alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from pipeline.lean.source.scanner import read_file
from store.domain.life import TheoremStep, counted, follow
from store.domain.matching import Decl, compare, declarations_guessed, declarations_known, declarations_now

Source = Mapping[str, str]


def decls(files: Source, *, before: bool) -> list[Decl]:
    found: list[Decl] = []
    for path, source in files.items():
        read = read_file(source.encode(), path=path)
        known = declarations_known((), read, path=path) if before else None
        found += known if known is not None else declarations_now(read, path=path, blob="0" * 40)
    return found


def followed(before: Source, now: Source, *, unread: tuple[str, ...] = ()) -> list[TheoremStep]:
    return follow(compare(decls(before, before=True), decls(now, before=False)), unread=unread)


def steps(before: str, now: str) -> list[tuple[str, ...]]:
    return [step.steps for step in followed({"A.lean": before}, {"A.lean": now})]


ONE = "theorem one (n : Nat) : n + 0 = n := by simp\n"


@pytest.mark.parametrize(
    "now",
    [
        ONE,
        "-- a line more\n\n" + ONE,
        "theorem  one\n    (n : Nat) :\n    n + 0 = n :=\n  by\n    simp\n",
        "/-- what it says -/\ntheorem one (n : Nat) /- any -/ : n + 0 = n -- so\n  := by simp -- simply\n",
        "@[simp] theorem one (n : Nat) : n + 0 = n := by simp\n",
        "lemma one (n : Nat) : n + 0 = n := by simp\n",
        "open Nat in\ntheorem one (n : Nat) : n + 0 = n := by simp\n",
        "def two := 2\n" + ONE,
    ],
    ids=[
        "the same",
        "moved",
        "other white space",
        "comments",
        "an attribute",
        "a lemma now",
        "a scope",
        "a neighbour",
    ],
)
def test_what_is_the_same_theorem_in_other_clothes_has_no_step(now: str) -> None:
    assert steps(ONE, now) == []


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        ("theorem one (n : Nat) : n = n + 0 := by simp\n", ("restated",)),
        ("theorem one (n : Nat) : n + 0 = n := by rfl\n", ("reproved",)),
        ("theorem one (n : Nat) : n + 0 = n := by sorry\n", ("reproved",)),
        ("theorem uno (n : Nat) : n + 0 = n := by simp\n", ("renamed",)),
        ("theorem uno (n : Nat) : n + 0 = n := by rfl\n", ("renamed", "reproved")),
        ("namespace N\ntheorem one (n : Nat) : n + 0 = n := by simp\nend N\n", ("renamed",)),
        ("theorem one (n : Nat) : n = n := by rfl\n", ("restated",)),
        ("namespace N\ntheorem one (n : Nat) : n = n := by rfl\nend N\n", ("renamed", "restated")),
    ],
)
def test_each_change_has_its_name(now: str, wanted: tuple[str, ...]) -> None:
    (step,) = followed({"A.lean": ONE}, {"A.lean": now})
    assert step.steps == wanted
    assert step.before is not None
    assert step.after is not None
    assert (step.before.name, step.before.path) == ("one", "A.lean")


def test_a_step_says_what_was_and_what_is() -> None:
    (step,) = followed(
        {"A.lean": ONE}, {"B.lean": "lemma uno (n : Nat) :\n    n + 0 = n := by\n  sorry\n  sorry\n"}
    )
    assert step.steps == ("renamed", "file_moved", "reproved")
    assert step.before is not None
    assert step.after is not None
    assert (step.before.name, step.before.kind, step.before.path) == ("one", "theorem", "A.lean")
    after = step.after
    assert (after.name, after.kind, after.path, after.n_sorries) == ("uno", "lemma", "B.lean", 2)
    assert after.statement == "(n : Nat) : n + 0 = n"
    assert after.statement_hash == step.before.statement_hash
    assert after.text_hash != step.before.text_hash


def test_only_theorems_and_lemmas_are_followed() -> None:
    assert steps("", "def a := 1\ninstance : p := q\nexample : 1 = 1 := rfl\naxiom x : p\n") == []
    assert steps(ONE, ONE.replace("theorem", "def")) == [("deleted",)]
    assert steps(ONE.replace("theorem", "def"), ONE) == [("appeared",)]


def test_what_comes_and_goes_is_told_in_the_order_of_the_files_and_the_deleted_last() -> None:
    found = followed(
        {"B.lean": "theorem b : 2 = 2 := rfl\n", "A.lean": "theorem z : True → True := id\n"},
        {"C.lean": "theorem d : 4 = 4 := rfl\ntheorem c : 3 = 3 := rfl\n"},
    )
    names = [(step.after or step.before).name for step in found]  # type: ignore[union-attr] # one of them is there
    assert names == ["d", "c", "z", "b"]
    assert counted(found) == {"appeared": 2, "deleted": 2}


def test_two_that_swap_their_names_are_restated_and_two_that_swap_places_are_not_touched() -> None:
    one, two = "theorem one : 1 = 1 := rfl\n", "theorem two : 2 = 2 := rfl\n"
    assert steps(one + two, two + one) == []
    swapped = one.replace("one", "two") + two.replace("two", "one", 1)
    assert steps(one + two, swapped) == [("restated",), ("restated",)]


def test_of_an_earlier_file_that_cannot_be_read_only_what_the_sorries_say_is_told() -> None:
    now = decls({"A.lean": ONE, "B.lean": "theorem b : 2 = 2 := rfl\n"}, before=False)
    (step,) = follow(compare(declarations_guessed((), path="A.lean"), now), unread=("A.lean",))
    assert step.after is not None
    assert (step.steps, step.after.name) == (("appeared",), "b")
    before = decls({"A.lean": ONE}, before=True)
    assert follow(compare(before, []), unread=("A.lean",)) == []


def test_steps_survive_json() -> None:
    found = followed(
        {"A.lean": ONE + "theorem gone : 5 = 5 := rfl\n"},
        {
            "B.lean": ONE,
            "C.lean": "theorem new : 7 + 1 = 8 := by decide\ntheorem x : ∀ «p q», «p q» := sorry\n",
        },
    )
    assert len(found) == 4
    again = [TheoremStep.from_json(item) for item in json.loads(json.dumps([x.as_json() for x in found]))]
    assert again == found


@pytest.mark.parametrize(
    "broken",
    [
        {"steps": []},
        {"steps": ["improved"]},
        {"steps": ["appeared"]},
        {"steps": ["file_moved"], "before": None},
        {"steps": ["deleted"]},
        {"before": {"name": "a"}},
        {"after": {"name": "a", "mood": "good"}},
    ],
)
def test_a_step_of_another_shape_is_refused(broken: dict[str, object]) -> None:
    (step,) = followed({"A.lean": ONE}, {"B.lean": ONE})
    with pytest.raises((ValueError, TypeError)):
        TheoremStep.from_json(step.as_json() | broken)
