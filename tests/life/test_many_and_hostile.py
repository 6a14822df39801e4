"""A daemon at length before a hostile forge, and one that watches thousands; git and processes are real."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from tests.support.daemon.deployment import Deployment
from tests.support.daemon.github import GitHubServer
from tests.support.daemon.remote import Remote
from tests.support.hostile_server import CASES, HostileServer

pytestmark = [pytest.mark.harness, pytest.mark.slow, pytest.mark.timeout(10_800)]
GOOD = ("good1", "good2", "good3")
EVERY_S = 5
TIMEOUT_S = 5
SECONDS = 45
NEW = 3000
FILES = 20
TOKEN = "the-token-of-the-test"
LIMIT = 5000
FIRST_HOUR_S = 20 * 60
WATCHED_S = 20 * 60
EVERY_MIN = 10


@contextmanager
def daemon(deployment: Deployment) -> Iterator[psutil.Process]:
    """Run the daemon; it is ready when this is entered."""
    with deployment.daemon() as process:
        deployment.wait_for(lambda: '"daemon_ready"' in deployment.log(), what="the daemon", seconds=300)
        yield psutil.Process(process.pid)


def outcomes(database: Path) -> Counter[str]:
    """Return how many repositories have each result of their last poll."""
    with closing(sqlite3.connect(database)) as view:
        return Counter(outcome for (outcome,) in view.execute("SELECT outcome FROM poll_states"))


def test_a_forge_that_answers_badly_about_most_costs_the_others_no_time_and_the_daemon_little_memory(
    tmp_path: Path, tell: Callable[[str, str], None]
) -> None:
    deployment = Deployment(tmp_path)
    names = (*CASES, *GOOD)
    tips = {name: deployment.remote(name).commit("first") for name in names}
    with HostileServer(tips=tips) as server:
        deployment.write(
            repos=[tmp_path / "remotes" / name for name in names],
            every=f"{EVERY_S}s",
            extra=f'[github]\napi_url = "{server.url}"\nlocal_repositories = true\n',
        )
        text = deployment.config.read_text(encoding="utf-8")
        deployment.config.write_text(
            text.replace('timeout = "20s"', f'timeout = "{TIMEOUT_S}s"'), encoding="utf-8"
        )
        database = deployment.settings().paths.database_db
        with daemon(deployment) as process:
            before = most = process.memory_info().rss
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                most = max(most, process.memory_info().rss)
                time.sleep(0.1)
            found = outcomes(database)
        pauses = []
        for name in GOOD:
            times = [at for at, path in server.times if path.split("/")[3] == name and "heads" in path]
            pauses += [later - earlier for earlier, later in zip(times, [*times[1:], end], strict=True)]
    grown = (most - before) / 1e6
    tell(
        f"{len(CASES)} ways to answer badly, {SECONDS} s, every {EVERY_S} s",
        f"longest pause of the others: {max(pauses):.1f} s; memory +{grown:.0f} MB",
    )
    assert max(pauses) < EVERY_S + TIMEOUT_S
    assert grown < 50
    assert found["unchanged"] + found["changed"] == len(GOOD)


def late_s(database: Path) -> float:
    """Return for how long the latest repository's poll is due."""
    with closing(sqlite3.connect(database)) as view:
        (first,) = view.execute("SELECT min(next_due_at) FROM poll_states").fetchone()
    return (datetime.now(UTC) - datetime.fromisoformat(first)).total_seconds()


def counted(database: Path, table: str, condition: str = "1") -> int:
    """Return how many rows of the view fulfil the condition."""
    with closing(sqlite3.connect(database)) as view:
        count: int = view.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()[0]
        return count


def processor_s(process: psutil.Process) -> float:
    """Return the processor seconds of a process and of its children that ended."""
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


class Hours:
    """GitHub's limit of requests an hour; the first hour ends some minutes after the start."""

    def __init__(self, server: GitHubServer) -> None:
        self._server = server
        self.most = 0
        server.remaining, server.reset_at = LIMIT, time.time() + FIRST_HOUR_S

    def look(self) -> None:
        """Begin the next hour where it is time."""
        assert self._server.remaining is not None
        self.most = max(self.most, LIMIT - self._server.remaining)
        if time.time() >= self._server.reset_at:
            self._server.remaining, self._server.reset_at = LIMIT, self._server.reset_at + 3600


