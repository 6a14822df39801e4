"""End what a killed process of a node leaves of its attempt: `python -m daemon.jobs.orphans DIRECTORY`.

A node may never come back, so that no next look at it removes anything. Each attempt there has one of these beside it,
in a session of its own and no child of Ray's, which ends its children with the node. It waits for the lock that the
attempt's process holds (`daemon.jobs.node`). The job itself has asked for a SIGTERM by then, but may ignore it, and
what it started has asked for nothing.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

LOCK = "node.lock"


def guard(directory: Path, environment: dict[str, str]) -> None:
    """Start one for the attempt in this folder, whose lock the caller holds.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be started.
    """
    subprocess.run(
        [sys.executable, "-P", "-m", "daemon.jobs.orphans", str(directory)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        check=True,
    )


def main(directory: Path) -> None:
    """Return at once; a child waits and ends what is left."""
    with (directory / LOCK).open("rb") as lock:
        if os.fork():
            return
        os.setsid()
        os.chdir("/")
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.fstat(lock.fileno()).st_nlink:  # else the attempt's process has removed it with all the rest
            # Only now: it is rarely needed, and takes more memory and time than all before it. What runs goes first.
            from pipeline.jobs.child import kill_marked

            kill_marked(directory)
            from daemon.jobs.node import node_paths, remove

            remove(node_paths(), directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
