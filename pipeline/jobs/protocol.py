"""The protocol between a job and the daemon: a specification file in, JSON lines on standard output out.

A job is `python -m pipeline.<kind> --spec spec.json`. It has no database: it requests events, and the daemon alone
writes them.

Lines that a job prints, each one JSON object with the key `line`:

    progress  {"done": 3, "total": 10, "note": "Basic.lean"}       shown by `everlean jobs`, not recorded
    events    {"events": [{stream, event_id, type, schema_version, data, occurred_at?}]}
                                                                   one batch: appended all or nothing
    result    {"summary": {...}, "peak_rss_bytes"}                 the last line of a job that succeeded
    failure   {"reason", "message", "remedy", "deterministic", "peak_rss_bytes"}
                                                                   the last line of one that did not

Payloads named by a `BlobRef` are first written to the staging folder under their SHA-256 (`stage`), complete and
fsynced, then cited. Every job's `main` calls `run_job` with the class of its specification (`pipeline.jobs.specs`). A
job that needs a secret reads it from an inherited pipe (`KEY_PIPE`).
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

from pipeline.jobs import preemption
from pipeline.jobs.inputs import InputError, Inputs
from pipeline.lean.source.projects import project_folder
from store.files import HeldError, Lock, lock, write_whole

if TYPE_CHECKING:
    from pydantic import BaseModel

    from store.events.base import BlobRef, EventBody

SPEC_SCHEMA = 1
BAD_INPUT = "bad_input"
"""Reason of a job's failure with an input other than its specification's."""
KEY_PIPE = "EVERLEAN_KEY_PIPE"
"""The environment variable with the number of the key's descriptor."""
HUB_PIPE = "EVERLEAN_HUB_PIPE"
"""The same for a key to Hugging Face's hub."""
KEY_PROBLEM = "EVERLEAN_KEY_PROBLEM"
"""The environment variable with the reason why a job's key cannot be used."""
_SEE = "start the daemon again, so that it writes the specification anew; pipeline/jobs/specs.py says what it takes"
SpecCo = TypeVar("SpecCo", covariant=True)
SpecT = TypeVar("SpecT", bound="BaseModel")


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job's one key, if any. `pipeline.endpoint.credentials.job_key` reads it.

    Attributes:
        key: shorter than any pipe's buffer.
        problem: why no key can be used; the job reports it.
        hub: it is for Hugging Face's hub, and no endpoint may see it.
    """

    key: str | None = field(default=None, repr=False)
    problem: str = ""
    hub: bool = False


NO_KEY = JobKey()


class JobError(Exception):
    """A job cannot go on. `reason` is a stable snake_case word; the message names thing, reason and remedy."""

    def __init__(self, reason: str, message: str, *, remedy: str = "", deterministic: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.remedy = remedy
        self.deterministic = deterministic


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of inputs: the log, its view, and the folder of contents (`pipeline.jobs.inputs.InputStore`)."""

    events_db: Path
    database_db: Path
    contents: Path


