"""Preconditions on a project and its toolchain, without which Lean's answer about a proof does not count.

The judging Lean is the project's, and that of the search. It answers about the build of the patched file, under Lean's
own library and no other. And the kernel saw the proof: if the project can add constants behind the kernel's back, only
a replay shows it.

Each function returns a sentence on the violation, or None. `verdict.py` and `lake_checks.py` decide the consequences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pipeline.lean.backend import LeanBackend
from pipeline.lean.build.dependencies import key_of, read_dependencies
from pipeline.lean.client.process import built_folders
from pipeline.lean.sandbox.command import linked_packages
from pipeline.lean.source.forbidden import UNSEEN_NAMES
from pipeline.lean.source.imports import CORE, closure
from pipeline.lean.source.manifest import MANIFEST, ManifestError, read_manifest
from pipeline.lean.source.projects import LAKEFILES, read_toolchain, worktree_of
from pipeline.lean.source.worktree import read_inside
from pipeline.lean.toolchain.versions import VersionError, parse_version

_UNSEEN_BY_THE_KERNEL = re.compile("|".join(sorted(UNSEEN_NAMES)).encode())


def other_toolchain(backend: LeanBackend, *, project: Path, folder: str = "", found_with: str) -> str | None:
    """Return why this Lean is not the project's, or not that of the search (`found_with`; "": not recorded).

    `folder` is the project's place in its repository.
    """
    ours = backend.toolchain.strip()
    if not ours:
        return (
            "the Lean version of this REPL is not known, so a verdict could not say whose it is;"
            " name its version in a lean-toolchain file beside it"
        )
    try:
        _, toolchain = read_toolchain(worktree_of(project, folder), folder)
    except FileNotFoundError:
        toolchain = b""
    except OSError as error:
        return f"the project's lean-toolchain was not read ({error.strerror}), so whose Lean it needs is not known"
    named = toolchain.decode("utf-8", errors="replace").strip()
    for whose, theirs in (
        ("the project's lean-toolchain names", named),
        ("the proof was found with", found_with),
    ):
        if theirs.strip() and not _same(theirs, ours):
            return f"{whose} {theirs.strip()}, and the Lean here is {ours}"
    return None


def other_lean(said: str, *, toolchain: str) -> str | None:
    """Return why the answering Lean, by the version it reports, is not the toolchain's."""
    try:
        release = parse_version(toolchain).release
    except VersionError as error:
        return str(error)
    # A release reports 4.28.0 or 4.28.0-rc1, a nightly 4.28.0-nightly-2026-01-01.
    if said in (release.removeprefix("v"), release) or said.endswith(f"-{release}"):
        return None
    return f"Lean {said} answered, and not {toolchain}"


def shadowed_library(project: Path) -> str | None:
    """Return a complaint if Lean would take a folder for its own library: the project would then answer for Lean."""
    for folder in built_folders(project):
        for root in sorted(CORE):
            if (folder / root).is_dir() or (folder / f"{root}.olean").exists():
                return f"{folder} has a module {root} of its own, which hides Lean's"
    return None


def trusted_packages(project: Path) -> tuple[Path, ...]:
    """Return the packages' folders of compiled modules without need of a replay.

    Call this before any of the project's code has run, which could lead `.lake/packages` elsewhere. The packages are
    those of a manifest naming only the work of Lean's own organisations, as the daemon fetched and built them for this
    manifest in a folder no project can write to. One package of somebody else's could have changed the build of the
    others, so with it none is trusted.
    """
    folder = linked_packages(project)
    if folder is None or (folder := folder.resolve()).is_relative_to(project.resolve()):
        return ()
    try:
        data = read_inside(project, MANIFEST)
        read_manifest(data)
    except (OSError, ManifestError):
        return ()
    cache, key = folder.parent.parent.parent, folder.parent.name
    result = read_dependencies(cache, key)
    if result is None or not result.trusted or key != key_of(result.toolchain, data):
        return ()
    return tuple(one for each in built_folders(project) if (one := each.resolve()).is_relative_to(folder))


def unseen_by_the_kernel(project: Path, *, path: str, text: bytes, imports: Iterable[str]) -> str | None:
    """Return where the project's text can bypass the kernel: in this file, its imports or the lakefile."""
    texts = [(path, text)]
    for name in LAKEFILES:
        try:
            texts.append((name, read_inside(project, name)))
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{name} was not read ({error.strerror}), so only a replay says that the kernel took the proof"
    imported = closure(project, imports)
    if not imported.complete:
        return "not all that it imports was read, so only a kernel replay says that the kernel took the proof"
    texts += [(one.module, one.data) for one in imported.files]
    for where, data in texts:
        match = _UNSEEN_BY_THE_KERNEL.search(data)
        if match is not None:
            return f"{where} has {match[0].decode()}, so only a kernel replay says that the kernel took the proof"
    return None


def _same(one: str, other: str) -> bool:
    try:
        return parse_version(one) == parse_version(other)
    except VersionError:
        return one.strip() == other.strip()
