"""The trace job's parameters, read and checked; see `pipeline/trace/__main__.py` for what they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.globs import path_filter
from pipeline.jobs.protocol import JobError
from pipeline.lean.backend import LeanBackend
from pipeline.lean.pool.pool import CALLS, MEMORY_BYTES, PoolLimits
from store.domain.records import Seen, TraceGap
from store.recording import TraceHead

TRACER_VERSION = "2"
"""Raise it when a trace would say something else of the same file: all is then traced again."""
_VERSION = re.compile(r"(?:.*:)?(v?\d[\w.+-]*|nightly-[\w.-]+|[\w.-]+)$")


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What the line has of a path: under which key it was traced, and what its trace holds."""

    key: str
    theorems: int
    premises: int
    tactics: int
    failed: bool
    seen: Seen | None
    gaps: tuple[TraceGap, ...]

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> KnownFile:
        return cls(
            key=str(raw["key"]),
            theorems=int(raw["theorems"]),
            premises=int(raw["premises"]),
            tactics=int(raw["tactics"]),
            failed=bool(raw["failed"]),
            seen=None if raw["seen"] is None else Seen(*raw["seen"]),
            gaps=tuple(TraceGap.from_json(item) for item in raw["gaps"]),
        )


@dataclass(frozen=True, slots=True)
class Stated:
    """What was last said of a sorry, and of which text."""

    goal: str
    statement_hash: str
    context_hash: str
    simulated: bool


@dataclass(frozen=True, slots=True)
class OpenSorry:
    """A sorry of the branch, as the database knows it."""

    sorry: str
    path: str
    blob: str
    byte_start: int
    statement_hash: str
    context_hash: str
    stated: Stated | None

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> OpenSorry:
        stated = raw["stated"]
        return cls(
            sorry=str(raw["sorry"]),
            path=str(raw["path"]),
            blob=str(raw["blob"]),
            byte_start=int(raw["byte_start"]),
            statement_hash=str(raw["statement_hash"]),
            context_hash=str(raw["context_hash"]),
            stated=None if stated is None else Stated(**stated),
        )


@dataclass(frozen=True, slots=True)
class Order:
    """The job's parameters."""

    repository: str
    branch: str
    sha: str
    worktree: Path
    lean: LeanBackend
    url: str
    name: str
    meant: Callable[[str], bool]
    timeout_s: float
    limits: PoolLimits
    line: str
    after: int
    known: Mapping[str, KnownFile]
    sorries: tuple[OpenSorry, ...]

    @classmethod
    def read(cls, parameters: Mapping[str, Any]) -> Order:
        """Read the parameters.

        Raises:
            JobError: one is missing or malformed, or nothing here runs Lean.
        """
        try:
            order = cls(
                repository=parameters["repository"],
                branch=parameters["branch"],
                sha=parameters["sha"],
                worktree=Path(parameters["worktree"]),
                lean=LeanBackend.from_json(parameters["lean"]),
                url=parameters["url"],
                name=parameters["name"],
                meant=path_filter(parameters["include"], parameters["exclude"]),
                timeout_s=float(parameters["per_file_timeout_s"]),
                limits=PoolLimits(
                    processes=max(1, int(parameters["parallel"])),
                    memory_bytes=int(parameters.get("repl_memory_bytes", MEMORY_BYTES)),
                    calls=int(parameters.get("repl_calls", CALLS)),
                ),
                line=parameters["line"],
                after=int(parameters["after"]),
                known={path: KnownFile.from_json(item) for path, item in parameters["known"].items()},
                sorries=tuple(OpenSorry.from_json(item) for item in parameters["sorries"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise JobError(
                "bad_spec",
                f"the trace job's parameters cannot be read: {type(error).__name__}: {error}",
                remedy="see pipeline/trace/__main__.py for what they are",
                deterministic=True,
            ) from error
        if order.lean.kind == "none":
            raise JobError("no_lean", f"no Lean: {order.lean.detail}", remedy="see `unsorry doctor`")
        if not order.worktree.is_dir():
            raise JobError(
                "no_worktree", f"{order.worktree}: no such folder", remedy="the worktree has to be made anew"
            )
        return order

    @property
    def tracer(self) -> str:
        """What makes the trace; the simulator's is never taken for Lean's."""
        return "unsorry-simulator" if self.lean.simulated else "unsorry"

    def head(self, toolchain: str, *, metadata: Mapping[str, Any], seconds: float) -> TraceHead:
        """Return what the trace is of; `toolchain` is the text of the commit's `lean-toolchain`."""
        return TraceHead(
            repository=self.repository,
            sha=self.sha,
            url=self.url,
            name=self.name,
            lean_version=lean_version(toolchain or self.lean.toolchain),
            tracer=self.tracer,
            tracer_version=TRACER_VERSION,
            source="lean",
            line=self.line,
            metadata=metadata,
            simulated=self.lean.simulated,
            seconds=seconds,
        )


def lean_version(toolchain: str) -> str:
    """Return "v4.21.0" of "leanprover/lean4:v4.21.0"; "unknown" where it names none."""
    match = _VERSION.match(toolchain.strip())
    return "unknown" if match is None else match[1]
