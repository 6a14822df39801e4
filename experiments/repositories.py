"""Repositories to learn one after another: generated, traced on the simulator, exported as any traced repository is.

Each has the same shared library, as copies of Mathlib would be, and a private one in names of its own
(`tests.support.exercises.families_repository`). Their traces go into one event log; a view of it decides the splits,
and the store's exporter writes what LeanDojo would. All of it is marked simulated there.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any

from pipeline.jobs.known import known_to_trace
from pipeline.jobs.protocol import JobSpec, Reporter
from pipeline.jobs.specs import TraceSpec
from pipeline.lean import backend
from pipeline.lean.pool import PoolLimits
from pipeline.models.datasets import TaskData
from pipeline.trace.__main__ import work
from store.events.registry import EVENT_TYPES
from store.events.repositories import RepositoryWatched
from store.leandojo.exporting import ExportReport, export_leandojo
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.view import queries
from store.view.view import View
from tests.support.exercises.families_repository import RepositorySize, revisions

NAMES = ("Nori", "Tavo", "Kelu", "Ruda", "Mipa", "Sego", "Lofi", "Bazu")
_FILE_TIMEOUT_S = 600.0
_MEMORY_BYTES = 4 << 30


class Tracing:
    """An event log and its view in a folder, and repositories that are traced into it. One thread."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._lean = backend.simulator()
        self._log = EventLog.open(folder / "events.db")
        self._view = View.open(folder / "database.db", self._log.reader())
        self._view.catch_up()

    def __enter__(self) -> Tracing:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._view.close()
        self._log.close()

    def trace(self, name: str, files: Mapping[str, str]) -> dict[str, Any]:
        """Trace a commit of a repository with these files, as the daemon's job does; return the job's summary.

        A later commit's files of the same text are not traced again.

        Raises:
            JobError: the trace job failed.
            RuntimeError: a theorem of the commit has no trace.
        """
        key = f"example.org/sequence/{name.lower()}"
        sha = hashlib.sha1(json.dumps(files, sort_keys=True).encode()).hexdigest()
        tree, job = self._folder / "trees" / sha, self._folder / "jobs" / sha
        for path, text in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text, encoding="utf-8")
        watched = RepositoryWatched(
            projects=(),
            repository=key,
            url=f"https://{key}",
            branches=(),
            include=("**/*.lean",),
            exclude=(),
            every_s=60.0,
            enabled=True,
            opt_out=False,
        )
        self._append([NewEvent(f"repository:{key}", watched, actor="experiment")], key, None)
        with closing(queries.connect(self._folder / "database.db")) as db:
            known = known_to_trace(db, repository=key, branch="main")
        given = TraceSpec(
            repository=key,
            branch="main",
            sha=sha,
            lean=self._lean,
            url=f"https://{key}",
            name=f"sequence/{name.lower()}",
            include=("**/*.lean",),
            exclude=(),
            file_timeout_s=_FILE_TIMEOUT_S,
            limits=PoolLimits(processes=1, memory_bytes=_MEMORY_BYTES),
            known=known,
        )
        spec = JobSpec(sha, "trace", 1, job, given, worktree=tree)
        said = io.StringIO()
        # In this process: a Python of its own would take longer to start than most files to trace.
        summary = work(spec, Reporter(spec, said))
        for line in map(json.loads, said.getvalue().splitlines()):
            if line["line"] == "events":
                events = [
                    NewEvent(
                        item["stream"],
                        EVENT_TYPES[item["type"]].model_validate_json(json.dumps(item["data"])),
                        event_id=item["event_id"],
                        actor="job",
                    )
                    for item in line["events"]
                ]
                self._append(events, key, spec.staging)
        lacking = {kind: count for kind, count in summary["gaps"].items() if kind != "premise_site"}
        if lacking or summary["failed"]:
            raise RuntimeError(f"{name}: the trace lacks {lacking}, {summary['failed']} files failed")
        return summary

    def export(self, name: str, out: Path) -> ExportReport:
        """Write a repository's newest commit in LeanDojo's format."""
        with self._log.reader() as reader, closing(queries.connect(self._folder / "database.db")) as db:
            return export_leandojo(
                out,
                log=reader,
                view=db,
                repositories=[f"example.org/sequence/{name.lower()}"],
                with_database=False,
            )

    def _append(self, events: list[NewEvent], key: str, staging: Path | None) -> None:
        blobs = {} if staging is None else {file.name: file for file in staging.glob("?" * 64)}
        self._log.append(events, expect={f"repository:{key}": Expect.ANY}, blobs=blobs)
        self._view.catch_up()


def write_tasks(folder: Path, seed: int, sizes: Sequence[RepositorySize]) -> list[TaskData]:
    """Write the datasets of repositories of these sizes into `folder`, in their order.

    Half of the theorems that need one lemma use the shared library, half their own; one that needs more, both.

    Raises:
        ValueError: there are no names for so many, or not so many different theorems.
        RuntimeError: see `Tracing.trace`.
    """
    if not 1 <= len(sizes) <= len(NAMES):
        raise ValueError(f"{len(sizes)} repositories are asked for: there are names for 1 to {len(NAMES)}")
    made = []
    with Tracing(folder / "tracing") as tracing:
        for name, size in zip(NAMES, sizes, strict=False):
            tracing.trace(name, next(revisions(seed, name, shared=seed, size=size)))
            report = tracing.export(name, folder / name)
            made.append(TaskData(name, report.path, data_seq=report.position))
    shutil.rmtree(folder / "tracing")
    return made
