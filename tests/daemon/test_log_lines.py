"""The daemon's log says what matters: a sentence behind the time at a terminal, fields for a machine."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sqlite3
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from daemon.place.control_client import request
from daemon.place.logs import configure
from daemon.process.event_lines import MOST_OF_ONE_TYPE, EventLines, lines_of
from store.log.envelope import NewEvent
from tests.support.daemon.deployment import Deployment, LeanOfTests
from tests.support.events import samples
from tests.support.views import empty_view

ROOT = Path(__file__).parents[2]
OPEN = "theorem one : 1 = 1 := by\n  sorry\n"
FILLED = "theorem one : 1 = 1 := by\n  rfl\n"
MANY = "".join(
    f"theorem t{number} : {number} = {number} := sorry\n" for number in range(MOST_OF_ONE_TYPE + 1)
)


def test_a_terminal_reads_what_is_watched_opened_and_filled_and_nothing_of_polls_that_found_nothing(
    tmp_path: Path,
) -> None:
    deployment = Deployment(tmp_path)
    remote = deployment.remote("demo")
    remote.commit("first", {"A.lean": OPEN})
    lean = LeanOfTests.scripted(tmp_path)
    settings = deployment.write(repos=[remote.path], extra=f"{lean.settings}[prove]\nenabled = false\n")
    text = deployment.config.read_text(encoding="utf-8")
    deployment.config.write_text(
        text.replace('log_format = "json"', 'log_format = "console"'), encoding="utf-8"
    )

    def said(words: str) -> None:
        deployment.wait_for(lambda: words in deployment.log(), what=f"the log to say {words!r}")

    with deployment.daemon():
        said("opened: one, A.lean:2 in local/remotes/demo")
        for files, words in (
            ({"A.lean": FILLED}, "filled by people: one, A.lean:2 in local/remotes/demo"),
            ({"B.lean": MANY}, f"opened: {MOST_OF_ONE_TYPE + 1} sorries in local/remotes/demo"),
        ):
            remote.commit(words, files)
            request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})
            said(words)
        request(settings.paths, "POST", "/poll", {"repository": settings.repos[0].key})
        deployment.wait_for(
            lambda: request(settings.paths, "GET", "/status")[1]["polling"] == [], what="the last poll"
        )
    lines = deployment.log().splitlines()
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  watching 1 repository, 0 open sorries, Lean: .*pantograph-repl for .*", lines[0]
    )
    assert all(re.match(r"\d\d:\d\d:\d\d  \S", line) for line in lines)
    assert not [line for line in lines if "unchanged" in line]


def test_each_thing_that_a_person_waits_for_has_a_line_that_begins_with_its_word() -> None:
    view = empty_view()
    view.row_factory = sqlite3.Row
    bodies = samples()
    attempt = bodies["attempt_finished"]
    told = {
        kind: line.sentence
        for body in (*bodies.values(), attempt.model_copy(update={"outcome": "disproved"}))
        for kind, line in lines_of(view, bodies=[body])
    }
    words = {kind: sentence.split(" ")[0].rstrip(":") for kind, sentence in told.items()}
    assert words == {
        "sorry_opened": "opened",
        "sorry_filled": "filled",
        "attempt_finished": "disproved",
        "proof_found": "found",
        "proof_checked": "checked,",
        "proof_verified": "verified",
        "proof_doubted": "in",
        "proof_rejected": "rejected",
        "pull_request_opened": "proposed",
        "bump_finished": "bumped",
        "checkpoint_saved": "trained",
        "checkpoint_promoted": "promoted",
        "checkpoint_refused": "not",
        "checkpoint_removed": "removed",
        "job_failed": "failed",
        "lean_chosen": "Lean",
    }
    table = (
        (ROOT / "docs" / "operations.md")
        .read_text(encoding="utf-8")
        .split("## Read the logs")[1]
        .split("\n## ")[0]
    )
    assert [kind for kind in words if f"`{kind}`" not in table] == [], "a line that the page does not have"
    assert lines_of(view, bodies=[attempt.model_copy(update={"outcome": "exhausted"})]) == []


async def test_what_a_scan_in_parts_found_is_told_when_it_is_closed_and_of_one_that_was_cut_off_nothing(
    tmp_path: Path,
) -> None:
    bodies = samples()
    begun, opened, closed = (bodies[kind] for kind in ("scan_begun", "sorry_opened", "commit_scanned"))
    messages: list[str] = []
    deployment = Deployment(tmp_path)
    deployment.write(repos=[deployment.remote("demo").path])
    async with deployment.opened() as parts:
        EventLines(parts.store, parts.context)
        with capture_logs() as lines:
            for attempt in ("killed", "whole"):
                for body in (begun, opened, *([closed] if attempt == "whole" else [])):
                    event = NewEvent("repository:r", body, causation_id=attempt)
                    await parts.store.append([event])
                    await asyncio.gather(*parts.context.tasks("event-lines"))
                    number = sum(line["event"] == "sorry_opened" for line in lines)
                    messages.append(f"{attempt} {body.type}: {number}")
    assert messages == [
        "killed scan_begun: 0",
        "killed sorry_opened: 0",
        "whole scan_begun: 0",
        "whole sorry_opened: 0",
        "whole commit_scanned: 1",
    ]


@pytest.mark.usefixtures("loggers_as_they_were")
@pytest.mark.parametrize("log_format", ["console", "json"])
def test_a_machine_gets_the_fields_and_a_terminal_no_control_characters_of_a_repository(
    log_format: str,
) -> None:
    stream = io.StringIO()
    configure(log_format=log_format, stream=stream)
    log = structlog.get_logger("daemon.x")
    log.info("sorry_opened", sentence="opened: a\x1b[31m\nb", sorry="5a", line=3)
    log.warning("disk_full", reason="none left", at=None)
    first, second = stream.getvalue().splitlines()
    if log_format == "json":
        fields = json.loads(first)
        assert (fields["event"], fields["sorry"], fields["line"]) == ("sorry_opened", "5a", 3)
    else:
        assert re.fullmatch(r"\d\d:\d\d:\d\d  opened: a\ufffd\[31m b", first)
        assert re.fullmatch(r"\d\d:\d\d:\d\d  warning: disk full: reason none left", second)
