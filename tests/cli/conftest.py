"""A state folder for the command to run on: empty, or with one of everything in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.state_folder import StateFolder, fill, make_folder


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    """An empty state folder and a configuration that names it."""
    return make_folder(tmp_path)


@pytest.fixture
def filled(folder: StateFolder) -> StateFolder:
    """One of everything: a repository, two sorries, a verified proof and a candidate, jobs of each state."""
    fill(folder)
    folder.write()
    return folder
