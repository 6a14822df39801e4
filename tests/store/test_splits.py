"""The splits: a side is for life, copies share it, and nothing of val or test ever stands in a training export."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.domain import splits
from store.domain.identity import split_key
from store.domain.records import PremiseUse, TracedFile, TracedTactic, TracedTheorem
from store.domain.splits import SIDES, SPLITS, Side, Split
from store.events.traces import TraceWithdrawn
from store.log.envelope import Expect, NewEvent
from store.recording import record_trace
from store.view.view import catch_up
from tests.support.memory_log import MemoryLog
from tests.support.traced_repository import head
from tests.support.views import empty_view


@dataclass(frozen=True)
class Thm:
    """A theorem as these tests need it: every premise is used in a step of its own."""

    name: str
    statement: str | None
    premises: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return split_key(self.name, self.statement)

    def traced(self) -> TracedTheorem:
        steps = tuple(
            TracedTactic("rw", "rw", (PremiseUse(premise, "P.lean", (1, 1), (1, 2)),), "⊢ a", "no goals")
            for premise in self.premises
        )
        return TracedTheorem(self.name, self.statement, (1, 1), (2, 1), steps)


@dataclass
class Store:
    """A log in memory with its view, and all that any export of it ever contained."""

    log: MemoryLog = field(default_factory=MemoryLog)
    view: sqlite3.Connection = field(default_factory=empty_view)
    commits: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    exported: dict[tuple[Split, Side], set[Thm]] = field(default_factory=lambda: defaultdict(set))

    def trace(
        self, theorems: Iterable[Thm], *, repository: str = "example.org/a/a", per_file: int = 2
    ) -> str:
        """Record a commit that has these theorems, and export it."""
        trace = self.record(theorems, repository=repository, per_file=per_file)
        self.catch_up()
        for split, side, theorem in self.rows(trace):
            if side is not None:
                self.exported[split, side].add(theorem)
        return trace

    def record(self, theorems: Iterable[Thm], *, repository: str, per_file: int) -> str:
        traced = [theorem.traced() for theorem in theorems]
        files = [
            TracedFile(f"F{number}.lean", (), (), tuple(traced[at : at + per_file]))
            for number, at in enumerate(range(0, len(traced), per_file))
        ]
        commit = head(f"{next(self.commits):040x}", repository=repository)
        with tempfile.TemporaryDirectory() as stage:
            record_trace(self.log, trace=commit, files=files, stage=Path(stage))
        return commit.trace

    def catch_up(self) -> None:
        with self.log.reader() as reader:
            catch_up(self.view, reader)

    def rows(self, trace: str) -> list[tuple[Split, Side | None, Thm]]:
        """Return what an export of a trace has on which side."""
        found: list[tuple[Split, Side | None, Thm]] = []
        for place, sides in splits.exported(self.view, trace):
            name, statement = self.view.execute(
                'SELECT full_name, statement FROM traced_theorems WHERE content = ? AND "index" = ?',
                (place.content, place.theorem),
            ).fetchone()
            uses = self.view.execute(
                "SELECT full_name FROM tactic_premises WHERE content = ? AND theorem = ? ORDER BY tactic",
                (place.content, place.theorem),
            )
            theorem = Thm(name, statement, tuple(row[0] for row in uses))
            found.extend((split, side, theorem) for split, side in zip(SPLITS, sides, strict=True))
        return found

    def side(self, split: Split, trace: str, name: str) -> Side | None:
        """Return in which export of a trace the theorem of that name is."""
        return next(side for found, side, t in self.rows(trace) if found == split and t.name == name)

    def members(self) -> dict[tuple[str, ...], str]:
        rows = self.view.execute('SELECT split, "of", "key", side FROM split_members')
        return {(split, of, key): side for split, of, key, side in rows}

    def held_out(self, split: Split) -> set[Thm]:
        return self.exported[split, "val"] | self.exported[split, "test"]


def decided_rows(view: sqlite3.Connection) -> list[list[tuple[object, ...]]]:
    tables = ("split_members", "reserved_premises", "split_tallies")
    return [list(view.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3")) for table in tables[:1]] + [
        list(view.execute(f"SELECT * FROM {table} ORDER BY 1, 2")) for table in tables[1:]
    ]


def check_invariants(store: Store, before: dict[tuple[str, ...], str]) -> None:
    now = store.members()
    assert {member: now[member] for member in before} == before, "a side is for life"
    for split in SPLITS:
        trained, held = store.exported[split, "train"], store.held_out(split)
        assert not {t.key for t in trained} & {t.key for t in held}, "a held-out theorem was trained on"
        assert not {t.key for t in store.exported[split, "val"]} & {
            t.key for t in store.exported[split, "test"]
        }
    premises = {premise for t in store.exported["novel_premises", "train"] for premise in t.premises}
    for theorem in store.held_out("novel_premises"):
        assert set(theorem.premises) - premises, f"{theorem} has no premise that training lacks"


# A small world, so that names, statements and premises meet again and again.
NAMES = st.integers(0, 40).map(lambda number: f"t{number}")
STATEMENTS = st.one_of(st.none(), st.integers(0, 40).map(lambda number: f": P {number}"))
PREMISES = st.lists(st.sampled_from([*["common"] * 4, *(f"p{n}" for n in range(30))]), max_size=3)
THEOREMS = st.builds(Thm, NAMES, STATEMENTS, PREMISES.map(tuple))


@st.composite
def growing(draw: st.DrawFn) -> list[tuple[str, list[Thm]]]:
    """Draw commits of three repositories: theorems come, go, are restated, renamed, proved anew and copied."""
    repositories: dict[str, list[Thm]] = {name: [] for name in ("a/a", "b/b", "fork/a")}
    commits = []
    for _ in range(draw(st.integers(1, 6))):
        where = draw(st.sampled_from(sorted(repositories)))
        other = repositories[draw(st.sampled_from(sorted(repositories)))]
        theorems = [*repositories[where], *draw(st.lists(THEOREMS, max_size=12))]
        for index, theorem in enumerate(theorems):
            match draw(st.integers(0, 9)):
                case 0:
                    theorems[index] = replace(theorem, statement=draw(STATEMENTS))
                case 1:
                    theorems[index] = replace(theorem, name=draw(NAMES))
                case 2:
                    theorems[index] = replace(theorem, premises=tuple(draw(PREMISES)))
                case 3 if other:
                    theorems[index] = draw(st.sampled_from(other))
        repositories[where] = theorems
        commits.append((where, list(theorems)))
    return commits


@settings(max_examples=25, deadline=None)
@given(commits=growing(), per_file=st.integers(1, 5))
def test_sides_are_for_life_and_nothing_held_out_is_trained_on(
    commits: Sequence[tuple[str, list[Thm]]], per_file: int
) -> None:
    store = Store()
    for repository, theorems in commits:
        before = store.members()
        trace = store.trace(theorems, repository=f"example.org/{repository}", per_file=per_file)
        check_invariants(store, before)
        known = store.members()
        for split, side, theorem in store.rows(trace):
            # Copies share a side: whatever is exported is on the side of its statement.
            assert side in {None, known[split, "theorem", theorem.key]}
            assert (split, "name", theorem.name) in known
    again = empty_view()
    with store.log.reader() as reader:
        catch_up(again, reader, batch=3)
    assert decided_rows(again) == decided_rows(store.view), "a rebuild decides the same"


def many(n: int, *, own: int = 1, common: int = 2, prefix: str = "t") -> list[Thm]:
    """Make theorems that each use premises of their own and common ones."""
    return [
        Thm(
            f"{prefix}{i}",
            f": {prefix} {i}",
            tuple(f"{prefix}{i}p{k}" for k in range(own)) + tuple(f"c{(i + k) % 7}" for k in range(common)),
        )
        for i in range(n)
    ]


def shares(store: Store, split: Split) -> list[float]:
    counted = splits.counts(store.view, split)
    return [counted[side] / sum(counted.values()) for side in SIDES]


@pytest.mark.parametrize("split", SPLITS)
def test_shares_are_near_80_10_10(split: Split) -> None:
    store = Store()
    store.trace(many(1500), per_file=100)
    assert shares(store, split) == pytest.approx([0.8, 0.1, 0.1], abs=0.03)


def test_shares_hold_when_theorems_come_a_few_at_a_time() -> None:
    store = Store()
    theorems = many(400)
    for n in range(8, 401, 8):
        store.trace(theorems[:n], per_file=8)
    assert shares(store, "novel_premises") == pytest.approx([0.8, 0.1, 0.1], abs=0.05)


def test_a_trace_gives_at_most_two_fifths_however_little_older_ones_gave() -> None:
    store = Store()
    store.trace(many(300, own=0), per_file=50)
    assert splits.counts(store.view, "novel_premises") == {"train": 300, "val": 0, "test": 0}
    store.trace(many(100, prefix="new"), repository="example.org/b/b", per_file=50)
    counted = splits.counts(store.view, "novel_premises")
    assert counted["val"] + counted["test"] == 40


def test_a_popular_premise_does_not_empty_train() -> None:
    store = Store()
    store.trace([Thm(f"t{i}", f": {i}", ("popular", "popular")) for i in range(50)], per_file=10)
    assert splits.counts(store.view, "novel_premises") == {"train": 50, "val": 0, "test": 0}


def test_of_premises_with_as_many_users_all_areas_are_held_out_alike() -> None:
    store = Store()
    store.trace([*many(500, prefix="Algebra"), *many(500, prefix="Zeta")], per_file=50)
    held = Counter(theorem.name[0] for theorem in store.held_out("novel_premises"))
    assert held["A"] == pytest.approx(100, abs=30)


@pytest.mark.parametrize("tiny", [1, 4])
def test_of_a_handful_of_theorems_none_is_held_out_for_its_premises(tiny: int) -> None:
    store = Store()
    store.trace(many(tiny))
    assert splits.counts(store.view, "novel_premises")["train"] == tiny


def test_theorems_without_premises_are_trained_on() -> None:
    store = Store()
    terms = [Thm(f"term{i}", f": {i} = {i}") for i in range(30)]
    store.trace([*terms, *many(70)], per_file=10)
    assert set(terms) <= store.exported["novel_premises", "train"]
    # The share is of the theorems that use premises.
    assert len(store.held_out("novel_premises")) == 14


def of_side(split: Split, side: Side, store: Store, trace: str) -> Thm:
    return next(t for found, where, t in store.rows(trace) if (found, where) == (split, side))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("side", SIDES)
def test_a_copy_in_another_repository_is_on_the_same_side(split: Split, side: Side) -> None:
    store = Store()
    first = store.trace(many(200), per_file=20)
    theorem = of_side(split, side, store, first)
    copy = replace(theorem, statement=f"  {theorem.statement}\n")
    other = store.trace([copy, *many(10, prefix="o")], repository="example.org/fork/a")
    assert store.side(split, other, theorem.name) == side


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("side", ["val", "test"])
def test_a_restated_theorem_follows_its_name_and_a_renamed_one_its_statement(
    split: Split, side: Side
) -> None:
    store = Store()
    first = store.trace(many(200), per_file=20)
    theorem = of_side(split, side, store, first)
    restated = [replace(theorem, statement=f": again {i}") for i in range(20)]
    renamed = [replace(theorem, name=f"other{i}") for i in range(20)]
    second = store.trace([*restated, *renamed])
    assert {where for found, where, _ in store.rows(second) if found == split} == {side}


def test_a_restated_theorem_with_a_restated_copy_in_the_same_commit_is_on_one_side() -> None:
    store = Store()
    chain = [Thm(f"n{i // 2}", f": {(i + 1) // 2}") for i in range(60)]
    store.trace(chain, per_file=7)
    assert len({side for (split, *_), side in store.members().items() if split == "random"}) == 1


def test_what_is_known_to_two_sides_is_not_trained_on() -> None:
    store = Store()
    first = store.trace(many(200), per_file=20)
    trained = of_side("random", "train", store, first)
    tested = of_side("random", "test", store, first)
    second = store.trace([replace(trained, name=tested.name)])
    assert store.side("random", second, tested.name) is None
    third = store.trace([replace(tested, name=trained.name)])
    assert store.side("random", third, trained.name) == "test"


def test_a_new_proof_with_a_reserved_premise_takes_a_theorem_out_of_training_and_no_further() -> None:
    store = Store()
    first = store.trace(many(200), per_file=20)
    trained = of_side("novel_premises", "train", store, first)
    tested = of_side("novel_premises", "test", store, first)
    second = store.trace([replace(trained, premises=tested.premises)])
    assert store.side("novel_premises", second, trained.name) is None
    assert splits.side_of(store.view, "novel_premises", trained.key) == "train"
    third = store.trace([trained])
    assert store.side("novel_premises", third, trained.name) == "train"


def test_a_held_out_theorem_whose_new_proof_uses_only_trained_premises_is_no_test_any_more() -> None:
    store = Store()
    first = store.trace(many(200), per_file=20)
    tested = of_side("novel_premises", "test", store, first)
    second = store.trace([replace(tested, premises=("c0",))])
    assert store.side("novel_premises", second, tested.name) is None
    assert store.side("random", second, tested.name) is not None


def test_a_new_theorem_that_uses_a_reserved_premise_is_held_out() -> None:
    store = Store()
    first = store.trace(many(200), per_file=20)
    reserved = of_side("novel_premises", "test", store, first).premises[0]
    second = store.trace([Thm("next", ": next", (reserved, "c1"))], repository="example.org/b/b")
    assert store.side("novel_premises", second, "next") in {"val", "test"}


def test_a_premise_that_was_once_trained_on_is_never_reserved() -> None:
    store = Store()
    first = store.trace(many(100), per_file=20)
    trained = of_side("novel_premises", "train", store, first)
    # Its proof is another now; the premise of the old one was trained on all the same.
    store.trace([replace(trained, premises=("c0",))])
    store.trace(
        [Thm(f"u{i}", f": u {i}", (trained.premises[0],)) for i in range(3)], repository="example.org/b/b"
    )
    assert trained.premises[0] not in {
        row[0] for row in store.view.execute("SELECT full_name FROM reserved_premises")
    }


def test_nothing_is_decided_before_the_commit_is_closed() -> None:
    store = Store()
    store.trace(many(10))
    with store.log.reader() as reader:
        open_view = empty_view()
        catch_up(open_view, reader, upto=reader.position() - 1)
    assert splits.counts(open_view, "random") == {"train": 0, "val": 0, "test": 0}
    assert splits.side_of(open_view, "random", many(1)[0].key) is None


def test_a_withdrawn_trace_has_decided_for_good() -> None:
    store = Store()
    trace = store.trace(many(40))
    before = store.members()
    gone = TraceWithdrawn(trace=trace, repository="example.org/a/a", reason="a mistake")
    store.log.append(
        [NewEvent("repository:example.org/a/a", gone)], expect={"repository:example.org/a/a": Expect.ANY}
    )
    store.trace(many(40), repository="example.org/b/b")
    assert store.members() == before


def test_no_temporary_table_is_left() -> None:
    store = Store()
    store.trace(many(10))
    assert store.view.execute("SELECT count(*) FROM sqlite_temp_schema").fetchone() == (0,)


def test_a_commit_that_changes_one_theorem_takes_next_to_no_work() -> None:
    store = Store()
    instructions: list[None] = []
    work = []
    theorems = many(900)
    for commit in (theorems, [*theorems[:-1], replace(theorems[-1], statement=": other")]):
        store.record(commit, repository="example.org/a/a", per_file=3)
        store.view.set_progress_handler(lambda: instructions.append(None), 100)
        store.catch_up()
        work.append(len(instructions))
        instructions.clear()
    assert work[1] < work[0] / 50
