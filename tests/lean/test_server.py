"""Search through Lean's own language server, against Lean 4.35.0 itself: sessions, limits, and a whole job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from pipeline.lean.backend import LeanBackend
from pipeline.lean.client import server
from pipeline.lean.client.errors import (
    InputRejected,
    ReplDied,
    ReplStartError,
)
from pipeline.lean.client.messages import StateRef, TacticFailed, TacticOk, TacticParseError
from pipeline.lean.client.process import _tree
from pipeline.lean.client.repl import Repl
from pipeline.lean.client.server import start_repl
from pipeline.lean.pool import PoolLimits
from pipeline.lean.pool.pool import ReplKey, ReplPool, Setup
from pipeline.lean.pool.session import Session, Stepped
from pipeline.lean.source.scanner import parse
from tests.support.lean.wheel.lean import build
from tests.support.prove import attempts, parameters, run
from tests.support.trace import lean_itself

SWAP = "theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  sorry\n"


Conversation = Callable[[Repl], Coroutine[Any, Any, None]]
Talk = Callable[[Conversation], None]


@pytest.fixture(scope="module")
def talk(real_lean: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    """Run a conversation with the one server of this module, which begins without states and without texts above."""
    with asyncio.Runner() as runner:
        repl = runner.run(
            start_repl(lean_itself(real_lean), imports=("Init",), project=tmp_path_factory.mktemp("project"))
        )

        async def hold(conversation: Conversation) -> None:
            await repl.reset()
            await conversation(repl)

        yield lambda conversation: runner.run(hold(conversation))
        runner.run(repl.close())


@pytest.fixture
def talk_alone(real_lean: Path, tmp_path: Path) -> Talk:
    """Run a conversation, which puts texts above, with a server of its own."""

    async def hold(conversation: Conversation) -> None:
        async with await start_repl(lean_itself(real_lean), imports=("Init",), project=tmp_path) as repl:
            await conversation(repl)

    return lambda conversation: asyncio.run(hold(conversation))


async def opened(repl: Repl, text: str) -> StateRef:
    (target,) = await repl.open_sorries(text)
    return target.state


async def step(repl: Repl, state: StateRef, tactic: str, *, goal: int | None = None) -> TacticOk:
    answer = await repl.goal_tactic(state, tactic, goal=goal)
    assert isinstance(answer, TacticOk), answer
    return answer


async def shown(repl: Repl, text: str) -> str:
    """Return what Lean says of a text of one command."""
    ((message,),) = [unit.messages for unit in await repl.process(text)]
    return message.data


def texts(answer: TacticOk) -> list[str]:
    return [goal.target for goal in answer.goals]


# --- goals and tactics ----------------------------------------------------------------------------------------


def test_a_sorry_s_goal_has_its_hypotheses_and_its_target(talk: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        (target,) = await repl.open_sorries(
            "theorem t (m n : Nat) (h : m = n) : n = m := by\n  let k := 2\n  sorry\n"
        )
        (goal,) = target.goals
        assert [(one.user_name, one.type and one.type) for one in goal.vars] == [
            ("m", "Nat"), ("n", "Nat"), ("h", "m = n"), ("k", "Nat"),
        ]  # fmt: skip
        assert goal.vars[3].value is not None
        assert (goal.vars[3].value, goal.target) == ("2", "n = m")

    talk(conversation)


def test_goals_keep_their_order_whichever_one_a_tactic_is_for(talk: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        text = "theorem t (p q r s : Prop) (h : (p ∧ q) ∧ r ∧ s) : (p ∧ q) ∧ r ∧ s := by\n  sorry\n"
        split = await step(repl, await opened(repl, text), "refine ⟨?_, ?_⟩")
        assert texts(split) == ["p ∧ q", "r ∧ s"]
        second = await step(repl, split.state, "constructor", goal=1)
        assert texts(second) == ["p ∧ q", "r", "s"]
        third = await step(repl, second.state, "exact h.2.1", goal=1)
        assert texts(third) == ["p ∧ q", "s"]
        fourth = await step(repl, third.state, "exact h.2.2", goal=1)
        assert texts(fourth) == ["p ∧ q"]
        last = await step(repl, fourth.state, "exact h.1")
        assert last.finished

    talk(conversation)


def test_an_earlier_state_is_still_there_after_other_branches(talk: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        start = await opened(repl, SWAP)
        split = await step(repl, start, "constructor")
        assert isinstance(await repl.goal_tactic(split.state, "exact h.1"), TacticFailed)
        assert (await step(repl, start, "exact ⟨h.2, h.1⟩")).finished
        assert texts(await step(repl, split.state, "exact h.2")) == ["p"]
        assert await repl.stat() == 4
        await repl.goal_delete([split.state])
        assert await repl.stat() == 3
        assert await repl.reset() == 3

    talk(conversation)


@pytest.mark.parametrize(
    ("tactic", "kind"),
    [
        ("exact h", TacticFailed),
        ("exact nothing", TacticFailed),
        ("done", TacticFailed),
        ("first | rfl |", TacticParseError),
        ("cases h with", TacticFailed),
        ("exact (h", TacticParseError),
        ("exact h) (", TacticParseError),
        ("/- no end", TacticParseError),
        ("\nend Demo\ntheorem other : True := by", TacticParseError),
        ("", TacticParseError),
    ],
)
def test_what_does_not_hold_or_is_no_tactic_makes_no_state(talk: Talk, tactic: str, kind: type) -> None:
    async def conversation(repl: Repl) -> None:
        assert isinstance(await repl.goal_tactic(await opened(repl, SWAP), tactic), kind)
        assert await repl.stat() == 1

    talk(conversation)


@pytest.mark.parametrize(
    "tactic",
    [
        "cases h with\n| intro a b =>\n  constructor\n  · exact b\n  · exact a",
        "constructor -- a comment\nexact h.2\nexact h.1 -- another one",
        "exact ⟨h.2,\n\n  h.1⟩",
        "(constructor <;> simp [h])",
    ],
)
def test_a_tactic_of_several_lines_is_one_step(talk: Talk, tactic: str) -> None:
    async def conversation(repl: Repl) -> None:
        assert (await step(repl, await opened(repl, SWAP), tactic)).finished

    talk(conversation)


@pytest.mark.parametrize("tactic", ["sorry", "exact sorry", "have k : q := by sorry\nexact ⟨k, h.1⟩"])
def test_a_sorry_in_a_tactic_is_no_end(talk: Talk, tactic: str) -> None:
    async def conversation(repl: Repl) -> None:
        answer = await step(repl, await opened(repl, SWAP), tactic)
        assert (answer.goals, answer.has_sorry, answer.finished) == ((), True, False)

    talk(conversation)


def test_a_term_and_several_sorries_are_the_goals_of_one_state(talk: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        text = "theorem t (α : Type) (p q : Prop) (h : p ∧ q) : q ∧ p :=\n  ⟨sorry, by\n    sorry⟩\n"
        (target,) = await repl.open_sorries(text)
        assert [goal.target for goal in target.goals] == ["q", "p"]
        one = await step(repl, target.state, "exact h.1", goal=1)
        assert texts(one) == ["q"]
        assert (await step(repl, one.state, "exact h.2")).finished

    talk(conversation)


def test_a_closed_statement_is_a_goal(talk: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        state = await repl.goal_start("∀ n : Nat, 0 + n = n")
        intro = await step(repl, state, "intro n")
        induction = await step(repl, intro.state, "induction n")
        assert [goal.user_name for goal in induction.goals] == ["zero", "succ"]
        with pytest.raises(InputRejected, match="nothing"):
            await repl.goal_start("nothing = 1")

    talk(conversation)


# --- files ----------------------------------------------------------------------------------------------------


def test_messages_stand_at_their_command_and_place(talk_alone: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        await repl.process("theorem above : True := by\n  sorry\n", inherit_env=True)
        text = "theorem «𝔸 ⟨» : True := trivial\n\ntheorem b : «𝔸 ⟨» = 1 := rfl\ntheorem c : True := sorry\n"
        first, second, third = await repl.process(text)
        assert first.messages == ()
        (error,) = second.errors
        assert (error.pos.line, error.pos.column) == (3, 20)
        assert third.uses_sorry
        assert text.encode()[third.byte_start :].startswith(b"theorem c")

    talk_alone(conversation)


def test_a_message_is_its_command_s_behind_letters_of_several_bytes(talk_alone: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        name = "«" + 60 * "𝔸" + "»"
        first, second = await repl.process(f"theorem {name} : True := trivial theorem b : 1 = 2 := rfl\n")
        assert (first.errors, len(second.errors)) == ((), 2)

    talk_alone(conversation)


def test_what_stands_before_is_known_and_its_scope_is_not_in_force(talk_alone: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        before = (
            "namespace Demo.Deep\nvariable (p : Prop)\nsection Named\nopen Nat\ntheorem known : p → p := id\n"
        )
        (unit, *_) = await repl.process(before, inherit_env=True)
        assert not unit.errors
        await repl.process("theorem unfinished : 1 = 2 := sorry\n", inherit_env=True)
        text = "theorem t (r : Prop) (h : r) : r := by\n  sorry\n"
        state = await opened(repl, text)
        assert (await step(repl, state, "exact Demo.Deep.known r h")).finished
        assert isinstance(await repl.goal_tactic(state, "exact known r h"), TacticFailed)
        assert await shown(repl, "#check @Demo.Deep.known\n") == "Demo.Deep.known : ∀ (p : Prop), p → p"
        assert "nknown" in await shown(repl, "#check @known\n")

    talk_alone(conversation)


# --- limits, ends ---------------------------------------------------------------------------------------------


def test_a_tactic_without_end_is_withdrawn_and_the_next_one_answered_at_once(talk: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        state = await opened(repl, SWAP)
        began = time.monotonic()
        answer = await repl.goal_tactic(state, "repeat (first | skip)", timeout_s=0.5)
        assert isinstance(answer, TacticFailed)
        assert answer.interrupted
        assert (await step(repl, state, "exact ⟨h.2, h.1⟩")).finished
        assert time.monotonic() - began < 20

    talk(conversation)


def test_an_import_that_is_not_there_is_said_at_the_start(real_lean: Path, tmp_path: Path) -> None:
    async def go() -> None:
        with pytest.raises(ReplStartError, match=r"import Not\.There"):
            await start_repl(lean_itself(real_lean), imports=("Not.There",), project=tmp_path)

    asyncio.run(go())


def test_a_server_that_is_killed_is_named_and_a_session_goes_on_in_another(
    real_lean: Path, tmp_path: Path
) -> None:
    async def go() -> None:
        async with ReplPool(PoolLimits(processes=1)) as pool:
            key = ReplKey(lean_itself(real_lean), tmp_path, ("Init",))
            async with Session(
                pool, key, Setup(prefix=("theorem known (p : Prop) : p → p := id\n",))
            ) as session:
                (start,) = await session.distil(SWAP)
                split = await session.tactic(start, "constructor")
                assert isinstance(split, Stepped)
                assert session.process_id is not None
                os.kill(session.process_id, signal.SIGKILL)
                answer = await session.tactic(split.state, "exact known _ h.2")
                assert isinstance(answer, Stepped)
                assert [goal.target for goal in answer.state.goals] == ["p"]
                assert session.lives == 2

    asyncio.run(go())


@pytest.mark.usefixtures("bubblewrap")
def test_a_worker_that_dies_in_the_sandbox_is_replaced_or_said_and_leaves_nothing_behind(
    real_lean: Path, tmp_path: Path
) -> None:
    async def go() -> list[int]:
        repl = await start_repl(
            lean_itself(real_lean, sandbox="bubblewrap"), imports=("Init",), project=tmp_path
        )
        state = await opened(repl, SWAP)
        there = _tree(repl.pid)
        os.kill(there[-1], signal.SIGKILL)
        with contextlib.suppress(ReplDied):
            assert (await step(repl, state, "exact ⟨h.2, h.1⟩")).finished
        await repl.close()
        return there

    processes = asyncio.run(go())
    ends = time.monotonic() + 30
    while any(Path("/proc", str(one)).exists() for one in processes):
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_a_limit_on_memory_that_holds_no_lean_is_said(real_lean: Path, tmp_path: Path) -> None:
    async def go() -> None:
        lean, init = lean_itself(real_lean), ("Init",)
        with pytest.raises(ReplStartError, match="failed to create thread"):
            await start_repl(lean, imports=init, project=tmp_path, memory_bytes=2**29, ready_timeout_s=10)
        # What Lean reserves by itself, for the stack of each thread and to allocate from, would not fit.
        async with await start_repl(lean, imports=init, project=tmp_path, memory_bytes=2**31) as repl:
            assert repl.rss_bytes() < 2**29

    asyncio.run(go())


# --- a whole job ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("bubblewrap")
def test_a_file_s_sorries_are_found_in_the_sandbox(real_lean: Path, tmp_path: Path) -> None:
    source = Path("examples/demo-project/Demo/Logic.lean").read_text("utf-8")
    lean = lean_itself(real_lean, sandbox="bubblewrap")
    bodies, _ = run(parameters(tmp_path, source, lean=lean), tmp_path / "job")
    found = {name: one.outcome for name, one in attempts(bodies).items()}
    assert found == dict.fromkeys(
        ("Demo.and_regroup_back", "Demo.or_swap", "Demo.or_regroup", "Demo.and_over_or", "Demo._example"),
        "found",
    )


# --- what stands before ---------------------------------------------------------------------------------------


LEMMAS = "".join(
    f"theorem lemma_{n} (a b : Nat) : a + b = b + a := by\n  rw [Nat.add_comm]\n" for n in range(40)
)


def test_many_commands_above_are_compiled_and_imported(
    real_lean: Path, tmp_path: Path, sandbox: Literal["bubblewrap", "none"]
) -> None:
    async def go() -> None:
        lean = lean_itself(real_lean, sandbox=sandbox)
        async with await start_repl(lean, imports=("Init",), project=tmp_path) as repl:
            units = await repl.process(f"namespace Demo\n{LEMMAS}", inherit_env=True)
            assert len(units) == 41
            await repl.process("theorem one_more (p : Prop) : p → p := id\n", inherit_env=True)
            state = await opened(repl, SWAP)
            assert (await step(repl, state, "exact one_more _ ⟨h.2, h.1⟩")).finished
            assert await shown(repl, "#check Demo.lemma_39\n") == "Demo.lemma_39 (a b : Nat) : a + b = b + a"
            (unit,) = await repl.process("theorem t : 1 = 2 := by\n  decide\n")
            assert [one.pos.line for one in unit.errors] == [2]
            folder = repl._compiler.folder  # type: ignore[attr-defined]
            assert [one.name for one in folder.glob("*.olean")] == ["EverleanAbove1.olean"]
        assert not folder.exists()

    asyncio.run(go())


def test_private_names_above_are_known(talk_alone: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        await repl.process(f"{LEMMAS}private theorem hidden (p : Prop) : p → p := id\n", inherit_env=True)
        state = await opened(repl, SWAP)
        assert (await step(repl, state, "exact hidden _ ⟨h.2, h.1⟩")).finished

    talk_alone(conversation)


@pytest.mark.parametrize(
    ("lakefile", "text"),
    [
        ("lakefile.toml", 'name = "x"\nleanOptions.autoImplicit = false\nleanOptions.weak.no.such = true\n'),
        ("lakefile.toml", 'name = "x"\n[[lean_lib]]\nname = "A"\nleanOptions = { autoImplicit = false }\n'),
        ("lakefile.lean", "package x where\n  leanOptions := #[⟨`autoImplicit, false⟩]\n"),
    ],
)
def test_the_project_s_own_options_hold(real_lean: Path, tmp_path: Path, lakefile: str, text: str) -> None:
    (tmp_path / lakefile).write_text(text, "utf-8")

    async def go() -> None:
        async with await start_repl(lean_itself(real_lean), imports=("Init",), project=tmp_path) as repl:
            (unit,) = await repl.process("theorem t (h : α = β) : β = α := h.symm\n")
            assert "α" in unit.errors[0].data

    asyncio.run(go())


def test_lake_is_never_asked_to_set_a_file_up(real_lean: Path, tmp_path: Path) -> None:
    """It would evaluate the project's lakefile, and build what is imported."""
    tools, project = build(tmp_path / "tools"), tmp_path / "project"
    project.mkdir()
    (project / "lakefile.toml").write_text('name = "x"\n', "utf-8")
    lake = tools / "bin" / "lake"
    lake.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho the lakefile is wrong\nexit 1\n", "utf-8")
    lake.chmod(0o755)

    async def go() -> None:
        async with await start_repl(lean_itself(tools), imports=("Init",), project=project) as repl:
            assert (await step(repl, await opened(repl, SWAP), "exact ⟨h.2, h.1⟩")).finished

    asyncio.run(go())
    assert not (tmp_path / "asked").exists()


