"""A server's folder: its own, for no one else to read, and clean of servers that were killed; real processes."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.jobs.child import MARK
from pipeline.serve.checkouts import BY_HAND, ScratchTakenError, own
from tests.support import programs

OWNER = """
import sys, time
from pathlib import Path
from pipeline.serve.checkouts import own
held = own(Path(sys.argv[1]))
(held.folder / "file").write_text("x")
print("ready", flush=True)
time.sleep(600)
"""


@contextmanager
def others(said: Path, *folders: Path) -> Iterator[list[programs.Program]]:
    """Run other servers' processes, which each have their folder; `said` takes what they say."""
    processes = [programs.start(OWNER, folder, folder=said / folder.name) for folder in folders]
    try:
        end = time.monotonic() + 20
        while not all(process.said() == "ready\n" for process in processes):
            assert time.monotonic() < end
            time.sleep(0.01)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def sleeping(attempt: Path) -> subprocess.Popen[bytes]:
    """Start what a job would leave running: long, and in a session of its own."""
    child = subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: str(attempt)}, start_new_session=True)
    # Popen returns when exec has closed the pipe, which the kernel does a moment before it sets the environment.
    while MARK.encode() not in Path(f"/proc/{child.pid}/environ").read_bytes():
        time.sleep(0.001)
    return child


def test_it_is_for_this_user_alone_and_gone_when_it_is_given_back(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        held = own(tmp_path / "serve" / "daemon")
    finally:
        os.umask(before)
    for folder in (held.folder, held.folder.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (held.folder / "left").write_text("x")
    held.give_back()
    assert list((tmp_path / "serve").iterdir()) == []


def test_what_a_killed_server_left_is_removed_with_what_still_runs_there_and_the_living_keep_theirs(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alive, dead, unlike = (tmp_path / name for name in (f"{BY_HAND}1", f"{BY_HAND}2", "models"))
    unlike.mkdir()
    with others(tmp_path_factory.mktemp("said"), alive, dead) as (living, killed):
        child = sleeping(dead / "a" / "job")
        killed.kill()
        killed.wait()
        held = own(tmp_path / f"{BY_HAND}3")
        child.wait(20)  # it would sleep longer
        assert sorted(tmp_path.iterdir()) == sorted([alive, held.folder, unlike])
        assert (alive / "file").exists()
        assert not living.has_ended()
        held.give_back()


def test_a_folder_that_another_server_has_is_refused_until_that_one_ends(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path / "daemon"
    with others(tmp_path_factory.mktemp("said"), folder) as (process,):
        with pytest.raises(ScratchTakenError, match="another server has it"):
            own(folder, patience_s=0.1)
        assert (folder / "file").exists()
        process.kill()
        process.wait()
        held = own(folder, patience_s=20)
        assert list(folder.iterdir()) == [], "what the one before left is no business of this one"
        held.give_back()


def test_servers_that_start_together_each_have_one(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folders = [tmp_path / f"{BY_HAND}{number}" for number in range(3)]
    with others(tmp_path_factory.mktemp("said"), *folders):
        assert all((folder / "file").exists() for folder in folders)
