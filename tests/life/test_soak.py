"""A daemon at work for a while, on Lean 4.35.0 itself: twenty repositories, commits arriving, all that they make due.

Memory and open files stay where they are, no zombie is left, no commit is lost, and at the end every sorry is in the
state that the git histories alone say it must be in. A minute of it with every run of the tests, half an hour at night.
"""

from __future__ import annotations

import json
import random
import re
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from daemon.place.control_client import request
from daemon.settings import Settings
from store.view import queries
from tests.support.daemon import kills
from tests.support.daemon.deployment import Deployment, LeanOfTests
from tests.support.daemon.remote import Remote
from tests.support.lean.real_gate import TOOLCHAIN

REPOSITORIES = 20
WITH_SORRIES = 4
"""So many have sorries from the start; each costs a search and a check."""
MIB = 2**20
ZOMBIE_LOOKS = 10
"""A dead child seen in so many checks, a second apart, is a leaked zombie; a busy daemon reaps it later."""
LAKEFILE = 'name = "demo"\ndefaultTargets = ["Main"]\n\n[[lean_lib]]\nname = "Main"\n'
SETTINGS = "[jobs]\nmax_running = 1\n"
UNTRACED = "[trace]\nenabled = false\n"
NICE = "import os; os.nice(3)"  # beside other tests: they have deadlines, this one has time


@dataclass
class Project:
    """A repository whose theorems come, are proved by people, and go. Each states something that no other does."""

    remote: Remote
    dice: random.Random
    number: int
    theorems: dict[str, bool] = field(default_factory=dict)
    """Name to whether its proof is a sorry."""
    shas: list[str] = field(default_factory=list)

    def push(self, *, sorries: bool) -> None:
        """One commit."""
        done = [name for name, is_sorry in self.theorems.items() if not is_sorry]
        left = [name for name, is_sorry in self.theorems.items() if is_sorry]
        what = self.dice.choice(["state", "state", "fill", "delete"]) if self.theorems else "state"
        if what == "fill" and left:
            self.theorems[self.dice.choice(left)] = False
        elif what == "delete" and done:
            del self.theorems[self.dice.choice(done)]
        else:
            self.theorems[f"t{self.number}_{len(self.shas)}"] = sorries
        text = "\n".join(self._text(name, is_sorry) for name, is_sorry in self.theorems.items())
        files = {} if self.shas else {"lean-toolchain": f"{TOOLCHAIN}\n", "lakefile.toml": LAKEFILE}
        self.shas.append(self.remote.commit(f"c{len(self.shas)}", {**files, "Main.lean": text}))

    def _text(self, name: str, is_sorry: bool) -> str:
        left, right = map(int, re.findall(r"\d+", name))
        proof = "sorry" if is_sorry else "rfl"
        return f"theorem {name} : {left} + {right} = {left + right} := by\n  {proof}\n"

    def expected(self) -> dict[str, str]:
        """What became of every sorry, told from the history that git has, and from nothing else."""
        seen: dict[str, str] = {}
        for sha in self.remote.git("rev-list", "--reverse", "--first-parent", "HEAD").split():
            text = self.remote.git("show", f"{sha}:Main.lean")
            now = dict(re.findall(r"theorem (\w+) : .*\n  (\w+)", text))
            for name, was in seen.items():
                # What was filled stays so when the theorem is deleted: no proof of it is due any more.
                gone = "filled" if was == "filled" else "removed"
                seen[name] = {"sorry": "open", "rfl": "filled", None: gone}[now.get(name)]
            seen.update({name: "open" for name, proof in now.items() if proof == "sorry"})
        return seen


@dataclass
class Watch:
    """What a daemon's process took, second by second, and what stayed a zombie for ten looks."""

    process: psutil.Process
    rss: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    zombies: list[int] = field(default_factory=list)
    _dead: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        self.rss.append(self.process.memory_info().rss)
        self.files.append(self.process.num_fds())
        dead = set()
        for child in self.process.children(recursive=True):
            try:
                if child.status() == psutil.STATUS_ZOMBIE:
                    dead.add(child.pid)
            except psutil.NoSuchProcess:
                continue
        self._dead = {pid: self._dead.get(pid, 0) + 1 for pid in dead}
        self.zombies += [pid for pid, looks in self._dead.items() if looks == ZOMBIE_LOOKS]

    def cpu_s(self) -> float:
        """CPU of the daemon and of every child that it has waited for."""
        return sum(self.process.cpu_times()[:4])


