"""The client against processes that behave badly: each ends in one typed error, and no process is left."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.jobs.child import kill_marked
from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.client import process as client
from pipeline.lean.client.dialect import NEWEST
from pipeline.lean.client.messages import StateRef, TacticFailed, TacticOk, TacticParseError
from pipeline.lean.client.repl import (
    Repl,
    ReplDied,
    ReplProtocolError,
    ReplRefused,
    ReplStartError,
    ReplTimeout,
    StaleState,
)

FakeRepl = Callable[[str], LeanBackend]


async def started(
    backend: LeanBackend, project: Path, *, timeout_s: float = 5.0, grace_s: float = 0.3
) -> Repl:
    return await Repl.start(
        backend,
        imports=["Init"],
        project=project,
        ready_timeout_s=10,
        call_timeout_s=timeout_s,
        grace_s=grace_s,
        dialect=NEWEST,
    )


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"


def test_requests_spell_out_every_bool_and_send_raw_utf8(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        say("ready.")
        with open("wire", "w", encoding="utf-8") as wire:
            for line in sys.stdin:
                wire.write(line); wire.flush()
                root = '"r"' if '"goal.start"' in line else '{"pp":"x"}'
                say('{"units":[],"targets":[],"goals":[],"stateId":0,"root":' + root + ',"messages":[],"nextStateId":1,'
                    '"hasSorry":false,"hasUnsafe":false,"extraMVars":[],"rootHasSorry":false,'
                    '"rootHasUnsafe":false,"rootHasMVar":false}')
        """
    )

    async def run() -> None:
        async with await started(backend, tmp_path) as repl:
            await repl.process("𝓝")
            await repl.distil("x")
            state = await repl.goal_start("∀ p, p")
            await repl.goal_tactic(state, "intro h", goal=2)
            await repl.goal_print(state)
            await repl.goal_delete([state])

    asyncio.run(run())
    lines = (tmp_path / "wire").read_text("utf-8").splitlines()
    assert lines == [
        '{"cmd":"options.set","payload":{"timeout":5000}}',
        '{"cmd":"frontend.process","payload":{"file":"𝓝","readHeader":false,"inheritEnv":false,"newConstants":false}}',
        '{"cmd":"frontend.distil","payload":{"file":"x","ignoreValues":false}}',
        '{"cmd":"goal.start","payload":{"expr":"∀ p, p"}}',
        '{"cmd":"goal.tactic","payload":{"stateId":0,"tactic":"intro h","goalId":2}}',
        '{"cmd":"goal.print","payload":{"stateId":0,"rootExpr":true,"goals":true}}',
        '{"cmd":"goal.delete","payload":{"stateIds":[0]}}',
    ]


