"""End what a killed process of a node leaves of its attempt: `python -m daemon.jobs.orphans LOCK`.

A node may never come back, so that no next look at it removes anything. Each attempt there has one of these beside it,
in a session of its own and no child of Ray's, which ends its children with the node. It waits for the lock that the
attempt's process (`daemon.jobs.node`) holds in the attempt's folder. The job itself has asked for a SIGTERM by then,
but may ignore it, and what it started has asked for nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from store.files import lock


def guard(path: Path, environment: dict[str, str]) -> None:
    """Start one for the attempt whose lock file this is; the caller holds it.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be started.
    """
    subprocess.run(
        [sys.executable, "-P", "-m", "daemon.jobs.orphans", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        check=True,
    )


def main(path: Path) -> None:
    """Return at once; a child waits and ends what is left."""
    # Opened before the fork: the caller holds the lock until then, so that the file is there.
    descriptor = os.open(path, os.O_RDONLY)
    if os.fork():
        return
    os.setsid()
    os.chdir("/")
    with lock(descriptor, shared=True) as held:
        if os.fstat(held.descriptor).st_nlink:  # else the attempt's process has removed it with all the rest
            # Only now: it is rarely needed, and takes more memory and time than all before it. What runs goes first.
            from pipeline.jobs.child import kill_marked

            kill_marked(path.parent)
            from daemon.jobs.node_files import node_paths, remove

            remove(node_paths(), path.parent)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
