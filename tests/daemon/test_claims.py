"""Agents claim sorries through the running daemon: one at a time has each, until its lease ends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from mcp import Client
from typer.testing import CliRunner

from daemon.agents import claims as claims_of_agents
from daemon.agents.claims import Claims
from daemon.agents.server import Tools, make_server
from daemon.cli.app import build
from daemon.place.control_client import request
from daemon.scheduling.scheduler import WorkStateError
from pipeline.lean.source import splice
from pipeline.lean.source.splice import JoinError
from store.view import queries
from tests.support.agents import answer_of
from tests.support.daemon.deployment import Deployment

FILES = {
    "A.lean": "theorem a : True ∧ True := by\n  constructor\n  · sorry\n  · sorry\n\ntheorem b : True := by\n  sorry\n",
    "C.lean": "theorem c : True := trivial\n",
    "comparator.json": '{"challenge_module": "Asked"}\n',
    "Asked.lean": "theorem asked : True := by\n  sorry\n",
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A running daemon with two scanned repositories."""
    deployment = Deployment(tmp_path_factory.mktemp("deployment"))
    remotes = [deployment.remote(name) for name in ("demo", "shy")]
    for remote in remotes:
        remote.commit("first", FILES)
    deployment.write(repos=[one.path for one in remotes])
    with deployment.daemon():
        deployment.wait_for(lambda: len(deployment.events("commit_scanned")) == 2, what="the scans")
        yield deployment


def call(deployment: Deployment, *calls: tuple[str, dict[str, Any]]) -> list[tuple[bool, Any]]:
    """Call tools at the same time; return of each whether it was done, and its answer or its refusal."""

    async def go() -> list[tuple[bool, Any]]:
        async with Client(make_server(Tools(deployment.config))) as client:
            return [*map(answer_of, await asyncio.gather(*(client.call_tool(*one) for one in calls)))]

    return asyncio.run(go())


def ask(deployment: Deployment, tool: str, **arguments: Any) -> tuple[bool, Any]:
    (answer,) = call(deployment, (tool, arguments))
    return answer


def sorry_of(deployment: Deployment, declaration: str, *, repository: str = "demo", number: int = 0) -> str:
    _, page = ask(deployment, "search_sorries", repository=repository)
    sorries = [one["sorry"] for one in page["sorries"] if one["declaration"] == declaration]
    return str(sorries[number])


def test_of_two_agents_that_claim_a_sorry_at_once_one_gets_it_and_the_other_hears_who(
    deployment: Deployment,
) -> None:
    sorry = sorry_of(deployment, "b")
    answers = call(
        deployment, *(("claim_sorry", {"sorry": sorry, "agent": f"agent {one}"}) for one in range(4))
    )
    (won,) = (answer for done, answer in answers if done)
    refusals = [answer for done, answer in answers if not done]
    assert len(refusals) == 3
    _, shown = ask(deployment, "show_sorry", sorry=sorry)
    holder = shown["branches"][0]["claimed_by"]
    assert all(f"b: {holder} has claimed it until" in one for one in refusals)
    again = ask(deployment, "claim_sorry", sorry=sorry, agent=holder)
    assert (again[0], f"b: you, {holder}, have claimed it until" in again[1]) == (False, True)
    _, renewed = ask(deployment, "claim_sorry", sorry=sorry, agent=holder, minutes=240, claim=won["claim"])
    assert renewed["claim"] == won["claim"]
    assert renewed["until"] > won["until"]
    assert ask(deployment, "release_sorry", claim=won["claim"]) == (
        True, {"claim": won["claim"], "sorry": sorry},
    )  # fmt: skip
    assert "its lease may have ended" in ask(deployment, "release_sorry", claim=won["claim"])[1]
    events = deployment.events("sorry_claimed", "claim_released")
    assert [event.type for event in events] == ["sorry_claimed", "sorry_claimed", "claim_released"]


