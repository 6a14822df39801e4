"""Paths and files of a hostile repository: none leads out of it, none is waited for, none is read without a bound."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.jobs.mirror import Mirror
from pipeline.lean.build.sources import read_sources
from pipeline.lean.source.imports import closure, local_file
from pipeline.lean.source.manifest import package_folders
from pipeline.lean.source.worktree import (
    FileTooLargeError,
    StrangeFileError,
    read_beginning,
    read_inside,
    safe_path,
)
from pipeline.trace.tree import Tree

SECRET = b"s3cret"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "secret.lean").write_bytes(SECRET)
    project = tmp_path / "project"
    (project / "Demo").mkdir(parents=True)
    (project / "Demo" / "Good.lean").write_bytes(b"theorem good : 1 = 1 := rfl\n")
    return project


# --- the reader ---------------------------------------------------------------------------------------------


def symlink(path: Path) -> None:
    path.symlink_to(path.parents[1] / "secret.lean")


def linked_folder(path: Path) -> None:
    path.parent.rmdir()
    path.parent.symlink_to(path.parents[2])
    assert not path.exists()
    (path.parents[2] / path.name).write_bytes(SECRET)


def hard_to_end(path: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listener(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def folder(path: Path) -> None:
    path.mkdir()


def itself(path: Path) -> None:
    path.symlink_to(path.name)


def of_this_process(path: Path) -> None:
    path.symlink_to("/proc/self/environ")


STRANGE: list[Callable[[Path], None]] = [
    *(symlink, linked_folder, hard_to_end, pipe, listener, folder, itself, of_this_process)
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", STRANGE, ids=lambda make: make.__name__)
def test_what_is_no_file_of_the_repository_is_not_read(project: Path, make: Callable[[Path], None]) -> None:
    (project / "Strange").mkdir()
    make(project / "Strange" / "Bad.lean")
    with pytest.raises(StrangeFileError, match=r"^Strange/Bad\.lean: (a link|no regular file)"):
        read_inside(project, "Strange/Bad.lean")
    assert read_beginning(project, "Strange/Bad.lean", most_bytes=100) == b""


@pytest.mark.usefixtures("as_root")
def test_a_device_is_not_read(project: Path) -> None:
    try:
        os.mknod(project / "Zero.lean", 0o20666, os.makedev(1, 5))
    except PermissionError as error:
        pytest.skip(f"this container makes no device files: {error}")
    with pytest.raises(StrangeFileError, match="a device"):
        read_inside(project, "Zero.lean")


@pytest.mark.parametrize(
    "name", ["../secret.lean", "Demo/../../secret.lean", "/etc/hostname", "", "..", "a\0b", "/"]
)
def test_a_path_that_leads_out_is_refused(project: Path, name: str) -> None:
    assert not safe_path(name)
    with pytest.raises(StrangeFileError, match="stays inside"):
        read_inside(project, name)


@pytest.mark.parametrize(
    "name", ["A.lean", "a/b/c.lean", "..a/b", "new\nline.lean", "b\u202ead.lean", "-rf.lean"]
)
def test_odd_names_are_names(project: Path, name: str) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_bytes(b"x")
    assert read_inside(project, name) == b"x"


def test_a_name_longer_than_any_file_s_is_not_there(project: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        read_inside(project, "a" * 300 + ".lean")


def test_a_file_is_read_to_its_bound_and_no_further(project: Path) -> None:
    (project / "Big.lean").write_bytes(b"x" * 101)
    assert len(read_inside(project, "Big.lean", most_bytes=101)) == 101
    with pytest.raises(FileTooLargeError, match="101 bytes, more than 100"):
        read_inside(project, "Big.lean", most_bytes=100)
    assert read_beginning(project, "Big.lean", most_bytes=7) == b"x" * 7
    # It says that it has no bytes, and gives some.
    with pytest.raises(FileTooLargeError, match="more than 10 bytes"):
        read_inside(Path("/proc/self"), "status", most_bytes=10)


def test_no_descriptor_stays_open(project: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("Demo/Good.lean", "Demo/Bad.lean", "Demo", "../x", "Demo/Good.lean/x"):
        read_beginning(project, name, most_bytes=10)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# --- those who read -----------------------------------------------------------------------------------------


def tree(project: Path) -> Tree:
    return Tree(project, sha="0" * 40, tracer="t", lean="l", core=None)


@pytest.mark.timeout(20)
def test_the_tracer_reads_no_link_no_pipe_and_no_endless_file(project: Path) -> None:
    (project / "Link.lean").symlink_to(project.parent / "secret.lean")
    os.mkfifo(project / "Pipe.lean")
    os.mkfifo(project / "lake-manifest.json")
    (project / "lean-toolchain").symlink_to("/dev/zero")
    (project / "Folder.lean").mkdir()
    with (project / "Huge.lean").open("wb") as file:
        file.truncate(2**40)
    found = tree(project)
    assert sorted(found.files) == ["Demo/Good.lean", "Huge.lean"]
    assert found.files["Huge.lean"].problem == f"{2**40} bytes, more than {2**24}"
    assert found.toolchain == ""


def test_a_file_that_becomes_a_link_after_it_was_found_is_not_read(project: Path) -> None:
    """What a build does to the worktree while it is traced."""
    item = tree(project).files["Demo/Good.lean"]
    item.file.unlink()
    item.file.symlink_to(project.parent / "secret.lean")
    with pytest.raises(StrangeFileError, match="a link"):
        item.data()


@pytest.mark.parametrize(
    "module",
    [
        "«/etc/passwd»",
        "..secret",
        "«..».secret",
        "a" * 300,
        ".".join("a" * 200 for _ in range(30)),
        "",
        "a\0b",
        "Demo",
    ],
)
def test_an_import_finds_nothing_outside(project: Path, module: str) -> None:
    (project / "Demo.lean").symlink_to(project.parent / "secret.lean")
    assert local_file(project, module) is None
    assert tree(project).find(module) is None
    assert closure(project, [module]).files == ()


def test_a_dependency_s_link_out_of_its_package_finds_nothing(project: Path) -> None:
    package = project / ".lake" / "packages" / "p"
    package.mkdir(parents=True)
    (package / "Out.lean").symlink_to(project.parent / "secret.lean")
    (package / "Inside.lean").write_bytes(b"-- fine\n")
    (package / "Alias.lean").symlink_to("Inside.lean")
    found = tree(project)
    assert found.find("Out") is None
    alias = found.find("Alias")
    assert alias is not None
    assert alias.data() == b"-- fine\n"


def test_what_was_not_read_of_the_imports_is_not_taken_for_read(project: Path) -> None:
    with (project / "Huge.lean").open("wb") as file:
        file.truncate(2**30)
    found = closure(project, ["Huge", "Demo.Good"])
    assert [item.module for item in found.files] == ["Demo.Good"]
    assert not found.complete


@pytest.mark.timeout(20)
def test_the_build_reads_no_link_and_no_pipe_and_keeps_no_text(project: Path) -> None:
    (project / "Link.lean").symlink_to(project.parent / "secret.lean")
    os.mkfifo(project / "Pipe.lean")
    with (project / "Huge.lean").open("wb") as file:
        file.truncate(2**40)
    one, two = read_sources(project), read_sources(project)
    assert sorted(one.hashes) == ["Demo/Good.lean", "Huge.lean"]
    assert one.hashes["Demo/Good.lean"] == two.hashes["Demo/Good.lean"]
    assert one.hashes["Huge.lean"] != two.hashes["Huge.lean"], "what was not read is never the same"


@pytest.mark.timeout(20)
def test_a_manifest_that_is_a_pipe_names_no_packages(project: Path) -> None:
    os.mkfifo(project / "lake-manifest.json")
    assert package_folders(project) == ()


# --- trees that git itself would never make -----------------------------------------------------------------


def git(mirror: Path, *arguments: str, given: bytes = b"") -> str:
    done = subprocess.run(
        ["git", f"--git-dir={mirror}", *arguments], input=given, capture_output=True, check=True
    )
    return done.stdout.decode().strip()


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    path = tmp_path / "mirror.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True)
    return path


def raw_tree(mirror: Path, *entries: tuple[bytes, bytes, str]) -> str:
    """A tree object of these (mode, name, id), unchecked, as a hostile server would send it."""
    data = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(sha) for mode, name, sha in entries)
    return git(mirror, "hash-object", "-w", "-t", "tree", "--literally", "--stdin", given=data)


def commit(mirror: Path, tree: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return git(mirror, *who, "commit-tree", tree, "-m", "x")


def test_paths_of_a_made_up_tree_are_named_and_not_used(mirror: Path) -> None:
    blob = git(mirror, "hash-object", "-w", "--stdin", given=b"theorem a : 1 = 1 := sorry")
    inner = raw_tree(mirror, (b"100644", b"passwd.lean", blob))
    names = (b"..", b"..", b"a\nb.lean", b"\xff.lean", b"x" * 5000 + b".lean", b"ok.lean")
    entries = [(b"40000", b"..", inner), *((b"100644", name, blob) for name in names[2:])]
    sha = commit(mirror, raw_tree(mirror, *sorted(entries, key=lambda entry: entry[1])))
    with Mirror(mirror) as opened:
        found = {item.path: item for item in opened.files(sha)}
    problems = {path: item.problem for path, item in found.items() if not path.startswith("xx")}
    assert problems == {
        "../passwd.lean": "the file's path leads out of the repository",
        "\\xff.lean": "the file's name is not valid UTF-8",
        "a\nb.lean": "",
        "ok.lean": "",
    }
    (long,) = (item for path, item in found.items() if path.startswith("xx"))
    assert long.problem == "the file's path is too long"
    assert len(long.path) < 300


def test_a_tree_of_trees_without_number_is_refused_and_not_unfolded(
    mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten folders of ten folders …: some kilobytes that are a billion files."""
    from pipeline.jobs.protocol import JobError

    level = git(mirror, "hash-object", "-w", "--stdin", given=b"-- bomb")
    level = raw_tree(mirror, *((b"100644", b"%d.lean" % n, level) for n in range(10)))
    for _ in range(9):
        level = raw_tree(mirror, *((b"40000", b"%d" % n, level) for n in range(10)))
    monkeypatch.setattr("pipeline.jobs.mirror._MOST_LISTED_BYTES", 2**20)
    with Mirror(mirror) as opened, pytest.raises(JobError, match="lists more than 1 MiB") as caught:
        list(opened.files(commit(mirror, level)))
    assert caught.value.deterministic
