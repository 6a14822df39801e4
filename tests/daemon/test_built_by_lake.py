"""A daemon whose Lean is not the simulator: it builds first, refuses a wrong toolchain, and retries on request.

Lean, lake and the REPL are stand-ins (`tests.support.lean.toolchain`). Their verdicts show only that the daemon calls
them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from daemon.control_client import request
from daemon.settings import Settings
from store.view import queries
from store.view.rebuild import verify
from tests.support.daemon import warm
from tests.support.daemon.deployment import Deployment
from tests.support.lean.toolchain import StandIn, make_elan, make_toolchain, write_repl

NO_SEARCH = "[prove]\nenabled = false\n"
"""For tests of builds, which would otherwise wait for searches and checks too."""
MODULE = "theorem mine (p : Prop) : p → p := by\n  sorry\n"
LAKEFILE = 'name = "demo"\ndefaultTargets = ["Demo"]\n\n[[lean_lib]]\nname = "Demo"\n'


@pytest.fixture
def tools(tmp_path: Path) -> StandIn:
    return make_toolchain(tmp_path, version="v4.21.0", elaborate=True)


def files(tools: StandIn, module: str = MODULE, **more: str) -> dict[str, str]:
    return {
        "lean-toolchain": tools.toolchain + "\n",
        "lakefile.toml": LAKEFILE,
        "Demo.lean": module,
        **more,
    }


def write(deployment: Deployment, remote: Path, tools: StandIn, *, more: str = "") -> Settings:
    repl = tools.home / "repl" / "pantograph-repl"
    write_repl(repl, tools.sysroot)
    (repl.parent / "lean-toolchain").write_text(tools.toolchain + "\n", encoding="utf-8")
    return deployment.write(
        repos=[remote],
        extra=f'[lean]\nrepl = "{repl}"\nsandbox = "none"\n[jobs]\nmax_running = 3\n{more}',
    )


def environment(tools: StandIn) -> dict[str, str]:
    return {"ELAN_HOME": str(tools.home)}


def kinds(deployment: Deployment, outcome: str) -> list[str]:
    started = {event.data["job"]: event.data["kind"] for event in deployment.events("job_started")}
    return [started[event.data["job"]] for event in deployment.events(outcome)]


def test_a_commit_is_built_traced_proved_and_its_proof_checked_by_lake(
    deployment: Deployment, tools: StandIn
) -> None:
    remote = deployment.remote("demo")
    remote.commit("first", files(tools))
    settings = write(deployment, remote.path, tools)
    # As it is started in use: a job loads what it needs itself.
    with deployment.daemon(environment=environment(tools), forked_jobs=False):
        deployment.wait_for(
            lambda: deployment.events("proof_verified", "proof_checked", "proof_rejected"),
            what="a verdict",
            seconds=60,
        )
        deployment.wait_for(
            lambda: "trace" in kinds(deployment, "job_succeeded"), what="the trace", seconds=60
        )
        deployment.wait_for(
            lambda: len(deployment.events("job_started")) == len(deployment.events("job_succeeded")),
            what="the jobs' ends",
        )
    assert kinds(deployment, "job_succeeded").index("build") == 1, "right after the scan, before all else"
    (built,) = deployment.events("project_built")
    assert (built.data["toolchain"], built.data["modules_failed"]) == (tools.toolchain, [])
    (closed,) = deployment.events("commit_traced")
    assert closed.data["n_theorems"] == 1
    (verdict,) = deployment.events("proof_verified", "proof_checked", "proof_rejected")
    steps = {check["step"]: check["verdict"] for check in verdict.data["checks"]}
    assert steps["compile"] == "passed"
    assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()


def test_a_repository_whose_toolchain_is_not_installed_is_scanned_and_left_at_that(
    deployment: Deployment, tools: StandIn
) -> None:
    remote = deployment.remote("demo")
    remote.commit("first", {**files(tools), "lean-toolchain": "leanprover/lean4:v4.9.0\n"})
    settings = write(deployment, remote.path, tools)
    with deployment.daemon(environment=environment(tools)):
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the scan")
        doctor = everlean("doctor", settings)
        request(settings.paths, "GET", "/status")
    assert "run `everlean setup`" in doctor
    assert kinds(deployment, "job_started") == ["scan"]


def test_a_build_that_fails_is_told_and_not_repeated_before_someone_asks_or_a_commit_mends_it(
    deployment: Deployment, tools: StandIn
) -> None:
    remote = deployment.remote("demo")
    remote.commit("first", files(tools, module="--! error no such thing\n" + MODULE))
    settings = write(deployment, remote.path, tools, more=NO_SEARCH)
    with deployment.daemon(environment=environment(tools)) as process:
        deployment.wait_for(
            lambda: kinds(deployment, "job_failed") == ["build"], what="the build to fail", seconds=60
        )
        (failed,) = deployment.events("job_failed")
        assert failed.data["deterministic"] is True
        assert "no such thing" in failed.data["message"]
        left = settings.paths.cache / "builds" / ".trash-left"
        left.mkdir(parents=True)
        assert "again" in everlean("jobs", settings, "retry", failed.data["job"])
        deployment.wait_for(
            lambda: kinds(deployment, "job_failed") == ["build", "build"],
            what="the second attempt",
            seconds=60,
        )
        deployment.wait_for(lambda: not left.exists(), what="the sweep after a failed build")
        assert request(settings.paths, "POST", "/retry", {"job": "build-none"})[0] == 404
        scan = deployment.events("job_started")[0].data["job"]
        status, answer = request(settings.paths, "POST", "/retry", {"job": scan})
        assert (status, "succeeded" in answer["error"]) == (409, True)
        remote.commit("second", files(tools))
        request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})
        deployment.wait_for(
            lambda: "build" in kinds(deployment, "job_succeeded"),
            what="the mended commit's build",
            seconds=60,
        )
        process.terminate()  # and not killed, so that the view has what the log has
        assert process.wait(timeout=60) == 0
    view = queries.connect(settings.paths.database_db)
    rows = [row for row in queries.jobs(view) if row.kind == "build"]
    view.close()
    assert sorted((row.state, row.attempt) for row in rows) == [("failed", 2), ("succeeded", 1)]


def test_builds_are_kept_within_the_limit_and_the_one_that_was_just_made_stays(
    deployment: Deployment, tools: StandIn
) -> None:
    remote = deployment.remote("demo")
    first = remote.commit("first", files(tools))
    settings = write(deployment, remote.path, tools, more=f'[cache]\nsize = "1M"\n{NO_SEARCH}')

    def idle(builds: int) -> bool:
        done = kinds(deployment, "job_succeeded")
        return done.count("build") == done.count("trace") == builds and len(done) == len(
            deployment.events("job_started")
        )

    with deployment.daemon(environment=environment(tools)):
        deployment.wait_for(lambda: idle(1), what="the first commit's jobs", seconds=60)
        (entry,) = settings.paths.cache.glob(f"builds/*/{first}/build.json")
        # As large as if Mathlib were in it.
        entry.write_text(json.dumps({**json.loads(entry.read_text("utf-8")), "bytes": 2**21}), "utf-8")
        second = remote.commit("second", files(tools, module=MODULE + "-- more\n"))
        request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})
        deployment.wait_for(lambda: idle(2), what="the second commit's jobs", seconds=60)
        deployment.wait_for(
            # What is swept is put aside first; a daemon that stops in between leaves that to the next one.
            lambda: not entry.exists() and not list(settings.paths.cache.glob("builds/*/.trash-*")),
            what="the sweep of the first commit's build",
        )
    left = [folder.name for folder in settings.paths.cache.glob("builds/*/*") if folder.is_dir()]
    assert left == [second]


def everlean(verb: str, settings: Settings, *arguments: str) -> str:
    done = warm.everlean(
        verb, *arguments, "--config", str(settings.path), environment=os.environ, folder=settings.path.parent
    )
    return done.stdout + done.stderr


def test_the_daemon_installs_a_version_that_is_lacking_where_it_may(
    deployment: Deployment, tmp_path: Path
) -> None:
    home = make_elan(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"lean-toolchain": "leanprover/lean4:v4.22.0\n", "A.lean": MODULE})
    auto = f'[lean]\ninstall = "auto"\nsandbox = "none"\n{NO_SEARCH}'
    settings = deployment.write(repos=[remote.path], extra=auto)
    around = {"ELAN_HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}"}
    (home / "standin.json").write_text(json.dumps({"releases": [], "offline": False}))
    with deployment.daemon(environment=around):
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the scan")
        deployment.wait_for(
            lambda: "could not be installed" in str(request(settings.paths, "GET", "/status")[1]),
            what="the reason in the status",
        )
    (home / "standin.json").write_text(json.dumps({"releases": None, "offline": False}))
    with deployment.daemon(environment=around):
        deployment.wait_for(
            lambda: any("v4.22.0" in str(event.data) for event in deployment.events("lean_chosen")),
            what="the new version in use",
        )
    assert (home / "toolchains" / "leanprover--lean4---v4.22.0" / "bin" / "lean").is_file()
    assert "installed the Lean versions that were lacking" in deployment.log()
