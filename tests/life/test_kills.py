"""kill -9 at random moments of a repository's whole life: scanned, traced, proved, checked, rewritten, rejoined.

Numbered points are in tests/daemon/test_crash_points.py and tests/store/test_crash.py; here the moment is random.
After each kill the log is what it was and perhaps more, without a gap; the view is what a rebuild makes; at the end
every commit was observed and scanned once, no job succeeded twice, and no process is left.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from daemon.settings import Settings
from store.log.envelope import StoredEvent
from store.view import queries
from tests.support.daemon import kills
from tests.support.daemon.deployment import Deployment
from tests.support.daemon.remote import Remote

SOURCES = (
    "theorem p{n} : 1 + 1 = 2 := by\n  sorry\n",
    "theorem q{n} (a b : Prop) (h : a ∧ b) : b := by\n  sorry\n\ntheorem done{n} : 1 = 1 := by\n  rfl\n",
    "theorem r{n} (a b : Prop) : a → b := by\n  sorry\n",
    "theorem s{n} : 2 + 2 = 4 := by\n  rfl\n",
)
SIMULATED = '[lean]\nbackend = "simulator"\n[prove]\nrungs = [0]\n[jobs]\nretry_base = "1s"\n'


pytestmark = pytest.mark.timeout(400)


class Life:
    """A repository that people work on: the commits are of its tips, in order, as first-parent history has them."""

    def __init__(self, remote: Remote, dice: random.Random) -> None:
        self.remote = remote
        self.tips: list[str] = []
        self._dice = dice
        self._number = 0
        self.push()

    def push(self) -> None:
        """One commit: a new file, or another text in an old one."""
        self._number += 1
        text = self._dice.choice(SOURCES).format(n=self._number)
        name = f"F{self._dice.randrange(6)}.lean"
        self.tips.append(self.remote.commit(f"c{self._number}", {name: text}))


def settle(deployment: Deployment, lives: list[Life]) -> None:
    """Wait until everything that was pushed is scanned and nothing is under way or due."""

    def quiet() -> bool:
        events = kills.read(settings.paths)
        scanned = {event.data["sha"] for event in events if event.type == "commit_scanned"}
        proofs = [event.data["proof"] for event in events if event.type == "proof_found"]
        judged = {
            event.data["proof"] for event in events if event.type in ("proof_checked", "proof_rejected")
        }
        return (
            all(life.tips[-1] in scanned for life in lives)
            and not kills.open_attempts(events)
            and set(proofs) <= judged
        )

    settings = deployment.settings()
    deployment.wait_for(quiet, what="everything to be worked off", seconds=180)


@pytest.mark.parametrize(
    ("times", "seed"),
    [(4, 1), pytest.param(100, 2, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])],
)
def test_a_daemon_that_is_killed_again_and_again_loses_nothing_and_does_nothing_twice(
    deployment: Deployment, times: int, seed: int
) -> None:
    dice = random.Random(seed)
    lives = [Life(deployment.remote(name), dice) for name in ("one", "two")]
    settings = deployment.write(
        repos=[life.remote.path for life in lives], every="1s", slowest="1s", extra=SIMULATED
    )
    before: list[StoredEvent] = []
    ready = 0
    for number in range(times):
        process = deployment.start()
        try:
            if number % 4:
                # The others die at their work, however long the start takes on a busy machine.
                deployment.wait_for(
                    partial(lambda before: deployment.log().count('"daemon_ready"') > before, ready),
                    what="the start",
                )
            time.sleep(dice.uniform(0.05, 1.4))
            if dice.random() < 0.6:
                dice.choice(lives).push()
                time.sleep(dice.uniform(0.0, 1.0))
        finally:
            kills.kill(process)
        ready = deployment.log().count('"daemon_ready"')
        events = kills.read(settings.paths)
        assert kills.faults(events, before=before) == []
        assert kills.differences(settings.paths) == []
        before = events
    with deployment.daemon() as process:
        settle(deployment, lives)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    events = kills.read(settings.paths)
    assert kills.faults(events, before=before) == []
    assert kills.open_attempts(events) == set()
    assert kills.differences(settings.paths) == []
    assert kills.orphans(settings.paths) == []
    assert [event for event in events if event.type == "job_failed"] == []
    for life, repo in zip(lives, settings.repos, strict=True):
        observed = [
            event.data["sha"]
            for event in events
            if event.type == "commit_observed" and event.stream == f"repository:{repo.key}"
        ]
        # Of what was there before the first poll the tip is the baseline; from there on each commit, in order, once.
        assert observed
        assert observed == life.tips[-len(observed) :]
        scanned = [event.data["sha"] for event in events if event.type == "commit_scanned"]
        assert [sha for sha in scanned if sha in observed] == observed
    assert_open_is_what_stands_there(settings, lives)


def assert_open_is_what_stands_there(settings: Settings, lives: list[Life]) -> None:
    """The view has as open just those sorries that stand in the files of the tips."""
    view = queries.connect(settings.paths.database_db)
    try:
        for life, repo in zip(lives, settings.repos, strict=True):
            standing = sum(
                path.read_text(encoding="utf-8").count("sorry") for path in life.remote.path.glob("*.lean")
            )
            rows = queries.sorries(view, repository=repo.key)
            assert sum(row.state in ("open", "verified") for row in rows) == standing
    finally:
        view.close()


STORE = ("database.db-wal", "database.db", "events.db", "events.db-wal")
"""The view first, so that it is not the newer of the two."""


def test_after_the_power_was_lost_the_daemon_goes_on_from_a_prefix_of_its_log(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The files as they lay on the disk while the daemon wrote; of the -wal, what had reached it."""
    life = Life(deployment.remote("one"), random.Random(3))
    settings = deployment.write(repos=[life.remote.path], every="1s")
    process = deployment.start()
    try:
        deployment.wait_for(lambda: deployment.events("commit_observed"), what="the first commit")
        life.push()
        deployment.wait_for(lambda: len(deployment.events("commit_observed")) == 2, what="the second commit")
        # While it is at work on it.
        found = {name: (settings.paths.state / name).read_bytes() for name in STORE}
    finally:
        kills.kill(process)
    whole = deployment.events()
    # All of it, a part of the last write, half: each on a machine of its own, side by side.
    twins = [
        after_the_loss(tmp_path / f"after-{keep}", settings, found, keep=keep, life=life)
        for keep in (1.0, 0.93, 0.5)
    ]
    before = [kills.read(twin.settings().paths) for twin in twins]
    assert all(survived == whole[: len(survived)] for survived in before)
    assert len({len(survived) for survived in before}) > 1, "something was lost"
    with contextlib.ExitStack() as stack:
        daemons = [stack.enter_context(twin.daemon()) for twin in twins]
        for twin in twins:
            twin.wait_for(
                lambda t=twin: life.tips[-1] in {event.data["sha"] for event in t.events("commit_scanned")},  # type: ignore[misc] # bound early
                what="the tip to be scanned",
            )
        for process in daemons:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(timeout=30) for process in daemons] == [0, 0, 0]
    for twin, survived in zip(twins, before, strict=True):
        paths = twin.settings().paths
        events = kills.read(paths)
        assert kills.faults(events, before=survived) == []
        assert kills.differences(paths) == []
        assert kills.open_attempts(events) == set()


def after_the_loss(
    folder: Path, settings: Settings, found: Mapping[str, bytes], *, keep: float, life: Life
) -> Deployment:
    """A machine with these files, of the log's -wal only so much; its mirrors had long been on the disk."""
    folder.mkdir()
    twin = Deployment(folder)
    paths = twin.write(repos=[life.remote.path], every="1s").paths
    paths.state.mkdir(exist_ok=True)
    for name, content in found.items():
        if keep < 1 and name.startswith("database.db"):
            continue  # a log that ends before its view is refused: tests/daemon/test_damaged_log.py
        whole = name != "events.db-wal"
        (paths.state / name).write_bytes(content if whole else content[: int(len(content) * keep)])
    shutil.copytree(settings.paths.mirrors, paths.mirrors)
    return twin
