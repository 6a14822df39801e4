"""A machine without Lean tracks sorries and reads pull requests, and says plainly what it cannot do."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from daemon.cli.app import build
from store.view import queries
from tests.support.daemon.deployment import Deployment

APP = build(("diff", "status"))
OPEN = "theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  sorry\n\ntheorem t : True := by\n  sorry\n"
FILLED = OPEN.replace("q ∧ p := by\n  sorry", "q ∧ p := by\n  exact ⟨h.2, h.1⟩")


def test_without_lean_sorries_are_followed_pull_requests_are_read_and_the_rest_is_said_to_wait(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("open", {"A.lean": OPEN, "lean-toolchain": "leanprover/lean4:v4.35.0\n"})
    settings = deployment.write(
        repos=[remote.path], every="1s", slowest="1s", extra='[lean]\nbackend = "auto"\n'
    )

    def sorries() -> dict[str, str]:
        view = queries.connect(settings.paths.database_db)
        try:
            return {row.declaration: row.state for row in queries.sorries(view)}
        finally:
            view.close()

    with deployment.daemon(environment={"ELAN_HOME": str(tmp_path / "elan")}) as process:
        deployment.wait_for(lambda: "daemon_ready" in deployment.log(), what="the daemon to be ready")
        deployment.wait_for(lambda: sorries() == {"swap": "open", "t": "open"}, what="two open sorries")
        remote.commit("filled", {"A.lean": FILLED})
        deployment.wait_for(lambda: sorries() == {"swap": "filled", "t": "open"}, what="one to be filled")
        answer = json.loads(everlean("status", "--json", "--config", str(deployment.config)))
        process.terminate()
        process.wait(timeout=30)
    (missing,) = (one for one in answer["problems"] if one["code"] == "no_lean")
    assert "none is filled" in missing["message"]
    assert missing["remedy"].startswith("everlean setup")
    assert {event.data["kind"] for event in deployment.events("job_started")} <= {"scan", "count"}

    findings = json.loads(everlean("diff", "-C", str(remote.path), "HEAD~1", "--json"))["findings"]
    assert [(item["kind"], item["declaration"]) for item in findings] == [("filled", "swap")]


def everlean(*words: str) -> str:
    result = CliRunner().invoke(APP, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.stdout
