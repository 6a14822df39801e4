"""Daemons and jobs as processes of their own, for tests, and nothing imported anew: up to a second of each.

process = warm.start(PROGRAM, str(config), output=folder / "daemon.log")
process.send_signal(signal.SIGTERM)
assert process.wait(timeout=20) == 0

process = warm.job("pipeline.trace", spec, output=folder / "stdout", errors=folder / "stderr")

One interpreter has imported the daemon, the command line and the jobs; each program is a fork of it, and so is each job
of such a daemon (`tests.support.daemon.forks`). The fork is adopted, so that it is our child like any other: `wait`
returns its status, and no zombie is left. It ends as an interpreter ends, threads and all. What is installed as
`everlean` (as in the demo) is not warm.
"""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pipeline.jobs.child
from tests.support.daemon import forks

# In a session of its own, as the daemon starts it.
_JOB = """
import os, sys
import pipeline.jobs.child
from tests.support.daemon import forks
os.setsid()
forks.become_module(sys.argv[1], sys.argv[2:])
"""


@functools.cache
def _interpreter() -> forks.Server:
    process = subprocess.Popen(
        [sys.executable, "-c", forks.PROGRAM, forks.ROOM],
        env={**os.environ, "ROOM": forks.ROOM},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def end() -> None:
        process.kill()
        process.communicate()

    atexit.register(end)
    assert process.stdin is not None
    assert process.stdout is not None
    return forks.Server(process.stdin, process.stdout)


def start(
    program: str,
    *arguments: str,
    output: Path,
    environment: Mapping[str, str] | None = None,
    jobs: bool = False,
) -> subprocess.Popen[bytes]:
    """Run Python text as `python -c` would, with this process's environment and folder.

    Args:
        program: what runs. `daemon.process.run`, every verb and all that they import is there already.
        arguments: `sys.argv[1:]`.
        output: what it says is appended here.
        environment: in addition to ours.
        jobs: whether the jobs that it starts are forks, too.

    Raises:
        RuntimeError: the warm interpreter is gone; its last words are in the test's output.
    """
    return _interpreter().program(
        program,
        arguments,
        output=output,
        errors=output,
        environment={**os.environ, **(environment or {})},
        folder=Path.cwd(),
        jobs=jobs,
    )


def job(module: str, spec: Path, *, output: Path, errors: Path) -> subprocess.Popen[bytes]:
    """Run a job's module on a specification; the files may be named pipes.

    Raises:
        RuntimeError: as `start`.
    """
    return _interpreter().program(
        _JOB,
        (module, "--spec", str(spec)),
        output=output,
        errors=errors,
        environment=os.environ,
        folder=Path.cwd(),
    )


@contextmanager
def forked_jobs() -> Iterator[None]:
    """Have the jobs that this process starts be forks, too; not for a fork of it, which can adopt none."""
    child: Any = pipeline.jobs.child
    before = child.subprocess
    child.subprocess = jobs()
    try:
        yield
    finally:
        child.subprocess = before


def launch(
    module: str, spec: Path, *, folder: Path, errors: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a job's module as the daemon does, in a folder; its standard output is a pipe.

    Args:
        errors: what it says otherwise.
        environment: the whole of it; ours if not given.

    Raises:
        OSError: none came.
    """
    words = [sys.executable, *forks.LAUNCH, module, "--spec", str(spec)]
    with errors.open("ab") as said:
        return _interpreter().job(
            words,
            stderr=said.fileno(),
            folder=folder,
            environment=os.environ if environment is None else environment,
        )


def jobs() -> SimpleNamespace:
    """Return `subprocess` for `pipeline.jobs.child`, in which jobs are forks that /proc shows as what they are."""
    return forks.with_forked_jobs(_interpreter())
