"""What a build reads of strangers: the manifest (refused where it is hostile) and what lake prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.lean.build.lake import BuildLog, Step
from pipeline.lean.source.manifest import GitPackage, ManifestError, read_manifest

REV = "c" * 40
GIT = {
    "type": "git",
    "name": "mathlib",
    "url": "https://github.com/leanprover-community/mathlib4",
    "rev": REV,
    "inputRev": "v4.21.0",
    "subDir": None,
    "inherited": False,
    "configFile": "lakefile.lean",
    "manifestFile": "lake-manifest.json",
}
EXPECTED = GitPackage(
    "mathlib", str(GIT["url"]), REV, "v4.21.0", "", "lakefile.lean", "lake-manifest.json", inherited=False
)


def manifest(*entries: Any, version: object = "1.1.0") -> bytes:
    return json.dumps({"version": version, "packages": list(entries)}).encode()


@pytest.mark.parametrize(
    ("version", "entry"),
    [
        ("1.1.0", GIT),
        (7, {key: value for key, value in GIT.items() if key != "subDir"}),
        (
            6,
            {
                "git": {
                    "name": "mathlib",
                    "url": GIT["url"],
                    "rev": REV,
                    "inputRev?": "v4.21.0",
                    "subDir?": None,
                }
            },
        ),
        (5, {"git": {"name": "mathlib", "url": GIT["url"], "rev": REV, "inputRev?": "v4.21.0", "opts": {}}}),
        (2, {"name": "mathlib", "url": GIT["url"], "rev": REV, "inputRev": "v4.21.0"}),
    ],
)
def test_every_version_of_the_manifest_is_read(version: object, entry: dict[str, Any]) -> None:
    (package,) = read_manifest(manifest(entry, version=version)).packages

    assert (package.name, package.url, package.rev) == (EXPECTED.name, EXPECTED.url, EXPECTED.rev)
    assert (package.input_rev, package.subdir) == ("v4.21.0", "")


def test_packages_by_path_are_folders_of_the_project() -> None:
    entry = {"type": "path", "name": "part", "dir": "./sub/part", "inherited": False}
    wrapped = {"path": {"name": "other", "dir": "./other"}}

    assert read_manifest(manifest(entry, wrapped)).paths == ("sub/part", "other")


def test_a_folder_that_two_packages_name_counts_once() -> None:
    entries = [{"type": "path", "name": name, "dir": "sub"} for name in ("one", "two")]

    assert read_manifest(manifest(*entries)).paths == ("sub",)


def test_quoted_names_are_read() -> None:
    assert read_manifest(manifest({**GIT, "name": "«doc-gen4»"})).packages[0].name == "doc-gen4"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rev": "main"}, "no full commit id"),
        ({"rev": "--upload-pack=touch /tmp/x"}, "no full commit id"),
        ({"rev": REV.upper()}, "no full commit id"),
        ({"rev": None}, "no full commit id"),
        ({"url": "--upload-pack=touch"}, "url"),
        ({"url": "ext::sh -c touch% /tmp/x"}, "plain address"),
        ({"url": "ssh://git@github.com/x/y"}, "only https"),
        ({"url": "git@github.com:x/y"}, "only https"),
        ({"url": "file:///etc"}, "only https"),
        ({"url": "http://github.com/x/y"}, "only https"),
        ({"url": "https://token@github.com/x/y"}, "user or a password"),
        ({"url": "https:///x"}, "no host"),
        ({"url": "https://github.com/x\n[core]"}, "plain address"),
        ({"url": 'https://github.com/x"; exit'}, "plain address"),
        ({"url": "https://github.com:99999999/x"}, "url"),
        ({"url": None}, "plain address"),
        ({"name": "../../etc"}, "no name"),
        ({"name": "a/b"}, "no name"),
        ({"name": ".."}, "no name"),
        ({"name": ".git"}, "no name"),
        ({"name": "-x"}, "no name"),
        ({"name": ""}, "no name"),
        ({"name": 7}, "no name"),
        ({"subDir": "../.."}, "subDir"),
        ({"subDir": "/etc"}, "subDir"),
        ({"subDir": 'x" / "y'}, "subDir"),
        ({"configFile": "../lakefile.lean"}, "configFile"),
        ({"manifestFile": "/etc/passwd"}, "manifestFile"),
        ({"type": "path", "dir": "../other"}, "dir"),
        ({"type": "path", "dir": "/etc"}, "dir"),
        ({"type": "path", "dir": "."}, "no folder for a package"),
        ({"type": "path", "dir": ".git"}, "no folder for a package"),
        ({"type": "path", "dir": "sub/.lake/build"}, "no folder for a package"),
        ({"type": "path", "dir": "sub:/etc"}, "no folder for a package"),
        ({"type": "path", "dir": "d" * 300}, "too long"),
        ({"type": "path", "dir": "∀" * 100}, "too long"),
        ({"type": "svn"}, "neither git nor path"),
    ],
)
def test_hostile_values_are_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ManifestError, match=says):
        read_manifest(manifest({**GIT, **changes}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"packages": {}}',
        b'{"packages": [1]}',
        b"\xff",
        b"[" * 100_000,
        b" " * (5 * 2**20),
    ],
)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        read_manifest(data)


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(ManifestError, match="named twice"):
        read_manifest(manifest(GIT, GIT))


def test_an_input_revision_that_could_not_be_written_into_a_lakefile_is_dropped() -> None:
    assert read_manifest(manifest({**GIT, "inputRev": 'x" require evil from "'})).packages[0].input_rev == ""


def log(text: str) -> tuple[BuildLog, list[Step]]:
    read = BuildLog()
    steps = [step for line in text.splitlines() if (step := read.line(line)) is not None]
    return read, steps


def test_the_log_of_todays_lake() -> None:
    read, steps = log(
        "ℹ [1/5] Ran job computation\n"
        "✔ [2/5] Built Demo.Good (1.2s)\n"
        "✖ [3/5] Building Demo.Bad (312ms)\n"
        "trace: .> LEAN_PATH=… lean Demo/Bad.lean\n"
        "error: ././././Demo/Bad.lean:3:4: unknown identifier 'foo'\n"
        "error: Lean exited with code 1\n"
        "⚠ [4/5] Built Demo.Sorry\n"
        "warning: Demo/Sorry.lean:1:8: declaration uses 'sorry'\n"
        "Some required targets logged failures:\n"
        "- Demo.Bad\n"
        "- demo/Demo.Other:c.o\n"
        "error: build failed\n"
    )

    assert list(read.failed) == ["Demo.Bad", "Demo.Other"]
    assert read.errors == ["Demo/Bad.lean:3:4: unknown identifier 'foo'"]
    assert [(step.done, step.total) for step in steps] == [(1, 5), (2, 5), (3, 5), (4, 5)]
    assert steps[1].what == "Built Demo.Good"


def test_the_log_of_lakes_before_4_9() -> None:
    read, steps = log(
        "[1/3] Building Demo.Good\n"
        "[2/3] Building Demo.Bad\n"
        "error: > LEAN_PATH=./build/lib lean ./src/Demo/Bad.lean\n"
        "error: stdout:\n"
        "./src/Demo/Bad.lean:3:4: error: unknown identifier 'foo'\n"
        "./src/Demo/Bad.lean:5:4: warning: unused variable\n"
        "error: external command `lean` exited with code 1\n"
    )

    assert list(read.failed) == ["Demo.Bad"]
    assert read.errors == ["src/Demo/Bad.lean:3:4: unknown identifier 'foo'"]
    assert len(steps) == 2


def test_other_errors_are_kept_and_blame_no_module() -> None:
    read, _ = log("error: no such file or directory (error code: 2)\n  file: lakefile.lean\n")

    assert read.errors == ["no such file or directory (error code: 2)"]
    assert read.failed == {}


def test_a_flood_of_errors_is_cut() -> None:
    read, _ = log("\n".join(f"error: A{n}.lean:1:0: {'x' * 1000}" for n in range(1000)))

    assert len(read.errors) == 20
    assert max(map(len, read.errors)) <= 300
    assert len(read.failed) == 1000
