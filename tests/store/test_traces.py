"""What can be asked of traces and models, against plain Python over the files that were recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from store.domain import splits
from store.domain.records import Premise, PremiseUse, TracedFile, TracedTactic, TracedTheorem
from store.errors import MalformedEventError
from store.events.base import EventBody
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.recording import TraceHead, file_event, record_trace
from store.view import model_queries, queries
from store.view import trace_queries as q
from store.view.rebuild import verify
from store.view.view import View
from tests.support.events import digest, record
from tests.support.memory_log import MemoryLog
from tests.support.models import (
    checkpoint_promoted,
    checkpoint_refused,
    checkpoint_saved,
    evaluation_finished,
)
from tests.support.trace_rows import PremiseOfTrace, premises_of_trace, theorems_of_trace
from tests.support.traced_repository import STREAM, head, make_traced_repository

FILES = tuple(make_traced_repository(seed=3, n_files=12, theorems_per_file=4))


class Traced:
    """A view of a log with one trace in it, and the files that the trace is of."""

    def __init__(self, folder: Path, files: Sequence[TracedFile], trace: TraceHead) -> None:
        self.folder = folder
        self.files = {file.path: file for file in files}
        self.log = EventLog.open(folder / "events.db")
        self.reader = self.log.reader()
        self.view = View.open(folder / "database.db", self.reader)
        self.db = queries.connect(folder / "database.db")
        self.trace = self.add(files, trace)

    def add(self, files: Sequence[TracedFile], trace: TraceHead) -> str:
        found = record_trace(self.log, trace=trace, files=files, stage=self.folder / "stage", view=self.db)
        self.view.catch_up()
        return found.trace

    def tell(self, *bodies: EventBody) -> None:
        self.log.append([NewEvent("s", body) for body in bodies], expect={"s": Expect.ANY})
        self.view.catch_up()

    def close(self) -> None:
        self.db.close()
        self.view.close()
        self.reader.close()
        self.log.close()


Make = Callable[..., Traced]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """The trace of `FILES`; tests only ask."""
    made = Traced(tmp_path_factory.mktemp("traced"), FILES, head())
    yield made
    made.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make a trace of other files."""
    made: list[Traced] = []

    def trace(*files: TracedFile, of: TraceHead | None = None) -> Traced:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Traced(folder, files, of or head()))
        return made[-1]

    yield trace
    for one in made:
        one.close()
        report = verify(one.folder / "events.db", one.folder / "database.db")
        assert report.ok, report.differences


def theorem(name: str, *tactics: str, uses: Sequence[str] = (), line: int = 1) -> TracedTheorem:
    premises = tuple(PremiseUse(use, "A.lean", (1, 9), (1, 12)) for use in uses)
    steps = tuple(TracedTactic(text, text, premises, "⊢ p", "no goals") for text in tactics)
    return TracedTheorem(name, f"theorem {name} : p :=", (line, 1), (line + 1, 8), steps)


# --- what is asked ----------------------------------------------------------------------------------------


def test_every_theorem_comes_back_with_its_steps_and_their_premises(traced: Traced) -> None:
    found = theorems_of_trace(traced.db, traced.trace)
    assert [(item.path, item.index) for item in found] == sorted(
        (path, index) for path, file in traced.files.items() for index in range(len(file.theorems))
    )
    for item in found:
        source = traced.files[item.path].theorems[item.index]
        assert (item.full_name, item.statement) == (source.full_name, source.statement)
        assert (item.start, item.end) == (source.start, source.end)
        assert (item.n_tactics, item.url, item.commit) == (len(source.tactics), None, None)
        assert tuple(q.tactics_of_theorem(traced.db, item.content, item.index)) == source.tactics


def as_premise(row: PremiseOfTrace) -> Premise:
    return Premise(row.full_name, row.code, row.start, row.end, row.kind)


def test_all_premises_are_listed_also_those_without_a_name(traced: Traced) -> None:
    found = [(item.path, as_premise(item)) for item in premises_of_trace(traced.db, traced.trace)]
    assert found == [(path, item) for path, file in sorted(traced.files.items()) for item in file.premises]
    assert None in {item.full_name for _, item in found}


def test_imports_are_those_of_the_source_in_its_order(traced: Traced) -> None:
    for item in q.files_of_trace(traced.db, traced.trace):
        assert q.imports_of(traced.db, item.content) == list(traced.files[item.path].imports)


def test_unknown_traces_and_paths_have_nothing(traced: Traced) -> None:
    assert list(q.files_of_trace(traced.db, "0" * 16)) == []
    assert q.tactics_of_theorem(traced.db, 0, 0) == []


def test_the_newest_trace_of_each_repository_is_found(make: Make) -> None:
    place = make(FILES[0])
    second = place.add(FILES[:2], head("2" * 40))
    other = place.add(FILES[:1], head(repository="example.org/other/logic"))
    assert [row.trace for row in q.newest_traces(place.db)] == [second, other]
    assert len(q.traces(place.db)) == 3
    assert [row.trace for row in q.traces(place.db, repository="example.org/other/logic")] == [other]


# --- sorries and training examples -----------------------------------------------------------------------


