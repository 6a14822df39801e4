"""A state folder for the command to run on: empty, or with one of everything in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.state_folder import StateFolder, fill, make_folder


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    """An empty state folder and a configuration that names it."""
    return make_folder(tmp_path)


@pytest.fixture(scope="session")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `filled`, which no test changes."""
    result = make_folder(tmp_path_factory.mktemp("filled"))
    fill(result)
    result.write()
    return result.state


@pytest.fixture
def filled(folder: StateFolder, filled_once: Path) -> StateFolder:
    """One of everything: a repository, two sorries, a verified proof and a candidate, jobs of each state."""
    shutil.copytree(filled_once, folder.state)
    return folder