def test_a_claim_is_of_the_whole_declaration_and_people_can_see_and_end_it(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLEAN_CONFIG", str(deployment.config))
    first, second = (sorry_of(deployment, "a", number=one) for one in range(2))
    assert ask(deployment, "claim_sorry", sorry=first, agent="one")[0]
    assert "one has claimed it" in ask(deployment, "claim_sorry", sorry=second, agent="two")[1]
    sorries = json.loads(CliRunner().invoke(build(), ["sorries", "--json"]).output)["sorries"]
    assert {one["sorry"]: one["claim"]["agent"] for one in sorries if one["claim"]} == {first: "one"}
    assert ", claimed by one" in CliRunner().invoke(build(), ["sorries"]).output
    result = CliRunner().invoke(build(), ["sorries", "release", first[:8]])
    assert result.output == f"{first}: one has it no longer\n"
    assert ask(deployment, "claim_sorry", sorry=second, agent="two")[0]


def test_a_lease_that_has_ended_gives_its_sorry_free_and_is_not_renewed(deployment: Deployment) -> None:
    sorry = sorry_of(deployment, "a", repository="shy")
    paths = deployment.settings().paths
    body = {"sorry": sorry, "agent": "one", "seconds": 1}
    status, claimed = request(paths, "POST", "/claim", body)
    assert status == 200
    time.sleep(1.1)
    late = ask(deployment, "claim_sorry", sorry=sorry, agent="one", claim=claimed["claim"])
    assert "its lease has ended" in late[1]
    assert ask(deployment, "claim_sorry", sorry=sorry, agent="two")[0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"sorry": "f" * 16}, "no sorry has an id"),
        ({"agent": "x\x1b[31m"}, "is no line of at most 100 characters"),
        ({"agent": ""}, "at least 1 character"),
        ({"agent": "x" * 101}, "at most 100 characters"),
        ({"minutes": 241}, "less than or equal to 240"),
        ({"claim": "c1" * 8}, "its lease has ended, or it is of another sorry"),
        ({"claim": "'; DROP TABLE claims"}, "should match pattern"),
    ],
)
def test_a_claim_that_cannot_be_is_refused_and_nothing_is_recorded(
    deployment: Deployment, arguments: dict[str, Any], why: str
) -> None:
    sorry, before = sorry_of(deployment, "b", repository="shy"), len(deployment.events())
    done, said = ask(deployment, "claim_sorry", **({"sorry": sorry, "agent": "one"} | arguments))
    assert not done
    assert why in said
    assert str(deployment.folder) not in said
    assert len(deployment.events()) == before


@pytest.mark.parametrize("body", [{}, {"sorry": 5}, {"sorry": "a", "agent": "one", "seconds": True}])
def test_the_control_socket_refuses_a_claim_without_its_fields(deployment: Deployment, body: Any) -> None:
    status, answer = request(deployment.settings().paths, "POST", "/claim", body)
    assert (status, "send {" in answer["error"]) == (400, True)


def test_a_sorry_that_is_there_by_design_cannot_be_claimed(deployment: Deployment) -> None:
    said = ask(deployment, "claim_sorry", sorry=sorry_of(deployment, "asked"), agent="one")
    assert "there by design (challenge)" in said[1]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """What a daemon left that has scanned a repository."""
    deployment = Deployment(tmp_path_factory.mktemp("stopped"))
    remote = deployment.remote("demo")
    remote.commit("first", FILES)
    deployment.write(repos=[remote.path])
    with deployment.daemon():
        deployment.wait_for(lambda: deployment.events("commit_scanned"), what="the scan")
    return deployment


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("", "the daemon's job prove-1 works on it"),
        ("opt_out = true", "its people want no proofs"),
        ("enabled = false", "not watched"),
        ('exercises = ["A.lean"]', "has exercises, which are there for people"),
    ],
)
async def test_what_the_daemon_s_own_search_works_on_or_its_people_keep_cannot_be_claimed(
    stopped: Deployment, entry: str, why: str
) -> None:
    stopped.write(repos=[stopped.folder / "remotes" / "demo"], entry=entry)
    async with stopped.opened() as parts:
        runner: Any = SimpleNamespace(proving=lambda _, name: "prove-1" if name == "b" else None)
        work: Any = SimpleNamespace(beginning=asyncio.Lock())
        rows = await parts.store.ask(queries.sorries)
        (sorry,) = (row.sorry for row in rows if row.declaration == "b")
        claims = Claims(parts.store, runner, work, parts.context)
        with pytest.raises(WorkStateError, match=why):
            await claims.claim(sorry, agent="one", by="ada", seconds=60)
    assert not stopped.events("sorry_claimed")


