"""Run a command that gets SIGTERM when the daemon dies: `python -m daemon.jobs.tied COMMAND…`.

Without it a launcher in the queue of a cluster could outlive the daemon by hours.
"""

from __future__ import annotations

import os
import sys

from pipeline.jobs.protocol import end_with_the_daemon

if __name__ == "__main__":
    end_with_the_daemon()
    try:
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the very words of the configuration
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error.strerror}")
