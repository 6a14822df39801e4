"""Hold the Lean that a job works with until the job ends: no one removes it meanwhile, and it is Lean.

Every job that starts Lean or lake does so inside `lean_held`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pipeline.jobs.protocol import JobError
from pipeline.lean.backend import LeanBackend
from pipeline.lean.sandbox.command import SandboxError, bubblewrap_problem
from pipeline.lean.toolchain.toolchains import ToolchainError


@contextmanager
def lean_held(backend: LeanBackend) -> Iterator[None]:
    """Hold the build of the REPL for the length of the block (`LeanBackend.in_use`).

    Raises:
        JobError: it was removed or damaged since the job was planned, is being replaced, or is a stand-in for tests;
            or it needs a sandbox and none can be made here. That is the machine's state and not the commit's, so it
            is said before a program's failure in a broken sandbox is taken for its own.
    """
    if backend.is_lean and backend.sandbox == "bubblewrap":
        problem = bubblewrap_problem()
        if problem is not None:
            raise JobError(
                "sandbox_missing", f"no sandbox for Lean: {problem}", remedy="see `everlean doctor`"
            )
    with ExitStack() as held:
        try:
            held.enter_context(backend.in_use())
        except ToolchainError as error:
            raise JobError("toolchain_missing", str(error), remedy="see `everlean doctor`") from error
        except SandboxError as error:
            raise JobError("sandbox_missing", str(error), remedy="see `everlean doctor`") from error
        yield


def hold_that_lean_is_there(backend: LeanBackend) -> None:
    """Raises:
    JobError: nothing here runs Lean.
    """
    if backend.kind == "none":
        raise JobError("no_lean", f"no Lean: {backend.detail}", remedy="see `everlean doctor`")
