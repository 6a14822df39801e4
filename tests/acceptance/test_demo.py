"""The demos are the product's face: each reaches its end with Lean itself, and says so where there is none."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from daemon.place.lock import holder
from daemon.place.paths import Paths, paths_from_config
from examples import rows
from examples.demo_learning import OPENED
from examples.harness import NO_LEAN
from store.log.envelope import StoredEvent
from tests.support.daemon.kills import read

ROOT = Path(__file__).resolve().parents[2]


def demo(name: str, directory: Path, *arguments: str) -> list[str]:
    """Run a demo and return its lines."""
    result = subprocess.run(command(name, directory, *arguments), capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    return result.stdout.splitlines()


def command(name: str, directory: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"examples.{name}", "--directory", str(directory), *arguments]


def log_of(directory: Path) -> list[StoredEvent]:
    return read(paths_from_config(directory / "config.toml"))


# --- one screen -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("real_lean")
def test_the_demo_is_one_screen_of_what_lean_itself_accepts(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    lines = demo("demo", directory)
    text = "\n".join(lines)
    assert len(lines) <= 45
    assert max(len(line) for line in lines if "/" not in line and line[:1] != "│") <= 80
    assert lines[2].startswith("│ Lean 4.35.0 itself")
    assert 'nothing below is called\n│ "verified"' in text
    accepted = {line.split()[1] for line in lines if line.startswith("  accepted")}
    assert accepted == {"and_swap", "not_all", "double_negation"}
    assert "  false       square_of_17      its negation is proved" in lines
    assert "Lean's kernel accepts the file with all 3 proofs and without a sorry" in text
    assert any(line.split() == ["filled", "add_right_comm", "by", "people"] for line in lines)
    assert (directory / "report" / "index.html").is_file()
    events = log_of(directory)
    assert not any(event.type == "proof_verified" for event in events), "the library is not Lean's own"
    (trace,) = {event.data["lean_version"] for event in events if event.type == "commit_traced"}
    assert trace == "v4.35.0"


def test_the_demo_of_the_check_is_one_screen_on_which_one_of_five_proofs_stands(tmp_path: Path) -> None:
    lines = demo("demo_diff", tmp_path / "run")
    assert sum(1 + len(line) // 81 for line in lines) <= 24, "more than 24 lines of 80 characters"
    findings = [line.split(": ")[1] for line in lines if line.startswith("Small/")]
    assert sorted(findings) == [
        "axiom", "filled", "filled", "hidden", "hidden", "statement", "statement", "unchecked",
    ]  # fmt: skip
    assert "Small/Logic.lean:7:0: filled: a sorry of Small.and_swap is filled" in lines
    assert "Exit code 6" in lines[-1]


@pytest.mark.slow
@pytest.mark.usefixtures("real_lean")
@pytest.mark.parametrize(
    ("name", "most", "said"),
    [
        ("demo_lists", 45, ["28 sorries of 1 repository", "added 1 repository"]),
        (
            "demo_bump",
            40,
            [
                "finished: 4 breaks, 3 mended (3 not verified), 1 left",
                "Mend 3 proofs in Logic.lean, 3 not verified",
            ],
        ),
        (
            "demo_agents",
            40,
            ["ada has claimed it", "rejected: Small/Logic.lean is changed before the sorry too, at line 5"],
        ),
        (
            "demo_leandojo",
            70,
            [
                "exact <a>add_double</a> p hp",
                "uses    Demo.Negation.add_double, defined at Demo/Negation.lean:",
            ],
        ),
    ],
)
def test_the_other_demos_are_one_screen_each(name: str, most: int, said: list[str], tmp_path: Path) -> None:
    lines = demo(name, tmp_path / "demo")
    assert len(lines) <= most
    for words in said:
        assert words in "\n".join(lines)


@pytest.mark.slow
def test_a_certificate_holds_is_forged_and_is_recalled_on_one_screen(tmp_path: Path) -> None:
    lines = demo("demo_certificates", tmp_path / "demo")
    assert len(lines) <= 45
    for words in ("The certificate holds", "bad     signature", "in doubt"):
        assert words in "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("real_lean")
def test_what_a_retriever_learned_proves_what_was_open_before(tmp_path: Path) -> None:
    lines = demo("demo_learning", tmp_path / "demo")
    text = "\n".join(lines)
    assert len(lines) <= 30
    by_words, by_both = map(
        int, re.findall(rf"Of the {OPENED}, (\d+) are proved .* premises; (\d+) when", text)[0]
    )
    assert by_words < by_both
    assert by_both >= OPENED // 2
    assert text.count("accepted  Lists.") == by_both
    assert not any(word in text for word in ("it/s", "%|", "Epoch", "Trainer"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("real_lean")
def test_an_editor_gets_tactics_premises_and_verdicts(tmp_path: Path) -> None:
    lines = demo("demo_serve", tmp_path / "demo")
    assert len(lines) <= 35
    _, forbidden, *wrong, result = "\n".join(lines).split("POST /check")
    assert "  rejected: the word sorryAx" in forbidden
    assert all("  rejected: Rows/Lists/Open.lean:" in one for one in wrong)
    assert "  unknown: " in result, "the library is not Lean's own"
    assert "  Lean compiles the project with it" in result


@pytest.mark.parametrize(
    "name",
    [
        "demo",
        *(
            pytest.param(f"demo_{name}", marks=pytest.mark.slow)
            for name in ("agents", "bump", "leandojo", "learning", "lists", "serve")
        ),
    ],
)
def test_without_lean_a_demo_says_so_in_one_sentence_and_ends(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "LEAN_SHARED": str(tmp_path / "nowhere")}
    result = subprocess.run(
        command(name, tmp_path / "demo"), capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert (result.returncode, result.stdout) == (NO_LEAN, "")
    assert result.stderr.startswith("demo: this needs Lean itself. ")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "demo").exists()


# --- through kills --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("real_lean")
def test_killing_the_daemon_at_ten_random_moments_loses_nothing_and_the_demo_still_ends(
    tmp_path: Path,
) -> None:
    directory, dice = tmp_path / "demo", random.Random(20261121)
    config = directory / "config.toml"
    running = subprocess.Popen(
        command("demo", directory), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    )
    acknowledged: list[tuple[str, int]] = []
    kills = 0
    try:
        while kills < 10 and running.poll() is None:
            time.sleep(dice.uniform(0.2, 1.6))
            paths = paths_from_config(config) if config.exists() else None
            pid = holder(paths.lock) if paths is not None and paths.lock.exists() else None
            if paths is None or pid is None:
                continue
            acknowledged = told(paths) or acknowledged
            os.kill(pid, signal.SIGKILL)
            kills += 1
        output, _ = running.communicate(timeout=600)
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate()
    assert kills == 10, f"the demo ended after {kills} kills:\n{output}"
    assert running.returncode == 0, output
    assert_sound(log_of(directory))
    assert acknowledged
    assert told(paths_from_config(config))[: len(acknowledged)] == acknowledged


def told(paths: Paths) -> list[tuple[str, int]]:
    return [(event.event_id, event.seq) for event in read(paths)]


def assert_sound(events: list[StoredEvent]) -> None:
    """What must hold of any log, however often its daemon was killed."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    versions: dict[str, int] = {}
    for event in events:
        versions[event.stream] = versions.get(event.stream, 0) + 1
        assert event.version == versions[event.stream]
    scanned = Counter(event.data["sha"] for event in events if event.type == "commit_scanned")
    result = Counter(event.data["proof"] for event in events if event.type == "proof_found")
    judged = Counter(
        event.data["proof"]
        for event in events
        if event.type in {"proof_checked", "proof_verified", "proof_rejected"}
    )
    succeeded = Counter(event.data["job"] for event in events if event.type == "job_succeeded")
    for what in (scanned, result, judged, succeeded):
        assert what, "nothing of this kind was recorded"
        assert set(what.values()) == {1}, "a result was recorded twice"
    assert set(result) == set(judged)


