"""Which Lean is in use is recorded whenever it changes, so that every reader says the same at every time."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

from daemon.health.status_report import collect
from daemon.place.control_client import request
from daemon.place.instance import find_instance
from daemon.settings import Settings
from pipeline.report.page import render
from store.documents.problems import ProblemCode
from store.view import queries
from tests.support.daemon.deployment import Deployment, LeanOfTests

OWN = '[lean]\nbackend = "auto"\nsandbox = "none"\n'
LOOKS_OFTEN = "import daemon.process.periodic; daemon.process.periodic.PLAN_EVERY_S = 0.3"
SAID = {
    "none": "no Lean is installed",
    "server": "language server for leanprover/lean4:v4.35.0",
    "pantograph": "pantograph-repl for leanprover/lean4:v4.35.0",
}


def chosen(deployment: Deployment) -> list[str]:
    return [event.data["lean"] for event in deployment.events("lean_chosen")]


def in_status(deployment: Deployment) -> tuple[str, str]:
    report = collect(find_instance(deployment.config))
    return report.lean, report.lean_detail


def living(settings: Settings) -> tuple[str, str]:
    answer = request(settings.paths, "GET", "/status")[1]
    return answer["lean"], answer["lean_detail"]


def in_report(settings: Settings) -> str:
    view = queries.connect(settings.paths.database_db)
    try:
        html = render(view, made_at=datetime.now(UTC)).html
    finally:
        view.close()
    (line,) = (line for line in html["index.html"].splitlines() if "As of event" in line)
    (said,) = (lean for lean, words in SAID.items() if words in line)
    return said


def test_a_lean_that_is_installed_removed_or_configured_reads_the_same_everywhere_at_once_and_after_a_crash(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    settings = deployment.write(repos=[], extra=OWN)
    toolchain = tmp_path / "elan" / "toolchains" / "leanprover--lean4---v4.35.0"

    def reads(lean: str, *, changes: int, everywhere: bool = True) -> None:
        deployment.wait_for(lambda: len(chosen(deployment)) == changes, what=f"Lean to be {lean}")
        assert chosen(deployment)[-1] == lean
        # The view follows the log within the same append.
        deployment.wait_for(lambda: in_status(deployment)[0] == lean, what=f"status to say {lean}")
        assert in_report(settings) == lean
        if everywhere:
            deployment.wait_for(
                lambda: living(settings) == in_status(deployment), what="the daemon to say the same"
            )

    environment = {"ELAN_HOME": str(tmp_path / "elan")}
    with deployment.daemon(environment=environment, prelude=LOOKS_OFTEN) as process:
        deployment.wait_for(lambda: "daemon_ready" in deployment.log(), what="the daemon to be ready")
        reads("none", changes=1)
        (toolchain / "bin").mkdir(parents=True)
        (toolchain / "bin" / "lean").write_bytes(b"\x7fELF")
        reads("server", changes=2)
        shutil.rmtree(toolchain)
        reads("none", changes=3)
        deployment.write(repos=[], extra=LeanOfTests.scripted(tmp_path).settings)
        request(settings.paths, "POST", "/reload")
        reads("pantograph", changes=4)
        settings.paths.socket.unlink()
        reads("pantograph", changes=4, everywhere=False)
        process.kill()
        process.wait()
    reads("pantograph", changes=4, everywhere=False)
    with deployment.daemon(environment=environment, prelude=LOOKS_OFTEN):
        deployment.wait_for(lambda: len(deployment.events("daemon_started")) == 2, what="the second start")
        deployment.wait_for(lambda: "daemon_ready" in deployment.log(), what="the daemon to be ready")
    assert chosen(deployment) == ["none", "server", "none", "pantograph"], "never twice the same"


def test_status_says_who_runs_lean_and_which_bounds_are_only_watched(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    settings = deployment.write(repos=[], extra=OWN)
    program = tmp_path / "elan" / "toolchains" / "leanprover--lean4---v4.35.0" / "bin" / "lean"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"\x7fELF")
    with deployment.daemon(environment={"ELAN_HOME": str(tmp_path / "elan")}) as process:
        deployment.wait_for(lambda: "daemon_ready" in deployment.log(), what="the daemon to be ready")
        status = request(settings.paths, "GET", "/status")[1]
        result = {item.code: item for item in collect(find_instance(deployment.config)).problems}
        deployment.config.write_text(
            deployment.config.read_text("utf-8").replace("as_root = true", "as_root = false"), "utf-8"
        )
        if os.geteuid() == 0:
            deployment.wait_for(lambda: in_status(deployment)[0] == "none", what="the setting to be heeded")
            assert "Lean is not run as root" in in_status(deployment)[1]
        process.terminate()
        assert process.wait(timeout=20) == 0
    root, watched = ProblemCode.RUNS_AS_ROOT, ProblemCode.BOUNDS_WATCHED
    assert (root in result) == (os.geteuid() == 0)
    assert (watched in result) == bool(status["no_groups"])
    assert all(result[code].severity == "warning" for code in (root, watched) if code in result)
    assert all(item.remedy for item in result.values())
