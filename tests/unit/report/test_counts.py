"""What the report counts equals what the view's own questions answer, over time and at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest

from pipeline.report import sections
from pipeline.report.page import render
from pipeline.report.sections import MOST_PROOFS, Moment, followed
from store.events.base import EventBody
from store.events.repositories import BranchCreated, BranchUnwatched
from store.events.scans import PastCommit, PastCounted, PastListed, SorryEvent, SorryFilled, SorryOpened
from store.log.envelope import Expect, NewEvent
from store.view import queries, report_queries
from store.view.counts import count_all
from store.view.report_queries import PastNumber, Searches, Turn
from store.view.view import View
from tests.support.events import (
    REPOSITORY,
    STREAM,
    Story,
    attempt,
    declaration,
    observed,
    place,
    scanned,
    sha,
    watched,
)
from tests.support.memory_log import MemoryLog
from tests.support.views import sorry_steps

Fill = Callable[[Sequence[tuple[str, EventBody]]], Connection]
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def step(number: int, sorry: str, what: str, filled_by: str | None = None) -> Turn:
    at = f"2026-01-01T00:00:{number:02}.000000Z"
    return Turn(REPOSITORY, "main", sorry, what, at, "Ada", None, filled_by, False)


def test_a_history_counts_what_was_opened_filled_by_whom_and_removed() -> None:
    steps = [
        step(1, "a", "opened"),
        step(1, "b", "opened"),
        step(1, "c", "opened"),
        step(3, "a", "filled", "people"),
        step(4, "b", "filled", "us"),
        step(5, "c", "removed"),
        step(6, "a", "reopened"),
    ]
    at = "2026-01-01T00:00:0{}.000000Z".format
    assert followed(steps) == (
        Moment(at(1), opened=3, open=3),
        Moment(at(3), opened=3, by_people=1, open=2),
        Moment(at(4), opened=3, by_people=1, by_us=1, open=1),
        Moment(at(5), opened=3, by_people=1, by_us=1, removed=1, open=0),
        Moment(at(6), opened=4, by_people=1, by_us=1, removed=1, open=1),
    )


def test_before_a_repository_was_watched_its_number_is_the_one_that_git_s_history_has() -> None:
    at = "2026-01-01T00:00:0{}.000000Z".format
    past = [
        PastNumber(REPOSITORY, at(0), 5),
        PastNumber("other", at(1), 7),
        PastNumber(REPOSITORY, at(2), 1),
        PastNumber("other", at(4), 8),
    ]
    assert followed([step(2, "a", "opened"), step(3, "b", "opened")], past) == (
        Moment(at(0), watched=False, open=5),
        Moment(at(1), watched=False, open=12),
        Moment(at(2), opened=1, open=8),
        Moment(at(3), opened=2, open=9),
        Moment(at(4), opened=2, open=10),
    )


PASTS = {
    "both from their beginnings": ({"young": (9, 8), "old": (9, 2)}, "", "old 2, young 8, old 9, young 9"),
    "one is cut": (
        {"young": (9, 8), "old": (9, 2), "cut": (9, 7)},
        "cut",
        "cut 7, young 8, cut 9, old 9, young 9",
    ),
}


@pytest.mark.parametrize(("weeks", "cut", "drawn"), PASTS.values(), ids=list(PASTS))
def test_the_past_is_drawn_from_when_that_of_all_repositories_is_known(
    weeks: dict[str, tuple[int, ...]], cut: str, drawn: str, view_of: Fill
) -> None:
    lines: list[tuple[str, EventBody]] = []
    for repository, days in weeks.items():
        life = {"repository": repository, "branch": "main"}
        commits = [
            PastCommit(
                sha=sha(f"{day}"),
                committed_at=datetime(2026, 1, day, tzinfo=UTC),
                begins=day == days[-1] and repository != cut,
            )
            for day in days
        ]
        bodies: list[EventBody] = [PastListed(**life, commits=tuple(commits))]
        bodies += [PastCounted(**life, sha=one.sha, sorries=7, files=1, files_failed=0) for one in commits]
        lines += [(f"repository:{repository}", body) for body in bodies]
    # Of what is not counted yet nothing is drawn.
    late = PastCommit(sha=sha("5"), committed_at=datetime(2026, 1, 5, tzinfo=UTC), begins=False)
    lines.append(("repository:late", PastListed(repository="late", branch="main", commits=(late,))))
    rows = report_queries.past(view_of(lines))
    assert ", ".join(f"{row.repository} {int(row.at[8:10])}" for row in rows) == drawn


def test_a_long_history_is_thinned_and_keeps_its_first_and_last_moment() -> None:
    steps = [step(number, str(number), "opened") for number in range(60)]
    whole = followed(steps, most=60)
    thinned = followed(steps, most=7)
    assert (len(whole), len(thinned)) == (60, 7)
    assert (thinned[0], thinned[-1]) == (whole[0], whole[-1])
    assert len(set(thinned)) == 7


def test_what_was_seen_late_stands_at_the_time_of_its_commit_in_the_order_of_its_branch(
    view_of: Fill,
) -> None:
    def commit(name: str, day: int) -> EventBody:
        result = datetime(2026, 1, day, tzinfo=UTC)
        parent = None if name == "first" else sha("first")
        return observed(sha(name), parent=parent).model_copy(update={"committed_at": result})

    scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
    spot = place(scan, scan.sorries[0], blob=sha("b"))
    life = {"repository": REPOSITORY, "branch": "main"}
    events: list[EventBody] = [
        watched(), commit("first", 3), commit("with a wrong clock", 2), commit("last", 5),
        SorryOpened(**life, sha=sha("first"), sorry="a", place=spot, reopened=False),
        SorryFilled(**life, sha=sha("with a wrong clock"), sorry="a", by="people", proof=None),
        SorryOpened(**life, sha=sha("last"), sorry="b", place=spot, reopened=False),
    ]  # fmt: skip
    turns = report_queries.turns(view_of([(STREAM, body) for body in events]))
    assert [(turn.what, turn.at[:10]) for turn in turns] == [
        ("opened", "2026-01-03"),
        ("by_people", "2026-01-03"),
        ("opened", "2026-01-05"),
    ]
    assert [one.open for one in followed(turns)] == [0, 1]


@pytest.mark.parametrize("seed", range(4))
def test_the_last_moment_has_as_many_open_as_the_view_has_in_the_source(seed: int, view_of: Fill) -> None:
    story = Story(seed)
    events: list[tuple[str, EventBody]] = []
    for _ in range(25):
        bodies, _payloads = story._commit()
        events += [(STREAM, body) for body in bodies if isinstance(body, SorryEvent)]
    assert events
    view = view_of([(STREAM, watched()), *events])
    counts = count_all(view).sorries
    last = followed(report_queries.turns(view))[-1]
    assert last.open == counts["open"] + counts["verified"]
    steps = Counter(row.step for row in sorry_steps(view))
    assert last.opened == steps["opened"] + steps["reopened"]
    assert last.by_people + last.by_us == steps["filled"]
    assert last.removed == steps["removed"]


def test_sorries_of_a_branch_that_no_one_watches_are_in_no_number(view_of: Fill) -> None:
    story = Story(2)
    lines: list[tuple[str, EventBody]] = [(STREAM, watched())]
    for _ in range(9):
        lines += [(STREAM, body) for body in story._commit()[0] if isinstance(body, SorryEvent)]
    gone = BranchUnwatched(repository=REPOSITORY, branch="main", last="a" * 40)
    created = BranchCreated(repository=REPOSITORY, branch="main", tip="a" * 40, is_default=True)
    view = view_of([*lines, (STREAM, created), (STREAM, gone)])
    assert followed(report_queries.turns(view)) == ()
    assert report_queries.sorries_here(view) == []


def test_only_the_newest_proofs_are_shown(view_of: Fill) -> None:
    story = Story(5)
    lines: list[tuple[str, EventBody]] = [(STREAM, watched())]
    for _ in range(30):
        lines += [
            (STREAM, body) for body in story._commit()[0] if body.type in ("proof_found", "proof_rejected")
        ]
    view = view_of(lines)
    for verified in (True, False):
        of_sort = [row for row in queries.proofs(view) if (row.state == "verified") == verified]
        newest = sorted((row.found_at for row in of_sort), reverse=True)
        shown = report_queries.newest_proofs(view, MOST_PROOFS, verified=verified)
        assert [one.found_at for one in shown] == newest[:MOST_PROOFS]
    assert of_sort


# ---- what was tried


def tried(number: int, *, model: str = "", **changes: Any) -> EventBody:
    scan = scanned("A.lean", [declaration("Demo.a")], with_sorry=["Demo.a"])
    scan = scanned("A.lean", [declaration("a")], with_sorry=["a"])
    spot = place(scan, scan.sorries[0], blob=sha("blob"))
    body = attempt(f"{number:016x}", spot, commit=sha("commit"), model=model)
    return body.model_copy(update=changes)


def test_what_was_tried_counts_the_newest_attempt_of_each_and_says_how_many_have_a_price(
    view_of: Fill,
) -> None:
    paid: dict[str, Any] = {
        "prover": "external",
        "rung": 4,
        "model": "m",
        "prompt_tokens": 100,
        "completion_tokens": 7,
    }
    bodies = [
        tried(1, outcome="exhausted"),
        tried(2),
        tried(3),
        tried(4, model="byt5", outcome="disproved", seconds=2.0),
        tried(5, **paid, outcome="exhausted", usd=0.25),
        tried(6, **paid, usd=0.5),
        tried(7, **paid, usd=None),
        # The same again: it stands in the place of the one before.
        tried(5, **paid, usd=0.75),
    ]
    view = view_of([("attempts", body) for body in bodies])
    assert report_queries.searches(view) == [
        Searches("tactics", 0, "", 3, 2, 0, 1.5, 0, 0, None),
        Searches("generator", 2, "byt5", 1, 0, 1, 2.0, 0, 0, None),
        Searches("external", 4, "m", 3, 3, 0, 1.5, 321, 2, 1.25),
    ]
    html = render(view, made_at=WHEN).html["proofs.html"]
    assert "the newest attempt of each on each sorry" in html
    assert ">1.25 for 2 of 3</td>" in html


def test_all_of_it_is_of_one_moment_whatever_is_recorded_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "database.db"
    with MemoryLog() as log, View.open(path, log.reader()) as view:

        def record(name: str) -> None:
            log.append([NewEvent("r", watched(repository=name))], expect={"r": Expect.ANY})
            view.catch_up()

        record("example.org/a/before")
        connection = queries.connect(path)

        def meanwhile(*arguments: Any) -> Any:
            record("example.org/b/meanwhile")
            return followed(*arguments)

        monkeypatch.setattr(sections, "followed", meanwhile)
        try:
            result = render(connection, made_at=WHEN)
            assert result.position == 1
            assert "b/meanwhile" not in result.html["index.html"]
            assert queries.position(connection) == 2, "and the connection is given back as it was"
        finally:
            connection.close()
