"""A state folder with one proof that the gate verified: the whole check job ran on a git repository's commit.

The Lean that said so is a stand-in (`tests.support.gate`), so it is no proof; its events have the shape of real ones.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.events.proofs import ProofFound, ProofVerified
from tests.support.daemon.remote import git
from tests.support.gate import Case, GateProject
from tests.support.state_folder import REPOSITORY, StateFolder, make_folder

PROOF = "p" * 16
TEXT = "exact ⟨h.2, h.1⟩"


@dataclass(frozen=True)
class Judged:
    """What the gate said of the proof, once for all tests: the events, the patch, and the repository."""

    found: ProofFound
    verified: ProofVerified
    patch: bytes
    clone: Path


def judge(folder: Path) -> Judged:
    """Commit a project with a sorry, and put a proof of it before the check job."""
    court = GateProject(folder)
    case = Case(TEXT, edit={"repository": REPOSITORY, "proof": PROOF})
    toolchain = court.backend().toolchain
    (court.project / "lean-toolchain").write_text(toolchain + "\n", "utf-8")
    court.found(case)
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "a sorry"]):
        git(court.project, *words)
    sha = git(court.project, "rev-parse", "HEAD")
    case = Case(TEXT, edit={**case.edit, "sha": sha, "toolchain": toolchain})
    found = court.found(case)
    verified = court.verified(case)
    patch = next((court.folder / "job").rglob(verified.patch.sha256)).read_bytes()
    clone = folder / "clone"
    shutil.copytree(court.project / ".git", clone / ".git")
    return Judged(found, verified, patch, clone)


def record(folder: Path, judged: Judged, **changes: Any) -> StateFolder:
    """Record the proof, with these changes to its verdict, in a new state folder."""
    made = make_folder(folder)
    made.add(f"proof:{judged.found.proof}", judged.found)
    made.blob(judged.patch)
    made.add(f"proof:{judged.found.proof}", judged.verified.model_copy(update=changes))
    made.write()
    return made


def as_json(path: Path) -> dict[str, Any]:
    """Read a certificate's file."""
    document = json.loads(path.read_text("utf-8"))
    assert isinstance(document, dict)
    return document
