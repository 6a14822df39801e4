"""A REPL and a language server that were taken over, and send what no Lean sends.

Each is one typed error, bounded in memory and in time, and leaves no process.
"""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client import process
from pipeline.lean.client.errors import ReplDied, ReplProtocolError, ReplStartError, ReplTimeout
from pipeline.lean.client.repl import Repl
from pipeline.lean.client.server import ServerRepl

FakeRepl = Callable[[str], LeanBackend]
MIB = 2**20
SERVER = """
import json, os, sys, time
out, into = sys.stdout.buffer, sys.stdin.buffer
def send(message, said=None):
    data = json.dumps(message).encode() if said is None else said
    out.write(b"Content-Length: %d\\r\\n\\r\\n" % len(data) + data); out.flush()
def requests():
    while line := into.readline():
        length = int(line.split(b":")[1]); into.readline()
        yield json.loads(into.read(length))
def honest(request):
    "Answer as a Lean that finds nothing wrong."
    if "id" in request: send({"jsonrpc": "2.0", "id": request["id"], "result": {}})
hostile = False
for request in requests():
    text = json.dumps(request.get("params", {}))
    hostile = hostile or "ATTACK" in text
    if not hostile: honest(request)
    elif "id" in request: break
"""


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> int:
    """A line may be 8 MiB instead of 256."""
    monkeypatch.setattr(process, "MAX_LINE_BYTES", 8 * MIB)
    return 8 * MIB


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def twice(repl: Repl) -> None:
    """Ask two times: what is said after an answer is noticed by the next request."""
    for _ in range(2):
        await repl.process("x")
        await asyncio.sleep(0.1)


REPL_ATTACKS = {
    "a line without an end": ("while True: sys.stdout.write('x' * 65536)", ReplProtocolError),
    "half a line, then nothing": (
        "sys.stdout.write('{\"units\":'); sys.stdout.flush(); time.sleep(60)",
        ReplTimeout,
    ),
    "JSON of a million levels": ("say('[' * 1000000)", ReplProtocolError),
    "an object of a million levels": ("say('{\"a\":' * 1000000 + '}' * 1000000)", ReplProtocolError),
    "a number without an end": ("say('{\"units\":' + '9' * 5000000 + '}')", ReplProtocolError),
    "lines after the answer": ("say('{\"units\":[]}'); say('{}'); time.sleep(60)", ReplProtocolError),
    "lines without an end": ("while True: say('{\"units\":[]}')", ReplProtocolError),
    "half a character": ('say(\'{"units":"\\\\ud800"}\')', ReplProtocolError),
}


@pytest.mark.parametrize(("body", "error"), REPL_ATTACKS.values(), ids=REPL_ATTACKS.keys())
def test_what_no_repl_sends_ends_the_session_with_a_typed_error(
    fake_repl: FakeRepl, tmp_path: Path, narrow: int, body: str, error: type[ReplDied]
) -> None:
    backend = fake_repl(f'say("ready.")\nfor command, payload in requests():\n    {body}\n')

    async def run() -> tuple[int, float, int]:
        repl = await Repl.start(
            backend,
            imports=["Init"],
            project=tmp_path,
            ready_timeout_s=10,
            call_timeout_s=1.5,
            grace_s=0.2,
            dialect="newer",
        )
        before, began = resident(), time.monotonic()
        try:
            with pytest.raises(error):
                await twice(repl)
            assert not repl.alive
        finally:
            await repl.close()
        return repl.pid, time.monotonic() - began, resident() - before

    pid, took, grew = asyncio.run(run())
    assert gone(pid)
    assert took < 8
    assert grew < 12 * narrow


TO_NOBODY = "{'jsonrpc': '2.0', 'id': 10**9, 'result': {}}"
DIAGNOSTICS = (
    "'method': 'textDocument/publishDiagnostics',"
    " 'params': {'version': 2, 'isIncremental': True, 'diagnostics': %s}"
)
SERVER_ATTACKS = {
    "no header": ("while True: out.write(b'x' * 65536)", ReplProtocolError),
    "a header without an end": (
        "out.write(b'Content-Length: 5\\r\\n')\nwhile True: out.write(b'X-a: ' + b'x' * 65536 + b'\\r\\n')",
        ReplProtocolError,
    ),
    "a length beyond all measure": (
        "out.write(b'Content-Length: ' + b'9' * 200 + b'\\r\\n\\r\\n'); out.flush(); time.sleep(60)",
        ReplProtocolError,
    ),
    "a length of gigabytes": (
        "out.write(b'Content-Length: 9000000000\\r\\n\\r\\n')\nwhile True: out.write(b'x' * 65536)",
        ReplProtocolError,
    ),
    "half a frame, then nothing": (
        "out.write(b'Content-Length: 99\\r\\n\\r\\n{'); out.flush(); time.sleep(60)",
        ReplTimeout,
    ),
    "JSON of a million levels": ("send(None, b'[' * 1000000); time.sleep(60)", ReplProtocolError),
    "no object": ("send([1]); time.sleep(60)", ReplProtocolError),
    "answers to nothing, without an end": (f"while True: send({TO_NOBODY})", ReplProtocolError),
    "questions without an end": (
        "while True: send({'jsonrpc': '2.0', 'id': 'x' * 60000, 'method': 'window/showMessageRequest'})",
        ReplProtocolError,
    ),
    "messages without an end": (f"while True: send({{{DIAGNOSTICS % '[{}]'}}})", ReplProtocolError),
    "messages of another shape": (
        f"send({{{DIAGNOSTICS % '[1, None]'}}}); honest(request); time.sleep(60)",
        ReplProtocolError,
    ),
    "progress of another shape": (
        "send({'method': '$/lean/fileProgress', 'params': {'processing': 3}}); time.sleep(60)",
        ReplProtocolError,
    ),
}


@pytest.mark.parametrize(("body", "error"), SERVER_ATTACKS.values(), ids=SERVER_ATTACKS.keys())
def test_what_no_language_server_sends_ends_the_session_with_a_typed_error(
    tmp_path: Path, narrow: int, body: str, error: type[ReplDied]
) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER + textwrap.dedent(body), "utf-8")
    backend = LeanBackend(
        kind="server",
        argv=(sys.executable, "-I", str(script)),
        detail="a script of this test",
        toolchain="",
        sandbox="none",
    )

    async def run() -> tuple[int, float, int]:
        repl = await ServerRepl.start(
            backend, imports=["Init"], project=tmp_path, ready_timeout_s=10, call_timeout_s=3.0, grace_s=0.2
        )
        before, began = resident(), time.monotonic()
        try:
            with pytest.raises(error):
                await repl.process("theorem ATTACK : True := by trivial")
            assert not repl.alive
        finally:
            await repl.close()
        return repl.pid, time.monotonic() - began, resident() - before

    try:
        pid, took, grew = asyncio.run(run())
    except ReplStartError as refused:
        pytest.fail(f"the stand-in did not start: {refused}")
    assert gone(pid)
    assert took < 12
    assert grew < 12 * narrow
