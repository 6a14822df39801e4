"""The branches of a repository on disk, read without starting git: the double of GitHub gets many requests."""

from __future__ import annotations

from pathlib import Path

_HEADS = "refs/heads/"


def git_folder(path: Path) -> Path:
    """Return the folder with the refs of a repository, bare or not."""
    inside = path / ".git"
    return inside if inside.is_dir() else path


def heads(path: Path) -> dict[str, str]:
    """Return the branches by name, without `refs/heads/`, sorted as git sorts them."""
    folder, found = git_folder(path), {}
    packed = folder / "packed-refs"
    if packed.is_file():
        for line in packed.read_text(encoding="utf-8").splitlines():
            sha, _, name = line.partition(" ")
            if name.startswith(_HEADS):
                found[name.removeprefix(_HEADS)] = sha
    loose = folder / _HEADS
    for file in loose.rglob("*"):
        if file.is_file() and not file.name.endswith(".lock"):
            found[file.relative_to(loose).as_posix()] = file.read_text(encoding="ascii").strip()
    return dict(sorted(found.items(), key=lambda item: item[0].encode()))


def default_branch(path: Path) -> str | None:
    """Return the branch that HEAD names, whether it is there or not; None where HEAD is a commit."""
    text = (git_folder(path) / "HEAD").read_text(encoding="utf-8").strip()
    return text.removeprefix(f"ref: {_HEADS}") if text.startswith(f"ref: {_HEADS}") else None
