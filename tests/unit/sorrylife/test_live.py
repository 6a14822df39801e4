from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from pipeline.jobs.mirror import TreeFile
from pipeline.lean.source.forbidden import ADMITTING, MAKERS, SORRY_NAMES, UNCHECKED_NAMES
from pipeline.lean.source.scanner import read_file, scan_source
from pipeline.meaning import Meanings
from pipeline.versions import Version
from store.domain.life import Commit, GivenProof, live
from store.domain.matching import (
    Decl,
    LivingSorry,
    compare,
    declarations_guessed,
    declarations_known,
    declarations_now,
)
from store.events.scans import SorryChanged, SorryEvent, SorryFilled, SorryMoved, SorryOpened, SorryRemoved
from tests.support.fillings import FILLINGS


@dataclass
class Branch:
    """A branch whose commits are given as {path: source}; keeps what a database would."""

    remember: bool = True
    files: dict[str, str] = field(default_factory=dict)
    living: dict[str, LivingSorry] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    commits: int = 0
    last: list[SorryEvent] = field(default_factory=list)

    def commit(
        self, files: Mapping[str, str | None], *, proofs: tuple[GivenProof, ...] = ()
    ) -> list[SorryEvent]:
        """Change these files (None removes one) and return the events."""
        self.commits += 1
        before: list[Decl] = []
        now: list[Decl] = []
        old, new = self._versions(files)
        for path, source in files.items():
            changed = [item for item in self.living.values() if item.place.path == path]
            if path in self.files and self.remember:
                read = read_file(self.files[path].encode(), path=path)
                before += declarations_known(changed, read, path=path) or []
            else:
                before += declarations_guessed(changed, path=path)
            if source is not None:
                read = read_file(source.encode(), path=path)
                now += declarations_now(read, path=path, blob=f"{self.commits:040x}")
        compared = compare(before, now)
        events = live(
            Commit("host/o/n", "main", f"{self.commits:040x}"),
            compared,
            judge=Meanings(old, new, compared),
            proofs=proofs,
            elsewhere={item.sorry for item in self.living.values() if item.place.path not in files},
            closed=self.closed,
        ).events
        for path, source in files.items():
            if source is None:
                del self.files[path]
            else:
                self.files[path] = source
        self.last = events
        for event in events:
            self._apply(event)
        assert len({event.sorry for event in events}) == len(events), "one event a sorry and commit"
        return events

    def _versions(self, files: Mapping[str, str | None]) -> tuple[dict[str, Version], dict[str, Version]]:
        was = {path: self.files[path] for path in files if path in self.files and self.remember}
        now = {path: text for path, text in files.items() if text is not None}
        old, new = (
            {path: Version(TreeFile(path, ""), text.encode()) for path, text in some.items()}
            for some in (was, now)
        )
        return old, new

    def _apply(self, event: SorryEvent) -> None:
        match event:
            case SorryOpened():
                assert event.sorry not in self.living
                assert event.reopened == (event.sorry in self.closed)
                self.closed.discard(event.sorry)
                self.living[event.sorry] = LivingSorry(event.sorry, event.place)
            case SorryMoved() | SorryChanged():
                self.living[event.sorry] = LivingSorry(event.sorry, event.place)
            case SorryFilled() | SorryRemoved():
                del self.living[event.sorry]
                self.closed.add(event.sorry)

    def id_at(self, line: int, *, path: str = "A.lean") -> str:
        (found,) = [
            key for key, item in self.living.items() if (item.place.path, item.place.line) == (path, line)
        ]
        return found


@pytest.fixture(params=[True, False], ids=["with the earlier files", "from places alone"])
def branch(request: pytest.FixtureRequest) -> Branch:
    return Branch(remember=request.param)


def types(events: list[SorryEvent]) -> list[str]:
    return [event.type for event in events]


ONE = "theorem a : p := by\n  sorry\n"


def test_a_first_sight_opens_every_sorry(branch: Branch) -> None:
    (event,) = branch.commit({"A.lean": ONE})
    assert isinstance(event, SorryOpened)
    assert not event.reopened
    assert (event.place.declaration, event.place.line, event.place.statement) == ("a", 2, ": p")


def test_lines_above_move_a_sorry_and_keep_its_id(branch: Branch) -> None:
    (opened,) = branch.commit({"A.lean": ONE})
    (moved,) = branch.commit({"A.lean": "\n\ntheorem b : q := r\n" + ONE})
    assert isinstance(moved, SorryMoved)
    assert (moved.sorry, moved.what, moved.place.line) == (opened.sorry, ("line",), 5)


