"""POST /fill over a real socket: the daemon's rungs and its gate, event by event, and what comes of who leaves. Lean's
answers are written down; a search with Lean itself is in `test_on_lean.py`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.jobs import child
from pipeline.jobs.child import MARK
from pipeline.jobs.ladder import WaitingRung
from pipeline.jobs.spec import KeyPlace
from pipeline.jobs.specs import (
    CuratedRung,
    EndpointRung,
    EndpointSpec,
    GeneratorSpec,
    Rung,
    SorryToProve,
    WholeSpec,
)
from pipeline.serve import fill as filling
from pipeline.serve.check import Judgement, judge
from pipeline.serve.checkouts import Checkout
from pipeline.serve.fill import _Filling, rungs_now
from pipeline.serve.spec import Limits, ServeSpec
from pipeline.serve.workspace import Workspace
from store.events.models import ModelKind
from store.events.proofs import ProofFound
from tests.support.daemon import warm
from tests.support.events import REPOSITORY
from tests.support.ladder import ladder
from tests.support.lean.scripted import Script, write_repl
from tests.support.serve import Promotions, Served, World, post, spec_of, streamed

SOURCE = """theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by
  sorry

theorem wrong (p q : Prop) (h : p) : q := by
  sorry
"""
SWAP = {"declaration": "swap"}
LEAN = Script(
    sorries={
        "theorem swap": ["p q : Prop\nh : p ∧ q\n⊢ q ∧ p"],
        "theorem wrong": ["p q : Prop\nh : p\n⊢ q"],
        "theorem more": ["True"],
        "example": ["True"],
    },
    tactics={("q ∧ p", "simp_all"): [], ("True", "trivial"): []},
)
TOKEN = "so-that-lean-may-run-without-a-sandbox"
MEMORY = 3 * 2**30
NO_TACTICS = "no tactics model is in use yet, and [train.tactics] names no model_name to begin with"
_PATIENCE_S = 20.0


@pytest.fixture(scope="module", autouse=True)
def jobs_that_load_nothing_anew() -> Iterator[None]:
    """They are found by their variables here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "subprocess", warm.jobs())
        yield


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world"), {"A.lean": SOURCE})


@pytest.fixture(scope="module")
def served(world: World) -> Iterator[Served]:
    with Served(climbing(world.spec(repl=write_repl(world.folder / "repl", LEAN))), token=TOKEN) as it:
        yield it


def climbing(spec: ServeSpec) -> ServeSpec:
    """Return a specification with rung 0, and with rung 2, which has no model."""
    made = ladder(Path("/"), 0, 2, memory_bytes=MEMORY)
    return replace(spec, lean=replace(spec.lean, ladder=made))


def asked(**more: Any) -> dict[str, Any]:
    return {"repository": REPOSITORY, "path": "A.lean", **more}


def told(served: Served, **more: Any) -> list[tuple[str, Any]]:
    """Return all events of a request, the comments left out."""
    with streamed(served.port, "/fill", asked(**more), token=TOKEN) as events:
        return [event for event in events if event[0]]


def of(events: Sequence[tuple[str, Any]], name: str) -> list[Any]:
    return [data for named, data in events if named == name]


