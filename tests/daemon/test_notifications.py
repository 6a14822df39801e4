"""People are told what happened, through a real HTTP server and a real program, once each, and never held up."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import re
import socketserver
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest

from daemon.place.lock import make_folder
from daemon.process.periodic import Periodic, notification_rows
from daemon.results import channels, notifications
from daemon.results.apprise_sender import send
from daemon.results.channels import APPRISE_VARIABLE, KEY_VARIABLE, URL_VARIABLE
from daemon.results.notifications import Notifications
from daemon.settings import Settings, parse
from daemon.settings.schema import NOTIFY_KINDS
from daemon.state.context import Context
from daemon.state.store_service import StoreService
from store.backoff import Backoff
from store.documents.problems import Problem
from store.events.base import EventBody
from store.events.places import SorryPlace
from store.events.repositories import BranchCreated, RepositoryFailed, RepositoryRecovered
from store.events.scans import SorryEvent, SorryFilled, SorryOpened, SorryRemoved
from store.log.envelope import NewEvent
from store.log.reader import LogReader
from store.view import report_queries
from store.view.rows import NotifierRow
from tests.support.events import (
    REPOSITORY,
    attempt,
    declaration,
    observed,
    place,
    proof_found,
    proof_rejected,
    proof_verified,
    scanned,
    sha,
    stage,
    watched,
)
from tests.support.models import checkpoint_promoted

PATIENCE_S = 40.0


@dataclass
class Receiver:
    """A web server that keeps what it is sent. `answers` are the statuses of the next requests; then 204."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    """The ids of all requests, also of those that were not answered yet."""
    hold: threading.Event = field(default_factory=threading.Event)

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.bodies]

    def has(self, number: int) -> bool:
        return len(self.bodies) == number

    def told(self) -> list[str]:
        return [item["kind"] for message in self.messages for item in message["events"]]


@contextmanager
def receiver(*answers: int) -> Iterator[Receiver]:
    made = Receiver(answers=list(answers))
    made.hold.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.begun.append(str(self.headers["webhook-id"]))
            made.hold.wait(PATIENCE_S)
            status = made.answers.pop(0) if made.answers else 204
            if status < 300:
                made.headers.append({name.lower(): value for name, value in self.headers.items()})
                made.bodies.append(body)
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            content = b"" if status == 204 else b"ok"  # as Slack says it
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_arguments: object) -> None:
            """Nothing: a test's output is its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


def settings(root: Path, text: str) -> Settings:
    return parse(f'[daemon]\nstate_dir = "state"\n{text}'.encode(), path=root / "config.toml")


def webhook(url: str, *, more: str = "") -> str:
    return f'[notify]\n{more}\n[notify.webhook]\nurl = "{url}"\n'


@dataclass
class Deployment:
    """A store and its notifications, without the rest of a daemon."""

    root: Path
    context: Context
    store: StoreService
    notifications: Notifications
    proofs: int = 0

    async def prove(self, *, verdict: bool = True) -> str:
        """Record a proof that was found, and what the gate said of it."""
        self.proofs += 1
        scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
        spot = place(scan, scan.sorries[0], blob=sha("blob", self.proofs))
        result = proof_found(f"{self.proofs:016x}", spot, commit=sha(1))
        judged = proof_verified(result)
        ref, files = stage(self.root / "staging", b"a patch")
        events = [NewEvent(f"proof:{result.proof}", result)]
        if verdict:
            events.append(NewEvent(f"proof:{result.proof}", judged.model_copy(update={"patch": ref})))
        await self.store.append(events, blobs=files)
        return result.proof

    async def row(self, channel: str = "webhook") -> NotifierRow | None:
        rows = await self.store.ask(report_queries.notifiers)
        return next((row for row in rows if row.channel == channel), None)

    async def until(self, what: Callable[[], object]) -> None:
        """Wait until something is so; a turn that was begun is over then."""
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < deadline, (self.context.problems.texts(), await self.row())
            await asyncio.sleep(0.01)

    async def until_row(self, what: Callable[[NotifierRow], object], channel: str = "webhook") -> NotifierRow:
        deadline = time.monotonic() + PATIENCE_S
        while (row := await self.row(channel)) is None or not what(row):
            assert time.monotonic() < deadline, (self.context.problems.texts(), row)
            await asyncio.sleep(0.01)
        return row