def test_without_such_options_lean_s_own_hold(talk: Talk) -> None:
    async def conversation(repl: Repl) -> None:
        (unit,) = await repl.process("theorem t (h : α = β) : β = α := h.symm\n")
        assert unit.errors == ()

    talk(conversation)


# --- module files ---------------------------------------------------------------------------------------------

OWN = """module
public section
def two : Nat := 2
@[expose] def three : Nat := 3
private theorem inner : two = 2 := rfl
"""
MODULE = f"""/- what a `module` file may say -/
module

public import Own
import all Own

{LEMMAS.replace("theorem", "private theorem", 1)}
@[expose] public section
namespace Demo

macro "by_rfl" : tactic => `(tactic| rfl)

private def four : Nat := 4

theorem again : two = 2 := inner

theorem shown : three = 3 := by
  sorry

theorem told : two = 2 := by
  sorry

private theorem hidden : four = two + two := by
  sorry

theorem both (p q : Prop) (h : p ∧ q) : q ∧ p := by
  sorry

end Demo
"""


def built(project: Path, real_lean: Path) -> LeanBackend:
    """Write and compile a `module` file `Own` of a project, as lake does, and return what searches there."""
    compiled = project / ".lake" / "build" / "lib" / "lean"
    compiled.mkdir(parents=True)
    (project / "Own.lean").write_text(OWN, "utf-8")
    lean = real_lean / "bin" / "lean"
    subprocess.run([lean, "-o", compiled / "Own.olean", "Own.lean"], cwd=project, env={}, check=True)
    return lean_itself(real_lean)


