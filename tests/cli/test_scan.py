"""`everlean scan PATH`: the scanner on files and folders, without daemon, database or configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sys.executable).parent / "everlean"
SOURCE = """\
import Init
namespace Demo
theorem one : 1 = 1 := sorry
-- sorry
def two : Nat := by
  sorry
end Demo
"""


def scan(path: Path | str, *options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "scan", str(path), *options], capture_output=True, text=True, cwd=cwd)


def document(path: Path | str, *, cwd: Path) -> dict[str, Any]:
    result = scan(path, "--json", cwd=cwd)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_the_document_has_the_promised_fields(tmp_path: Path) -> None:
    (tmp_path / "A.lean").write_text(SOURCE)
    result = document(tmp_path / "A.lean", cwd=tmp_path)
    assert result["schema"] == 1
    (file,) = result["files"]
    assert (file["error"], file["imports"]) == (None, ["Init"])
    first, second = file["declarations"]
    promised = {"name", "kind", "line", "column", "end_line", "end_column", "statement"}
    assert promised <= set(first)
    assert (first["name"], first["kind"], first["line"], first["column"]) == ("Demo.one", "theorem", 3, 0)
    assert (second["name"], second["line"]) == ("Demo.two", 5)
    start = SOURCE.encode().index(b"sorry")
    expected = {
        "declaration": "Demo.one",
        "token": "sorry",
        "line": 3,
        "column": 23,
        "byte_start": start,
        "byte_end": start + 5,
    }
    assert {name: file["sorries"][0][name] for name in expected} == expected
    totals = {"files": 1, "failed": 0, "declarations": 2, "theorems": 1, "sorries": 2, "not_understood": 0}
    assert result["totals"] == totals


def test_a_folder_is_walked_sorted_without_builds_history_and_links(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("B.lean", "a/Z.lean", "a/Y.lean", ".lake/packages/M.lean", ".git/X.lean", "a/.lake/N.lean"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE)
    (project / "notes.txt").write_text("sorry")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "O.lean").write_text(SOURCE)
    (project / "link").symlink_to(tmp_path / "outside")
    (project / "loop").symlink_to(project)
    (project / "L.lean").symlink_to(tmp_path / "outside" / "O.lean")
    (project / "D.lean").mkdir()
    assert [file["path"] for file in document("project", cwd=tmp_path)["files"]] == [
        "B.lean",
        "a/Y.lean",
        "a/Z.lean",
    ]


def test_unreadable_and_broken_files_are_reported_and_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "A.lean").write_bytes(b"theorem x : \xff := sorry\n")
    (tmp_path / "B.lean").write_text(SOURCE)
    (tmp_path / "C.lean").write_text("/- never closed")
    (tmp_path / b"\xe9.lean".decode(errors="surrogateescape")).write_text(SOURCE)
    result = document(".", cwd=tmp_path)
    errors = {file["path"]: file["error"] for file in result["files"]}
    assert errors["A.lean"]
    assert errors["C.lean"]
    assert errors["B.lean"] is None
    assert errors["�.lean"] is None
    assert result["totals"]["failed"] == 2
    text = scan(".", cwd=tmp_path)
    assert text.returncode == 0
    assert "A.lean: not read in full" in text.stdout


def test_people_get_places_and_totals(tmp_path: Path) -> None:
    (tmp_path / "A.lean").write_text(SOURCE)
    lines = scan(".", cwd=tmp_path).stdout.splitlines()
    assert lines[:2] == ["A.lean:3:23: sorry in Demo.one", "A.lean:6:2: sorry in Demo.two"]
    assert lines[2].startswith("2 sorries in 1 file")


def test_commands_that_are_not_understood_are_listed_with_their_first_place(tmp_path: Path) -> None:
    (tmp_path / "A.lean").write_text("Planet 1\n\nGoal : p := sorry\n\nPlanet 2\n")
    lines = scan(".", cwd=tmp_path).stdout.splitlines()
    assert lines[:3] == [
        "A.lean:3:12: sorry in _Goal",
        "A.lean:1: the command Planet is not understood, and 1 time more",
        "A.lean:3: the command Goal is not understood",
    ]
    result = document(".", cwd=tmp_path)
    assert [item["word"] for item in result["files"][0]["not_understood"]] == ["Planet", "Goal", "Planet"]
    assert result["totals"]["not_understood"] == 3


def test_a_project_of_lean_3_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "leanpkg.toml").write_text(
        '[package]\nlean_version = "leanprover-community/lean:3.42.1"\n'
    )
    (tmp_path / "old" / "a.lean").write_text("theorem a : p := sorry\n")
    result = scan(".", cwd=tmp_path)
    assert "old/leanpkg.toml is of a Lean 3 project" in result.stderr
    assert result.stdout.startswith("old/a.lean:1:17: sorry in a\n")


def test_an_absent_path_is_an_error(tmp_path: Path) -> None:
    result = scan("none", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert "none: no such file or folder" in result.stderr


@pytest.mark.skipif(
    not sys.prefix.isascii() and sys.version_info < (3, 13),
    reason="Python itself does not start in this place",
)
def test_an_ascii_locale_still_gets_an_answer(tmp_path: Path) -> None:
    (tmp_path / "A.lean").write_text("theorem «ℕ» : ∀ x, x = x := sorry\n")
    result = subprocess.run(
        [COMMAND, "scan", "."], capture_output=True, cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "ℕ" in result.stdout.decode()


def test_a_file_that_is_no_lean_file_is_read_and_said_to_be_none(folder: Any) -> None:
    answer = folder.everlean("scan", "config.toml")
    assert (answer.code, answer.out.splitlines()[-1].startswith("0 sorries in 1 file")) == (0, True)
    assert "config.toml is no .lean file" in answer.err
    (folder.root / "A.lean").write_text("theorem a : 1 = 1 := sorry\n")
    assert folder.everlean("scan", "A.lean").err == ""
