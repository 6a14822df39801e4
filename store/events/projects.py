"""The Lake projects of a commit, in events: plain classes, so that readers of the view need no pydantic."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

LONGEST_FOLDER = 200


@dataclass(frozen=True, slots=True)
class Project:
    """A Lake project: a folder of the repository with a lakefile, `folder` "" for the root.

    `toolchain` is the text of its `lean-toolchain`, in the folder or the nearest above ("" without one), `manifest` the
    git blob of its `lake-manifest.json` ("" without one).

    Raises:
        ValueError: `folder` is no plain path inside a repository.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    folder: str
    toolchain: str
    manifest: str

    def __post_init__(self) -> None:
        if not plain_folder(self.folder):
            raise ValueError(f"the folder of a project is {self.folder!r}; a plain path is expected")

    @property
    def name(self) -> str:
        """The folder, for people."""
        return self.folder or "the root"


def plain_folder(folder: str) -> bool:
    """Return whether a folder may be a project's: "" or a path inside, without hidden parts.

    Lean separates its folders by colons.
    """
    parts = PurePosixPath(folder).parts
    return "/".join(parts) == folder and not (
        len(folder.encode("utf-8", "replace")) > LONGEST_FOLDER
        or folder.startswith("/")
        or any(part.startswith(".") for part in parts)
        or any(ord(letter) < 32 or letter in '\\":' for letter in folder)
    )


def lies_in(path: str, folder: str) -> bool:
    """Return whether a path of the repository is in a folder of it, however deep."""
    return not folder or path.startswith(f"{folder}/")


def inside(path: str, folder: str) -> str:
    """Return a path of the repository relative to a folder of it."""
    return path.removeprefix(f"{folder}/") if folder else path


def outside(name: str, folder: str) -> str:
    """Return a path in a folder relative to the repository."""
    return f"{folder}/{name}" if folder else name


def project_of(path: str, projects: Sequence[Project]) -> Project | None:
    """Return the innermost project of a file; None without one."""
    result = [project for project in projects if lies_in(path, project.folder)]
    return max(result, key=lambda one: len(one.folder), default=None)


def below(folder: str, projects: Sequence[Project]) -> tuple[str, ...]:
    """Return the folders of other projects inside a project's, relative to it."""
    return tuple(
        inside(project.folder, folder)
        for project in projects
        if project.folder != folder and lies_in(project.folder, folder)
    )


def worked_on(projects: Sequence[Project], chosen: Collection[str]) -> tuple[Project, ...]:
    """Return the projects to build, trace and prove in: the chosen folders.

    Without a choice it is the one at the root, as those below it are mostly its documentation and tests; if
    the root has none, all.
    """
    folders = (
        chosen
        or [project.folder for project in projects if not project.folder]
        or [project.folder for project in projects]
    )
    return tuple(project for project in projects if project.folder in folders)