def header_of(text: str) -> str:
    return parse(text.encode()).own_header


async def searching(lean: LeanBackend, project: Path, header: str) -> Repl:
    return await start_repl(lean, imports=("Own",), header=header, project=project)


def test_a_module_file_s_session_sees_what_its_header_shows(real_lean: Path, tmp_path: Path) -> None:
    lean = built(tmp_path, real_lean)

    async def closed(header: str, statement: str) -> bool:
        async with await searching(lean, tmp_path, header) as repl:
            state = await opened(repl, f"theorem t : {statement} := by\n  sorry\n")
            return isinstance(await repl.goal_tactic(state, "rfl"), TacticOk)

    public, everything = "module\npublic import Own\n", "module\nimport all Own\n"
    assert asyncio.run(closed(public, "three = 3"))
    assert not asyncio.run(closed(public, "two = 2"))
    assert asyncio.run(closed(everything, "two = 2"))


def test_what_is_above_in_a_module_file_is_compiled_with_its_private_names(
    real_lean: Path, tmp_path: Path
) -> None:
    lean = built(tmp_path, real_lean)

    async def go() -> None:
        async with await searching(lean, tmp_path, header_of(MODULE)) as repl:
            above = MODULE[MODULE.index("private theorem") : MODULE.index("theorem shown")]
            units = await repl.process(above, inherit_env=True)
            assert [one.data for unit in units for one in unit.errors] == []
            folder = repl._compiler.folder  # type: ignore[attr-defined]
            assert [one.name for one in folder.glob("*.olean")] == ["EverleanAbove1.olean"]
            inside = "@[expose] public section\nnamespace Demo\n"
            state = await opened(repl, f"{inside}private theorem t : four = 4 := by\n  sorry\n")
            assert (await step(repl, state, "by_rfl")).finished
            assert isinstance(await repl.goal_tactic(state, "exact inner"), TacticFailed)
            # A public statement shows no private name, and Lean says so as it does in the file.
            with pytest.raises(InputRejected, match="private declaration `four`"):
                await opened(repl, f"{inside}theorem t : four = 4 := by\n  sorry\n")

    asyncio.run(go())