def test_an_exit_before_ready_says_what_stderr_said(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        sys.stderr.write("uncaught exception: object file 'X.olean' invalid header\\n")
        sys.exit(1)
        """
    )

    with pytest.raises(ReplStartError, match="invalid header"):
        asyncio.run(started(backend, tmp_path))


def test_a_wrong_greeting_is_no_start(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl('say("hello"); time.sleep(60)')

    with pytest.raises(ReplStartError, match=r"`ready\.` was expected"):
        asyncio.run(started(backend, tmp_path))


def test_silence_at_start_ends_after_its_timeout(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl('open("pid", "w").write(str(os.getpid())); time.sleep(60)')

    slow = dataclasses.replace(backend, start_timeout_s=2)
    with pytest.raises(ReplStartError, match=r"not ready after 2 s; .*; raise \[lean\] start_timeout if"):
        asyncio.run(Repl.start(slow, imports=[], project=tmp_path))
    assert not is_running(int((tmp_path / "pid").read_text("utf-8")))


def test_no_backend_is_a_start_error_with_the_reason(tmp_path: Path) -> None:
    nothing = find_leans(backend="none", repl="", sandbox="none", toolchains=tmp_path).summary

    with pytest.raises(ReplStartError, match="switched off"):
        asyncio.run(Repl.start(nothing, imports=[], project=tmp_path))


def test_an_import_that_looks_like_an_option_is_refused(simulator: LeanBackend, tmp_path: Path) -> None:
    with pytest.raises(ReplStartError, match="no module name"):
        asyncio.run(Repl.start(simulator, imports=["--root=/"], project=tmp_path))


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("os._exit(3)", ReplDied, "exit status 3"),
        ("sys.stderr.write('libc++abi: terminating'); sys.stderr.flush(); os.abort()", ReplDied, "libc"),
        ("say('not json')", ReplProtocolError, "no JSON"),
        ("say('[1]')", ReplProtocolError, "no object"),
        ("say('{\"units\": 3}')", ReplProtocolError, "units: expected a list"),
        (
            "sys.stdout.write('{\"units\":'); sys.stdout.flush(); os._exit(0)",
            ReplDied,
            "closed its output after",
        ),
        ("sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stdout.flush()", ReplProtocolError, "no JSON"),
    ],
)
def test_a_bad_answer_is_one_typed_error_and_ends_the_process(
    fake_repl: FakeRepl, tmp_path: Path, body: str, error: type[ReplDied], said: str
) -> None:
    backend = fake_repl(f'say("ready.")\nfor command, payload in requests():\n    {body}\n')

    async def run() -> int:
        repl = await started(backend, tmp_path)
        try:
            with pytest.raises(error, match=said):
                await repl.process("x")
            assert not repl.alive
            with pytest.raises(ReplDied):
                await repl.process("x")
            return repl.pid
        finally:
            await repl.close()

    assert not is_running(asyncio.run(run()))


def test_a_hang_is_killed_shortly_after_the_time_limit(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl('say("ready.")\nfor command, payload in requests():\n    time.sleep(60)\n')

    async def run() -> tuple[float, int]:
        repl = await started(backend, tmp_path, timeout_s=0.3)
        before = time.monotonic()
        with pytest.raises(ReplTimeout, match="no answer"):
            await repl.process("x")
        took_s = time.monotonic() - before
        await repl.close()
        return took_s, repl.pid

    took_s, pid = asyncio.run(run())
    assert 0.3 <= took_s < 5
    assert not is_running(pid)


def test_a_kill_takes_the_children_of_the_process_too(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        import subprocess
        child = subprocess.Popen(["sleep", "60"])
        open("child", "w").write(str(child.pid))
        say("ready.")
        for command, payload in requests():
            time.sleep(60)
        """
    )

    async def run() -> None:
        repl = await started(backend, tmp_path, timeout_s=0.2)
        with pytest.raises(ReplTimeout):
            await repl.process("x")
        await repl.close()

    asyncio.run(run())
    child = int((tmp_path / "child").read_text("utf-8"))
    deadline = time.monotonic() + 5
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(child)


def test_a_flood_on_stderr_blocks_nothing_and_is_kept_bounded(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        say("ready.")
        for command, payload in requests():
            for index in range(2000):
                sys.stderr.write("noise " * 200 + "\\n")
            sys.stderr.write("the last line\\n"); sys.stderr.flush()
            say('{"nGoals": 4}')
        """
    )

    async def run() -> tuple[int, str]:
        async with await started(backend, tmp_path, timeout_s=20) as repl:
            count = await repl.stat()
            await asyncio.sleep(0.1)
            return count, repl.stderr

    count, stderr = asyncio.run(run())
    assert count == 4
    assert "the last line" in stderr
    assert len(stderr) <= client.STDERR_KEPT_BYTES


def test_a_line_far_beyond_asyncios_limit_arrives_whole(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        say("ready.")
        for command, payload in requests():
            unit = '{"boundary":[0,1],"messages":[]}'
            say('{"units":[' + ",".join([unit] * 200000) + "]}")
        """
    )

    async def run() -> int:
        async with await started(backend, tmp_path, timeout_s=30) as repl:
            return len(await repl.process("x"))

    assert asyncio.run(run()) == 200_000


