"""A daemon's builds: told when they fail, repeated on request, swept from the cache; and Lean installed by itself.

Lake and elan are stand-ins (`tests.support.lean.toolchain`), and so is the REPL of the searches that the builds are
for, which finds nothing. Nothing is traced.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from daemon.place.control_client import request
from daemon.settings import Settings
from store.view import queries
from tests.support.daemon.deployment import Deployment
from tests.support.lean.scripted import Script, write_repl
from tests.support.lean.toolchain import StandIn, make_elan, make_toolchain

MODULE = "theorem mine (p : Prop) : p → p := by\n  sorry\n"
LAKEFILE = 'name = "demo"\ndefaultTargets = ["Demo"]\n\n[[lean_lib]]\nname = "Demo"\n'


@pytest.fixture
def tools(tmp_path: Path) -> StandIn:
    return make_toolchain(tmp_path)


def files(tools: StandIn, module: str = MODULE, **more: str) -> dict[str, str]:
    return {
        "lean-toolchain": tools.toolchain + "\n",
        "lakefile.toml": LAKEFILE,
        "Demo.lean": module,
        **more,
    }


def write(deployment: Deployment, remote: Path, tools: StandIn, *, more: str = "") -> Settings:
    repl = write_repl(tools.home / "repl", Script(), toolchain=tools.toolchain)
    lean = f'[lean]\nrepl = "{repl}"\nsandbox = "none"\n[trace]\nenabled = false\n'
    return deployment.write(repos=[remote], extra=lean + more)


def environment(tools: StandIn) -> dict[str, str]:
    return {"ELAN_HOME": str(tools.home)}


def kinds(deployment: Deployment, outcome: str) -> list[str]:
    started = {event.data["job"]: event.data["kind"] for event in deployment.events("job_started")}
    return [started[event.data["job"]] for event in deployment.events(outcome)]


def test_a_build_that_fails_is_told_and_not_repeated_before_someone_asks_or_a_commit_mends_it(
    deployment: Deployment, tools: StandIn
) -> None:
    remote = deployment.remote("demo")
    remote.commit("first", files(tools, module="--! error no such thing\n" + MODULE))
    settings = write(deployment, remote.path, tools)
    with deployment.daemon(environment=environment(tools)) as process:
        deployment.wait_for(
            lambda: kinds(deployment, "job_failed") == ["build"], what="the build to fail", seconds=60
        )
        (failed,) = deployment.events("job_failed")
        assert failed.data["deterministic"] is True
        assert "no such thing" in failed.data["message"]
        left = settings.paths.cache / "builds" / ".trash-left"
        left.mkdir(parents=True)
        assert "again" in deployment.everlean("jobs", "retry", failed.data["job"]).stdout
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
    settings = write(deployment, remote.path, tools, more='[cache]\nsize = "1M"\n')

    def idle(builds: int) -> bool:
        result = kinds(deployment, "job_succeeded")
        return result.count("build") == builds and len(result) == len(deployment.events("job_started"))

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
    names = [folder.name for folder in settings.paths.cache.glob("builds/*/*") if folder.is_dir()]
    assert names == [second]


def test_the_daemon_installs_a_version_that_is_lacking_where_it_may(
    deployment: Deployment, tmp_path: Path
) -> None:
    home = make_elan(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"lean-toolchain": "leanprover/lean4:v4.22.0\n", "A.lean": MODULE})
    auto = '[lean]\ninstall = "auto"\nsandbox = "none"\n'
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
