"""A trace is recorded as what differs on its line, counts when it is closed, and survives being cut off anywhere."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store import recording
from store.domain.records import Manifest, TracedFile
from store.errors import InvalidAppendError
from store.events.traces import TraceWithdrawn
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.recording import RecordedTrace, TraceHead, import_line, record_trace
from store.view import queries
from store.view import trace_queries as q
from store.view.rebuild import verify
from store.view.view import View
from tests.support.daemon import warm
from tests.support.memory_log import MemoryLog
from tests.support.trace_rows import premises_of_trace, theorems_of_trace, trace_of
from tests.support.traced_repository import STREAM, grown, head, make_traced_repository, sample_events

FIRST, SECOND, THIRD = ("1" * 40, "2" * 40, "3" * 40)


class Store:
    """A log, its view, and a connection that asks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stage = folder / "stage"
        self.log = EventLog.open(folder / "events.db")
        self.reader = self.log.reader()
        self.view = View.open(folder / "database.db", self.reader)
        self.db = queries.connect(folder / "database.db")

    def record(
        self,
        files: Sequence[TracedFile],
        trace: TraceHead | None = None,
        *,
        with_view: bool = True,
        **more: Any,
    ) -> RecordedTrace:
        recorded = record_trace(
            self.log,
            trace=trace or head(),
            files=iter(files),
            stage=self.stage,
            view=self.db if with_view else None,
            **more,
        )
        self.view.catch_up()
        return recorded

    def withdraw(self, trace: str) -> None:
        (*_, event), _ = sample_events()
        assert isinstance(event, TraceWithdrawn)
        body = event.model_copy(update={"trace": trace})
        self.log.append([NewEvent(STREAM, body)], expect={STREAM: Expect.ANY})
        self.view.catch_up()

    def types(self) -> Counter[str]:
        return Counter(event.type for event in self.reader.read())

    def paths(self, trace: str) -> dict[str, int]:
        return {file.path: file.content for file in q.files_of_trace(self.db, trace)}

    def close(self) -> None:
        self.db.close()
        self.view.close()
        self.reader.close()
        self.log.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()
    report = verify(tmp_path / "events.db", tmp_path / "database.db")
    assert report.ok, report.differences  # whatever a test did, the live rows are those of a rebuild


@pytest.fixture
def files() -> list[TracedFile]:
    return list(make_traced_repository(seed=1, n_files=6, theorems_per_file=3))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_EVENTS", 2)


@pytest.mark.parametrize(
    "with_view", [True, False], ids=["line read from the view", "line read from the log"]
)
def test_only_what_differs_from_the_last_trace_of_the_line_is_appended(
    store: Store, files: list[TracedFile], with_view: bool
) -> None:
    first = store.record(files, with_view=with_view)
    changed = [
        *files[:3],
        grown(files[3], name="brand_new"),
        *files[4:5],
    ]  # one changed, the last one removed
    second = store.record(changed, head(SECOND), with_view=with_view)
    assert (first.files_changed, first.files_removed, first.repeated) == (6, 0, False)
    assert (second.files_changed, second.files_removed, second.files_traced) == (1, 1, 5)
    assert store.types() == {"file_traced": 7, "traced_file_removed": 1, "commit_traced": 2}

    before, after = store.paths(first.trace), store.paths(second.trace)
    assert before.keys() == {file.path for file in files}
    assert after.keys() == {file.path for file in changed}
    assert {path for path in after if after[path] != before[path]} == {files[3].path}
    names = [{item.full_name for item in theorems_of_trace(store.db, row.trace)} for row in (first, second)]
    assert "brand_new" in names[1] - names[0]
    assert first.n_theorems == 18
    assert second.n_theorems == 16


def test_the_counts_of_the_closing_event_are_those_of_the_whole_commit(
    store: Store, files: list[TracedFile]
) -> None:
    recorded = store.record(files, errors={files[2].path: "Lean ran out of memory"})
    row = trace_of(store.db, recorded.trace)
    assert (row.files_traced, row.files_failed) == (6, 1)
    assert row.completeness == pytest.approx(5 / 6)
    assert row.n_theorems == len(theorems_of_trace(store.db, recorded.trace))
    assert row.n_premises == len(premises_of_trace(store.db, recorded.trace))
    assert row.n_tactics == sum(item.n_tactics for item in theorems_of_trace(store.db, recorded.trace))
    found = {file.path: file.error for file in q.files_of_trace(store.db, recorded.trace) if file.error}
    assert found == {files[2].path: "Lean ran out of memory"}


def test_the_same_trace_again_appends_nothing(store: Store, files: list[TracedFile]) -> None:
    first = store.record(files)
    position = store.reader.position()
    again = store.record(files, replace(head(), seconds=99.0))  # it may have taken another time
    assert store.reader.position() == position
    assert again == replace(first, files_changed=0, repeated=True)
    assert store.record(files, with_view=False).repeated


