"""A job's checks of its Lean before the start: it exists, and it is Lean."""

from __future__ import annotations

from pipeline.jobs.protocol import JobError
from pipeline.lean.backend import LeanBackend
from pipeline.lean.sandbox.command import SandboxError, bubblewrap_problem


def hold_that_lean_is_there(backend: LeanBackend) -> None:
    """Raises:
    JobError: this machine has no Lean.
    """
    if backend.kind == "none":
        raise JobError("no_lean", f"no Lean: {backend.detail}", remedy="see `everlean doctor`")


def hold_that_it_is_lean(backend: LeanBackend) -> None:
    """Refuse a stand-in, before any job starts Lean or lake.

    Raises:
        JobError: it is a stand-in for tests; or it needs a sandbox and none can be made here. That is the machine's
            fault, not the commit's, so it is reported before a program's failure in a broken sandbox can be blamed on
            the program.
    """
    if backend.is_lean and backend.sandbox == "bubblewrap":
        problem = bubblewrap_problem()
        if problem is not None:
            raise JobError(
                "sandbox_missing", f"no sandbox for Lean: {problem}", remedy="see `everlean doctor`"
            )
    try:
        refused = backend.stand_in_problem()
    except SandboxError as error:
        raise JobError("sandbox_missing", str(error), remedy="see `everlean doctor`") from error
    if refused:
        raise JobError("toolchain_missing", refused, remedy="see `everlean doctor`")
