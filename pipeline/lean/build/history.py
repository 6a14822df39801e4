"""Whether one commit is an ancestor of another, asked of git in a worktree that the daemon made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_TIMEOUT_S = 60.0


def is_ancestor(worktree: Path, older: str, newer: str) -> bool:
    """Say whether the commit `newer` has `older` in its history; False too where git cannot tell.

    Both are full commit ids. What git reads is the mirror's, nothing that the repository could write.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C",
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CEILING_DIRECTORIES": str(worktree.absolute().parent),
    }
    try:
        asked = subprocess.run(
            ["git", "merge-base", "--is-ancestor", older, newer],
            cwd=worktree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return False  # then the build starts from nothing, which is right and slower
    return asked.returncode == 0
