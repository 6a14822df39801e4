from __future__ import annotations

import errno
import fcntl
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from store.files import HeldError, lock, sync, sync_tree, write_whole, written_whole

_HOLD = """
import sys
from pathlib import Path
from store.files import lock
held = lock(Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is flushed to the disk, in order."""
    names: list[str] = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    return names


def test_content_is_flushed_under_another_name_and_then_the_folder(
    tmp_path: Path, flushed: list[str]
) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")
    write_whole(path, "nëw")
    assert path.read_bytes() == "nëw".encode()
    half, folder = flushed[2:]
    assert half.startswith(".file.")
    assert half.endswith(".tmp")
    assert folder == tmp_path.name
    assert [*tmp_path.iterdir()] == [path]


def test_a_name_that_need_not_last_costs_no_flush(tmp_path: Path, flushed: list[str]) -> None:
    write_whole(tmp_path / "file", b"content", flush_folder=False)
    assert tmp_path.name not in flushed
    assert len(flushed) == 1


def test_a_file_system_that_flushes_no_folder_takes_files_and_a_file_that_is_not_flushed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: Callable[[Path], bool] = Path.is_dir

    def flush(descriptor: int) -> None:
        if refused(Path(f"/proc/self/fd/{descriptor}").resolve()):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", flush)
    write_whole(tmp_path / "file", "content")
    assert (tmp_path / "file").read_bytes() == b"content"
    refused = Path.is_file
    with pytest.raises(OSError, match="Invalid argument"):
        write_whole(tmp_path / "file", "new")
    with pytest.raises(OSError, match="Invalid argument"):
        sync(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize("temporary", [None, "file.part"])
def test_an_error_leaves_the_old_file_and_no_half_one(tmp_path: Path, temporary: str | None) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def halfway() -> None:
        with written_whole(path, temporary=None if temporary is None else tmp_path / temporary) as file:
            file.write(b"new")
            raise ValueError("halfway")

    with pytest.raises(ValueError, match="halfway"):
        halfway()
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]


def test_a_temporary_file_that_was_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"a longer half of a killed one")
    with written_whole(tmp_path / "file", temporary=tmp_path / "part") as file:
        file.write(b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "part").exists()


def test_two_writers_leave_the_whole_file_of_the_later_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with written_whole(path) as one:
        one.write(b"one")
        with written_whole(path) as two:
            two.write(b"two")
        assert path.read_bytes() == b"two"
    assert path.read_bytes() == b"one"


@pytest.mark.parametrize(
    ("mode", "umask", "seen"), [(0o666, 0o022, 0o644), (0o666, 0o077, 0o600), (0o600, 0, 0o600)]
)
def test_permissions_are_the_mode_less_the_umask(tmp_path: Path, mode: int, umask: int, seen: int) -> None:
    before = os.umask(umask)
    try:
        with written_whole(tmp_path / "file", mode=mode):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == seen


def test_a_tree_is_flushed_to_its_last_file(tmp_path: Path, flushed: list[str]) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    sync_tree(tmp_path)
    assert sorted(flushed) == sorted(["a", "b", "c", tmp_path.name])
    with (tmp_path / "a" / "b" / "c").open("wb") as file:
        sync(file.fileno())
    assert flushed[4:] == ["c"]


def test_a_lock_keeps_others_out_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path) as held:
        held.leave_note("process 12 (at work)")
        for shared in (False, True):
            with pytest.raises(HeldError, match=r"held by process 12 \(at work\)") as caught:
                lock(path, shared=shared, wait_s=0)
            assert caught.value.note == "process 12 (at work)"
        held.leave_note("other")
        with pytest.raises(HeldError, match="held by other"):
            lock(path, wait_s=0.01)
    lock(path, wait_s=0).release()
    assert path.exists()
    held.release()


def test_those_who_share_a_lock_keep_out_whoever_does_not(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with (
        lock(path, shared=True, create=False),
        lock(path, shared=True, wait_s=0),
        pytest.raises(HeldError, match="held by another process"),
    ):
        lock(path, wait_s=0)


def test_a_lock_that_nobody_remembers_is_released(tmp_path: Path) -> None:
    lock(tmp_path / "lock")
    gc.collect()
    lock(tmp_path / "lock", wait_s=0).release()


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _HOLD,
            str(path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(HeldError):
        lock(path, wait_s=0)
    holder.kill()
    lock(path, wait_s=30).release()
    lock(path).release()
    holder.communicate()


def test_a_folder_is_locked_as_a_file_is(tmp_path: Path) -> None:
    with lock(tmp_path, create=False), pytest.raises(HeldError, match="another process"):
        lock(tmp_path, create=False, wait_s=0)


def test_a_lock_knows_whether_its_path_still_names_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock(path) as held:
        assert held.is_of(path)
        path.unlink()
        assert not held.is_of(path)
        path.touch()
        assert not held.is_of(path)


def test_a_missing_file_is_made_or_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lock(tmp_path / "lock", create=False)
    lock(tmp_path / "lock").release()


def _by_path(path: Path) -> Path | int:
    return path


def _by_descriptor(path: Path) -> Path | int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


@pytest.mark.parametrize("opened", [_by_path, _by_descriptor])
def test_what_is_refused_leaves_no_descriptor_open(
    tmp_path: Path, opened: Callable[[Path], Path | int]
) -> None:
    path = tmp_path / "lock"
    with lock(path):
        before = len([*Path("/proc/self/fd").iterdir()])
        with pytest.raises(HeldError):
            lock(opened(path), wait_s=0)
        assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_file_system_without_locks_is_an_error_and_no_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(_descriptor: int, _kind: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(OSError, match="No locks available"):
        lock(tmp_path / "lock", wait_s=0)
