"""The traps of driving `pantograph-repl`, one test for each: against the simulator, or a script that plays a REPL."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client import requests
from pipeline.lean.client.dialect import NEWEST, OPTIONAL, Dialect, release
from pipeline.lean.client.errors import (
    BadRequest,
    HeaderNotLoaded,
    InputRejected,
    ReplDied,
    ReplProtocolError,
    ReplStartError,
    ReplSuspect,
    ReplTimeout,
    StaleState,
    UnsupportedByDialect,
)
from pipeline.lean.client.messages import StatePrint, StateRef, TacticFailed, TacticOk, Unit
from pipeline.lean.client.repl import Repl, lean_path

FakeRepl = Callable[[str], LeanBackend]
T = TypeVar("T")

# A REPL that answers from a list, and writes down what it was sent.
SCRIPTED = """
answers = json.load(open("answers"))
say("ready.")
with open("wire", "wb", buffering=0) as wire:
    for line in sys.stdin.buffer:
        wire.write(line)
        if b'"options.set"' in line:
            say("{}")
            continue
        answer = answers.pop(0)
        say(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))
"""
OK = {"nextStateId": 1, "goals": [], "messages": [], "hasSorry": False, "hasUnsafe": False}
PRINT = {"goals": [], "extraMVars": [], "rootHasSorry": False, "rootHasUnsafe": False, "rootHasMVar": False}
STARTED = {"stateId": 0, "root": "_uniq.1"}
UNKNOWN = {"error": "command", "desc": "Unknown command that"}
ILL_FORMED = {"error": "command", "desc": "Unable to parse json: a field is missing"}
BOTH = "Exactly one of {expr, copyFrom} must be supplied"


def scripted(fake_repl: FakeRepl, folder: Path, *answers: object) -> LeanBackend:
    (folder / "answers").write_text(json.dumps(answers), "utf-8")
    return fake_repl(SCRIPTED)


def wire(folder: Path) -> list[bytes]:
    return (folder / "wire").read_bytes().split(b"\n")[:-1]


def drive(
    backend: LeanBackend,
    project: Path,
    use: Callable[[Repl], Awaitable[T]],
    *,
    imports: Sequence[str] = ("Init",),
    dialect: Dialect | None = NEWEST,
    timeout_s: float = 10.0,
    grace_s: float = 1.0,
    memory_bytes: int | None = None,
) -> T:
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
            return await use(repl)

    return asyncio.run(run())


def gone(pid: int) -> bool:
    """Return whether no process has this id, not even a zombie."""
    return not Path(f"/proc/{pid}").exists()


def stopped(pid: int) -> bool:
    """Return whether a process that is not our child has stopped; reaping it is init's business."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def appeared(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


# ---- starting


def test_lean_path_ends_in_no_newline(fake_repl: FakeRepl, tmp_path: Path) -> None:
    (tmp_path / ".lake" / "build" / "lib" / "lean").mkdir(parents=True)
    backend = fake_repl('json.dump(dict(os.environ), open("env", "w")); say("ready."); sys.stdin.read()')

    async def nothing(_: Repl) -> None:
        pass

    drive(backend, tmp_path, nothing)
    found = json.loads((tmp_path / "env").read_text("utf-8"))["LEAN_PATH"]
    assert found == lean_path(tmp_path) == str(tmp_path / ".lake/build/lib/lean")


@pytest.mark.parametrize("name", ["--root=/", "", "Init Mathlib", "Init\n"])
def test_an_import_is_never_an_option_nor_two_names(
    simulator: LeanBackend, tmp_path: Path, name: str
) -> None:
    with pytest.raises(ReplStartError, match="no module name"):
        asyncio.run(Repl.start(simulator, imports=[name], project=tmp_path))