def test_a_change_below_records_the_new_blob_as_context(branch: Branch) -> None:
    branch.commit({"A.lean": ONE})
    (moved,) = branch.commit({"A.lean": ONE + "theorem b : q := r\n"})
    assert isinstance(moved, SorryMoved)
    assert moved.what == ("context",)
    assert moved.place.blob == f"{2:040x}"


def test_a_moved_file_keeps_the_ids(branch: Branch) -> None:
    (opened,) = branch.commit({"A.lean": ONE})
    (moved,) = branch.commit({"A.lean": None, "B/C.lean": ONE})
    assert isinstance(moved, SorryMoved)
    assert (moved.sorry, moved.what) == (opened.sorry, ("file",))


def test_a_declaration_moved_between_files_keeps_its_sorry(branch: Branch) -> None:
    branch.commit({"A.lean": "theorem z : r := s\n" + ONE, "B.lean": "theorem c : q := by sorry\n"})
    kept = branch.id_at(3)
    events = branch.commit({"A.lean": "theorem z : r := s\n", "B.lean": "theorem c : q := by sorry\n" + ONE})
    assert sorted(types(events)) == ["sorry_moved", "sorry_moved"]
    assert branch.id_at(3, path="B.lean") == kept


def test_a_renamed_declaration_keeps_its_sorry(branch: Branch) -> None:
    (opened,) = branch.commit({"A.lean": ONE})
    (moved,) = branch.commit({"A.lean": "theorem new_name : p := by\n  sorry\n"})
    assert isinstance(moved, SorryMoved)
    assert (moved.sorry, moved.what) == (opened.sorry, ("rename",))


def test_a_renamed_namespace_keeps_each_sorry_with_its_own_declaration(branch: Branch) -> None:
    branch.commit({"A.lean": "namespace N\ntheorem a : p := sorry\ntheorem b : p := sorry\nend N\n"})
    a, b = branch.id_at(2), branch.id_at(3)
    branch.commit({"A.lean": "namespace M\ntheorem b : p := sorry\ntheorem a : p := sorry\nend M\n"})
    assert (branch.id_at(2), branch.id_at(3)) == (b, a)


def test_a_renamed_namespace_keeps_its_sorry_although_the_statement_names_it_too(branch: Branch) -> None:
    (opened,) = branch.commit({"A.lean": "namespace N\ntheorem a : N.p := sorry\nend N\n"})
    (changed,) = branch.commit({"A.lean": "namespace M\ntheorem a : M.p := sorry\nend M\n"})
    assert isinstance(changed, SorryChanged)
    assert changed.sorry == opened.sorry
    (went,) = branch.commit({"A.lean": "namespace K\ntheorem a : K.p := rfl\nend K\n"})
    assert isinstance(went, SorryRemoved)
    assert (went.how, went.statement_before, went.statement_after) == ("restated", ": M.p", ": K.p")


def test_names_that_end_alike_are_no_rename_where_there_is_a_choice(branch: Branch) -> None:
    branch.commit({"A.lean": "theorem N.a : p := sorry\n"})
    events = branch.commit({"A.lean": "theorem K.a : q := sorry\ntheorem M.a : r := sorry\n"})
    assert sorted(types(events)) == ["sorry_opened", "sorry_opened", "sorry_removed"]


def test_a_reworded_statement_changes_the_sorry_and_says_what_it_was(branch: Branch) -> None:
    (opened,) = branch.commit({"A.lean": ONE})
    (changed,) = branch.commit({"A.lean": "\ntheorem a : p ∧ q := by\n  sorry\n"})
    assert isinstance(changed, SorryChanged)
    assert (changed.sorry, changed.statement_before, changed.place.statement) == (
        opened.sorry,
        ": p",
        ": p ∧ q",
    )


def test_a_proof_by_people_fills(branch: Branch) -> None:
    (opened,) = branch.commit({"A.lean": ONE})
    (filled,) = branch.commit({"A.lean": "theorem a : p := by\n  simp\n"})
    assert isinstance(filled, SorryFilled)
    assert (filled.sorry, filled.by, filled.proof) == (opened.sorry, "people", None)


