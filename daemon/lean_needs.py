"""Which Lean version each watched branch needs, and what would run it: for `toolchain list`, `doctor` and `status`.

Reads the view (`branches.toolchain`, which a scan fills) and the answer of `Leans`; starts nothing.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from pipeline.lean.backend import LeanBackend, Leans
from pipeline.lean.toolchain.toolchains import VersionError, parse_version
from store.view.queries import basic as queries


@dataclass(frozen=True, slots=True)
class Need:
    """One Lean version that watched branches need. `toolchain` "" stands for those without a `lean-toolchain`.

    `branches` are (repository, branch); `version` is the short name, "" where the text names none.
    """

    toolchain: str
    version: str
    branches: tuple[tuple[str, str], ...]
    backend: LeanBackend

    @property
    def met(self) -> bool:
        return self.backend.kind != "none"


def needs(database: sqlite3.Connection, leans: Leans) -> tuple[Need, ...]:
    """Return every version that the scanned tips of watched repositories need, in the order of their names.

    Branches that were not scanned yet are not among them: nothing is known of those.
    """
    watched = {row.repository for row in queries.repositories(database, watched_only=True)}
    found: dict[str, list[tuple[str, str]]] = {}
    for branch in queries.branches(database):
        if branch.repository in watched and branch.state == "live" and branch.toolchain is not None:
            found.setdefault(_full(branch.toolchain), []).append((branch.repository, branch.branch))
    return tuple(
        Need(toolchain, _short(toolchain), tuple(sorted(branches)), leans.for_toolchain(toolchain))
        for toolchain, branches in sorted(found.items())
    )


def lacking(database: sqlite3.Connection, leans: Leans) -> tuple[Need, ...]:
    """Return the versions that are needed and that nothing here runs.

    Empty where the settings have one thing run every version, or none at all: that is the daemon's own state.
    """
    if leans.fixed is not None:
        return ()
    return tuple(need for need in needs(database, leans) if not need.met)


def _full(text: str) -> str:
    try:
        return parse_version(text).toolchain
    except VersionError:
        return text  # shown as it is, with the reason


def _short(toolchain: str) -> str:
    try:
        return parse_version(toolchain).release
    except VersionError:
        return ""
