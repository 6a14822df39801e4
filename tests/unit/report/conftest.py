"""A view filled through the real projector, for the report's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from sqlite3 import Connection

import pytest

from store.events.base import EventBody
from store.log.envelope import Expect, NewEvent
from store.view import queries
from store.view.view import View
from tests.support.events import PATCH, stage
from tests.support.memory_log import MemoryLog

Fill = Callable[..., Connection]
"""Takes (stream, event) pairs, and the payloads that they cite beside `PATCH`."""


@pytest.fixture
def view_of(tmp_path: Path) -> Iterator[Fill]:
    """Returns a function that records events and opens the view of them for reading."""
    with ExitStack() as opened:
        yield filler(tmp_path, opened)


@pytest.fixture(scope="module")
def shared_view_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fill]:
    """Like `view_of`, for what all tests of a module read."""
    with ExitStack() as opened:
        yield filler(tmp_path_factory.mktemp("view"), opened)


def filler(folder: Path, opened: ExitStack) -> Fill:
    def fill(events: Sequence[tuple[str, EventBody]], payloads: Iterable[bytes] = ()) -> Connection:
        log = opened.enter_context(MemoryLog())
        path = folder / "database.db"
        view = View.open(path, log.reader())
        staged = dict(
            item for payload in (PATCH, *payloads) for item in stage(folder / "staging", payload)[1].items()
        )
        opened.callback(view.close)
        # One at a time: a moment of the history is a time of the log.
        for stream, body in events:
            log.append([NewEvent(stream, body)], expect={stream: Expect.ANY}, blobs=staged)
        view.catch_up()
        connection = queries.connect(path)
        opened.callback(connection.close)
        return connection

    return fill
