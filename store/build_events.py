"""Event types of builds: what lake made of a commit, so that Lean can work in it. Stream: `repository:<key>`.

A build that failed for good is a `job_failed` of kind `build` with `deterministic`: its reason stands there, and the
same commit is not built again before somebody asks for it.
"""

from __future__ import annotations

from typing import ClassVar

from store.event_body import EventBody, Sha


class ProjectBuilt(EventBody):
    """A commit was built with its own toolchain and its manifest's dependencies.

    `toolchain` is the text of its `lean-toolchain`, `dependencies` the key of the fetched packages ("" without any).
    `modules_failed` names the modules that did not build; the others did. The compiled files lie in the cache and
    are no part of the log: `size_bytes` is what they take there.
    """

    type: ClassVar[str] = "project_built"
    repository: str
    branch: str
    sha: Sha
    toolchain: str
    dependencies: str
    modules_failed: tuple[str, ...]
    size_bytes: int
    seconds: float
    job: str
