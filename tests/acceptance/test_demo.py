"""The demo is the product's face: one screen with Lean or without; and the long one through ten kills of its daemon."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from daemon.lock import holder
from daemon.paths import Paths, paths_from_config
from examples import demo_library
from pipeline.gate.patch import is_simulated_patch
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from store.view import queries
from store.view.counts import count_all
from tests.support.daemon.cluster import NO_RAY
from tests.support.daemon.kills import read

ROOT = Path(__file__).resolve().parents[2]
Told = tuple[str, int, str]
"""An event's id, number and type."""
DEMO = [sys.executable, str(ROOT / "examples" / "demo.py"), "--directory"]
TOUR = [sys.executable, str(ROOT / "examples" / "tour.py"), "--directory"]
DEMO_DIFF = [sys.executable, str(ROOT / "examples" / "demo_diff.py"), "--directory"]


def everything(paths: Paths) -> list[StoredEvent]:
    reader = LogReader.open(paths.events_db)
    try:
        return list(reader.read())
    finally:
        reader.close()


def told(events: list[StoredEvent]) -> list[Told]:
    return [(event.event_id, event.seq, event.type) for event in events]


def assert_sound(events: list[StoredEvent]) -> None:
    """What must hold of any log, however often its daemon was killed."""
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
    first, second = (data for data in saved(events) if data["model"] == "retriever")
    assert (first["parent"], second["parent"]) == (None, first["checkpoint"])
    assert first["simulated"]
    assert second["simulated"]
    assert second["config"]["against_forgetting"] == "replay+average"
    measured = [event.data for event in events if event.type == "evaluation_finished"]
    measured = [data for data in measured if data["model"] == "retriever"]
    of_first = {data["dataset"] for data in measured if data["checkpoint"] == first["checkpoint"]}
    of_second = {data["dataset"] for data in measured if data["checkpoint"] == second["checkpoint"]}
    assert of_first & of_second
    assert of_second - of_first
    assert f"trained    retriever {second['checkpoint']}  on top of {first['checkpoint']}" in said
    assert "in use     retriever" in said
    assert "(test)  " in said, "both are compared on the first task"


def assert_climbed(events: list[StoredEvent], said: str, page: Path) -> None:
    """A tactic model was trained, promoted, and tried on the sorries that rung 0 left open."""
    (learned,) = (data for data in saved(events) if data["model"] == "tactics")
    assert learned["simulated"]
    assert f"in use     tactics {learned['checkpoint']}" in said
    attempts = [event.data for event in events if event.type == "attempt_finished"]
    rung_0 = [data for data in attempts if data["rung"] == 0]
    below = {data["sorry"] for data in rung_0 if data["outcome"] in ("exhausted", "budget")}
    asked = [data for data in attempts if data["model"] == learned["checkpoint"]]
    assert len(asked) >= demo_library.OPEN
    assert {data["rung"] for data in asked} == {2}
    assert {data["sorry"] for data in asked if data["outcome"] != "unsupported"} <= below
    found = [event.data for event in events if event.type == "proof_found" and event.data["rung"] == 2]
    theirs = [data for data in found if data["repository"].endswith("/atlas")]
    assert f"Rung 2 found a proof for {len(theirs)} of the {demo_library.OPEN}." in said
    assert f"left open  Demo.mystery: rung 2, tactics {learned['checkpoint']}: unsupported" in said
    assert "DISPROVED  Demo.Open.off_by_one: a proof of the negation was accepted" in said
    assert "<svg" in page.read_text(encoding="utf-8")
    assert page.name in said


def assert_served(said: str) -> None:
    """The server for editors had tactics and premises, and the gate judged three proofs as it judges the daemon's."""
    served = said[said.index("POST /generate") : said.index("$ everlean status")]
    assert "nothing has checked them  [simulated]" in served
    assert "that may be used there  [simulated]" in served
    _, found, forbidden, wrong = served.split("POST /check")
    assert "  unknown: the simulator judged, and not Lean  [simulated]" in found
    assert "  rejected: the word sorryAx  [simulated]" in forbidden
    assert "  rejected: " in wrong
    assert "accepted" not in served


def saved(events: list[StoredEvent]) -> list[dict[str, Any]]:
    return [event.data for event in events if event.type == "checkpoint_saved"]


