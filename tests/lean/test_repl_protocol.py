"""What the client sends to a pantograph-repl of each dialect, and what it makes of the answers, without a process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import pytest

from pipeline.lean.client.dialect import Dialect, probe
from pipeline.lean.client.errors import (
    BadRequest,
    InputRejected,
    MalformedReply,
    ReplDied,
    ReplSuspect,
    StaleState,
    UnsupportedByDialect,
)
from pipeline.lean.client.messages import StateRef, TacticFailed, TacticOk, TacticParseError
from pipeline.lean.client.repl import Repl
from pipeline.lean.goal_text import as_lean_prints
from tests.support.lean import scripted
from tests.support.lean.scripted import InProcess, Script, repl_on
from tests.support.lean.scripted_repl import ScriptedRepl

T = TypeVar("T")
OK = {"nextStateId": 1, "goals": [], "messages": [], "hasSorry": False, "hasUnsafe": False}
STARTED = {"stateId": 0, "root": "_uniq.1"}
UNKNOWN = {"error": "command", "desc": "Unknown command that"}
ILL_FORMED = {"error": "command", "desc": "Unable to parse json: a field is missing"}
BOTH = "Exactly one of {expr, copyFrom} must be supplied"


def drive(
    use: Callable[[Repl], Awaitable[T]],
    *answers: Mapping[str, object],
    dialect: Dialect = "newer",
) -> tuple[T, list[str]]:
    """Use a REPL that gives these answers in turn; return what came of it, and the lines that were sent."""
    left = list(answers)

    async def respond(request: dict[str, Any]) -> Mapping[str, object]:
        return {} if request["cmd"] == "options.set" else left.pop(0)

    transport = InProcess(respond)

    async def run() -> T:
        async with repl_on(transport, dialect=dialect) as repl:
            return await use(repl)

    return asyncio.run(run()), [line.decode() for line in transport.sent]


def drive_scripted(use: Callable[[Repl], Awaitable[T]], script: Script | None = None) -> T:
    async def run() -> T:
        async with scripted.repl(script) as repl:
            return await use(repl)

    return asyncio.run(run())


def probed(*answers: Mapping[str, object]) -> Dialect:
    left = list(answers)

    async def ask(_command: str, _payload: object) -> Any:
        return left.pop(0)

    found = asyncio.run(probe(ask))
    assert left == []
    return found


# ---- dialects


@pytest.mark.parametrize(
    ("answers", "name"),
    [
        ([{"error": "command", "desc": BOTH}, ILL_FORMED], "newer"),
        ([{"error": "arguments", "desc": BOTH}, UNKNOWN, UNKNOWN], "older"),
        # 0.3.7: distil is there, subsume not yet.
        ([{"error": "arguments", "desc": BOTH}, UNKNOWN, ILL_FORMED], "middle"),
        # 0.3.5: no distil, and the newer names of errors.
        ([{"error": "command", "desc": BOTH}, UNKNOWN, UNKNOWN], "older"),
    ],
)
def test_the_dialect_is_learned_by_feature_and_not_by_version(answers: list[Any], name: str) -> None:
    assert probed(*answers) == name


@pytest.mark.parametrize(
    "answers", [[STARTED], [{"error": "elab", "desc": "?"}], [{"error": "command", "desc": ""}, {}]]
)
def test_a_program_that_answers_like_no_dialect_is_no_repl(answers: list[Any]) -> None:
    with pytest.raises(MalformedReply, match="expected a refusal"):
        probed(*answers)


def test_a_repl_that_took_sorries_and_made_no_goals_is_found_out() -> None:
    warning = {"severity": "warning", "data": "declaration uses 'sorry'", "pos": {"line": 1, "column": 8}}

    async def use(repl: Repl) -> None:
        with pytest.raises(UnsupportedByDialect, match="made no goals"):
            await repl.open_sorries("theorem t : True := sorry")

    drive(use, {"units": [{"boundary": [0, 25], "messages": [warning]}]}, dialect="older")


@pytest.mark.parametrize("name", ["older", "middle", "newer"])
def test_in_each_dialect_a_sorry_is_a_goal_and_tactics_lead_on_from_it(name: str) -> None:
    script = Script(
        sorries={"theorem t": ["p : Prop\n⊢ p ∧ True"]}, tactics={("p ∧ True", "constructor"): ["p", "True"]}
    )
    program = ScriptedRepl(script=script.table(), dialect=name)

    async def respond(request: dict[str, Any]) -> Mapping[str, object]:
        return program.answer(request)

    async def run() -> None:
        async with repl_on(InProcess(respond)) as repl:
            repl.dialect = await probe(repl._probe)
            assert repl.dialect == name
            (target,) = await repl.open_sorries("theorem t (p : Prop) : p ∧ True := by\n  sorry\n")
            assert [as_lean_prints(goal) for goal in target.goals] == ["p : Prop\n⊢ p ∧ True"]
            result = await repl.goal_tactic(target.state, "constructor")
            assert isinstance(result, TacticOk)
            assert [as_lean_prints(goal) for goal in result.goals] == ["p : Prop\n⊢ p", "p : Prop\n⊢ True"]
            with pytest.raises(InputRejected, match="#error"):
                await repl.open_sorries("theorem t : #error := sorry")

    asyncio.run(run())


def test_the_older_dialect_is_asked_for_the_goals_of_sorries_by_a_field() -> None:
    goal = {"name": "_uniq.3", "fragment": "tactic", "target": {"pp": "True"}, "vars": []}
    unit = {"boundary": [0, 25], "messages": [], "goalStateId": 4, "goals": [goal]}

    async def use(repl: Repl) -> None:
        (found,) = await repl.open_sorries("theorem t : True := sorry")
        assert (found.state.id, [goal.target for goal in found.goals]) == (4, ["True"])

    _, sent = drive(use, {"units": [unit]}, dialect="older")
    payload = json.loads(sent[-1])["payload"]
    assert (payload["sorrys"], payload["typeErrorsAsGoals"]) == (True, False)


# ---- lines


def test_requests_spell_out_every_bool_and_are_one_line_of_raw_utf8() -> None:
    async def use(repl: Repl) -> None:
        await repl.process("\n𝓝")
        await repl.open_sorries("x")
        state = await repl.goal_start("∀ p, p")
        await repl.goal_tactic(state, "intro h", goal=0)
        await repl.goal_print(state)
        await repl.goal_delete([state])
        await repl.stat()

    none: dict[str, object] = {"units": [], "targets": []}
    assert drive(use, none, none, STARTED, OK, {"goals": []}, {}, {"nGoals": 0})[1] == [
        '{"cmd":"options.set","payload":{"timeout":60000}}\n',
        '{"cmd":"frontend.process","payload":{"file":"\\n𝓝","readHeader":false,"inheritEnv":false,"newConstants":false}}\n',
        '{"cmd":"frontend.distil","payload":{"file":"x","ignoreValues":false}}\n',
        '{"cmd":"goal.start","payload":{"expr":"∀ p, p"}}\n',
        '{"cmd":"goal.tactic","payload":{"stateId":0,"tactic":"intro h","goalId":0}}\n',
        '{"cmd":"goal.print","payload":{"stateId":0,"goals":true,"rootExpr":false}}\n',
        '{"cmd":"goal.delete","payload":{"stateIds":[0]}}\n',
        '{"cmd":"stat","payload":{}}\n',
    ]


def test_a_lone_surrogate_is_refused_and_costs_nothing() -> None:
    async def use(repl: Repl) -> int:
        with pytest.raises(ValueError, match="lone surrogate"):
            await repl.goal_start("\ud800")
        return await repl.stat()

    assert drive(use, {"nGoals": 2})[0] == 2


def test_calls_from_many_tasks_each_get_their_own_answer() -> None:
    async def use(repl: Repl) -> list[object]:
        state = await repl.goal_start("p")
        tactics = ["step", "fail", "("] * 10
        return list(await asyncio.gather(*(repl.goal_tactic(state, tactic) for tactic in tactics)))

    found = drive_scripted(use)
    assert [type(result) for result in found] == [TacticOk, TacticFailed, TacticParseError] * 10


# ---- errors and limits


def test_an_error_object_leaves_the_process_usable() -> None:
    async def use(repl: Repl) -> int:
        with pytest.raises(BadRequest) as refused:
            await repl.goal_print(StateRef(9, repl.generation))
        assert (refused.value.kind, refused.value.desc) == ("index", "Invalid state index 9")
        return await repl.stat()

    assert drive(use, {"error": "index", "desc": "Invalid state index 9"}, {"nGoals": 2})[0] == 2


def test_an_error_that_escaped_its_handler_takes_the_process_out_of_use() -> None:
    async def use(repl: Repl) -> None:
        with pytest.raises(ReplSuspect):
            await repl.stat()
        assert not repl.alive
        with pytest.raises(ReplDied, match="suspect"):
            await repl.stat()

    drive(use, {"error": "main", "desc": "?"}, {"nGoals": 1})


def test_a_text_that_does_not_compile_is_rejected_input() -> None:
    async def use(repl: Repl) -> None:
        with pytest.raises(InputRejected, match="unknown identifier"):
            await repl.open_sorries("theorem t : True := nonsense\n")
        with pytest.raises(InputRejected, match="unexpected end"):
            await repl.goal_start("∀ (")

    errors = {"nonsense": "unknown identifier 'nonsense'", "∀ (": "unexpected end of input"}
    drive_scripted(use, Script(errors=errors))


@pytest.mark.parametrize(
    "reply",
    [
        {"error": "io", "desc": "interrupt"},
        {"error": "internal", "desc": "interrupt"},
        {"error": "core", "desc": "(deterministic) timeout at `whnf`, maximum number of heartbeats (200000)"},
        {"error": "io", "desc": "maximum recursion depth has been reached"},
    ],
)
def test_a_limit_inside_lean_is_a_failed_tactic_and_not_a_dead_server(reply: dict[str, str]) -> None:
    async def use(repl: Repl) -> None:
        state = StateRef(0, repl.generation)
        failed = await repl.goal_tactic(state, "simp")
        assert isinstance(failed, TacticFailed)
        assert failed.interrupted
        assert failed.reason == reply["desc"]
        assert isinstance(await repl.goal_tactic(state, "rfl"), TacticOk)

    drive(use, reply, OK)


def test_the_interrupt_is_kept_near_the_budget_without_a_request_each() -> None:
    async def use(repl: Repl) -> None:
        for limit_s in (5.0, 4.9, 4.8, 4.0, 4.1):
            await repl.process("x", timeout_s=limit_s)
        # No interrupt reaches the one, and the other ends at once: whichever limit is set.
        await repl.open_sorries("x", timeout_s=9.0)
        await repl.stat()

    none: dict[str, object] = {"units": [], "targets": [], "nGoals": 0}
    sent = [json.loads(line) for line in drive(use, *[none] * 7)[1]]
    assert [one["payload"]["timeout"] for one in sent if one["cmd"] == "options.set"] == [5000, 4000, 4100]


# ---- states


def test_ids_that_are_given_out_again_after_a_reset_are_not_confused() -> None:
    async def use(repl: Repl) -> None:
        before = await repl.goal_start("True")
        assert await repl.reset() == 1
        after = await repl.goal_start("False")
        assert before.id == after.id
        with pytest.raises(StaleState, match="replay"):
            await repl.goal_tactic(before, "trivial")
        await repl.goal_delete([before])
        assert await repl.stat() == 1

    drive_scripted(use)


def test_a_call_that_waits_behind_a_reset_finds_its_state_stale() -> None:
    async def use(repl: Repl) -> list[object]:
        state = await repl.goal_start("True")
        return list(
            await asyncio.gather(repl.reset(), repl.goal_tactic(state, "trivial"), return_exceptions=True)
        )

    count, late = drive_scripted(use)
    assert count == 1
    assert isinstance(late, StaleState)


def test_ids_of_another_process_are_not_confused() -> None:
    async def start(repl: Repl) -> StateRef:
        return await repl.goal_start("True")

    before = drive_scripted(start)

    async def use(repl: Repl) -> None:
        assert (await repl.goal_start("True")).id == before.id
        with pytest.raises(StaleState):
            await repl.goal_print(before)

    drive_scripted(use)


def test_a_success_with_sorry_is_no_proof() -> None:
    async def use(repl: Repl) -> None:
        state = StateRef(0, repl.generation)
        result = await repl.goal_tactic(state, "sorry")
        assert isinstance(result, TacticOk)
        assert (result.goals, result.has_sorry, result.finished) == ((), True, False)

    drive(use, OK | {"hasSorry": True})
