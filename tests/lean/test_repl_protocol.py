"""What the client sends to a pantograph-repl of each dialect, and what it makes of the answers, without a process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from pipeline.lean.client import requests
from pipeline.lean.client.dialect import NEWEST, OPTIONAL, Dialect, probe, release
from pipeline.lean.client.errors import (
    BadRequest,
    HeaderNotLoaded,
    InputRejected,
    MalformedReply,
    ReplDied,
    ReplSuspect,
    StaleState,
    UnsupportedByDialect,
)
from pipeline.lean.client.messages import StateRef, TacticFailed, TacticOk, TacticParseError
from pipeline.lean.client.repl import Repl
from tests.support.lean import scripted
from tests.support.lean.scripted import InProcess, Script, repl_on
from tests.support.lean.scripted_repl import ScriptedRepl

T = TypeVar("T")
OLDER = Dialect("older", "older", frozenset())
MIDDLE = Dialect("middle", "older", OPTIONAL - {"goal.subsume"})
OK = {"nextStateId": 1, "goals": [], "messages": [], "hasSorry": False, "hasUnsafe": False}
PRINT = {"goals": [], "extraMVars": [], "rootHasSorry": False, "rootHasUnsafe": False, "rootHasMVar": False}
STARTED = {"stateId": 0, "root": "_uniq.1"}
UNKNOWN = {"error": "command", "desc": "Unknown command that"}
ILL_FORMED = {"error": "command", "desc": "Unable to parse json: a field is missing"}
BOTH = "Exactly one of {expr, copyFrom} must be supplied"


def drive(
    use: Callable[[Repl], Awaitable[T]],
    *answers: Mapping[str, object],
    imports: Sequence[str] = ("Init",),
    dialect: Dialect = NEWEST,
) -> tuple[T, list[str]]:
    """Use a REPL that gives these answers in turn; return what came of it, and the lines that were sent."""
    left = list(answers)

    async def respond(request: dict[str, Any]) -> Mapping[str, object]:
        return {} if request["cmd"] == "options.set" else left.pop(0)

    transport = InProcess(respond)

    async def run() -> T:
        async with repl_on(transport, imports=imports, dialect=dialect) as repl:
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
    answers: list[Any], name: str, error_names: str, commands: frozenset[str]
) -> None:
    assert probed(*answers) == Dialect(name, error_names, commands)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "answers", [[STARTED], [{"error": "elab", "desc": "?"}], [{"error": "command", "desc": ""}, {}]]
)
def test_a_program_that_answers_like_no_dialect_is_no_repl(answers: list[Any]) -> None:
    with pytest.raises(MalformedReply, match="expected a refusal"):
        probed(*answers)


@pytest.mark.parametrize(
    ("printed", "shown"), [("0.3.7/v4.21.0", "0.3.7"), ("0.3.15", "0.3.15"), ("main-branch\n", "main-branch")]
)
def test_a_version_is_for_people_and_never_refused(printed: str, shown: str) -> None:
    assert release(printed) == shown


def test_what_a_dialect_lacks_is_refused_before_anything_is_sent() -> None:
    async def use(repl: Repl) -> None:
        for request in (
            requests.FrontendDistil("x", ignore_values=False),
            requests.FrontendTrack("x", "y"),
        ):
            with pytest.raises(
                UnsupportedByDialect, match=rf"{request.command}.*older.*version 0\.3\.\d.*, or "
            ):
                await repl.send(request)

    assert drive(use, dialect=OLDER)[1] == []


def test_sorries_that_would_be_ignored_in_silence_are_refused() -> None:
    async def use(repl: Repl) -> None:
        with pytest.raises(UnsupportedByDialect, match=r"ignores the field; use frontend\.distil"):
            await repl.process("theorem t : True := sorry", sorrys=True)

    assert drive(use, dialect=MIDDLE)[1] == []


def test_a_repl_that_took_sorries_and_made_no_goals_is_found_out() -> None:
    warning = {"severity": "warning", "data": "declaration uses 'sorry'", "pos": {"line": 1, "column": 8}}

    async def use(repl: Repl) -> None:
        with pytest.raises(UnsupportedByDialect, match="made no goals"):
            await repl.process("theorem t : True := sorry", sorrys=True)

    drive(use, {"units": [{"boundary": [0, 25], "messages": [warning]}]}, dialect=OLDER)


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
            assert repl.dialect.name == name
            (target,) = await repl.open_sorries("theorem t (p : Prop) : p ∧ True := by\n  sorry\n")
            assert [goal.render() for goal in target.goals] == ["p : Prop\n⊢ p ∧ True"]
            result = await repl.goal_tactic(target.state, "constructor")
            assert isinstance(result, TacticOk)
            assert [goal.render() for goal in result.goals] == ["p : Prop\n⊢ p", "p : Prop\n⊢ True"]
            with pytest.raises(InputRejected, match="#error"):
                await repl.open_sorries("theorem t : #error := sorry")

    asyncio.run(run())


def test_the_older_dialect_answers_the_goals_of_sorries_with_their_bytes() -> None:
    goal = {"name": "_uniq.3", "fragment": "tactic", "target": {"pp": "True"}, "vars": []}
    unit = {"boundary": [0, 25], "messages": [], "goalStateId": 4}

    async def use(repl: Repl) -> None:
        (found,) = await repl.process("theorem t : True := sorry", sorrys=True)
        assert found.goal_state is not None
        assert (found.goal_state.id, found.goal_ranges) == (4, ((20, 25),))

    _, sent = drive(
        use, {"units": [unit | {"goals": [goal], "goalSrcBoundaries": [[20, 25]]}]}, dialect=OLDER
    )
    payload = json.loads(sent[-1])["payload"]
    assert (payload["sorrys"], payload["typeErrorsAsGoals"]) == (True, False)


# ---- lines


def test_requests_spell_out_every_bool_and_are_one_line_of_raw_utf8() -> None:
    async def use(repl: Repl) -> None:
        await repl.process("\n𝓝")
        await repl.distil("x")
        state = await repl.goal_start("∀ p, p")
        await repl.goal_tactic(state, "intro h", goal=0)
        await repl.goal_print(state)
        await repl.goal_delete([state])
        await repl.stat()

    none: dict[str, object] = {"units": [], "targets": []}
    assert drive(use, none, none, STARTED, OK, PRINT, {}, {"nGoals": 0})[1] == [
        '{"cmd":"options.set","payload":{"timeout":60000}}\n',
        '{"cmd":"frontend.process","payload":{"file":"\\n𝓝","readHeader":false,"inheritEnv":false,"newConstants":false}}\n',
        '{"cmd":"frontend.distil","payload":{"file":"x","ignoreValues":false}}\n',
        '{"cmd":"goal.start","payload":{"expr":"∀ p, p"}}\n',
        '{"cmd":"goal.tactic","payload":{"stateId":0,"tactic":"intro h","goalId":0}}\n',
        '{"cmd":"goal.print","payload":{"stateId":0,"rootExpr":true,"goals":true}}\n',
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


@pytest.mark.parametrize(
    "options",
    [
        {"printJsonPretty": True},
        {"printJsonPretty": False},
        {"timeout": 5},
        {"automaticMode": False},
    ],
)
def test_options_that_break_the_framing_the_limits_or_the_goals_are_refused(
    options: dict[str, bool | int],
) -> None:
    async def use(repl: Repl) -> None:
        refused = "hides open goals" if "automaticMode" in options else "one-line framing"
        with pytest.raises(ValueError, match=refused):
            await repl.options_set(**options)
        with pytest.raises(ValueError, match=refused):
            await repl.call("options.set", options)

    assert drive(use)[1] == []


# ---- errors and limits


def test_an_error_object_leaves_the_process_usable() -> None:
    async def use(repl: Repl) -> int:
        with pytest.raises(BadRequest) as refused:
            await repl.env_inspect("x")
        assert (refused.value.kind, refused.value.desc) == ("index", "Symbol not found")
        return await repl.stat()

    assert drive(use, {"error": "index", "desc": "Symbol not found"}, {"nGoals": 2})[0] == 2


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
            await repl.distil("theorem t : True := nonsense\n")
        with pytest.raises(InputRejected, match="unexpected end"):
            await repl.goal_start("∀ (")
        with pytest.raises(BadRequest):
            await repl.env_inspect("No.such")

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
        await repl.distil("x", timeout_s=9.0)
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
        assert not (await repl.goal_print(state)).closed

    drive(use, OK | {"hasSorry": True}, PRINT | {"root": {"pp": "sorry"}, "rootHasSorry": True})


def test_an_absent_root_is_not_a_proved_one() -> None:
    whole = {**PRINT, "root": {"pp": "trivial"}}

    async def use(repl: Repl) -> list[bool]:
        state = StateRef(0, repl.generation)
        return [
            (await repl.goal_print(state)).closed,
            (await repl.goal_print(state)).closed,
            # Goals that no one asked for are an empty list as well.
            (await repl.goal_print(state, goals=False)).closed,
        ]

    assert drive(use, PRINT, whole, whole)[0] == [False, True, False]


# ---- files


def test_imports_that_failed_are_found_out_and_nothing_is_imported_twice() -> None:
    described = {"imports": ["Init"], "modules": ["Init.Prelude", "Init"]}
    whole = {"imports": ["Init"], "modules": ["Init", "Ours.Missing"]}

    async def use(repl: Repl) -> None:
        with pytest.raises(
            HeaderNotLoaded, match=r"import Ours\.Missing: not loaded; build the project"
        ) as lost:
            await repl.check_imports()
        assert lost.value.missing == ("Ours.Missing",)
        assert (await repl.check_imports()).imports == ("Init",)

    _, sent = drive(use, described, whole, imports=("Init", "Ours.Missing"))
    assert {json.loads(line)["cmd"] for line in sent} == {"env.describe"}


def test_a_module_is_imported_at_the_start_or_not_at_all() -> None:
    """One with an `[init]` declaration that is imported later ends the process with an abort."""

    async def use(repl: Repl) -> None:
        for text in ("import Mathlib\n", "import Ours.Tactic\nimport Mathlib\n\n#eval 1\n"):
            with pytest.raises(ValueError, match=r"import Mathlib: .* start one with the file's imports"):
                await repl.process(text, read_header=True)
        await repl.process("import Ours.Tactic\n", read_header=True)

    _, sent = drive(use, {"units": []}, imports=("Init", "Ours.Tactic"))
    assert all("Mathlib" not in line for line in sent)


def test_a_conformity_check_that_could_not_be_made_does_not_conform() -> None:
    error = {"severity": "error", "data": "no", "pos": {"line": 1, "column": 0}}
    answers: list[dict[str, object]] = [
        {"srcMessages": [], "dstMessages": []},
        {"srcMessages": [], "dstMessages": [error]},
        {"srcMessages": [], "dstMessages": [], "failure": "Adding axiom is not allowed: z"},
    ]

    async def use(repl: Repl) -> list[bool]:
        return [(await repl.track("a", "b")).conforms for _ in answers]

    assert drive(use, *answers)[0] == [True, False, False]
