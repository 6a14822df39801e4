"""The client against processes that behave badly: each ends in one typed error, and no process is left."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from pipeline.jobs.child import kill_marked
from pipeline.lean.backend import LeanBackend, find_leans
from pipeline.lean.client import process as client
from pipeline.lean.client.dialect import Dialect
from pipeline.lean.client.errors import ReplDied, ReplProtocolError, ReplStartError
from pipeline.lean.client.messages import Unit
from pipeline.lean.client.process import lean_path
from pipeline.lean.client.repl import Repl
from tests.support.lean import scripted

FakeRepl = Callable[[str], LeanBackend]
T = TypeVar("T")


def drive(
    backend: LeanBackend,
    project: Path,
    use: Callable[[Repl], Awaitable[T]],
    *,
    imports: Sequence[str] = ("Init",),
    dialect: Dialect | None = "newer",
    timeout_s: float = 10.0,
    grace_s: float = 0.3,
    memory_bytes: int | None = None,
) -> T:
    """Use a process, of which nothing is left afterwards."""

    async def run() -> T:
        async with await Repl.start(
            backend,
            imports=imports,
            project=project,
            ready_timeout_s=20,
            call_timeout_s=timeout_s,
            grace_s=grace_s,
            memory_bytes=memory_bytes,
            dialect=dialect,
        ) as repl:
            try:
                return await use(repl)
            finally:
                pids.append(repl.pid)

    pids: list[int] = []
    try:
        return asyncio.run(run())
    finally:
        # Not even a zombie.
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


async def nothing(_: Repl) -> None:
    pass


async def fails(repl: Repl) -> ReplDied:
    """Return the error of a call, after which the process takes no other."""
    with pytest.raises(ReplDied) as died:
        await repl.process("x")
    assert not repl.alive
    with pytest.raises(ReplDied):
        await repl.process("x")
    return died.value


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def stopped(pid: int) -> bool:
    """Return whether a process that is not our child has stopped; reaping it is init's business."""
    deadline = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)


async def asked(folder: Path) -> None:
    """Wait until a process says in its folder that it was asked something."""
    async with asyncio.timeout(20):
        while not (folder / "asked").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def appeared(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


# ---- starting


def test_a_process_has_its_imports_the_project_s_modules_and_nothing_of_our_environment(
    fake_repl: FakeRepl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", "secret")
    (tmp_path / ".lake" / "build" / "lib" / "lean").mkdir(parents=True)
    backend = fake_repl(
        'json.dump([sys.argv[1:], dict(os.environ)], open("given", "w")); say("ready."); sys.stdin.read()'
    )
    for imports in (("Init", "Ours.Base"), ()):
        drive(backend, tmp_path, nothing, imports=imports)
        argv, environment = json.loads((tmp_path / "given").read_text("utf-8"))
        assert argv == list(imports)
        # A newline at its end, and Lean does not find the last folder.
        assert environment["LEAN_PATH"] == lean_path(tmp_path) == str(tmp_path / ".lake/build/lib/lean")
        assert "secret" not in environment.values()


@pytest.mark.parametrize("name", ["--root=/", "", "Init Mathlib", "Init\n"])
def test_an_import_is_never_an_option_nor_two_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(ReplStartError, match="no module name"):
        drive(scripted.backend(), tmp_path, nothing, imports=[name])


def test_no_backend_is_a_start_error_with_the_reason(tmp_path: Path) -> None:
    none = find_leans(backend="none", repl="", sandbox="none").summary

    with pytest.raises(ReplStartError, match="switched off"):
        drive(none, tmp_path, nothing)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.stderr.write('object file X.olean: invalid header'); sys.exit(1)", "ended .*invalid header"),
        ("say('hello'); time.sleep(60)", r"`ready\.` was expected"),
        ("say('ready.')\nfor line in sys.stdin: say('{}')", "does not answer as a pantograph-repl"),
        ("say('ready.'); sys.exit(2)", "does not answer as a pantograph-repl: .*exit status 2"),
    ],
)
def test_what_is_no_repl_is_a_start_error_that_says_why(
    fake_repl: FakeRepl, tmp_path: Path, body: str, said: str
) -> None:
    with pytest.raises(ReplStartError, match=said):
        drive(fake_repl(body), tmp_path, nothing, dialect=None)


def test_silence_at_start_ends_after_its_timeout(fake_repl: FakeRepl, tmp_path: Path) -> None:
    slow = dataclasses.replace(fake_repl("time.sleep(60)"), start_timeout_s=1)
    with pytest.raises(ReplStartError, match=r"not ready after 1 s; .*; raise \[lean\] start_timeout if"):
        asyncio.run(Repl.start(slow, imports=[], project=tmp_path))
    assert processes_with(slow.argv[-1]) == []


