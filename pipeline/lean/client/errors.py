"""Errors between the client and a Lean REPL, under one base class.

    ReplError
    ├── ReplStartError          never became ready
    │   └── ImportsRefused      Lean runs, and rejected the imports
    ├── ReplDied                the process is gone; start another
    │   ├── ReplTimeout         no answer, not even to its own interrupt
    │   └── ReplProtocolError   its output was no answer
    ├── ReplRefused             it answered with an error object and is still usable
    │   ├── BadRequest          our bug: ill-formed request, unknown command, unknown id or name
    │   ├── InputRejected       the given text does not parse, elaborate or compile
    │   ├── RequestFailed       well-formed, but cannot be done (no goals, wrong fragment, file error, …)
    │   ├── LimitReached        time, heartbeat or recursion limit inside Lean
    │   └── ReplSuspect         an error that escaped Lean's own handling; the client takes no further call
    ├── UnsupportedByDialect    this version of the REPL lacks it
    └── StaleState              a state of another process, or of before a reset

The REPL's words for error kinds differ between versions (`dialect.py`); `refusal` knows both. After a `ReplDied` the
process is gone (killed by us if it had not died by itself). After a `ReplSuspect` it still runs but `Repl.alive` is
False, so that it is recycled.
"""

from __future__ import annotations


class ReplError(Exception):
    """The Lean REPL could not serve a request."""


class ReplStartError(ReplError):
    """The REPL never became ready."""


class ImportsRefused(ReplStartError):  # noqa: N818 - named by what happened
    """Lean runs, and rejected the imports."""


class ReplDied(ReplError):  # noqa: N818 - named by what happened
    """The REPL process ended, or had to be ended, while it owed an answer.

    `returncode` is None when unknown; `stderr` holds the last lines of standard error.
    """

    def __init__(self, message: str, *, returncode: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stderr = stderr


class ReplTimeout(ReplDied):
    """The REPL gave no answer in time, not even to its own interrupt, and was killed."""


class ReplProtocolError(ReplDied):
    """The REPL wrote something outside the protocol, and was killed."""


class ReplRefused(ReplError):  # noqa: N818 - named by what happened
    """The REPL answered with an error object.

    `kind` is the protocol's word (`command`, `index`, `parse`, `elab`, `io`, …), `desc` its text and `command` the
    request. Only the subclasses below are raised; see `refusal`.
    """

    def __init__(self, kind: str, desc: str, *, command: str = "") -> None:
        super().__init__(f"{command + ': ' if command else ''}the Lean REPL refused ({kind}): {desc}")
        self.kind = kind
        self.desc = desc
        self.command = command


class BadRequest(ReplRefused):
    """The request was wrong in itself: a bug of this program, or an unknown id or name (`index`)."""


class InputRejected(ReplRefused):
    """The given text (a term, a type, a file to distil or refactor) is not valid Lean here."""


class RequestFailed(ReplRefused):
    """The REPL understood the request and could not do it; the state is unchanged."""


class LimitReached(ReplRefused):
    """Lean's own limit on time, heartbeats or recursion ended the work; for a tactic: it failed."""


class ReplSuspect(ReplRefused):
    """An error that escaped its handler, or of an unknown kind: recycle the process."""


class UnsupportedByDialect(ReplError):  # noqa: N818 - named by what happened
    """This REPL's version lacks the command or the field; the text names both and the remedy."""


class StaleState(ReplError):  # noqa: N818 - named by what happened
    """A state of another process, or of this one before a reset; build it again here."""


class MalformedReply(ReplError):  # noqa: N818 - named by what happened
    """A reply breaks the shape promised by the protocol; the client turns it into ReplProtocolError."""


# The older line's words (up to about 0.3.7) and the newer ones; no word means different things in the two.
_CLASSES: dict[str, type[ReplRefused]] = {
    "command": BadRequest,
    "arguments": BadRequest,  # older; newer: command
    "operation": BadRequest,  # older; newer: command
    "index": BadRequest,
    "parse": InputRejected,
    "parsing": InputRejected,  # older; newer: parse
    "expr": InputRejected,  # older; newer: parse
    "elab": InputRejected,
    "typing": InputRejected,
    "frontend": InputRejected,
    "exception": RequestFailed,
    "invalid": RequestFailed,
    "structure": RequestFailed,
    "io": RequestFailed,  # newer: files, and the older core and internal
    "core": LimitReached,  # older; newer: io
    "internal": LimitReached,  # older; newer: io
    "main": ReplSuspect,
}
_ESCAPED = "unexpected internal error"
_LIMITS = ("interrupt", "deterministic) timeout", "heartbeats", "maximum recursion depth", "deep recursion")
# These compile whole files and answer `io` with the compiler's messages.
_COMPILING = frozenset({"frontend.distil"})
# The tactic sandbox touches no file: an error escaping from it is a limit or another runtime exception.
_RUNTIME = frozenset({"io", "core", "internal"})


def refusal(kind: str, desc: str, *, command: str) -> ReplRefused:
    """Return the exception for an error object `{"error": kind, "desc": desc}` in answer to `command`."""
    result = _CLASSES.get(kind, ReplSuspect)
    if kind in _RUNTIME:
        first = desc.partition("\n")[0]
        if desc.startswith(_ESCAPED):
            result = ReplSuspect
        elif command in _COMPILING and desc != "interrupt":
            # The compiler's messages may well speak of heartbeats; still the text was refused.
            result = InputRejected
        elif any(mark in first for mark in _LIMITS):
            result = LimitReached
    return result(kind, desc, command=command)


def is_failed_tactic(error: ReplRefused) -> bool:
    """Return whether an error object in answer to `goal.tactic` means only that the tactic failed."""
    return error.kind in _RUNTIME and not isinstance(error, ReplSuspect)


def short(text: str) -> str:
    """Return the text, or its beginning and its end: a dying process's last words matter most."""
    text = " ".join(text.split())
    return text if len(text) <= 600 else f"{text[:250]} … {text[-340:]}"