def test_a_line_beyond_the_cap_ends_the_process(
    fake_repl: FakeRepl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_LINE_BYTES", 1_000_000)
    backend = fake_repl('say("ready.")\nfor command, payload in requests():\n    say("x" * 30000000)\n')

    async def run() -> None:
        repl = await started(backend, tmp_path)
        with pytest.raises(ReplProtocolError, match="longer than 1000000 bytes"):
            await repl.process("x")
        await repl.close()

    asyncio.run(run())


def test_a_panic_poisons_the_answer_that_it_preceded(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        say("ready.")
        for command, payload in requests():
            sys.stderr.write("PANIC at Lean.Expr.bvar! unreachable\\n"); sys.stderr.flush()
            time.sleep(0.2)
            say('{"nGoals": 0}')
        """
    )

    async def run() -> None:
        repl = await started(backend, tmp_path)
        with pytest.raises(ReplDied, match="panicked"):
            await repl.stat()
        assert not repl.alive
        await repl.close()

    asyncio.run(run())


def test_a_cancelled_call_does_not_leave_its_answer_to_the_next(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        'say("ready.")\nfor command, payload in requests():\n    time.sleep(60); say(\'{"nGoals": 1}\')\n'
    )

    async def run() -> None:
        repl = await started(backend, tmp_path)
        call = asyncio.create_task(repl.stat())
        await asyncio.sleep(0.2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(ReplDied, match="answer outstanding"):
            await repl.stat()
        await repl.close()

    asyncio.run(run())


def test_a_call_that_is_cancelled_while_the_process_reads_no_more_leaves_no_answer_either(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    backend = fake_repl(
        'say("ready.")\nsys.stdin.readline(); os.close(0); time.sleep(0.5); say(\'{"nGoals": 1}\'); time.sleep(60)\n'
    )

    async def run() -> None:
        repl = await started(backend, tmp_path)
        call = asyncio.create_task(repl.stat())
        await asyncio.sleep(0.3)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(ReplDied):
            await repl.stat()
        await repl.close()

    asyncio.run(run())


def test_closing_waits_for_no_answer_and_whoever_does_is_told(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl('say("ready.")\nfor command, payload in requests():\n    time.sleep(60)\n')

    async def run() -> int:
        repl = await started(backend, tmp_path, timeout_s=30)
        call = asyncio.create_task(repl.process("x"))
        await asyncio.sleep(0.2)
        before = time.monotonic()
        await repl.close()
        assert time.monotonic() - before < 5
        with pytest.raises(ReplDied, match="the REPL was closed"):
            await call
        return repl.pid

    assert not is_running(asyncio.run(run()))


def test_a_start_that_is_cancelled_leaves_no_process_and_no_folder(
    fake_repl: FakeRepl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    backend = fake_repl('open("pid", "w").write(str(os.getpid())); time.sleep(60)')

    async def run() -> None:
        start = asyncio.create_task(started(backend, tmp_path))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text("utf-8"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(run())
    assert not is_running(int((tmp_path / "pid").read_text("utf-8")))
    assert not list(private.iterdir())


def test_an_error_object_leaves_the_process_usable(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        say("ready.")
        for command, payload in requests():
            say('{"error":"index","desc":"Symbol not found"}' if command == "env.inspect" else '{"nGoals": 2}')
        """
    )

    async def run() -> int:
        async with await started(backend, tmp_path) as repl:
            with pytest.raises(ReplRefused) as refused:
                await repl.env_inspect("x")
            assert (refused.value.kind, refused.value.desc) == ("index", "Symbol not found")
            return await repl.stat()

    assert asyncio.run(run()) == 2


@pytest.mark.parametrize("kind", ["io", "core", "internal"])
def test_a_limit_inside_lean_is_a_failed_tactic(fake_repl: FakeRepl, tmp_path: Path, kind: str) -> None:
    backend = fake_repl(
        f'say("ready.")\nfor command, payload in requests():\n'
        f'    say(\'{{"error":"{kind}","desc":"interrupt"}}\')\n'
    )

    async def run() -> object:
        async with await started(backend, tmp_path) as repl:
            return await repl.goal_tactic(StateRef(0, repl.generation), "simp")

    result = asyncio.run(run())
    assert isinstance(result, TacticFailed)
    assert result.interrupted
    assert result.reason == "interrupt"


def test_the_interrupt_is_set_again_only_when_the_limit_changes(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        say("ready.")
        wire = open("wire", "w")
        for line in sys.stdin:
            wire.write(line); wire.flush()
            say('{"nGoals": 0, "units": []}')
        """
    )

    async def run() -> None:
        async with await started(backend, tmp_path) as repl:
            await repl.process("a", timeout_s=2)
            await repl.process("b", timeout_s=2)
            await repl.process("c")

    asyncio.run(run())
    commands = [line.split('"')[3] for line in (tmp_path / "wire").read_text("utf-8").splitlines()]
    assert commands == [
        "options.set",
        "frontend.process",
        "frontend.process",
        "options.set",
        "frontend.process",
    ]


def test_calls_from_many_tasks_each_get_their_own_answer(simulator: LeanBackend, tmp_path: Path) -> None:
    async def run() -> list[object]:
        async with await started(simulator, tmp_path) as repl:
            state = await repl.goal_start("∀ (p : Prop), p → p")
            tactics = ["intro p h", "exact nonsense", "exact ("] * 10
            return list(await asyncio.gather(*(repl.goal_tactic(state, tactic) for tactic in tactics)))

    results = asyncio.run(run())
    assert [type(result) for result in results] == [TacticOk, TacticFailed, TacticParseError] * 10


def test_the_environment_of_the_daemon_does_not_reach_the_process(
    fake_repl: FakeRepl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", "secret")
    backend = fake_repl('json.dump(dict(os.environ), open("env", "w")); say("ready."); sys.stdin.read()')

    async def run() -> None:
        async with await started(backend, tmp_path):
            pass

    asyncio.run(run())
    assert "secret" not in (tmp_path / "env").read_text("utf-8")


def test_pretty_printing_and_the_raw_timeout_option_are_refused(
    simulator: LeanBackend, tmp_path: Path
) -> None:
    async def run() -> None:
        async with await started(simulator, tmp_path) as repl:
            with pytest.raises(ValueError, match="one-line framing"):
                await repl.options_set(printJsonPretty=True)
            with pytest.raises(ValueError, match="timeout_s"):
                await repl.options_set(timeout=5)
            await repl.options_set(printDependentMVars=False)

    asyncio.run(run())


def test_states_of_another_process_or_before_a_reset_are_stale(
    simulator: LeanBackend, tmp_path: Path
) -> None:
    async def run() -> None:
        async with await started(simulator, tmp_path) as one, await started(simulator, tmp_path) as two:
            state = await one.goal_start("True")
            with pytest.raises(StaleState):
                await two.goal_tactic(state, "trivial")
            assert await one.reset() == 1
            with pytest.raises(StaleState):
                await one.goal_print(state)
            await one.goal_delete([state])
            assert await one.stat() == 0

    asyncio.run(run())


# ---- when we die ourselves

# A job with a REPL that hangs; the first argument is the backend, the second a module's name to know it by.
JOB = """
import asyncio, sys
from pathlib import Path
from pydantic import TypeAdapter
from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.dialect import NEWEST
from pipeline.lean.client.repl import Repl

async def main():
    backend = TypeAdapter(LeanBackend).validate_json(sys.argv[1])
    repl = await Repl.start(backend, imports=[sys.argv[2]], project=Path.cwd(), dialect=NEWEST)
    call = asyncio.create_task(repl.stat())
    await asyncio.sleep(0.3)
    print("asked", flush=True)
    await call

asyncio.run(main())
"""
HANGS = """
import subprocess
say("ready.")
sys.stdin.readline()
if os.environ.get("EVERLEAN_ATTEMPT"):
    subprocess.Popen(["sleep", "600.25"], stdin=-1, stdout=-1, stderr=-1, start_new_session=True)
while True: time.sleep(60)
"""


def processes_with(word: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return [pid for pid in found if is_running(pid)]


def killed_job(backend: LeanBackend, project: Path, marker: str, **environment: str) -> None:
    """Run a job until its REPL hangs, and kill it so that it cannot end anything itself."""
    command = [sys.executable, "-c", JOB, json.dumps(dataclasses.asdict(backend)), marker]
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    with subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, env={**os.environ, **environment}
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == b"asked\n"
        assert len(processes_with(marker)) > 1, "the REPL is not there"
        deadline = time.monotonic() + 20
        while "EVERLEAN_ATTEMPT" in environment and not processes_with("600.25"):
            assert time.monotonic() < deadline, "what the REPL starts is not there"
            time.sleep(0.02)
        job.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while processes_with(marker) and time.monotonic() < deadline:
        time.sleep(0.02)


def test_a_repl_that_hangs_dies_with_the_process_that_started_it(fake_repl: FakeRepl, tmp_path: Path) -> None:
    marker = f"M{uuid.uuid4().hex}"

    killed_job(fake_repl(HANGS), tmp_path, marker)

    assert processes_with(marker) == []


@pytest.mark.usefixtures("bubblewrap")
def test_a_repl_that_hangs_in_the_sandbox_does_so_too(fake_repl: FakeRepl, tmp_path: Path) -> None:
    python = Path(sys.executable).resolve()
    if not str(python).startswith("/usr/"):
        python = Path("/usr/bin/python3")
    fake_repl(HANGS)
    script = tmp_path / "fake_repl"
    script.write_text(f"#!{python} -I\n" + (tmp_path / "fake_repl.py").read_text("utf-8"), "utf-8")
    script.chmod(0o755)
    (tmp_path / "project").mkdir()
    backend = LeanBackend("pantograph", (str(script),), "a script", "", sandbox="bubblewrap")
    marker = f"M{uuid.uuid4().hex}"

    killed_job(backend, tmp_path / "project", marker)

    assert processes_with(marker) == []


def test_what_a_repl_without_a_sandbox_had_started_is_found_as_the_jobs(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    attempt = tmp_path / uuid.uuid4().hex
    killed_job(fake_repl(HANGS), tmp_path, f"M{uuid.uuid4().hex}", EVERLEAN_ATTEMPT=str(attempt))
    assert processes_with("600.25") != []

    assert kill_marked(attempt) == 1

    assert processes_with("600.25") == []
