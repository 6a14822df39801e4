"""Measure planning with a million open sorries: an idle turn, one after an event, a full replan, the memory.

    python -m benchmarks.plan [--repositories 10000] [--sorries 100] [--turns 50] [--keep FOLDER]

A turn is the daemon's: plan, then choose the jobs to begin, while the slots are taken. Each repository has a
trace, in which a theorem uses all before it in its file. The events of one repository are projected, and its
rows copied to make the others: the plan reads nothing of the log. `--keep` leaves config.toml and state
behind, with all work paused, to start a daemon on.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil

from daemon.planning.admission import admit
from daemon.planning.plan import Plan, Planner
from daemon.settings import Settings, load
from store.domain.records import ConstantUse, TracedFile, TracedTheorem
from store.events.base import EventBody
from store.events.jobs import WorkPaused
from store.events.repositories import BranchCreated
from store.events.scans import SorryOpened
from store.log.envelope import NewEvent
from store.log.log import EventLog
from store.recording import record_trace
from store.view import queries
from store.view.rebuild import rebuild
from tests.support import events
from tests.support.planning import LEAN
from tests.support.traced_repository import head

FILES = 10
COPIED = ("repositories", "branches", "commits", "files", "sorries", "traces", "traced_files")


def settings_of(folder: Path, repositories: int) -> Settings:
    """Write the configuration of a daemon with this number of repositories."""
    entries = "".join(f'[[repos]]\nurl = "{_url(number)}"\n' for number in range(repositories))
    (folder / "config.toml").write_text(
        f'[daemon]\nstate_dir = "{folder / "state"}"\n[build]\nenabled = false\n'
        f"[trace]\nenabled = false\n{entries}"
    )
    return load(folder / "config.toml")


def _url(number: int) -> str:
    return f"https://example.org/demo/r{number:05}"


def fill(settings: Settings, folder: Path, sorries: int, *, paused: bool) -> None:
    """Make the log of one repository with these open sorries, and a view with as many of each other one."""
    paths = settings.paths
    paths.state.mkdir(mode=0o700)
    tip, first = events.sha("tip"), settings.repos[0].key
    bodies: list[EventBody] = [
        events.watched(url=_url(0)),
        BranchCreated(repository=first, branch="main", tip=tip, is_default=True),
        events.observed(tip),
    ]
    blobs: dict[str, Path] = {}
    files: list[TracedFile] = []
    for file in range(FILES):
        names = [f"Demo.f{file}.t{number}" for number in range(sorries // FILES)]
        theorems = (
            TracedTheorem(name, "", (at, 1), (at, 9), (), premises=tuple(map(ConstantUse, names[:at])))
            for at, name in enumerate(names)
        )
        files.append(TracedFile(f"Demo/F{file}.lean", (), (), tuple(theorems)))
        scan = events.scanned(
            f"Demo/F{file}.lean",
            [events.declaration(name, line=3 * at) for at, name in enumerate(names)],
            with_sorry=names,
        )
        blob = events.sha("blob", file)
        body, payload = events.file_scanned(scan, commit=tip, blob=blob)
        staged = folder / body.scan.sha256
        staged.write_bytes(payload)
        blobs[body.scan.sha256] = staged
        bodies.append(body)
        for sorry in scan.sorries:
            place = events.place(scan, sorry, blob=blob)
            about = {"repository": first, "branch": "main", "sha": tip, "reopened": False}
            bodies.append(SorryOpened(sorry=events.sha(place.declaration)[:32], place=place, **about))
    bodies.append(events.commit_scanned(tip))
    stream = f"repository:{first}"
    own = [NewEvent(stream, body.model_copy(update={"repository": first})) for body in bodies]
    if paused:
        own.append(NewEvent("work", WorkPaused(work="all", by="benchmark", reason="")))
    with EventLog.open(paths.events_db) as log:
        log.append(own, expect=dict.fromkeys((event.stream for event in own), 0), blobs=blobs)
        record_trace(log, trace=head(tip, repository=first), files=files, stage=folder)
    rebuild(paths.events_db, paths.database_db)
    with sqlite3.connect(paths.database_db) as view:
        for table in COPIED:
            columns = [name for _, name, *_ in view.execute(f"PRAGMA table_info({table})")]
            instead = {
                "repository": ":repository", "url": ":url",
                "sorry": "substr(sorry, 1, 27) || :number", "trace": "substr(trace, 1, 11) || :number",
            }  # fmt: skip
            chosen = ", ".join(instead.get(name, f'"{name}"') for name in columns)
            for number, repo in enumerate(settings.repos[1:], 1):
                view.execute(
                    f"INSERT INTO {table} SELECT {chosen} FROM {table} WHERE repository = :first",
                    {"repository": repo.key, "url": _url(number), "number": f"{number:05}", "first": first},
                )
    view.close()


class Turns:
    """Turns of the plan, each timed by its processor time in milliseconds."""

    def __init__(self, settings: Settings, view: sqlite3.Connection) -> None:
        self._settings = settings
        self._view = view
        self.planner = Planner()
        self.plan = Plan()

    def turn(self) -> float:
        began = time.process_time()
        self.plan = self.planner.plan(self._view, settings=self._settings, leans=LEAN, now=datetime.now(UTC))
        max_running = self._settings.jobs.max_running
        admitted = admit(self.plan, running=["prove"] * max_running, max_running=max_running)
        assert not admitted.start
        return 1000 * (time.process_time() - began)


def measure(settings: Settings, turns: int) -> dict[str, float]:
    """Return the figures by their names."""
    process = psutil.Process()
    view = queries.connect(settings.paths.database_db)
    result = {"memory before, MB": process.memory_info().rss / 1e6}
    its = Turns(settings, view)
    result["all anew, s"] = its.turn() / 1000
    result["due jobs"] = len(its.plan.due)
    result["memory after, MB"] = process.memory_info().rss / 1e6
    result["nothing new, ms (median)"] = _median(its.turn, turns)
    repositories = iter(settings.repos * (1 + turns // len(settings.repos)))

    def after_an_event() -> float:
        body = events.observed(events.sha("tip")).model_copy(update={"repository": next(repositories).key})
        its.planner.changed([body])
        return its.turn()

    result["after one event, ms (median)"] = _median(after_an_event, turns)
    view.close()
    return result


def _median(step: Callable[[], float], turns: int) -> float:
    return statistics.median(step() for _ in range(turns))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repositories", type=int, default=10_000)
    parser.add_argument("--sorries", type=int, default=100, help="of each repository")
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--keep", type=Path, help="make the deployment here, and leave it")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="everlean-plan-") as scratch:
        folder = chosen.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        settings = settings_of(folder, chosen.repositories)
        fill(settings, Path(scratch), chosen.sorries, paused=chosen.keep is not None)
        print(f"{chosen.repositories:,} repositories of {chosen.sorries} open sorries each")
        for name, value in measure(settings, chosen.turns).items():
            print(f"{name:32} {value:10,.2f}")


if __name__ == "__main__":
    main()
