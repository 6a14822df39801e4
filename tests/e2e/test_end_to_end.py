"""The whole loop on a small project, by the real daemon and without torch: from a commit to a patch.

`make nightly` runs the demo itself, with its models, twice (tests/acceptance).
"""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from daemon.place.paths import Paths
from store.view import queries
from tests.support.daemon import kills
from tests.support.daemon.cluster import launcher_settings
from tests.support.daemon.deployment import Deployment, LeanOfTests
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import TOOLCHAIN

FIRST = {
    "lean-toolchain": f"{TOOLCHAIN}\n",
    "lakefile.toml": 'name = "demo"\ndefaultTargets = ["Demo"]\n\n[[lean_lib]]\nname = "Demo"\n',
    "Demo.lean": "import Demo.Logic\nimport Demo.Arithmetic\n",
    "Demo/Logic.lean": (
        "theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  sorry\n\n"
        "theorem root : ∃ n : Nat, n * n = 49 := by\n  sorry\n"
    ),
    "Demo/Arithmetic.lean": (
        "theorem people (n : Nat) : n = n := by\n  sorry\n\ntheorem wrong : 17 * 17 = 288 := by\n  sorry\n"
    ),
}
SECOND = {
    "Demo/Arithmetic.lean": FIRST["Demo/Arithmetic.lean"].replace("n = n := by\n  sorry", "n = n := rfl"),
}
CANARY = "canary-3141592653"
PROGRAM = """#!/bin/sh
grep -q '"tactics, rung 0"' "$EVERLEAN_TASK" || exit 1
echo "its key: $PROGRAM_KEY"
echo 'everlean-usage: {"usd": 0.5}'
sed -i '/^theorem root/{n;s/sorry/exact ⟨7, rfl⟩/}' "$(sed -n 's/^ "file": "\\(.*\\)",$/\\1/p' "$EVERLEAN_TASK")"
"""
SETTINGS = """
[prove]
rungs = [0, 5]
[[prove.programs]]
name = "agent"
run = ["./agent"]
credential = "everlean-model-key"
variable = "PROGRAM_KEY"
usd_per_run = 0.2
usd_per_day = 5
"""


@pytest.fixture
def lean(real_lean: Path, tmp_path: Path) -> LeanOfTests:
    return LeanOfTests.itself(tmp_path)


def life(tmp_path: Path, lean: LeanOfTests, engine: str) -> tuple[Deployment, Remote, Paths]:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", FIRST)
    (tmp_path / "agent").write_text(PROGRAM, "utf-8")
    (tmp_path / "agent").chmod(0o755)
    extra = lean.settings + engine + SETTINGS
    deployment.write(repos=[remote.path], every="1s", slowest="1s", extra=extra)
    text = deployment.config.read_text(encoding="utf-8")
    deployment.config.write_text(text.replace("[daemon]\n", '[daemon]\nlog_level = "debug"\n'), "utf-8")
    return deployment, remote, deployment.settings().paths


def finished(deployment: Deployment) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in deployment.log().splitlines() if line.startswith("{"))
    return [line for line in lines if line.get("event") == "job_finished"]


@pytest.mark.parametrize("launched", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_commit_becomes_proofs_and_patches_and_a_persons_fill_is_recognised(
    tmp_path: Path, lean: LeanOfTests, *, launched: bool
) -> None:
    deployment, remote, paths = life(tmp_path, lean, launcher_settings(tmp_path) if launched else "")
    tip = subprocess.check_output(["git", "-C", remote.path, "rev-parse", "HEAD"], text=True).strip()
    secrets = dict.fromkeys(("EVERLEAN_GITHUB_TOKEN", "EVERLEAN_MODEL_KEY"), CANARY)
    with deployment.daemon(environment={**lean.environment, **secrets}) as process:
        deployment.wait_for(paths.database_db.exists, what="the view")
        deployment.wait_for(lambda: kills.settled(paths, tip), what="the first commit to be worked off")
        tip = remote.commit("a person fills one", SECOND)
        deployment.wait_for(
            lambda: deployment.events("sorry_filled") and kills.settled(paths, tip),
            what="the second commit",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    assert {"scan", "trace", "prove", "check"} <= {
        line["kind"] for line in finished(deployment) if line["outcome"] == "succeeded"
    }
    with closing(queries.connect(paths.database_db)) as view:
        states = {row.declaration: row.state for row in queries.sorries(view)}
        proofs = queries.proofs(view)
    assert states["people"] == "filled"
    assert states["wrong"] == "open", "no proof of a false statement"
    provers = {proof.declaration: proof.prover for proof in proofs}
    assert provers == {"swap": "tactics", "people": "tactics", "root": "program"}
    (by_program,) = (one.data for one in deployment.events("attempt_finished") if one.data["rung"] == 5)
    assert (by_program["model"], by_program["usd"]) == ("agent", 0.5)
    assert "its key: ***" in by_program["detail"]
    outcomes = {event.data["outcome"] for event in deployment.events("attempt_finished")}
    assert "disproved" in outcomes, "the statement that is false is shown to be"
    patches = list(paths.patches.rglob("*.patch"))
    assert len(patches) == len(proofs)
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "-q", str(remote.path), str(checkout)], check=True)
    for patch in patches:
        text = patch.read_text(encoding="utf-8")
        assert "\nSubject: [PATCH candidate] Not verified: " in text
    kept = next(patch for patch in patches if "Declaration: swap" in patch.read_text("utf-8"))
    subprocess.run(["git", "-C", str(checkout), "apply", str(kept)], check=True)
    assert "q ∧ p := by\n  sorry" not in (checkout / "Demo/Logic.lean").read_text("utf-8")
    assert kills.differences(paths) == [], "a rebuild makes the same view"
