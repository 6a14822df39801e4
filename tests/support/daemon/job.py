"""A job that behaves as its spec says, well or badly: `python -m tests.support.daemon.job --spec spec.json`.

For tests of the runner: `behave` of its specification is one of the words below.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.jobs import preemption
from pipeline.jobs.child import LONGEST_LINE_BYTES
from pipeline.jobs.protocol import JobError, JobSpec, Recorded, Reporter, run_job
from pipeline.jobs.specs import ScanSpec
from store.domain.records import ScannedFile
from store.events.projects import Project
from store.events.scans import CommitScanned, FileScanned

_NO_LINES = {
    "garbage": "this is no JSON\n",
    "endless": "x" * 5000,
    "far_too_long": "x" * (LONGEST_LINE_BYTES + 2**20),
}
_FAILURES = {
    "fail": JobError("broken_input", "the input is broken", remedy="mend it", deterministic=True),
    "fail_for_now": JobError("no_luck", "no luck this time", remedy="wait"),
}


class Behaving(ScanSpec, extra="ignore"):
    """A job that behaves as told. Fields of another kind's specification may be there too.

    What the real plan makes due says nothing of it: that fails for now, and may be tried again.
    """

    behave: str = "fail_for_now"


def work(spec: JobSpec[Behaving], reporter: Reporter) -> dict[str, Any]:
    """Do what `behave` says."""
    behave = spec.parameters.behave
    if behave.startswith("stay"):
        return _stay(spec, reporter, behave)
    reporter.progress(1, 2, "begun")
    print("a stray print of a library")  # noqa: T201 - it has to end on standard error
    if behave in ("succeed", "crash_after_events", "hang_after_events", "forge"):
        reporter.events(_batch(spec, reporter, repository="local/x/other" if behave == "forge" else None))
    if behave in _ENDINGS:
        _ENDINGS[behave](reporter)
    match behave:
        case "fail" | "fail_for_now":
            raise _FAILURES[behave]
        case "defect":
            raise RuntimeError("boom")
        case "crash_while_staging" | "hang_while_staging":
            _stage_half(reporter, hang=behave.startswith("hang"))
        case "crash" | "crash_after_events":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "forbidden":
            reporter._line(
                "events",
                {
                    "events": [
                        {
                            "stream": f"repository:{spec.parameters.repository}",
                            "event_id": "0190c2a0-0000-7000-8000-000000000000",
                            "type": "daemon_stopped",
                            "schema_version": 1,
                            "data": {"reason": "because I say so", "pid": 1},
                        }
                    ]
                },
            )
        case "hang" | "hang_after_events":
            _leave_children()
            time.sleep(600)
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _leave_children()
            time.sleep(600)
        case "environment":
            about = {"environment": dict(os.environ), "cwd": os.getcwd(), "stdin": sys.stdin.read()}  # noqa: PTH109
            said = (spec.directory / "spec.json").read_text("utf-8")
            return {**about, "spec": said, "files": _files(spec.worktree)}
        case "worktree":
            return {"files": _files(spec.place)}
        case "memory":
            return {"size": len(bytearray(2**33))}
    return {"behaved": behave}


def _files(root: Path | None) -> list[str]:
    if root is None:
        return []
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def _stage_half(reporter: Reporter, *, hang: bool) -> None:
    """Hang, or be killed, with an artifact written and not yet under its name."""

    def never_synced(fd: Any) -> None:
        print("staging", file=sys.stderr, flush=True)  # noqa: T201
        if hang:
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)

    os.fsync = never_synced
    reporter.stage(b"weights" * 10_000)


def _leave_children() -> None:
    # One in the job's own group, one that left it: both must go with the job. Their ids go to standard error.
    program = [sys.executable, "-c", "import time; time.sleep(600)"]
    inside = subprocess.Popen(program)
    outside = subprocess.Popen(program, start_new_session=True)
    print(f"children {inside.pid} {outside.pid}", file=sys.stderr, flush=True)  # noqa: T201


def long_batch(spec: JobSpec[Behaving], reporter: Reporter) -> list[Recorded]:
    """Return what `succeed` records, with a payload that crosses to another machine in several parts."""
    return _batch(spec, reporter, repository=None, padding=10 * 2**20)


def _stay(spec: JobSpec[Behaving], reporter: Reporter, behave: str) -> dict[str, Any]:
    """Record as `succeed` does, with a payload of several parts, and stay somewhere, deaf to the soft stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _leave_children()
    if behave == "stay_before_the_first_line":
        time.sleep(600)
    reporter.progress(1, 2, "begun")
    reporter.events(long_batch(spec, reporter))
    if behave == "stay":
        time.sleep(600)
    if behave == "stay_after_the_last_line":
        reporter.result({"behaved": "stay"})
        time.sleep(600)
    return {"behaved": "stay"}