@pytest.mark.parametrize(
    ("seconds", "push_every_s", "grows_at_most", "extra"),
    [
        pytest.param(
            60.0, 6.0, 6 * MIB, SETTINGS + UNTRACED, marks=[pytest.mark.slow, pytest.mark.timeout(600)]
        ),
        pytest.param(1800.0, 8.0, 12 * MIB, SETTINGS, marks=[pytest.mark.slow, pytest.mark.timeout(2700)]),
    ],
    ids=["a minute", "half an hour"],
)
def test_a_daemon_at_work_stays_as_it_is_and_everything_is_in_its_right_state(
    deployment: Deployment,
    real_lean: Path,
    seconds: float,
    push_every_s: float,
    grows_at_most: int,
    extra: str,
) -> None:
    lean = LeanOfTests.itself(deployment.folder)
    dice = random.Random(7)
    projects = [Project(deployment.remote(f"r{number}"), dice, number) for number in range(REPOSITORIES)]
    for project in projects:
        project.push(sorries=project.number < WITH_SORRIES)
    settings = deployment.write(
        repos=[project.remote.path for project in projects],
        every="5s",
        slowest="5s",
        extra=f"{lean.settings}{extra}",
    )
    with deployment.daemon(environment=lean.environment, prelude=NICE, forked_jobs=False) as process:
        watch = Watch(psutil.Process(process.pid))
        deployment.wait_for(
            lambda: len(deployment.events("commit_observed")) == REPOSITORIES,
            what="every first poll",
            seconds=90,
        )
        began = time.monotonic()
        next_push = push_every_s
        while (now := time.monotonic() - began) < seconds:
            assert process.poll() is None, deployment.log()
            watch.look()
            # The last pushes still have to be worked off within the time, where nothing else is in the way.
            if now > next_push and now < seconds - 10:
                next_push += push_every_s
                dice.choice(projects).push(sorries=dice.random() < 0.5)
            time.sleep(1.0)
        deployment.wait_for(
            lambda: worked_off(settings, projects), what="everything to be worked off", seconds=400
        )
        spent_s = watch.cpu_s()
        watch.look()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    measured = {"cpu_s": spent_s, "rss": watch.rss, "files": watch.files, "seconds": seconds}
    (deployment.folder / "measured.json").write_text(json.dumps(measured), encoding="utf-8")
    assert watch.zombies == []
    assert growth(watch.rss) <= grows_at_most
    assert growth(watch.files, of=min) <= 3
    assert_nothing_is_lost(settings, projects)
    assert kills.orphans(settings.paths) == []


def growth(samples: Sequence[int], *, of: object = statistics.median) -> float:
    """How far the last third lies above the one before; the first third is warming up."""
    assert callable(of)
    third = len(samples) // 3
    return float(of(samples[2 * third :]) - of(samples[third : 2 * third]))


def worked_off(settings: Settings, projects: Sequence[Project]) -> bool:
    """Whether every tip is scanned, every proof judged, and nothing runs or is due."""
    answer = request(settings.paths, "GET", "/status")[1]
    if answer["jobs"] or answer["queued"]:
        return False
    events = kills.read(settings.paths)
    by_type = defaultdict(set)
    for event in events:
        for name in ("sha", "sorry", "proof"):
            if name in event.data:
                by_type[event.type, name].add(event.data[name])
    return (
        not kills.open_attempts(events)
        and {project.shas[-1] for project in projects} <= by_type["commit_scanned", "sha"]
        and by_type["proof_found", "proof"]
        <= by_type["proof_checked", "proof"] | by_type["proof_rejected", "proof"]
    )


def assert_nothing_is_lost(settings: Settings, projects: Sequence[Project]) -> None:
    events = kills.read(settings.paths)
    assert kills.faults(events, before=()) == []
    assert kills.differences(settings.paths) == []
    assert [event for event in events if event.type in ("job_failed", "repository_failed")] == []
    view = queries.connect(settings.paths.database_db)
    try:
        for project, repo in zip(projects, settings.repos, strict=True):
            stream = f"repository:{repo.key}"
            for what in ("commit_observed", "commit_scanned"):
                shas = [
                    event.data["sha"] for event in events if event.type == what and event.stream == stream
                ]
                assert shas == project.shas
            rows = queries.sorries(view, repository=repo.key)
            assert {row.declaration: row.state for row in rows} == project.expected()
    finally:
        view.close()
    assert any(event.type == "proof_checked" for event in events)


def test_a_leak_would_be_seen() -> None:
    """The measure itself: flat is flat, with noise as well, and a leak of a MiB in five seconds is none."""
    dice = random.Random(1)
    flat = [80 * MIB + dice.randrange(4 * MIB) for _ in range(60)]
    assert abs(growth(flat)) < 2 * MIB
    assert growth([rss + second * MIB // 5 for second, rss in enumerate(flat)]) > 2 * MIB
    assert growth([30 + second // 5 for second in range(60)], of=min) > 3


def test_a_zombie_would_be_seen(tmp_path: Path) -> None:
    import subprocess
    import sys

    parent = subprocess.Popen(
        [sys.executable, "-c", "import os, time; os.fork() or os._exit(0); time.sleep(60)"]
    )
    try:
        watch = Watch(psutil.Process(parent.pid))
        deadline = time.monotonic() + 20
        while not watch.zombies:
            assert time.monotonic() < deadline
            watch.look()
            time.sleep(0.05)
    finally:
        parent.kill()
        parent.wait()