async def test_proofs_whose_records_would_be_too_large_together_are_refused_and_nothing_is_recorded(
    stopped: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped.write(repos=[stopped.folder / "remotes" / "demo"])
    monkeypatch.setattr(splice, "MOST_TOGETHER_BYTES", 20)
    async with stopped.opened() as parts:
        rows = await parts.store.ask(queries.sorries)
        proofs = {row.sorry: "trivial" for row in rows if row.declaration == "a"}
        lean = SimpleNamespace(kind="server", toolchain="")
        work: Any = SimpleNamespace(leans=SimpleNamespace(for_toolchain=lambda _: lean))
        runner: Any = None
        claims = Claims(parts.store, runner, work, parts.context)
        with pytest.raises(JoinError, match="2 sorries with a text of"):
            await claims.submit(proofs, agent="one", by="ada")
    assert not stopped.events("proof_found")


def test_without_the_daemon_nothing_is_claimed_and_the_remedy_is_said(stopped: Deployment) -> None:
    done, said = ask(stopped, "claim_sorry", sorry=sorry_of(stopped, "b"), agent="one")
    assert (done, "no daemon listens there; start it with `everlean run`" in said) == (False, True)
    assert str(stopped.folder) not in said


async def test_a_user_over_a_limit_of_claims_proofs_or_events_is_told_when_to_try_again(
    stopped: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped.write(repos=[stopped.folder / "remotes" / "demo"])
    monkeypatch.setattr(claims_of_agents, "MOST_CLAIMS", 1)
    monkeypatch.setattr(claims_of_agents, "MOST_PENDING", 2)
    monkeypatch.setattr(claims_of_agents, "MOST_A_MINUTE", 6)
    clock = SimpleNamespace(now=100.0)
    lines: list[str] = []
    async with stopped.opened() as parts:
        runner: Any = SimpleNamespace(proving=lambda *_: None)
        lean = SimpleNamespace(kind="server", toolchain="")
        work: Any = SimpleNamespace(
            beginning=asyncio.Lock(), leans=SimpleNamespace(for_toolchain=lambda _: lean)
        )
        rows = await parts.store.ask(queries.sorries)
        of = {row.declaration: row.sorry for row in rows}
        claims = Claims(parts.store, runner, work, parts.context, elapsed=lambda: clock.now)

        async def refused(what: Coroutine[Any, Any, Any]) -> None:
            with pytest.raises(WorkStateError) as error:
                await what
            lines.append(str(error.value))

        mine = await claims.claim(of["b"], agent="one", by="ada", seconds=3600)
        # A loop of renewals: the lease has more than half of its time.
        for _ in range(400):
            again = await claims.claim(of["b"], agent="one", by="ada", seconds=3600, claim=mine.claim)
            assert again.until == mine.until
        assert len(stopped.events("sorry_claimed")) == 1
        longer = await claims.claim(of["b"], agent="one", by="ada", seconds=14400, claim=mine.claim)
        assert longer.until > mine.until
        await refused(claims.claim(of["a"], agent="two", by="ada", seconds=60))
        assert (await claims.claim(of["a"], agent="three", by="bob", seconds=60)).by == "bob"
        for text in ("trivial", "simp"):
            await claims.submit({of["b"]: text}, agent="one", by="ada", claim=mine.claim)
        await refused(claims.submit({of["b"]: "decide"}, agent="one", by="ada", claim=mine.claim))
        monkeypatch.setattr(claims_of_agents, "MOST_PENDING", 9)
        clock.now += 10
        await refused(claims.submit({of["b"]: "decide"}, agent="one", by="ada", claim=mine.claim))
        clock.now += 10
        await claims.submit({of["b"]: "decide"}, agent="one", by="ada", claim=mine.claim)
    assert len(stopped.events("proof_found")) == 3
    (standing, pending, minute) = lines
    assert "ada has 1 claims, the most that a user may have; release one, or try again at 20" in standing
    assert (
        "ada has 2 proofs that wait for their check, and a user may have 2; try again in a minute" in pending
    )
    assert "ada has had 6 events within a minute" in minute
    assert "try again in 10 s" in minute