def test_our_own_text_fills_as_us(branch: Branch) -> None:
    (opened,) = branch.commit({"A.lean": ONE})
    proved = "theorem a : p := by\n  exact q\n"
    (declaration,) = scan_source(proved.encode(), path="A.lean").declarations
    proof = GivenProof("f" * 16, opened.sorry, declaration.text_hash)
    other = GivenProof("e" * 16, opened.sorry, "0" * 16)
    (filled,) = branch.commit({"A.lean": "-- thanks\n" + proved}, proofs=(other, proof))
    assert isinstance(filled, SorryFilled)
    assert (filled.by, filled.proof) == ("us", "f" * 16)


def test_a_fill_and_a_rename_at_once_is_a_fill(branch: Branch) -> None:
    branch.commit({"A.lean": ONE})
    (filled,) = branch.commit({"A.lean": "theorem b : p := by\n  simp\n"})
    assert isinstance(filled, SorryFilled)


def test_a_deleted_declaration_removes_its_sorries(branch: Branch) -> None:
    (opened,) = branch.commit({"A.lean": ONE + "theorem b : q := r\n"})
    (removed,) = branch.commit({"A.lean": "theorem b : q := r\n"})
    assert isinstance(removed, SorryRemoved)
    assert removed.sorry == opened.sorry


def test_a_deleted_file_removes_its_sorries(branch: Branch) -> None:
    branch.commit({"A.lean": ONE})
    assert types(branch.commit({"A.lean": None})) == ["sorry_removed"]
    assert branch.living == {}


def test_a_sorry_that_comes_back_has_its_old_id_and_is_reopened(branch: Branch) -> None:
    (opened,) = branch.commit({"A.lean": ONE})
    branch.commit({"A.lean": "theorem a : p := by\n  simp\n"})
    (again,) = branch.commit({"A.lean": ONE})
    assert isinstance(again, SorryOpened)
    assert (again.sorry, again.reopened) == (opened.sorry, True)


TWO = "theorem a : p := by\n  constructor\n  · intro x\n    sorry\n  · intro y z\n    sorry\n"


@pytest.mark.parametrize(
    ("source", "filled", "stays"),
    [
        ("theorem a : p := by\n  constructor\n  · intro x\n    exact f x\n  · intro y z\n    sorry\n", 4, 6),
        (
            "theorem a : p := by\n  constructor\n  · intro x\n    sorry\n  · intro y z\n    exact f y z\n",
            6,
            4,
        ),
        ("theorem a : p := by\n  constructor\n  · exact fun x => g x\n  · intro y z\n    sorry\n", 4, 6),
        ("theorem a : p := by\n  constructor\n  · rintro x\n    sorry\n  · exact g\n", 6, 4),
    ],
)
def test_of_two_sorries_the_one_that_was_filled_is_filled(
    branch: Branch, source: str, filled: int, stays: int
) -> None:
    branch.commit({"A.lean": TWO})
    gone, kept = branch.id_at(filled), branch.id_at(stays)
    events = branch.commit({"A.lean": source})
    assert [event.sorry for event in events if isinstance(event, SorryFilled)] == [gone]
    assert list(branch.living) == [kept]


def test_a_sorry_added_before_another_opens_and_the_other_stays(branch: Branch) -> None:
    branch.commit({"A.lean": "theorem a : p := by\n  constructor\n  · simp\n  · intro y z\n    sorry\n"})
    kept = branch.id_at(5)
    events = branch.commit({"A.lean": TWO})
    assert sorted(types(events)) == ["sorry_moved", "sorry_opened"]
    assert branch.id_at(6) == kept
    assert branch.living[kept].place.ordinal == 1


def test_identical_examples_have_ids_of_their_own(branch: Branch) -> None:
    source = "example : p := sorry\n" * 3
    events = branch.commit({"A.lean": source})
    assert len({event.sorry for event in events}) == 3
    assert branch.commit({"A.lean": source}) == [] or all(
        isinstance(event, SorryMoved) for event in branch.commit({"A.lean": source})
    )
    assert len(branch.living) == 3


def test_twins_in_two_files_have_ids_of_their_own(branch: Branch) -> None:
    branch.commit({"A.lean": "example : p := sorry\n"})
    branch.commit({"B.lean": "example : p := sorry\n"})
    assert len(branch.living) == 2