async def no_problems() -> list[Problem]:
    return []


@asynccontextmanager
async def deployment(root: Path, text: str, *, waits: bool = True) -> AsyncIterator[Deployment]:
    """Open the store, begin to notify, wait until the channels are switched on; end it all as the daemon does."""
    of = settings(root, text)
    make_folder(of.paths.state)
    store = await StoreService.open(of.paths)
    context = Context(of)
    made = Deployment(root, context, store, Notifications(store, context, no_problems))
    periodic = Periodic(context, notification_rows(made.notifications))
    await made.notifications.start(periodic.run_soon)
    periodic.start()
    try:
        if waits:
            channel = "webhook" if made.context.settings.notify.webhook.url else "command"
            await made.until_row(lambda row: row.kinds, channel)
        yield made
    finally:
        periodic.stop()
        await context.end_tasks()
        await store.close()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "_RETRY", Backoff(0.05, 3600.0, jitter=0.2))
    monkeypatch.setattr(notifications, "LOOK_S", 0.2)
    monkeypatch.setattr(notifications, "EVERY_S", 0.0)
    for variable in (URL_VARIABLE, KEY_VARIABLE, APPRISE_VARIABLE, "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(variable, raising=False)


async def test_a_verified_proof_is_told_once_with_its_place_and_its_id(tmp_path: Path) -> None:
    with receiver() as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            proof = await here.prove()
            row = await here.until_row(lambda row: row.messages == 1)
            await asyncio.sleep(0.3)
            (message,) = at.messages
            (item,) = message["events"]
            assert (item["kind"], item["about"]["proof"]) == ("proof_verified", proof)
            assert (item["about"]["repository"], item["about"]["path"]) == (REPOSITORY, "A.lean")
            assert message["id"] == item["id"] == at.headers[0]["webhook-id"]
            assert message["text"].startswith("proof verified (L0: no kernel replayed all): a in ")
            event = (await here.store.look_up(lambda log: log.last(1, types=("proof_verified",))))[0]
            assert (item["id"], item["seq"], row.position) == (event.event_id, event.seq, event.seq)
            assert "webhook-signature" not in at.headers[0]


FORGE = "github.com/ada/logic"


def on_forge(body: EventBody) -> NewEvent:
    return NewEvent(f"repository:{FORGE}", body.model_copy(update={"repository": FORGE}))


def turn(kind: type[SorryEvent], name: str, commit: str, *, branch: str = "main", **more: Any) -> NewEvent:
    """Return the event of a turn in the life of the sorry of a declaration."""
    if kind is SorryOpened:
        more |= {"place": spot(name), "reopened": False}
    return on_forge(kind(repository="", branch=branch, sha=commit, sorry=identity(name), **more))


def spot(name: str) -> SorryPlace:
    scan = scanned("A.lean", [declaration(name)], with_sorry=[name])
    return place(scan, scan.sorries[0], blob=sha("blob", name))


def identity(name: str) -> str:
    return sha("sorry", name)[:16]


async def test_what_became_of_sorries_is_told_by_commit_with_its_author_and_its_address(
    tmp_path: Path,
) -> None:
    first, second = sha("first"), sha("second")
    author = {"author": "Ada <ada@example.org>", "subject": "Prove it (#7)"}
    restated = {"how": "restated", "statement_before": ": 1 = 2", "statement_after": ": True"}
    with receiver() as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.store.append(
                [
                    on_forge(watched()),
                    *(
                        on_forge(
                            BranchCreated(repository="", branch=name, tip=first, is_default=name == "main")
                        )
                        for name in ("main", "other")
                    ),
                    on_forge(observed(first)),
                    *(turn(SorryOpened, name, first) for name in ("easy", "hard", "wrong", "gone")),
                    on_forge(observed(second, parent=first).model_copy(update=author)),
                    on_forge(observed(second, parent=first, branch="other")),
                    turn(SorryFilled, "easy", second, by="people", proof=None),
                    turn(SorryRemoved, "hard", second, **restated),
                    turn(SorryRemoved, "gone", second),
                    turn(SorryOpened, "fresh", second),
                    turn(SorryOpened, "fresh", second, branch="other"),
                    on_forge(attempt(identity("wrong"), spot("wrong"), commit=first, outcome="disproved")),
                    on_forge(attempt(identity("fresh"), spot("fresh"), commit=second, outcome="exhausted")),
                ]
            )
            await here.until_row(lambda row: row.messages == 1)
            await asyncio.sleep(0.3)
        (message,) = at.messages
    assert message["text"].split("\n") == [
        f"{FORGE} {second[:10]} by Ada ‹ada＠example.org›, #7: Prove it (#7)",
        "- filled: easy, A.lean:2",
        "- restated, with no sorry any more: hard, A.lean:2; it said : 1 = 2, and says : True",
        "- new: fresh, A.lean:2; True",
        f"https://{FORGE}/commit/{second}",
        f"false as it stands: wrong, A.lean:2 in {FORGE}; Lean accepted a proof of the negation",
    ]
    assert message["counts"] == dict.fromkeys(
        ("sorry_filled", "sorry_restated", "sorry_opened", "sorry_disproved"), 1
    )
    filled = message["events"][0]
    assert (filled["about"]["declaration"], filled["commit"]["author"]) == ("easy", author["author"])


async def test_a_digest_is_sent_when_it_is_due_and_not_again_before_the_next_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_week_ago: list[str | None] = []
    monkeypatch.setattr(notifications, "_age_s", lambda at: 7 * 86400.0 if at in a_week_ago else 0.0)
    with receiver() as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.store.append([NewEvent("repository:r", watched())])
            begun = await here.row()
            await asyncio.sleep(0.5)
            assert at.bodies == [], "the first one comes a week after the channel was switched on"
            assert begun is not None
            a_week_ago.append(begun.digest_at)
            row = await here.until_row(lambda row: row.messages == 1)
            await asyncio.sleep(0.5)
            (message,) = at.messages
            assert (message["counts"], message["events"]) == ({"digest": 1}, [])
            first, second, *_ = message["text"].split("\n")
            assert first == "No sorry is open in 1 watched repository."
            assert second.startswith("From 20")
            assert second.endswith(": no new sorry and none filled.")
            assert (row.told, row.position) == (0, begun.position)
            assert (row.digest_at or "") > (begun.digest_at or "") > ""
            await here.prove()
            await here.until_row(lambda row: row.messages == 2)
            assert [message["counts"] for message in at.messages] == [{"digest": 1}, {"proof_verified": 1}]


@pytest.mark.parametrize("more", ['digest = "0s"', ""], ids=["switched off", "nothing watched"])
async def test_no_digest_is_sent_where_none_is_wanted_or_nothing_is_watched(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "_age_s", lambda at: 8 * 86400.0)
    with receiver() as at:
        async with deployment(tmp_path, webhook(at.url, more=more)) as here:
            if more:
                await here.store.append([NewEvent("repository:r", watched())])
            await asyncio.sleep(0.5)
            assert at.bodies == []


async def test_a_restart_tells_nothing_again_and_what_came_meanwhile_is_told(tmp_path: Path) -> None:
    with receiver() as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.prove()
            await here.until_row(lambda row: row.messages == 1)
        # While no one told anything, something was recorded: a daemon that was killed in between.
        store = await StoreService.open(settings(tmp_path, "").paths)
        await store.append([NewEvent("model:retriever", checkpoint_promoted("c" * 16))])
        await store.close()
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.until_row(lambda row: row.messages == 2)
            assert at.told() == ["proof_verified", "model_promoted"]


async def test_a_message_whose_delivery_was_not_recorded_any_more_is_sent_again_under_the_same_id(
    tmp_path: Path,
) -> None:
    with receiver() as at:
        at.hold.clear()
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.prove()
            await here.until(lambda: at.begun)
        # The daemon is gone, and the receiver has the message.
        at.hold.set()
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.until_row(lambda row: row.messages == 1)
        assert len(at.begun) == 2
        assert len(set(at.begun)) == 1


async def test_a_channel_that_is_switched_on_hears_nothing_of_the_past_and_neither_does_one_that_was_off(
    tmp_path: Path,
) -> None:
    with receiver() as at:
        async with deployment(tmp_path, "", waits=False) as here:
            await here.prove()
            assert await here.row() is None
            for _ in range(2):
                here.context.settings = settings(tmp_path, webhook(at.url))
                here.notifications.reload()
                before = len(at.messages)
                await here.until_row(lambda row: row.kinds)
                await here.prove()
                await here.until(partial(at.has, before + 1))
                here.context.settings = settings(tmp_path, "")
                here.notifications.reload()
                await here.until_row(lambda row: not row.kinds)
                await here.prove()
        assert at.told() == ["proof_verified"] * 2


async def test_a_receiver_that_fails_is_asked_again_under_the_same_id_and_the_failure_is_on_record(
    tmp_path: Path,
) -> None:
    with receiver(500, 502) as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            at.hold.clear()
            await here.prove()
            at.hold.set()
            row = await here.until_row(lambda row: row.messages == 1)
            events = await here.store.look_up(lambda log: list(log.read_stream("notify:webhook")))
            assert [event.type for event in events] == [
                "notifications_switched", "notification_failed", "notification_sent",
            ]  # fmt: skip
            assert events[1].data["reason"].endswith("answered 500")
            assert events[1].data["remedy"]
            assert events[2].data["attempts"] == 3
            assert (row.problem, row.failing_since) == ("", None)
            assert here.notifications.failures["webhook"] == 2
            assert len(at.messages) == 1


@pytest.mark.slow
async def test_what_comes_while_a_message_is_under_way_or_too_soon_is_told_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "EVERY_S", 5.0)
    with receiver() as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.prove()
            await here.until_row(lambda row: row.messages == 1)
            first = time.monotonic()
            for _ in range(5):
                await here.prove()
            row = await here.until_row(lambda row: row.messages == 2)
            assert time.monotonic() - first > 0.3
            assert row.told == 6
            together = at.messages[1]
            assert together["counts"] == {"proof_verified": 5}
            lines = together["text"].split("\n")
            assert [
                line.startswith("proof verified (L0: no kernel replayed all): a in") for line in lines
            ] == [True] * 5
            assert len({item["id"] for item in together["events"]}) == 5
            assert together["id"] not in {item["id"] for item in together["events"]}


