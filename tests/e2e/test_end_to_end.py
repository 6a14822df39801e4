"""The whole loop on a small project, by the real daemon and without torch: from a commit to a patch.

`make nightly` runs the demo itself, with its models, twice (tests/acceptance).
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from daemon.paths import Paths
from store.view import queries
from tests.support.daemon import kills
from tests.support.daemon.cluster import NO_RAY, Cluster
from tests.support.daemon.deployment import Deployment, LeanOfTests
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import TOOLCHAIN

FIRST = {
    "lean-toolchain": f"{TOOLCHAIN}\n",
    "lakefile.toml": 'name = "demo"\ndefaultTargets = ["Demo"]\n\n[[lean_lib]]\nname = "Demo"\n',
    "Demo.lean": "import Demo.Logic\nimport Demo.Arithmetic\n",
    "Demo/Logic.lean": "theorem swap (p q : Prop) (h : p ∧ q) : q ∧ p := by\n  sorry\n",
    "Demo/Arithmetic.lean": (
        "theorem people (n : Nat) : n = n := by\n  sorry\n\ntheorem wrong : 17 * 17 = 288 := by\n  sorry\n"
    ),
}
SECOND = {
    "Demo/Arithmetic.lean": FIRST["Demo/Arithmetic.lean"].replace("n = n := by\n  sorry", "n = n := rfl"),
}
CANARY = "canary-3141592653"


@pytest.fixture
def lean(real_lean: Path, tmp_path: Path) -> LeanOfTests:
    return LeanOfTests.itself(tmp_path)


@pytest.fixture(
    params=[
        "local",
        pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.skipif(bool(NO_RAY), reason=NO_RAY)]),
    ]
)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, lean: LeanOfTests) -> Iterator[Cluster | None]:
    if request.param == "local":
        yield None
        return
    with Cluster(tmp_path / "cluster", nodes=2, environment=lean.environment) as started:
        yield started


def life(tmp_path: Path, lean: LeanOfTests, cluster: Cluster | None) -> tuple[Deployment, Remote, Paths]:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", FIRST)
    extra = lean.settings + (cluster.settings() if cluster else "")
    deployment.write(repos=[remote.path], every="1s", slowest="1s", extra=extra)
    text = deployment.config.read_text(encoding="utf-8")
    deployment.config.write_text(text.replace("[daemon]\n", '[daemon]\nlog_level = "debug"\n'), "utf-8")
    return deployment, remote, deployment.settings().paths


def finished(deployment: Deployment) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in deployment.log().splitlines() if line.startswith("{"))
    return [line for line in lines if line.get("event") == "job_finished"]


def test_a_commit_becomes_proofs_and_patches_and_a_persons_fill_is_recognised(
    tmp_path: Path, lean: LeanOfTests, cluster: Cluster | None
) -> None:
    deployment, remote, paths = life(tmp_path, lean, cluster)
    tip = subprocess.check_output(["git", "-C", remote.path, "rev-parse", "HEAD"], text=True).strip()
    secrets = dict.fromkeys(("EVERLEAN_GITHUB_TOKEN", "EVERLEAN_MODEL_KEY"), CANARY)
    with deployment.daemon(environment={**lean.environment, **secrets}) as process:
        deployment.wait_for(paths.database_db.exists, what="the view")
        deployment.wait_for(lambda: kills.settled(paths, tip), what="the first commit to be worked off")
        if cluster:
            deployment.wait_for(lambda: "ray_nodes" in deployment.log(), what="the nodes")
        tip = remote.commit("a person fills one", SECOND)
        deployment.wait_for(
            lambda: deployment.events("sorry_filled") and kills.settled(paths, tip),
            what="the second commit",
        )
        if cluster:
            assert CANARY not in cluster.environments(), "no node knows a secret"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    if cluster:
        assert {"scan", "trace", "prove", "check"} <= {
            line["kind"] for line in finished(deployment) if line["node"] and line["outcome"] == "succeeded"
        }
        assert CANARY not in cluster.contents()
        assert CANARY.encode() not in b"".join(
            path.read_bytes() for path in (paths.cache / "artifacts").rglob("*") if path.is_file()
        )
    with closing(queries.connect(paths.database_db)) as view:
        states = {row.declaration: row.state for row in queries.sorries(view)}
        proofs = queries.proofs(view)
    assert states["people"] == "filled"
    assert states["wrong"] == "open", "no proof of a false statement"
    assert {"swap", "people"} == {proof.declaration for proof in proofs}
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
