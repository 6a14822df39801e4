"""One daemon a state folder."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.place.lock import (
    AlreadyRunningError,
    DaemonLock,
    FolderError,
    Holder,
    holder,
    make_folder,
    who_holds,
)


def test_a_second_holder_is_refused_with_the_first_ones_number(tmp_path: Path) -> None:
    path = tmp_path / "state" / "daemon.lock"
    first = DaemonLock.acquire(path)
    with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}") as caught:
        DaemonLock.acquire(path)
    assert caught.value.pid == os.getpid()
    assert holder(path) == os.getpid()
    first.release()
    DaemonLock.acquire(path).release()


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "daemon.lock"
    program = (
        "import sys, os, pathlib; from daemon.place.lock import DaemonLock;"
        "lock = DaemonLock.acquire(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    result = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert result.returncode == -9
    assert path.read_text(encoding="ascii").strip().isdecimal()
    assert holder(path) is None
    DaemonLock.acquire(path).release()


def test_a_child_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "daemon.lock"
    lock = DaemonLock.acquire(path)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], close_fds=False)
    try:
        lock.release()
        DaemonLock.acquire(path).release()
    finally:
        child.kill()
        child.wait()


def test_no_one_holds_a_lock_that_does_not_exist(tmp_path: Path) -> None:
    assert holder(tmp_path / "none") is None


def test_a_command_that_keeps_the_daemon_away_is_not_taken_for_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "daemon.lock"
    held = DaemonLock.acquire(path, purpose="everlean db rebuild")
    assert who_holds(path) == Holder(os.getpid(), "everlean db rebuild")
    with pytest.raises(AlreadyRunningError, match="everlean db rebuild is at work") as caught:
        DaemonLock.acquire(path)
    assert "kill" not in str(caught.value)
    held.release()
    again = DaemonLock.acquire(path)
    assert who_holds(path) == Holder(os.getpid(), "daemon")
    again.release()


def test_a_lock_that_was_just_taken_is_not_said_to_be_its_last_and_dead_holder_s(tmp_path: Path) -> None:
    path = tmp_path / "daemon.lock"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    path.write_text(f"{dead.pid} everlean db rebuild\n", encoding="ascii")
    with path.open(encoding="ascii") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        assert who_holds(path) is None
        assert holder(path) == dead.pid, "a GPU's lock is held by what its job has started"
        with pytest.raises(AlreadyRunningError, match="held by another process") as caught:
            DaemonLock.acquire(path)
        assert caught.value.pid is None


def test_nothing_of_a_longer_name_is_left_in_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "daemon.lock"
    path.write_text("4194304 everlean a command with a name that is long\n", encoding="ascii")
    held = DaemonLock.acquire(path, purpose="everlean import")
    assert who_holds(path) == Holder(os.getpid(), "everlean import")
    assert path.read_text(encoding="ascii").split() == [str(os.getpid()), "everlean", "import"]
    held.release()


def test_a_folder_that_cannot_be_made_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    with pytest.raises(FolderError, match=r"file/state: Not a directory; .*doctor"):
        DaemonLock.acquire(tmp_path / "file" / "state" / "daemon.lock")


def test_a_folder_that_cannot_be_written_is_the_one_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    for path in (tmp_path / "file" / "run", tmp_path / "file" / "run" / "deeper"):
        with pytest.raises(FolderError) as caught:
            make_folder(path)
        assert caught.value.folder == path
    (tmp_path / "daemon.lock").mkdir()
    with pytest.raises(FolderError) as caught:
        DaemonLock.acquire(tmp_path / "daemon.lock")
    assert caught.value.folder == tmp_path
