"""Write solved workspaces of lean-eval for leanprover/lean-eval-submissions.

A workspace is a folder with a `lakefile.toml`, whose `name` is the problem's id, and a `Submission.lean`
beside it. Of a submission only that file and those below `Submission/` are read. A workspace is solved if
each of its sorries has a verified proof: these files go out with the proofs in place, the rest of the
workspace does not. No Lean has judged the proofs of one workspace together; lean-eval's comparator does.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pipeline.jobs.mirror import Mirror, TreeFile
from pipeline.lean.source.imports import read_lakefile_toml
from pipeline.lean.source.scanner import scan_source
from pipeline.lean.source.splice import Replacement, splice
from store.documents.proofs import Proof, describe_proofs
from store.domain.identity import slug
from store.view import queries
from store.view.rows import BranchRow, ProofRow

LAKEFILE, SUBMISSION = "lakefile.toml", "Submission.lean"
LARGEST_FILE_BYTES = 4 << 20
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


class WorkspaceError(Exception):
    """A workspace, or a submission, cannot go out, for the reason in the message."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A solved workspace: its problem, its folder in the repository, its files by their path in it, its
    proofs."""

    problem: str
    folder: str
    files: Mapping[str, bytes]
    proofs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SolvedWorkspace:
    problem: str
    """its id"""
    folder: str
    """in the repository"""
    proofs: list[str]
    """their ids"""


@dataclass(frozen=True, slots=True)
class Submission:
    path: Path | None
    """null if none is solved: nothing is written then"""
    commit: str | None
    workspaces: list[SolvedWorkspace]
    left_out: dict[str, str]
    """the reasons why workspaces with a proof are left out, by folder"""


def submit(
    view: sqlite3.Connection, mirrors: Path, out: Path, *, repository: str, branch: str | None
) -> Submission:
    """Write the solved workspaces of a repository into a new folder.

    Args:
        mirrors: the folder of the mirrors.
        repository: its key.
        branch: None: the default one.

    Raises:
        WorkspaceError: the folder is there, or the repository has no such branch.
        JobError: the mirror does not have the commit.
        OSError: the folder cannot be written.
    """
    if out.exists():
        raise WorkspaceError(f"{out} is there already; name a new folder")
    about = queries.repository(view, repository)
    name = branch or (about.default_branch if about else None)
    row = next((row for row in queries.branches(view, repository) if row.branch == name), None)
    if row is None:
        raise WorkspaceError(
            f"{repository} has no branch {name or 'that is the default one'}; name one with --branch"
        )
    with Mirror(mirrors / f"{slug(repository)}.git") as mirror:
        result, left_out = solved(view, mirror, row)
    if result:
        write(result, out)
    workspaces = [SolvedWorkspace(one.problem, one.folder, list(one.proofs)) for one in result]
    return Submission(out if result else None, row.scanned, workspaces, left_out)


def solved(
    view: sqlite3.Connection, mirror: Mirror, branch: BranchRow
) -> tuple[list[Workspace], dict[str, str]]:
    """Return the solved workspaces at a branch's scanned commit, and by folder why others are none.

    Raises:
        JobError: the mirror does not have the commit.
    """
    if branch.scanned is None:
        return [], {}
    tree = {file.path: file for file in mirror.files(branch.scanned) if file.readable}
    proofs: defaultdict[str, list[ProofRow]] = defaultdict(list)
    for row in _verified(view, branch):
        for folder in map(str, PurePosixPath(row.path).parents):
            prefix = "" if folder == "." else f"{folder}/"
            own = row.path == f"{prefix}{SUBMISSION}" or row.path.startswith(f"{prefix}Submission/")
            if own and {f"{prefix}{LAKEFILE}", f"{prefix}{SUBMISSION}"} <= tree.keys():
                proofs[folder].append(row)
                break
    by_problem: dict[str, Workspace] = {}
    left_out: dict[str, str] = {}
    for folder, rows in sorted(proofs.items()):
        try:
            result = _workspace(mirror, tree, folder, rows)
            if (other := by_problem.get(result.problem)) is not None:
                raise WorkspaceError(f"{other.folder} has the same problem")
        except WorkspaceError as error:
            left_out[folder] = str(error)
        else:
            by_problem[result.problem] = result
    return [*by_problem.values()], left_out


def write(workspaces: Iterable[Workspace], out: Path) -> None:
    """Write workspaces into a new folder, each below the id of its problem.

    Raises:
        OSError: the folder is there already, or cannot be written.
    """
    out.mkdir(parents=True)
    for one in workspaces:
        for name, data in one.files.items():
            place = out / one.problem / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)


def _verified(view: sqlite3.Connection, branch: BranchRow) -> list[Proof]:
    """Return the proofs of a branch's verified sorries, without those in doubt."""
    rows = queries.sorries(view, repository=branch.repository, branch=branch.branch, state="verified")
    ids = [row.verified_proof for row in rows if row.verified_proof is not None]
    proofs = describe_proofs(view, queries.proofs(view, ids=ids))
    return [proof for proof in proofs if proof.verdict == "accepted" and not proof.doubts]


def _workspace(
    mirror: Mirror, tree: Mapping[str, TreeFile], folder: str, rows: Iterable[ProofRow]
) -> Workspace:
    prefix = "" if folder == "." else f"{folder}/"
    lakefile = _read(mirror, tree[f"{prefix}{LAKEFILE}"])
    try:
        problem = read_lakefile_toml(lakefile.decode()).get("name")
    except ValueError as error:
        raise WorkspaceError(f"its {LAKEFILE} cannot be read: {error}") from error
    if not isinstance(problem, str) or not _ID.fullmatch(problem):
        raise WorkspaceError(f"its {LAKEFILE} names no problem")
    by_path: defaultdict[str, list[ProofRow]] = defaultdict(list)
    for row in rows:
        by_path[row.path].append(row)
    files = {LAKEFILE: lakefile}
    for path, file in sorted(tree.items()):
        name = path.removeprefix(prefix)
        if path.startswith(prefix) and (name == SUBMISSION or name.startswith("Submission/")):
            data = _filled(_read(mirror, file), file, by_path.get(path, []))
            scanned = scan_source(data, path=path)
            if scanned.error is not None:
                raise WorkspaceError(f"{name} cannot be scanned: {scanned.error}")
            if scanned.sorries:
                raise WorkspaceError(f"{name} still has {len(scanned.sorries)} without a verified proof")
            files[name] = data
    return Workspace(problem, folder, files, tuple(sorted(row.proof for row in rows)))


def _filled(data: bytes, file: TreeFile, rows: list[ProofRow]) -> bytes:
    """Return a file's text with its proofs in their places."""
    before = len(data)
    for row in sorted(rows, key=lambda row: -row.checked_start):
        end = row.checked_start + row.byte_end - row.byte_start
        if row.checked_blob != file.blob or end > before:
            raise WorkspaceError(
                f"proof {row.proof} is of another version of {file.path}, or overlaps another"
            )
        data, before = splice(data, Replacement(row.checked_start, end, row.replacement)), row.checked_start
    return data


def _read(mirror: Mirror, file: TreeFile) -> bytes:
    data = mirror.read(file.blob, most_bytes=LARGEST_FILE_BYTES)
    if isinstance(data, int):
        raise WorkspaceError(f"{file.path} has {data:,} bytes, more than {LARGEST_FILE_BYTES >> 20} MiB")
    return data