def test_a_start_that_is_cancelled_leaves_no_process_and_no_folder(
    fake_repl: FakeRepl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(private))
    backend = fake_repl('open("pid", "w").write(str(os.getpid())); time.sleep(60)')

    async def run() -> None:
        start = asyncio.create_task(Repl.start(backend, imports=[], project=tmp_path))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text("utf-8"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(run())
    assert not is_running(int((tmp_path / "pid").read_text("utf-8")))
    assert not list(private.iterdir())


def test_the_dialect_is_asked_of_the_program(tmp_path: Path) -> None:
    async def dialect(repl: Repl) -> str:
        return repl.dialect

    assert drive(scripted.backend(dialect="middle"), tmp_path, dialect, dialect=None) == "middle"


# ---- answers


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("os._exit(3)", ReplDied, "exit status 3"),
        ("sys.stderr.write('libc++abi: terminating'); sys.stderr.flush(); os.abort()", ReplDied, "libc"),
        ("os.kill(os.getpid(), 9)", ReplDied, "killed by another than this program, most often the kernel"),
        ("say('not json')", ReplProtocolError, "no JSON"),
        ("say('[1]')", ReplProtocolError, "no object"),
        ("say('{\"units\": 3}')", ReplProtocolError, "units: expected a list"),
        ("sys.stdout.buffer.write(b'\\xff\\xfe\\n'); sys.stdout.flush()", ReplProtocolError, "no JSON"),
        # A word in two writes, and an answer that would be believed.
        (
            "os.write(2, b'PA'); os.write(2, b'NIC at Lean.Expr'); say('{\"units\": []}')",
            ReplDied,
            "panicked",
        ),
    ],
)
def test_a_bad_answer_is_one_typed_error_and_ends_the_process(
    fake_repl: FakeRepl, tmp_path: Path, body: str, error: type[ReplDied], said: str
) -> None:
    backend = fake_repl(f'say("ready.")\nfor command, payload in requests():\n    {body}\n')
    found = drive(backend, tmp_path, fails)
    assert type(found) is error
    assert said in str(found)


def test_a_process_that_ends_at_any_byte_of_its_answer_has_given_none(tmp_path: Path) -> None:
    async def died(repl: Repl) -> str:
        with pytest.raises(ReplDied) as error:
            await repl.goal_tactic(await repl.goal_start("p"), f"fault cut {at}")
        return str(error.value)

    whole = '{"nextStateId":1,"messages":[],'
    for at in (0, 1, len(whole), 200):
        assert "closed its output" in (said := drive(scripted.backend(), tmp_path, died))
        assert ("after '{" in said) is (at > 0)


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

    async def use(repl: Repl) -> None:
        assert await repl.stat() == 4
        async with asyncio.timeout(20):
            while "the last line" not in repl.stderr:  # noqa: ASYNC110 - the pipes are read side by side
                await asyncio.sleep(0.01)
        assert len(repl.stderr) <= client.STDERR_KEPT_BYTES

    drive(backend, tmp_path, use, timeout_s=20)


