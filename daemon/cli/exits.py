"""The exit codes, documented in docs/cli.md and stable, and the error that carries one to the top."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What the process ends with. A code that is not listed here means failure."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_RUNNING = 3
    DIFFERENCES = 6
    ALREADY_RUNNING = 75
    BAD_CONFIG = 78


class CliError(Exception):
    """A verb cannot go on; the message names the thing, the reason and the remedy."""

    def __init__(self, message: str, *, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code
