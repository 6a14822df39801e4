"""The demo is the product's face: it reaches its end, twice in a row, and through ten kills of its daemon."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from daemon.lock import holder
from daemon.paths import Paths, paths_from_config
from pipeline.gate.patch import is_simulated_patch
from store import queries
from store.log import LogReader, StoredEvent

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, str(ROOT / "examples" / "demo.py"), "--directory"]


def everything(paths: Paths) -> list[StoredEvent]:
    reader = LogReader.open(paths.events_db)
    try:
        return list(reader.read())
    finally:
        reader.close()


def assert_sound(paths: Paths) -> None:
    """What must hold of any log, however often its daemon was killed."""
    events = everything(paths)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    versions: dict[str, int] = {}
    for event in events:
        versions[event.stream] = versions.get(event.stream, 0) + 1
        assert event.version == versions[event.stream]
    scanned = Counter(event.data["sha"] for event in events if event.type == "commit_scanned")
    found = Counter(event.data["proof"] for event in events if event.type == "proof_found")
    judged = Counter(
        event.data["proof"]
        for event in events
        if event.type in {"proof_checked", "proof_verified", "proof_rejected"}
    )
    succeeded = Counter(event.data["job"] for event in events if event.type == "job_succeeded")
    for what in (scanned, found, judged, succeeded):
        assert what, "nothing of this kind was recorded"
        assert set(what.values()) == {1}, "a result was recorded twice"
    assert set(found) == set(judged)


def assert_traced(events: list[StoredEvent], said: str) -> None:
    """Each commit's trace is measured, and one theorem is shown with its states and the premise that it names."""
    measured = [event.data for event in events if event.type == "trace_measured"]
    scanned = [event.data["sha"] for event in events if event.type == "commit_scanned"]
    assert [data["sha"] for data in measured] == scanned
    for data in measured:
        assert data["files_traced"] == data["files_seen"] > 0
        assert data["theorems_traced"] == data["theorems_seen"] > 0
        assert f"traced     {data['sha'][:9]}  {data['files_seen']} of {data['files_seen']} files" in said
    assert "premise_site: Demo/" in said, "one gap with its reason"
    assert "no definition site is known of" in said
    shown = said[said.index("theorem drop_triple") :]
    assert "before  p : Prop, h : ¬¬¬p, hp : p ⊢ False" in shown
    assert "exact <a>add_double</a> p hp" in shown
    assert "uses    Demo.Negation.add_double, defined at Demo/Negation.lean:" in shown


def assert_learned(events: list[StoredEvent], said: str) -> None:
    """Two tasks are two links of a chain; the second is measured on the first one's test set as well."""
    first, second = (event.data for event in events if event.type == "checkpoint_saved")
    assert (first["parent"], second["parent"]) == (None, first["checkpoint"])
    assert first["simulated"]
    assert second["simulated"]
    assert second["config"]["against_forgetting"] == "ewc"
    measured = [event.data for event in events if event.type == "evaluation_finished"]
    of_first = {data["dataset"] for data in measured if data["checkpoint"] == first["checkpoint"]}
    of_second = {data["dataset"] for data in measured if data["checkpoint"] == second["checkpoint"]}
    assert of_first & of_second
    assert of_second - of_first
    assert f"trained    retriever {second['checkpoint']}  on top of {first['checkpoint']}" in said
    assert "in use     retriever" in said
    assert "(test)  " in said, "both are compared on the first task"


@pytest.mark.timeout(300)
def test_the_demo_runs_twice_in_a_row_and_leaves_patches_that_own_up_to_the_simulator(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    for _ in range(2):
        done = subprocess.run([*DEMO, str(directory)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    paths = paths_from_config(directory / "config.toml")
    assert_sound(paths)
    assert holder(paths.lock) is None, "the demo left its daemon running"
    view = queries.connect(paths.database_db)
    counts = queries.counts(view)
    proofs = queries.proofs(view)
    view.close()
    assert counts.sorries["filled"] >= 1
    assert counts.sorries["removed"] >= 1
    assert counts.theorems >= 30
    assert_traced(everything(paths), done.stdout)
    assert "axioms: conditional on Demo.mystery" in done.stdout, "a refusal is shown with its reason"
    patches = list(paths.patches.rglob("*.patch"))
    assert len(patches) == sum(proof.patch_sha256 is not None for proof in proofs) >= 5
    simulated = [proof for proof in proofs if proof.simulated]
    if simulated:
        assert "nothing shown here was checked by Lean" in done.stdout
        assert_learned(everything(paths), done.stdout)
        assert counts.proofs["verified"] == counts.sorries["verified"] == 0
        assert ": SIMULATED trace of " in done.stdout
        assert "SIMULATED: no Lean said this" in done.stdout
        assert "SIMULATED: the simulator accepted this, Lean never saw it" in done.stdout
        assert all(is_simulated_patch(patch.read_text(encoding="utf-8")) for patch in patches)


@pytest.mark.timeout(400)
def test_killing_the_daemon_at_ten_random_moments_loses_nothing_and_the_demo_still_ends(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "demo"
    dice = random.Random(20261121)
    demo = subprocess.Popen(
        [*DEMO, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    config = directory / "config.toml"
    acknowledged: list[tuple[str, int, str]] = []
    kills = 0
    try:
        while kills < 10 and demo.poll() is None:
            time.sleep(dice.uniform(0.2, 1.6))
            if not config.exists():
                continue
            paths = paths_from_config(config)
            pid = holder(paths.lock) if paths.lock.exists() else None
            if pid is None:
                continue
            if paths.events_db.exists():
                acknowledged = [(event.event_id, event.seq, event.type) for event in everything(paths)]
            os.kill(pid, signal.SIGKILL)
            kills += 1
        output, _ = demo.communicate(timeout=240)
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.communicate()
    assert kills == 10, f"the demo ended after {kills} kills:\n{output}"
    assert demo.returncode == 0, output
    paths = paths_from_config(config)
    assert_sound(paths)
    kept = [(event.event_id, event.seq, event.type) for event in everything(paths)]
    assert acknowledged
    assert kept[: len(acknowledged)] == acknowledged


@pytest.mark.lean
@pytest.mark.timeout(600)
def test_where_lean_is_found_the_demo_ends_with_proofs_that_lean_verified(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    done = subprocess.run([*DEMO, str(directory)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    paths = paths_from_config(directory / "config.toml")
    assert_sound(paths)
    view = queries.connect(paths.database_db)
    verified = queries.proofs(view, state="verified")
    view.close()
    assert verified
    assert not any(proof.simulated for proof in verified)
    assert not any(
        is_simulated_patch(patch.read_text(encoding="utf-8")) for patch in paths.patches.rglob("*.patch")
    )