@dataclass(frozen=True)
class Killed:
    """A demo whose daemon was killed on the way."""

    directory: Path
    kills: int
    returncode: int
    output: str
    acknowledged: list[Told]
    """What the log held at the last kill."""
    kept: list[StoredEvent]
    """What it held in the end."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A first demo, with SIGKILL for its daemon at ten random moments; the folder stays for a second one."""
    directory = tmp_path_factory.mktemp("killed") / "demo"
    dice = random.Random(20261121)
    demo = subprocess.Popen(
        # What comes later is behind the ten kills; the second demo has it.
        [*TOUR, str(directory), "--without-models", "--revisions", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    config = directory / "config.toml"
    acknowledged: list[Told] = []
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
            acknowledged = told(read(paths)) or acknowledged
            if kills == 9 and not acknowledged:
                continue  # on a slow machine no daemon has lived long enough yet
            os.kill(pid, signal.SIGKILL)
            kills += 1
        output, _ = demo.communicate(timeout=600)
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.communicate()
    kept = everything(paths_from_config(config)) if config.exists() else []
    return Killed(directory, kills, demo.returncode, output, acknowledged, kept)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killing_the_daemon_at_ten_random_moments_loses_nothing_and_the_demo_still_ends(
    killed: Killed,
) -> None:
    assert killed.kills == 10, f"the demo ended after {killed.kills} kills:\n{killed.output}"
    assert killed.returncode == 0, killed.output
    assert_sound(killed.kept)
    assert killed.acknowledged
    assert told(killed.kept)[: len(killed.acknowledged)] == killed.acknowledged


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_demo_runs_twice_in_a_row_and_leaves_patches_that_own_up_to_the_simulator(killed: Killed) -> None:
    """The second time, in the folder that the first one left; what it shows is its own and not the first one's."""
    directory = killed.directory
    assert killed.returncode == 0, killed.output
    done = subprocess.run([*TOUR, str(directory)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    paths = paths_from_config(directory / "config.toml")
    events = everything(paths)
    assert_sound(events)
    assert events[0].recorded_at > killed.kept[-1].recorded_at, "nothing is left of the first one"
    assert holder(paths.lock) is None, "the demo left its daemon running"
    view = queries.connect(paths.database_db)
    counts = count_all(view)
    proofs = queries.proofs(view)
    view.close()
    assert counts.sorries["filled"] >= 1
    assert counts.sorries["removed"] >= 1
    assert counts.theorems >= 30
    assert_traced(events, done.stdout)
    assert "axioms: conditional on Demo.mystery" in done.stdout, "a refusal is shown with its reason"
    patches = list(paths.patches.rglob("*.patch"))
    assert len(patches) == sum(proof.patch_sha256 is not None for proof in proofs) >= 5
    simulated = [proof for proof in proofs if proof.simulated]
    if simulated:
        assert "nothing shown here was checked by Lean" in done.stdout
        assert_learned(events, done.stdout)
        assert_climbed(events, done.stdout, directory / "tree.html")
        assert_served(done.stdout)
        assert counts.proofs["verified"] == counts.sorries["verified"] == 0
        assert ": SIMULATED trace of " in done.stdout
        assert "SIMULATED: no Lean said this" in done.stdout
        assert "SIMULATED: the simulator accepted this, Lean never saw it" in done.stdout
        assert all(is_simulated_patch(patch.read_text(encoding="utf-8")) for patch in patches)


@pytest.mark.usefixtures("pantograph_repl")
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_where_lean_is_found_the_demo_ends_with_proofs_that_lean_verified(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    done = subprocess.run([*TOUR, str(directory)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    paths = paths_from_config(directory / "config.toml")
    assert_sound(everything(paths))
    view = queries.connect(paths.database_db)
    verified = queries.proofs(view, state="verified")
    view.close()
    assert verified
    assert not any(proof.simulated for proof in verified)
    assert not any(
        is_simulated_patch(patch.read_text(encoding="utf-8")) for patch in paths.patches.rglob("*.patch")
    )


# --- one screen -----------------------------------------------------------------------------------------------


def screen(directory: Path, *arguments: str) -> list[str]:
    """Run the demo and return its lines."""
    done = subprocess.run(
        [*DEMO, str(directory), *arguments],
        cwd=directory.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 100
    return lines


def test_the_demo_is_one_screen_of_what_lean_itself_accepts(real_lean: Path, tmp_path: Path) -> None:
    assert real_lean.is_dir()
    directory = tmp_path / "demo"
    lines = screen(directory)
    said = "\n".join(lines)
    assert "simulat" not in said
    assert lines[2].startswith("│ Lean 4.35.0 itself")
    assert 'nothing below is called\n│ "verified"' in said
    accepted = {line.split()[1] for line in lines if line.startswith("  accepted")}
    assert accepted == {"and_swap", "not_all", "double_negation"}
    assert "  false       square_of_17      its negation is proved" in lines
    assert "Lean's kernel accepts the file with all 3 proofs and without a sorry" in said
    assert any(line.split() == ["filled", "add_right_comm", "by", "people"] for line in lines)
    assert (directory / "report" / "index.html").is_file()
    events = everything(paths_from_config(directory / "config.toml"))
    assert not any(event.data.get("simulated") for event in events)
    assert not any(event.type == "proof_verified" for event in events), "the library is not Lean's own"
    (trace,) = {event.data["lean_version"] for event in events if event.type == "commit_traced"}
    assert trace == "v4.35.0"


def test_the_demo_of_the_check_is_one_screen_on_which_one_of_five_proofs_stands(tmp_path: Path) -> None:
    done = subprocess.run([*DEMO_DIFF, str(tmp_path / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum(1 + len(line) // 81 for line in lines) <= 24, "more than 24 lines of 80 characters"
    findings = [line.split(": ")[1] for line in lines if line.startswith("Small/")]
    assert sorted(findings) == [
        "axiom", "filled", "filled", "hidden", "hidden", "statement", "statement", "unchecked",
    ]  # fmt: skip
    assert "Small/Logic.lean:7:0: filled: a sorry of Small.and_swap is filled" in lines
    assert "Exit code 6" in lines[-1]


@pytest.mark.slow
def test_without_lean_the_demo_says_once_that_all_of_it_is_simulated(tmp_path: Path) -> None:
    lines = screen(tmp_path / "demo", "--simulator")
    (marked,) = (number for number, line in enumerate(lines) if "simulated" in line)
    assert lines[marked].startswith("│ [simulated] ")
    assert lines[marked + 1] == "│ The simulator stands in for Lean: nothing below was checked by Lean."
    assert any(line.split()[:2] == ["accepted", "and_swap"] for line in lines)
    assert any(line.split()[:2] == ["false", "square_of_17"] for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(NO_RAY), reason=NO_RAY)
def test_the_demo_leads_to_the_same_facts_with_a_node_of_ray(tmp_path: Path) -> None:
    facts = {}
    for engine in ("local", "ray"):
        directory = tmp_path / engine / "demo"  # of the same name: it is in the repository's key
        directory.parent.mkdir()
        screen(directory, "--simulator", "--engine", engine)
        events = everything(paths_from_config(directory / "config.toml"))
        assert_sound(events)
        facts[engine] = {
            (
                event.type,
                *(str(event.data.get(name)) for name in ("path", "sorry", "proof", "outcome", "state")),
            )
            for event in events
            if not event.type.startswith(("config_", "job_", "daemon_", "commit_", "trace_"))
        }
    assert facts["ray"] == facts["local"]
    assert list((directory / "cluster" / "node-0").rglob("*.pack")), "jobs ran on the node"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("certificates", ["The certificate holds", "bad     signature", "in doubt"]),
        ("lists", ["1 theorem SIMULATED", "28 sorries of 1 repository", "added 1 repository"]),
    ],
)
def test_the_demos_of_certificates_and_lists_are_one_screen(
    part: str, said: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", f"examples.demo_{part}", "--directory", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) <= 42
    for words in said:
        assert words in done.stdout


@pytest.mark.slow
def test_two_agents_share_a_project_on_one_screen(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.demo_agents", "--directory", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(len(line) for line in lines if not line.startswith("│")) <= 80, "the frame is make demo's"
    assert "ada has claimed it" in done.stdout
    assert "rejected: Small/Logic.lean is changed before the sorry too, at line 5" in done.stdout
    assert done.stdout.count("  rejected  exact Iff.rfl") == 1, "a proof that does not compile is refused"


@pytest.mark.slow
def test_a_bump_is_asked_for_mended_and_taken_over_on_one_screen(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.demo_bump", "--directory", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) <= 30
    assert "finished: 4 breaks, 3 mended (3 not verified), 1 left" in done.stdout
    assert "checked Logic.lean  renamed  renamed constants" in done.stdout
    assert "left    Meaning.lean:3  restated  statement, unknown_name" in done.stdout
    assert "Mend 3 proofs in Logic.lean, 3 not verified" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("part", ["learning", "serve", "leandojo"])
def test_the_other_demos_reach_their_ends(part: str, tmp_path: Path) -> None:
    done = subprocess.run([*TOUR, str(tmp_path / "demo"), part], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "simulated" in lines[0]
    assert len(lines) <= 70


@pytest.mark.parametrize(("given", "options"), [((), ""), (("DEMO_ENGINE=ray",), "--engine ray")])
def test_make_demo_gives_the_demo_the_engine_that_is_asked_for(given: tuple[str, ...], options: str) -> None:
    said = subprocess.run(
        ["make", "-n", "demo", *given], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert said.stdout.rstrip().rpartition("examples/demo.py")[2].strip() == options
