"""Who is on call reads `everlean status`: of each thing that breaks it names the thing, the reason and the remedy.

The daemon is the real one; lake (`tests.support.lean.toolchain`) and the REPL are stand-ins. Nothing is traced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from daemon.place.control_client import request
from daemon.settings import Settings
from tests.support import verbs
from tests.support.daemon.deployment import Deployment
from tests.support.lean.scripted import Script, write_repl
from tests.support.lean.toolchain import StandIn, make_toolchain

MODULE = "theorem mine (p : Prop) : p → p := by\n  sorry\n"
LAKEFILE = 'name = "demo"\ndefaultTargets = ["Demo"]\n\n[[lean_lib]]\nname = "Demo"\n'


@pytest.fixture
def tools(tmp_path: Path) -> StandIn:
    return make_toolchain(tmp_path)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


@contextmanager
def daemon_on(
    deployment: Deployment,
    tools: StandIn,
    files: dict[str, str],
    extra: str = "",
    *,
    repl: Path | None = None,
) -> Iterator[Settings]:
    """Run a daemon that builds a repository of one module, overlaid with `files`, until the block ends."""
    remote = deployment.remote("demo")
    remote.commit(
        "first",
        {
            "lean-toolchain": f"{tools.toolchain}\n",
            "lakefile.toml": LAKEFILE,
            "Demo.lean": MODULE,
            **files,
        },
    )
    repl = repl or write_repl(tools.home / "repl", Script(), toolchain=tools.toolchain)
    lean = f'[lean]\nrepl = "{repl}"\nsandbox = "none"\n[trace]\nenabled = false\n'
    jobs = "[jobs]\nmax_running = 3\nmax_attempts = 1\n"
    settings = deployment.write(repos=[remote.path], extra=lean + jobs + extra)
    with deployment.daemon(environment={"ELAN_HOME": str(tools.home)}):
        deployment.wait_for(lambda: '"daemon_ready"' in deployment.log(), what="the daemon to be ready")
        yield settings


def everlean(settings: Settings, *arguments: str) -> str:
    result = verbs.everlean(
        *arguments,
        "--config",
        str(settings.path),
        environment={name: value for name, value in os.environ.items() if name != "COLUMNS"},
        folder=settings.path.parent,
    )
    # `status` says by its code that a job failed; everything else has only to answer.
    assert result.returncode in (0, *([1] if arguments[0] == "status" else [])), result.stdout + result.stderr
    return result.stdout


def problem(settings: Settings, code: str) -> dict[str, Any]:
    problems = json.loads(everlean(settings, "status", "--json"))["problems"]
    return next(item for item in problems if item["code"] == code)


def test_a_failed_build_is_a_line_with_the_compiler_s_errors_and_the_whole_output_is_with_its_job(
    deployment: Deployment, tools: StandIn
) -> None:
    with daemon_on(
        deployment, tools, {"Demo.lean": "--! error unknown identifier 'foo'\n" + MODULE}
    ) as settings:
        deployment.wait_for(lambda: deployment.events("job_failed"), what="the build to fail", seconds=60)
        text, shown = everlean(settings, "status"), problem(settings, "job_failed")
        job = shown["subject"]
        table, whole = everlean(settings, "jobs"), everlean(settings, "jobs", "show", job)
        record = json.loads(everlean(settings, "jobs", "show", job, "--json"))["job"]
    lines = [line.strip() for line in text.splitlines()]
    (at,) = (number for number, line in enumerate(lines) if "lake build: exit status 1" in line)
    assert lines[at].startswith("error: build local/remotes/demo main ")
    assert lines[at + 1] == "Demo.lean:1:0: unknown identifier 'foo'"
    assert lines[at + 2] == f"all that was said: everlean jobs show {job}"
    assert lines[at + 3].endswith(f"; `everlean jobs retry {job}` tries it again")
    assert "Some required targets logged failures" not in text + table
    assert f"\n{' ' * 14}Some required targets logged failures:\n" in whole, "its lines stay lines"
    assert "not automatically (the same inputs would fail again)" in whole
    assert f"folder      {record['folder']}" in whole
    assert "Some required targets logged failures" in shown["message"], "--json has all that the text has"


def test_a_bound_that_a_build_passes_is_named_with_its_setting(
    deployment: Deployment, tools: StandIn
) -> None:
    flood = "--! run mkdir -p .lake/build; dd if=/dev/zero of=.lake/build/x bs=1M count=9 2>&1; sleep 60\n"
    with daemon_on(deployment, tools, {"Demo.lean": flood + MODULE}, '[build]\ndisk = "2M"\n') as settings:
        deployment.wait_for(lambda: deployment.events("job_failed"), what="the build to be ended", seconds=60)
        shown = problem(settings, "job_failed")
    assert "build_too_large" in shown["message"]
    assert "wrote more than 2 MiB" in shown["message"]
    assert shown["remedy"].startswith("raise [build] disk; `everlean jobs retry build-")


def test_a_lean_version_that_nothing_here_runs_is_a_warning_that_names_who_needs_it_and_how_to_get_it(
    deployment: Deployment, tools: StandIn
) -> None:
    with daemon_on(deployment, tools, {"lean-toolchain": "leanprover/lean4:v4.9.0\n"}) as settings:
        deployment.wait_for(
            lambda: request(settings.paths, "GET", "/status")[1]["lacking"], what="the plan after it"
        )
        shown, text = problem(settings, "toolchain_missing"), everlean(settings, "status")
        started = [event.data["kind"] for event in deployment.events("job_started")]
    assert started == ["scan"]
    assert shown["severity"] == "warning"
    assert "local/remotes/demo (main)" in shown["message"]
    assert "v4.9.0 is not installed (there is v4.21.0)" in shown["message"]
    assert shown["remedy"] == "run `everlean setup`"
    assert "running well" not in text
    confined = sum(f"warning: {said}" in text for said in ("root runs the daemon", "the memory of a job"))
    assert f"running, with {2 + confined} warnings" in text


def test_a_repl_that_crashes_is_reported_with_its_last_output_and_a_remedy(
    deployment: Deployment, tools: StandIn
) -> None:
    repl = tools.home / "repl"
    (tools.home / "lean-toolchain").write_text(tools.toolchain)
    repl.write_text("#!/bin/sh\necho 'Init.olean: invalid header' >&2\nexit 3\n", encoding="utf-8")
    repl.chmod(0o755)
    with daemon_on(deployment, tools, {}, repl=repl) as settings:
        deployment.wait_for(lambda: deployment.events("job_failed"), what="the search to fail", seconds=60)
        shown = problem(settings, "job_failed")
    assert "Init.olean: invalid header" in shown["message"]
    assert "everlean doctor" in shown["remedy"]
    assert "everlean jobs retry " in shown["remedy"]


def test_modules_that_a_build_did_without_are_named_beside_it(deployment: Deployment, tools: StandIn) -> None:
    two = LAKEFILE.replace('["Demo"]', '["Demo", "Other"]') + '\n[[lean_lib]]\nname = "Other"\n'
    broken = {
        "lakefile.toml": two,
        "Other.lean": "--! error no such thing\ntheorem other : True := trivial\n",
    }
    with daemon_on(deployment, tools, broken) as settings:
        deployment.wait_for(lambda: deployment.events("project_built"), what="the build", seconds=60)
        deployment.wait_for(
            lambda: (
                "without Other, which failed"
                in everlean(settings, "jobs", "--kind", "build", "--state", "succeeded")
            ),
            what="the job's line",
        )
        (job,) = json.loads(everlean(settings, "jobs", "--kind", "build", "--json"))["jobs"]
    assert job["summary"]["modules_failed"] == ["Other"]


def test_a_cache_that_stays_over_its_limit_is_a_warning(deployment: Deployment, tools: StandIn) -> None:
    large = "--! run mkdir -p .lake/build/lib/lean; head -c 3000000 /dev/urandom > .lake/build/lib/lean/x\n"
    with daemon_on(deployment, tools, {"Demo.lean": large + MODULE}, '[cache]\nsize = "1M"\n') as settings:
        seen: list[dict[str, Any]] = []

        def warned() -> bool:
            # A later sweep may find nothing that holds the build, and the warning goes: what is seen once counts.
            problems = json.loads(everlean(settings, "status", "--json"))["problems"]
            seen.extend(item for item in problems if item["code"] == "cache_over_limit")
            return bool(seen)

        deployment.wait_for(warned, what="the sweep", seconds=60)
    shown = seen[0]
    assert "the 1 MiB of [cache] size" in shown["message"]
    assert shown["remedy"] == "raise [cache] size"