@dataclass(frozen=True, slots=True)
class JobSpec(Generic[SpecCo]):
    """The input of an attempt; written by the daemon, read by the job.

    Attributes:
        directory: the attempt's own folder (spec, log, lock, staging).
        parameters: the job's task, in the kind's class of `pipeline.jobs.specs`.
        gpus: the UUIDs of its leased GPUs, or their names if the machine is another.
        gpu_locks: their lock files, in the order of locking (`pipeline.jobs.launch`).
        worktree: the commit's files, for kinds with a worktree.
        mirror: the bare repository, for kinds that read it.
        inputs: this job's frozen copies from the log and the view.
        sources: the sources of its inputs; for `pipeline.freeze` alone, never for the job.
    """

    job: str
    kind: str
    attempt: int
    directory: Path
    parameters: SpecCo
    gpus: tuple[str, ...] = ()
    gpu_locks: tuple[Path, ...] = ()
    worktree: Path | None = None
    mirror: Path | None = None
    inputs: Inputs = field(default_factory=lambda: Inputs(Path()))
    sources: Sources | None = None

    @property
    def staging(self) -> Path:
        return self.directory / "staging"

    @property
    def log(self) -> Path:
        """Its standard error."""
        return self.directory / "stderr.log"

    @property
    def lock(self) -> Path:
        """Held (flock) by the job while it lives; contains its process id."""
        return self.directory / "lock"

    @property
    def place(self) -> Path:
        """The worktree.

        Raises:
            JobError: the job has none, and its kind needs one.
        """
        if self.worktree is None:
            raise bad_spec(self.kind, "worktree: there is none")
        return self.worktree

    def project(self, folder: str) -> Path:
        """Return a Lake project's folder in the worktree; "" is the root.

        Raises:
            JobError: the worktree has no such folder, or only behind a link.
        """
        try:
            return project_folder(self.place, folder)
        except OSError as error:
            raise JobError(
                "no_project",
                f"{folder} is no folder of the commit: {error.strerror}",
                remedy="nothing: the next commit's projects are found by itself",
                deterministic=True,
            ) from error

    def input(self, name: str) -> Path:
        """Return the file of an input, verified.

        Raises:
            JobError: the job has no such input, or the file has another content.
        """
        try:
            return self.inputs.path(name)
        except InputError as error:
            raise JobError(BAD_INPUT, str(error), remedy="nothing: it is frozen anew") from error

    def write(self: JobSpec[SpecT]) -> Path:
        """Write the specification into the attempt's folder; return the file.

        Beside the inputs it lists the folders used by path, for a run elsewhere.
        """
        # The import needs pydantic, which the check of a pull request does without.
        from pipeline.jobs.spec import folders_of

        path = self.directory / "spec.json"
        about = {
            "schema": SPEC_SCHEMA,
            "job": self.job,
            "kind": self.kind,
            "attempt": self.attempt,
            "directory": str(self.directory),
            "gpus": self.gpus,
            "gpu_locks": [str(path) for path in self.gpu_locks],
            "worktree": None if self.worktree is None else str(self.worktree),
            "mirror": None if self.mirror is None else str(self.mirror),
            "inputs": self.inputs.as_json(),
            "folders": {name: str(path) for name, path in folders_of(self.parameters).items()},
            "sources": None
            if self.sources is None
            else {name: str(path) for name, path in asdict(self.sources).items()},
        }
        # Straight to text: as dictionaries the sorries of a large branch would be the largest thing in the daemon.
        with path.open("w", encoding="utf-8") as file:
            file.write(json.dumps(about, ensure_ascii=False).removesuffix("}"))
            file.write(', "parameters": ')
            file.write(self.parameters.model_dump_json())
            file.write("}")
        return path

    @staticmethod
    def read(path: Path) -> JobSpec[dict[str, Any]]:
        """Read a specification written by `write`; the parameters stay unread (`of`)."""
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("schema") != SPEC_SCHEMA:
            raise JobError(
                "spec_schema",
                f"{path}: spec schema {data.get('schema')!r}, this version reads {SPEC_SCHEMA}",
                remedy="start the daemon again so that it writes the spec anew",
                deterministic=True,
            )
        worktree, mirror = (Path(data[name]) if data.get(name) else None for name in ("worktree", "mirror"))
        return JobSpec(
            job=data["job"],
            kind=data["kind"],
            attempt=data["attempt"],
            directory=Path(data["directory"]),
            parameters=data["parameters"],
            gpus=tuple(data["gpus"]),
            gpu_locks=tuple(map(Path, data["gpu_locks"])),
            worktree=worktree,
            mirror=mirror,
            inputs=Inputs.of_json(data["inputs"]),
            sources=None
            if data.get("sources") is None
            else Sources(**{name: Path(path) for name, path in data["sources"].items()}),
        )

    def of(self, cls: type[SpecT]) -> JobSpec[SpecT]:
        """Return this specification with its parameters read as `cls`.

        Raises:
            JobError: a field is missing, unknown or invalid.
        """
        from pydantic import ValidationError

        try:
            # By way of JSON text: there a list is a tuple, and a text a path.
            parameters = cls.model_validate_json(json.dumps(self.parameters))
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, one['loc'])) or 'all'}: {one['msg']}" for one in error.errors())
            raise bad_spec(self.kind, "; ".join(wrong)) from error
        return self.having(parameters)

    def having(self, parameters: SpecT) -> JobSpec[SpecT]:
        """Return the same attempt's specification with other parameters."""
        return replace(self, parameters=parameters)  # type: ignore[return-value, arg-type]


