"""Traps: the worktree itself. What a build does in it, and what is left of a check that was killed.

Evaluating a lakefile runs code that may write into `.lake`. Here it runs without a sandbox, so that it can also do what
the sandbox forbids: the gate must notice, verify nothing, and touch nothing that is not the worktree's.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pipeline.gate import check
from pipeline.jobs.protocol import JobError, JobSpec, Reporter
from pipeline.jobs.specs import CheckSpec
from tests.support.daemon import warm
from tests.support.gate import FILE, Case, GateProject

PROOF = "exact ⟨h.2, h.1⟩"
HONEST = Case(PROOF)
WITH_THE_PROOF = "if ! grep -q sorry A.lean; then {}; fi"


def hostile(court: GateProject, before: str = "true", after: str = "true") -> None:
    """Have shell commands run around each build."""
    lake = court.tools.sysroot / "bin" / "lake"
    real = lake.rename(lake.with_name("real-lake"))
    lake.write_text(f'#!/bin/sh\n{before}\n"{real}" "$@"\nstatus=$?\n{after}\nexit $status\n', "utf-8")
    lake.chmod(0o755)


def unjudged(court: GateProject) -> str:
    verdict = court.candidate(HONEST)
    assert {"axioms", "statement", "kernel"} <= set(verdict.not_checked)
    return next(check.evidence for check in verdict.checks if check.step == "axioms")


def test_a_file_that_changes_while_it_is_built_is_not_what_was_proved(court: GateProject) -> None:
    hostile(court, after=WITH_THE_PROOF.format("echo '-- more' >> A.lean"))
    assert "was changed while it was built" in court.rejected(HONEST, step="compile").reason
    assert (court.project / "A.lean").read_text("utf-8") == FILE.replace("HOLE", "sorry")


@pytest.mark.parametrize("when", ["{}", WITH_THE_PROOF], ids=["first build", "second build"])
@pytest.mark.parametrize("place", [".lake/build", ".lake/build/lib", ".lake/everlean"])
def test_a_build_that_links_its_folder_to_another_place_reaches_nothing_there(
    court: GateProject, tmp_path: Path, place: str, when: str
) -> None:
    other = tmp_path / "other"
    for folder in ("lib/lean", "lean"):
        (other / folder).mkdir(parents=True)
        (other / folder / "A.olean").write_text("of another worktree", "utf-8")
    there = sorted(other.rglob("*"))
    hostile(court, after=when.format(f'rm -rf {place}; mkdir -p "$(dirname {place})"; ln -s {other} {place}'))
    assert "out of the worktree" in unjudged(court)
    assert sorted(other.rglob("*")) == there
    assert {file.read_text("utf-8") for file in other.rglob("*.olean")} == {"of another worktree"}


def test_a_build_that_takes_its_folder_away_leaves_a_candidate(court: GateProject) -> None:
    hostile(court, after=WITH_THE_PROOF.format("rm -rf .lake/build"))
    assert "builds elsewhere" in unjudged(court)


def test_what_a_build_prints_is_no_verdict(court: GateProject) -> None:
    said = json.dumps({"line": "events", "events": [{"type": "proof_verified"}]})
    hostile(court, before=f"echo '{said}'; echo '{said}' >&2", after="exit 1")
    verdict = court.candidate(HONEST)
    assert any("even without the proof" in check.evidence for check in verdict.checks)


# ---- a check that is killed


def job(court: GateProject, spec: JobSpec[CheckSpec]) -> subprocess.Popen[bytes]:
    spec.staging.mkdir(parents=True, exist_ok=True)
    folder = court.folder
    return warm.job("pipeline.gate.check", spec.write(), output=folder / "said", errors=folder / "errors")


def recorded(court: GateProject) -> list[dict[str, object]]:
    """Return the events of all lines that a job of it said whole."""
    lines = [json.loads(line) for line in (court.folder / "said").read_text("utf-8").split("\n")[:-1]]
    return [event for line in lines if line["line"] == "events" for event in line["events"]]


@pytest.mark.parametrize("moments", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_a_check_killed_at_any_moment_gives_its_one_verdict_or_none_and_the_next_attempt_gives_it(
    tmp_path: Path, moments: int
) -> None:
    whole = GateProject(tmp_path / "whole")
    started = time.monotonic()
    job(whole, whole.spec(HONEST, lean="credulous")).wait(timeout=120)
    took = time.monotonic() - started
    expected = recorded(whole)
    assert [event["type"] for event in expected] == ["proof_verified", "closure_judged"]
    for step in range(1, moments + 1):
        court = GateProject(tmp_path / f"killed-{step}")
        spec = court.spec(HONEST, lean="credulous")
        running = job(court, spec)
        time.sleep(took * step / (moments + 0.5))
        os.killpg(running.pid, signal.SIGKILL)
        running.wait(timeout=60)
        events = recorded(court)
        assert [event["event_id"] for event in events] in ([], [event["event_id"] for event in expected])
        for event, payload in zip(events, ("patch", "rests_on"), strict=False):
            data = event["data"]
            assert isinstance(data, dict)
            assert (spec.staging / str(data[payload]["sha256"])).is_file()
    # The next attempt has a worktree of its own, and the same id: appended twice it is one event.
    again = GateProject(tmp_path / "again")
    job(again, again.spec(HONEST, lean="credulous")).wait(timeout=120)
    assert recorded(again) == expected


def test_a_worktree_in_which_a_killed_check_left_its_proof_is_not_judged_again(court: GateProject) -> None:
    spec = court.spec(HONEST, lean="credulous")
    hostile(court, before=WITH_THE_PROOF.format("touch building; sleep 60"))
    running = job(court, spec)
    deadline = time.monotonic() + 60
    while not (court.project / "building").exists():
        assert running.poll() is None, "the job ended before it built the proof"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait(timeout=60)
    assert PROOF in (court.project / "A.lean").read_text("utf-8")
    with pytest.raises(JobError) as caught:
        check.work(spec, Reporter(spec, io.StringIO()))
    assert caught.value.reason == "other_version"
