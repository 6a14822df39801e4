"""Which Lake projects a repository has, and which of its files and toolchains are whose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.lean.source.projects import (
    MOST_PROJECTS,
    find_projects,
    project_folder,
    read_toolchain,
    toolchain_text,
    worktree_of,
)
from store.documents.repositories import Head, projects_text
from store.events.projects import Project, below, project_of, worked_on

OLD, NEW = "leanprover/lean4:v4.20.0", "leanprover/lean4:v4.22.0"


def found(files: dict[str, str]) -> list[Project]:
    """Return the projects of a commit with these files; the blob of each is its path."""
    return [*find_projects({path: path for path in files}, lambda blob: files[blob].encode())]


def packages(*folders: str) -> str:
    """Return a manifest with packages at these paths, and one that is refused."""
    entries = [{"type": "path", "name": f"p{at}", "dir": folder} for at, folder in enumerate(folders)]
    return json.dumps({"packages": [*entries, {"type": "git", "name": "x", "url": "ssh://x", "rev": "main"}]})


@pytest.mark.parametrize(
    ("files", "projects"),
    [
        pytest.param({}, [("", "", "")], id="no lakefile at all"),
        pytest.param(
            {"old/leanpkg.toml": '[package]\nlean_version = "leanprover-community/lean:3.42.1"\n'},
            [("old", "leanprover-community/lean:3.42.1", "")],
            id="a project of Lean 3",
        ),
        pytest.param(
            {"leanpkg.toml": 'lean_version = "lean:3.4.2"', "lakefile.lean": "", "lean-toolchain": NEW},
            [("", NEW, "")],
            id="a leanpkg.toml that was left beside a lakefile",
        ),
        pytest.param({"lean-toolchain": f"{NEW}\n"}, [("", NEW, "")], id="a toolchain alone"),
        pytest.param(
            {"lakefile.toml": "", "lean-toolchain": NEW, "lake-manifest.json": "{}"},
            [("", NEW, "lake-manifest.json")],
            id="one at the root",
        ),
        pytest.param(
            {
                "engine/lakefile.toml": "",
                "engine/lean-toolchain": OLD,
                "manual/lakefile.lean": "",
                "manual/lean-toolchain": NEW,
            },
            [("engine", OLD, ""), ("manual", NEW, "")],
            id="two with toolchains of their own",
        ),
        pytest.param(
            {"a/b/lakefile.toml": "", "a/lean-toolchain": OLD, "lean-toolchain": NEW, "c/lakefile.toml": ""},
            [("a/b", OLD, ""), ("c", NEW, "")],
            id="the nearest toolchain above",
        ),
        pytest.param(
            {
                "lakefile.toml": "",
                "lean-toolchain": OLD,
                "docs/lakefile.toml": "",
                "docs/lean-toolchain": NEW,
            },
            [("", OLD, ""), ("docs", NEW, "")],
            id="one at the root and one below",
        ),
        pytest.param(
            {
                "lean/lakefile.toml": "",
                "lean/lake-manifest.json": packages("./util", "..", "/etc"),
                "lean/util/lakefile.toml": "",
                "util/lakefile.toml": "",
            },
            [("lean", "", "lean/lake-manifest.json"), ("util", "", "")],
            id="a package of a project is none, whatever else its manifest has",
        ),
        pytest.param(
            {
                "lean/lakefile.toml": "",
                ".lake/packages/x/lakefile.toml": "",
                "lean/.hidden/lakefile.toml": "",
                "lake-packages/x/lakefile.toml": "",
                "a:b/lakefile.toml": "",
                'c"d/lakefile.toml': "",
                "e\nf/lakefile.toml": "",
            },
            [("lean", "", "")],
            id="hidden folders, packages, and names that no path of Lean can have",
        ),
        pytest.param(
            {"lakefile.toml": "", "lean-toolchain": "two\nlines", "lake-manifest.json": "[[["},
            [("", "", "lake-manifest.json")],
            id="nonsense",
        ),
    ],
)
def test_each_folder_with_a_lakefile_is_a_project(
    files: dict[str, str], projects: list[tuple[str, str, str]]
) -> None:
    assert [(one.folder, one.toolchain, one.manifest) for one in found(files)] == projects


def test_of_very_many_those_that_lie_least_deep_are_taken() -> None:
    deep = {f"deep/a{number:03}/lakefile.toml": "" for number in range(MOST_PROJECTS + 50)}
    folders = [one.folder for one in found({**deep, "z/lakefile.toml": ""})]
    assert len(folders) == MOST_PROJECTS
    assert "z" in folders


ROOT, DOCS, DEEP = Project("", OLD, ""), Project("docs", NEW, ""), Project("docs/a", "", "")


@pytest.mark.parametrize(
    ("path", "owner"),
    [("A.lean", ROOT), ("docs/A.lean", DOCS), ("docs/a/A.lean", DEEP), ("docsx/A.lean", ROOT)],
)
def test_a_file_belongs_to_the_innermost_project(path: str, owner: Project) -> None:
    assert project_of(path, (ROOT, DOCS, DEEP)) == owner


def test_what_lies_in_no_project_belongs_to_none() -> None:
    assert project_of("A.lean", (DOCS,)) is None
    assert below("", (ROOT, DOCS, DEEP)) == ("docs", "docs/a")
    assert below("docs", (ROOT, DOCS, DEEP)) == ("a",)


@pytest.mark.parametrize(
    ("projects", "chosen", "worked"),
    [
        ((ROOT, DOCS), (), (ROOT,)),
        ((DOCS, DEEP), (), (DOCS, DEEP)),
        ((ROOT, DOCS), ("docs",), (DOCS,)),
        ((ROOT, DOCS), ("", "docs"), (ROOT, DOCS)),
        ((ROOT,), ("elsewhere",), ()),
    ],
)
def test_the_root_is_worked_on_or_else_all_or_what_is_chosen(
    projects: tuple[Project, ...], chosen: tuple[str, ...], worked: tuple[Project, ...]
) -> None:
    assert worked_on(projects, chosen) == worked


@pytest.mark.parametrize("folder", ["../x", "/x", "a/../b", "a//b", "a/", ".", "a/.lake", "a\0b", "x" * 201])
def test_a_folder_that_leads_anywhere_else_is_no_project(folder: str) -> None:
    with pytest.raises(ValueError, match="plain path"):
        Project(folder, "", "")


def test_a_project_s_folder_is_reached_by_no_link(tmp_path: Path) -> None:
    (tmp_path / "worktree/lean").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "worktree/link").symlink_to(tmp_path / "elsewhere")
    worktree = tmp_path / "worktree"
    assert project_folder(worktree, "") == worktree
    assert project_folder(worktree, "lean") == worktree / "lean"
    assert worktree_of(worktree / "lean", "lean") == worktree
    for folder in ("link", "none", "../elsewhere"):
        with pytest.raises(NotADirectoryError):
            project_folder(worktree, folder)


def test_the_toolchain_of_a_worktree_is_the_nearest_at_or_above_the_project(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        read_toolchain(tmp_path, "a/b")
    (tmp_path / "lean-toolchain").write_text(OLD)
    assert read_toolchain(tmp_path, "a/b") == ("lean-toolchain", OLD.encode())
    (tmp_path / "a/b/lean-toolchain").write_text(NEW)
    assert read_toolchain(tmp_path, "a/b") == ("a/b/lean-toolchain", NEW.encode())
    assert read_toolchain(tmp_path, "a")[0] == "lean-toolchain"


def test_a_link_to_a_toolchain_is_the_toolchain_above(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "lean-toolchain").write_text(OLD)
    (tmp_path / "a/lean-toolchain").write_text("../lean-toolchain")  # as git writes a link here
    assert read_toolchain(tmp_path, "a") == ("lean-toolchain", OLD.encode())
    assert toolchain_text(tmp_path, "a") == OLD


@pytest.mark.parametrize(
    ("folders", "chosen", "said"),
    [
        ([""], [], ""),
        (["lean"], [], "Lake projects in lean (v4.20.0); a bump raises only one at the root"),
        (
            ["", "docs"],
            [],
            (
                "Lake projects in the root (v4.20.0), docs (v4.20.0);"
                " only scanned, for `projects` does not name them: docs"
            ),
        ),
        (
            ["", "docs"],
            ["docs"],
            (
                "Lake projects in the root (v4.20.0), docs (v4.20.0);"
                " only scanned, for `projects` does not name them: the root; a bump raises only one at the root"
            ),
        ),
    ],
)
def test_what_is_not_done_in_a_project_is_said_by_its_name(
    folders: list[str], chosen: list[str], said: str
) -> None:
    projects = [{"folder": folder, "toolchain": OLD, "manifest": ""} for folder in folders]
    head = Head("repo", "main", "live", "a", "a", 1, [], [], projects, [], 0)
    assert projects_text(head, chosen) == said
