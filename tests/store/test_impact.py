"""What rests on a declaration with a sorry, as the newest trace of its branch says."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import impact as benchmark
from store.domain.blueprint import Statement
from store.domain.records import ConstantUse, Premise, PremiseUse, TracedFile, TracedTactic, TracedTheorem
from store.events.base import EventBody
from store.events.repositories import BranchCreated
from store.events.traces import TraceWithdrawn
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.recording import TraceHead, record_trace
from store.view import queries
from store.view.impact import Declared, Impact, count_resting, impacts
from store.view.view import View
from tests.support.events import commit_scanned
from tests.support.traced_repository import REPOSITORY, STREAM, head

Uses = Mapping[str, Sequence[str | ConstantUse]]


def file(path: str, theorems: Uses, *, others: Sequence[str] = ()) -> TracedFile:
    """A file of theorems with the constants that their proofs use, and of other declarations."""
    found = tuple(
        TracedTheorem(
            name, f"theorem {name} : p :=", (line, 1), (line, 9), (),
            premises=tuple(use if isinstance(use, ConstantUse) else ConstantUse(use) for use in uses),
        )
        for line, (name, uses) in enumerate(theorems.items(), 1)
    )  # fmt: skip
    premises = tuple(
        Premise(name, "", (line, 1), (line, 9), "x") for line, name in enumerate([*theorems, *others], 1)
    )
    return TracedFile(path, (), premises, found)


class Traces:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = EventLog.open(folder / "events.db")
        self.reader = self.log.reader()
        self.view = View.open(folder / "database.db", self.reader)
        self.db = queries.connect(folder / "database.db")

    def add(self, *files: TracedFile, of: TraceHead | None = None) -> str:
        made = record_trace(self.log, trace=of or head(), files=files, stage=self.folder, view=self.db)
        self.view.catch_up()
        return made.trace

    def tell(self, body: EventBody) -> None:
        self.log.append([NewEvent(STREAM, body)], expect={STREAM: Expect.ANY})
        self.view.catch_up()

    def of(self, *names: str, path: str = "A.lean", branch: str = "main") -> list[Impact]:
        wanted = [Declared(path, name) for name in names]
        found = impacts(self.db, REPOSITORY, branch, wanted)
        return [found[one] for one in wanted]

    def counts(self, *names: str, path: str = "A.lean") -> list[tuple[int | None, int | None]]:
        return [(one.theorems, one.direct) for one in self.of(*names, path=path)]

    def close(self) -> None:
        for one in (self.db, self.view, self.reader, self.log):
            one.close()


@pytest.fixture
def traces(tmp_path: Path) -> Iterator[Traces]:
    made = Traces(tmp_path)
    yield made
    made.close()


def test_theorems_rest_on_a_declaration_through_others_and_across_files(traces: Traces) -> None:
    traces.add(
        file("A.lean", {"root": [], "near": ["root", "Nat.add_comm"], "alone": []}, others=["size"]),
        file("B.lean", {"far": ["near", "size"], "farther": ["far", "near", "root"]}),
    )
    assert traces.counts("root", "near", "alone", "size") == [(3, 2), (2, 2), (0, 0), (2, 1)]


def test_what_no_trace_names_is_unknown_and_not_none(traces: Traces) -> None:
    (before,) = traces.of("root")
    assert (before.theorems, before.sha, before.unknown) == (None, None, "the branch has no trace yet")
    traces.add(file("A.lean", {"root": []}))
    known, new = traces.of("root", "new")
    assert (known.theorems, known.sha, known.unknown) == (0, "1" * 40, "")
    assert (new.theorems, new.unknown) == (None, "the trace does not name the declaration")
    (other,) = traces.of("root", branch="other")
    assert other.theorems is None, "the trace of one branch says nothing of another"


def test_a_branch_at_a_traced_commit_has_its_trace(traces: Traces) -> None:
    traces.add(file("A.lean", {"root": []}), of=head("a" * 40, branch="main"))
    traces.tell(BranchCreated(repository=REPOSITORY, branch="other", tip="a" * 40, is_default=False))
    assert traces.of("root", branch="other")[0].theorems is None, "it is not scanned yet"
    scanned = commit_scanned("a" * 40, branch="other")
    traces.tell(scanned.model_copy(update={"repository": REPOSITORY}))
    assert traces.of("root", branch="other")[0].theorems == 0


def test_a_withdrawn_trace_does_not_count(traces: Traces) -> None:
    traces.add(file("A.lean", {"root": []}), of=head("a" * 40))
    traces.add(file("A.lean", {"root": [], "more": ["root"]}), of=head("b" * 40))
    assert traces.of("root")[0].theorems == 1
    traces.tell(TraceWithdrawn(trace=head("b" * 40).trace, repository=REPOSITORY, reason=""))
    assert traces.of("root")[0].theorems == 0
    traces.tell(TraceWithdrawn(trace=head("a" * 40).trace, repository=REPOSITORY, reason=""))
    assert traces.of("root")[0].theorems is None


def test_theorems_of_a_cycle_rest_on_one_another_and_none_on_itself(traces: Traces) -> None:
    traces.add(file("A.lean", {"a": ["c", "a"], "b": ["a"], "c": ["b"], "above": ["b"]}))
    assert traces.counts("a", "b", "c", "above") == [(3, 1), (3, 2), (3, 1), (0, 0)]


def test_a_private_name_is_that_of_its_module(traces: Traces) -> None:
    traces.add(
        file("src/A/B.lean", {"aux": [], "one": ["_private.A.B.0.aux"]}),
        file("C.lean", {"aux": [], "two": ["_private.C.0.aux"], "three": ["two"]}),
    )
    assert traces.counts("aux", path="src/A/B.lean") == [(1, 1)]
    assert traces.counts("aux", path="C.lean") == [(2, 1)]


def test_of_a_name_that_two_files_declare_the_site_says_which_is_used(traces: Traces) -> None:
    at_b = ConstantUse("twin", ("B.lean", (1, 1), (1, 5)))
    traces.add(
        file("A.lean", {"twin": [], "own": ["twin"]}),
        file("B.lean", {"twin": []}),
        file("C.lean", {"by_site": [at_b], "unsaid": ["twin"]}),
    )
    assert traces.counts("twin", path="A.lean") == [(2, 2)], (
        "its own file's, and the one that nothing decides"
    )
    assert traces.counts("twin", path="B.lean") == [(2, 2)]


def test_what_lean_adds_to_a_declaration_and_quotes_are_uses_of_it(traces: Traces) -> None:
    traces.add(
        file(
            "A.lean",
            {"by_cases": ["Tree.casesOn"], "quoted": ["«odd name»"], "other": ["Tree.size"]},
            others=["Tree", "Tree.size", "odd name"],
        )
    )
    assert traces.counts("Tree", "Tree.size", "«odd name»") == [(1, 1), (1, 1), (1, 1)]


def test_what_dependencies_declare_and_use_does_not_count(traces: Traces) -> None:
    theirs = ConstantUse("root", (".lake/packages/x/X.lean", (1, 1), (1, 5)))
    traces.add(
        file("A.lean", {"root": [], "own": [theirs]}), file(".lake/packages/x/X.lean", {"user": ["root"]})
    )
    assert traces.counts("root") == [(0, 0)]


def test_a_declaration_whose_file_moved_since_the_trace_is_found_by_its_name(traces: Traces) -> None:
    traces.add(file("Old.lean", {"root": [], "user": ["root"]}))
    assert traces.counts("root", path="New.lean") == [(1, 1)]


def test_an_import_says_what_its_tactics_name(traces: Traces) -> None:
    use = PremiseUse("root", "A.lean", (1, 1), (1, 5))
    step = TracedTactic("exact root", "exact <a>root</a>", (use,), "⊢ p", "no goals")
    user = TracedTheorem("user", "theorem user : p :=", (9, 1), (9, 9), (step,))
    base = file("A.lean", {"root": []})
    traces.add(replace(base, theorems=(*base.theorems, user)), of=replace(head(), source="import"))
    assert traces.counts("root") == [(1, 1)]


def counted(uses: Sequence[Sequence[int]], of: Sequence[int], counting: Collection[int]) -> list[int]:
    """Count to the end, however many parts that takes."""
    found: list[list[int]] = []

    def count() -> Iterator[None]:
        found.extend((yield from count_resting(uses, of, [counting])))

    assert all(part is None for part in count())
    return found[0]


@pytest.mark.parametrize("seed", range(20))
def test_the_counts_are_those_of_a_search_from_each_node(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randrange(1, 40)
    uses = [sorted({rng.randrange(size) for _ in range(rng.randrange(4))} - {node}) for node in range(size)]
    of = rng.sample(range(size), rng.randrange(1, size + 1))
    counting = {node for node in range(size) if rng.random() < 0.8}

    def searched(start: int) -> int:
        seen, todo = {start}, [start]
        while todo:
            used = todo.pop()
            new = {node for node in range(size) if used in uses[node]} - seen
            seen |= new
            todo += new
        return len((seen - {start}) & counting)

    assert counted(uses, of, counting) == [searched(node) for node in of]


def test_ten_thousand_theorems_in_a_row_take_no_recursion() -> None:
    row = [[node - 1] if node else [] for node in range(10_001)]
    assert counted(row, [0, 9_990], range(10_001)) == [10_000, 10]


@pytest.mark.parametrize(
    ("theorems", "sorries", "most_s"),
    [
        (2000, 100, 2),
        pytest.param(200_000, 5000, 30, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_a_repository_is_counted_in_bounded_time(
    tmp_path: Path, theorems: int, sorries: int, most_s: float
) -> None:
    found = benchmark.measure(benchmark.fill(tmp_path, theorems), theorems, sorries)
    assert found["most theorems that rest on one"] == theorems - 1
    assert found["processor, s"] < most_s


def test_statements_of_a_blueprint_rest_on_what_they_use_and_on_what_states_them(traces: Traces) -> None:
    traces.add(file("A.lean", {"root": [], "near": ["root"], "alone": []}))
    blueprint = [
        Statement(["def:root"], ["root"], []),
        Statement(["lem:near"], ["near"], []),
        Statement(["thm:planned"], [], ["lem:near", "thm:lost"]),
        Statement(["thm:more"], [], ["thm:planned", "thm:more"]),
        Statement(["lem:a"], ["alone"], ["lem:b"]),
        Statement(["lem:b"], [], ["lem:a"]),
        Statement(["thm:new"], ["new"], []),
        Statement([], [], ["thm:new"]),
    ]
    wanted = [Declared("A.lean", name) for name in ("root", "near", "alone", "new", "newer")]
    found = impacts(traces.db, REPOSITORY, "main", wanted, blueprint=blueprint)
    assert [(found[one].theorems, found[one].statements) for one in wanted] == [
        (1, 3),  # by the trace through `near`, though no statement says that it uses def:root
        (0, 2),
        (0, 1),  # in a cycle with lem:b; its own statement is not counted
        (None, 1),  # not in the trace yet
        (None, None),
    ]


def test_a_blueprint_counts_where_no_trace_is_and_the_theorems_stay_unknown(traces: Traces) -> None:
    blueprint = [Statement(["a"], ["root"], []), Statement(["b"], ["user"], ["a"])]
    wanted = [Declared("A.lean", name) for name in ("root", "user", "other")]
    found = impacts(traces.db, REPOSITORY, "main", wanted, blueprint=blueprint)
    assert [(found[one].theorems, found[one].statements) for one in wanted] == [
        (None, 1),
        (None, 0),
        (None, None),
    ]
    assert {one.unknown for one in found.values()} == {"the branch has no trace yet"}
    assert sorted(wanted, key=lambda one: found[one].order) == wanted, "what is unknown in all comes last"
