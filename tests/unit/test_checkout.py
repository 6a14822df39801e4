"""What of a commit is in a worktree: its own bytes, and nothing that leads out of it or that was built elsewhere."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pipeline.jobs import checkout
from pipeline.jobs.checkout import LeftError, worktree
from pipeline.jobs.protocol import JobError
from tests.support.daemon.remote import Remote

NOT_YET = threading.Event()


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    return Remote(tmp_path / "remote")


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_are_those_of_the_commit_byte_for_byte_whatever_its_attributes_and_hooks_say(
    remote: Remote, tmp_path: Path
) -> None:
    mirror, ran = remote.path / ".git", tmp_path / "ran"
    (mirror / "hooks").mkdir(exist_ok=True)
    (mirror / "hooks" / "post-checkout").write_text(f"#!/bin/sh\ntouch {ran}\n", encoding="utf-8")
    (mirror / "hooks" / "post-checkout").chmod(0o755)
    text = {
        "A.lean": "-- $Id$\n",
        "sub/B.lean": "-- ü\n",
        "run.sh": "#!/bin/sh\n",
        "big.lean": "-- x\n" * 300_000,
        "empty.lean": "",
    }
    remote.commit("first", text)
    (remote.path / "run.sh").chmod(0o755)
    # Only now: git is to commit them as they are.
    attributes = "*.lean ident eol=crlf filter=evil\n"
    sha = remote.commit("attributes", {".gitattributes": attributes})
    remote.git("config", "filter.evil.smudge", f"touch {ran}; cat")
    with worktree(tmp_path / "w", mirror=mirror, sha=sha, left=NOT_YET):
        found = files_of(tmp_path / "w")
        assert found == {
            name: data.encode() for name, data in (text | {".gitattributes": attributes}).items()
        }
        assert os.access(tmp_path / "w" / "run.sh", os.X_OK)
        assert not os.access(tmp_path / "w" / "A.lean", os.X_OK)
    assert not (tmp_path / "w").exists()
    assert not ran.exists()
    assert not (mirror / "worktrees").exists(), "the mirror keeps no record"


def test_no_link_no_submodule_and_nothing_that_was_built_elsewhere_is_made(
    remote: Remote, tmp_path: Path
) -> None:
    (remote.path / "Evil.lean").symlink_to("/etc/passwd")
    (remote.path / "out").symlink_to("..")
    brought = dict.fromkeys(
        (".lake/build/A.olean", "sub/.lake/build/B.olean", ".LAKE/C.olean", "sub/lake/D.lean"), "x"
    )
    first = remote.commit("first", brought)
    remote.git("update-index", "--add", "--cacheinfo", f"160000,{first},library")
    sha = remote.commit("with a submodule", {"A.lean": ""})
    with worktree(tmp_path / "w", mirror=remote.path / ".git", sha=sha, left=NOT_YET):
        assert sorted(path.name for path in (tmp_path / "w").iterdir()) == ["A.lean", "sub"]
        assert sorted(files_of(tmp_path / "w")) == ["A.lean", "sub/lake/D.lean"]


def test_what_cannot_be_written_out_whole_is_no_worktree(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, left = remote.path / ".git", threading.Event()
    sha = remote.commit("first", {"A.lean": "-- a\n", "B.lean": "-- b\n"})

    def why(sha: str) -> str:
        with pytest.raises(JobError) as refused:
            worktree(tmp_path / "w", mirror=mirror, sha=sha, left=left).__enter__()
        assert not (tmp_path / "w").exists()
        return refused.value.reason

    assert why("f" * 40) == "unknown_commit"
    monkeypatch.setattr(checkout, "_MOST_TREE_BYTES", 9)
    assert why(sha) == "too_large"
    left.set()
    with pytest.raises(LeftError):
        worktree(tmp_path / "w", mirror=mirror, sha=sha, left=left).__enter__()
    assert not (tmp_path / "w").exists()
