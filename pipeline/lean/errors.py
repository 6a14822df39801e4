"""What can go wrong between us and a Lean REPL, as one small tree.

`ReplRefused` is the only one that leaves the process usable: the REPL answered, with an error object. After
any other the process is gone (killed by us if it had not died by itself) and a new one has to be started.
"""

from __future__ import annotations


class ReplError(Exception):
    """The Lean REPL could not serve a request."""


class ReplStartError(ReplError):
    """The REPL never became ready."""


class ReplDied(ReplError):  # noqa: N818 - named by what happened
    """The REPL process ended, or had to be ended, while it owed an answer.

    `returncode` is None when it is not known; `stderr` holds the last lines that it wrote there.
    """

    def __init__(self, message: str, *, returncode: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr


class ReplTimeout(ReplDied):
    """The REPL gave no answer in time, not even to its own interrupt, and was killed."""


class ReplProtocolError(ReplDied):
    """The REPL wrote something that is no answer of the protocol, and was killed."""


class ReplRefused(ReplError):  # noqa: N818 - named by what happened
    """The REPL answered with an error object; it is still usable.

    `kind` is the protocol's word (`command`, `index`, `parse`, `elab`, `io`, …) and `desc` its text.
    """

    def __init__(self, kind: str, desc: str, *, command: str = "") -> None:
        super().__init__(f"{command + ': ' if command else ''}the Lean REPL refused ({kind}): {desc}")
        self.kind = kind
        self.desc = desc
        self.command = command


class StaleState(ReplError):  # noqa: N818 - named by what happened
    """A state belongs to another process, or to this one before a reset; it must be built again here."""


class MalformedReply(ReplError):  # noqa: N818 - named by what happened
    """A reply does not have the shape that the protocol promises; the client turns it into ReplProtocolError."""