def library(remote: Remote) -> None:
    """Commit a Lean project of some pages, a fifth of its files with a sorry."""
    files = {
        "lean-toolchain": "leanprover/lean4:v4.35.0\n",
        "lakefile.toml": 'name = "small"\n[[lean_lib]]\nname = "Small"\n',
    }
    for at in range(FILES):
        proved = "".join(
            f"theorem t{at}_{n} (n : Nat) : n + {n} = {n} + n := by\n  omega\n\n" for n in range(20)
        )
        left = "" if at % 5 else f"theorem s{at} : {at} + 0 = {at} := by sorry\n"
        files[f"Small/F{at}.lean"] = f"import Small.Basic\n\n{proved}{left}"
    remote.commit("first", files)


def test_thousands_of_repositories_are_scanned_in_an_hour_of_a_core_and_polled_in_time_memory_and_githubs_limit(
    tmp_path: Path, tell: Callable[[str, str], None]
) -> None:
    deployment = Deployment(tmp_path)
    one = deployment.remote("r0")
    library(one)
    paths = [one.path]
    for at in range(1, NEW):
        paths.append(tmp_path / "remotes" / f"r{at}")
        shutil.copytree(one.path, paths[-1])
    with GitHubServer(token=TOKEN) as server:
        for path in paths:
            server.add(f"remotes/{path.name}", path)
        (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
        (tmp_path / "token").chmod(0o600)
        deployment.write(
            repos=paths,
            every=f"{EVERY_MIN}m",
            slowest=f"{EVERY_MIN}m",
            extra=f'[github]\napi_url = "{server.url}"\nlocal_repositories = true\ntoken_file = "token"\n',
        )
        database = deployment.settings().paths.database_db
        began, hours, first_s, most = time.monotonic(), Hours(server), 0.0, 0
        with deployment.daemon(forked_jobs=False) as started:
            deployment.wait_for(lambda: '"daemon_ready"' in deployment.log(), what="the daemon", seconds=300)
            process = psutil.Process(started.pid)
            while counted(database, "jobs", "kind = 'scan' AND state = 'succeeded'") < NEW:
                hours.look()
                most = max(most, process.memory_info().rss)
                if not first_s and outcomes(database).total() >= 10:
                    first_s = time.monotonic() - began
                time.sleep(0.5)
            all_s, spent_s = time.monotonic() - began, processor_s(process)
            settled, asked = process.memory_info().rss, len(server.requests)
            later, descriptors, late = 0, 0, 0.0
            while time.monotonic() < began + all_s + WATCHED_S:
                hours.look()
                later = max(later, process.memory_info().rss)
                descriptors = max(descriptors, process.num_fds())
                late = max(late, late_s(database))
                time.sleep(1)
        polls = Counter(request.status for request in server.requests[asked:])
    sorries = counted(database, "sorries")
    tell(
        f"{NEW:,} new repositories of {FILES} files at once",
        f"the first 10 after {first_s:.1f} s, all scanned after {all_s / 60:.0f} min,"
        f" {spent_s / 60:.0f} min of processor, in {most / 1e6:.0f} MB",
    )
    tell(
        f"the same for {WATCHED_S // 60} min more, every {EVERY_MIN} min",
        f"latest poll +{late:.1f} s; {descriptors} descriptors; memory +{max(later - settled, 0) / 1e6:.1f} MB",
    )
    tell(
        f"their requests, of {LIMIT:,} an hour that GitHub allows",
        f"{hours.most:,} in the busiest hour; then {polls[304]:,} of {polls.total():,} polls cost none",
    )
    assert sorries == NEW * FILES // 5
    assert first_s < 60
    assert spent_s < 3600
    assert max(most, later) < 200e6
    assert descriptors < 200
    assert late < EVERY_MIN * 30, "half of an interval"
    assert set(polls) <= {200, 304}
    assert polls[200] < polls[304] / 100
