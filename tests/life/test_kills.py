"""kill -9 of a daemon at its work: while it scans, builds, traces, proves, checks, learns, appends and writes patches.

Each kill has an aim, and counts only if the daemon was at it. A reader that shares no code with us follows the log all
the while. Afterwards nothing is missing that it saw, the log is sound, the view is what a rebuild makes, no process
and no half of a file is left, each proof has its patch, and all the work is done. Numbered points of single steps are
in tests/daemon/test_crash_points.py and tests/store/test_crash.py.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from daemon.place.paths import Paths
from daemon.results.patches import patch_path
from daemon.settings import Settings
from pipeline.jobs.kinds import Kind
from store.events.models import ModelKind
from store.log.envelope import StoredEvent
from store.view import queries
from tests.support.daemon import kills, witness
from tests.support.daemon.at_work import APPENDING, LEARNED, PATIENCE_S, Linger, Works
from tests.support.daemon.deployment import Deployment

pytestmark = [pytest.mark.harness, pytest.mark.timeout(400), pytest.mark.usefixtures("real_lean")]


JOBS: tuple[Kind, ...] = ("scan", "build", "trace", "prove", "check")
TRAININGS: tuple[Kind, ...] = ("train", "train_tactics", "train_progress")
MODELS: tuple[ModelKind, ...] = ("retriever", "tactics", "progress")
TRAINING_KILLS = 9
"""Of each kind of training."""
TRIES = 20
"""So often an aim may be missed, as where the job ends first, before it is an error."""


class Harness:
    """Kills daemons, and processes of theirs, at what it aims at; looks at what is left each time."""

    def __init__(self, works: Works, dice: random.Random) -> None:
        self.works = works
        self.dice = dice
        self.events: list[StoredEvent] = []
        self.hits: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.children: Counter[str] = Counter()

    @property
    def paths(self) -> Paths:
        return self.works.settings.paths

    def kill_at_job(self, kind: Kind, *, more: Callable[[], object] | None = None) -> None:
        """Kill the daemon while a job of this kind is at its work."""
        for _ in range(TRIES):
            daemon = self.works.start()
            try:
                child = self.works.wait_for(daemon, kind, more=more)
                time.sleep(self.dice.choice((0.0, self.dice.uniform(0.0, 0.8))))
                daemon.send_signal(signal.SIGSTOP)  # nothing ends between the look and the kill
                runs = child.runs()
            finally:
                kills.kill(daemon)
            self.look()
            if runs and (f"job:{child.job}", child.attempt) in kills.open_attempts(self.events):
                self.hits[kind] += 1
                return
            self.missed[kind] += 1
        raise AssertionError(f"{TRIES} kills, and none while a job of kind {kind} ran")

    def kill_at_place(self, place: Linger, *, after: int) -> None:
        """Kill the daemon at one of its own steps, when it has been there so many times."""
        daemon = self.works.start(linger=place, after=after)
        try:
            self.works.wait_for_place(daemon)
        finally:
            kills.kill(daemon)
        self.look()
        self.hits["patch" if place == "patch" else "append"] += 1

    def kill_a_child(self, daemon: subprocess.Popen[bytes], kind: Kind) -> None:
        """Kill a job, or one of the processes that it started; the daemon goes on and closes the attempt."""
        for _ in range(TRIES):
            child = self.works.wait_for(daemon, kind)
            victim = child.process
            if self.dice.random() < 0.5:
                # Something that it started, once there is something.
                while child.runs() and not (family := child.descendants()):
                    time.sleep(0.01)
                victim = self.dice.choice(family or [victim])
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.suspend()
                runs = victim.status() != psutil.STATUS_ZOMBIE
                victim.kill()
                attempt = (f"job:{child.job}", child.attempt)
                self.works.deployment.wait_for(
                    lambda attempt=attempt: attempt not in kills.open_attempts(kills.read(self.paths)),  # type: ignore[misc] # bound early
                    what=f"the end of {attempt}",
                    seconds=PATIENCE_S,
                )
                if runs:
                    self.children[kind if victim == child.process else f"started by {kind}"] += 1
                    return
        raise AssertionError(f"{TRIES} kills, and none of a process of a job of kind {kind}")

    def look(self) -> None:
        """The daemon is dead: what it left goes on from what there was, and the view follows from it."""
        events = kills.read(self.paths)
        assert kills.faults(events, before=self.events) == []
        assert kills.differences(self.paths) == []
        self.events = events
        if self.dice.random() < 0.5:
            # The others are ended by the next start.
            self.works.deployment.wait_for(
                lambda: kills.orphans(self.paths) == [], what="the jobs' end", seconds=PATIENCE_S
            )


@pytest.mark.parametrize(
    ("rounds", "burst", "learn"),
    [(1, 1, ()), pytest.param(5, 5, MODELS, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])],
)
def test_a_daemon_that_is_killed_at_all_that_it_does_loses_nothing_and_does_it_all(
    tmp_path: Path, rounds: int, burst: int, learn: Sequence[ModelKind], tell: Callable[[str, str], None]
) -> None:
    works = Works(tmp_path, theorems=LEARNED if learn else 3)
    paths = works.settings.paths
    harness = Harness(works, random.Random(20261124))
    with witness.watching(paths.events_db, tmp_path / "seen") as seen:
        for _ in range(rounds):
            for kind in JOBS:
                for _ in range(burst):
                    harness.kill_at_job(kind)
                if learn or kind == "prove":
                    with works.running() as daemon:
                        harness.kill_a_child(daemon, kind)
            for _ in range(burst):
                harness.kill_at_place("patch", after=0)
            works.push()
            for number in range(burst):
                place = APPENDING[number % len(APPENDING)]
                harness.kill_at_place(place, after=harness.dice.randrange(6 * burst))
        if learn:
            works.write(learn=learn, epochs=20)
            for kind in TRAININGS:
                for _ in range(TRAINING_KILLS):
                    harness.kill_at_job(kind, more=works.train)
        with works.running():
            works.settle()
        # What was recorded last, too.
        works.deployment.wait_for(
            lambda: len(witness.noted(seen)) == len(kills.read(paths)), what="the reader to see the end"
        )
    tell(
        f"kill -9 of a daemon {harness.hits.total()} times, of its children {harness.children.total()} times",
        f"of {len(witness.noted(seen))} events lost or changed: {len(witness.missing(seen, paths.events_db))}",
    )
    asked = dict.fromkeys([*JOBS, "patch", "append"], rounds * burst)
    asked |= dict.fromkeys(TRAININGS, TRAINING_KILLS) if learn else {}
    assert all(harness.hits[aim] >= times for aim, times in asked.items()), (harness.hits, harness.missed)
    assert witness.missing(seen, paths.events_db) == []
    assert_all_is_there(works, harness)


def assert_all_is_there(works: Works, harness: Harness) -> None:
    """What the daemon left after the last clean stop, in its log, its view and its folders."""
    paths = works.settings.paths
    for verb in ("check", "verify"):
        done = works.deployment.everlean("db", verb)
        assert done.returncode == 0, done.stdout + done.stderr
    events = kills.read(paths)
    assert kills.faults(events, before=harness.events) == []
    assert kills.open_attempts(events) == set()
    assert kills.orphans(paths) == []
    assert [*paths.state.rglob("*.tmp"), *paths.cache.rglob("*.tmp"), *paths.worktrees.glob("*")] == []
    failures = [event.data for event in events if event.type == "job_failed"]
    assert len(failures) <= harness.children.total()
    assert not [failure for failure in failures if failure["deterministic"]]
    observed = [event.data["sha"] for event in events if event.type == "commit_observed"]
    scanned = [event.data["sha"] for event in events if event.type == "commit_scanned"]
    # Of what was there before the first poll the tip is the baseline; from there on each commit, in order, once.
    assert scanned == observed == works.tips[-len(observed) :]
    with contextlib.closing(queries.connect(paths.database_db)) as view:
        proofs = {proof.proof: proof for proof in queries.proofs(view)}
        standing = [row for row in queries.sorries(view) if row.state in ("open", "verified")]
        patches = {
            patch_path(paths.patches, repository=row.repository, declaration=row.declaration, proof=row.proof)
            for row in proofs.values()
            if row.state in ("candidate", "verified")
        }
    assert len(standing) == sum(
        path.read_text(encoding="utf-8").count("sorry") for path in works.remote.path.rglob("*.lean")
    )
    assert {row.sorry for row in standing} <= {proof.sorry for proof in proofs.values()}, "each is proved"
    assert {path for path in paths.patches.rglob("*") if path.is_file()} == patches, (
        "each proof has its patch, and nothing else is there"
    )
    for patch in patches:
        assert patch.read_text(encoding="utf-8").count("\n+++ b/") == 1


def test_the_reader_would_miss_an_event_that_went_or_was_changed(tmp_path: Path) -> None:
    log = tmp_path / "events.db"
    with contextlib.closing(sqlite3.connect(log, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, data TEXT)")
        writer.execute("INSERT INTO events VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        with witness.watching(log, tmp_path / "seen") as seen:
            deadline = time.monotonic() + PATIENCE_S
            while not seen.exists() or len(witness.noted(seen)) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        assert witness.missing(seen, log) == []
        writer.execute("UPDATE events SET data = 'B' WHERE seq = 2")
        writer.execute("DELETE FROM events WHERE seq = 3")
    assert witness.missing(seen, log) == [2, 3]


STORE = ("database.db-wal", "database.db", "events.db", "events.db-wal")
"""The view first, so that it is not the newer of the two."""


def test_after_the_power_was_lost_the_daemon_goes_on_from_a_prefix_of_its_log(
    deployment: Deployment, tmp_path: Path
) -> None:
    """The files as they lay on the disk while the daemon wrote; of the -wal, what had reached it."""
    remote = deployment.remote("one")
    remote.commit("first", {"A.lean": "theorem a : 1 = 1 := by\n  sorry\n"})
    settings = deployment.write(repos=[remote.path], every="1s")
    process = deployment.start()
    try:
        deployment.wait_for(lambda: deployment.events("commit_observed"), what="the first commit")
        tip = remote.commit("second", {"B.lean": "theorem b : 2 = 2 := by\n  sorry\n"})
        deployment.wait_for(lambda: len(deployment.events("commit_observed")) == 2, what="the second commit")
        # While it is at work on it.
        found = {name: (settings.paths.state / name).read_bytes() for name in STORE}
    finally:
        kills.kill(process)
    whole = deployment.events()
    # All of it, a part of the last write, half: each on a machine of its own, side by side.
    twins = [
        after_the_loss(tmp_path / f"after-{keep}", settings, found, keep=keep, remote=remote.path)
        for keep in (1.0, 0.93, 0.5)
    ]
    before = [kills.read(twin.settings().paths) for twin in twins]
    assert all(survived == whole[: len(survived)] for survived in before)
    assert len({len(survived) for survived in before}) > 1, "something was lost"
    with contextlib.ExitStack() as stack:
        daemons = [stack.enter_context(twin.daemon()) for twin in twins]
        for twin in twins:
            twin.wait_for(
                lambda t=twin: tip in {event.data["sha"] for event in t.events("commit_scanned")},  # type: ignore[misc] # bound early
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
    folder: Path, settings: Settings, found: Mapping[str, bytes], *, keep: float, remote: Path
) -> Deployment:
    """A machine with these files, of the log's -wal only so much; its mirrors had long been on the disk."""
    folder.mkdir()
    twin = Deployment(folder)
    paths = twin.write(repos=[remote], every="1s").paths
    paths.state.mkdir(exist_ok=True)
    for name, content in found.items():
        if keep < 1 and name.startswith("database.db"):
            continue  # a log that ends before its view is refused: tests/daemon/test_damaged_log.py
        whole = name != "events.db-wal"
        (paths.state / name).write_bytes(content if whole else content[: int(len(content) * keep)])
    shutil.copytree(settings.paths.mirrors, paths.mirrors)
    return twin
