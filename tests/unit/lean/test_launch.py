"""How a REPL is started: where it looks for what lake built."""

from __future__ import annotations

import json
from pathlib import Path

from pipeline.lean.client.process import lean_path


def test_lean_path_lists_the_project_and_its_packages(tmp_path: Path) -> None:
    own = tmp_path / ".lake" / "build" / "lib" / "lean"
    package = tmp_path / ".lake" / "packages" / "mathlib" / ".lake" / "build" / "lib" / "lean"
    older = tmp_path / ".lake" / "packages" / "std" / ".lake" / "build" / "lib"
    for folder in (own, package, older):
        folder.mkdir(parents=True)

    assert lean_path(tmp_path).split(":") == [str(own), str(package), str(older)]


def test_lean_path_lists_packages_that_are_folders_of_the_project_or_of_a_package(tmp_path: Path) -> None:
    common = {"rev": "c" * 40, "url": "https://example.org/x"}
    entries = [
        {"type": "path", "name": "part", "dir": "sub/part"},
        {"type": "git", "name": "big", "subDir": "inner", **common},
        {"type": "git", "name": "plain", **common},
    ]
    (tmp_path / "lake-manifest.json").write_text(json.dumps({"packages": entries}), "utf-8")
    expected = []
    for folder in ("", "sub/part", ".lake/packages/big/inner", ".lake/packages/plain"):
        expected.append(tmp_path / folder / ".lake" / "build" / "lib" / "lean")
        expected[-1].mkdir(parents=True)

    assert lean_path(tmp_path).split(":") == [str(folder) for folder in expected]


def test_a_manifest_that_names_folders_elsewhere_adds_nothing(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "other" / ".lake" / "build" / "lib" / "lean").mkdir(parents=True)
    entry = {"type": "path", "name": "part", "dir": "../other"}
    (tmp_path / "project" / "lake-manifest.json").write_text(json.dumps({"packages": [entry]}), "utf-8")

    assert lean_path(tmp_path / "project") == ""