def bad_spec(kind: str, what: str) -> JobError:
    """Return the failure for an unusable specification."""
    message = f"the {kind} job's specification cannot be read: {what}"
    return JobError("bad_spec", message, remedy=_SEE, deterministic=True)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A requested event. `natural_key` determines its id, so repeated requests record it once."""

    stream: str
    body: EventBody
    natural_key: Sequence[str]
    occurred_at: datetime | None = None


class Reporter:
    """The job's side of the pipe. One thread only."""

    def __init__(self, spec: JobSpec[Any], out: IO[str]) -> None:
        self.spec = spec
        self._out = out

    def _line(self, kind: str, content: dict[str, Any]) -> None:
        self._out.write(json.dumps({"line": kind, **content}, ensure_ascii=False) + "\n")
        self._out.flush()

    def progress(self, done: int, total: int, note: str = "") -> None:
        self._line("progress", {"done": done, "total": total, "note": note})

    def events(self, batch: Iterable[Recorded]) -> None:
        from store.domain.identity import event_id

        lines = [
            {
                "stream": item.stream,
                "event_id": event_id(item.body.type, *item.natural_key),
                "type": item.body.type,
                "schema_version": item.body.schema_version,
                "data": item.body.model_dump(mode="json"),
                "occurred_at": item.occurred_at.isoformat() if item.occurred_at else None,
            }
            for item in batch
        ]
        if lines:
            self._line("events", {"events": lines})

    def stage(self, payload: bytes) -> BlobRef:
        """Stage a payload for the daemon; return the reference to cite. Safe to repeat."""
        from store.events.base import BlobRef

        digest = hashlib.sha256(payload).hexdigest()
        target = self.spec.staging / digest
        if not target.exists():
            self.spec.staging.mkdir(parents=True, exist_ok=True)
            # A power cut ends the attempt, and the next one stages its own.
            write_whole(target, payload, flush_folder=False)
        return BlobRef(sha256=digest, size_bytes=len(payload))

    def result(self, summary: dict[str, Any]) -> None:
        self._line("result", {"summary": summary, "peak_rss_bytes": peak_rss_bytes()})

    def failure(self, error: JobError) -> None:
        self._line(
            "failure",
            {
                "reason": error.reason,
                "message": str(error),
                "remedy": error.remedy,
                "deterministic": error.deterministic,
                "peak_rss_bytes": peak_rss_bytes(),
            },
        )


def peak_rss_bytes() -> int | None:
    """Return the peak memory of this process or one of its ended children; None if /proc does not give it.

    The job reports it because `wait4` cannot: on Linux its figure begins at the parent's size at the fork, so every
    small job would seem as large as the daemon.
    """
    import resource

    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return None
    own = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), None)
    return None if own is None else 1024 * max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def hold_lock(spec: JobSpec[Any]) -> Lock:
    """Hold the attempt's lock for this process's life, so that a restarted daemon finds it."""
    try:
        held = lock(spec.lock, wait_s=0)
    except HeldError as error:
        raise JobError(
            "already_running", f"{spec.lock} is held: attempt {spec.attempt} of {spec.job} already runs"
        ) from error
    held.leave_note(f"{os.getpid()}")
    return held


