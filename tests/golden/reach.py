"""All ways from the golden tests into the product: after a move of modules, only this file has to be mended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daemon.http.metrics import LiveNumbers, exposition
from daemon.planning.serve_spec import spec_of
from daemon.settings import load
from pipeline.serve.app import make_app
from store.log.log import EventLog
from store.log.reader import LogReader
from store.log.upcast import read_body
from store.view import queries, report_queries
from tests.support import verbs

ROOT = Path(__file__).resolve().parents[2]
MADE_AT = datetime(2026, 12, 1, 12, tzinfo=UTC)
SINCE = datetime(2026, 11, 1, tzinfo=UTC)
"""The moment of each page and metric."""


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a verb."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Event:
    """An event of the log, with its body as this version reads it."""

    seq: int
    stream: str
    type: str
    correlation_id: str | None
    body: Mapping[str, Any]


def run_verb(*arguments: str, home: Path) -> Answer:
    """Run a verb in this process.

    Args:
        home: the working directory, and the home of the user who asks.
    """
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "COLUMNS": "200", "NO_COLOR": "1"}
    result = verbs.everlean(*arguments, environment=environment, folder=home)
    return Answer(result.returncode, result.stdout, result.stderr)


def read_log(path: Path) -> list[Event]:
    """Return every event of a log."""
    with LogReader.open(path) as log:
        return [
            Event(
                event.seq,
                event.stream,
                event.type,
                event.correlation_id,
                read_body(event).model_dump(mode="json"),
            )
            for event in log.read()
        ]


def open_for_writing(path: Path) -> None:
    """Open a log as the daemon does, and close it."""
    EventLog.open(path).close()


def metrics_text(state: Path) -> str:
    """Return what `/metrics` answers: the numbers of this state's view, and fixed ones for a living daemon."""
    with closing(queries.connect(state / "database.db")) as view:
        return exposition(report_queries.numbers(view), _LIVE).decode("utf-8")


def openapi(config: Path) -> dict[str, Any]:
    """Return the schema of the server that this configuration asks for."""
    application = make_app(spec_of(load(config), scratch="golden", environment={}))
    return dict(application.openapi())


_LIVE = LiveNumbers(
    now=MADE_AT,
    version="0.0.0",
    started_at=datetime(2026, 12, 1, tzinfo=UTC),
    lean="server",
    problems={"error": 2},
    log_position=1000,
    waiting={("prove", "queued"): 2, ("train", "held"): 1},
    gpus=(),
    quotas={},
    requests={"demo/one": 7},
    cache_bytes=1024,
    cache_limit_bytes=4096,
    notification_failures={"webhook": 3},
)
