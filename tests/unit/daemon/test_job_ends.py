"""What killed a job, as far as it is known, and no further."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from daemon.jobs.due import DueJob
from daemon.jobs.limits import Usage, _started_by
from daemon.jobs.runner import AttemptOutput, verdict
from pipeline.jobs import preemption
from pipeline.jobs.child import Exit
from pipeline.jobs.lines import Failure, Result
from pipeline.jobs.spec import Spec
from store.events.base import EventBody

GIB = 2**30
JOB = DueJob(
    job="prove-1",
    kind="prove",
    attempt=2,
    lane="l",
    repository="r",
    branch="main",
    sha="0" * 40,
    describes="prove a",
    spec=Spec(),
    memory_bytes=2 * GIB,
    tree_bytes=4 * GIB,
)
KILLED = Exit(0, signal.SIGKILL, GIB)


def ended(heard: AttemptOutput, said: str = "") -> EventBody | Failure:
    return verdict(JOB, heard, said)


def failure(heard: AttemptOutput) -> Failure:
    result = ended(heard)
    assert isinstance(result, Failure)
    return result


def test_only_a_group_s_own_word_is_said_to_be_the_kernel_s() -> None:
    own = failure(AttemptOutput(0.0, exit=KILLED, usage=Usage(4 * GIB, kills=1, at_limit=2)))
    assert own.reason == "out_of_memory"
    assert own.message == (
        "prove a: the kernel killed it for its memory: with all that it started it reached its 4.0G"
    )
    assert "raise [jobs] memory" in own.remedy


def test_a_machine_that_is_out_of_memory_is_not_the_job_s_own_limit() -> None:
    machine = failure(AttemptOutput(0.0, exit=KILLED, usage=Usage(GIB, kills=1, at_limit=0)))
    assert machine.reason == "out_of_memory"
    assert (
        "because the whole machine was out of memory; its own limit of 4.0G it did not reach"
        in machine.message
    )


def test_a_kill_near_the_limit_is_probably_memory_and_one_far_from_it_is_not_claimed() -> None:
    near = failure(AttemptOutput(0.0, exit=KILLED, seen_bytes=4 * GIB - 2**28))
    assert near.reason == "out_of_memory"
    assert "probably killed for its memory: it got SIGKILL, and it had held 3.8G of its 4.0G" in near.message
    far = failure(AttemptOutput(0.0, exit=KILLED, seen_bytes=GIB))
    assert (far.reason, far.message) == ("crashed", "prove a: killed by signal 9")
    assert "it may have been killed for memory" in far.remedy
    other = failure(AttemptOutput(0.0, exit=Exit(0, signal.SIGSEGV, GIB), seen_bytes=4 * GIB))
    assert other.reason == "crashed"


def test_a_group_that_lost_nothing_says_nothing() -> None:
    quiet = failure(
        AttemptOutput(0.0, exit=Exit(0, signal.SIGSEGV, GIB), usage=Usage(None, kills=0, at_limit=0))
    )
    assert (quiet.reason, quiet.message) == ("crashed", "prove a: killed by signal 11")


def test_a_result_that_came_before_the_wish_to_end_is_a_success() -> None:
    result = Result({"n": 1})
    for stopped in ("yield", "cancel", "shutdown"):
        found = ended(AttemptOutput(0.0, last=result, exit=Exit(0, None, GIB), stopped=stopped, fault="x"))
        assert isinstance(found, EventBody)
        assert found.type == "job_succeeded"


def test_a_job_that_saved_for_another_users_signal_is_no_failure() -> None:
    result = ended(AttemptOutput(0.0, exit=Exit(preemption.STATUS, None, GIB)))
    assert isinstance(result, EventBody)
    assert (result.type, result.model_dump()["reason"]) == (
        "job_interrupted",
        "it got SIGTERM from outside; where it was is saved",
    )


def test_a_thread_that_ends_during_the_look_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = os.listdir
    monkeypatch.setattr("daemon.jobs.limits.os.listdir", lambda path: ["0", *threads(path)])
    program = (
        "import subprocess, sys;"
        "below = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE);"
        "print(below.pid, flush=True); input(); below.communicate(b'\\n')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        below = int(child.stdout.readline())
        assert _started_by(child.pid) == [below]
        assert {child.pid, below} <= {*_started_by(os.getpid())}
        child.communicate(b"\n")
