"""Record a commit's trace in the log: the differences from the line's state, then the closing event.

A tracer, an import and the library face all append through `record_trace`, and nothing else writes these
events. It may be killed at any moment, and the next call completes it: an event's id is made of its content
and of the line's state before it, and nothing counts until the closing event.

    head = TraceHead(repository="example.org/me/logic", line=branch_line("main"), sha=..., ...)
    record_trace(log, trace=head, files=read_files(), stage=state / "stage", view=db)
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic_core import from_json

from store.domain.identity import event_id, trace_id
from store.domain.records import Manifest, TracedFile
from store.errors import InvalidAppendError
from store.events.base import BlobRef
from store.events.traces import CommitTraced, FileTraced, TracedFileRemoved
from store.log.envelope import Appended, Expect, NewEvent
from store.log.reader import LogReader
from store.log.upcast import read_body
from store.sqlite import translated

MAX_EVENTS = 256
MAX_BYTES = 16 << 20
"""A batch ends at the first of the two limits (events, bytes of payload): this bounds its memory."""


class Log(Protocol):
    """The part of a log's interface needed here, as in `store.log.log.EventLog`."""

    def append(
        self,
        events: Sequence[NewEvent],
        *,
        expect: Mapping[str, int | Expect],
        blobs: Mapping[str, Path] | None = None,
    ) -> Appended: ...

    def reader(self) -> LogReader: ...


def import_line(trace: str) -> str:
    """Return an import's own line, by its trace id."""
    return f"import:{trace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHead:
    """The commit and the tracer of a trace; the fields are those of `store.events.traces.CommitTraced`.

    `line` is `store.view.trace_queries.branch_line` or `import_line`; None means an import's, of this trace.
    `project` is the folder of the Lake project, `seconds` the duration of tracing.
    """

    repository: str
    sha: str
    url: str
    name: str
    lean_version: str
    tracer: str
    tracer_version: str
    source: Literal["lean", "import"]
    line: str | None = None
    project: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    pr_url: str | None = None
    seconds: float = 0.0

    @property
    def trace(self) -> str:
        """The trace's id."""
        return trace_id(self.url, self.sha, self.lean_version, self.tracer, self.tracer_version, self.project)

    @property
    def on(self) -> str:
        """Its line."""
        return import_line(self.trace) if self.line is None else self.line


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """A recorded commit. `seq` is the log position of the closing event.

    Counts are of the whole commit but for `files_changed` and `files_removed`, the differences written now.
    `repeated`: all of it was there already.
    """

    trace: str
    seq: int
    files_traced: int
    files_failed: int
    files_changed: int
    files_removed: int
    n_theorems: int
    n_premises: int
    n_tactics: int
    repeated: bool


def record_trace(
    log: Log,
    *,
    trace: TraceHead,
    files: Iterable[TracedFile],
    stage: Path,
    manifest: Manifest | None = None,
    view: sqlite3.Connection | None = None,
    errors: Mapping[str, str] | None = None,
    actor: str = "daemon",
) -> RecordedTrace:
    """Append the differences from the line's last state, and close the commit.

    `files` are all files of the commit, each path once, read one after the other; at most 256 of them, or 16
    MiB of their JSON, are in memory. `errors` has the reasons of failed extractions by path; it is looked up
    in each file's turn, so a tracer may fill it meanwhile. `view` is a connection for queries
    (`store.view.queries.connect`): with it the line's state is not read from the whole log. It may lag behind
    the log. `stage` is a folder for payloads on their way into the log; they are removed again.

    Raises:
        InvalidAppendError: a path is there twice, or a value is no JSON (NaN, a lone surrogate). Nothing
            appended before it counts, and a corrected repetition supersedes it.
        LogError: the log refused; call again with the same arguments.
    """
    order = None if manifest is None else _encode(manifest.as_json(), what=f"the manifest of {trace.url}")
    metadata = json.loads(_encode(dict(trace.metadata), what=f"the metadata of {trace.url}"))
    with log.reader() as reader, _Writer(log, trace, stage, actor) as writer:
        line = _Line.read(reader, view, repository=trace.repository, line=trace.on)
        seen: set[str] = set()
        theorems = premises = tactics = failed = changed = 0
        for file in files:
            if file.path in seen:
                raise InvalidAppendError(
                    f"{trace.url} at {trace.sha}: {file.path!r} is there twice; give each file of a commit once"
                )
            seen.add(file.path)
            error = (errors or {}).get(file.path)
            theorems, premises = theorems + len(file.theorems), premises + len(file.premises)
            tactics, failed = tactics + _n_tactics(file), failed + (error is not None)
            changed += writer.file(line, file, error=error)
        removed = sorted(line.standing() - seen)
        for path in removed:
            writer.removal(line, path)
        body = CommitTraced(
            trace=trace.trace,
            repository=trace.repository,
            line=trace.on,
            sha=trace.sha,
            url=trace.url,
            name=trace.name,
            lean_version=trace.lean_version,
            tracer=trace.tracer,
            tracer_version=trace.tracer_version,
            source=trace.source,
            metadata=metadata,
            pr_url=trace.pr_url,
            files_traced=len(seen),
            files_failed=failed,
            n_theorems=theorems,
            n_premises=premises,
            n_tactics=tactics,
            manifest=None if order is None else _reference(order),
            seconds=trace.seconds,
        )
        repeated = not changed and not removed and line.is_closed_by(body, reader)
        seq = line.closed_seq if repeated else writer.close(line, body, manifest=order)
    return RecordedTrace(
        trace=body.trace,
        seq=seq,
        files_traced=len(seen),
        files_failed=failed,
        files_changed=changed,
        files_removed=len(removed),
        n_theorems=theorems,
        n_premises=premises,
        n_tactics=tactics,
        repeated=repeated,
    )


