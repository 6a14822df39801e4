"""A log that tests of whole views share, and a state folder for LeanDojo's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.log.log import EventLog
from tests.support.events import Story, record
from tests.support.leandojo import LeanDojoFolder
from tests.support.traced_repository import record_made_up


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    """A log with a story of forty chapters and a traced repository in it."""
    path = tmp_path / "events.db"
    story = Story(7)
    with EventLog.open(path) as log:
        for _ in range(40):
            bodies, payloads = story.tell()
            record(log, bodies, folder=tmp_path / "staging", payloads=payloads)
        record_made_up(log, tmp_path / "stage")
    return path


@pytest.fixture
def store(tmp_path: Path) -> LeanDojoFolder:
    return LeanDojoFolder(tmp_path)