def test_a_module_file_s_sorries_are_found(real_lean: Path, tmp_path: Path) -> None:
    lean = built(tmp_path, real_lean)
    bodies, _ = run(parameters(tmp_path, MODULE, lean=lean), tmp_path / "job")
    assert {name: one.outcome for name, one in attempts(bodies).items()} == dict.fromkeys(
        ("Demo.shown", "Demo.told", "Demo.hidden", "Demo.both"), "found"
    )


def test_a_repl_s_toolchain_searches_module_files_through_its_language_server(
    real_lean: Path, tmp_path: Path
) -> None:
    """A `pantograph-repl` is started with names of modules: it cannot say `module`, nor `import all`."""
    repl = replace(lean_itself(real_lean), kind="pantograph", argv=("/no/such/repl",))
    key = ReplKey.of_file(repl, tmp_path, parse(MODULE.encode()))
    assert (key.backend.kind, key.backend.argv) == ("server", (str(real_lean / "bin" / "lean"),))
    assert key.header == "module\npublic import Own\nimport all Own\n"
    assert ReplKey.of_file(repl, tmp_path, parse(b"import Own\n")) == ReplKey(repl, tmp_path, ("Own",))
    nowhere = replace(repl, sysroot="")
    assert ReplKey.of_file(nowhere, tmp_path, parse(MODULE.encode())).backend == nowhere