def test_other_metadata_close_the_same_trace_anew(store: Store, files: list[TracedFile]) -> None:
    first = store.record(files)
    again = store.record(files, replace(head(), metadata={"date_processed": "2026-02-03"}))
    assert (again.trace, again.files_changed, again.repeated) == (first.trace, 0, False)
    (row,) = q.traces(store.db)
    assert (row.seq, json.loads(row.metadata_json)) == (again.seq, {"date_processed": "2026-02-03"})


def test_a_trace_goes_there_and_back_under_one_id(store: Store, files: list[TracedFile]) -> None:
    other = [grown(files[0], name="there"), *files[1:]]
    trace = replace(head(), line=None, source="import")
    for version in (files, other, files, other, files):
        recorded = store.record(version, trace)
        names = {item.full_name for item in theorems_of_trace(store.db, recorded.trace)}
        assert ("there" in names) == (version is other)
    assert [row.line for row in q.traces(store.db)] == [import_line(trace.trace)]
    # Every step back is a fact of its own, and what both versions say is stored once.
    assert store.types() == {"file_traced": 6 + 4, "commit_traced": 5}
    assert store.db.execute("SELECT count(*) FROM traced_contents").fetchone()[0] == 7


def test_a_branch_that_returns_to_an_old_commit_has_it_as_its_newest_trace(
    store: Store, files: list[TracedFile]
) -> None:
    first = store.record(files)
    second = store.record([grown(files[0], name="reverted"), *files[1:]], head(SECOND))
    assert [row.trace for row in q.newest_traces(store.db)] == [second.trace]
    third = store.record(files)
    assert third.trace == first.trace
    assert not third.repeated
    assert [row.trace for row in q.newest_traces(store.db)] == [first.trace]
    assert store.record([*files], head(THIRD)).files_changed == 0


def test_lines_do_not_see_each_other_and_share_what_is_the_same(
    store: Store, files: list[TracedFile]
) -> None:
    main = store.record(files)
    dev = store.record([*files[:5], grown(files[5], name="on_dev")], head(SECOND, branch="dev"))
    fork = store.record(files, head(repository="example.org/other/logic"))
    assert main.files_changed == dev.files_changed == fork.files_changed == 6
    assert store.paths(main.trace) == store.paths(fork.trace)
    assert store.db.execute("SELECT count(*) FROM traced_contents").fetchone()[0] == 7
    assert store.db.execute("SELECT count(*) FROM traced_theorems").fetchone()[0] == 6 * 3 + 4


class CutError(Exception):
    """The tracer died."""


def cut(files: Sequence[TracedFile], after: int) -> Iterator[TracedFile]:
    yield from files[:after]
    raise CutError


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("caught_up", [True, False], ids=["view caught up", "view behind"])
def test_half_a_trace_is_in_no_answer_and_is_completed_by_a_second_run(
    store: Store, files: list[TracedFile], caught_up: bool
) -> None:
    with pytest.raises(CutError):
        record_trace(store.log, trace=head(), files=cut(files, 5), stage=store.stage, view=store.db)
    assert list(store.stage.iterdir()) == []
    half = store.types()["file_traced"]
    assert 0 < half < 6
    if caught_up:
        store.view.catch_up()
        assert store.db.execute("SELECT count(*) FROM traced_theorems").fetchone()[0] > 0
    theorem = files[0].theorems[0]
    assert q.traces(store.db, state=None) == []
    assert list(q.files_of_trace(store.db, head().trace)) == []
    for side in ("train", "val", "test"):
        assert list(q.training_proofs(store.db, "random", side, traces=[head().trace])) == []

    recorded = store.record(files)
    assert recorded.files_changed == 6 - half
    assert store.types() == {"file_traced": 6, "commit_traced": 1}
    assert store.paths(recorded.trace).keys() == {file.path for file in files}
    found = theorems_of_trace(store.db, recorded.trace)
    assert [item.path for item in found if item.full_name == theorem.full_name] == [files[0].path]


@pytest.mark.usefixtures("small_batches")
def test_half_a_new_trace_leaves_the_closed_one_as_it_was(store: Store, files: list[TracedFile]) -> None:
    trace = replace(head(), line=None)
    first = store.record(files, trace)
    listed = store.paths(first.trace)
    new = [grown(file, name=f"new_{number}") for number, file in enumerate(files)]
    with pytest.raises(CutError):
        record_trace(store.log, trace=trace, files=cut(new, 4), stage=store.stage, view=store.db)
    store.view.catch_up()
    assert store.paths(first.trace) == listed
    assert "new_0" not in {item.full_name for item in theorems_of_trace(store.db, first.trace)}
    # What was cut off may also be taken back: the line then is as it was.
    back = store.record(files, trace)
    assert (back.files_changed, back.repeated) == (2, False)
    assert store.paths(first.trace) == listed
    again = store.record(new, trace)
    assert again.files_changed == 6
    assert "new_0" in {item.full_name for item in theorems_of_trace(store.db, again.trace)}