def running(world: World) -> list[int]:
    """Return the processes that were begun for a client of this world's server, and what those began."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK, "").startswith(str(world.folder / "scratch")):
                found.append(process.pid)
    return found


def held_to(pid: int, memory_bytes: int) -> bool:
    """Return whether a process is limited to this memory, and leaves no core file."""
    try:
        process = psutil.Process(pid)
        return (process.rlimit(psutil.RLIMIT_DATA)[0], process.rlimit(psutil.RLIMIT_CORE)) == (
            memory_bytes,
            (0, 0),
        )
    except psutil.Error:
        return False


def wait_until(holds: Any, what: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def test_a_candidate_comes_before_its_verdict_and_is_no_proof(served: Served, world: World) -> None:
    before = world.position()
    events = told(served, sorry=SWAP)
    assert [name for name, _ in events] == ["begun", "rung", "candidate", "attempt", "verdict", "summary"]
    (begun,), (candidate,), (verdict,), (summary,) = (
        of(events, name) for name in ("begun", "candidate", "verdict", "summary")
    )
    assert (begun["commit"], begun["file"]) == (world.sha, "commit")
    assert [rung["number"] for rung in begun["rungs"]] == [0]
    assert begun["left_out"] == [{"number": 2, "reason": NO_TACTICS}]
    patched = SOURCE.encode()
    patched = b"".join(
        (
            patched[: candidate["byte_start"]],
            candidate["replacement"].encode(),
            patched[candidate["byte_end"] :],
        )
    )
    assert b"sorry" not in patched.partition(b"theorem wrong")[0]
    assert (verdict["candidate"], verdict["verdict"]) == (1, "unknown"), verdict
    assert {one["step"] for one in verdict["findings"]} >= {"text", "shape", "compile", "axioms"}
    assert (summary["ended"], summary["accepted"], summary["unknown"], summary["filled"]) == (
        "settled",
        0,
        1,
        [],
    )
    assert world.position() == before, "nothing is recorded"


def test_all_sorries_of_a_file_that_was_sent_are_worked_on(served: Served) -> None:
    events = told(served, text=f"theorem more : True := by\n  sorry\n\n{SOURCE}", rungs=[0], path="B.lean")
    (begun,), (summary,) = of(events, "begun"), of(events, "summary")
    assert [one["declaration"] for one in begun["sorries"]] == ["more", "swap", "wrong"]
    assert {one["declaration"] for one in of(events, "candidate")} == {"more", "swap"}
    outcomes = {one["sorry"]: one["outcome"] for one in of(events, "attempt")}
    assert outcomes[begun["sorries"][2]["id"]] != "found"
    assert (summary["sorries"], summary["candidates"]) == (3, 2)


def test_sorries_that_are_there_by_design_are_left_and_a_request_for_one_is_refused(served: Served) -> None:
    text = SOURCE.replace("theorem wrong", "@[exercise] theorem wrong")
    events = told(served, text=text)
    (begun,) = of(events, "begun")
    assert [one["declaration"] for one in begun["sorries"]] == ["swap"]
    assert [(one["declaration"], one["by_design"]) for one in begun["left"]] == [("wrong", "exercise")]
    assert of(events, "summary")[0]["sorries"] == 1
    (error,) = of(told(served, text=text, sorry={"declaration": "wrong"}), "error")
    assert "the sorry of wrong (line 5) is there by design (exercise)" in error["reason"]


def test_a_search_that_calls_a_trap_a_proof_is_told_off_by_the_gate(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def search(
        self: _Filling,
        rung: Rung,
        made: Checkout,
        wanted: Sequence[SorryToProve],
        found: list[tuple[int, ProofFound]],
    ) -> None:
        (one,) = wanted
        trap = ProofFound(
            proof="p" * 16,
            sorry=one.sorry,
            repository=REPOSITORY,
            branch="main",
            sha=made.commit.sha,
            path=one.path,
            blob=one.blob,
            byte_start=one.byte_start,
            byte_end=one.byte_end,
            declaration=one.declaration,
            declaration_text_hash="",
            replacement="exact sorryAx _",
            parts=(),
            tactics=("exact sorryAx _",),
            prover=rung.prover,
            rung=rung.number,
            toolchain="",
            job="j",
        )
        self._record(rung, trap, found)

    monkeypatch.setattr(_Filling, "_search", search)
    events = told(served, sorry=SWAP)
    (verdict,), (summary,) = of(events, "verdict"), of(events, "summary")
    assert verdict["verdict"] == "rejected"
    assert "sorryAx" in verdict["reason"]
    assert (summary["ended"], summary["accepted"], summary["rejected"], summary["filled"]) == (
        "rungs",
        0,
        1,
        [],
    )


def test_who_leaves_ends_the_search_and_makes_room_for_who_waits(
    hanging: Served, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "heartbeat_s", 0.05)
    with contextlib.ExitStack() as first:
        search = first.enter_context(streamed(hanging.port, "/fill", asked(sorry=SWAP), token=TOKEN))
        assert "rung" in (name for name, _ in search)
        wait_until(
            lambda: any(held_to(pid, MEMORY) for pid in running(world)), "a search is held to its memory"
        )
        with streamed(hanging.port, "/fill", asked(sorry=SWAP, rungs=[2]), token=TOKEN) as others:
            assert next(others) == ("waiting", {"places": 1})
            assert next(others) == ("", "still at work")
            first.close()
            assert [name for name, _ in others if name] == ["begun", "summary"]
    wait_until(lambda: not running(world), "what was begun for who has left is gone")
    wait_until(lambda: not list((world.folder / "scratch" / "of-it").iterdir()), "its files are gone")


def test_two_equal_examples_are_searched_and_judged_each_by_itself(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "example : True := by\n  sorry\n"
    first, second = (place + text.index("sorry") for place in (0, len(text)))

    async def judged(workspace: Workspace, made: Checkout, proof: ProofFound, *, search: Any) -> Judgement:
        # As a real Lean might: one is good, and the other is not.
        said = await judge(workspace, made, proof, search=search)
        return said.model_copy(update={"verdict": "accepted" if proof.byte_start == first else "rejected"})

    monkeypatch.setattr(filling, "judge", judged)
    events = told(served, text=2 * text, path="B.lean")
    (begun,), (summary,) = of(events, "begun"), of(events, "summary")
    (identity,) = {one["id"] for one in begun["sorries"]}
    for name in ("candidate", "attempt", "verdict"):
        assert [one["byte_start"] for one in of(events, name)] == [first, second], name
    assert summary["filled"] == [{"sorry": identity, "byte_start": first}]
    assert (summary["ended"], summary["accepted"], summary["rejected"]) == ("rungs", 1, 1)


@pytest.fixture(scope="module")
def hanging(world: World) -> Iterator[Served]:
    with Served(that_hangs(world, "of-it", Limits(lean_processes=1)), token=TOKEN) as it:
        yield it


def that_hangs(world: World, name: str, limits: Limits) -> ServeSpec:
    """Return a specification whose Lean never answers, so that no search ends by itself."""
    repl = write_repl(world.folder / name, LEAN, faults={"hang": 1.0})
    spec = climbing(world.spec(repl=repl, limits=limits))
    return replace(spec, lean=replace(spec.lean, scratch=world.folder / "scratch" / name))


def test_the_seconds_of_the_request_end_a_running_search(hanging: Served, world: World) -> None:
    events = told(hanging, sorry=SWAP, seconds=0.2)
    (summary,) = of(events, "summary")
    assert (summary["ended"], summary["candidates"]) == ("seconds", 0)
    assert not of(events, "attempt"), "it was ended, and did not end by itself"
    assert not running(world)


def test_the_server_s_own_limit_ends_a_search_with_a_summary(world: World) -> None:
    with Served(that_hangs(world, "limited", Limits(lean_seconds=10.0)), token=TOKEN) as it:
        events = told(it, sorry=SWAP)
        assert [name for name, _ in events][-2:] == ["error", "summary"], events
        assert (events[-2][1]["error"], events[-1][1]["ended"]) == ("timeout", "timeout")
        assert not running(world)
        status, answer = post(it.port, "/fill", asked(sorry=SWAP, seconds=10.5), token=TOKEN)
        assert (status, answer["error"]) == (409, "too_many_seconds")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"sorry": {"declaration": "none"}}, "no_such_sorry"),
        ({"path": "None.lean"}, "unknown_file"),
        ({"text": "theorem t : True := sorry\n" * 40}, "too_many_sorrys"),
    ],
)
def test_what_turns_out_in_the_stream_is_an_error_and_a_summary(
    served: Served, more: dict[str, Any], error: str
) -> None:
    events = told(served, **more)
    assert [name for name, _ in events] == ["error", "summary"]
    assert (events[0][1]["error"], events[1][1]["ended"]) == (error, "failed")
    assert events[0][1]["remedy"]


def test_what_is_known_before_has_its_status(served: Served) -> None:
    for more, status, error in (
        ({"repository": "example.org/no/such"}, 404, "unknown_repository"),
        (
            {"repository": "example.org/no/such", "candidates": 16.0, "rungs": [0.0]},
            404,
            "unknown_repository",
        ),
        ({"candidates": 16.5}, 422, "invalid_request"),
        ({"candidates": "16"}, 422, "invalid_request"),
        ({"rungs": [True]}, 422, "invalid_request"),
        ({"path": "../A.lean"}, 422, "bad_path"),
        ({"rungs": [7]}, 422, "invalid_request"),
        ({"seconds": 0}, 422, "invalid_request"),
    ):
        found, answer = post(served.port, "/fill", asked() | more, token=TOKEN)
        assert (found, answer["error"]) == (status, error), answer


def test_without_lean_nothing_is_searched_for(world: World) -> None:
    spec = world.spec()
    with Served(replace(spec, lean=replace(spec.lean, scratch=world.folder / "none"))) as it:
        events = told(it, sorry=SWAP)
    assert [name for name, _ in events] == ["error", "summary"]
    assert events[0][1]["error"] == "no_lean"


def test_rungs_take_the_checkpoints_in_use(tmp_path: Path) -> None:
    endpoint = EndpointSpec(base_url="http://127.0.0.1:1", model="m", credential="c", key_variable="K")
    made = ladder(
        tmp_path,
        *(0, 1, 2, 4),
        generator=GeneratorSpec(path="/hub/g"),
        tactics=GeneratorSpec(path="/hub/base"),
        endpoint=EndpointRung(endpoint=endpoint, whole=WholeSpec()),
    )
    spec = spec_of(tmp_path)
    spec = replace(spec, lean=replace(spec.lean, ladder=made))
    with Promotions(spec) as promotions:
        (_, words, falls_back, asks), waits = rungs_now(spec, None)
        assert waits == []
        assert words.model == "bm25+/hub/g"
        assert falls_back.model == "/hub/base"
        assert asks.key == KeyPlace("c", "K")
        in_use: list[tuple[ModelKind, str]] = [("retriever", "r1"), ("tactics", "t1"), ("progress", "p1")]
        for model, checkpoint in in_use:
            promotions.promote(model, checkpoint)
        rungs, waits = rungs_now(spec, [4, 3, 2, 1])
        assert (rungs, []) == made.only([4, 2, 1]).climb(dict[str, str](in_use))
        assert waits == [WaitingRung(3, "it is none of [prove] rungs")]
        assert [one.model for one in rungs] == ["m", "t1", "r1+/hub/g"]
        ((zero,), _) = rungs_now(spec, [0])
        assert zero.spec == CuratedRung(), "to load the retriever would take longer than the search"