def file_event(
    trace: TraceHead, file: TracedFile, *, error: str | None = None, key: str = ""
) -> tuple[FileTraced, bytes]:
    """Return the event of a file's trace, and its payload; `key` as in `FileTraced`.

    Raises:
        InvalidAppendError: a value in it is no JSON.
    """
    payload = _encode(file.as_json(), what=f"the trace of {file.path!r}")
    body = FileTraced(
        repository=trace.repository,
        line=trace.on,
        sha=trace.sha,
        path=file.path,
        error=error,
        n_theorems=len(file.theorems),
        n_premises=len(file.premises),
        n_tactics=_n_tactics(file),
        trace=_reference(payload),
        key=key,
    )
    return body, payload


@dataclass(frozen=True, slots=True)
class _Standing:
    """The last record of a path on a branch, at `seq`; `digest` is None for a removed path."""

    seq: int
    digest: str | None
    error: str | None = None


class _Line:
    """The present files of a line, by path, and its last closing event (0: none, or withdrawn)."""

    def __init__(self) -> None:
        self.files: dict[str, _Standing] = {}
        self.closed_seq = 0
        self.trace = ""
        self.withdrawn = False

    @classmethod
    def read(cls, reader: LogReader, view: sqlite3.Connection | None, *, repository: str, line: str) -> _Line:
        """Combine the view with the log's later events: the log decides."""
        # Not before: a tracing job makes events, and reads no view.
        from store.view import queries

        result = cls()
        after = 0
        if view is not None:
            after = queries.position(view)  # first: later events are read once more below
            result._take_view(view, (repository, line))
        events = reader.read(
            after=after,
            types=("file_traced", "traced_file_removed", "commit_traced", "trace_withdrawn"),
            stream=_stream(repository),
        )
        for event in events:
            data = event.data
            if event.type == "trace_withdrawn":
                result.withdrawn |= data["trace"] == result.trace
            elif data["line"] == line:
                result._take_event(event.seq, event.type, data)
        return result

    def standing(self) -> set[str]:
        """The line's paths."""
        return {path for path, item in self.files.items() if item.digest is not None}

    def last_seq(self) -> int:
        """The log position of the line's last event."""
        return max(chain([self.closed_seq], (item.seq for item in self.files.values())))

    def is_closed_by(self, body: CommitTraced, reader: LogReader) -> bool:
        """Return whether the last event on the line equals `body`, but for its duration."""
        if self.withdrawn or self.closed_seq == 0 or self.last_seq() > self.closed_seq:
            return False
        before = read_body(next(reader.read(after=self.closed_seq - 1, limit=1)))
        return before.model_copy(update={"seconds": body.seconds}) == body

    def _take_view(self, view: sqlite3.Connection, where: tuple[str, str]) -> None:
        rows = view.execute(
            "SELECT path, max(until_seq) FROM traced_files WHERE repository = ? AND line = ? "
            "AND until_seq IS NOT NULL GROUP BY path",
            where,
        )
        self.files = {path: _Standing(seq, None) for path, seq in rows}
        rows = view.execute(
            "SELECT path, from_seq, sha256, error FROM traced_files JOIN traced_contents USING (content) "
            "WHERE repository = ? AND line = ? AND until_seq IS NULL",
            where,
        )
        self.files |= {path: _Standing(seq, digest, error) for path, seq, digest, error in rows}
        closing = view.execute(
            "SELECT seq, trace, state FROM traces WHERE repository = ? AND line = ? ORDER BY seq DESC LIMIT 1",
            where,
        ).fetchone()
        if closing is not None:
            self.closed_seq, self.trace, self.withdrawn = closing[0], closing[1], closing[2] == "withdrawn"

    def _take_event(self, seq: int, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "commit_traced":
            self.closed_seq, self.trace, self.withdrawn = seq, data["trace"], False
            return
        path = data["path"]
        digest = data["trace"]["sha256"] if kind == "file_traced" else None
        new = _Standing(seq, digest, data.get("error"))
        old = self.files.get(path, _Standing(0, None))
        # As in the view: an event without news is not the line's last one on a path.
        if (old.digest, old.error) != (new.digest, new.error):
            self.files[path] = new


class _Writer:
    """Gathers the events of one trace into batches; leaves no staged payload behind."""

    def __init__(self, log: Log, head: TraceHead, stage: Path, actor: str) -> None:
        self._log = log
        self._head = head
        self._stage = stage
        self._actor = actor
        self._stream = _stream(head.repository)
        self._events: list[NewEvent] = []
        self._staged: dict[str, Path] = {}
        self._bytes = 0

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._forget()

    def file(self, line: _Line, file: TracedFile, *, error: str | None) -> bool:
        """Append a file if it differs from the line's; return whether it does."""
        body, payload = file_event(self._head, file, error=error)
        before = line.files.get(file.path, _Standing(0, None))
        if (before.digest, before.error) == (body.trace.sha256, error):
            return False
        self._add(body, payload, file.path, str(before.seq), body.trace.sha256, error or "")
        return True

    def removal(self, line: _Line, path: str) -> None:
        """Append the removal of a path."""
        body = TracedFileRemoved(
            repository=self._head.repository, line=self._head.on, sha=self._head.sha, path=path
        )
        self._add(body, None, path, str(line.files[path].seq))

    def close(self, line: _Line, body: CommitTraced, *, manifest: bytes | None) -> int:
        """Append the closing event with the rest of the batch; return its position."""
        self._add(body, manifest, body.trace, str(line.last_seq()))
        return self._flush()

    def _add(
        self, body: FileTraced | TracedFileRemoved | CommitTraced, payload: bytes | None, *key: str
    ) -> None:
        if len(self._events) >= MAX_EVENTS or self._bytes >= MAX_BYTES:
            self._flush()
        name = event_id(body.type, self._head.repository, self._head.on, self._head.sha, *key)
        self._events.append(NewEvent(self._stream, body, event_id=name, actor=self._actor))
        if payload is not None:
            digest = _reference(payload).sha256
            self._staged[digest] = self._stage / digest
            with translated(self._stage):
                self._stage.mkdir(parents=True, exist_ok=True)
                self._staged[digest].write_bytes(payload)
            self._bytes += len(payload)

    def _flush(self) -> int:
        """Append the gathered events; return the position of the last one."""
        appended = self._log.append(self._events, expect={self._stream: Expect.ANY}, blobs=self._staged)
        self._forget()
        return appended.last_seq

    def _forget(self) -> None:
        for path in self._staged.values():
            path.unlink(missing_ok=True)
        self._events, self._staged, self._bytes = [], {}, 0


def _n_tactics(file: TracedFile) -> int:
    return sum(len(theorem.tactics) for theorem in file.theorems)


def _stream(repository: str) -> str:
    return f"repository:{repository}"


def _encode(value: Any, *, what: str) -> bytes:
    try:
        data = json.dumps(
            value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
        ).encode()
        # By the view's own parser: unreadable JSON would stop the view for good.
        from_json(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidAppendError(
            f"{what} cannot be written as JSON: {error}. Numbers must be finite, text valid Unicode, and nothing "
            "nested very deep"
        ) from error
    return data


def _reference(payload: bytes) -> BlobRef:
    return BlobRef(sha256=hashlib.sha256(payload).hexdigest(), size_bytes=len(payload))
