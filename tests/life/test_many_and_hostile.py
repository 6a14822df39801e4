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
from tests.support.hostile_server import CASES, HostileServer

pytestmark = [pytest.mark.harness, pytest.mark.slow, pytest.mark.timeout(3600)]
GOOD = ("good1", "good2", "good3")
EVERY_S = 5
TIMEOUT_S = 5
SECONDS = 45
NEW = 2000
WATCHED_S = 20 * 60
EVERY_MIN = 10


@contextmanager
def daemon(deployment: Deployment) -> Iterator[psutil.Process]:
    """Run the daemon; it is ready when this is entered."""
    with deployment.daemon() as process:
        deployment.wait_for(lambda: '"daemon_ready"' in deployment.log(), what="the daemon", seconds=300)
        yield psutil.Process(process.pid)


def outcomes(deployment: Deployment) -> Counter[str]:
    """Return how many repositories have each result of their last poll."""
    with closing(sqlite3.connect(deployment.settings().paths.database_db)) as view:
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
        with daemon(deployment) as process:
            before = most = process.memory_info().rss
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                most = max(most, process.memory_info().rss)
                time.sleep(0.1)
            found = outcomes(deployment)
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


def late_s(deployment: Deployment) -> float:
    """Return for how long the latest repository's poll is due."""
    with closing(sqlite3.connect(deployment.settings().paths.database_db)) as view:
        (first,) = view.execute("SELECT min(next_due_at) FROM poll_states").fetchone()
    return (datetime.now(UTC) - datetime.fromisoformat(first)).total_seconds()


def test_thousands_of_repositories_are_first_looked_at_within_seconds_and_then_polled_in_time_and_memory(
    tmp_path: Path, tell: Callable[[str, str], None]
) -> None:
    deployment = Deployment(tmp_path)
    one = deployment.remote("r0")
    one.commit("first")
    paths = [one.path]
    for at in range(1, NEW):
        paths.append(tmp_path / "remotes" / f"r{at}")
        shutil.copytree(one.path, paths[-1])
    deployment.write(repos=paths, every=f"{EVERY_MIN}m", slowest=f"{EVERY_MIN}m")
    began, first_s, most = time.monotonic(), 0.0, 0
    with daemon(deployment) as process:
        while (seen := outcomes(deployment).total()) < NEW:
            most = max(most, process.memory_info().rss)
            if seen >= 10 and not first_s:
                first_s = time.monotonic() - began
            time.sleep(0.2)
        all_s = time.monotonic() - began
        settled = process.memory_info().rss
        later, descriptors, late = 0, 0, 0.0
        while time.monotonic() < began + all_s + WATCHED_S:
            later = max(later, process.memory_info().rss)
            descriptors = max(descriptors, process.num_fds())
            late = max(late, late_s(deployment))
            time.sleep(1)
    tell(
        f"{NEW:,} new repositories at once",
        f"the first 10 after {first_s:.1f} s, all after {all_s:.0f} s, in {most / 1e6:.0f} MB",
    )
    tell(
        f"the same for {WATCHED_S // 60} min more, every {EVERY_MIN} min",
        f"latest poll +{late:.1f} s; {descriptors} descriptors; memory +{max(later - settled, 0) / 1e6:.1f} MB",
    )
    assert first_s < 60
    assert max(most, later) < 150e6
    assert descriptors < 200
    assert late < EVERY_MIN * 30, "half of an interval"
