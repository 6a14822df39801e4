"""The git repositories of the demo, and what Ada commits to them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from examples import demo_library

ROOT = Path(__file__).resolve().parents[1]
PROJECT = ROOT / "examples" / "demo-project"


class DemoError(Exception):
    """The demo cannot go on; the message says why and what to do."""


def git(repository: Path, *arguments: str, date: str = "2026-01-01T09:00:00Z") -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(repository),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
        "GIT_AUTHOR_DATE": date,
        "GIT_COMMITTER_DATE": date,
    }
    done = subprocess.run(
        ["git", *arguments], cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DemoError(f"git {' '.join(arguments)} failed in {repository}: {done.stderr.strip()}")
    return done.stdout.strip()


def lean_files(folder: Path) -> Iterator[Path]:
    return (
        path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "commit-message.txt"
    )


def new_repository(repository: Path) -> None:
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=main")


def library_commit(repository: Path, revision: int, message: str) -> None:
    """Commit a revision of the generated library."""
    for name, text in demo_library.files(revision).items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", message, date=f"2026-02-0{revision}T09:00:00Z")


def base_commit(repository: Path) -> None:
    new_repository(repository)
    for path in lean_files(PROJECT):
        inside = path.relative_to(PROJECT)
        if inside.parts[0] != "revisions":
            target = repository / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    git(repository, "add", "--all")
    # The golden run (tests/golden) has the ids of these commits: another message or file is another id.
    git(repository, "commit", "--quiet", "-m", "A small project with sorries in it")


def revise(repository: Path, revision: Path) -> None:
    """Commit one revision: overlay its files, drop the ones that its `removed.txt` names."""
    for path in lean_files(revision):
        if path.name == "removed.txt":
            for line in path.read_text(encoding="utf-8").split():
                (repository / line).unlink()
            continue
        target = repository / path.relative_to(revision)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    git(repository, "add", "--all")
    message = (revision / "commit-message.txt").read_text(encoding="utf-8").strip()
    git(repository, "commit", "--quiet", "-m", message, date=f"2026-01-0{int(revision.name) + 1}T09:00:00Z")
