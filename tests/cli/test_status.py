"""`everlean status`: health first, then problems with their remedies, with the daemon up or down."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from daemon.cli.verbs.jobs import JobKind
from daemon.health import status_report
from daemon.place.instance import find_instance
from daemon.place.lock import DaemonLock
from daemon.state.disk import Refusal
from pipeline.jobs.kinds import KINDS as JOB_KINDS
from store.events.jobs import JobSucceeded
from store.events.repositories import BranchUnwatched, CommitObserved, RepositoryFailed
from store.events.scans import SorryFilled, SorryOpened
from store.events.service import (
    ConfigLoaded,
    ConfigRejected,
    DaemonStarted,
    DaemonStopped,
    LeanChosen,
    NotificationFailed,
    NotificationSent,
    NotificationsSwitched,
)
from tests.support.events import attempt, declaration, place, scanned
from tests.support.state_folder import (
    OTHER_SORRY,
    REPOSITORY,
    StateFolder,
    fail_job,
    open_sorry,
    sorry_place,
    start_job,
    watch,
)


@contextmanager
def daemon_with_status(folder: StateFolder, status: dict[str, Any] | None) -> Iterator[None]:
    """Hold the lock as a daemon does and answer GET /status on the control socket (not at all for None)."""
    runtime = folder.state / "run"
    runtime.mkdir(parents=True, exist_ok=True)
    body = json.dumps(status or {}).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with folder.held(), socket.socket(socket.AF_UNIX) as listener:
        if status is None:
            yield
            return
        before = Path.cwd()
        os.chdir(runtime)  # a unix socket's address holds 107 bytes, pytest's folders have more
        Path("control.sock").unlink(missing_ok=True)
        listener.bind("control.sock")
        os.chdir(before)
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(timeout=5)


def start_daemon(folder: StateFolder, lean: str, detail: str) -> None:
    folder.add("daemon", DaemonStarted(
        version="0.1.0", pid=1, host="h", lean=lean, lean_detail=detail, sqlite="3",
    ))  # fmt: skip


def codes(document: dict[str, Any]) -> list[str]:
    return [problem["code"] for problem in document["problems"]]


def test_a_stopped_daemon_is_said_first_and_the_database_is_shown(filled: StateFolder) -> None:
    answer = filled.everlean("status", "--json")
    assert answer.code == 3
    document = answer.json
    assert document["schema"] == 1
    assert document["healthy"] is False
    assert codes(document)[0] == "daemon_not_running"
    assert document["daemon"] == {
        "running": False, "pid": None, "version": "0.1.0", "started_at": document["daemon"]["started_at"],
        "stopped_at": None,
    }  # fmt: skip
    assert document["sorries"] == {"open": 1, "verified": 1, "filled": 0, "removed": 0}
    assert document["proofs"] == {"candidate": 1, "verified": 1, "rejected": 0, "conditional": 0}
    assert document["log"]["position"] == document["log"]["view_position"] > 0
    assert document["lean"] == "pantograph"
    assert [item["repository"] for item in document["repositories"]] == [REPOSITORY]


def test_a_running_daemon_without_problems_is_healthy(filled: StateFolder) -> None:
    with daemon_with_status(filled, {"healthy": True, "problems": [], "jobs": [], "queued": []}):
        document = filled.everlean("status", "--json").json
        text = filled.everlean("status")
    assert document["problems"] == []
    assert document["healthy"] is True
    assert (document["daemon"]["running"], document["daemon"]["pid"]) == (True, os.getpid())
    assert text.out.splitlines()[0] == (
        "● everlean is running well: 1 repository watched, 1 sorry open, 1 verified, 0 filled."
    )
    assert text.out.splitlines()[1:4] == [
        "  next: 1 sorry with a proof that Lean accepted", "    -> everlean proofs --state verified", "",
    ]  # fmt: skip
    assert (text.code, text.err) == (0, "")


def test_what_came_and_went_in_a_week_is_counted_by_repository_and_the_newest_is_named(
    filled: StateFolder,
) -> None:
    assert "THIS WEEK" not in filled.everlean("status").out, "what was there at first is no news"
    life = {"repository": REPOSITORY, "branch": "main", "sha": "d" * 40}
    open_sorry(filled, "main", "5e" * 8, "Demo.gamma")
    filled.add(f"repository:{REPOSITORY}", SorryFilled(**life, sorry=OTHER_SORRY, by="people", proof=None))
    filled.write()
    answer = filled.everlean("status", "--json").json
    week = {"repository": REPOSITORY, "opened": 1, "filled": 1, "gone": 0, "sorries": [2] * 8}
    assert answer["week"] == [week]
    assert [(one["step"], one["declaration"]) for one in answer["news"]] == [
        ("filled", "Demo.beta"), ("opened", "Demo.gamma"),
    ]  # fmt: skip
    text = filled.everlean("status").out
    assert text.splitlines()[1] == "  this week: 1 filled, 1 new"
    assert re.search(r"  demo/one +2 +▁{8} -1 \+1 +ok ", text)
    assert re.search(r"  opened +Demo\.gamma +Demo\.lean:30", text)


def test_a_week_is_drawn_from_its_beginning_by_the_days_of_its_commits(filled: StateFolder) -> None:
    now = datetime.now(UTC)
    for number, days in enumerate((300, 5, 3, 3, 1)):
        about = {"repository": REPOSITORY, "branch": "main", "sha": f"{number}" * 40}
        filled.add(f"repository:{REPOSITORY}", CommitObserved(
            **about, parents=(), author="B", committed_at=now - timedelta(days=days, hours=-1), subject="s",
            baseline=False,
        ))  # fmt: skip
        opened = SorryOpened(
            **about, sorry=f"{number}" * 16, place=sorry_place("Demo.d", line=30), reopened=False
        )
        filled.add(f"repository:{REPOSITORY}", opened)
    filled.write()
    assert filled.everlean("status", "--json").json["week"][0]["sorries"] == [2, 3, 3, 4, 4, 6, 6, 7]
    assert " ▁▂▂▄▄▇▇█ +5 " in filled.everlean("status").out


def test_the_exit_code_says_how_the_daemon_is(filled: StateFolder) -> None:
    running: dict[str, Any] = {"problems": [], "jobs": [], "queued": []}
    taken = "[metrics] listen: 127.0.0.1:9464 cannot be listened on: in use; choose another port"
    assert filled.everlean("status").code == 3
    assert filled.everlean("status", "--as-of", "5").code == 0
    with daemon_with_status(filled, running):
        assert filled.everlean("status").code == 0
    with daemon_with_status(filled, {**running, "problems": [taken]}):
        broken = filled.everlean("status", "--json")
    assert broken.code == 1
    (problem,) = broken.json["problems"]
    assert problem["message"].endswith("cannot be listened on: in use")
    assert problem["remedy"] == "choose another port"


def test_each_problem_is_said_once(folder: StateFolder) -> None:
    start_daemon(folder, "none", "no pantograph-repl found")
    watch(folder, REPOSITORY)
    folder.add(f"repository:{REPOSITORY}", RepositoryFailed(
        repository=REPOSITORY, problem="auth_failed", reason="the token was refused", remedy="renew the token",
    ))  # fmt: skip
    folder.write()
    text = folder.everlean("status").out
    above = text.partition("\n\n")[0]
    for said in ("no pantograph-repl found", "renew the token", "the token was refused"):
        assert (above.count(said), text.count(said)) == (1, 1), text


def test_progress_and_queue_come_from_the_living_daemon(filled: StateFolder) -> None:
    start_job(filled, "scan-9", kind="scan")
    filled.write()
    said = {
        "problems": ["the GitHub token cannot be used: gone", "config: config.toml:1: x"],
        "jobs": [{"job": "scan-9", "progress": {"done": 3, "total": 10, "note": "A.lean"}}],
        "queued": [{"job": "check-1", "kind": "check", "describes": "check Demo.alpha", "waits": None}],
    }
    with daemon_with_status(filled, said):
        document = filled.everlean("status", "--json").json
        text = filled.everlean("status").out
        jobs = filled.everlean("jobs").out
    assert [job["progress"] for job in document["jobs"]["running"]] == [said["jobs"][0]["progress"]]  # type: ignore[index]  # a literal above
    assert document["jobs"]["queued"] == said["queued"]
    assert codes(document) == ["daemon_problem"]
    assert "check Demo.alpha" in text
    assert "3/10" in text
    assert "3/10 A.lean" in jobs


def test_a_daemon_that_does_not_answer_is_a_problem_and_not_a_failure(filled: StateFolder) -> None:
    with daemon_with_status(filled, None):
        answer = filled.everlean("status", "--json")
    assert answer.code == 1
    assert codes(answer.json) == ["daemon_silent"]


def test_every_kind_of_trouble_is_a_problem_with_a_remedy(folder: StateFolder) -> None:
    start_daemon(folder, "none", "no pantograph-repl found")
    line = 'config.toml:2: poll.every: must be at least 1s (got "500ms"); write a duration such as "5m"'
    folder.add("config", ConfigRejected(path="config.toml", digest="0" * 64, errors=(line,)))
    watch(folder, REPOSITORY)
    folder.add(f"repository:{REPOSITORY}", RepositoryFailed(
        repository=REPOSITORY, problem="auth_failed", reason="the token was refused", remedy="renew the token",
    ))  # fmt: skip
    start_job(folder, "scan-1", kind="scan")
    fail_job(folder, "scan-1", reason="out_of_memory", message="killed at 4G", remedy="raise [jobs] memory")
    folder.write()
    document = folder.everlean("status", "--json").json
    assert sorted(codes(document)) == sorted(
        ["daemon_not_running", "config_rejected", "repository_auth_failed", "job_failed", "no_lean"]
    )
    assert all(problem["remedy"] for problem in document["problems"])
    assert document["config"]["errors"] == [line]
    text = folder.everlean("status").out
    for said in (line, "renew the token", "raise [jobs] memory", "no pantograph-repl found", "killed"):
        assert said in text
    assert text.index("error:") < text.index("warning:")


def test_a_toolchain_that_was_installed_since_the_daemon_s_start_is_seen(folder: StateFolder) -> None:
    start_daemon(folder, "none", "no pantograph-repl found")
    folder.write()
    before = folder.everlean("status", "--json").json
    assert "no_lean" in codes(before)
    folder.add("daemon", LeanChosen(lean="server", lean_detail="for v4.35.0", builds=()))
    folder.write()
    with daemon_with_status(folder, {"problems": [], "jobs": [], "queued": []}):
        asked = folder.everlean("status", "--json").json
    alone = folder.everlean("status", "--json").json
    for document in (asked, alone):
        assert (document["lean"], document["lean_detail"]) == ("server", "for v4.35.0")
        assert "no_lean" not in codes(document)
    earlier = folder.everlean("status", "--json", "--as-of", str(before["log"]["position"])).json
    assert (earlier["lean"], earlier["lean_detail"]) == ("none", "no pantograph-repl found")


def test_what_the_day_s_search_has_cost_and_what_rungs_wait_for_is_said(folder: StateFolder) -> None:
    scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
    spot = place(scan, scan.sorries[0], blob="b" * 40)
    for rung, seconds in ((0, 5000.0), (2, 90.0)):
        body = attempt("5a" * 8, spot, commit="a" * 40, model="m" if rung else "")
        folder.add(f"repository:{REPOSITORY}", body.model_copy(update={"seconds": seconds}))
    folder.add(
        "config",
        ConfigLoaded(path="config.toml", digest="a" * 64, settings={"prove": {"hours_per_day": 2}}),
    )
    folder.write()
    third = {
        "number": 3,
        "prover": "whole",
        "model": "",
        "seconds": 60.0,
        "costs": "time",
        "waits": "no torch",
    }
    with daemon_with_status(folder, {"ladder": [third]}):
        document = folder.everlean("status", "--json").json
        text = folder.everlean("status").out
    assert document["proving"] == {"seconds_today": 90, "seconds_per_day": 7200, "ladder": [third]}
    assert "1m30s of search above rung 0 today, of 2h; rung 3 (whole) waits: no torch" in " ".join(
        text.split()
    )


def test_a_job_that_failed_before_a_later_one_succeeded_is_history(filled: StateFolder) -> None:
    for job, failed in (("prove-1", True), ("prove-2", False)):
        start_job(filled, job)
        filled.write()
        if failed:
            fail_job(filled, job)
            filled.write()
            assert "job_failed" in codes(filled.everlean("status", "--json").json)
        else:
            filled.add(f"job:{job}", JobSucceeded(
                job=job, attempt=1, seconds=1.0, peak_rss_bytes=None, summary={},
            ))  # fmt: skip
            filled.write()
    assert "job_failed" not in codes(filled.everlean("status", "--json").json)


def test_events_that_the_view_lacks_are_named(filled: StateFolder) -> None:
    filled.add("daemon", DaemonStopped(reason="SIGTERM", pid=1))
    filled.write(project=False)
    document = filled.everlean("status", "--json").json
    assert document["log"]["position"] == document["log"]["view_position"] + 1
    assert "view_behind" in codes(document)


def test_on_a_full_disk_a_view_that_stands_still_is_not_to_be_rebuilt(
    filled: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.add("daemon", DaemonStopped(reason="SIGTERM", pid=1))
    filled.write(project=False)
    monkeypatch.setattr(status_report, "VIEW_MAY_LAG_S", -1.0)
    full = [Refusal("disk_full", filled.state, "full", "free some space")]
    remedies = []
    with daemon_with_status(filled, {}):
        for refused in ([], full):
            monkeypatch.setattr(status_report, "refusals", lambda _paths, refused=refused: refused)
            problems = status_report.collect(find_instance(filled.config)).problems
            remedies += [item.remedy for item in problems if item.code == "view_behind"]
    assert "everlean db rebuild" in remedies[0]
    assert remedies[1] == "free some space; the daemon then goes on by itself"


def test_a_missing_view_is_named_with_the_verb_that_mends_it(filled: StateFolder) -> None:
    for path in filled.state.glob("database.db*"):
        path.unlink()
    document = filled.everlean("status", "--json").json
    problem = next(item for item in document["problems"] if item["code"] == "view_missing")
    assert problem["remedy"] == "everlean db rebuild"


def test_a_folder_in_which_no_daemon_ever_ran_says_so(folder: StateFolder) -> None:
    answer = folder.everlean("status", "--json")
    assert answer.code == 3
    assert answer.json["sorries"] == {"open": 0, "verified": 0, "filled": 0, "removed": 0}
    text = folder.everlean("status").out
    assert text.splitlines()[0] == "● everlean has never run here."
    assert f"-> everlean run --config {folder.config}" in text
    assert "never," not in text
    assert "loaded never" not in text
    assert not folder.state.exists()


def test_a_configuration_with_a_syntax_error_still_has_a_status(filled: StateFolder) -> None:
    filled.config.write_text('[daemon]\nstate_dir = "state"\n[poll\n', encoding="utf-8")
    document = filled.everlean("status", "--json").json
    assert "config_broken" in codes(document)
    assert document["sorries"]["open"] == 1


def test_poll_asks_the_daemon_and_names_what_is_polled(filled: StateFolder) -> None:
    with daemon_with_status(filled, {"polling": [REPOSITORY]}):
        answer = filled.everlean("poll", "one", "--json")
        unknown = filled.everlean("poll", "two")
    assert (answer.code, answer.json["polling"]) == (0, [REPOSITORY])
    assert unknown.code == 1
    assert "everlean repos" in unknown.err


def test_a_rejected_file_is_shown_with_its_mistakes_while_the_daemon_runs_on(filled: StateFolder) -> None:
    line = 'config.toml:3: pol: is no known setting; did you mean "poll"?'
    filled.add("config", ConfigRejected(path=str(filled.config), digest="0" * 64, errors=(line,)))
    filled.write()
    with daemon_with_status(filled, {"problems": [f"config: {line}"], "jobs": [], "queued": []}):
        document = filled.everlean("status", "--json").json
        text = filled.everlean("status").out
    assert codes(document) == ["config_rejected"]
    assert document["problems"][0]["errors"] == [line]
    assert line in text
    assert "the earlier settings stay in force" in text


def line(text: str, name: str) -> str:
    return next(row.split(None, 1)[1] for row in text.splitlines() if row.split()[:1] == [name])


def test_jobs_have_a_line_even_when_there_are_none(filled: StateFolder) -> None:
    with daemon_with_status(filled, {"problems": [], "jobs": [], "queued": []}):
        document = filled.everlean("status", "--json").json
        text = filled.everlean("status").out
    assert (document["jobs"]["running"], document["jobs"]["queued"]) == ([], [])
    assert line(text, "jobs") == "0 running, 0 queued"


def test_queued_jobs_are_listed_before_those_that_ran(filled: StateFolder) -> None:
    queued = [{"job": "check-7", "kind": "check", "describes": "check Demo.alpha", "waits": None}]
    with daemon_with_status(filled, {"problems": [], "jobs": [], "queued": queued}):
        text = filled.everlean("status").out
        assert line(text, "jobs") == "0 running, 1 queued"
        assert "check Demo.alpha" in [row.strip() for row in text.splitlines()]
        assert filled.everlean("jobs", "--json").json["queued"] == queued
        assert filled.everlean("jobs", "--kind", "scan", "--json").json["queued"] == []
        assert filled.everlean("jobs").out.splitlines()[1].split()[:2] == ["check-7", "queued"]
    assert filled.everlean("jobs", "--json").json["queued"] == []
    said = {"problems": [], "jobs": [], "queued": queued, "more_queued": 69_999}
    with daemon_with_status(filled, said):
        text = filled.everlean("status").out
        assert line(text, "jobs") == "0 running, 70,000 queued"
        assert "69,997 more" in text
        assert filled.everlean("jobs").out.splitlines()[-1].endswith("and 69,999 more queued")
        assert filled.everlean("jobs", "--json").json["more_queued"] == 69_999


def test_every_kind_of_job_can_be_listed() -> None:
    assert set(get_args(JobKind)) == set(JOB_KINDS)


def test_a_rebuild_is_not_called_the_daemon(filled: StateFolder) -> None:
    held = DaemonLock.acquire(filled.state / "daemon.lock", purpose="everlean db rebuild")
    try:
        document = filled.everlean("status", "--json").json
        refused = filled.everlean("run")
    finally:
        held.release()
    assert (document["daemon"]["running"], document["daemon"]["pid"]) == (False, None)
    assert codes(document)[0] == "kept_away"
    assert str(os.getpid()) in document["problems"][0]["message"]
    assert refused.code == 75
    assert "everlean db rebuild is at work" in refused.err


def test_a_damaged_database_is_a_problem_with_a_remedy_and_no_reason_to_say_nothing(
    filled: StateFolder,
) -> None:
    database = filled.state / "database.db"
    database.write_bytes(b"no database at all " * 400)
    answer = filled.everlean("status", "--json")
    assert answer.code == 3
    assert "view_unreadable" in codes(answer.json)
    counts = (
        "repositories",
        "sorries",
        "sorries_elsewhere",
        "disproved",
        "proofs",
        "theorems",
        "notifications",
    )
    unknown = [answer.json[name] for name in counts]
    unknown += [answer.json["jobs"][name] for name in ("due", "failed", "counts")]
    unknown += [answer.json["models"]["in_use"], answer.json["proving"]["seconds_today"]]
    unknown += [answer.json["work"][name] for name in ("paused", "triggered")]
    assert unknown == [None] * len(unknown)
    assert answer.json["lean"] == "unknown"
    text = filled.everlean("status").out
    assert "unknown number of repositories" in text.splitlines()[0]
    assert "0 repositories" not in text
    names = ("lean", "sorries", "proofs", "theorems", "models", "proving", "jobs")
    assert [line.split() for line in text.splitlines() if "unknown" in line][1:] == [
        [name, "unknown"] for name in names
    ]
    assert answer.json["log"]["position"] > 0
    database.unlink()
    (filled.state / "events.db").write_bytes(b"nor a log " * 800)
    assert set(codes(filled.everlean("status", "--json").json)) >= {"view_missing", "log_unreadable"}


def test_a_log_that_is_gone_or_shorter_than_its_view_is_a_problem(filled: StateFolder) -> None:
    events = filled.state / "events.db"
    events.rename(filled.root / "kept.db")
    (filled.state / "events.db-anchor").unlink()
    assert "log_missing" in codes(filled.everlean("status", "--json").json)
    database = (filled.state / "database.db").rename(filled.root / "kept-view.db")
    filled.add("daemon", DaemonStopped(reason="SIGTERM", pid=1))
    filled.write()
    database.replace(filled.state / "database.db")
    assert "log_behind" in codes(filled.everlean("status", "--json").json)


def test_nothing_of_a_branch_that_is_watched_no_more_is_open_or_a_problem(filled: StateFolder) -> None:
    start_job(filled, "scan-1", kind="scan")
    fail_job(filled, "scan-1")
    filled.write()
    assert "job_failed" in codes(filled.everlean("status", "--json").json)
    filled.add(f"repository:{REPOSITORY}", BranchUnwatched(
        repository=REPOSITORY, branch="main", last="a" * 40,
    ))  # fmt: skip
    filled.write()
    document = filled.everlean("status", "--json").json
    assert "job_failed" not in codes(document)
    assert set(document["sorries"].values()) == {0}
    assert document["theorems"] == 0
    assert document["repositories"][0]["heads"][0]["state"] == "unwatched"
    for verb, key in (("sorries", "sorries"), ("theorems", "theorems")):
        assert filled.everlean(verb, "--json").json[key] == []
        assert len(filled.everlean(verb, "--all", "--json").json[key]) == 2


def test_a_channel_that_takes_no_message_is_a_warning_with_its_remedy_until_it_takes_one(
    filled: StateFolder,
) -> None:
    switched = NotificationsSwitched(channel="webhook", kinds=("proof_verified",), position=1)
    failed = NotificationFailed(
        channel="webhook", problem="refused", reason="it answered 500", remedy="look at it"
    )
    filled.add("notify:webhook", switched)
    filled.add("notify:webhook", failed)
    filled.write()
    document = filled.everlean("status", "--json").json
    problem = next(item for item in document["problems"] if item["code"] == "notify_failing")
    assert (problem["severity"], problem["subject"]) == ("warning", "webhook")
    assert "it answered 500" in problem["message"]
    assert problem["remedy"].startswith("look at it")
    (channel,) = document["notifications"]
    assert (channel["kinds"], channel["told"], channel["problem"]) == ({"proof_verified": 1}, 0, "refused")
    sent = NotificationSent(channel="webhook", message="m", events=("a", "b"), position=2, attempts=3)
    filled.add("notify:webhook", sent)
    filled.write()
    text = filled.everlean("status").out
    assert "nobody was told" not in text
    assert line(text, "told").startswith("webhook 2 events, the last ")