def test_a_reply_of_many_megabytes_arrives_whole(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        say("ready.")
        for command, payload in requests():
            said = {"severity": "error", "data": "ℕ" * 3_000_000, "pos": {"line": 1, "column": 0}}
            say(json.dumps({"units": [{"boundary": [0, 1], "messages": [said]}]}, ensure_ascii=False))
        """
    )

    async def use(repl: Repl) -> tuple[Unit, ...]:
        return await repl.process("x")

    (found,) = drive(backend, tmp_path, use)
    assert found.messages[0].data == "ℕ" * 3_000_000


@pytest.mark.parametrize("turns", [0, 1, 2, 3, None])
def test_output_that_no_one_asked_for_is_not_the_next_answer(
    fake_repl: FakeRepl, tmp_path: Path, turns: int | None
) -> None:
    backend = fake_repl(
        """
        say("ready.")
        while not os.path.exists("go"): time.sleep(0.01)
        say('{"nGoals": 99}')
        open("said", "w").close()
        sys.stdin.read()
        """
    )

    async def use(repl: Repl) -> None:
        (tmp_path / "go").touch()
        # The event loop stands still meanwhile; then what lies in the pipe is on its way to us for some turns of it.
        appeared(tmp_path / "said")
        for _ in range(turns or 0):
            await asyncio.sleep(0)
        async with asyncio.timeout(20):
            while turns is None and repl.alive:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(ReplProtocolError, match="without being asked"):
            await repl.stat()

    drive(backend, tmp_path, use)


@pytest.mark.parametrize(
    "body",
    [
        "for command, payload in requests(): asked(); time.sleep(60); say('{\"nGoals\": 1}')",
        # It reads no more, and answers all the same.
        "sys.stdin.readline(); os.close(0); asked(); time.sleep(0.5); say('{\"nGoals\": 1}'); time.sleep(60)",
    ],
)
def test_a_cancelled_call_does_not_leave_its_answer_to_the_next(
    fake_repl: FakeRepl, tmp_path: Path, body: str
) -> None:
    async def use(repl: Repl) -> None:
        call = asyncio.create_task(repl.stat())
        await asked(tmp_path)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(ReplDied):
            await repl.stat()

    drive(fake_repl(f'def asked(): open("asked", "w").close()\nsay("ready.")\n{body}\n'), tmp_path, use)


def test_closing_waits_for_no_answer_and_whoever_does_is_told(fake_repl: FakeRepl, tmp_path: Path) -> None:
    async def use(repl: Repl) -> None:
        call = asyncio.create_task(repl.process("x"))
        await asked(tmp_path)
        before = time.monotonic()
        await repl.close()
        assert time.monotonic() - before < 15
        with pytest.raises(ReplDied, match="the REPL was closed"):
            await call

    backend = fake_repl('say("ready.")\nfor c, p in requests(): open("asked", "w").close(); time.sleep(60)\n')
    drive(backend, tmp_path, use, timeout_s=30)


# ---- what else is in the process


def test_closing_takes_two_seconds_at_most_and_leaves_no_zombie(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        import signal, subprocess
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "60"])
        open("child", "w").write(str(child.pid))
        say("ready.")
        while True: time.sleep(60)
        """
    )

    before = time.monotonic()
    drive(backend, tmp_path, nothing)
    assert time.monotonic() - before < 15
    assert stopped(int((tmp_path / "child").read_text("utf-8")))


def test_children_of_a_process_that_died_by_itself_go_with_it(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        import subprocess
        child = subprocess.Popen(["sleep", "60"])
        open("child", "w").write(str(child.pid))
        say("ready."); sys.stdin.readline(); os._exit(1)
        """
    )

    async def use(repl: Repl) -> None:
        with pytest.raises(ReplDied, match="exit status 1"):
            await repl.stat()

    drive(backend, tmp_path, use)
    assert stopped(int((tmp_path / "child").read_text("utf-8")))


def test_a_process_beyond_its_memory_cap_dies_of_it_and_the_error_says_so(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    backend = fake_repl(
        'say("ready.")\nfor c, p in requests(): say(json.dumps({"nGoals": len(b"x" * 2**29)}))\n'
    )

    async def use(repl: Repl) -> None:
        assert resource.prlimit(repl.pid, resource.RLIMIT_DATA) == (2**28, 2**28)
        with pytest.raises(ReplDied, match="ran into its memory cap of 268435456 bytes: raise it"):
            await repl.stat()

    drive(backend, tmp_path, use, memory_bytes=2**28)


def test_resident_memory_counts_the_whole_tree_and_is_zero_when_it_is_gone(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    backend = fake_repl(
        """
        import subprocess
        child = subprocess.Popen([sys.executable, "-I", "-c",
            "import sys; x = b'y' * 2**26; print(flush=True); sys.stdin.read()"], stdin=-1, stdout=-1)
        child.stdout.readline()
        say("ready."); sys.stdin.read(); child.kill()
        """
    )

    async def use(repl: Repl) -> tuple[int, int]:
        before = repl.rss_bytes()
        await repl.close()
        return before, repl.rss_bytes()

    before, after = drive(backend, tmp_path, use)
    assert 2**26 < before < 2**30
    assert after == 0


@pytest.mark.usefixtures("bubblewrap", "python_in_usr")
def test_resident_memory_in_the_sandbox_is_the_repl_s(tmp_path: Path) -> None:
    async def use(repl: Repl) -> int:
        assert await repl.stat() == 0
        return repl.rss_bytes()

    program = scripted.write_repl(tmp_path / "repl")
    backend = LeanBackend("pantograph", (str(program),), "a script", "", sandbox="bubblewrap")
    (tmp_path / "project").mkdir()
    # bwrap itself is small; the interpreter below it is not.
    assert drive(backend, tmp_path / "project", use, memory_bytes=2**30) > 6 * 2**20


# ---- when we die ourselves

# A job with a REPL that hangs; the first argument is the backend, the second a module's name to know it by.
JOB = """
import asyncio, sys
from pathlib import Path
from pydantic import TypeAdapter
from pipeline.lean.backend import LeanBackend
from pipeline.lean.client.repl import Repl

async def main():
    backend = TypeAdapter(LeanBackend).validate_json(sys.argv[1])
    repl = await Repl.start(backend, imports=[sys.argv[2]], project=Path.cwd(), dialect="newer")
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
