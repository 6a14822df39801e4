"""How a job's process ends in words: what crashed is named, however deep it was wrapped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.specs import raw_spec

JOB = """
import asyncio, sys
from pipeline.jobs.protocol import JobError, run_job
from pipeline.jobs.spec import Spec

async def fail():
    raise ValueError("the pipe is closed")

async def group():
    async with asyncio.TaskGroup() as outer:
        outer.create_task(nested())

async def nested():
    async with asyncio.TaskGroup() as inner:
        inner.create_task(fail())

def work(spec, reporter):
    asyncio.run(group())

sys.exit(run_job(Spec, work))
"""


def outcome(tmp_path: Path, job: str) -> tuple[int, dict[str, Any], str]:
    path = raw_spec("scan", {}, tmp_path).write()
    command = [sys.executable, "-c", job, "--spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_crash_inside_task_groups_is_told_by_what_crashed(tmp_path: Path) -> None:
    status, last, told = outcome(tmp_path, JOB)
    assert (status, last["line"], last["reason"]) == (1, "failure", "crashed")
    assert last["message"] == "ValueError: the pipe is closed"
    assert "Traceback" in told


def test_a_reason_given_inside_task_groups_is_the_jobs_reason(tmp_path: Path) -> None:
    job = JOB.replace(
        'ValueError("the pipe is closed")', 'JobError("no_room", "the disk is full", remedy="make room")'
    )
    status, last, told = outcome(tmp_path, job)
    assert (status, last["reason"], last["remedy"]) == (1, "no_room", "make room")
    assert "Traceback" not in told
