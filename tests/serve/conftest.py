"""The jobs that the server has judge and search are forks, in which nothing is loaded anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.jobs import child
from tests.support import programs
from tests.support.daemon import forks


@pytest.fixture(scope="module", autouse=True)
def jobs_that_load_nothing_anew() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "subprocess", forks.with_forked_jobs(programs.kept()))
        yield
