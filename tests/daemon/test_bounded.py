"""However a commit is made, it holds the daemon within bounds, and every reader says what was left out."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from daemon.cli.app import build
from daemon.place.control_client import request
from daemon.polling.poller import PollResult
from store.view import queries
from store.view.rebuild import verify
from store.view.rows import too_large_text
from tests.support.daemon.deployment import Deployment
from tests.support.views import sorry_steps

MOST_MB = 150


def peak_mb(pid: int) -> int:
    """Return the most memory that a process has held."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def bomb(n: int) -> str:
    """Return a file of so many sorries, one a line."""
    return "".join(f"theorem s{i}:1=1:=sorry\n" for i in range(n))


def limits(**least: int) -> str:
    """Return the program that gives a daemon's scans these limits."""
    return (
        "from daemon.planning import repository\n"
        f"repository.scan_limits = lambda _: repository.ScanLimits(**{least})"
    )


@pytest.mark.parametrize(
    ("n", "most"),
    [
        pytest.param(11_000, 300, id="11000"),
        pytest.param(300_000, 2000, id="300000", marks=pytest.mark.slow),
    ],
)
def test_a_file_of_one_line_sorries_holds_the_daemon_within_its_memory_and_is_said_to_be_too_large(
    tmp_path: Path, n: int, most: int
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("bomb")
    remote.commit("bomb", {"S.lean": bomb(n), "T.lean": "theorem t : 1 = 1 := sorry\n"})
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon(prelude=limits(sorries_per_file=most)) as daemon:
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the scan", seconds=180)
        assert peak_mb(daemon.pid) < MOST_MB
    assert len(deployment.events("sorry_opened")) == most + 1, "the other file is taken whole"
    log_mb = sum(path.stat().st_size for path in settings.paths.state.glob("events.db*")) / 2**20
    assert log_mb < 16
    text = f"too large: {most:,} of {n:,} sorries, 10,000 of {n:,} declarations taken (S.lean)"
    with closing(queries.connect(settings.paths.database_db)) as view:
        (row,) = queries.too_large(view)
        assert row.text == text
    for command in (["status"], ["repos"], ["sorries"], ["theorems", "--text", "s1"]):
        output = CliRunner().invoke(build(), [*command, "--config", str(deployment.config)]).output
        assert text in " ".join(output.split()), command
    CliRunner().invoke(
        build(), ["report", "--out", str(tmp_path / "out"), "--config", str(deployment.config)]
    )
    pages = {path.name: path.read_text("utf-8") for path in (tmp_path / "out").glob("*.html")}
    assert (
        f"{most + 1:,} sorries are open in 1 watched repository, and {n - most:,} more are beyond"
        in pages["index.html"]
    )
    lines = [name for name, html in pages.items() if text in html]
    assert sorted(lines) == sorted(name for name in pages if name.startswith(("index", "sorries")))


def test_branches_that_a_repository_has_no_room_for_are_watched_and_said_to_be_too_large(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("wide")
    sha = remote.commit("first", {"S.lean": bomb(4)})
    for name in ("a", "b", "c"):
        subprocess.run(["git", "-C", str(remote.path), "branch", name, sha], check=True)
    settings = deployment.write(repos=[remote.path], entry='branches = ["*"]')

    def in_the_view() -> bool:
        with closing(queries.connect(settings.paths.database_db)) as view:
            return len(queries.too_large(view)) == 2

    with deployment.daemon(prelude=limits(sorries_of_repository=10)):
        deployment.wait_for(lambda: len(deployment.events("commit_scanned")) == 4, what="every branch")
        deployment.wait_for(in_the_view, what="the two branches without room")
    assert len(deployment.events("sorry_opened")) == 10
    with closing(queries.connect(settings.paths.database_db)) as view:
        cut = queries.too_large(view)
        # Which of two branches that are scanned at once comes first, nothing says.
        assert sorted(row.text for row in cut) == [
            "too large: 0 of 4 sorries taken (S.lean)",
            "too large: 2 of 4 sorries taken (S.lean)",
        ]
        (said,) = too_large_text(cut).values()
        assert said == f"{cut[0].branch}: {cut[0].text}; so on 1 more branch"
        followed, declarations = queries.taken_of(view, repository=settings.repos[0].key)
    assert (sorted(followed.values()), declarations) == ([2, 4, 4], 16)


@pytest.mark.slow
def test_a_commit_of_many_files_of_long_statements_holds_the_daemon_within_its_memory(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("long")
    text = " + ".join(["0"] * 1000)
    files = {
        f"L{file}.lean": "".join(f"theorem l{file}_{i} : {i} + {text} = {i} := sorry\n" for i in range(400))
        for file in range(40)
    }
    remote.commit("long", files)
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon() as daemon:
        deployment.wait_for(lambda: deployment.events("commit_scanned"), what="the scan", seconds=180)
        remote.commit("reworded", {name: data.replace("sorry", "by sorry") for name, data in files.items()})
        request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})
        deployment.wait_for(
            lambda: len(deployment.events("commit_scanned")) == 2, what="the second scan", seconds=180
        )
        assert peak_mb(daemon.pid) < MOST_MB
    log_mb = sum(path.stat().st_size for path in settings.paths.state.glob("events.db*")) / 2**20
    source_mb = sum(map(len, files.values())) / 2**20
    assert log_mb < source_mb, "two commits of it, and the log holds less than one of them"


@pytest.mark.parametrize("n", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_push_of_many_commits_is_scanned_by_one_process_and_its_tip_is_known_within_seconds(
    tmp_path: Path, n: int
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("push")
    remote.commit("first", {"A.lean": "theorem a : 1 = 1 := sorry\n"})
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon():
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the first scan")
        remote.import_files(n, lambda i: ("A.lean", f"theorem a{i} : {i} = {i} := sorry\n"))
        request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})
        deployment.wait_for(
            lambda: len(deployment.events("commit_scanned")) == n + 1, what="every scan", seconds=180
        )
    assert len(deployment.events("job_started")) == 2
    seen, scanned = deployment.events("commit_observed"), deployment.events("commit_scanned")
    assert [event.data["sha"] for event in scanned] == [event.data["sha"] for event in seen], "in their order"
    took = datetime.fromisoformat(scanned[-1].recorded_at) - datetime.fromisoformat(seen[-1].recorded_at)
    assert took < timedelta(seconds=5 + n / 100)
    with closing(queries.connect(settings.paths.database_db)) as view:
        assert len([row for row in queries.sorries(view) if row.state == "open"]) == 1


@pytest.mark.parametrize("n", [100, pytest.param(5000, marks=pytest.mark.slow)])
def test_branches_at_one_commit_are_one_fetch_and_one_scan_and_an_unchanged_round_is_under_a_second(
    tmp_path: Path, n: int
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("many")
    sha = remote.commit("first", {"A.lean": "theorem a : 1 = 1 := sorry\n"})
    refs = "".join(f"create refs/heads/b{i} {sha}\n" for i in range(n))
    subprocess.run(
        ["git", "-C", str(remote.path), "update-ref", "--stdin"], input=refs, text=True, check=True
    )
    settings = deployment.write(repos=[remote.path], entry='branches = ["*"]')

    async def polls() -> list[PollResult]:
        async with deployment.opened() as parts:
            return [await parts.poller.poll(settings.repos[0]) for _ in range(3)]

    first, *unchanged = asyncio.run(polls())
    assert (first.commits, [one.outcome for one in unchanged]) == (n + 1, ["unchanged"] * 2)
    assert first.seconds < 5 + n / 100
    assert min(one.seconds for one in unchanged) < 1

    def sorries() -> int:
        with closing(queries.connect(settings.paths.database_db)) as view:
            return len(queries.sorries(view))

    with deployment.daemon():
        deployment.wait_for(lambda: sorries() == n + 1, what="every scan", seconds=180)
    assert len(deployment.events("job_started")) <= 1 + n // 500
    assert len(deployment.events("commit_scanned")) == n + 1


KILLED_AFTER_A_PART = """
import os, signal
from daemon.state.store_service import StoreService
whole = StoreService.append
async def append(store, events, **settings):
    appended = await whole(store, events, **settings)
    if any(event.body.type == "sorry_opened" for event in events):
        os.kill(os.getpid(), signal.SIGKILL)
    return appended
StoreService.append = append
"""


def test_a_daemon_that_is_killed_between_the_parts_of_a_scan_scans_again_and_counts_everything_once(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("large")
    remote.commit("large", {f"F{i}.lean": bomb(700) for i in range(3)})
    settings = deployment.write(repos=[remote.path])
    with deployment.daemon(prelude=KILLED_AFTER_A_PART) as daemon:
        assert daemon.wait(timeout=60) == -signal.SIGKILL, deployment.log()
    assert deployment.events("sorry_opened")
    assert deployment.events("commit_scanned") == [], "the kill fell between two parts"
    with deployment.daemon():
        deployment.wait_for(lambda: deployment.events("job_succeeded"), what="the scan")
    with closing(queries.connect(settings.paths.database_db)) as view:
        assert len(queries.sorries(view)) == 2100
        assert len(sorry_steps(view)) == 2100, "nothing of the first attempt counts"
    assert json.loads(deployment.events("job_succeeded")[0].data_json)["attempt"] == 2
    assert verify(settings.paths.events_db, settings.paths.database_db).differences == ()
