"""Logs that tests of whole views share, and a state folder for LeanDojo's files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from store.log.log import EventLog
from store.log.reader import LogReader
from tests.support.events import record_story
from tests.support.leandojo import LeanDojoFolder
from tests.support.traced_repository import record_made_up


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    """The log's file and the view's."""
    return tmp_path / "events.db", tmp_path / "database.db"


@pytest.fixture
def log(paths: tuple[Path, Path]) -> Iterator[EventLog]:
    with EventLog.open(paths[0]) as log:
        yield log


@pytest.fixture
def reader(log: EventLog) -> Iterator[LogReader]:
    with log.reader() as reader:
        yield reader


@dataclass
class Place:
    """A log that is open, and where its view is or will be."""

    log: EventLog
    reader: LogReader
    paths: tuple[Path, Path]
    folder: Path


@pytest.fixture
def it(log: EventLog, reader: LogReader, paths: tuple[Path, Path], tmp_path: Path) -> Place:
    return Place(log, reader, paths, tmp_path)


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    """A log with a story of forty chapters and a traced repository in it."""
    path = tmp_path / "events.db"
    with EventLog.open(path) as log:
        record_story(log, tmp_path, seed=7, batches=40)
        record_made_up(log, tmp_path / "stage")
    return path


@pytest.fixture
def store(tmp_path: Path) -> LeanDojoFolder:
    return LeanDojoFolder(tmp_path)
