"""How a job's process ends in words: what crashed is named, however deep it was wrapped."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pipeline.protocol import JobSpec

JOB = """
import asyncio, sys
from pipeline.protocol import run_job

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

sys.exit(run_job(work))
"""


def test_a_crash_inside_task_groups_is_told_by_what_crashed(tmp_path: Path) -> None:
    spec = JobSpec(job="scan-1", kind="scan", attempt=1, directory=tmp_path)
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec.as_json()), encoding="utf-8")
    command = [sys.executable, "-c", JOB, "--spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, last["line"], last["reason"]) == (1, "failure", "crashed")
    assert last["message"] == "ValueError: the pipe is closed"
    assert "Traceback" in done.stderr