def test_an_example_whose_statement_changed_is_told_by_its_neighbours() -> None:
    branch = Branch()
    branch.commit(
        {"A.lean": "example : r := s\ntheorem a : p := q\nexample : p := sorry\ntheorem b : p := q\n"}
    )
    kept = branch.id_at(3)
    (changed,) = branch.commit(
        {"A.lean": "example : r := s\ntheorem a : p := q\nexample : p ∧ r := sorry\ntheorem b : p := q\n"}
    )
    assert isinstance(changed, SorryChanged)
    assert changed.sorry == kept


def test_a_deleted_example_is_not_taken_for_another_one_that_was_always_there() -> None:
    branch = Branch()
    branch.commit({"A.lean": "example : r := s\ntheorem a : p := q\nexample : p := sorry\n"})
    (event,) = branch.commit({"A.lean": "example : r := s\ntheorem a : p := q\n"})
    assert isinstance(event, SorryRemoved)


def test_a_declaration_without_a_statement_is_no_rename_of_another(branch: Branch) -> None:
    branch.commit({"A.lean": "def a := sorry\ndef c := 1\n"})
    events = branch.commit({"A.lean": "def b := 2\ndef c := 1\n"})
    assert types(events) == ["sorry_removed"]


def test_a_file_that_did_not_change_has_no_events(branch: Branch) -> None:
    branch.commit({"A.lean": ONE, "B.lean": "theorem b : q := sorry\n"})
    assert {event.sorry for event in branch.commit({"B.lean": "\ntheorem b : q := sorry\n"})} == {
        branch.id_at(2, path="B.lean")
    }


def test_the_same_input_gives_the_same_events(branch: Branch) -> None:
    other = Branch(remember=branch.remember)
    for files in ({"A.lean": TWO, "B.lean": "example : p := sorry\n" * 2}, {"A.lean": ONE, "B.lean": None}):
        assert branch.commit(files) == other.commit(files)


def test_a_declaration_of_thousands_of_sorries_is_aligned_at_once() -> None:
    branch = Branch()
    lines = "".join(f"  · intro x{index}\n    sorry\n" for index in range(1500))
    branch.commit({"A.lean": "theorem a : p := by\n" + lines})
    events = branch.commit(
        {"A.lean": "theorem a : p := by\n  skip\n" + lines.replace("    sorry\n", "    simp\n", 1)}
    )
    assert types(events).count("sorry_filled") == 1
    assert len(branch.living) == 1499


def test_thousands_of_twins_are_told_apart_at_once() -> None:
    branch = Branch()
    began = time.process_time()
    branch.commit({"A.lean": "example : p := sorry\n" * 4_000})
    assert len(branch.living) == 4_000
    assert time.process_time() - began < 8


def test_a_sorry_of_an_alias_lives_on_while_the_alias_says_the_same() -> None:
    alias = "alias two := (sorry : one)\n"
    branch = Branch()
    branch.commit({"A.lean": alias})
    (moved,) = branch.commit({"A.lean": "-- a\n" + alias})
    assert isinstance(moved, SorryMoved)
    (moved,) = branch.commit({"A.lean": None, "B.lean": alias})
    assert isinstance(moved, SorryMoved)
    (removed,) = branch.commit({"B.lean": "alias two := one\n"})
    assert isinstance(removed, SorryRemoved), "an alias that says something else is another one"


@pytest.mark.parametrize("case", [case for case, filling in FILLINGS.items() if len(filling.before) == 1])
def test_the_life_of_a_sorry_says_how_it_went(case: str) -> None:
    """An import that only one version has is read out of git, which there is none of here."""
    branch, filling = Branch(), FILLINGS[case]
    branch.commit(filling.before)
    for event in branch.commit(filling.after):
        match event:
            case SorryFilled():
                assert filling.how == "filled"
                assert bool(event.rests_on) == ("rests on" in filling.kinds)
            case SorryRemoved():
                assert event.how == filling.how
                assert event.detail
            case _:
                assert isinstance(event, SorryMoved), event
    assert any(isinstance(event, SorryFilled | SorryRemoved) for event in branch.last)


@pytest.mark.parametrize("word", sorted(SORRY_NAMES | UNCHECKED_NAMES | MAKERS | ADMITTING))
def test_no_word_of_the_gate_s_lists_fills_a_sorry(word: str) -> None:
    branch = Branch()
    branch.commit({"A.lean": "theorem foo : p := by\n  sorry\n"})
    events = branch.commit({"A.lean": f"theorem foo : p := by\n  {word}\n"})
    assert not [event for event in events if isinstance(event, SorryFilled)]
