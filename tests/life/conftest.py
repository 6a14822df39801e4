"""What the tests of a daemon's whole life share: a watched repository, and the answers of `everlean status`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon.deployment import Deployment

Ask = Callable[[Deployment], dict[str, Any]]


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


@pytest.fixture
def status() -> Ask:
    """Ask `everlean status --json` of a deployment."""

    def ask(deployment: Deployment) -> dict[str, Any]:
        done = deployment.everlean("status", "--json")
        assert done.returncode in (0, 1, 3), done.stderr  # how the daemon is
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    return ask
