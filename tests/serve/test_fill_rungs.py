"""POST /fill on the rungs that ask a model, over HTTP: a small model that says what it was made to say, and an endpoint
on a real socket. Lean's answers are written down."""

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
    GeneratorSpec,
    ProgramRung,
    ProgramSpec,
    WholeProofRung,
    WholeSpec,
)
from pipeline.models.chain import Chain, Step, TrainingFacts
from pipeline.models.datasets import TaskData
from pipeline.serve.spec import PROMOTED, Limits, ModelSpec
from tests.support.chat_server import ChatServer, Says
from tests.support.events import REPOSITORY
from tests.support.ladder import ladder
from tests.support.lean.scripted import Script, write_repl
from tests.support.serve import Promotions, Served, World, make_saying, premises, streamed
from tests.support.tiny_models import make_tiny_retriever

# The search is a process of its own, and loads torch.
pytestmark = pytest.mark.timeout(180)

SOURCE = "theorem first (p : Prop) (h : p) : p := by\n  sorry\n\ntheorem second : 2 + 2 = 4 := by\n  sorry\n"
SECOND = {"declaration": "second"}
LEAN = Script(
    sorries={"theorem first": ["p : Prop\nh : p\n⊢ p"], "theorem second": ["2 + 2 = 4"]},
    tactics={("2 + 2 = 4", "rfl"): []},
)
TACTICS, RETRIEVER = "a" * 16, "b" * 16
KEY, VARIABLE = "the-key-of-the-endpoint", "EVERLEAN_TEST_KEY"
SECONDS = 60.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("world"), {"A.lean": SOURCE})
    world.trace([premises("A.lean", ["one", "two"])], sha=world.sha)
    make_saying(world.folder / "models" / "tactics" / TACTICS, {"rfl": 1.0})
    Chain(world.folder / "models" / "retriever").put(
        Step(
            RETRIEVER,
            None,
            "tiny",
            "tiny",
            TaskData(REPOSITORY, world.folder, 1),
            "d" * 64,
            {"max_seq_len": 64, "data_max_seq_len": 64},
            0,
        ),
        lambda folder: make_tiny_retriever(folder, d_model=16, layers=1),
        TrainingFacts(steps=0, device="cpu", seconds=0.0, versions={}),
    )
    with Promotions(world.spec()) as promotions:
        promotions.promote("tactics", TACTICS)
        promotions.promote("retriever", RETRIEVER)
    return world


@pytest.fixture(scope="module")
def repl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repl(tmp_path_factory.mktemp("repl"), LEAN)


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatServer]:
    with ChatServer([Says("```lean\nby\n  rfl\n```")], key=KEY) as server:
        yield server


@pytest.fixture(scope="module")
def climb(world: World, chat: ChatServer) -> Ladder:
    named = GeneratorSpec(path=author(world), candidates=2)
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
        *(1, 2, 3, 4, 5),
        seconds=SECONDS,
        premises=2,
        generator=named,
        tactics=GeneratorSpec(path="", candidates=2),
        whole=WholeProofRung(generator=named, whole=whole),
        endpoint=EndpointRung(endpoint=endpoint, whole=whole),
        programs=(ProgramRung(program=program),),
    )


def author(world: World) -> str:
    """Return the model that the settings name."""
    return str(world.folder / "models" / "tactics" / TACTICS)


@pytest.fixture(scope="module")
def served(world: World, climb: Ladder, repl: Path) -> Iterator[Served]:
    """A server that has the tactic model in use loaded, as it has where nothing else is said."""
    spec = world.spec(
        ModelSpec("tactics", "tactics", PROMOTED, candidates=1, max_tokens=8),
        repl=repl,
        limits=Limits(lean_processes=1),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, KEY)
        with Served(replace(spec, lean=replace(spec.lean, ladder=climb))) as it:
            it.wait_ready()
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


@pytest.mark.slow
def test_rung_2_asks_the_tactic_model_in_use(served: Served) -> None:
    events = told(served, rungs=[2])
    (begun,), (summary,) = of(events, "begun"), of(events, "summary")
    assert begun["rungs"] == [{"number": 2, "prover": "generator", "model": TACTICS}]
    (candidate,) = of(events, "candidate")
    assert (candidate["declaration"], candidate["rung"], candidate["model"]) == ("second", 2, TACTICS)
    assert candidate["tactics"] == ["rfl"]
    attempts = {one["byte_start"]: one["outcome"] for one in of(events, "attempt")}
    assert [attempts[one["byte_start"]] for one in begun["sorries"]] == ["exhausted", "found"]
    (verdict,) = of(events, "verdict")
    assert (verdict["candidate"], verdict["verdict"]) == (1, "unknown")
    assert (summary["ended"], summary["unknown"]) == ("rungs", 1)


def test_rung_4_asks_the_endpoint_with_its_key_and_the_gate_judges_what_it_wrote(
    served: Served, chat: ChatServer
) -> None:
    events = told(served, rungs=[4], sorry=SECOND)
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
    events = told(served, rungs=[5], sorry=SECOND)
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
    events = told(served, fails=True, rungs=[4], sorry=SECOND)
    (failed,), (summary,) = of(events, "rung_failed"), of(events, "summary")
    assert (failed["number"], summary["ended"], summary["candidates"]) == (4, "rungs", 0)
    assert failed["reason"] == "auth_failed"
    assert failed["remedy"]
    assert "another-key" not in str(events)


@pytest.mark.slow
def test_rung_1_shows_the_generator_what_the_retriever_in_use_finds(served: Served, world: World) -> None:
    (candidate,) = of(told(served, rungs=[1]), "candidate")
    assert (candidate["declaration"], candidate["prover"]) == ("second", "retrieval")
    assert candidate["model"] == f"{RETRIEVER}+{author(world)}"


@pytest.mark.slow
def test_rung_3_has_a_model_of_this_machine_write_whole_proofs(served: Served, world: World) -> None:
    (candidate,) = of(told(served, rungs=[3], sorry=SECOND), "candidate")
    assert (candidate["prover"], candidate["model"], candidate["rung"]) == ("whole", author(world), 3)


@pytest.mark.slow
def test_a_server_without_the_rung_s_model_has_the_search_load_it(
    world: World, climb: Ladder, repl: Path, tmp_path: Path
) -> None:
    spec = world.spec(repl=repl)
    spec = replace(spec, lean=replace(spec.lean, ladder=climb, scratch=tmp_path / "scratch"))
    with Served(spec) as it:
        (candidate,) = of(told(it, rungs=[2]), "candidate")
        assert (candidate["declaration"], candidate["model"]) == ("second", TACTICS)
