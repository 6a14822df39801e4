"""Raise `lean-toolchain`, or a package of the manifest and the lakefile, in a worktree."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pipeline.jobs.protocol import JobError
from pipeline.lean.build.dependencies import MANIFEST, MOST_BYTES
from pipeline.lean.build.lake import LAKEFILES
from pipeline.lean.source.worktree import read_beginning

TOOLCHAIN = "lean-toolchain"
_REV = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def raised(project: Path, *, toolchain: str, package: str, rev: str) -> dict[str, tuple[bytes, bytes]]:
    """Return the files that a bump changes, each as it is and as it has to become; nothing is written.

    A package is raised to a full commit id: in the manifest, and in the lakefile where the old revision stands there.
    The packages that it requires itself keep the revisions that the manifest has.

    Raises:
        JobError: there is nothing to raise, or it is there already.
    """
    found: dict[str, tuple[bytes, bytes]] = {}
    if toolchain:
        before = _read(project, TOOLCHAIN)
        found[TOOLCHAIN] = before, toolchain.encode() + b"\n"
    if package:
        found |= _package(project, package, rev)
    changed = {path: both for path, both in found.items() if both[0].strip() != both[1].strip()}
    if not changed:
        raise _refused(f"the commit has {toolchain or f'{package} at {rev}'} already")
    return changed


def _package(project: Path, package: str, rev: str) -> dict[str, tuple[bytes, bytes]]:
    if not _REV.fullmatch(rev):
        raise _refused(f"{package}: {rev!r} is no full commit id")
    before = _read(project, MANIFEST)
    try:
        manifest = json.loads(before)
        entries = [one for one in manifest["packages"] if one.get("name") == package and "rev" in one]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _refused(f"{MANIFEST} cannot be read: {error}") from error
    if len(entries) != 1:
        raise _refused(f"{MANIFEST} has no git package {package}, so there is nothing to raise")
    (entry,) = entries
    old = {str(entry["rev"]), str(entry.get("inputRev") or entry["rev"])}
    entry["rev"], entry["inputRev"] = rev, rev
    found = {MANIFEST: (before, json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")}
    for name in LAKEFILES:
        if (project / name).is_file():
            text = _read(project, name)
            found[name] = text, _required(text, package.encode(), {one.encode() for one in old}, rev.encode())
    return found


def _required(text: bytes, package: bytes, old: set[bytes], rev: bytes) -> bytes:
    """Return a lakefile in which the one `require` of the package names the new revision in place of the old one."""
    starts = [found.start() for found in re.finditer(rb"^\s*(?:require\b|\[\[)", text, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        block = text[start:end]
        if re.search(rb"[\s\"/\xc2\xab]" + re.escape(package) + rb"[\s\"\xc2]", block):
            for one in old:
                block = block.replace(b'"' + one + b'"', b'"' + rev + b'"')
            return text[:start] + block + text[end:]
    return text


def _read(project: Path, name: str) -> bytes:
    try:
        return read_beginning(project, name, most_bytes=MOST_BYTES)
    except OSError as error:
        raise _refused(f"{name} cannot be read: {error}") from error


def _refused(why: str) -> JobError:
    return JobError(
        "cannot_raise", why, remedy="name another version, or a package of the manifest", deterministic=True
    )
