"""One run of the trace job: the due files, their traces as they end, and the events that close the commit.

A file is due unless the line has it under its present key; a failure's key names its commit too, so that the next
commit tries the file again. Each file's trace is recorded as soon as it ends; until the closing events none of it
counts, and a restarted run skips those files.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter, bad_spec
from pipeline.jobs.specs import TRACER_VERSION, KnownFile, OpenSorry, TraceSpec
from pipeline.lean.client.errors import ReplStartError
from pipeline.lean.goal_text import same_goal
from pipeline.lean.source.globs import path_filter
from pipeline.trace.file import FileTrace, FileTracer
from pipeline.trace.tree import LeanFile, Tree
from store.domain.records import Seen
from store.events.traces import CommitTraced, FileTraced, SorryStated, TracedFileRemoved, TraceMeasured
from store.recording import TraceHead, file_event

_PER_BATCH = 64
_TRACER = "everlean"
_VERSION = re.compile(r"(?:.*:)?(v?\d[\w.+-]*|nightly-[\w.-]+|[\w.-]+)$")
_Item = TypeVar("_Item")


class Run:
    """The work on one commit."""

    def __init__(self, spec: JobSpec[TraceSpec], reporter: Reporter) -> None:
        """Raises:
        JobError: a path pattern is none, or the worktree or Lean's own program is not there.
        """
        self._given = parameters = spec.parameters
        program = parameters.lean.program
        if program is None:
            raise JobError(
                "toolchain_missing",
                f"a commit is traced by Lean itself, and where that is, is not known: {parameters.lean.detail}",
                remedy=f"run `elan toolchain install {parameters.lean.toolchain or 'VERSION'}`, or `everlean setup`",
            )
        if not spec.place.is_dir():
            raise JobError(
                "no_worktree", f"{spec.place}: no such folder", remedy="the worktree has to be made anew"
            )
        self._project = spec.project(parameters.folder)
        try:
            self._meant = path_filter(parameters.include, parameters.exclude)
        except ValueError as error:
            raise bad_spec(spec.kind, str(error)) from error
        self._reporter = reporter
        self._started = time.monotonic()
        tracer = f"{_TRACER} {TRACER_VERSION}"
        core = Path(parameters.lean.sysroot) / "src" / "lean" if parameters.lean.sysroot else None
        self._tree = Tree(
            spec.place,
            sha=parameters.sha,
            tracer=tracer,
            lean=parameters.lean.toolchain,
            core=core if core is not None and core.is_dir() else None,
            folder=parameters.folder,
            without=parameters.without,
        )
        self._head = self._head_of(self._tree.toolchain, metadata={}, seconds=0.0)
        self._tracer = FileTracer(
            program,
            project=self._project,
            tree=self._tree,
            memory_bytes=parameters.limits.memory_bytes,
            timeout_s=parameters.file_timeout_s,
        )
        self._holds: dict[str, KnownFile] = {}
        self._n_stated = 0

    async def run(self) -> dict[str, Any]:
        """Trace the due files and close the commit; return the job's summary."""
        given, tree = self._given, self._tree
        project = [item for path, item in sorted(tree.files.items()) if self._meant(path)]
        dependencies = tree.dependencies(self._meant)
        due = self._due(project)
        due_dependencies = self._due(dependencies)
        self._reporter.progress(0, len(due))
        for chunk in _chunks(due_dependencies):
            self._reporter.events(self._recorded(item, self._tracer.without_lean(item)) for item in chunk)
        await self._trace(due)
        standing = {item.path for item in project} | {item.path for item in dependencies}
        gone = sorted(path for path in given.known.files if path not in standing)
        for paths in _chunks(gone):
            self._reporter.events(self._removed(path) for path in paths)
        seconds = round(time.monotonic() - self._started, 3)
        measured = self._close(len(dependencies), seconds)
        return {
            "files": len(project),
            "traced": len(due),
            "failed": measured.files_seen - measured.files_traced,
            "removed": len(gone),
            "dependencies": len(dependencies),
            "theorems": measured.theorems_traced,
            "tactics": measured.tactics_traced,
            "gaps": measured.gaps,
            "goals_stated": self._n_stated,
            "seconds": seconds,
        }

    def _head_of(self, toolchain: str, *, metadata: Mapping[str, Any], seconds: float) -> TraceHead:
        """Return the subject of the trace; `toolchain` is the text of the commit's `lean-toolchain`."""
        given = self._given
        return TraceHead(
            repository=given.repository,
            sha=given.sha,
            url=given.url,
            name=given.name,
            lean_version=lean_version(toolchain or given.lean.toolchain),
            tracer=_TRACER,
            tracer_version=TRACER_VERSION,
            source="lean",
            line=given.known.line,
            project=given.folder,
            metadata=metadata,
            seconds=seconds,
        )

    def _due(self, items: Iterable[LeanFile]) -> list[LeanFile]:
        due = []
        for item in items:
            known = self._given.known.files.get(item.path)
            if known is not None and known.key == self._key(item, failed=known.failed):
                self._holds[item.path] = known
            else:
                due.append(item)
        return due

    def _key(self, item: LeanFile, *, failed: bool) -> str:
        key = self._tree.key(item)
        return f"{key} at {self._given.sha}" if failed else key

    async def _trace(self, due: Sequence[LeanFile]) -> None:
        slots = asyncio.Semaphore(self._given.limits.capacity)
        sorries: dict[str, list[OpenSorry]] = {}
        for sorry in self._given.known.sorries:
            sorries.setdefault(sorry.path, []).append(sorry)
        done = 0

        async def one(item: LeanFile) -> None:
            nonlocal done
            wanted = [sorry for sorry in sorries.get(item.path, ()) if sorry.blob == item.blob]
            async with slots:
                trace = await self._tracer.trace(item, wanted=[sorry.byte_start for sorry in wanted])
            key = self._tree.key(item)
            stated = [event for sorry in wanted if (event := self._goal(sorry, trace, key)) is not None]
            # The file last: a restarted run skips a file recorded here.
            first = max(0, len(stated) - _PER_BATCH)
            for start in range(0, first, _PER_BATCH):
                self._reporter.events(stated[start : min(start + _PER_BATCH, first)])
            self._reporter.events([self._recorded(item, trace), *stated[first:]])
            self._n_stated += len(stated)
            done += 1
            self._reporter.progress(done, len(due), item.path)

        try:
            if due:
                await self._tracer.prepare()
            async with asyncio.TaskGroup() as tasks:
                for item in due:
                    tasks.create_task(one(item))
        except* ReplStartError as errors:
            said, remedy = str(errors.exceptions[0]), "see `everlean doctor`"
            raise JobError("lean_does_not_start", said, remedy=remedy) from errors

    # --- events -------------------------------------------------------------------------------------------

    def _recorded(self, item: LeanFile, trace: FileTrace) -> Recorded:
        file = trace.trace
        key = self._key(item, failed=trace.error is not None)
        body, payload = file_event(self._head, file, error=trace.error, key=key)
        self._reporter.stage(payload)
        self._holds[item.path] = KnownFile(
            key=key,
            theorems=body.n_theorems,
            premises=body.n_premises,
            tactics=body.n_tactics,
            failed=trace.error is not None,
            seen=file.seen,
            gaps=file.gaps,
        )
        return self._event(body, item.path, body.trace.sha256, trace.error or "", key)

    def _removed(self, path: str) -> Recorded:
        given = self._given
        body = TracedFileRemoved(repository=given.repository, line=given.known.line, sha=given.sha, path=path)
        return self._event(body, path)

    def _goal(self, sorry: OpenSorry, trace: FileTrace, key: str) -> Recorded | None:
        """Return the event for a sorry's goal, if it is new."""
        given, goal = self._given, trace.goals.get(sorry.byte_start)
        if goal is None:
            return None
        before = sorry.stated
        if before is not None and same_goal(before.goal, goal):
            return None
        text = (sorry.statement_hash, sorry.context_hash)
        body = SorryStated(
            repository=given.repository,
            branch=given.branch,
            sha=given.sha,
            sorry=sorry.sorry,
            statement_hash=sorry.statement_hash,
            context_hash=sorry.context_hash,
            goal=goal,
            before=None if before is None else before.goal,
            same_text=before is not None and (before.statement_hash, before.context_hash) == text,
        )
        return self._event(body, sorry.sorry, goal, key)

    def _close(self, n_dependencies: int, seconds: float) -> TraceMeasured:
        given, holds = self._given, self._holds
        # Without a zone: LeanDojo compares it with times without zone, and fails on a mixture.
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
        head = self._head_of(self._tree.toolchain, metadata={"date_processed": now}, seconds=seconds)
        closing = CommitTraced(
            trace=head.trace,
            repository=given.repository,
            line=given.known.line,
            sha=given.sha,
            url=given.url,
            name=given.name,
            lean_version=head.lean_version,
            tracer=head.tracer,
            tracer_version=head.tracer_version,
            source="lean",
            metadata=dict(head.metadata),
            pr_url=None,
            files_traced=len(holds),
            files_failed=sum(item.failed for item in holds.values()),
            n_theorems=sum(item.theorems for item in holds.values()),
            n_premises=sum(item.premises for item in holds.values()),
            n_tactics=sum(item.tactics for item in holds.values()),
            manifest=None,
            seconds=seconds,
        )
        measured = self._measured(head.trace, n_dependencies)
        self._reporter.events([self._event(closing), self._event(measured)])
        return measured

    def _measured(self, trace: str, n_dependencies: int) -> TraceMeasured:
        given = self._given
        project = {path: item for path, item in self._holds.items() if path in self._tree.files}
        seen = [item.seen or Seen(0, 0, 0, 0) for item in project.values()]
        gaps = [[path, *gap.as_json()] for path, item in sorted(self._holds.items()) for gap in item.gaps]
        details = json.dumps(gaps, ensure_ascii=False, separators=(",", ":")).encode()
        return TraceMeasured(
            trace=trace,
            repository=given.repository,
            line=given.known.line,
            sha=given.sha,
            files_seen=len(project),
            files_traced=sum(not item.failed for item in project.values()),
            theorems_seen=sum(item.theorems for item in seen),
            theorems_traced=sum(item.theorems_traced for item in seen),
            tactics_seen=sum(item.tactics for item in seen),
            tactics_traced=sum(item.tactics_traced for item in seen),
            n_dependencies=n_dependencies,
            gaps=dict(sorted(Counter(kind for _, kind, *_ in gaps).items())),
            details=self._reporter.stage(details),
        )

    def _event(
        self,
        body: FileTraced | TracedFileRemoved | SorryStated | CommitTraced | TraceMeasured,
        *key: str,
    ) -> Recorded:
        # With the line's position: a commit returning after a force-push is recorded anew. Lean's statements also have
        # the file's key in it: repeated in the same words they move no position, and may be another tracer's.
        given = self._given
        return Recorded(
            stream=f"repository:{given.repository}",
            body=body,
            natural_key=(given.repository, given.known.line, given.sha, str(given.known.after), *key),
        )


def _chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _PER_BATCH):
        yield items[start : start + _PER_BATCH]


def lean_version(toolchain: str) -> str:
    """Return "v4.21.0" of "leanprover/lean4:v4.21.0"; "unknown" where it names none."""
    match = _VERSION.match(toolchain.strip())
    return "unknown" if match is None else match[1]
