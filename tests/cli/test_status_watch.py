"""`everlean status --watch`: in place on a terminal, line by line elsewhere, through restarts, until Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from daemon.cli.render import cut_line
from daemon.place.lock import DaemonLock
from tests.support.state_folder import COMMAND, StateFolder, environment

PATIENCE_S = 60.0


@contextmanager
def watching(folder: StateFolder, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`everlean status --watch` with pipes; ended by Ctrl-C, which has to end it well."""
    process = subprocess.Popen(
        [str(COMMAND), "status", "--watch", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=folder.root,
        env={**environment(folder.root), "EVERLEAN_CONFIG": str(folder.config)},
    )  # fmt: skip
    try:
        yield process
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.wait()


def line(process: subprocess.Popen[str]) -> str:
    stream: IO[str] | None = process.stdout
    assert stream is not None
    return stream.readline()


def until(process: subprocess.Popen[str], text: str) -> str:
    """Read lines until one has this in it."""
    deadline = time.monotonic() + PATIENCE_S
    while text not in (result := line(process)):
        assert result, "it ended"
        assert time.monotonic() < deadline, result
    return result


def test_with_json_each_turn_is_a_whole_document_in_a_line(filled: StateFolder) -> None:
    with watching(filled, "0.2", "--json") as process:
        documents = [json.loads(line(process)) for _ in range(3)]
    assert {document["schema"] for document in documents} == {1}
    assert all(document["sorries"]["open"] == 1 for document in documents)


def test_in_a_pipe_it_is_a_line_a_turn_through_a_restart_and_a_file_that_is_away_for_a_moment(
    filled: StateFolder,
) -> None:
    with watching(filled, "0.2") as process:
        first = line(process)
        assert re.match(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  everlean is not running\. When it stopped: ", first
        )
        assert line(process).startswith("  error: the daemon is not running")
        assert re.match(r"\d{4}-", line(process)), (
            "a problem that was there the turn before is not said again"
        )
        held = DaemonLock.acquire(filled.state / "daemon.lock")
        try:
            assert "everlean is running with 1 problem" in until(process, "is running")
            assert "no daemon listens there" in until(process, "error:")
        finally:
            held.release()
        until(process, "is not running")
        filled.config.rename(filled.root / "away.toml")
        assert "is not a file" in until(process, "cannot be said now")
        (filled.root / "away.toml").rename(filled.config)
        until(process, "When it stopped: 1 repository watched")


def test_on_a_terminal_it_redraws_in_place_within_its_size_and_gives_the_screen_back(
    filled: StateFolder,
) -> None:
    rows, columns = 12, 34
    terminal, other = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    # These would count more than what the terminal says.
    bare = {
        name: value for name, value in environment(filled.root).items() if name not in ("LINES", "COLUMNS")
    }
    process = subprocess.Popen(
        [str(COMMAND), "status", "--watch", "0.2"], stdin=other, stdout=other, stderr=other, cwd=filled.root,
        env={**bare, "EVERLEAN_CONFIG": str(filled.config), "TERM": "xterm"},
        start_new_session=True,
    )  # fmt: skip
    os.close(other)
    written = ""
    deadline = time.monotonic() + PATIENCE_S
    try:
        while written.count("\x1b[J") < 4:
            assert time.monotonic() < deadline, written
            written += read(terminal)
        process.send_signal(signal.SIGINT)
        while part := read(terminal):
            written += part
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert written.count("\x1b[?1049h") == written.count("\x1b[?1049l") == 1
    assert written.index("\x1b[?25l") < written.index("\x1b[?25h")
    inside, _, after = written.partition("\x1b[?1049l")
    assert "everlean is not running. When it stopped:" in " ".join(after.split())
    assert "Traceback" not in written
    frames = inside.split("\x1b[H")[1:]
    assert len(frames) >= 3
    for frame in frames[:-1]:
        shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", frame).split("\r\n")
        assert len(shown) == rows
        assert max(len(text) for text in shown) <= columns
        assert shown[0].startswith(shown[0][:8] + " UTC, every 0.2s")
        assert shown[-1].endswith("more lines)")
        assert frame.endswith("\x1b[K\x1b[J")


def read(terminal: int) -> str:
    """Return the terminal's output since the last read; "" at its end."""
    ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
    assert ready, "nothing was written"
    try:
        return os.read(terminal, 65536).decode(errors="replace")
    except OSError:  # how Linux says that the other side is closed
        return ""


def test_what_makes_no_sense_together_is_a_mistake(filled: StateFolder) -> None:
    earlier = filled.everlean("status", "--watch", "--as-of", "1")
    assert (earlier.code, "--as-of is about the past" in earlier.err) == (2, True)
    often = filled.everlean("status", "5")
    assert (often.code, "only --watch asks more than once" in often.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("plain", 5, "plain"),
        ("plainly", 5, "plai…"),
        ("\x1b[31mred\x1b[0m and more", 20, "\x1b[31mred\x1b[0m and more"),
        ("\x1b[31mred\x1b[0m and more", 6, "\x1b[31mred\x1b[0m a…\x1b[0m"),
        ("\x1b[31mcrimson\x1b[0m", 4, "\x1b[31mcri…\x1b[0m"),
        ("漢字漢字", 5, "漢字…"),
    ],
)
def test_a_line_is_cut_to_what_it_takes_on_a_terminal_whatever_its_colour(
    text: str, width: int, expected: str
) -> None:
    assert cut_line(text, width) == expected
