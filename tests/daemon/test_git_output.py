"""What a remote makes git print fits into a small daemon, however long it is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from daemon.polling import git as git_module
from daemon.polling import git_process
from daemon.polling.errors import RemoteError
from daemon.polling.git import Git


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a git on PATH that never stops to speak, as a remote's helper can."""
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return program


def script(program: Path, text: str) -> None:
    program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    program.chmod(0o755)


def test_an_endless_list_of_branches_is_refused_by_its_size_and_not_by_the_clock(
    endless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(endless, f"echo $$ > {endless.parent}/pid; yes 'f00 refs/heads/x'")
    monkeypatch.setattr(git_module, "_MOST_REFS_BYTES", 2**20)
    with pytest.raises(RemoteError, match="git ls-remote of somewhere: more than 1 MiB of output") as caught:
        asyncio.run(Git(timeout_s=60).ls_remote("somewhere"))
    assert caught.value.problem == "invalid"
    pid = (endless.parent / "pid").read_text(encoding="ascii").strip()
    assert not Path("/proc", pid).exists()


def test_endless_complaints_are_cut_and_do_not_block(endless: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(endless, "yes 'fatal: no' | head -c 8000000 >&2; exit 128")
    monkeypatch.setattr(git_process, "_MOST_ERROR_BYTES", 4096)
    with pytest.raises(RemoteError, match="fatal: no") as caught:
        asyncio.run(Git(timeout_s=60).ls_remote("somewhere"))
    assert len(str(caught.value)) < 1000
