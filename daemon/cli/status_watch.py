"""`unsorry status --watch`: the same answer again and again, in place on a terminal, line by line anywhere else.

Each turn looks for the daemon, its folders and its database anew, so that a restart, a rebuild or an edited
configuration in between is shown and ends nothing. Standard library only.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from daemon.cli.context import CliError, locate
from daemon.cli.render import clean, cut_line, emit_json_line, headline, say
from daemon.cli.status_report import collect
from daemon.http.control_client import ControlError
from daemon.lock import FolderError
from store.errors import LogError

_TRANSIENT = (CliError, LogError, ControlError, FolderError)
"""What one turn may meet and the next one not: a file that an editor just replaces, a view that is being rebuilt."""

_OTHER_SCREEN, _OWN_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def watch(
    config: Path | None, *, every_s: float, as_json: bool, show: Callable[[dict[str, Any]], None]
) -> None:
    """Answer every `every_s` seconds until Ctrl-C; `show` writes a report for people to standard output.

    Raises:
        CliError: the first answer cannot be given. Later ones that cannot be say so and are asked again.
    """
    report = collect(locate(config))
    turns = _turns(report, config, every_s)
    with contextlib.suppress(KeyboardInterrupt):
        if as_json:
            for report in turns:
                emit_json_line(report)
        elif sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            _redraw(turns, every_s=every_s, show=show)
        else:
            _tell(turns)


def _turns(first: dict[str, Any], config: Path | None, every_s: float) -> Iterator[dict[str, Any]]:
    """Yield a report for each turn; one that could not be made has `unreadable` alone, with the reason."""
    yield first
    due = time.monotonic()
    while True:
        # From the turn's beginning, so that a slow answer does not stretch the interval, and never a burst.
        due = max(due + every_s, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            report = collect(locate(config))
        except _TRANSIENT as error:
            report = {"unreadable": str(error)}
        yield report


def _redraw(
    turns: Iterator[dict[str, Any]], *, every_s: float, show: Callable[[dict[str, Any]], None]
) -> None:
    with _other_screen():
        for report in turns:
            screen = _Screen()
            with contextlib.redirect_stdout(screen):
                if "unreadable" in report:
                    say(f"cannot be said now: {headline(report['unreadable'])}")
                else:
                    show(report)
            sys.stdout.write(_frame(screen.getvalue().splitlines(), every_s=every_s))
            sys.stdout.flush()
    # What was on the screen last is gone with it: one line of it stays.
    if "unreadable" not in report:
        say(report["summary"])


class _Screen(io.StringIO):
    """A frame for the terminal, buffered until it is complete."""

    def isatty(self) -> bool:
        return True


def _frame(lines: list[str], *, every_s: float) -> str:
    """Put the lines over those of the frame before, cut to the terminal as it is now."""
    size = shutil.get_terminal_size()
    clock = datetime.now(UTC).strftime("%H:%M:%S")
    head = f"{clock} UTC, every {every_s:g}s, Ctrl-C ends"
    room = max(size.lines - 1, 1)
    body = lines if len(lines) <= room else [*lines[: room - 1], f"({len(lines) - room + 1} more lines)"]
    shown = [cut_line(line, size.columns) for line in [head, *body][: size.lines]]
    return _HOME + f"{_REST_OF_LINE}\n".join(shown) + _REST_OF_LINE + _REST_OF_SCREEN


@contextlib.contextmanager
def _other_screen() -> Iterator[None]:
    """Draw on the terminal's second screen; whatever ends us, the first one comes back with its cursor."""

    def end(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    sys.stdout.write(_OTHER_SCREEN)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.write(_OWN_SCREEN)
        sys.stdout.flush()
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(turns: Iterator[dict[str, Any]]) -> None:
    """One line a turn, and below it each problem that was not there the turn before."""
    known: set[tuple[str, str | None, str]] = set()
    for report in turns:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if "unreadable" in report:
            say(f"{now}  cannot be said now: {headline(report['unreadable'])}")
        else:
            say(f"{now}  {report['summary']}")
            present = set()
            for problem in report["problems"]:
                key = (problem["code"], problem["subject"], headline(problem["message"]))
                present.add(key)
                if key not in known:
                    say(f"  {problem['severity']}: {key[2]}  -> {clean(problem['remedy'])}")
            known = present
        sys.stdout.flush()
