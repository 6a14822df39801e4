"""What tests of the daemon share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.daemon.deployment import Deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """A state folder, its settings and its remotes, of this test alone."""
    return Deployment(tmp_path)