def run_job(
    cls: type[SpecT] | Mapping[str, type[SpecT]],
    work: Callable[[JobSpec[SpecT], Reporter], dict[str, Any]],
    *,
    alone: bool = True,
) -> int:
    """Read `--spec`, hold the lock, do the work, print its outcome; return the exit status.

    Args:
        cls: the class of the job's specification, or one for each kind run by the module.
        work: the job's work.
        alone: this process is the attempt's first and holds the lock, rather than a helper of it.

    The status is 0, 1 on failure, and `pipeline.jobs.preemption.STATUS` if the job was preempted and saved its state.
    Anything but a JobError is a defect of ours: it is reported as `crashed`, with its traceback on standard error, and
    can be retried.
    """
    if (
        not gc.isenabled()
    ):  # `pipeline.jobs.launch`: the modules loaded so far stay until the end, out of the collector's sight
        gc.freeze()
        gc.enable()
    parser = argparse.ArgumentParser(description=work.__doc__)
    parser.add_argument("--spec", type=Path, required=True)
    arguments = parser.parse_args()
    # Standard output belongs to the protocol; a stray print of a library must not corrupt it.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    preemption.arm()
    end_with_the_daemon()
    spec = JobSpec.read(arguments.spec)
    reporter = Reporter(spec, out)
    try:
        return reported(reporter, lambda: _worked(spec, cls, work, reporter, alone=alone))
    except preemption.Yielded as end:
        print(f"preempted: {end.saved}", file=sys.stderr)  # noqa: T201 - the job's log
        return preemption.STATUS


def _worked(
    spec: JobSpec[Any],
    cls: type[SpecT] | Mapping[str, type[SpecT]],
    work: Callable[[JobSpec[SpecT], Reporter], dict[str, Any]],
    reporter: Reporter,
    *,
    alone: bool,
) -> dict[str, Any]:
    with hold_lock(spec) if alone else nullcontext():
        known = cls.get(spec.kind) if isinstance(cls, Mapping) else cls
        if known is None:
            raise bad_spec(spec.kind, f"kind: {spec.kind!r} is none of {', '.join(cls)}")  # type: ignore[arg-type]
        return work(spec.of(known), reporter)


def reported(reporter: Reporter, work: Callable[[], dict[str, Any]]) -> int:
    """Do the work and print its outcome; return 0, or 1 on failure."""
    try:
        reporter.result(work())
        return 0
    except JobError as error:
        reporter.failure(error)
    except (Exception, BaseExceptionGroup) as error:
        # A task group wraps its errors; a job has one reason.
        wanted = error.split(JobError)[0] if isinstance(error, BaseExceptionGroup) else None
        if wanted is not None:
            first = first_error(wanted)
            assert isinstance(first, JobError)
            reporter.failure(first)
            return 1
        if not isinstance(error, Exception):
            raise
        import traceback

        traceback.print_exc(file=sys.stderr)
        first = first_error(error)
        reason = "out_of_memory" if isinstance(first, MemoryError) else "crashed"
        reporter.failure(JobError(reason, f"{type(first).__name__}: {first}"))
    return 1


def first_error(error: BaseException) -> BaseException:
    """Return the first error of a task group; any other error as it is.

    A task group's own text gives only the number of errors.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def end_with_the_daemon() -> None:
    """Request a SIGTERM from the kernel at the daemon's death, so that none of its processes outlives it.

    Done by the process itself: the daemon, with its other threads, must not do it between fork and exec.
    """
    daemon = os.environ.get("EVERLEAN_DAEMON_PID", "")
    if not daemon.isdecimal() or not sys.platform.startswith("linux"):
        return
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != int(daemon):  # it died before the request
        raise SystemExit(128 + signal.SIGTERM)
