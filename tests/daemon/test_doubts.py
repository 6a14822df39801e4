"""A proof whose kernels have known faults is in doubt: recorded once, and said wherever verified is said."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.results.doubts import settle_doubts
from daemon.results.mail import mail, mail_id
from daemon.results.notifications import described
from daemon.scheduling.maintenance import Maintenance
from daemon.settings import load
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from pipeline.front import digest, front
from pipeline.gate.advisories import Advisory, shipped
from store.documents.status import describe_view
from store.events.proofs import ProofDoubted
from store.log.envelope import NewEvent
from store.log.reader import LogReader
from store.view import queries
from tests.support.daemon.deployment import Deployment
from tests.support.events import proof_checked, proof_found, proof_row, proof_verified, stage
from tests.support.state_folder import (
    CANDIDATE,
    OTHER_SORRY,
    PROOF,
    StateFolder,
    fill,
    make_folder,
    sorry_place,
)


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    """One verified proof of Lean 4.21.0, which no kernel replayed."""
    folder = make_folder(tmp_path)
    fill(folder)
    folder.write()
    return folder


def settle(state: StateFolder, known: tuple[Advisory, ...]) -> list[ProofDoubted]:
    async def go() -> list[ProofDoubted]:
        store = await StoreService.open(load(state.config).paths)
        try:
            return await settle_doubts(store, known)
        finally:
            await store.close()

    return asyncio.run(go())


def test_a_doubt_is_recorded_once_and_taken_back_where_the_file_was_corrected(state: StateFolder) -> None:
    (body,) = settle(state, shipped())
    assert body.proof == PROOF
    assert body.reason.startswith("known faults of lean v4.21.0: lean4#14484, lean4#14576")
    assert settle(state, shipped()) == []
    (over,) = settle(state, shipped()[:0])
    assert over.advisories == ()
    assert settle(state, shipped()[:0]) == []
    assert "IN DOUBT" not in state.everlean("proofs", "show", PROOF).out


async def test_where_the_file_of_advisories_cannot_be_read_those_that_came_with_this_version_count(
    state: StateFolder,
) -> None:
    with state.config.open("a", encoding="utf-8") as config:
        config.write('[certificates]\nadvisories = "/nonexistent"\n')
    settings = load(state.config)
    store = await StoreService.open(settings.paths)
    try:
        context = Context(settings)
        await Maintenance(store, context).settle_doubts()
        (doubted,) = await store.ask(queries.doubted_proofs)
        assert doubted.proof == PROOF
        assert "correct [certificates] advisories" in context.problems.get("advisories")
    finally:
        await store.close()


def test_every_reader_that_says_verified_says_that_it_is_in_doubt(state: StateFolder) -> None:
    settle(state, shipped())
    for words in (
        ["proofs"],
        ["proofs", "show", PROOF],
        ["proofs", "patch", PROOF],
        ["sorries", "--state", "verified"],
        ["sorries", "show", "5a"],
        ["sorries", "--since", "1d"],
    ):
        assert "IN DOUBT" in state.everlean(*words).out, words
    assert "lean4#14576: ill-typed parameters" in state.everlean("proofs", "show", PROOF).out
    problems = state.everlean("status", "--json").json["problems"]
    (problem,) = [one for one in problems if one["code"] == "proofs_in_doubt"]
    assert problem["message"].startswith("1 verified proof in doubt")
    assert state.everlean("proofs", "show", PROOF, "--json").json["proof"]["doubts"]
    with queries.connect(state.state / "database.db") as view:
        problems = describe_view(view).problems
        told = digest(front(view, since="2020-01-01", until="2030-01-01", problems=problems))
    assert any("IN DOUBT: lean4#14484" in line for line in told)
    assert any("1 verified proof in doubt" in line for line in told)


def test_every_reader_of_a_candidate_says_that_kernels_do_not_agree_on_it(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    fill(folder)
    text = "kernels do not agree: con-ron of v4.35.0 refuses, lean4lean of v4.35.0 accepts"
    checked = proof_checked(proof_found(OTHER_SORRY, sorry_place("b", line=1), commit="1" * 40))
    patch = folder.blob(b"A candidate\n")
    unsure = {"disagreement": text, "proof": CANDIDATE, "patch": patch, "job": "check-3"}
    folder.add(f"proof:{CANDIDATE}", checked.model_copy(update=unsure))
    folder.write()
    for words in (["proofs", "--all"], ["proofs", "show", CANDIDATE]):
        assert "candidate, IN DOUBT: kernels do not agree" in folder.everlean(*words).out, words
    assert text in folder.everlean("proofs", "show", CANDIDATE).out
    problems = folder.everlean("status", "--json").json["problems"]
    (problem,) = [one for one in problems if one["code"] == "proofs_in_doubt"]
    assert problem["message"].startswith(
        "1 candidate proof in doubt: a kernel refuses a proof that another accepts"
    )
    with (
        queries.connect(folder.state / "database.db") as view,
        LogReader.open(folder.state / "events.db") as log,
    ):
        (row,) = queries.doubted_proofs(view)
        (item,) = described(view, [*log.read_stream(f"proof:{CANDIDATE}")][-1:])
    assert (item.kind, item.text.startswith(f"proof in doubt ({text}): Demo.beta")) == ("proof_doubted", True)
    assert "[PATCH candidate IN DOUBT] Not verified: " in mail(row, b"A candidate\n", "me").decode()


def test_a_patch_says_it_in_its_subject_and_its_first_lines_and_is_written_anew() -> None:
    row = proof_row(checked_at="", patch_sha256="0" * 64)
    doubted = replace(row, doubts=["lean4#14576"])
    text = mail(doubted, b"A proof\n\ndiff --git a/A.lean b/A.lean\n", "me <me@example.org>").decode()
    assert "Subject: [PATCH IN DOUBT] prove one" in text
    assert "IN DOUBT: lean4#14576. Every kernel that vouches for it has a known fault" in text
    assert mail_id(row, "me") != mail_id(doubted, "me")


async def test_the_daemon_finds_it_by_itself_reads_a_file_of_one_s_own_and_tells_people(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    told = tmp_path / "told"
    feed = tmp_path / "advisories.toml"
    feed.write_text(
        '[[advisory]]\nid = "lean4#1"\npublished = 2027-01-01\ntitle = "t"\nsource = "s"\n', "utf-8"
    )
    feed.write_text(feed.read_text("utf-8") + "fixed.lean = []\n", "utf-8")
    command = f'["/bin/sh", "-c", "cat >> {told}"]'
    deployment.write(
        repos=[deployment.remote("demo").path],
        extra=f'[certificates]\nadvisories = "{feed}"\n[notify.command]\nrun = {command}\n',
    )
    with deployment.daemon():
        deployment.wait_for(lambda: deployment.events("notifications_switched"), what="the channel")
    result = proof_found("5a" * 8, sorry_place("a", line=1), commit="1" * 40)
    patch, blobs = stage(tmp_path / "stage", b"A proof\n")
    async with deployment.opened() as parts:
        verified = proof_verified(result).model_copy(update={"patch": patch})
        stream = f"proof:{result.proof}"
        await parts.store.append([NewEvent(stream, result), NewEvent(stream, verified)], blobs=blobs)
    with deployment.daemon(prelude="from daemon.results import notifications\nnotifications.EVERY_S = 0.0"):
        deployment.wait_for(lambda: deployment.events("proof_doubted"), what="the doubt")
        deployment.wait_for(
            lambda: told.exists() and "verified proof in doubt (lean4#1)" in told.read_text("utf-8"),
            what="the news",
        )
    (event,) = deployment.events("proof_doubted")
    assert event.data["advisories"] == ["lean4#1"]