async def test_a_proof_that_was_rejected_before_it_could_be_told_is_not_told_as_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "EVERY_S", 5.0)
    with receiver() as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.prove()
            await here.until_row(lambda row: row.messages == 1)
            proof = await here.prove()
            scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
            result = proof_found("s", place(scan, scan.sorries[0], blob=sha(1)), commit=sha(1))
            rejected = proof_rejected(result).model_copy(update={"proof": proof})
            await here.store.append([NewEvent(f"proof:{proof}", rejected)])
            kept = await here.prove()
            await here.until_row(lambda row: row.messages == 2)
        assert [item["about"]["proof"] for item in at.messages[1]["events"]] == [kept]


async def test_only_the_kinds_that_were_asked_for_are_told(tmp_path: Path) -> None:
    with receiver() as at:
        text = webhook(at.url) + 'kinds = ["model_promoted"]\n'
        async with deployment(tmp_path, text) as here:
            await here.prove()
            await here.store.append([NewEvent("model:retriever", checkpoint_promoted("c" * 16))])
            await here.until_row(lambda row: row.messages == 1)
        assert at.told() == ["model_promoted"]


async def test_a_kind_that_is_asked_for_later_begins_then_and_what_waits_of_the_others_is_kept(
    tmp_path: Path,
) -> None:
    with receiver(*[503] * 500) as at:
        only = 'kinds = ["proof_verified"]\n'
        promoted = NewEvent("model:retriever", checkpoint_promoted("c" * 16))
        async with deployment(tmp_path, webhook(at.url) + only) as here:
            await here.store.append([promoted])
            await here.prove()
            await here.until_row(lambda row: row.problem)
        # Stopped while the receiver refuses, and started with other settings.
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.until_row(lambda row: len(row.kinds) == len(NOTIFY_KINDS))
            at.answers.clear()
            await here.until_row(lambda row: row.messages == 1)
            assert at.told() == ["proof_verified"]
            await here.store.append([promoted])
            await here.until_row(lambda row: row.messages == 2)
        assert at.told() == ["proof_verified", "model_promoted"]