# --- the library of rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("volume", rows.VOLUMES)
def test_lean_accepts_each_lemma_and_each_theorem_by_its_lemma(
    volume: str, real_lean: Path, tmp_path: Path
) -> None:
    text = rows.source(volume).removesuffix(f"end {volume}\n")
    text += "\n".join(one.text() for one in rows.theorems(volume, 60, seed=3)) + f"\nend {volume}\n"
    (tmp_path / "All.lean").write_text(text, encoding="utf-8")
    result = subprocess.run(
        [real_lean / "bin" / "lean", "All.lean"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (0, "")


def test_theorems_of_rows_differ_and_follow_from_their_seed() -> None:
    result = rows.theorems("Lists", 200)
    assert len({one.header.partition(" (")[2] for one in result}) == 200
    assert result == rows.theorems("Lists", 200) != rows.theorems("Lists", 200, seed=2)
    assert {one.lemma for one in result} == {lemma.name for lemma in rows.lemmas("Lists")}


def test_a_volume_of_rows_has_so_many_theorems_and_leaves_so_many_open() -> None:
    files = rows.files("Marks", count=50, opened=3)
    texts = "".join(text for path, text in files.items() if path.startswith("Rows/Marks/"))
    assert (texts.count("theorem "), texts.count("sorry")) == (53, 3)
    assert "import Rows.Marks.Open\n" in files["Rows.lean"]