def test_no_imports_at_all_is_passed_on_as_none(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl('json.dump(sys.argv[1:], open("argv", "w")); say("ready."); sys.stdin.read()')

    async def nothing(_: Repl) -> None:
        pass

    drive(backend, tmp_path, nothing, imports=())
    assert json.loads((tmp_path / "argv").read_text("utf-8")) == []


# ---- dialects


@pytest.mark.parametrize(
    ("answers", "name", "error_names", "commands"),
    [
        ([{"error": "command", "desc": BOTH}, ILL_FORMED], "newer", "newer", OPTIONAL),
        ([{"error": "arguments", "desc": BOTH}, *[UNKNOWN] * 3], "older", "older", frozenset()),
        # 0.3.7: distil is there, subsume not yet.
        (
            [{"error": "arguments", "desc": BOTH}, UNKNOWN, *[ILL_FORMED] * 2],
            "middle",
            "older",
            OPTIONAL - {"goal.subsume"},
        ),
        # 0.3.5: no distil and no track, and the newer names of errors.
        ([{"error": "command", "desc": BOTH}, *[UNKNOWN] * 3], "older", "newer", frozenset()),
    ],
)
def test_the_dialect_is_learned_by_feature_and_not_by_version(
    fake_repl: FakeRepl,
    tmp_path: Path,
    answers: list[Any],
    name: str,
    error_names: str,
    commands: frozenset[str],
) -> None:
    async def dialect(repl: Repl) -> Dialect:
        return repl.dialect

    found = drive(scripted(fake_repl, tmp_path, *answers), tmp_path, dialect, dialect=None)

    assert (found.name, found.error_names, found.commands) == (name, error_names, commands)
    assert len(wire(tmp_path)) == len(answers)


@pytest.mark.parametrize(
    "answers", [[STARTED], [{"error": "elab", "desc": "?"}], [{"error": "command", "desc": ""}, {}]]
)
def test_a_program_that_answers_like_no_dialect_is_no_repl(
    fake_repl: FakeRepl, tmp_path: Path, answers: list[Any]
) -> None:
    async def nothing(_: Repl) -> None:
        pass

    with pytest.raises(ReplStartError, match="does not answer as a pantograph-repl"):
        drive(scripted(fake_repl, tmp_path, *answers), tmp_path, nothing, dialect=None)


def test_the_simulator_speaks_the_newer_dialect(simulator: LeanBackend, tmp_path: Path) -> None:
    async def dialect(repl: Repl) -> tuple[Dialect, int]:
        return repl.dialect, await repl.stat()

    assert drive(simulator, tmp_path, dialect, dialect=None)[0].name == "newer"


@pytest.mark.parametrize(
    ("printed", "shown"), [("0.3.7/v4.21.0", "0.3.7"), ("0.3.15", "0.3.15"), ("main-branch\n", "main-branch")]
)
def test_a_version_is_for_people_and_never_refused(printed: str, shown: str) -> None:
    assert release(printed) == shown


def test_the_version_is_asked_by_itself(simulator: LeanBackend, tmp_path: Path) -> None:
    assert "not Lean" in asyncio.run(Repl.version(simulator, tmp_path))


def test_what_a_dialect_lacks_is_refused_before_anything_is_sent(fake_repl: FakeRepl, tmp_path: Path) -> None:
    old = Dialect("older", "older", frozenset())

    async def use(repl: Repl) -> None:
        for request in (
            requests.FrontendDistil("x", ignore_values=False),
            requests.FrontendTrack("x", "y"),
        ):
            with pytest.raises(
                UnsupportedByDialect, match=rf"{request.command}.*older.*version 0\.3\.\d.*, or "
            ):
                await repl.send(request)

    drive(scripted(fake_repl, tmp_path), tmp_path, use, dialect=old)
    assert wire(tmp_path) == []


def test_sorries_that_would_be_ignored_in_silence_are_refused(fake_repl: FakeRepl, tmp_path: Path) -> None:
    middle = Dialect("middle", "older", OPTIONAL - {"goal.subsume"})

    async def use(repl: Repl) -> None:
        with pytest.raises(UnsupportedByDialect, match=r"ignores the field; use frontend\.distil"):
            await repl.process("theorem t : True := sorry", sorrys=True)

    drive(scripted(fake_repl, tmp_path), tmp_path, use, dialect=middle)
    assert wire(tmp_path) == []


def test_the_older_dialect_answers_the_goals_of_sorries_with_their_bytes(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    goal = {"name": "_uniq.3", "fragment": "tactic", "target": {"pp": "True"}, "vars": []}
    unit = {
        "boundary": [0, 25],
        "messages": [],
        "goalStateId": 4,
        "goals": [goal],
        "goalSrcBoundaries": [[20, 25]],
    }
    backend = scripted(fake_repl, tmp_path, {"units": [unit]})

    async def use(repl: Repl) -> tuple[Unit, ...]:
        return await repl.process("theorem t : True := sorry", sorrys=True)

    (found,) = drive(backend, tmp_path, use, dialect=Dialect("older", "older", frozenset()))
    assert found.goal_state is not None
    assert (found.goal_state.id, found.goal_ranges) == (4, ((20, 25),))
    sent = json.loads(wire(tmp_path)[-1])["payload"]
    assert (sent["sorrys"], sent["typeErrorsAsGoals"]) == (True, False)


def test_a_repl_that_took_sorries_and_made_no_goals_is_found_out(fake_repl: FakeRepl, tmp_path: Path) -> None:
    warning = {"severity": "warning", "data": "declaration uses 'sorry'", "pos": {"line": 1, "column": 8}}
    backend = scripted(fake_repl, tmp_path, {"units": [{"boundary": [0, 25], "messages": [warning]}]})

    async def use(repl: Repl) -> None:
        with pytest.raises(UnsupportedByDialect, match="made no goals"):
            await repl.process("theorem t : True := sorry", sorrys=True)

    drive(backend, tmp_path, use, dialect=Dialect("older", "older", frozenset()))


# ---- framing


def test_every_request_has_a_payload_and_no_line_is_blank(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = scripted(fake_repl, tmp_path, {"nGoals": 0}, {"units": []}, {"nGoals": 0})

    async def use(repl: Repl) -> None:
        await repl.stat()
        await repl.process("\n\ntheorem a : 1 = 1 := rfl\r\n\n\n")
        await repl.reset()

    drive(backend, tmp_path, use)
    sent = wire(tmp_path)
    assert all(line.strip() and isinstance(json.loads(line)["payload"], dict) for line in sent)
    assert json.loads(sent[-2])["payload"]["file"].startswith("\n\n")


def test_text_beyond_ascii_is_sent_as_it_is(fake_repl: FakeRepl, tmp_path: Path) -> None:
    async def use(repl: Repl) -> None:
        await repl.process("theorem t (𝕜 : Type) (h : ∀ x : 𝕜, 𝓝 x ≤ ⊤) : True := trivial")

    drive(scripted(fake_repl, tmp_path, {"units": []}), tmp_path, use)
    assert "𝓝 x ≤ ⊤".encode() in wire(tmp_path)[-1]
    assert b"\\u" not in wire(tmp_path)[-1]


def test_a_lone_surrogate_is_refused_and_costs_nothing(fake_repl: FakeRepl, tmp_path: Path) -> None:
    async def use(repl: Repl) -> int:
        with pytest.raises(ValueError, match="lone surrogate"):
            await repl.goal_start("\ud800")
        return await repl.stat()

    assert drive(scripted(fake_repl, tmp_path, {"nGoals": 2}), tmp_path, use) == 2


def test_a_reply_of_many_megabytes_arrives_whole(fake_repl: FakeRepl, tmp_path: Path) -> None:
    unit = {"boundary": [0, 1], "messages": [], "newConstants": ["ℕ" * 3_000_000]}

    async def use(repl: Repl) -> tuple[Unit, ...]:
        return await repl.process("x")

    (found,) = drive(scripted(fake_repl, tmp_path, {"units": [unit]}), tmp_path, use)
    assert found.new_constants == ("ℕ" * 3_000_000,)


def test_a_line_on_stdout_that_is_no_json_ends_the_process(fake_repl: FakeRepl, tmp_path: Path) -> None:
    async def use(repl: Repl) -> None:
        with pytest.raises(ReplProtocolError, match="no JSON"):
            await repl.stat()
        assert not repl.alive

    drive(scripted(fake_repl, tmp_path, "hello from #eval"), tmp_path, use)


@pytest.mark.parametrize("half", ["\\ud835", "\\uDCDD"])
def test_half_a_surrogate_pair_in_an_answer_is_one_typed_error(
    fake_repl: FakeRepl, tmp_path: Path, half: str
) -> None:
    async def use(repl: Repl) -> None:
        assert (await repl.send(requests.GoalStart("x"))).root == "\N{MATHEMATICAL BOLD SCRIPT CAPITAL N}"
        with pytest.raises(ReplProtocolError, match="no JSON"):
            await repl.send(requests.GoalStart("x"))

    started = '{"stateId": 0, "root": "%s"}'
    drive(scripted(fake_repl, tmp_path, started % "\\ud835\\udcdd", started % half), tmp_path, use)


def test_a_second_line_after_an_answer_ends_the_process(fake_repl: FakeRepl, tmp_path: Path) -> None:
    async def use(repl: Repl) -> None:
        with pytest.raises(ReplProtocolError, match=r"wrote .* after its answer"):
            await repl.stat()
        assert not repl.alive

    drive(scripted(fake_repl, tmp_path, '{"nGoals":1}\n{"nGoals":2}', {"nGoals": 3}), tmp_path, use)


@pytest.mark.parametrize("turns", range(4))
def test_output_that_no_one_asked_for_is_not_the_next_answer(
    fake_repl: FakeRepl, tmp_path: Path, turns: int
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
        for _ in range(turns):
            await asyncio.sleep(0)
        with pytest.raises(ReplProtocolError, match="without being asked"):
            await repl.stat()

    drive(backend, tmp_path, use)


def test_the_order_of_a_replys_keys_means_nothing(fake_repl: FakeRepl, tmp_path: Path) -> None:
    ascending = '{"goals":[],"hasSorry":false,"hasUnsafe":false,"messages":[],"nextStateId":1}'
    descending = '{"nextStateId":1,"messages":[],"hasUnsafe":false,"hasSorry":false,"goals":[]}'

    async def use(repl: Repl) -> list[object]:
        state = StateRef(0, repl.generation)
        return [await repl.goal_tactic(state, "a"), await repl.goal_tactic(state, "a")]

    one, two = drive(scripted(fake_repl, tmp_path, ascending, descending), tmp_path, use)
    assert one == two
    assert isinstance(one, TacticOk)


def test_an_end_position_may_be_null_and_older_messages_lack_is_silent(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    message = {
        "fileName": "<Pantograph>",
        "pos": {"line": 0, "column": 12},
        "endPos": None,
        "keepFullRange": False,
        "severity": "error",
        "data": "no",
        "kind": "[anonymous]",
    }
    backend = scripted(fake_repl, tmp_path, {"messages": [message], "hasSorry": False, "hasUnsafe": False})

    async def use(repl: Repl) -> object:
        return await repl.goal_tactic(StateRef(0, repl.generation), "a")

    found = drive(backend, tmp_path, use)
    assert isinstance(found, TacticFailed)
    assert (found.messages[0].end_pos, found.messages[0].is_silent) == (None, False)
    assert found.messages[0].render() == "0:12: error: no"


@pytest.mark.parametrize("options", [{"printJsonPretty": True}, {"printJsonPretty": False}, {"timeout": 5}])
def test_pretty_printed_answers_and_a_raw_timeout_are_refused(
    fake_repl: FakeRepl, tmp_path: Path, options: dict[str, bool | int]
) -> None:
    async def use(repl: Repl) -> None:
        with pytest.raises(ValueError, match="one-line framing"):
            await repl.options_set(**options)
        with pytest.raises(ValueError, match="one-line framing"):
            await repl.call("options.set", options)

    drive(scripted(fake_repl, tmp_path), tmp_path, use)
    assert wire(tmp_path) == []


# ---- the process


def test_a_panic_on_stderr_spoils_the_answer_that_follows_it(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl(
        """
        say("ready.")
        for command, payload in requests():
            os.write(2, b"noise PA"); os.write(2, b"NIC at Lean.Expr.proj! unreachable\\n")
            say('{"nGoals": 0}')
        """
    )

    async def use(repl: Repl) -> None:
        with pytest.raises(ReplDied, match="panicked"):
            await repl.stat()
        assert not repl.alive

    drive(backend, tmp_path, use)


def test_an_error_that_escaped_its_handler_takes_the_process_out_of_use(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    async def use(repl: Repl) -> None:
        with pytest.raises(ReplSuspect):
            await repl.stat()
        assert not repl.alive
        with pytest.raises(ReplDied, match="suspect"):
            await repl.stat()

    drive(scripted(fake_repl, tmp_path, {"error": "main", "desc": "?"}, {"nGoals": 1}), tmp_path, use)


def test_an_empty_read_is_the_end_of_the_process_and_says_what_stderr_said(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    backend = fake_repl(
        'say("ready.")\nfor command, payload in requests():\n'
        "    sys.stderr.write('cannot evaluate `[init]` declaration'); sys.stderr.flush(); os._exit(134)\n"
    )

    async def use(repl: Repl) -> None:
        with pytest.raises(ReplDied, match=r"exit status 134.*\[init\]") as died:
            await repl.stat()
        assert died.value.returncode == 134

    drive(backend, tmp_path, use)


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

    async def use(repl: Repl) -> tuple[int, Path]:
        return repl.pid, repl.folder

    before = time.monotonic()
    pid, folder = drive(backend, tmp_path, use)
    assert time.monotonic() - before < 15
    assert gone(pid)
    assert stopped(int((tmp_path / "child").read_text("utf-8")))
    assert not folder.exists()


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


def test_death_by_another_hand_is_told_from_ours(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl('say("ready.")\nfor c, p in requests(): os.kill(os.getpid(), 9)\n')

    async def use(repl: Repl) -> None:
        with pytest.raises(ReplDied, match="killed by another than this program, most often the kernel"):
            await repl.stat()

    drive(backend, tmp_path, use)


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


# ---- time


def test_the_interrupt_is_kept_near_the_budget_without_a_request_each(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    backend = scripted(fake_repl, tmp_path, *[{"units": []}] * 5, {"nGoals": 0})

    async def use(repl: Repl) -> None:
        for limit_s in (5.0, 4.9, 4.8, 4.0, 4.1):
            await repl.process("x", timeout_s=limit_s)
        # Light requests end at once, whichever limit is set.
        await repl.stat()

    drive(backend, tmp_path, use)
    sent = [json.loads(line) for line in wire(tmp_path)]
    assert [one["payload"]["timeout"] for one in sent if one["cmd"] == "options.set"] == [5000, 4000, 4100]


def test_commands_that_no_interrupt_reaches_are_killed_when_late(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = fake_repl('say("ready.")\nfor command, payload in requests():\n    time.sleep(60)\n')

    async def use(repl: Repl) -> None:
        with pytest.raises(ReplTimeout, match=r"frontend\.distil: no answer in 0\.5 s"):
            await repl.distil("x", timeout_s=0.2)

    drive(backend, tmp_path, use, grace_s=0.3)


@pytest.mark.parametrize(
    "reply",
    [
        {"error": "io", "desc": "interrupt"},
        {"error": "internal", "desc": "interrupt"},
        {"error": "core", "desc": "(deterministic) timeout at `whnf`, maximum number of heartbeats (200000)"},
        {"error": "io", "desc": "maximum recursion depth has been reached"},
    ],
)
def test_a_limit_inside_lean_is_a_failed_tactic_and_not_a_dead_server(
    fake_repl: FakeRepl, tmp_path: Path, reply: dict[str, str]
) -> None:
    async def use(repl: Repl) -> tuple[object, object]:
        state = StateRef(0, repl.generation)
        return await repl.goal_tactic(state, "simp"), await repl.goal_tactic(state, "rfl")

    failed, ok = drive(scripted(fake_repl, tmp_path, reply, OK), tmp_path, use)
    assert isinstance(failed, TacticFailed)
    assert failed.interrupted
    assert failed.reason == reply["desc"]
    assert isinstance(ok, TacticOk)


# ---- states


def test_ids_that_are_given_out_again_after_a_reset_are_not_confused(
    simulator: LeanBackend, tmp_path: Path
) -> None:
    async def use(repl: Repl) -> None:
        before = await repl.goal_start("True")
        assert await repl.reset() == 1
        after = await repl.goal_start("False")
        assert before.id == after.id
        with pytest.raises(StaleState, match="replay"):
            await repl.goal_tactic(before, "trivial")
        await repl.goal_delete([before])
        assert await repl.stat() == 1

    drive(simulator, tmp_path, use)


def test_a_call_that_waits_behind_a_reset_finds_its_state_stale(
    simulator: LeanBackend, tmp_path: Path
) -> None:
    async def use(repl: Repl) -> list[object]:
        state = await repl.goal_start("True")
        return list(
            await asyncio.gather(repl.reset(), repl.goal_tactic(state, "trivial"), return_exceptions=True)
        )

    count, late = drive(simulator, tmp_path, use)
    assert count == 1
    assert isinstance(late, StaleState)


def test_ids_of_a_process_that_was_restarted_are_not_confused(simulator: LeanBackend, tmp_path: Path) -> None:
    async def start(repl: Repl) -> StateRef:
        return await repl.goal_start("True")

    before = drive(simulator, tmp_path, start)

    async def use(repl: Repl) -> None:
        assert (await repl.goal_start("True")).id == before.id
        with pytest.raises(StaleState):
            await repl.goal_print(before)

    drive(simulator, tmp_path, use)


def test_a_success_with_sorry_is_no_proof(simulator: LeanBackend, tmp_path: Path) -> None:
    async def use(repl: Repl) -> tuple[object, StatePrint]:
        result = await repl.goal_tactic(await repl.goal_start("False"), "sorry")
        assert isinstance(result, TacticOk)
        return result, await repl.goal_print(result.state)

    result, printed = drive(simulator, tmp_path, use)
    assert isinstance(result, TacticOk)
    assert (result.goals, result.has_sorry, result.finished) == ((), True, False)
    assert not printed.closed


def test_automatic_mode_cannot_be_switched_off(fake_repl: FakeRepl, tmp_path: Path) -> None:
    async def use(repl: Repl) -> None:
        for way in (
            lambda: repl.options_set(automaticMode=False),
            lambda: repl.send(requests.OptionsSet(automatic_mode=False)),
            lambda: repl.call("options.set", {"automaticMode": False}),
        ):
            with pytest.raises(ValueError, match="hides open goals"):
                await way()

    drive(scripted(fake_repl, tmp_path), tmp_path, use)


def test_an_absent_root_is_not_a_proved_one(fake_repl: FakeRepl, tmp_path: Path) -> None:
    whole = {**PRINT, "root": {"pp": "trivial"}}

    async def use(repl: Repl) -> list[bool]:
        state = StateRef(0, repl.generation)
        return [
            (await repl.goal_print(state)).closed,
            (await repl.goal_print(state)).closed,
            # Goals that no one asked for are an empty list as well.
            (await repl.goal_print(state, goals=False)).closed,
        ]

    assert drive(scripted(fake_repl, tmp_path, PRINT, whole, whole), tmp_path, use) == [False, True, False]


# ---- files


def test_imports_that_failed_are_found_out_and_nothing_is_imported_twice(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    described = {"imports": ["Init"], "modules": ["Init.Prelude", "Init"]}
    whole = {"imports": ["Init"], "modules": ["Init", "Ours.Missing"]}
    backend = scripted(fake_repl, tmp_path, described, whole)

    async def use(repl: Repl) -> None:
        with pytest.raises(
            HeaderNotLoaded, match=r"import Ours\.Missing: not loaded; build the project"
        ) as lost:
            await repl.check_imports()
        assert lost.value.missing == ("Ours.Missing",)
        assert (await repl.check_imports()).imports == ("Init",)

    drive(backend, tmp_path, use, imports=("Init", "Ours.Missing"))
    assert {json.loads(line)["cmd"] for line in wire(tmp_path)} == {"env.describe"}


def test_a_module_is_imported_at_the_start_or_not_at_all(fake_repl: FakeRepl, tmp_path: Path) -> None:
    """One with an `[init]` declaration that is imported later ends the process with an abort."""

    async def use(repl: Repl) -> None:
        for text in ("import Mathlib\n", "import Ours.Tactic\nimport Mathlib\n\n#eval 1\n"):
            with pytest.raises(ValueError, match=r"import Mathlib: .* start one with the file's imports"):
                await repl.process(text, read_header=True)
        await repl.process("import Ours.Tactic\n", read_header=True)

    backend = scripted(fake_repl, tmp_path, {"units": []})
    drive(backend, tmp_path, use, imports=("Init", "Ours.Tactic"))
    assert all(b"Mathlib" not in line for line in wire(tmp_path))


def test_the_scope_of_a_processed_file_is_fresh(simulator: LeanBackend, tmp_path: Path) -> None:
    async def use(repl: Repl) -> list[bool]:
        first = await repl.process("namespace N\ntheorem t : True := trivial\n", inherit_env=True)
        short = await repl.process("theorem a : True := t\n")
        full = await repl.process("theorem b : True := N.t\n")
        return [any(unit.errors for unit in units) for units in (first, short, full)]

    assert drive(simulator, tmp_path, use) == [False, True, False]


def test_a_text_that_does_not_compile_is_rejected_input(simulator: LeanBackend, tmp_path: Path) -> None:
    async def use(repl: Repl) -> None:
        with pytest.raises(InputRejected):
            await repl.distil("theorem t : True := nonsense\n")
        with pytest.raises(InputRejected):
            await repl.goal_start("∀ (")
        with pytest.raises(BadRequest):
            await repl.env_inspect("No.such")

    drive(simulator, tmp_path, use)


def test_tactic_records_come_from_the_side_file_and_go_with_it(
    simulator: LeanBackend, tmp_path: Path
) -> None:
    async def use(repl: Repl) -> tuple[tuple[Unit, ...], list[Path]]:
        units = await repl.process(
            "theorem t (p : Prop) : p → p := by\n  intro h\n  exact h\n", invocations=True
        )
        return units, list(repl.folder.iterdir())

    (unit,), left = drive(simulator, tmp_path, use)
    assert unit.invocations is not None
    assert [one.tactic for one in unit.invocations] == ["intro h", "exact h"]
    assert unit.invocations[-1].goal_after == ""
    assert left == []


WRITES_RECORDS = """
for command, payload in requests():
    record = {"goalBefore": "⊢ True", "goalAfter": "", "tactic": "trivial", "usedConstants": ["True.intro"]}
    %s
    say('{"units": [{"boundary": [0, 9], "messages": [], "nInvocations": 1}]}')
"""
HONEST = 'open(payload["invocations"], "w").write(json.dumps({"units": [{"invocations": [record]}]}))'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("pass", "should have written"),
        ('os.symlink("/etc/passwd", payload["invocations"])', "should have written"),
        ('os.mkfifo(payload["invocations"])', "no regular file"),
        ('open(payload["invocations"], "w").write("{")', "no JSON"),
        ('open(payload["invocations"], "w").write(\'{"units": []}\')', "not those that the reply counts"),
    ],
)
def test_a_side_file_that_is_not_what_it_should_be_is_one_error(
    fake_repl: FakeRepl, tmp_path: Path, body: str, said: str
) -> None:
    backend = fake_repl('say("ready.")\n' + WRITES_RECORDS % body)

    async def use(repl: Repl) -> None:
        with pytest.raises(ReplProtocolError, match=said):
            await repl.process("x", invocations=True)
        assert not repl.alive

    drive(backend, tmp_path, use)


@pytest.mark.usefixtures("bubblewrap")
def test_a_repl_in_the_sandbox_writes_its_side_file_and_nothing_else(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    python = Path(sys.executable).resolve()
    if not str(python).startswith("/usr/"):
        python = Path("/usr/bin/python3")
    refused = 'open("here", "w"); sys.exit(9)'
    fake_repl(
        'say("ready.")\n'
        + WRITES_RECORDS % f"{HONEST}\n    try:\n        {refused}\n    except OSError:\n        pass"
    )
    script = tmp_path / "fake_repl"
    script.write_text(f"#!{python} -I\n" + (tmp_path / "fake_repl.py").read_text("utf-8"), "utf-8")
    script.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    backend = LeanBackend("pantograph", (str(script),), "a script", "", sandbox="bubblewrap")

    async def use(repl: Repl) -> tuple[tuple[Unit, ...], int, Path]:
        return await repl.process("x", invocations=True), repl.rss_bytes(), repl.folder

    (unit,), rss, folder = drive(backend, project, use, memory_bytes=2**30)
    assert unit.invocations is not None
    assert unit.invocations[0].used_constants == ("True.intro",)
    # bwrap itself is small; the interpreter below it is not.
    assert rss > 6 * 2**20
    assert not folder.exists()


def test_a_conformity_check_that_could_not_be_made_does_not_conform(
    fake_repl: FakeRepl, tmp_path: Path
) -> None:
    error = {"severity": "error", "data": "no", "pos": {"line": 1, "column": 0}}
    answers = [
        {"srcMessages": [], "dstMessages": []},
        {"srcMessages": [], "dstMessages": [error]},
        {"srcMessages": [], "dstMessages": [], "failure": "Adding axiom is not allowed: z"},
    ]

    async def use(repl: Repl) -> list[bool]:
        return [(await repl.track("a", "b")).conforms for _ in answers]

    assert drive(scripted(fake_repl, tmp_path, *answers), tmp_path, use) == [True, False, False]


def test_a_backend_is_never_given_our_environment(fake_repl: FakeRepl, tmp_path: Path) -> None:
    backend = dataclasses.replace(fake_repl("say(repr(sorted(os.environ))); sys.stdin.read()"), toolchain="")
    os.environ["EVERLEAN_TEST_SECRET"] = "x"
    try:
        with pytest.raises(ReplStartError) as error:
            asyncio.run(Repl.start(backend, imports=[], project=tmp_path))
    finally:
        del os.environ["EVERLEAN_TEST_SECRET"]
    assert "SECRET" not in str(error.value)