@pytest.mark.slow
async def test_a_repository_that_has_failed_long_enough_is_told_once_and_again_after_it_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "FAILING_FOR_S", 4.0)
    failed = RepositoryFailed(
        repository=REPOSITORY, problem="gone", reason="it answers 404", remedy="look at its URL"
    )
    other = failed.model_copy(update={"problem": "unreachable", "reason": "no route"})
    with receiver() as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            stream = f"repository:{REPOSITORY}"
            await here.store.append([NewEvent(stream, watched()), NewEvent(stream, failed)])
            await asyncio.sleep(0.4)
            await here.store.append([NewEvent(stream, other)])  # another reason is no new beginning
            assert at.messages == []
            await here.until_row(lambda row: row.messages == 1)
            (item,) = at.messages[0]["events"]
            assert (item["kind"], item["about"]["problem"]) == ("repository_failing", "unreachable")
            events = await here.store.look_up(lambda log: log.last(1, types=("repository_failed",)))
            assert item["about"]["since"] < events[0].recorded_at
            await here.store.append([NewEvent(stream, RepositoryRecovered(repository=REPOSITORY))])
            await here.store.append([NewEvent(stream, failed)])
            await here.until_row(lambda row: row.messages == 2)
            await asyncio.sleep(0.3)
        assert at.told() == ["repository_failing"] * 2


