"""A damaged page costs the events that lay in it: zero each page of a log in turn and look for every other event."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store.events.service import DaemonStopped
from store.log.anchor import anchor_path, read_anchor
from store.log.backup import check
from store.log.blobs import cited
from store.log.envelope import Expect, NewEvent, StoredEvent
from store.log.log import EventLog
from store.log.reader import LogReader
from store.log.recover import recover
from store.log.salvage import PAGE_BYTES, Finds
from store.view.rebuild import projects
from tests.support.events import Story, digest, record

ALONE = {"attempt_finished", "closure_judged", "proof_rejected", "pull_request_opened"}
EVERY = 16
"""Each page is looked through, and for one of so many the whole recovery is made."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of some hundred pages: a repository's story, and between its events those of other streams."""
    folder = tmp_path_factory.mktemp("log")
    rng = random.Random(3)
    with EventLog.open(folder / "events.db") as log:
        story, brought = Story(3), dict[str, bytes]()
        for number in range(22):
            bodies, payloads = story.tell()
            brought |= {digest(payload).sha256: payload for payload in payloads}
            names = frozenset().union(*(cited(body.model_dump_json()) for body in bodies))
            record(log, bodies, folder=folder / "staging", payloads=[brought[name] for name in names])
            body = DaemonStopped(reason=rng.randbytes(number * 3300 % 12000).hex(), pid=number)
            log.append([NewEvent(f"s{number % 5}", body)], expect={f"s{number % 5}": Expect.ANY})
    return folder / "events.db"


def events_of(path: Path) -> list[StoredEvent]:
    with LogReader.open(path) as reader:
        return list(reader.read())


class Places:
    """Where each event and payload lies, found without SQLite's structures: by looking for pieces of their bytes."""

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes()
        self.events = events_of(path)
        with closing(sqlite3.connect(path)) as connection:
            blobs = connection.execute("SELECT id, sha256, content FROM blobs ORDER BY id").fetchall()
            upto = dict(connection.execute("SELECT seq, blobs FROM chain"))
        came = {seq: [blob[1] for blob in blobs[upto.get(seq - 1, 0) : upto[seq]]] for seq in upto}
        events, payloads = defaultdict(set), defaultdict(set)
        for event in self.events:
            row = event.data_json.encode()
            for page in self._lost_with(f"{event.event_id}{event.stream}".encode(), row):
                events[page].add(event.seq)
        for _, name, content in blobs:
            for page in self._lost_with(content):
                payloads[page].add(name)
        self.pages = len(self._content) // PAGE_BYTES
        self._events, self._payloads, self._came = events, payloads, came

    def _lost_with(self, *texts: bytes) -> Iterator[int]:
        """Yield the pages that have the only copy of a piece."""
        for text in texts:
            for start in range(0, len(text), 60):
                piece = text[start : start + 60]
                page = self._content.find(piece) // PAGE_BYTES
                if page >= 0 and self._content.find(piece, (page + 1) * PAGE_BYTES) < 0:
                    yield page

    def sound_without(self, page: int) -> list[StoredEvent]:
        """Return the events that the loss of a page leaves whole, with the payloads that came with them."""
        gone = self._payloads[page]
        return [
            event
            for event in self.events
            if event.seq not in self._events[page] and not gone & set(self._came[event.seq])
        ]

    def kept_without(self, page: int) -> list[StoredEvent]:
        """Return those of them that a new log takes: of a stream those before its first loss, or that stand alone."""
        versions: dict[str, int] = defaultdict(int)
        kept = []
        for event in self.sound_without(page):
            follows = event.version == versions[event.stream] + 1
            if (follows or event.type in ALONE) and not self._payloads[page] & cited(event.data_json):
                kept.append(event)
                versions[event.stream] += follows
        return kept


@pytest.mark.harness
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_each_page_that_is_zeroed_costs_what_lay_in_it_and_nothing_else(
    log: Path, tmp_path: Path, tell: Callable[[str, str], None], step: int
) -> None:
    places = Places(log)
    assert places.pages > 100
    content, end = log.read_bytes(), read_anchor(log)
    hurt = 0
    pages = range(0, places.pages, step)
    for page in pages:
        (folder := tmp_path / str(page)).mkdir()
        path = folder / "events.db"
        damaged = bytearray(content)
        damaged[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = bytes(PAGE_BYTES)
        path.write_bytes(damaged)
        with closing(Finds(path, folder / "found")) as finds:
            found = [StoredEvent._make(one.event) for one in finds.sound(10_000, end) if one.event]
        assert found == places.sound_without(page), page
        hurt += len(found) < len(places.events)
        if page // step % EVERY:
            continue
        shutil.copy(anchor_path(log), folder)
        done = recover(path, folder / "database.db", reached=0)
        assert done is not None
        *after, told = events_of(path)
        kept = places.kept_without(page)
        assert [one._replace(version=0) for one in after if one.type != "event_lost"] == [
            one._replace(version=0) for one in kept
        ]
        assert check(path).ok
        assert projects(path, scratch=folder / "view")
        assert (told.type, told.data["kept"], told.data["behind"]) == (
            "log_recovered",
            done.kept,
            done.behind,
        )
        assert done.n_lost == len(places.events) - len(kept)
        assert recover(path, folder / "database.db", reached=0) is None, "and that one is sound"
    assert hurt > len(pages) // 2
    tell(f"each of {len(pages)} pages of a log zeroed", "sound events not found: 0")