def test_a_proof_with_a_sorry_is_marked_and_one_that_only_names_it_is_not(make: Make) -> None:
    place = make(
        TracedFile(
            "A.lean",
            (),
            (),
            (
                theorem("whole", "simp", "exact sorry_free"),
                theorem("hole", "intro h", "sorry"),
                theorem("inner", "exact foo (by admit)"),
                theorem("spoken", 'trace "sorry"', "simp -- sorry"),
                theorem("by_term"),
            ),
        )
    )
    found = {item.full_name: item.has_sorry for item in theorems_of_trace(place.db, place.trace)}
    assert found == {"whole": False, "hole": True, "inner": True, "spoken": False, "by_term": False}


@pytest.mark.parametrize("split", splits.SPLITS)
def test_training_proofs_are_those_of_the_theorems_on_that_side_without_sorries(
    make: Make, split: splits.Split
) -> None:
    place = make(*make_traced_repository(seed=5, n_files=30, theorems_per_file=6))
    sides = dict(splits.exported(place.db, place.trace, (split,)))
    seen = 0
    for side in splits.SIDES:
        wanted = [
            (found.path, source.full_name, step.state_before, step.tactic)
            for found, (stands,) in sides.items()
            for source in [place.files[found.path].theorems[found.theorem]]
            if stands == side and not any(step.tactic == "sorry" for step in source.tactics)
            for step in source.tactics
        ]
        got = [
            (proof.path, proof.theorem, step.state_before, step.tactic)
            for proof in q.training_proofs(place.db, split, side)
            for step in proof.steps
        ]
        assert sorted(got) == sorted(wanted)
        assert wanted
        seen += len(wanted)
    assert seen > 300
    steps = (step for proof in q.training_proofs(place.db, split, "train") for step in proof.steps)
    example = next(step for step in steps if "simp only" in step.tactic)
    assert all(use.full_name in example.tactic for use in example.premises)


def test_a_version_that_two_traces_share_is_learnt_from_once(make: Make) -> None:
    place = make(*FILES)
    alone = sum(1 for _ in q.training_proofs(place.db, "random", "train"))
    fork = place.add(FILES, head(repository="example.org/fork/logic"))
    assert sum(1 for _ in q.training_proofs(place.db, "random", "train")) == alone
    assert sum(1 for _ in q.training_proofs(place.db, "random", "train", traces=[fork])) == alone
    assert list(q.training_proofs(place.db, "random", "train", traces=[])) == []


# --- models ---------------------------------------------------------------------------------------------


def test_a_checkpoint_that_was_never_saved_takes_no_other_out_of_use(make: Make) -> None:
    place = make()
    place.tell(checkpoint_saved("r1"), checkpoint_promoted("r1"), checkpoint_saved("t1", model="tactics"))
    place.tell(checkpoint_promoted("nothing"), checkpoint_promoted("t1", model="retriever"))
    in_use = model_queries.checkpoint_in_use(place.db, "retriever")
    assert in_use is not None
    assert in_use.checkpoint == "r1"
    assert model_queries.checkpoint_in_use(place.db, "tactics") is None


def test_saving_a_checkpoint_again_leaves_it_in_use(make: Make) -> None:
    place = make()
    place.tell(checkpoint_saved("r1"), checkpoint_promoted("r1"), checkpoint_saved("r1"))
    assert model_queries.checkpoint_in_use(place.db, "retriever") is not None


def test_a_refusal_of_what_was_never_saved_or_of_another_model_changes_nothing(make: Make) -> None:
    place = make()
    place.tell(
        checkpoint_saved("r1"), checkpoint_refused("nothing"), checkpoint_refused("r1", model="tactics")
    )
    assert [row.refused_at for row in model_queries.checkpoints(place.db)] == [None]


def test_the_last_result_of_an_evaluation_counts(make: Make) -> None:
    place = make()
    place.tell(
        evaluation_finished("r1", recall=0.25),
        evaluation_finished("r2", recall=0.5),
        evaluation_finished("r1", recall=0.75),
    )
    (row,) = model_queries.evaluations(place.db, "r1")
    assert row.metrics == {"recall@1": 0.375, "recall@10": 0.75}
    assert len(model_queries.evaluations(place.db)) == 2


# --- payloads -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda trace: trace.pop("premises"),
        lambda trace: trace["theorems"][0].update(start=[1]),
        lambda trace: trace["theorems"][0].update(full_name=["a", "list"]),
        lambda trace: trace["theorems"][0].update(full_name=None),
        lambda trace: trace.update(imports=[None]),
        lambda trace: trace.update(premises=[7]),
    ],
    ids=["no premises", "half a position", "list for a name", "no name", "no path", "number for a premise"],
)
def test_a_payload_that_is_no_trace_stops_the_view_by_name_and_leaves_none_of_its_rows(
    tmp_path: Path, damage: Callable[[dict[str, object]], object]
) -> None:
    body, payload = file_event(head(), FILES[0])
    data = json.loads(payload)
    damage(data)
    payload = json.dumps(data).encode()
    with MemoryLog() as log:
        record(
            log,
            [body.model_copy(update={"trace": digest(payload)})],
            folder=tmp_path,
            payloads=[payload],
            stream=STREAM,
        )
        with View.open(tmp_path / "database.db", log.reader()) as view:
            with pytest.raises(MalformedEventError, match="event 1: file_traced version 1"):
                view.catch_up()
            assert view.checkpoint().stopped_seq == 1
            db = queries.connect(tmp_path / "database.db")
            for table in ("traced_files", "traced_contents", "premises", "traced_theorems", "imports"):
                assert db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 0
            db.close()