# --- older Leans ----------------------------------------------------------------------------------------------


REFUSES = """#!/bin/sh
case "$*" in *reportDelayMs*) echo "unknown configuration option 'server.reportDelayMs'" >&2; exit 1;; esac
exec '{lean}' "$@"
"""


@pytest.mark.parametrize("whose", ["server", "worker"])
def test_a_lean_that_does_not_know_the_option_against_delays_is_started_without_it(
    real_lean: Path, tmp_path: Path, whose: str
) -> None:
    """An unknown option ends the server, or the worker that it starts for the file."""
    lean, refuses, starts = real_lean / "bin" / "lean", tmp_path / "refuses", tmp_path / "starts"
    refuses.write_text(REFUSES.format(lean=lean), "utf-8")
    starts.write_text(f"#!/bin/sh\nLEAN_WORKER_PATH='{refuses}' exec '{lean}' \"$@\"\n", "utf-8")
    for program in (refuses, starts):
        program.chmod(0o755)
    older = replace(lean_itself(real_lean), argv=(str(refuses if whose == "server" else starts),))

    async def go() -> float:
        began = time.monotonic()
        async with await start_repl(older, imports=("Init",), project=tmp_path) as repl:
            took_s = time.monotonic() - began
            assert (await step(repl, await opened(repl, SWAP), "exact ⟨h.2, h.1⟩")).finished
        return took_s

    assert asyncio.run(go()) < 20
    assert older in server._delayed
