"""`everlean events`: which events are shown, in which order, and how it waits for more."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from store.events.jobs import JobInterrupted, JobStarted
from store.events.repositories import RepositoryUnwatched, RepositoryWatched
from store.events.service import DaemonStopped
from store.log.envelope import StoredEvent
from store.log.reader import LogReader
from tests.support.state_folder import COMMAND, StateFolder, environment

OTHER = "github.com/demo/two"


@pytest.fixture
def log(filled: StateFolder) -> list[StoredEvent]:
    """Two repositories' events, appended in three moments."""
    filled.add(f"repository:{OTHER}", RepositoryWatched(projects=(),
        repository=OTHER, url=f"https://{OTHER}", branches=(), include=("**/*.lean",), exclude=(), every_s=300.0,
        enabled=True, opt_out=False,
    ))  # fmt: skip
    filled.add("job:scan-two", JobStarted(
        job="scan-two", kind="scan", attempt=1, repository=OTHER, branch="main", sha="c" * 40,
        describes="scan of two",
    ))  # fmt: skip
    filled.write()
    filled.add("job:scan-two", JobInterrupted(job="scan-two", attempt=1, reason="the daemon stopped"))
    filled.write()
    with LogReader.open(filled.state / "events.db") as reader:
        return list(reader.read())


def shown(folder: StateFolder, *arguments: str) -> list[int]:
    answer = folder.everlean("events", "--json", *arguments)
    assert answer.code == 0, answer.err
    events = [json.loads(line) for line in answer.out.splitlines()]
    assert {event["schema"] for event in events} <= {1}
    return [event["seq"] for event in events]


def seqs(log: list[StoredEvent], wanted: Callable[[StoredEvent], bool]) -> list[int]:
    return [event.seq for event in log if wanted(event)]


def test_filters_by_type_and_by_stream_and_both(filled: StateFolder, log: list[StoredEvent]) -> None:
    assert shown(filled, "--type", "job_started", "--type", "job_interrupted") == seqs(
        log, lambda event: event.type in ("job_started", "job_interrupted")
    )
    assert shown(filled, "--stream", "job:scan-two") == seqs(
        log, lambda event: event.stream == "job:scan-two"
    )
    assert shown(filled, "--stream", "job:scan-two", "--type", "job_interrupted") == [log[-1].seq]


def test_a_repository_s_events_are_those_that_name_it_and_the_rest_of_its_jobs(
    filled: StateFolder, log: list[StoredEvent]
) -> None:
    of_the_other = shown(filled, "--repo", "demo/two")
    assert of_the_other == [*seqs(log, lambda event: event.data.get("repository") == OTHER), log[-1].seq]
    one = shown(filled, "--repo", "demo/one")
    assert not set(one) & set(of_the_other)
    ends = seqs(log, lambda event: event.type == "proof_verified")
    assert ends
    assert set(ends) <= set(one)
    assert shown(filled, "--repo", "demo/two", "--type", "job_interrupted") == [log[-1].seq]
    assert shown(filled, "--repo", "demo/two", "--since", str(log[-2].seq)) == [log[-1].seq]
    assert shown(filled, "--repo", "demo/two", "--last", "1") == [log[-1].seq]
    assert filled.everlean("events", "--repo", "nowhere").code == 1


def test_since_and_until_take_a_seq_or_a_time(filled: StateFolder, log: list[StoredEvent]) -> None:
    assert shown(filled, "--since", "3", "--until", "6") == [4, 5, 6]
    early, late = log[0].recorded_at, log[-1].recorded_at
    assert early < late
    assert shown(filled, "--since", early) == seqs(log, lambda event: event.recorded_at > early)
    assert shown(filled, "--until", early) == seqs(log, lambda event: event.recorded_at <= early)
    assert shown(filled, "--until", "1999-01-01") == []
    assert shown(filled, "--since", "2999-01-01") == []
    assert shown(filled, "--since", str(log[-1].seq)) == []


def test_limit_gives_the_oldest_and_last_the_newest(filled: StateFolder, log: list[StoredEvent]) -> None:
    every = [event.seq for event in log]
    assert shown(filled, "--limit", "3") == every[:3]
    assert shown(filled, "--last", "3") == every[-3:]
    assert shown(filled, "--since", "4", "--limit", "2") == [5, 6]
    assert shown(filled, "--until", "6", "--last", "2") == [5, 6]
    assert shown(filled, "--since", str(every[-2]), "--last", "5") == every[-1:]


def test_as_of_ends_there_and_a_moment_that_is_not_reached_is_an_error(
    filled: StateFolder, log: list[StoredEvent]
) -> None:
    assert shown(filled, "--as-of", "4") == [1, 2, 3, 4]
    assert "as of event 4" in filled.everlean("events", "--as-of", "4").err
    answer = filled.everlean("events", "--as-of", str(log[-1].seq + 1))
    assert answer.code == 1
    assert "the log ends at event" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [("--follow", "--until", "5"), ("--follow", "--as-of", "5"), ("--limit", "1", "--last", "1"),
     ("--since", "the day before"), ("--limit", "0")],
)  # fmt: skip
def test_what_contradicts_itself_is_a_usage_error(filled: StateFolder, arguments: tuple[str, ...]) -> None:
    assert filled.everlean("events", *arguments).code == 2


