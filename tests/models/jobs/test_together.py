"""Processes that learn together, as they are started for a job: what becomes of it where one fails or is ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import psutil
import pytest

from pipeline.jobs.protocol import JobError
from pipeline.models.together import learn_together
from tests.support.specs import raw_spec

pytestmark = pytest.mark.timeout(300)


def test_the_failure_of_one_process_is_the_jobs(tmp_path: Path) -> None:
    # What each says is longer than a pipe takes at once.
    long = "x" * 100_000
    spec = raw_spec("train", {"chain": str(tmp_path), long: 1}, tmp_path, job="train-1", attempt=1)
    with pytest.raises(JobError, match=f"repository: Field required.*{long}") as caught:
        learn_together(2, spec.write(), lambda *_: pytest.fail("it did something"))
    assert (caught.value.reason, caught.value.deterministic) == ("bad_spec", True)


@pytest.mark.parametrize(
    ("end", "error", "text"),
    [
        (
            psutil.Process.kill,
            JobError,
            r"of 2 processes that learned together one ended by itself: \[-9, -9\]",
        ),
        (lambda _: os.kill(os.getpid(), signal.SIGTERM), SystemExit, "143"),
    ],
    ids=["one is killed", "the job is told to end"],
)
def test_the_processes_end_together(
    tmp_path: Path, end: Callable[[psutil.Process], None], error: type[BaseException], text: str
) -> None:
    spec = tmp_path / "spec.json"
    os.mkfifo(spec)  # they wait for its content
    ours, before = psutil.Process(), signal.getsignal(signal.SIGTERM)
    others = {one.pid for one in ours.children()}

    def started() -> list[psutil.Process]:
        return [one for one in ours.children() if one.pid not in others]

    def end_one() -> None:
        while len(started()) < 2:
            time.sleep(0.01)
        end(started()[0])

    ending = Thread(target=end_one)
    ending.start()
    with pytest.raises(error, match=text):
        learn_together(2, spec, lambda *_: pytest.fail("it did something"))
    ending.join()
    assert not started()
    assert signal.getsignal(signal.SIGTERM) is before