def _share(_reporter: Reporter) -> None:
    """Hold memory in several processes, none of which has much."""
    program = f"import time; held = bytearray({100 * 2**20}); time.sleep(600)"
    for _ in range(4):
        subprocess.Popen([sys.executable, "-c", program])
    time.sleep(600)


def _die(_reporter: Reporter) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _yield(reporter: Reporter) -> None:
    """Work until preempted, then take a moment to save, with a child process."""
    helper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with preemption.region():
        reporter.progress(2, 2, "in the region")
        while not preemption.wanted():
            time.sleep(0.01)
        try:
            helper.wait(timeout=0.3)  # a signal to the whole group would have ended it by now
            alive = False
        except subprocess.TimeoutExpired:
            alive = True
        helper.communicate(b"\n")
        raise preemption.Yielded("with its helper" if alive else "alone")


def _batch(
    spec: JobSpec[Behaving], reporter: Reporter, *, repository: str | None, padding: int = 0
) -> list[Recorded]:
    repository = repository or spec.parameters.repository
    branch, sha = spec.parameters.branch, spec.parameters.sha
    scanned = ScannedFile(path="A.lean", error=None, imports=(), declarations=(), sorries=())
    blob = reporter.stage(json.dumps(scanned.as_json()).encode() + b" " * padding)
    file = FileScanned(
        repository=repository,
        branch=branch,
        sha=sha,
        path="A.lean",
        blob="a" * 40,
        error=None,
        n_declarations=0,
        n_sorries=0,
        exercise_words=0,
        declarations_taken=None,
        sorries_taken=None,
        marked=(),
        scan=blob,
    )
    commit = CommitScanned(
        repository=repository,
        branch=branch,
        sha=sha,
        base=None,
        include=spec.parameters.include,
        exclude=spec.parameters.exclude,
        projects=(Project("", "", ""),),
        files_scanned=1,
        files_removed=0,
        files_failed=0,
        seconds=0.0,
        challenges=(),
    )
    stream = f"repository:{repository}"
    return [
        Recorded(stream, file, (repository, branch, sha, "A.lean")),
        Recorded(stream, commit, (repository, branch, sha)),
    ]


def _say_no_line(text: str, reporter: Reporter) -> None:
    reporter._out.write(text)
    reporter._out.flush()
    time.sleep(60)


def _exit(_reporter: Reporter) -> None:
    os._exit(3)


def _count(reporter: Reporter) -> None:
    for number in range(2000):
        reporter.progress(number, 2000, "n" * (number * 7 % 600))


def _unfinished(reporter: Reporter) -> None:
    """End well, with a result that is no line."""
    reporter._out.write('{"line": "result", "summary": {}}')
    reporter._out.flush()
    os._exit(0)


def _close(reporter: Reporter) -> None:
    """Go on without an output."""
    reporter._out.close()
    time.sleep(600)


_ENDINGS: dict[str, Callable[[Reporter], None]] = {
    **{behave: partial(_say_no_line, text) for behave, text in _NO_LINES.items()},
    "close": _close,
    "count": _count,
    "unfinished": _unfinished,
    "exit": _exit,
    "share_memory": _share,
    "killed": _die,
    "yield": _yield,
}


if __name__ == "__main__":
    sys.exit(run_job(Behaving, work))