KILLED = """
import os, signal, sys
from pathlib import Path
from store import recording
from store.log.log import EventLog
from tests.support.traced_repository import head, make_traced_repository

recording.MAX_EVENTS = 3
folder, after = Path(sys.argv[1]), int(sys.argv[2])

def files():
    for number, file in enumerate(make_traced_repository(seed=1, n_files=20, theorems_per_file=2)):
        if number == after:
            os.kill(os.getpid(), signal.SIGKILL)
        yield file

with EventLog.open(folder / "events.db") as log:
    recording.record_trace(log, trace=head(), files=files(), stage=folder / "stage")
"""


def test_a_recorder_that_is_killed_again_and_again_comes_to_the_same_trace(tmp_path: Path) -> None:
    for after in (2, 7, 16):
        run = warm.start(KILLED, str(tmp_path), str(after), output=tmp_path / "said")
        assert run.wait(timeout=60) == -signal.SIGKILL
    store = Store(tmp_path)
    try:
        files = list(make_traced_repository(seed=1, n_files=20, theorems_per_file=2))
        recorded = store.record(files)
        assert store.types() == {"file_traced": 20, "commit_traced": 1}
        assert store.paths(recorded.trace).keys() == {file.path for file in files}
    finally:
        store.close()


@pytest.mark.usefixtures("small_batches")
def test_what_is_staged_is_never_more_than_a_batch_and_goes_away_again(
    store: Store, files: list[TracedFile]
) -> None:
    staged = []

    def watched() -> Iterator[TracedFile]:
        for file in files:
            staged.append(len(list(store.stage.glob("*"))))
            yield file

    record_trace(store.log, trace=head(), files=watched(), stage=store.stage)
    assert max(staged) == 2
    assert list(store.stage.iterdir()) == []


def test_a_withdrawn_trace_leaves_the_answers_and_comes_back_when_it_is_recorded_again(
    store: Store, files: list[TracedFile]
) -> None:
    first = store.record(files)
    name = files[0].theorems[0].full_name
    for _ in range(2):
        store.withdraw(first.trace)
        assert q.traces(store.db) == []
        assert [row.state for row in q.traces(store.db, state=None)] == ["withdrawn"]
        assert q.newest_traces(store.db) == []
        assert theorems_of_trace(store.db, first.trace) == []
        again = store.record(files)
        assert (again.files_changed, again.repeated) == (0, False)
        assert name in {item.full_name for item in theorems_of_trace(store.db, again.trace)}
    assert store.types() == {"file_traced": 6, "commit_traced": 3, "trace_withdrawn": 2}


def test_the_manifest_of_an_import_is_in_the_log(store: Store, files: list[TracedFile]) -> None:
    manifest = Manifest(
        "database", tuple(file.path for file in files), {"proven_theorems": ((0, 1),)}, ("a",), {"k": 1}
    )
    store.record(files, manifest=manifest)
    (row,) = q.traces(store.db)
    assert row.manifest_sha256 is not None
    assert store.reader.blob(row.manifest_sha256).startswith(b'{"files":["')


def test_a_path_that_comes_twice_is_refused_and_nothing_counts(store: Store, files: list[TracedFile]) -> None:
    with pytest.raises(InvalidAppendError, match="is there twice; give each file of a commit once"):
        store.record([*files, files[0]])
    assert store.types() == {}


def test_what_is_no_json_is_refused_by_name(store: Store, files: list[TracedFile]) -> None:
    with pytest.raises(InvalidAppendError, match=r"the metadata of https://example.org/demo/logic cannot be"):
        store.record(files, replace(head(), metadata={"n": float("nan")}))
    with pytest.raises(InvalidAppendError, match=r"the trace of 'Odd\.lean' cannot be written"):
        store.record([TracedFile("Odd.lean", ("\ud800",), (), ())])
    # The view's parser stops at 200: in the log it would stop the view for good.
    deep = json.loads("[" * 300 + "]" * 300)
    with pytest.raises(
        InvalidAppendError, match=r"the trace of 'Odd\.lean' cannot be written.* nested very deep"
    ):
        store.record([TracedFile("Odd.lean", (), (), (), extra={"own": deep})])
    with pytest.raises(InvalidAppendError, match=r"the metadata of .* cannot be written"):
        store.record(files, replace(head(), metadata={"own": deep}))
    assert store.types() == {}


def test_a_log_in_memory_takes_a_trace_too(tmp_path: Path, files: list[TracedFile]) -> None:
    with MemoryLog() as log:
        first = record_trace(log, trace=head(), files=files, stage=tmp_path)
        again = record_trace(log, trace=head(), files=files, stage=tmp_path)
    assert (first.seq, first.repeated, again.seq, again.repeated) == (7, False, 7, True)


def test_a_commit_without_files_is_a_trace(store: Store, files: list[TracedFile]) -> None:
    store.record(files)
    empty = store.record([], head(SECOND))
    assert (empty.files_removed, empty.files_traced) == (6, 0)
    row = trace_of(store.db, empty.trace)
    assert row.completeness == 1
    assert store.paths(empty.trace) == {}
