"""Become a command that is told to end when the daemon dies: `python -m daemon.jobs.tied COMMAND…`.

A launcher may wait for a machine for hours, and would else outlive the daemon for as long.
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
