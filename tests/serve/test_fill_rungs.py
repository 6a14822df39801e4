"""POST /fill on the rungs that ask someone else: an endpoint on a real socket, and a program. Lean's answers are
written down. What a rung does with a model of this machine is shown by the prove job (tests/prove)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.ladder import Ladder
from pipeline.jobs.spec import KeyPlace
from pipeline.jobs.specs import (
    EndpointRung,
    EndpointSpec,
    ProgramRung,
    ProgramSpec,
    WholeSpec,
)
from pipeline.serve.spec import Limits
from tests.support.chat_server import ChatServer, Says
from tests.support.events import REPOSITORY
from tests.support.ladder import ladder
from tests.support.lean.scripted import Script, write_repl
from tests.support.serve import Served, World, streamed

SOURCE = "theorem first (p : Prop) (h : p) : p := by\n  sorry\n\ntheorem second : 2 + 2 = 4 := by\n  sorry\n"
LEAN = Script(
    sorries={"theorem first": ["p : Prop\nh : p\n⊢ p"], "theorem second": ["2 + 2 = 4"]},
    tactics={("2 + 2 = 4", "rfl"): []},
)
KEY, VARIABLE = "the-key-of-the-endpoint", "EVERLEAN_TEST_KEY"
SECONDS = 60.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), {"A.lean": SOURCE})


@pytest.fixture(scope="module")
def repl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repl(tmp_path_factory.mktemp("repl"), LEAN)


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatServer]:
    with ChatServer([Says("```lean\nby\n  rfl\n```")], key=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def climb(world: World, chat: ChatServer) -> Ladder:
    whole = WholeSpec(proofs=1, repairs=0, max_tokens=16)
    script = world.folder / "agent"
    script.write_text(
        "#!/bin/sh\necho its key: $AGENT_KEY\nsed -i '/second/{n;s/sorry/rfl/}' A.lean\n", "utf-8"
    )
    script.chmod(0o755)
    program = ProgramSpec(
        name="agent",
        run=(str(script),),
        seconds=SECONDS,
        key=KeyPlace("", VARIABLE),
        key_variable="AGENT_KEY",
    )
    endpoint = EndpointSpec(base_url=chat.url, model="org/model", key_variable=VARIABLE, retries=0)
    return ladder(
        world.folder,
        *(4, 5),
        seconds=SECONDS,
        endpoint=EndpointRung(endpoint=endpoint, whole=whole),
        programs=(ProgramRung(program=program),),
    )


@pytest.fixture(scope="module")
def served(world: World, climb: Ladder, repl: Path) -> Iterator[Served]:
    spec = world.spec(repl=repl, limits=Limits(lean_processes=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, KEY)
        with Served(replace(spec, lean=replace(spec.lean, ladder=climb))) as it:
            yield it


def told(served: Served, *, fails: bool = False, **more: Any) -> list[tuple[str, Any]]:
    """Return all events of a search, which may say of a rung that it failed, or not."""
    body = {"repository": REPOSITORY, "path": "A.lean", "seconds": SECONDS, **more}
    with streamed(served.port, "/fill", body) as events:
        found = [event for event in events if event[0]]
    assert bool(of(found, "rung_failed")) == fails, found
    return found


def of(events: Sequence[tuple[str, Any]], name: str) -> list[Any]:
    return [data for named, data in events if named == name]


def test_rung_4_asks_the_endpoint_with_its_key_and_the_gate_judges_what_it_wrote(
    served: Served, chat: ChatServer
) -> None:
    events = told(served, rungs=[4], sorry={"declaration": "second"})
    (candidate,), (verdict,) = of(events, "candidate"), of(events, "verdict")
    assert (candidate["rung"], candidate["prover"], candidate["model"]) == (4, "external", "org/model")
    assert candidate["replacement"].split() == ["rfl"]
    assert verdict["verdict"] == "unknown"
    assert {one.authorization for one in chat.requests} == {f"Bearer {KEY}"}
    assert "second" in chat.requests[-1].body["messages"][-1]["content"]
    assert KEY not in str(events)


def test_rung_5_runs_a_program_with_its_key_and_the_gate_judges_what_it_left_in_the_file(
    served: Served, bubblewrap: None
) -> None:
    events = told(served, rungs=[5], sorry={"declaration": "second"})
    (candidate,), (verdict,) = of(events, "candidate"), of(events, "verdict")
    assert (candidate["rung"], candidate["prover"], candidate["model"]) == (5, "program", "agent")
    assert (candidate["replacement"], verdict["verdict"]) == ("rfl", "unknown")
    assert "its key: ***" in str(events)
    assert KEY not in str(events)


@pytest.mark.slow
def test_a_rung_whose_endpoint_refuses_the_key_fails_and_says_so_in_the_stream(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "another-key")
    events = told(served, fails=True, rungs=[4], sorry={"declaration": "second"})
    (failed,), (summary,) = of(events, "rung_failed"), of(events, "summary")
    assert (failed["number"], summary["ended"], summary["candidates"]) == (4, "rungs", 0)
    assert failed["reason"] == "auth_failed"
    assert failed["remedy"]
    assert "another-key" not in str(events)