@pytest.mark.parametrize("key", ["any-text-is-a-key", "whsec_" + base64.b64encode(b"k" * 24).decode()])
async def test_a_message_is_signed_as_standard_webhooks_has_it_and_the_key_is_nowhere(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, key)
    with receiver(500) as at:
        monkeypatch.setenv(URL_VARIABLE, at.url + "?token=hush-hush")
        async with deployment(tmp_path, "", waits=False) as here:
            await here.until_row(lambda row: row.kinds)
            await here.prove()
            await here.until_row(lambda row: row.messages == 1)
            log = await here.store.look_up(lambda log: "".join(event.data_json for event in log.read()))
            assert key not in log
            assert "hush-hush" not in log
    raw = base64.b64decode(key[6:]) if key.startswith("whsec_") else key.encode()
    headers = at.headers[0]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + at.bodies[0]
    expected = base64.b64encode(hmac.new(raw, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    said = capfd.readouterr()
    assert key not in said.out + said.err
    assert "hush-hush" not in said.out + said.err


@pytest.mark.parametrize(
    ("status", "reason", "remedy"),
    [
        (302, "answered 302", "points elsewhere"),
        (401, "answered 401", "same key"),
        (404, "answered 404", "the URL"),
    ],
)
async def test_a_refusal_names_its_status_and_what_to_do(
    status: int, reason: str, remedy: str, tmp_path: Path
) -> None:
    with receiver(*[status] * 200) as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            await here.prove()
            row = await here.until_row(lambda row: row.problem)
            assert (row.problem, reason in row.reason, remedy in row.remedy) == ("refused", True, True)


def test_no_one_at_the_other_end_holds_nothing_up(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with deployment(tmp_path, webhook(url)) as here:
            for _ in range(3):
                await here.prove()
            row = await here.until_row(lambda row: row.problem)
            assert (row.problem, row.messages) == ("unreachable", 0)
            assert row.failing_since is not None

    with receiver() as at:
        pass
    asyncio.run(run(at.url))


async def test_a_receiver_that_does_not_answer_is_given_up_in_time_and_holds_up_no_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "WEBHOOK_S", 1.0)
    with receiver() as at:
        text = webhook(at.url)
        async with deployment(tmp_path, text) as here:
            at.hold.clear()
            await here.prove()
            started = time.monotonic()
            for _ in range(5):
                await here.prove()
            assert time.monotonic() - started < PATIENCE_S / 2
            row = await here.until_row(lambda row: row.problem)
            assert row.problem == "timeout"
            at.hold.set()
            row = await here.until_row(lambda row: row.told >= 6)
            assert row.problem == ""


async def test_a_name_from_a_repository_cannot_call_people_in_a_chat(tmp_path: Path) -> None:
    with receiver() as at:
        async with deployment(tmp_path, webhook(at.url)) as here:
            reason = "<!channel> @all\x1b[31m\nred"
            promoted = checkpoint_promoted("c" * 16).model_copy(update={"reason": reason})
            await here.store.append([NewEvent("model:retriever", promoted)])
            await here.until_row(lambda row: row.messages == 1)
        (item,) = at.messages[0]["events"]
        assert not set("<>@\x1b\n") & set(item["text"] + at.messages[0]["text"])
        assert item["about"]["reason"] == reason


# --- apprise -------------------------------------------------------------------------------------------------


@contextmanager
def mail_server() -> Iterator[Receiver]:
    """A mail server that takes one message a connection."""
    receiver = Receiver()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                if line.upper().startswith(b"DATA"):
                    self.wfile.write(b"354 go on\r\n")
                    receiver.bodies.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                self.wfile.write(b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 yes\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


SERVICES = {
    "zulip": ("zulip://bot@leanprover/" + "a" * 32 + "/sorries", "zulip:NotifyZulip.notify_url"),
    "slack": ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#lean", "slack:NotifySlack.webhook_url"),
    "mail": ("mailto://{mail}?from=everlean@example.org&to=ada@example.org", ""),
}
"""Addresses as docs/recipes.md has them, and what apprise knows of where they lead."""


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # apprise's own
@pytest.mark.parametrize("name", SERVICES)
def test_a_chat_and_a_mailbox_get_the_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address, leads = SERVICES[name]
    with receiver(200) as at, mail_server() as mail:
        if leads:
            module, _, attribute = leads.partition(":")
            monkeypatch.setattr(f"apprise.plugins.{module}.{attribute}", at.url)
        options = {
            "urls": address.format(mail=mail.url),
            "title": "Sorries of logic",
            "text": "one\n- two",
        }
        assert send(options) == (1, [])
    (body,) = at.bodies + mail.bodies
    said = unquote_plus(body.decode())
    assert "Sorries of logic" in said
    assert re.search(r"one(\\n|\r?\n)- two", said)


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_a_plugin_that_breaks_keeps_its_address_to_itself_and_the_message_from_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_self: object, **_given: object) -> bool:
        raise ValueError("cannot send to xmls://hushhush")

    with receiver() as at:
        hook = at.url.removeprefix("http://")
        monkeypatch.setattr("apprise.plugins.custom_xml.NotifyXML.send", broken)
        options = {"urls": f"xml://hushhush,json://{hook}", "title": "Sorries of logic", "text": "one"}
        assert send(options) == (1, ["XML did not take the message (ValueError)"])
    assert len(at.bodies) == 1


async def test_each_service_is_sent_the_message_and_one_that_fails_is_named_without_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as at:
        hook = at.url.removeprefix("http://")
        monkeypatch.setenv(APPRISE_VARIABLE, "hush://hushhush")
        async with deployment(tmp_path, "", waits=False) as here:
            await here.until_row(lambda row: row.kinds, "apprise")
            await here.prove()
            row = await here.until_row(lambda row: row.problem, "apprise")
            assert row.reason == "apprise ended with status 1: address 1 is none that apprise knows"
            monkeypatch.setenv(APPRISE_VARIABLE, f"json://ada:hushhush@{hook},hush://hushhush")
            row = await here.until_row(lambda row: row.messages == 1, "apprise")
            assert row.reason == "apprise ended with status 3: address 2 is none that apprise knows"
            monkeypatch.setenv(APPRISE_VARIABLE, f"json://ada:hushhush@{hook}")
            await here.prove()
            row = await here.until_row(lambda row: row.messages == 2, "apprise")
            assert (row.problem, len(at.messages)) == ("", 2), "who took it does not hear it again"
            log = await here.store.look_up(lambda log: "".join(event.data_json for event in log.read()))
            assert "hush" not in log
    told = at.messages[-1]
    assert told["title"] == "Sorries of logic"
    assert told["message"].startswith("proof verified (L0: no kernel replayed all): a in ")


# --- the command ---------------------------------------------------------------------------------------------


def command(root: Path, program: str) -> str:
    script = root / "tell.py"
    script.write_text(program, encoding="utf-8")
    run = json.dumps([sys.executable, str(script), "--here"])
    return f"[notify.command]\nrun = {run}\n"


async def test_a_command_gets_the_message_on_standard_input_and_no_secret_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERLEAN_GITHUB_TOKEN", "ghp_notforyou0123456789")
    monkeypatch.setenv(KEY_VARIABLE, "nor-this")
    program = (
        "import json, os, sys\n"
        "said = {'argv': sys.argv[1:], 'env': dict(os.environ), 'message': json.load(sys.stdin)}\n"
        "open('told.json', 'w').write(json.dumps(said))\n"
    )
    async with deployment(tmp_path, command(tmp_path, program)) as here:
        await here.prove()
        await here.until_row(lambda row: row.messages == 1, "command")
    answer = json.loads((tmp_path / "state" / "told.json").read_text(encoding="utf-8"))
    assert answer["argv"] == ["--here"]
    assert answer["message"]["events"][0]["kind"] == "proof_verified"
    assert answer["env"]["PATH"] == os.environ["PATH"]
    assert not [name for name in answer["env"] if "EVERLEAN" in name]
    assert "ghp_notforyou" not in json.dumps(answer)
    assert "nor-this" not in json.dumps(answer)


async def test_a_command_that_fails_is_run_again_and_its_last_words_are_kept(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "if not os.path.exists('tried'):\n"
        "    open('tried', 'w').close()\n"
        "    print('x' * 200000, file=sys.stderr)\n"
        "    sys.exit('the pager is out of paper')\n"
    )
    async with deployment(tmp_path, command(tmp_path, program)) as here:
        await here.prove()
        await here.until_row(lambda row: row.messages == 1, "command")
        events = await here.store.look_up(lambda log: list(log.read_stream("notify:command")))
        assert events[1].data["problem"] == "failed"
        assert events[1].data["reason"].endswith("ended with status 1: the pager is out of paper")


async def test_a_command_that_hangs_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "COMMAND_S", 5.0)
    program = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        "open('child', 'w').write(str(child.pid))\n"
        "time.sleep(1000)\n"
    )
    async with deployment(tmp_path, command(tmp_path, program)) as here:
        await here.prove()
        row = await here.until_row(lambda row: row.problem, "command")
        assert row.problem == "timeout"
        pid = int((tmp_path / "state" / "child").read_text())
        await here.until(lambda: not alive(pid))


