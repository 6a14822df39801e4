"""What is read out of a bare repository: by two processes of git, whatever the repository calls its files."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.blueprint import Blueprints
from pipeline.jobs.mirror import Mirror
from pipeline.jobs.protocol import JobError
from store.domain.identity import slug
from tests.support.daemon.remote import Remote

NAMES = ("A.lean", "end 0123\n.lean", "a\nb.lean", ":100644 100644 a b M", "sub/with space.lean", "ü.lean")


@pytest.fixture(params=["sha1", "sha256"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    (tmp_path / "remote").mkdir()
    remote = Remote.at(tmp_path / "remote")
    remote.git("init", "--quiet", "--initial-branch=main", f"--object-format={request.param}")
    return remote


def test_the_changes_between_commits_are_those_that_git_lists_for_them(remote: Remote) -> None:
    shas = [remote.commit("first", dict.fromkeys(NAMES, "-- 0\n"))]
    shas.append(remote.commit("second", {name: f"-- {name}\n" for name in NAMES[1:]}))
    (remote.path / "A.lean").unlink()
    shas.append(remote.commit("third", {"B.lean": "-- 2\n"}))
    shas.append(remote.commit("nothing", {"B.lean": "-- 2\n"}))
    with Mirror(remote.path / ".git") as mirror:
        found = [mirror.changes(one, other) for one in shas for other in shas]
    assert [(len(one.present), one.gone, len(one.before)) for one in found[:4]] == [
        (0, (), 0),
        (5, (), 5),
        (6, ("A.lean",), 6),
        (6, ("A.lean",), 6),
    ]
    listed = [
        remote.git("diff-tree", "-r", "-z", "--no-renames", "--name-only", one, other)
        for one in shas
        for other in shas
    ]
    assert [{*(file.path for file in one.present), *one.gone} for one in found] == [
        set(one.split("\0")[:-1]) for one in listed
    ]


def test_a_blueprint_is_newer_where_its_latex_differs(remote: Remote, tmp_path: Path) -> None:
    first = remote.commit("first", {"A.lean": "-- 0\n", "blueprint/src/content.tex": "a"})
    second = remote.commit("second", {"A.lean": "-- 1\n", "notes.tex": "b"})
    third = remote.commit("third", {"doc/blueprint/src/chapter.tex": "c"})
    (remote.path / "blueprint/src/content.tex").unlink()
    fourth = remote.commit("fourth", {})
    told: list[str] = []
    blueprints = Blueprints(tmp_path / "mirrors", told.append)
    assert blueprints.newer("local/x/y", first, third) == first, "there is no mirror"
    (tmp_path / "mirrors").mkdir()
    (tmp_path / "mirrors" / f"{slug('local/x/y')}.git").symlink_to(remote.path / ".git")
    ends = [blueprints.newer("local/x/y", *two) for two in itertools.pairwise((first, second, third, fourth))]
    assert ends == [first, third, fourth]
    assert not told
    gone = first.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    assert blueprints.newer("local/x/y", gone, third) == gone
    assert len(told) == 1


def test_any_number_of_commits_is_read_by_two_processes(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    shas = [remote.commit(f"c{i}", {"lean-toolchain": f"v{i}\n", "A.lean": f"-- {i}\n"}) for i in range(4)]
    begun: list[Any] = []
    begin = subprocess.Popen

    def counted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.append(arguments)
        return begin(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", counted)
    with Mirror(remote.path / ".git") as mirror:
        for number, (base, sha) in enumerate(itertools.pairwise(shas), start=1):
            mirror.require_commit(sha, reason="gone")
            assert len(mirror.changes(base, sha).present) == 2
            file = mirror.at_root(sha, "lean-toolchain")
            assert file is not None
            assert mirror.read(file.blob, most_bytes=10) == f"v{number}\n".encode()
    assert len(begun) == 2


def test_a_symbolic_link_at_the_root_is_no_file(remote: Remote) -> None:
    (remote.path / "lean-toolchain").symlink_to("/etc/passwd")
    sha = remote.commit("link", {"A.lean": "-- 0\n", "sub/comparator.json": "{}"})
    with Mirror(remote.path / ".git") as mirror:
        assert mirror.at_root(sha, "lean-toolchain") is None
        assert mirror.at_root(sha, "comparator.json") is None
        assert mirror.at_root(sha, "A.lean") is not None


def test_what_is_no_commit_is_refused_and_the_next_question_is_answered(remote: Remote) -> None:
    sha = remote.commit("first", {"A.lean": "-- 0\n"})
    tree = remote.git("rev-parse", f"{sha}^{{tree}}")
    with Mirror(remote.path / ".git") as mirror:
        for no_commit in ("0" * len(sha), tree):
            with pytest.raises(JobError, match="has no commit"):
                mirror.require_commit(no_commit, reason="unknown_commit")
        with pytest.raises(JobError, match="has no tree"):
            mirror.changes("f" * len(sha), sha)
        mirror.require_commit(sha, reason="unknown_commit")
        assert [file.path for file in mirror.changes(sha, sha).present] == []


def test_a_damaged_mirror_is_an_error_with_what_git_said(remote: Remote) -> None:
    sha = remote.commit("first", {"sub/A.lean": "-- 0\n"})
    other = remote.commit("second", {"sub/A.lean": "-- 1\n"})
    tree = remote.git("rev-parse", f"{other}:sub")
    (remote.path / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    with (
        Mirror(remote.path / ".git") as mirror,
        pytest.raises(JobError, match=f"git diff-tree ended: .*{tree}"),
    ):
        mirror.changes(sha, other)
