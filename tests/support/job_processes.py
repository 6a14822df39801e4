"""Jobs as processes of their own, for tests: programs in which nothing is loaded anew, killed where a test says.

outcome = JobProcesses(("train",)).run("train", parameters, folder, name="train-1")
"""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from pipeline.freeze import export, freeze
from pipeline.jobs.inputs import Inputs
from pipeline.jobs.kinds import KINDS, Kind
from pipeline.jobs.protocol import JobError, JobSpec, Reporter, Sources
from store.events.models import ModelKind
from store.events.registry import EVENT_TYPES
from store.log.envelope import Expect, NewEvent
from store.log.log import EventLog
from store.view.view import View
from tests.support import programs
from tests.support.specs import raw_spec

Kill = tuple[str, int]
"""How the note of a progress line begins, and its number of things done: it happens right after that line."""
# What a job's process does.
_JOB = """
import json, os, sys
from pipeline.jobs import protocol
from pathlib import Path
from pipeline.models import training_job as jobs
from tests.support.daemon import disk, forks

module, spec, kill, number, fills = json.loads(sys.argv[1])
tell = protocol.Reporter.progress


def progress(self, done, total, note=""):
    tell(self, done, total, note)
    if kill and note.startswith(kill[0]) and done == kill[1]:
        if fills:
            disk.SmallDisk(Path(fills)).refuse(0)
        else:
            for helper in helpers:  # a system that stops tells each process
                os.kill(helper.pid, number)
            os.kill(os.getpid(), number)


helpers = []


class Rank(forks.Adopted):
    # One of the processes that learn together, for which nothing is loaded anew.
    def __init__(self, words, *, env, **_):
        if pid := os.fork():
            print("a helper starts", file=sys.stderr, flush=True)
            super().__init__(pid, words)
            helpers.append(self)
            return
        code = 1
        try:
            os.environ.clear()
            os.environ.update(env)
            forks.become_module(words[3], words[4:])
        except SystemExit as end:
            code = end.code
        finally:
            os._exit(code)


jobs.Popen = Rank

if kill:
    jobs._REPORT_EVERY_S = 0
    protocol.Reporter.progress = progress
forks.become_module(module, ["--spec", spec])
"""


@dataclass(frozen=True)
class Outcome:
    """What a job's process said, line by line, and how it ended."""

    returncode: int
    lines: list[dict[str, Any]]
    stderr: str
    staging: Path

    @property
    def last(self) -> dict[str, Any]:
        return self.lines[-1]

    @property
    def summary(self) -> dict[str, Any]:
        assert self.last["line"] == "result", (self.last, self.stderr)
        found: dict[str, Any] = self.last["summary"]
        return found

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for line in self.lines if line["line"] == "events" for event in line["events"]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the bodies of the events of a type."""
        return [event["data"] for event in self.events if event["type"] == kind]

    def steps(self) -> list[int]:
        """Return the training steps that were told."""
        return [line["done"] for line in self.lines if line.get("note", "").startswith("training")]


_MODELS = {
    "train": "retriever.job",
    "train_tactics": "tactics.job",
    "train_grpo": "tactics.grpo",
    "train_progress": "progress.job",
}
"""The jobs of `pipeline.models`, each with the module that brings its libraries."""


def _module(kind: str) -> str:
    known = {str(name): row.module for name, row in KINDS.items()}
    return known.get(kind, f"pipeline.{kind}")


class JobProcesses:
    """Runs jobs one after the other."""

    def __init__(self, kinds: Sequence[str]) -> None:
        """Args:
        kinds: kinds of jobs, whose modules are loaded once for all; of a package name its `__main__` too.
        """
        self._modules = [
            f"pipeline.models.{_MODELS[kind]}" if kind in _MODELS else _module(kind) for kind in kinds
        ]
        self._runs = 0

    def run(
        self,
        kind: str,
        parameters: dict[str, Any],
        root: Path,
        *,
        name: str,
        kill: Kill | None = None,
        number: signal.Signals = signal.SIGKILL,
        fills: Path | None = None,
        gpus: Sequence[str] = (),
    ) -> Outcome:
        """Run one attempt of a job, each in a folder of its own below `root`, as the daemon has it.

        Args:
            kind: one of `kinds`.
            parameters: the job's; with `events_db` and `database_db` its inputs are made of those first.
            root: for the attempt's folder.
            name: the job's id.
            kill: where to send it a signal.
            number: which one.
            fills: the folder of a small disk that is full from there on, in place of the signal.
            gpus: that it leases.
        """
        self._runs += 1
        folder = root / f"attempt-{self._runs}"
        folder.mkdir()
        parameters = dict(parameters)
        databases = {at: Path(parameters.pop(at)) for at in ("events_db", "database_db") if at in parameters}
        spec = replace(raw_spec(kind, parameters, folder, job=name, attempt=self._runs), gpus=tuple(gpus))
        if databases:
            try:
                inputs = frozen(
                    kind,
                    spec,
                    root / "jobs" / name / "inputs",
                    Sources(**databases, contents=root / "inputs"),
                )
            except JobError as error:
                out = io.StringIO()
                Reporter(spec, out).failure(error)
                return Outcome(1, [json.loads(out.getvalue())], "", folder / "staging")
            except ValidationError:
                inputs = Inputs(folder)  # the job says what is wrong with its specification
            spec = replace(spec, inputs=inputs)
        spec.write()
        asked = json.dumps([_module(kind), str(folder / "spec.json"), kill, number, fills and str(fills)])
        done = programs.start(_JOB, asked, folder=folder, modules=self._modules).wait()
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return Outcome(done.returncode, lines, done.stderr, folder / "staging")


def frozen(kind: str, spec: JobSpec[Any], place: Path, sources: Sources) -> Inputs:
    """Return the inputs of a job, as the daemon has them frozen.

    Raises:
        JobError: they cannot be made.
    """
    plain = {
        name: value for name, value in spec.parameters.root.items() if name not in ("worktree", "mirror")
    }
    order = KINDS[cast(Kind, kind)].spec.model_validate_json(json.dumps(plain))
    made = freeze(order, spec.job, place, sources)
    return export(order, place, sources) if made is None else made


def record(outcome: Outcome, model: ModelKind, *, events_db: Path, database_db: Path) -> bool:
    """Append an outcome's batches to the log, as the daemon does; return whether it had all of them."""
    repeated = []
    with (
        EventLog.open(events_db) as log,
        log.reader() as reader,
        View.open(database_db, reader) as view,
    ):
        for line in outcome.lines:
            if line["line"] != "events":
                continue
            batch = [
                NewEvent(
                    item["stream"],
                    EVENT_TYPES[item["type"]].model_validate_json(json.dumps(item["data"])),
                    event_id=item["event_id"],
                    actor="job",
                )
                for item in line["events"]
            ]
            files = {path.name: path for path in outcome.staging.glob("*")}
            appended = log.append(batch, expect={f"model:{model}": Expect.ANY}, blobs=files)
            repeated.append(appended.repeated)
        view.catch_up()
    return all(repeated)