def test_a_command_that_leaves_something_running_has_taken_its_message(tmp_path: Path) -> None:
    program = "import subprocess\nopen('child', 'w').write(str(subprocess.Popen(['sleep', '300']).pid))\n"

    async def run() -> None:
        async with deployment(tmp_path, command(tmp_path, program)) as here:
            await here.prove()
            await here.until_row(lambda row: row.messages == 1, "command")  # long before its child ends

    try:
        asyncio.run(run())
    finally:
        os.kill(int((tmp_path / "state" / "child").read_text()), 9)


async def test_a_program_that_is_not_there_is_named_with_its_remedy(tmp_path: Path) -> None:
    text = '[notify.command]\nrun = ["./nobody-made-this"]\n'
    async with deployment(tmp_path, text) as here:
        await here.prove()
        row = await here.until_row(lambda row: row.problem, "command")
        assert row.problem == "misconfigured"
        assert "nobody-made-this cannot be run" in row.reason
        assert "[notify.command] run" in row.remedy


async def test_a_url_that_cannot_be_used_is_a_misconfigured_channel_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, "ftp://hush.example.org/hush")
    async with deployment(tmp_path, "", waits=False) as here:
        row = await here.until_row(lambda row: row.problem)
        assert (row.problem, bool(row.kinds)) == ("misconfigured", True)
        assert "must be an https URL" in row.reason
        assert "hush" not in row.reason + row.remedy
        with receiver() as at:
            position = await here.store.look_up(LogReader.position)
            await here.prove()
            monkeypatch.setenv(URL_VARIABLE, at.url)
            row = await here.until_row(lambda row: row.messages == 1)
            assert row.position > position, "what came while it could not be used is told when it can"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
