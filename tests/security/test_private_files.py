"""Who may read what a daemon writes, whichever way it is started."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.place.lock import close_folder
from tests.support.daemon.deployment import Deployment

FILES = {
    "lean-toolchain": "leanprover/lean4:v4.21.0\n",
    "Demo.lean": "theorem one (p : Prop) (h : p) : p := by\n  sorry\n",
}


def open_to(folder: Path, whom: int) -> Iterator[str]:
    """Yield each path below that these bits let in: 0o077 are group and others, 0o007 others. Links have no mode."""
    for path in [folder, *folder.rglob("*")]:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue  # another process has removed it since it was listed
        if not stat.S_ISLNK(mode) and mode & whom and path.name != "control.sock":
            yield f"{stat.filemode(mode)} {path.relative_to(folder)}"


@pytest.mark.parametrize(
    ("umask", "closed_to"),
    [(0o022, 0o077), (0o027, 0o007)],
    ids=["by hand", "by a unit whose group may read"],
)
def test_what_the_daemon_writes_is_its_user_s_and_of_the_group_that_its_start_let_in(
    umask: int, closed_to: int, tmp_path: Path
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", FILES)
    deployment.write(repos=[remote.path], every="1s")
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    state.chmod(0o755)
    with deployment.daemon(prelude=f"import os; os.umask({umask:#o})", forked_jobs=False) as process:
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="a job")
        seen = list(state.rglob("*"))
        assert {"events.db", "database.db", "control.sock", "mirrors"} <= {path.name for path in seen}
        # Compiled files and data sets are given their own modes, below folders that are closed.
        assert stat.S_IMODE(state.stat().st_mode) & closed_to == 0
        assert list(open_to(state, closed_to)) == []
        (socket,) = (path for path in seen if path.name == "control.sock")
        assert stat.S_IMODE(socket.stat().st_mode) == 0o660
        process.terminate()
        assert process.wait(timeout=20) == 0
    assert list(open_to(state, closed_to)) == []
    assert stat.S_IMODE((state / "events.db").stat().st_mode) == 0o666 & ~umask & ~closed_to


def test_a_folder_that_an_earlier_version_left_open_is_closed_and_nobody_else_s(tmp_path: Path) -> None:
    ours, empty, theirs, closed = (tmp_path / name for name in ("ours", "empty", "theirs", "closed"))
    for folder in (ours, empty, theirs, closed):
        folder.mkdir()
        folder.chmod(0o755)
    (ours / "events.db").touch()
    (theirs / "photographs").touch()
    closed.chmod(0o750)
    before = os.umask(0o077)
    try:
        assert [close_folder(folder) for folder in (ours, empty, theirs, closed)] == [
            True,
            True,
            False,
            False,
        ]
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(folder.stat().st_mode) for folder in (ours, empty, theirs, closed)]
    assert modes == [0o700, 0o700, 0o755, 0o750]