def test_a_number_beyond_sqlite_s_is_behind_the_end_of_the_log_and_no_number_of_rows(
    filled: StateFolder, log: list[StoredEvent]
) -> None:
    beyond = str(2**64)
    assert shown(filled, "--since", beyond) == []
    assert shown(filled, "--until", beyond) == [event.seq for event in log]
    for verb in (("events",), ("events", "--follow"), ("jobs",), ("theorems",)):
        answer = filled.everlean(*verb, "--limit", beyond)
        assert (answer.code, "is no whole number from" in answer.err) == (2, True)


def test_the_time_that_is_shown_is_the_one_that_since_and_as_of_take(
    filled: StateFolder, log: list[StoredEvent]
) -> None:
    line = filled.everlean("events", "--last", "1", env={"TZ": "Asia/Kolkata"}).out
    moment = log[-1].recorded_at
    assert f"{moment[:10]} {moment[11:19]}Z" in line
    answer = filled.everlean("events", "--json", "--as-of", f"{moment[:10]} {moment[11:]}", "--last", "1")
    assert json.loads(answer.out)["seq"] == log[-1].seq


def test_a_type_or_a_stream_that_is_not_there_is_said(filled: StateFolder) -> None:
    answer = filled.everlean("events", "--type", "job_startet", "--stream", "job:none")
    assert (answer.code, answer.out) == (0, "")
    assert 'did you mean "job_started"?' in answer.err
    assert 'no stream "job:none" yet' in answer.err


class Follower:
    """The command at work, its lines as they come."""

    def __init__(self, folder: StateFolder, environment: dict[str, str], *arguments: str) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "events", "--json", "--follow", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "EVERLEAN_CONFIG": str(folder.config)},
            cwd=folder.root,
        )

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        document = json.loads(self.process.stdout.readline())
        assert isinstance(document, dict)
        return document


@pytest.fixture
def follow(filled: StateFolder) -> Iterator[Callable[..., Follower]]:
    begun: list[Follower] = []

    def begin(*arguments: str) -> Follower:
        begun.append(Follower(filled, environment(filled.root), *arguments))
        return begun[-1]

    yield begin
    for follower in begun:
        follower.process.kill()
        follower.process.communicate()


def stop(follower: Follower) -> int:
    follower.process.send_signal(signal.SIGINT)
    return follower.process.wait(timeout=20)


def test_follow_shows_what_is_appended_once_and_ends_well_with_ctrl_c(
    filled: StateFolder, log: list[StoredEvent], follow: Callable[..., Follower]
) -> None:
    follower = follow("--last", "2")
    assert [follower.next()["seq"] for _ in range(2)] == [event.seq for event in log[-2:]]
    for number in range(3):
        filled.add("daemon", DaemonStopped(reason=f"r{number}", pid=number))
        filled.write(project=number > 0)  # it needs no view
        event = follower.next()
        assert (event["seq"], event["data"]["pid"]) == (log[-1].seq + 1 + number, number)
    assert stop(follower) == 0


def test_follow_keeps_to_its_filters(
    filled: StateFolder, log: list[StoredEvent], follow: Callable[..., Follower]
) -> None:
    end = str(log[-1].seq)
    by_type = follow("--type", "daemon_stopped", "--since", end)
    by_repository = follow("--repo", "demo/two", "--since", end)
    limited = follow("--since", end, "--limit", "2")
    time.sleep(1)  # so that some of what follows is waited for and not found at the start
    filled.add(f"repository:{OTHER}", RepositoryUnwatched(repository=OTHER))
    filled.add("daemon", DaemonStopped(reason="r", pid=1))
    filled.add("job:scan-two", JobInterrupted(job="scan-two", attempt=2, reason="again"))
    filled.write()
    assert by_type.next()["type"] == "daemon_stopped"
    assert [by_repository.next()["type"] for _ in range(2)] == ["repository_unwatched", "job_interrupted"]
    assert [limited.next()["type"] for _ in range(2)] == ["repository_unwatched", "daemon_stopped"]
    assert limited.process.wait(timeout=20) == 0
    assert [stop(by_type), stop(by_repository)] == [0, 0]


def test_follow_for_people_gives_each_line_to_a_pipe_at_once(
    filled: StateFolder, log: list[StoredEvent]
) -> None:
    buffered = {name: value for name, value in environment(filled.root).items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [COMMAND, "events", "--follow", "--last", "1"],
        stdout=subprocess.PIPE,
        text=True,
        env={**buffered, "EVERLEAN_CONFIG": str(filled.config)},
    ) as process:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], 20)
        process.kill()
        assert ready
        assert process.stdout.readline().split()[0] == str(log[-1].seq)


def test_follow_ends_with_an_error_when_another_log_takes_the_place_of_this_one(
    filled: StateFolder, log: list[StoredEvent], follow: Callable[..., Follower]
) -> None:
    follower = follow("--last", "1")
    assert follower.next()["seq"] == log[-1].seq
    backup = filled.root / "backup.db"
    assert filled.everlean("db", "backup", str(backup)).code == 0
    backup.replace(filled.state / "events.db")
    _, told = follower.process.communicate(timeout=20)
    assert follower.process.returncode == 1
    assert "moved or replaced" in told
